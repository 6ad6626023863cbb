"""What an error of ours looks like, and the request id that goes through everything."""
import json
import re

from lib import P, answer, check, equal, plays, test

BRAND = "OpenSandbox Ingress: "
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


def faulty(lab, **flags):
    """A gateway with a sandbox for each way to fail: name → (target, status, code)."""
    gone, mute = lab.backend(), lab.backend(plays(b"HTTP/1.1 200 OK\r\nContent-Le"))
    garbage, slow = lab.backend(plays(b"SSH-2.0\r\n\r\n")), lab.backend(lambda c: (c.request(), c.ending(20)))
    gw = lab.gateway("--response-timeout=300ms", "--connect-timeout=300ms", "--deny-ports=22",
                     routes={"gone": gone, "mute": mute, "garbage": garbage, "slow": slow, "deaf": lab.deaf(), "paused": {"address": "127.0.0.1", "state": "Paused"},
                             "meta": {"address": "169.254.169.254"}, "secure": {"address": "127.0.0.1", "secureAccessToken": "t"}})
    gone.stop()
    at = "/sandboxes/%s/port/3000/app.js"
    return gw, {
        "stopped": (at % "gone", 502, "upstream_unreachable"),
        "unknown": (at % "nobody", 404, "sandbox_not_found"),
        "bad port": ("/sandboxes/gone/port/0/app.js", 400, "route_invalid"),
        "lost in its head": (at % "mute", 502, "upstream_failed"),
        "garbage": (at % "garbage", 502, "upstream_invalid"),
        "silent": (at % "slow", 504, "upstream_timeout"),
        "dropped": (at % "deaf", 504, "upstream_timeout"),
        "paused": (at % "paused", 503, "sandbox_not_ready"),
        "metadata": (at % "meta", 502, "target_forbidden"),
        "no credential": (at % "secure", 401, "signature_required"),
        "closed port": ("/sandboxes/gone/port/22/", 403, "port_denied"),
        "no route": ("/nowhere", 400, "route_invalid"),
    }


def common(r, what):
    check(r.body, "an empty body:", what)
    check(re.fullmatch(r"[A-Za-z0-9._-]{1,128}", r.get("x-request-id", "")), "X-Request-Id", r.all("x-request-id"), what)
    equal((r.all("cache-control"), r.all("x-content-type-options")), (["no-store"], ["nosniff"]), what)
    equal(r.all("retry-after"), ["1"] if r.status == 503 else [], what)
    for word in (b"127.0.0.1", b"169.254", b"namespace", b"Connection refused"):
        check(word not in r.body, word, "in", r.body)


@test("H1-10")
def error_has_a_text_in_every_path(lab):
    gw, ways = faulty(lab)
    for what, (target, status, code) in ways.items():
        for fields in ((), ("Accept: */*",)):
            r = gw.client().ask("GET", target, *fields)
            equal((r.status, r.get("content-type")), (status, "text/plain; charset=utf-8"), what)
            check(r.text.startswith(BRAND) and r.text.endswith("\n"), what, r.text)
            common(r, what)


@test("H1-10")
def error_is_json_where_the_client_prefers_it(lab):
    gw, ways = faulty(lab)
    for what, (target, status, code) in ways.items():
        r = gw.client().ask("GET", target, "Accept: application/json", "X-Request-Id: my.id-1")
        equal((r.status, r.get("content-type")), (status, "application/json"), what)
        equal((sorted(r.json), sorted(r.json["error"])), (["error"], ["code", "message", "request_id"]), what)
        equal((r.json["error"]["code"], r.json["error"]["request_id"], r.get("x-request-id")), (code, "my.id-1", "my.id-1"), what)
        check(not r.json["error"]["message"].startswith(BRAND), what)
        common(r, what)


@test("H1-10")
def error_is_a_page_where_the_client_prefers_it(lab):
    gw, ways = faulty(lab)
    for what, (target, status, code) in ways.items():
        r = gw.client().ask("GET", target, "Accept: " + BROWSER)
        equal((r.status, r.get("content-type")), (status, "text/html; charset=utf-8"), what)
        check(BRAND in r.text and r.get("x-request-id") in r.text, what, r.text)
        equal("http-equiv=\"refresh\"" in r.text, status == 503, f"loads itself again, {what}")
        common(r, what)


@test("H1-10")
def error_to_head_has_a_length_and_no_body(lab):
    gw, ways = faulty(lab)
    for what, (target, status, code) in ways.items():
        c = gw.client()
        r = c.ask("HEAD", target)
        equal(r.status, status, what)
        check(int(r.get("content-length")) > 0, what)
        r = c.ask("GET", "/status.ok")
        equal((r.status, r.body), (200, b"OK"), f"the connection goes on after {what}")


@test("H1-10")
def error_keeps_the_connection_in_step(lab):
    gw, ways = faulty(lab)
    c = gw.client()
    for what, (target, status, code) in ways.items():
        r = c.ask("POST", target, body=b"x" * 5000)
        equal(r.status, status, what)
        if r.get("connection") == "close":
            equal(c.ending(), "fin", f"the end after {what}")
            c = gw.client()


@test("H1-10")
def what_a_client_sent_is_shown_escaped_and_cut(lab):
    gw = lab.gateway()
    value = "<script>&\"'" + "x" * 300
    r = gw.client().ask("GET", "/", f"OpenSandbox-Ingress-To: {value}", "Accept: text/html")
    check("<script>" not in r.text and "&lt;script&gt;&amp;&quot;&#39;" in r.text, r.text)
    check("x" * 250 not in r.text, "not cut:", r.text)
    r = gw.client().ask("GET", "/", "OpenSandbox-Ingress-To: a\"\\\xff\xfe b", "Accept: application/json")
    equal((r.status, json.loads(r.body)["error"]["code"]), (400, "route_invalid"), "bytes that are no text")


@test("sn-46465391")
def request_id_is_one_in_answer_backend_and_log(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    for n, given in enumerate(("abc", "A-b_c.9", "x" * 128)):
        r = gw.client().ask("GET", P + "/", f"X-Request-Id: {given}")
        equal((r.status, r.all("x-request-id"), b.last.all("x-request-id")), (200, [given], [given]), "forwarded")
        r = gw.client().ask("GET", "/sandboxes/nobody/port/1/", f"X-Request-Id: {given}", "Accept: application/json")
        equal((r.status, r.all("x-request-id"), r.json["error"]["request_id"]), (404, [given], given), "refused")
        equal(sorted(line["status"] for line in gw.access(2, request_id=given)), [200, 404], "in the log")
        r = gw.client().ask("GET", "/status.ok", f"X-Request-Id: {given}")
        equal(r.all("x-request-id"), [given], "health page")


@test("sn-46465391")
def backends_own_request_id_passes(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(plays(answer(200, "X-Request-Id: theirs")))})
    r = gw.client().ask("GET", P + "/", "X-Request-Id: ours")
    equal(r.all("x-request-id"), ["theirs"], "answer")
    equal(len(gw.access(1, request_id="ours")), 1, "access lines")


@test("sn-40ddd53e")
def request_id_of_strangers_is_nowhere(lab):
    b = lab.backend()
    gw = lab.gateway("--log-level=debug", routes={"sb1": b})
    for given in ("zq" * 100, "zq zq", "zq\"zq", "zq\xe9", "zq,zq", "", "zq<"):
        for target in (P + "/", "/sandboxes/nobody/port/1/"):
            r = gw.client().ask("GET", target, f"X-Request-Id: {given}")
            made = r.get("x-request-id")
            check(re.fullmatch(r"[A-Za-z0-9._-]{1,128}", made) and "zq" not in made, "made", made, "of", given)
            check(b"zq" not in r.raw + r.body, "the old one in the answer")
            equal(len(gw.access(1, request_id=made)), 1, "access lines")
    check(not any("zq" in q.raw.decode("latin-1") for q in b.requests), "the old one at the backend")
    check("zq" not in gw.stdout() + gw.stderr() + gw.admin("/debug/exchanges").text, "the old one in the log")


@test("sn-46465391")
def two_request_ids_are_not_two(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().ask("GET", P + "/", "X-Request-Id: one", "X-Request-Id: two")
    equal((len(r.all("x-request-id")), b.last.all("x-request-id")), (1, r.all("x-request-id")), "ids")


@test("H1-10")
def answers_of_the_sandbox_are_not_changed_into_ours(lab):
    for status in (400, 401, 404, 418, 500, 502, 503, 504, 599):
        gw = lab.gateway(routes={"sb1": lab.backend(plays(answer(status, "Content-Type: text/x", body=b"theirs")))})
        r = gw.client().ask("GET", P + "/", "Accept: application/json")
        equal((r.status, r.body, r.get("content-type"), r.has("cache-control")), (status, b"theirs", "text/x", False), "answer")
        equal(r.all("reverse-proxy-server-powerby"), ["OpenSandbox-ingress"], "powered-by")
