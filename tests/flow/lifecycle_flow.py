"""The lifecycle resolver in the running program: a scripted server, backends on loopback, and what a client sees of states,
endpoints, tokens, trouble and change."""
import json
import os
import signal
import ssl
import sys
import threading
import time

from lib import check, equal, request, says, test, wait_for
from ws import mixed, opened, says_hello

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from lifecycle_server import LifecycleServer, Sandbox  # noqa: E402

P = "/sandboxes/sb1/port/80"
NEVER = 10 ** 10


def started(lab, sandboxes=None, *flags, base="", tls=None, env=None):
    """A server with these sandboxes, and a gateway that asks it."""
    server = LifecycleServer(sandboxes, base=base, tls=tls)
    lab.peers.append(server)
    key = os.path.join(lab.dir, "api-key")
    with open(key, "w", encoding="ascii") as f:
        f.write(server.KEY + "\n")
    gw = lab.gateway("--provider-type=lifecycle", f"--lifecycle-url={server.url}", f"--lifecycle-api-key-file={key}",
                     "--allow-target-cidr=127.0.0.0/8", *flags, env=env)
    gw.key_file = key
    return server, gw


def quick(gw_flags=()):
    """Nothing is cached: each request asks."""
    return ("--lifecycle-cache=0", "--lifecycle-negative-cache=0", "--lifecycle-not-ready-cache=0", *gw_flags)


def ask(gw, path=P + "/", *fields):
    return gw.client().ask("GET", path, "Connection: close", *fields)


def status(gw, path=P + "/", *fields):
    return ask(gw, path, *fields).status


def becomes(gw, wanted, path=P + "/", within=10):
    """Asks until the answer has this status or this body."""
    def there():
        r = ask(gw, path)
        return r if wanted in (r.status, r.text) else None
    return wait_for(there, f"{path} to become {wanted}", within)


@test("LIFE-04")
def a_sandbox_is_found_and_each_port_has_its_own_endpoint(lab):
    a, b = lab.backend(), lab.backend()
    server, gw = started(lab, {"sb1": Sandbox(ports={80: f"{a.address}/proxy/80", 81: b.address})}, base="/api")
    r = ask(gw, P + "/x%2Fy?q=1&r", "X-Request-Id: req-1", "OpenSandbox-Access-Renew: skip", "OPEN-SANDBOX-API-KEY: tenant")
    equal(r.status, 200, "status")
    got = json.loads(r.text)
    equal(got["line"], "GET /proxy/80/x%2Fy?q=1&r HTTP/1.1", "what the sandbox was asked")
    host = [v for k, v in got["fields"] if k.lower() == "host"]
    equal(host, [a.address], "Host")
    equal(json.loads(ask(gw, "/sandboxes/sb1/port/81/y").text)["line"], "GET /y HTTP/1.1", "of the other port")
    equal([x.line for x in server.asked][:2],
          ["GET /api/v1/sandboxes/sb1 HTTP/1.1", "GET /api/v1/sandboxes/sb1/endpoints/80 HTTP/1.1"], "calls")
    names = sorted(k.lower() for k, _ in server.asked[0].fields)
    equal(names, ["accept", "host", "open-sandbox-api-key", "x-request-id"], "fields of a call")
    equal([server.asked[0].get(k) for k in ("accept", "open-sandbox-api-key", "x-request-id")],
          ["application/json", server.KEY, "req-1"], "their values")


@test("LIFE-04")
def over_tls_the_server_must_prove_itself(lab):
    cert, key = os.path.join(lab.dir, "server.pem"), os.path.join(lab.dir, "server.key")
    lab.command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                "-subj", "/CN=lifecycle", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    a = lab.backend(says("A"))
    _, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, tls=tls, env={"SSL_CERT_FILE": cert})
    equal(ask(gw).text, "A", "with its root among the system's")
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, tls=tls)
    equal(status(gw), 502, "without")
    equal(len(server.asked), 0, "requests that it saw")


@test("LIFE-04")
def states_have_their_answers(lab):
    a = lab.backend(says("A"))
    rows = {"Running": 200, "Pausing": 200, "Stopping": 200, "Someday": 200, "Pending": 503, "Allocated": 503, "Paused": 503,
            "Resuming": 503, "Failed": 503, "Terminated": 404}
    server, gw = started(lab, {s.lower(): Sandbox(s, {80: a.address}) for s in rows})
    for state, wanted in rows.items():
        r = ask(gw, f"/sandboxes/{state.lower()}/port/80/")
        equal(r.status, wanted, state)
        equal(r.get("retry-after"), "1" if wanted == 503 else None, f"Retry-After of {state}")
    equal(ask(gw, "/sandboxes/nobody/port/80/").text, "OpenSandbox Ingress: sandbox not found: nobody\n", "an unknown id")
    equal(status(gw, "/sandboxes/running/port/81/"), 503, "a port without an address")
    calls = len(server.asked)
    equal([status(gw, f"/sandboxes/{x}/port/80/") for x in ("..", ".", "a" * 300)][2], 404, "an id that nobody has")
    check(not any("aaaa" in x.target for x in server.asked[calls:]), "it was asked for")


@test("LIFE-03")
def every_trouble_is_502_without_a_word_of_the_servers(lab):
    server, gw = started(lab, {"sb1": Sandbox(ports={80: "127.0.0.1:1"})}, "--lifecycle-timeout=1s", *quick())
    for trouble in (500, 503, 429, 400, 302, "cut", "junk", "long", "silent"):
        server.trouble = trouble
        r = ask(gw)
        equal((r.status, r.text), (502, "OpenSandbox Ingress: sandbox lookup failed\n"), f"with {trouble}")
    check(server.count("elsewhere") == 0, "a redirect was followed")
    check(gw.metric("ingress_lifecycle_calls", call="state", outcome="trouble") >= 7, "metric of trouble")
    server.trouble = None
    server.sandboxes["sb1"].ports[80] = "http://127.0.0.1:1"
    equal(status(gw), 502, "an endpoint that is a URL")
    server.stop()
    equal(status(gw), 502, "nobody there")
    equal(gw.admin("/readyz").status, 200, "readiness")


@test("LIFE-03")
def the_last_good_answer_serves_while_the_server_is_away(lab):
    a = lab.backend(says("A"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, *quick())
    equal(ask(gw).text, "A", "at first")
    for trouble in (500, "junk", "cut"):
        server.trouble = trouble
        equal(ask(gw).text, "A", f"with {trouble}")
    server.stop()
    equal(ask(gw).text, "A", "while it is away")
    equal(status(gw, "/sandboxes/sb2/port/80/"), 502, "of another sandbox nothing is known")
    server.trouble = None
    server.start()
    server.sandboxes["sb1"].state = None
    becomes(gw, 404)


@test("LIFE-03")
def it_serves_no_longer_than_it_may(lab):
    a = lab.backend(says("A"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, "--lifecycle-stale-max=1s", *quick())
    c = gw.client().send(request("GET", P + "/"))
    equal(c.response().text, "A", "at first")
    server.trouble = 500
    becomes(gw, 502)
    server.trouble = None
    becomes(gw, "A")


@test("LIFE-01", "LIFE-02")
def a_new_endpoint_takes_over_and_the_old_ones_connections_go(lab):
    a, b = lab.backend(mixed), lab.backend(says("B"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address, 81: a.address})}, *quick())
    tunnel, other = opened(gw, P + "/ws"), opened(gw, "/sandboxes/sb1/port/81/ws")
    says_hello(tunnel)
    server.sandboxes["sb1"].ports[80] = b.address
    becomes(gw, "B")
    check(tunnel.ending(10) != "late", "the tunnel to the old address lives on")
    says_hello(other)
    server.sandboxes["sb1"].state = None
    equal(status(gw, "/sandboxes/sb1/port/81/"), 404, "after its end")
    check(other.ending(10) != "late", "the tunnel of a sandbox that is gone lives on")


@test("LIFE-03")
def what_runs_outlives_trouble_and_a_later_end(lab):
    a = lab.backend(mixed)
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address}, expires=time.time() + 300)}, "--lifecycle-stale-max=0",
                         *quick())
    tunnel = opened(gw, P + "/ws")
    says_hello(tunnel)
    for change in (500, None, "key"):
        server.trouble = change if change == 500 else None
        server.key = "another" if change == "key" else server.KEY
        server.sandboxes["sb1"].expires = time.time() + 600
        ask(gw, P + "/")
        says_hello(tunnel)


def doubted(server, gw, boxes, tunnels):
    """For a while the server can tell of none of them, in ways that differ, and what runs goes on."""
    for trouble, key in ((500, server.KEY), ("junk", server.KEY), (None, "another")):
        server.trouble, server.key = trouble, key
        for box in boxes:
            equal(status(gw, f"/sandboxes/{box}/port/80/"), 502, f"{box} with {trouble} and the key {key}")
            says_hello(tunnels[box])
    server.trouble, server.key = None, server.KEY


@test("LIFE-02", "LIFE-03")
def what_runs_ends_with_its_sandbox_also_if_that_was_in_doubt_before(lab):
    a, b = lab.backend(mixed), lab.backend(mixed)
    boxes = ("kept", "prolonged", "gone", "paused", "over", "locked", "moved")
    server, gw = started(lab, {x: Sandbox(ports={80: a.address}) for x in boxes}, "--lifecycle-stale-max=0", *quick())
    tunnels = {x: opened(gw, f"/sandboxes/{x}/port/80/ws") for x in boxes}
    doubted(server, gw, boxes, tunnels)
    box = server.sandboxes
    box["prolonged"].expires = NEVER
    box["gone"].state, box["paused"].state, box["over"].state = None, "Paused", "Terminated"
    box["locked"].headers = {"OpenSandbox-Secure-Access": "t0ken"}
    box["moved"].ports[80] = b.address
    for name, wanted in zip(boxes, (200, 200, 404, 503, 404, 401, 200)):
        equal(status(gw, f"/sandboxes/{name}/port/80/"), wanted, name)
    for name in boxes[2:]:
        check(tunnels[name].ending(10) != "late", "the tunnel lives on:", name)
    doubted(server, gw, boxes[:2], tunnels)
    box["kept"].state = box["prolonged"].state = None
    for name in boxes[:2]:
        equal(status(gw, f"/sandboxes/{name}/port/80/"), 404, name)
        check(tunnels[name].ending(10) != "late", "the tunnel lives on after two doubts:", name)


@test("LIFE-02", "LIFE-03")
def what_is_being_answered_when_it_has_moved_meanwhile_comes_to_its_end(lab):
    go = threading.Event()

    def slow(conn):
        conn.head()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        go.wait(60)
        conn.send(b"done")
    a, b = lab.backend(slow), lab.backend(says("B"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, "--lifecycle-stale-max=0", "--move-timeout=60s", *quick())
    moved = gw.client().send(request("GET", P + "/"))
    moved.until(b"half")
    server.trouble = 500
    equal(status(gw), 502, "in doubt")
    server.trouble = None
    server.sandboxes["sb1"].ports[80] = b.address
    equal(ask(gw).text, "B", "afterwards")
    check(moved.silent(0.5), "it was cut")
    go.set()
    moved.until(b"done")


@test("LIFE-02", "LIFE-03")
def the_end_of_a_sandboxs_time_ends_what_runs_also_while_the_server_is_away(lab):
    a = lab.backend(mixed)
    end = time.time() + 8
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address}, expires=end)}, "--lifecycle-stale-max=0", *quick())
    tunnel = opened(gw, P + "/ws")
    server.stop()
    equal(status(gw), 502, "in doubt")
    says_hello(tunnel)
    check(tunnel.ending(15) != "late", "the tunnel outlives its sandbox")
    check(time.time() >= end - 1, "it ended too early")


@test("LIFE-02")
def what_runs_ends_with_a_sandbox_that_a_failed_connect_asks_about(lab):
    a = lab.backend(mixed)
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, "--lifecycle-cache=1h", "--lifecycle-not-ready-cache=0")
    tunnel = opened(gw, P + "/ws")
    a.stop()
    server.trouble = 500
    equal(status(gw), 502, "with no way there and nobody who knows another")
    says_hello(tunnel)
    server.trouble = None
    server.sandboxes["sb1"].state = None
    equal(status(gw), 404, "after its end")
    check(tunnel.ending(10) != "late", "the tunnel lives on")


@test("LIFE-02")
def a_sandbox_ends_when_its_time_is_over_unless_it_was_prolonged(lab):
    a = lab.backend(mixed)
    end = time.time() + 3
    server, gw = started(lab, {x: Sandbox(ports={80: a.address}, expires=end) for x in ("sb1", "kept")}, "--lifecycle-cache=1h")
    tunnel, kept = opened(gw, P + "/ws"), opened(gw, "/sandboxes/kept/port/80/ws")
    server.sandboxes["kept"].expires = NEVER
    becomes(gw, 404)
    check(tunnel.ending(10) != "late", "the tunnel outlives its sandbox")
    check(time.time() >= end - 1, "it ended too early")
    time.sleep(2)
    says_hello(kept)


@test("LIFE-04")
def a_sandboxs_token_is_demanded_and_never_sent_on(lab):
    a = lab.backend()
    headers = {"OpenSandbox-Secure-Access": "t0ken-canary", "OPENSANDBOX-EGRESS-AUTH": "egress-canary", "X-Extra": "from-server"}
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address, 18080: a.address}, headers=headers)})
    equal(status(gw), 401, "without a token")
    equal(status(gw, P + "/", "OpenSandbox-Secure-Access: wrong"), 401, "with a wrong one")
    for port in (80, 18080):
        r = ask(gw, f"/sandboxes/sb1/port/{port}/", "OpenSandbox-Secure-Access: t0ken-canary", "X-Extra: client",
                "x-extra: again")
        equal(r.status, 200, "with the right one")
        fields = {k.lower(): v for k, v in json.loads(r.text)["fields"]}
        equal(fields.get("x-extra"), "from-server", "an added field")
        check(not {"opensandbox-secure-access", "opensandbox-egress-auth"} & set(fields), "secrets were sent on", fields)
    server.trouble = 500
    text = gw.stdout() + gw.stderr() + gw.admin("/metrics").text
    check("canary" not in text and server.KEY not in text, "a secret was logged")


@test("LIFE-04")
def a_server_in_gateway_mode_is_502_and_a_line_in_the_log(lab):
    a = lab.backend(says("A"))
    _, gw = started(lab, {"sb1": Sandbox(ports={80: a.address}, headers={"OpenSandbox-Ingress-To": "sb1-80"})})
    equal(status(gw), 502, "status")
    wait_for(lambda: gw.logged(lambda x: "points at a gateway" in x.get("msg", "")), "the log line")


@test("LIFE-04")
def the_gateway_itself_is_no_endpoint(lab):
    server, gw = started(lab, {"sb1": Sandbox()}, *quick())
    server.sandboxes["sb1"].ports[80] = f"127.0.0.1:{gw.port}"
    r = ask(gw)
    equal((r.status, r.text), (502, "OpenSandbox Ingress: sandbox address is not allowed\n"), "answer")


@test("LIFE-03")
def a_wrong_key_is_502_and_readiness_says_why_until_the_file_is_read_again(lab):
    a = lab.backend(says("A"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, *quick())
    server.key = "n3w-canary"
    for _ in range(5):
        equal(status(gw), 502, "with the old key")
    check("refuses our key" in gw.admin("/readyz").text, "what readiness says:", gw.admin("/readyz").text)
    wait_for(lambda: gw.logged(lambda x: "ingress requested" in x.get("msg", ""))[4:], "five lines of requests")
    equal(len(gw.logged(lambda x: "refuses our key" in x.get("msg", ""))), 1, "log lines")
    with open(gw.key_file, "w", encoding="ascii") as f:
        f.write("n3w-canary")
    gw.signal(signal.SIGHUP)
    becomes(gw, "A")
    check("refuses" not in gw.admin("/readyz").text, "readiness afterwards")
    check("canary" not in gw.stdout(), "the key was logged")


@test("LIFE-04")
def many_requests_share_calls_and_only_so_many_are_in_flight(lab):
    a = lab.backend(says("A"))
    ids = [f"sb{i}" for i in range(60)]
    server, gw = started(lab, {x: Sandbox(ports={80: a.address}) for x in ids}, "--lifecycle-max-calls=8")
    server.delay = 0.2
    got = []

    def one(name):
        got.append(ask(gw, f"/sandboxes/{name}/port/80/").status)
    threads = [threading.Thread(target=one, args=(x,)) for x in ids[:20] * 3]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    equal(sorted(set(got)), [200], "answers")
    equal(len(got), 60, "answers")
    check(server.most <= 8, "calls in flight", server.most)
    for x in ids[:20]:
        check(server.count(f"/{x}/endpoints") <= 2, "calls for", x, server.count(f"/{x}/endpoints"))


@test("LIFE-02")
def a_failed_connect_is_looked_up_anew_and_tried_once_more(lab):
    a, b = lab.backend(says("A")), lab.backend(says("B"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address})}, "--lifecycle-cache=1h")
    equal(ask(gw).text, "A", "at first")
    a.close()
    server.sandboxes["sb1"].ports[80] = b.address
    equal(ask(gw).text, "B", "after it has moved")
    calls = server.count("/endpoints/")
    b.close()
    equal(status(gw), 502, "when it is gone")
    check(server.count("/endpoints/") == calls + 1, "lookups", server.count("/endpoints/") - calls)


@test("LIFE-04")
def what_was_learned_is_not_asked_for_again_at_once(lab):
    a = lab.backend(says("A"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: a.address}), "sb2": Sandbox("Paused")}, "--lifecycle-cache=1h",
                         "--lifecycle-not-ready-cache=1h", "--lifecycle-negative-cache=1h")
    for _ in range(20):
        equal([status(gw, f"/sandboxes/{x}/port/80/") for x in ("sb1", "sb2", "sb3")], [200, 503, 404], "answers")
    equal([server.count(x) for x in ("sb1", "sb2", "sb3")], [2, 1, 1], "calls")


@test("OPS-02")
def a_start_without_what_it_needs_says_so(lab):
    for argv, part in ((("--provider-type=lifecycle",), "lifecycle-url"),
                       (("--provider-type=lifecycle", "--lifecycle-url=http://127.0.0.1:1"), "lifecycle-api-key-file"),
                       (("--provider-type=lifecycle", "--lifecycle-url=http://127.0.0.1:1", "--lifecycle-api-key-file=/nowhere"),
                        "lifecycle-api-key-file")):
        code, out, err = lab.run(*argv, "--check")
        check(code == 2 and part in err, argv, code, out, err)
    code, out, err = lab.run("--provider-type=lifecycle", "--lifecycle-url=http://127.0.0.1:1", "--check",
                             env={"OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY": "canary"})
    check(code == 0 and "canary" not in out + err, "with the variable", code, out, err)


@test("PH-01")
def no_path_leaves_what_the_endpoint_puts_in_front(lab):
    a = lab.backend(says("A"))
    server, gw = started(lab, {"sb1": Sandbox(ports={80: f"{a.address}/proxy/80"})}, "--deny-ports=44772")
    route = "OpenSandbox-Ingress-To: sb1-80"
    for path in ("/../44772/command", "/..%2f44772/x", "/a/%2e%2e/%2E%2E/b"):
        r = ask(gw, path, route)
        check(r.status == 400 and "leaves the route prefix" in r.text, path, r.status, r.text)
    equal(status(gw, "/a/../b?/../..", route), 200, "one that stays")
