"""Routes, paths, queries and fields: the cards PH-01 to PH-12 over HTTP/1.1.  The bytes are judged on the request line that
the backend received."""
import base64
import hashlib
import time

from lib import P, P2, answer, check, equal, request, says, secure, test

BRAND = "OpenSandbox Ingress: "
SECRET = b"conformance-key-1"
KEYS = "a=" + base64.b64encode(SECRET).decode()
QUERY = "b=2&a=1&b=3&uploads&sig=%E9%FF&s=1;2&q=hello%20world&p=a+b&e=%2f&x=%zz&&="
PATH = "/r/%252F/%7euser/a%3Bv=1/%5Bx%5D/100%25/%C3%A9/it's|here/"


def signed(sandbox, port, seconds=3600, key="a", secret=SECRET):
    """(exp36, signature) of v1, as contract 4.4 has it."""
    number, exp36 = int(time.time()) + seconds, ""
    while number:
        number, digit = divmod(number, 36)
        exp36 = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + exp36
    canonical = f"v1\nshort\n{sandbox}\n{port}\n{exp36}\n".encode()
    inner = len(secret).to_bytes(4, "big") + secret + len(canonical).to_bytes(4, "big") + canonical
    return exp36, hashlib.sha256(inner).hexdigest()[:8] + key


def upgrade(target, *fields):
    return request("GET", target, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *fields)


@test("PH-01")
def query_passes_byte_for_byte(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    for target in (f"/echo?{QUERY}", "/echo?", "/?", "/a?b?c#d", "/a?\xe9\xff"):
        equal(c.ask("GET", P + target).status, 200, target)
        equal(b.last.target, target, "target at the backend")
    c.send(upgrade(f"{P}/echo?{QUERY}")).response()
    equal((b.last.target, b.last.get("upgrade")), (f"/echo?{QUERY}", "websocket"), "in an upgrade")


@test("PH-02")
def escapes_in_the_path_pass_byte_for_byte(lab):
    b = lab.backend()
    gw = lab.gateway("--base-domain=gw.test", routes={"sb1": b})
    c = gw.client()
    for target in (PATH + "?z=%2F", "//static//a.png", "/a%2Fb", "/%zz", "/a/", "/\xe9", "/a%00b", "/;p=1", "/'\"<>\\^`{|}"):
        equal(c.ask("GET", P + target).status, 200, target)
        equal(b.last.target, target, "by path")
        equal(c.ask("GET", target, host="sb1-3000.gw.test").status, 200, target)
        equal(b.last.target, target, "by Host")
        equal(c.ask("GET", target, "OpenSandbox-Ingress-To: sb1-3000").status, 200, target)
        equal(b.last.target, target, "by header")


@test("PH-03")
def dot_segments_that_leave_the_prefix_are_refused(lab):
    b, other = lab.backend(), lab.backend()
    gw = lab.gateway(routes={"sb1": b, "sb2": other})
    c = gw.client()
    for rest in ("/../../../sb2/port/3000/secret", "/%2e%2e/%2e%2e/%2e%2e/sb2/port/3000/secret", "/%2e./x", "/.%2E/x", "/..%2fx", "/..%2Fx", "/a/../../x",
                 "//../x", "/./../x", "/..", "/%2e%2e", "/a%2f..%2f..%2fx"):
        r = c.ask("GET", P + rest)
        equal((r.status, r.text), (400, BRAND + "invalid ingress route: path leaves the route prefix\n"), rest)
    for target in ("/sandboxes/sb1%2f..%2fsb2/port/3000/", "/sandboxes/s%62/port/3000/", "/sandboxes/../port/3000/", "/sandboxes/sb1/port/300%30/"):
        equal(c.ask("GET", target).status, 400, target)
    equal((len(b.conns), len(other.conns)), (0, 0), "backend connections")


@test("PH-03")
def dot_segments_that_stay_inside_pass_unchanged(lab):
    b, other = lab.backend(), lab.backend()
    gw = lab.gateway(routes={"sb1": b, "sb2": other})
    c = gw.client()
    for rest in ("/a/../b", "/a/./b", "/a/%2e%2e/b", "/.", "/...", "/%252e%252e/%252e%252e/x", "/..;/..;/x", "/..\\..\\x", "/a/b/../../c", "/x?/../../.."):
        equal(c.ask("GET", P + rest).status, 200, rest)
        equal(b.last.target, rest, "at the backend")
    for target in ("/../x", "/%2e%2e/x"):
        equal(c.ask("GET", target, "OpenSandbox-Ingress-To: sb1-3000").status, 200, target)
        equal(b.last.target, target, "under a header route there is no prefix")
    equal(len(other.conns), 0, "connections of the other sandbox")


@test("PH-04")
def route_without_a_rest_is_the_root(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    for target, forward in ((P, "/"), (P + "/", "/"), (P + "?x", "/?x"), (P + "?", "/?")):
        equal(c.ask("GET", target).status, 200, target)
        equal(b.last.target, forward, target)
    uri = lab.gateway("--mode=uri", routes={"sb1": b}).client()
    for target, forward in (("/sb1/3000", "/"), ("/sb1/3000?x", "/?x"), ("/s%621/300%30/a", "/a")):
        equal(uri.ask("GET", target).status, 200, target)
        equal(b.last.target, forward, target)


@test("PH-05")
def application_learns_the_clients_side(lab):
    b = lab.backend()
    for flag, host in (("--backend-host=target", b.address), ("--backend-host=preserve", "gw.test:8443")):
        gw = lab.gateway(flag, routes={"sb1": b})
        c = gw.client()
        for send in (lambda: c.ask("GET", P + "/", host="gw.test:8443"),
                     lambda: gw.client().send(upgrade(P + "/").replace(b"Host: gw.test", b"Host: gw.test:8443")).response()):
            equal(send().status, 200, "status")
            seen = {n: b.last.all(n) for n in ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix", "host")}
            equal(seen, {"x-forwarded-for": ["127.0.0.1"], "x-forwarded-host": ["gw.test:8443"], "x-forwarded-proto": ["http"],
                         "x-forwarded-port": [str(gw.port)], "x-forwarded-prefix": [P], "host": [host]}, flag)
        c.ask("GET", "/x", "OpenSandbox-Ingress-To: sb1-3000")
        equal(b.last.all("x-forwarded-prefix"), [], "prefix under a header route")


FORGED = ("X-Forwarded-Host: sb2-3000.gw.test", "X-Forwarded-Proto: https", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Port: 1",
          "X-Forwarded-Prefix: /evil", "Forwarded: for=1.2.3.4", "X-Real-IP: 1.2.3.4")


@test("PH-06")
def forwarding_fields_of_strangers_count_for_nothing(lab):
    b, other = lab.backend(), lab.backend()
    gw = lab.gateway("--base-domain=gw.test", "--trusted-proxies=10.0.0.0/8", routes={"sb1": b, "sb2": other})
    r = gw.client().ask("GET", "/x", *FORGED, host="sb1-3000.gw.test")
    equal((r.status, len(other.requests)), (200, 0), "status, requests of the other sandbox")
    seen = b.last
    for name, wanted in (("x-forwarded-for", ["127.0.0.1"]), ("x-forwarded-host", ["sb1-3000.gw.test"]), ("x-forwarded-proto", ["http"]),
                         ("x-forwarded-port", [str(gw.port)]), ("x-forwarded-prefix", []), ("forwarded", []), ("x-real-ip", [])):
        equal(seen.all(name), wanted, name)
    equal(gw.access(1)[0]["client"], "127.0.0.1", "client in the log")


@test("PH-06")
def forwarding_fields_of_a_trusted_proxy_are_kept(lab):
    b, other = lab.backend(), lab.backend()
    gw = lab.gateway("--base-domain=gw.test", "--trusted-proxies=127.0.0.0/8", routes={"sb1": b, "sb2": other})
    r = gw.client().ask("GET", "/x", *FORGED, "X-Forwarded-For: 9.9.9.9, 127.0.0.7", host="sb1-3000.gw.test")
    equal((r.status, len(other.requests)), (200, 0), "status, requests of the other sandbox")
    seen = b.last
    for name, wanted in (("x-forwarded-for", ["10.0.0.1, 9.9.9.9, 127.0.0.7, 127.0.0.1"]), ("x-forwarded-host", ["sb2-3000.gw.test"]), ("x-forwarded-proto", ["https"]),
                         ("x-forwarded-port", ["1"]), ("forwarded", ["for=1.2.3.4"]), ("x-real-ip", ["1.2.3.4"])):
        equal(seen.all(name), wanted, name)
    equal(gw.access(1)[0]["client"], "9.9.9.9", "client in the log")


@test("PH-07")
def our_credentials_stop_here(lab):
    b = lab.backend()
    token = "s3cret-t0ken"
    gw = lab.gateway(f"--secure-access-keys={KEYS}", "--forward-api-key=false", routes={"sb1": b, "sb2": secure(b, token)})
    exp36, signature = signed("sb2", 3000)
    ours = ("opensandbox-SECURE-access: " + token, "OPENSANDBOX-INGRESS-TO: {sb}-3000", "open-sandbox-ingress: x-1", "OpenSandbox-Secure-Access: other-t0ken",
            "OPEN-SANDBOX-INGRESS: x-2", "OpenSandbox-Ingress-To: x-3", "OpenSandbox-Access-Renew: no", "open-sandbox-api-key: k3y", "OPEN-SANDBOX-API-KEY: k4y")
    theirs = ("Cookie: a=1; b=2", "Cookie: c=3", "Authorization: Bearer app", "OPENSANDBOX-EGRESS-AUTH: eg")
    for sb in ("sb1", "sb2"):
        for method in ("GET", "POST", "upgrade"):
            fields = tuple(f.format(sb=sb) for f in ours) + theirs
            raw = upgrade("/x", *fields) if method == "upgrade" else request(method, "/x", *fields)
            r = gw.client().send(raw).response()
            equal(r.status, 200, f"{sb} {method}")
            text = b.last.raw.lower()
            for secret in (b"t0ken", b"ngress-to", b"sandbox-ingress", b"access-renew", b"api-key", b"k3y", b"k4y"):
                check(secret not in text, secret, "at the backend:", text)
            equal((b.last.all("cookie"), b.last.all("authorization"), b.last.all("opensandbox-egress-auth")), (["a=1; b=2", "c=3"], ["Bearer app"], ["eg"]), "theirs")
    r = gw.client().ask("GET", f"{P2}/{exp36}/{signature}/x?y")
    equal((r.status, b.last.target, b.last.get("x-forwarded-prefix")), (200, "/x?y", P2), "signed segments")
    check(signature.encode() not in b.last.raw, "a signature at the backend:", b.last.raw)
    r = gw.client().ask("GET", f"{P}/{exp36}/{signature}/x?y")
    equal((r.status, b.last.target), (200, f"/{exp36}/{signature}/x?y"), "the same on an open sandbox is the application's")


@test("PH-07")
def tenants_key_passes_where_the_switch_says_so(lab):
    b = lab.backend()
    gw = lab.gateway("--forward-api-key", routes={"sb1": b})
    gw.client().ask("GET", P + "/", "OPEN-SANDBOX-API-KEY: k3y")
    equal(b.last.all("open-sandbox-api-key"), ["k3y"], "the key")


@test("PH-08")
def cookies_are_the_applications(lab):
    b = lab.backend(lambda c: c.answer(answer(200, "Set-Cookie: s=1; Path=/; Domain=gw.test", "Set-Cookie: t=2; HttpOnly")))
    other = lab.backend()
    gw = lab.gateway(routes={"sb1": b, "sb2": other})
    r = gw.client().ask("GET", P + "/")
    equal(r.all("set-cookie"), ["s=1; Path=/; Domain=gw.test", "t=2; HttpOnly"], "cookies")
    r = gw.client().ask("GET", P2 + "/", "Cookie: s=1")
    equal((other.last.all("cookie"), r.all("set-cookie")), (["s=1"], []), "the other sandbox")


@test("PH-09")
def routing_headers_in_all_their_states(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(says("one")), "sb2": lab.backend(says("two"))})
    uri = lab.gateway("--mode=uri", routes={"sb1": lab.backend(says("one")), "sb2": lab.backend(says("two"))})
    to, old = "OpenSandbox-Ingress-To: ", "OPEN-SANDBOX-INGRESS: "
    for fields, expect in (((), (200, b"two")), ((to,), (200, b"two")), ((to + "   ",), (200, b"two")), ((to + "sb1-3000",), (200, b"one")),
                           ((to + "sb1",), (400, None)), ((to + "nobody-3000",), (404, None)), ((to + "sb1-0",), (400, None)),
                           ((to + "sb1-70000",), (400, None)), ((to + "a, b",), (400, None)), ((to, old + "sb1-3000"), (200, b"one")),
                           ((to + "sb1-3000", old + "sb2-3000"), (200, b"one")), ((old + "sb1-3000",), (200, b"one")),
                           ((to + "nonsense", old + "sb1-3000"), (400, None)), ((to, to + "sb1-3000"), (200, b"two")),
                           ((to + "sb1-3000", to + "sb2-3000"), (200, b"one"))):
        r = gw.client().ask("GET", P2 + "/", *fields)
        check((r.status, r.body if expect[1] else None) == expect, fields, "answered", r.status, r.body)
        r = uri.client().ask("GET", P2 + "/", *fields)
        equal((r.status, r.body), (200, b"two"), f"in uri mode, {fields}")


@test("PH-09")
def mode_that_does_not_exist_stops_the_start(lab):
    for mode in ("Header", "path", "AUTO", "", "auto "):
        code, out, err = lab.run(f"--mode={mode}", "--check")
        equal((code, len(err.strip().splitlines()[-1:])), (2, 1), f"--mode={mode}")
        check("mode" in err, err)


@test("PH-10")
def labels_with_hyphens_case_dots_and_ports(lab):
    b = lab.backend(says("hyphens"))
    flags = ("--base-domain=gw.test",)
    gw = lab.gateway(*flags, routes={"my-sand-box": b, "sb1": lab.backend(says("one"))})
    for host, expect in (("my-sand-box-3000.gw.test", (200, b"hyphens")), ("sb1-3000.GW.TEST", (200, b"one")), ("sb1-3000.gw.test:8080", (200, b"one")),
                         ("sb1-3000.gw.test.", (200, b"one")), ("SB1-3000.gw.test", (404, None)), ("a.sb1-3000.gw.test", (400, None)), (".gw.test", (400, None))):
        r = gw.client().ask("GET", "/", host=host)
        check((r.status, r.body if expect[1] else None) == expect, host, "answered", r.status, r.body)
    for host in ("sb1-3000.gw.test.evil.test", "sb1-3000.xgw.test", "[::1]:8080", "sb1-3000", "gw.test"):
        equal(gw.client().ask("GET", "/", host=host).status, 400, f"{host} without a path route")
        r = gw.client().ask("GET", P + "/", host=host)
        equal((r.status, r.body), (200, b"one"), f"{host} with a path route")


@test("PH-11")
def sidecars_api_is_routed_like_any_port(lab):
    def script(conn):
        while True:
            r = conn.request()
            right = r.get("opensandbox-egress-auth") == "eg"
            conn.send(answer(403 if r.target == "/credential-vault/_active" else 200 if right else 401, body=b"sidecar"))
    b = lab.backend(script)
    to = {"address": "127.0.0.1", "ports": {"18080": {"address": b.address}, "44772": {"address": b.address}}}
    for flags, expect in (((), None), (("--deny-ports=18080,44770-44780",), 403)):
        gw = lab.gateway(*flags, routes={"sb1": to})
        ug = lab.gateway("--mode=uri", *flags, routes={"sb1": to})
        for port in (18080, 44772):
            ways = ((gw, f"/sandboxes/sb1/port/{port}", (), "gw.test"), (gw, "", (f"OpenSandbox-Ingress-To: sb1-{port}",), "gw.test"),
                    (gw, "", (), f"sb1-{port}.gw.test"), (ug, f"/sb1/{port}", (), "gw.test"))
            for g, prefix, fields, host in ways:
                for path, auth, status in (("/policy", (), 401), ("/policy", ("OPENSANDBOX-EGRESS-AUTH: eg",), 200), ("/credential-vault", (), 401),
                                           ("/credential-vault/_active", ("OPENSANDBOX-EGRESS-AUTH: eg",), 403)):
                    r = g.client().ask("POST", prefix + path, *fields, *auth, host=host, body=b"{}")
                    equal(r.status, expect or status, f"{prefix}{path} {fields} {host} {flags}")
                    equal(r.body == b"sidecar", expect is None, "who answered")
                    if expect:
                        equal(r.text, BRAND + f"port {port} is closed on this gateway\n", "text")
        before = len(b.requests)
        r = gw.client().send(upgrade("/sandboxes/sb1/port/18080/policy")).response()
        equal((r.status, len(b.requests) - before), (expect or 401, 0 if expect else 1), "an upgrade")


@test("PH-12")
def proof_is_bound_to_one_sandbox_and_one_port(lab):
    b = lab.backend()
    gw = lab.gateway(f"--secure-access-keys={KEYS}", routes={"sb1": secure(b, "tok-1"), "sb2": secure(b, "tok-2"), "sb3": {**secure(b, "tok-3"), "state": "Paused"}})
    e, s = signed("sb1", 3000)
    c = gw.client()
    equal(c.ask("GET", f"{P}/{e}/{s}/x").status, 200, "its own")
    equal(c.ask("GET", P + "/x", "OpenSandbox-Secure-Access: tok-1").status, 200, "its own token")
    for target, fields, status in ((f"{P2}/{e}/{s}/x", (), 401), (f"/sandboxes/sb1/port/3001/{e}/{s}/x", (), 401), (P2 + "/x", ("OpenSandbox-Secure-Access: tok-1",), 401),
                                   (P2 + "/x", (), 401), (P2 + "/x", ("OpenSandbox-Secure-Access:",), 401), ("/sandboxes/sb9/port/3000/x", (), 404),
                                   ("/sandboxes/sb3/port/3000/x", (), 503), (f"{P}/{e}/{s[:-2]}0a/x", ("OpenSandbox-Secure-Access: tok-2",), 401)):
        before = len(b.requests)
        r = c.ask("GET", target, *fields)
        equal((r.status, len(b.requests) - before), (status, 0), f"{target} {fields}")
        for word in (b"127.0.0.1", b"namespace", b"replica", b"tok-", b"Paused"):
            check(word not in r.raw + r.body, word, "in", r.body)
        equal(r.get("retry-after"), "1" if status == 503 else None, "Retry-After")
