"""f1. routes through the real gateway, in front of a FastPath that answers by script: what is asked, what is kept, what a
backend sees, what becomes of routes that are stale, and that a FastPath which is slow, gone or mad costs its own callers an
error and nobody else anything.  The ids sn-… are those of tests/vectors/ingress/scenarios.jsonl."""
import os
import socket
import sys
import threading
import time

from fast import LOOPBACK, NS, STALE, UNAVAILABLE, ask, asks, fast, fastpath, knows, to
from fastpath_server import CREDENTIAL, bytes_of, code, goaway, message_of, raw, reset, route, silent
from gateway import free_port
from h2wire import H2
from lib import P, answer, check, equal, test, took, wait_for
from signed import RING, scope
from wire import Skipped
from ws import ECHO, handshake, mixed, opened, says_hello

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from kube_server import KubeServer  # noqa: E402

MARK = "X-Fast-Sandbox-Proxy-Error"


def marked(status, word, *more, body=b"secret"):
    return answer(status, f"{MARK}: {word}", *more, body=body)


def answers(*datas):
    """A script: the first request ever gets the first of these, and so on; the last one stays."""
    left = list(datas)
    lock = threading.Lock()

    def script(conn):
        while True:
            conn.request()
            with lock:
                data = left.pop(0) if len(left) > 1 else left[0]
            conn.send(data)
    return script


def is_stale(r):
    equal((r.status, r.text), (503, STALE), "answer")
    equal(r.all("retry-after"), ["1"], "Retry-After")
    equal(r.all("reverse-proxy-server-powerby"), ["OpenSandbox-ingress"], "powered-by line")
    for name in (MARK, "etag", "location", "set-cookie"):
        check(not r.has(name), "a field of the stale answer came through:", name)


def forgotten(gw, fp, count, sandbox="sb1", **how):
    """The next request asks again."""
    ask(gw, sandbox, **how)
    equal(fp.count("ResolveEndpoint", sandbox), count, f"calls {fp.asked()}")


# ---- whom a route goes to

@test("sn-429f5718", "fast-routes")
def plain_routes_go_to_the_cluster_and_f1_routes_to_fastpath(lab):
    kube = KubeServer(lab.dir)
    lab.peers.append(kube)
    fp, pod, proxy = fastpath(lab), lab.backend(answers(answer(200, body=b"pod")), host="0.0.0.0"), lab.backend()
    kube.put("sb1", "127.0.0.2")
    kube.put("only-there", "127.0.0.2")
    knows(fp, proxy, "sb1")
    gw = fast(lab, fp, provider="batchsandbox", env={"KUBECONFIG": kube.kubeconfig()})

    def plain(name):
        return gw.client().ask("GET", "/", f"OpenSandbox-Ingress-To: {name}-{pod.port}", "Connection: close")
    for _ in range(3):
        equal(plain("sb1").text, "pod", "plain route")
        equal(ask(gw).json["line"], "GET / HTTP/1.1", "f1. route")
    equal(fp.count(), 1, "calls")
    bad = gw.client().ask("GET", "/", to("only-there", pod.port, secret=b"wrong"), "Connection: close")
    equal((bad.status, fp.count()), (401, 1), "a bad token, and calls")
    ask(gw, "only-there", port=pod.port, status=404)


@test("sn-9bbca05d", "sn-2ffa05cd", "fast-refused")
def what_is_refused_is_refused_without_a_call(lab):
    fp = fastpath(lab)
    knows(fp, lab.backend(), "sb1", "sandbox-123")
    gw = fast(lab, fp, "--deny-ports=9999")
    good = scope("sb1")
    parts = good.split(".")
    invalid = "OpenSandbox Ingress: invalid ingress route: route scope: "
    rows = [("sandbox-123-44772", 401, "OpenSandbox Ingress: route scope: unauthorized: Fast Sandbox provider requires an "
             "authenticated route scope\n"),
            (scope("sb1", 18080), 501, "OpenSandbox Ingress: sandbox target not supported: use the lifecycle networkpolicy API "
             "instead of port 18080\n"),
            (scope("sb1", 9999), 403, "OpenSandbox Ingress: port 9999 is closed on this gateway\n"),
            (scope("sb1", tag="opensandbox-fleets-route-v1"), 401, invalid + "unauthorized: mac mismatch\n"),
            (scope("sb1", secret=b"other"), 401, invalid + "unauthorized: mac mismatch\n"),
            (scope("sb1", key="z"), 401, invalid + "unauthorized: unknown key_id\n"),
            (".".join([*parts[:2], parts[1], *parts[3:]]), 401, invalid + "unauthorized: mac mismatch\n"),
            (good + ".x", 401, invalid + "invalid: malformed token\n"),
            (good + ".gw.test", 401, invalid + "invalid: malformed token\n"),
            ("f1.", 401, invalid + "invalid: malformed token\n"),
            (".".join(["f1", "!", *parts[2:]]), 401, invalid + "invalid: invalid namespace\n"),
            (".".join([*parts[:2], "!", *parts[3:]]), 401, invalid + "invalid: invalid sandbox_id\n"),
            (".".join([*parts[:3], "0", *parts[4:]]), 401, invalid + "invalid: invalid port\n"),
            (".".join([*parts[:4], "A", parts[5]]), 401, invalid + "invalid: invalid key_id\n"),
            (good[:-1], 401, invalid + "invalid: invalid mac\n")]
    for value, status, text in rows:
        r = gw.client().ask("GET", "/", f"OpenSandbox-Ingress-To: {value}", "Connection: close")
        equal((r.status, r.text), (status, text), value)
    equal(fp.count(), 0, "calls")
    ask(gw)


@test("fast-routes")
def a_token_stands_in_the_header_in_the_host_or_first_in_the_path(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "sb1", path="/base")
    token = scope("sb1")
    gw = fast(lab, fp)
    equal(gw.client().ask("GET", "/a?b", "Connection: close", host=token + ":80").json["line"], "GET /base/a?b HTTP/1.1", "Host")
    equal(gw.client().ask("GET", f"/sandboxes/{token}/port/80/", "Connection: close").status, 401, "an id of form 3")
    gw = fast(lab, fp, "--mode=uri")
    r = gw.client().ask("GET", f"/{token}/a/../b%2f?c", "Connection: close")
    equal(r.json["line"], "GET /base/a/../b%2f?c HTTP/1.1", "path")


# ---- what is asked and kept

@test("sn-465bcfdd", "fast-cache")
def two_namespaces_of_one_id_are_two_sandboxes(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "sb1", ns="red", credential="of-red")
    knows(fp, b, "sb1", ns="blue", credential="of-blue")
    gw = fast(lab, fp)
    for ns in ("red", "blue", "red", "blue"):
        seen = gw.client().ask("GET", "/", to("sb1", namespace=ns), "Connection: close").json["fields"]
        equal([v for n, v in seen if n.lower() == CREDENTIAL.lower()], ["of-" + ns], "credential")
    equal(sorted((c.namespace, c.sandbox, c.port, c.access_mode) for c in fp.asked()),
          [("blue", "sb1", 3000, 1), ("red", "sb1", 3000, 1)], "calls")
    for call in fp.asked():  # sandbox, target and mode, and nothing else: no component name, no generation
        check(call.message.endswith(b"\x12\x03\x10\xb8\x17\x18\x01"), call.message)


@test("sn-9cea448e", "fast-cache")
def an_answer_counts_until_five_seconds_before_its_end(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "long", expires_in=60)
    knows(fp, b, "short", expires_in=7)
    gw = fast(lab, fp)
    start = time.monotonic()
    for _ in range(5):
        ask(gw, "long")
    if time.monotonic() - start > 50:
        raise Skipped("the machine is too slow")
    equal(fp.count("ResolveEndpoint", "long"), 1, "calls while it lives")
    ask(gw, "short")
    time.sleep(2.2)
    forgotten(gw, fp, 2, "short")


@test("fast-cache")
def a_crowd_asks_once(lab):
    fp, b = fastpath(lab), lab.backend()
    hold = threading.Event()
    knows(fp, b, "sb1")
    fp.resolve[NS, "sb1"]["hold"] = hold
    gw = fast(lab, fp, "--fastpath-wait-timeout-millis=60000", "--decide-timeout=60s")
    crowd = [asks(gw) for _ in range(40)]
    wait_for(lambda: fp.count() == 1, "the call")
    time.sleep(0.2)
    hold.set()
    for c in crowd:
        equal(c.response().status, 200, "status")
    equal(fp.count(), 1, "calls")


# ---- what the backend sees

@test("sn-6d9cd4e2", "fast-join")
def path_and_query_are_joined_and_the_credential_is_the_providers(lab):
    fp, b = fastpath(lab), lab.backend()
    base = "/v2/sandboxes/uid/components/execd"
    knows(fp, b, "sb1", path=base, credential="good")
    knows(fp, b, "sb2", path="/q/?a=1")
    gw = fast(lab, fp)
    r = ask(gw, "sb1", "Authorization: Bearer x", f"{CREDENTIAL}: spoofed", f"{CREDENTIAL.lower()}: again",
            target="/api/health?watch=true").json
    equal(r["line"], f"GET {base}/api/health?watch=true HTTP/1.1", "line")
    seen = [(n.lower(), v) for n, v in r["fields"]]
    check(("authorization", "Bearer x") in seen, seen)
    equal([v for n, v in seen if n == CREDENTIAL.lower()], ["good"], "credential")
    equal([v for n, v in seen if n == "host"], [b.address], "Host")
    check(not any(n == "opensandbox-ingress-to" for n, _ in seen), "the token reached the backend")
    equal(ask(gw, "sb2", target="//x?b=2").json["line"], "GET /q//x?a=1&b=2 HTTP/1.1", "line")
    check("good" not in gw.stdout() + gw.admin("/metrics").text, "the credential is shown")


@test("sn-f41261f1", "fast-join")
def a_callers_credential_reaches_nobody(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    gw.client().ask("GET", P + "/", f"{CREDENTIAL}: spoofed", "Connection: close")
    check(not b.last.has(CREDENTIAL), b.last.fields)


@test("sn-e1f48765", "fast-join")
def a_websocket_is_joined_too(lab):
    fp, b = fastpath(lab), lab.backend(ECHO)
    knows(fp, b, "sb1", path="/route", credential="good")
    gw = fast(lab, fp)
    c = opened(gw, "/ws", to(), "Authorization: Bearer x", f"{CREDENTIAL}: spoofed")
    says_hello(c)
    equal(b.last.target, "/route/ws", "target")
    equal((b.last.all("authorization"), b.last.all(CREDENTIAL)), (["Bearer x"], ["good"]), "fields")


# ---- stale routes

@test("sn-3808b667", "fast-stale")
def a_stale_route_is_thrown_away_and_its_answer_too(lab):
    extra = ("ETag: x", "Location: /x", "Set-Cookie: a=b")
    for word in ("stale_route", "credential_rejected", "route_unavailable", "upstream_unavailable"):
        fp, b = fastpath(lab), lab.backend(answers(marked(403, word, *extra), answer(200, body=b"fine")))
        knows(fp, b, "sb1")
        gw = fast(lab, fp)
        is_stale(ask(gw, method="POST", body=b"hello", status=503))
        equal(len(b.requests), 1, "backend requests")
        forgotten(gw, fp, 2)


@test("sn-3808b667", "fast-stale")
def a_stale_route_shows_in_the_form_that_is_asked_for(lab):
    fp, b = fastpath(lab), lab.backend(answers(marked(500, "stale_route")))
    knows(fp, b, "sb1")
    gw = fast(lab, fp)
    r = ask(gw, "sb1", "Accept: application/json", status=503)
    equal((r.json["error"]["code"], r.json["error"]["message"]), ("route_stale", "sandbox not ready: route is stale"), "JSON")
    check('http-equiv="refresh"' in ask(gw, "sb1", "Accept: text/html", status=503).text, "no page that loads itself again")
    check("refresh" not in ask(gw, "sb1", "Accept: text/html", method="POST", status=503).text, "a POST would be sent again")
    equal(ask(gw, method="HEAD", status=503).body, b"", "HEAD")


@test("sn-30f150b2", "sn-9b23b776", "fast-stale")
def other_marks_and_other_statuses_pass(lab):
    fp = fastpath(lab)
    rows = {"good": (200, "stale_route"), "moved": (302, "credential_rejected"), "other": (502, "other"), "case": (503, "Stale_Route")}
    for name, (status, word) in rows.items():
        knows(fp, lab.backend(answers(marked(status, word))), name)
    gw = fast(lab, fp)
    for name, (status, word) in rows.items():
        for _ in range(2):
            r = ask(gw, name, status=status)
            equal((r.get(MARK), r.body), (word, b"secret"), name)
        equal(fp.count("ResolveEndpoint", name), 1, f"calls for {name}")


@test("sn-0fb0bb28", "fast-stale")
def a_handshake_meets_a_stale_route(lab):
    fp, b = fastpath(lab), lab.backend(answers(marked(403, "credential_rejected"), answer(200)))
    knows(fp, b, "sb1")
    gw = fast(lab, fp)
    is_stale(gw.client().send(handshake("/ws", to())).response())
    forgotten(gw, fp, 2)


@test("fast-stale")
def a_backend_that_cannot_be_connected_to_is_asked_for_anew(lab):
    fp, b = fastpath(lab), lab.backend()
    dead = lab.backend()
    dead.close()
    fp.resolve[NS, "sb1"] = [route(dead.port), route(b.port)]
    gw = fast(lab, fp)
    r = ask(gw, status=502)
    equal(r.text, "OpenSandbox Ingress: upstream connection failed\n", "answer")
    forgotten(gw, fp, 2)


@test("fast-stale")
def no_answer_of_a_kubernetes_sandbox_is_stale(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(answers(marked(403, "stale_route")))})
    r = gw.client().ask("GET", P + "/", "Connection: close")
    equal((r.status, r.get(MARK)), (403, "stale_route"), "answer")


# ---- what runs

SHORT = 6       # s that a credential lives: it is asked for anew after one of them
ANEW = 1.2


def tunnel(gw, sandbox):
    return opened(gw, "/ws", to(sandbox), patience=20)


def asked_anew(gw, fp, **wanted):
    """Each of these sandboxes is asked about once more, and its request has this status."""
    time.sleep(ANEW)
    for name, status in wanted.items():
        before = fp.count("ResolveEndpoint", name)
        ask(gw, name, status=status)
        check(fp.count("ResolveEndpoint", name) > before, "nobody asked about", name)


@test("fast-use")
def what_runs_goes_on_with_another_credential_and_ends_with_its_sandbox(lab):
    fp, a, b = fastpath(lab), lab.backend(mixed), lab.backend(mixed)
    names = ("refreshed", "failed", "odd", "moved", "anew")
    knows(fp, a, *names, expires_in=SHORT)
    gw = fast(lab, fp)
    tunnels = {name: tunnel(gw, name) for name in names}
    fp.resolve[NS, "failed"], fp.resolve[NS, "odd"] = code(14), raw(b"")
    knows(fp, a, "refreshed", "moved", "anew", credential="another", expires_in=SHORT)
    asked_anew(gw, fp, refreshed=200, failed=503, odd=502, moved=200, anew=200)
    for name in names:
        says_hello(tunnels[name])
    for name in ("refreshed", "failed"):
        del fp.resolve[NS, name]
    knows(fp, a, "odd", credential="third", expires_in=SHORT)
    knows(fp, b, "moved", expires_in=SHORT)
    second = route(a.port, credential="another", expires_in=SHORT)
    fp.resolve[NS, "anew"] = lambda call: raw(message_of(call, second).replace(b"uid-anew", b"uid-ANEW"))
    asked_anew(gw, fp, refreshed=404, failed=404, odd=200, moved=200, anew=200)
    for name in ("refreshed", "failed", "moved", "anew"):
        check(tunnels[name].ending(10) != "late", "the tunnel lives on:", name)
    says_hello(tunnels["odd"])
    del fp.resolve[NS, "odd"]
    asked_anew(gw, fp, odd=404)
    check(tunnels["odd"].ending(10) != "late", "the tunnel lives on after a doubt")


@test("fast-stale", "fast-use")
def what_runs_on_a_stale_route_goes_on_until_its_sandbox_is_gone(lab):
    def script(conn):
        while b"\r\n\r\n" not in conn.buf:
            conn.more(600)
        if b"upgrade: websocket" in conn.buf.lower():
            ECHO(conn)
        else:
            conn.answer(marked(403, "stale_route"))
    fp, a = fastpath(lab), lab.backend(script)
    knows(fp, a, "kept", "gone", "failed")
    gw = fast(lab, fp)
    tunnels = {name: tunnel(gw, name) for name in ("kept", "gone", "failed")}
    for name, c in tunnels.items():
        is_stale(ask(gw, name, status=503))
        says_hello(c)
    del fp.resolve[NS, "gone"]
    fp.resolve[NS, "failed"] = [code(14), code(5)]
    for name, status in (("kept", 503), ("gone", 404), ("failed", 503)):
        forgotten(gw, fp, 2, name, status=status)
    says_hello(tunnels["kept"])
    says_hello(tunnels["failed"])
    forgotten(gw, fp, 3, "failed", status=404)
    for name in ("gone", "failed"):
        check(tunnels[name].ending(10) != "late", "the tunnel lives on:", name)


# ---- faults of FastPath

@test("sn-03885f3e", "fast-faults")
def the_cause_is_for_the_log(lab):
    fp = fastpath(lab)
    fp.resolve[NS, "sb1"] = code(13, "dial tcp 10.1.2.3:9 of tenant-a")
    gw = fast(lab, fp)
    r = ask(gw, status=502)
    equal(r.text, "OpenSandbox Ingress: FastPath ResolveEndpoint failed: Internal\n", "answer")
    line, = gw.access(1, sandbox_id="sb1")
    check("dial tcp 10.1.2.3:9" in str(line), line)


@test("fast-faults")
def codes_and_answers_have_their_statuses(lab):
    fp, b = fastpath(lab), lab.backend()
    failed = "OpenSandbox Ingress: FastPath ResolveEndpoint failed: "
    returned = "OpenSandbox Ingress: FastPath returned "
    here = f"127.0.0.1:{b.port}"
    rows = [("c5", code(5), 404, "OpenSandbox Ingress: sandbox not found: sandbox not found\n"),
            ("c14", code(14), 503, UNAVAILABLE), ("c4", code(4), 503, UNAVAILABLE), ("c8", code(8), 503, UNAVAILABLE),
            ("c9", code(9), 503, UNAVAILABLE), ("c1", code(1), 502, "OpenSandbox Ingress: FastPath resolution canceled\n"),
            ("c7", code(7), 502, failed + "PermissionDenied\n"), ("c77", code(77), 502, failed + "Unknown\n"),
            ("empty", raw(b""), 502, returned + "an empty proxy endpoint\n"),
            ("host", route("http:///x"), 502, returned + "an invalid proxy endpoint\n"),
            ("ftp", route(f"ftp://{here}"), 502, returned + "an unsupported proxy scheme\n"),
            ("more", route(b.port, headers=[("X-Other", "1")]), 502, "OpenSandbox Ingress: FastPath returned unsupported required "
             "headers\n"),
            ("twice", route(b.port, headers=[(CREDENTIAL, "1"), (CREDENTIAL.lower(), "2")]), 502,
             "OpenSandbox Ingress: FastPath returned duplicate route credentials\n"),
            ("none", route(b.port, headers=[]), 502, returned + "an invalid route credential\n"),
            ("blank", route(b.port, credential=""), 502, returned + "an invalid route credential\n"),
            ("near", route(b.port, expires_in=4), 502, returned + "an expired or near-expiry route credential\n"),
            ("never", route(b.port, expires_in=None), 502, returned + "an expired or near-expiry route credential\n")]
    for name, script, _, _ in rows:
        fp.resolve[NS, name] = script
    gw = fast(lab, fp)
    for name, _, status, text in rows:
        r = ask(gw, name, status=status)
        equal(r.text, text, name)
        equal(r.has("retry-after"), status == 503, f"Retry-After of {name}")
    for name, *_ in rows:  # nothing of that is kept
        forgotten(gw, fp, 2, name, status=next(s for n, _, s, _ in rows if n == name))
    equal(len(b.requests), 0, "backend requests")


@test("fast-faults")
def answers_that_are_none_are_faults_of_their_own_call(lab):
    fp, b = fastpath(lab), lab.backend()
    garbage = {"varint": raw(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "short": raw(b"\x1a\x7fhttp"),
               "wild": raw(os.urandom(3000)), "zero": raw(b"\x00" * 9), "deep": raw(b"\x0b" * 5000),
               "prefix": bytes_of(b"\x00\x00"), "compressed": bytes_of(b"\x01\x00\x00\x00\x00"),
               "longer": bytes_of(b"\x00\x00\x00\x00\x01ab"), "huge": bytes_of(b"\x00\xff\xff\xff\xff" + b"x" * 1000),
               "fat": raw(b"\x1a\x80\x80\x80\x08" + b"h" * (16 << 20)), "html": {**raw(b""), "type": "text/html"},
               "500": {"http": 500}, "404": {"http": 404}, "503": {"http": 503}, "reset": reset()}
    for name, script in garbage.items():
        fp.resolve[NS, name] = script
    knows(fp, b, "good")
    gw = fast(lab, fp)
    for name in garbage:
        r = ask(gw, name, status=503 if name in ("huge", "fat", "503", "reset") else 502)
        check(r.text.startswith(("OpenSandbox Ingress: FastPath ", UNAVAILABLE)), (name, r.text))
        check(not r.has("reverse-proxy-server-powerby"), "powered-by line of an answer that came from nobody")
        ask(gw, "good")


@test("fast-faults", limit=90)
def a_slow_fastpath_costs_its_own_callers_an_error(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "good")
    fp.resolve[NS, "slow"] = silent()
    gw = fast(lab, fp, "--fastpath-wait-timeout-millis=1500")
    slow = [asks(gw, "slow") for _ in range(5)]
    ask(gw, "good")
    equal(gw.admin("/metrics").status, 200, "admin")
    for c in slow:
        equal((r := c.response()).text, UNAVAILABLE, f"answer {r.status}")
    equal(fp.count("ResolveEndpoint", "slow"), 1, "calls")
    c = asks(gw, "slow")
    wait_for(lambda: fp.count("ResolveEndpoint", "slow") == 2, "the second call")
    c.close()
    ask(gw, "good")


@test("fast-faults", limit=90)
def fastpath_may_go_and_come_back(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "kept", "new", "newer", "newest")
    gw = fast(lab, fp)
    ask(gw, "kept")
    fp.resolve[NS, "going"] = [goaway(), route(b.port)]
    gw.client().ask("GET", "/", to("going"), "Connection: close")
    ask(gw, "going")
    fp.drop()
    ask(gw, "new")
    port = fp.port
    fp.stop()
    ask(gw, "kept")
    equal(ask(gw, "newer", status=503).text, UNAVAILABLE, "answer")
    again = fastpath(lab, port=port)
    knows(again, b, "newer", "newest")
    wait_for(lambda: gw.client().ask("GET", "/", to("newer"), "Connection: close").status == 200, "a new connection", 20)
    ask(gw, "newest")


@test("fast-faults", limit=90)
def a_fastpath_that_takes_connections_and_says_nothing(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "kept")
    gw = fast(lab, fp, "--fastpath-wait-timeout-millis=1000")
    ask(gw, "kept")
    port = fp.port
    fp.stop()
    mute = fastpath(lab, port=port, mute=True)
    equal(ask(gw, "new", status=503).text, UNAVAILABLE, "answer")
    ask(gw, "kept")
    wait_for(lambda: len(mute.conns) > 0, "a connection")


# ---- the start

@test("sn-ac3e6613", "fast-start")
def a_start_without_fastpath_fails_with_one_line(lab):
    flags = [f"--secure-access-keys={RING}", "--provider-type=fast-sandbox", "--port=0", "--admin-addr=127.0.0.1:0", LOOPBACK]
    mute = fastpath(lab, mute=True)
    for endpoint in (f"127.0.0.1:{free_port()}", mute.endpoint):
        seconds, (status, _, err) = took(lambda to=endpoint: lab.run(f"--fastpath-endpoint={to}", *flags))
        equal(status, 2, "exit")
        lines = err.strip().splitlines()
        equal(len(lines), 1, f"lines of {err!r}")
        check("--fastpath-endpoint" in lines[0] and endpoint in lines[0], lines)
        check(seconds > 4, "it gave up after", seconds)


@test("fast-start")
def a_fastpath_that_comes_a_little_later_is_waited_for(lab):
    b, port = lab.backend(), free_port()
    gw = lab.gateway("--provider-type=fast-sandbox", f"--fastpath-endpoint=127.0.0.1:{port}", f"--secure-access-keys={RING}",
                     LOOPBACK, start=False)
    gw.port, gw.admin_port = free_port(), free_port()
    gw.spawn([f"--port={gw.port}", f"--admin-addr=127.0.0.1:{gw.admin_port}"])
    time.sleep(0.5)
    fp = fastpath(lab, port=port)
    knows(fp, b, "sb1")
    wait_for(gw.says_ready, "readiness", 20)
    ask(gw)


# ---- the others

@test("fast-use")
def what_h2_clients_ask_is_routed_the_same(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "sb1", path="/base")
    gw = fast(lab, fp)
    h2 = H2(socket.create_connection(("127.0.0.1", gw.port)))
    lab.peers.append(h2)
    s = h2.open([(":method", "GET"), (":scheme", "http"), (":authority", "gw.test"), (":path", "/x"),
                 ("opensandbox-ingress-to", scope("sb1"))], end=True)
    equal(dict(s.next_head(0))[":status"], "200", "status")
    equal(b.last.target, "/base/x", "target")


@test("fast-use")
def figures_are_on_the_admin_page(lab):
    fp, b = fastpath(lab), lab.backend()
    knows(fp, b, "sb1")
    fp.resolve[NS, "gone"] = code(14)
    gw = fast(lab, fp)
    ask(gw)
    ask(gw)
    ask(gw, "gone", status=503)
    equal(gw.metric("ingress_fastpath_resolutions", code="OK"), 1, "good calls")
    equal(gw.metric("ingress_fastpath_resolutions", code="Unavailable"), 1, "bad calls")
    equal(gw.metric("ingress_routing_resolutions_count", routing_result="success"), 2, "routed")
    equal(gw.metric("ingress_routing_resolutions_count", routing_result="not_ready"), 1, "not ready")
