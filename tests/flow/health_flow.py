"""Health pages: what they say in every mode, under load, in trouble and while stopping."""
import signal
import socket
import time

from lib import P, answer, check, equal, request, says, test, took, wait_for

READINESS = "/status.ok/network-readiness"


@test("sn-fb7fc332")
def health_page_answers_whatever_the_request_looks_like(lab):
    b = lab.backend()
    for mode in ("auto", "header", "wildcard", "uri"):
        gw = lab.gateway(f"--mode={mode}", routes={"sb1": b})
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            for fields in ((), ("OpenSandbox-Ingress-To: sb1-3000",), ("OPEN-SANDBOX-INGRESS: nonsense",), ("Content-Length: 3",)):
                for host in ("gw.test", "sb1-3000.gw.test", "f1.x"):
                    r = gw.client().ask(method, "/status.ok?x=1", *fields, host=host, body=b"abc" if fields == ("Content-Length: 3",) else None)
                    equal((r.status, r.body), (200, b"" if method == "HEAD" else b"OK"), f"{mode} {method} {fields} {host}")
                    equal((r.get("content-type"), r.get("content-length")), ("text/plain; charset=utf-8", "2"), "type and length")
    equal(len(b.conns), 0, "backend connections")


@test("sn-fb7fc332")
def deeper_and_similar_paths_are_the_sandboxes(lab):
    b = lab.backend(says("sandbox"))
    gw = lab.gateway(routes={"sb1": b})
    for path in ("/status.ok/", "/status.ok/x", "/status.ok/network-readiness/", "/status.okay", "//status.ok", "/status.o%6b", "/healthz", "/readyz", "/metrics", "/debug/config"):
        equal(gw.client().ask("GET", path, host="sb1-3000.gw.test").body, b"sandbox", path)


@test("sn-fb7fc332")
def health_page_is_on_the_main_port_only_and_the_others_on_the_admin_port_only(lab):
    gw = lab.gateway()
    for path, status, content_type in (("/healthz", 200, "text/plain; charset=utf-8"), ("/readyz", 200, "text/plain; charset=utf-8"),
                                       ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"), ("/debug/config", 200, "application/json"),
                                       ("/debug/exchanges", 200, "application/json"), ("/debug/pools", 200, "application/json"), ("/nothing", 404, None), ("/routes", 404, None)):
        r = gw.admin(path)
        equal(r.status, status, path)
        equal(r.get("content-type") if content_type else None, content_type, path)
        check(r.body, "an empty body of", path)
        equal(gw.client().ask("GET", path).status, 400, f"{path} on the main port")


@test("sn-5b30c6dc")
def health_page_answers_while_all_backends_hang(lab):
    gw = lab.gateway(routes={"sb1": lab.deaf(), "sb2": lab.backend(lambda c: (c.request(), c.ending(20)))})
    for i in range(150):
        gw.client().send(request("GET", f"/sandboxes/sb{1 + i % 2}/port/3000/"))
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 75 and gw.metric("sallyport_exchanges", state="dial") == 75, "150 requests that hang")
    seconds, r = took(lambda: gw.client().ask("GET", "/status.ok"))
    equal((r.status, r.body), (200, b"OK"), "answer")
    check(seconds < 1, "after", seconds)


@test("sn-5b30c6dc")
def health_page_answers_when_the_connection_limit_is_reached(lab):
    gw = lab.gateway("--max-connections=16", routes={"sb1": lab.backend(lambda c: (c.request(), c.ending(20)))})
    for _ in range(16):
        gw.client().send(request("GET", P + "/"))
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 16, "16 requests that hang")
    r = gw.client().ask("GET", "/status.ok")
    equal((r.status, r.body), (200, b"OK"), "answer")


@test("sn-92d4eab1")
def readiness_page_says_ok_without_traffic(lab):
    for mode in ("auto", "uri"):
        r = lab.gateway(f"--mode={mode}").client().ask("GET", READINESS)
        equal((r.status, r.body, r.get("content-type"), r.get("cache-control")), (200, b"OK", "text/plain; charset=utf-8", "no-store"), mode)


@test("sn-ca1dc963")
def readiness_page_says_degraded_after_a_bad_window(lab):
    """Connects to two hosts run into their deadline; the window is a second long."""
    routes = {}
    for i in (2, 3):
        listener = socket.socket()
        listener.bind((f"127.0.0.{i}", 0))
        listener.listen(0)
        lab.hold.append(listener)
        for _ in range(6):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(listener.getsockname())
            lab.hold.append(s)
        routes[f"sb{i}"] = {"address": f"127.0.0.{i}", "ports": {"3000": {"address": "%s:%d" % listener.getsockname()}}}
    shadow = "--network-readiness-shadow-"
    gw = lab.gateway("--connect-timeout=150ms", shadow + "window=1s", shadow + "min-attempts=4", shadow + "min-targets=2", shadow + "min-signal-targets=2", routes=routes)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        for i in (2, 3, 2, 3):
            gw.client().send(request("GET", f"/sandboxes/sb{i}/port/3000/"))
        time.sleep(0.2)
        r = gw.client().ask("GET", READINESS)
        if r.body == b"DEGRADED":
            break
    equal((r.status, r.body, r.get("cache-control")), (200, b"DEGRADED", "no-store"), "page")
    equal(gw.metric("ingress_network_shadow_degraded"), 1, "metric")
    equal(gw.client().ask("GET", "/status.ok").status, 200, "/status.ok knows nothing of it")


@test("sn-ec01d557")
def reused_connection_is_one_dial(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    c.ask("GET", P + "/")
    c.ask("GET", P + "/")
    equal((len(b.conns), len(b.requests)), (1, 2), "backend connections and requests")
    equal(gw.metric("ingress_upstream_connect_count", connect_result="success"), 1, "dials counted")
    equal(gw.metric("sallyport_backend_dials_total"), 1, "dials counted")


@test("sn-68a42603", "OPS-03")
def drain_turns_readiness_closes_listeners_and_lets_streams_run(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n")
        for i in range(1, 6):
            time.sleep(0.3)
            conn.send(b"1\r\n%d\r\n" % i)
        conn.send(b"0\r\n\r\n")
    gw = lab.gateway("--drain-timeout=30s", routes={"sb1": lab.backend(script), "sb2": lab.backend()})
    used, fresh, other = gw.client(), gw.client(), gw.client()
    used.ask("GET", "/sandboxes/sb2/port/3000/")
    other.ask("GET", "/sandboxes/sb2/port/3000/")
    stream = gw.client().send(request("GET", P + "/"))
    stream.until(b"1\r\n0\r\n")
    start = time.monotonic()
    gw.signal(signal.SIGTERM)
    wait_for(lambda: gw.logged("stopping: draining"), "the log line")
    equal(gw.admin("/readyz").status, 503, "/readyz")
    r = used.ask("GET", "/status.ok")
    equal((r.status, r.get("connection")), (503, "close"), "/status.ok on a connection that is open")
    check(r.body, "an empty body")
    equal(used.ending(), "fin", "its end")

    def refused():
        try:
            socket.create_connection(("127.0.0.1", gw.port), 2).close()
        except ConnectionRefusedError:
            return True
        return False
    wait_for(refused, "refused connections", 2)
    equal(other.ending(4), "fin", "end of an idle connection")
    check(time.monotonic() - start < 3, "idle connection closed after", time.monotonic() - start)
    equal(fresh.ending(4), "fin", "end of a connection that was never used")
    body = stream.until(b"0\r\n\r\n")
    equal(body, b"1\r\n1\r\n1\r\n2\r\n1\r\n3\r\n1\r\n4\r\n1\r\n5\r\n0\r\n\r\n", "the rest of the stream")
    equal(gw.exit(4), 0, "exit status")


@test("sn-68a42603", "OPS-03")
def what_still_runs_at_the_drain_deadline_is_cut(lab):
    gw = lab.gateway("--drain-timeout=1s", routes={"sb1": lab.backend(lambda c: (c.request(), c.send(answer(200, body=b"x" * 9)[:-1]), c.ending(20)))})
    c = gw.client().send(request("GET", P + "/"))
    c.until(b"xxxx")
    start = time.monotonic()
    gw.signal(signal.SIGTERM)
    check(c.ending(5) in ("fin", "reset"), "the stream is not cut")
    equal(gw.exit(5), 0, "exit status")
    check(0.9 < time.monotonic() - start < 2.5, "after", time.monotonic() - start)
    equal(len(gw.access(1, why="drain")), 1, "access lines")


@test("sn-2cbd561a", "OPS-03")
def second_sigterm_exits_at_once(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(lambda c: (c.request(), c.ending(20)))})
    gw.client().send(request("GET", P + "/"))
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 1, "a request that hangs")
    gw.signal(signal.SIGTERM)
    wait_for(lambda: gw.logged("stopping: draining"), "the log line")
    gw.signal(signal.SIGINT)
    seconds, gw.expect_exit = took(lambda: gw.exit(5))
    check(seconds < 0.5, "after", seconds)
