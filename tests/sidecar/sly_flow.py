"""Ways through the relay and the explicit proxy rather than around them: what is carried for somebody must not be more than he
may do himself, whenever the policy changes and however a request is dressed."""
import contextlib
import threading
import time

import attempts
from backend import echo
from bench import Skipped, allow, check, deny, equal, opened, test, wait_for
from explicit_flow import Proxied, said
from hello import client_hello
from origins import echoes
from relayed import BAD, FREE, GOOD, OTHER, Relayed, passes, shut
from wire import Client, request
from world import INSIDE, NS4
import dnswire


def drops(w, *ports):
    """The outside drops SYNs to these ports until back() is called."""
    rules = "add table inet t; add chain inet t c { type filter hook input priority 0 ; }; add rule inet t c tcp dport { %s } drop"
    code, _, err = w.run("nft", rules % ", ".join(map(str, ports)), place="outside", who="admin")
    equal((code, err), (0, ""))
    return lambda: w.run("nft", "delete table inet t", place="outside", who="admin")


# ---- a change while something is on its way

@test("LIFE-06", "E18", limit=60)
def a_tunnel_that_is_being_looked_up_or_dialled_when_its_name_is_denied_never_opens(lab):
    for mode in ("proxy", "dns+nft"):
        for stage in ("lookup", "dial"):
            p = Proxied(lab, mode)
            o = p.w.origin(GOOD, 443, echoes)
            back = drops(p.w, 443) if stage == "dial" else lambda: None
            p.ns.delay = 0.7 if stage == "lookup" else 0
            c = p.client()
            c.send(request("CONNECT", "ok.test:443", host="ok.test:443"))
            if stage == "lookup":
                wait_for(lambda p=p: p.ns.asked("ok.test"), "the question")
            else:
                wait_for(lambda p=p: p.w.recorder.left(dst=GOOD, dport=443), "the SYN")
            p.s.patch([deny("ok.test")])
            back()
            c.offer(client_hello("ok.test"))
            with contextlib.suppress(Exception):
                a = c.response("CONNECT")
                check(a.status != 200, f"it opened after its name was denied ({mode}, {stage})")
            time.sleep(1.5)  # a SYN is sent again
            check(all(not x.seen for x in o.conns), "bytes arrived")


@test("LIFE-06", "relay", limit=60)
def a_redirected_connection_that_is_being_dialled_when_its_name_is_denied_never_opens(lab):
    r = Relayed(lab)
    for port, data in ((443, client_hello("ok.test")), (80, request("GET", "/", host="ok.test"))):
        o = r.w.origin(GOOD, port, echoes)
        back = drops(r.w, port)
        r.w.recorder.forget()
        c = r.client(GOOD, port)
        c.send(data)
        wait_for(lambda port=port: r.w.recorder.left(dst=GOOD, dport=port), "the SYN")
        r.s.patch([deny("ok.test")])
        back()
        c.ending(5)
        check(data not in bytes(c.seen), "it opened")
        time.sleep(1.5)
        check(all(not x.seen for x in o.conns), f"bytes arrived on port {port}")
        r.s.patch([allow("ok.test")])
        wait_for(lambda: r.w.resolve("ok.test") == [GOOD], "ok.test again")


@test("LIFE-06", "relay", limit=60)
def a_hello_that_ends_after_its_name_was_denied_is_refused(lab):
    r = Relayed(lab)
    o = r.origin()
    c = r.client()
    data = client_hello("ok.test")
    c.send(data[:-5])
    time.sleep(0.3)
    r.s.patch([deny("ok.test")])
    c.offer(data[-5:])
    shut(c)
    equal(len(o.conns), 0)


# ---- what the kernel refuses, the proxies must not carry

@test("4.7", "DNS-02", limit=60)
def names_cannot_be_asked_through_the_proxies(lab):
    """Under default allow a nameserver's address is as good as any; direct questions to it are ours, and so must these be."""
    p = Proxied(lab, "dns+nft", RULES=opened(deny("no.test")), zone={"resolver.test": {"A": [NS4]}})
    asked = len(p.ns.asked("no.test"))
    query = dnswire.query("no.test")
    for target in (f"{NS4}:53", "resolver.test:53", f"{NS4}:853", "resolver.test:853"):
        a, c = p.connect(target)
        if a.status == 200:
            c.offer(len(query).to_bytes(2, "big") + query)
            with contextlib.suppress(Exception):
                c.more(4)
        equal((target, len(p.ns.asked("no.test"))), (target, asked))
        check(a.status == 403, target, a.status)


@test("4.7", "DNS-02", limit=60)
def ports_and_hosts_that_no_policy_opens_are_closed_by_the_proxies_too(lab):
    p = Proxied(lab, "dns+nft", BLOCK_DOH_443="on", DOH_BLOCKLIST=GOOD)
    p.w.origin(GOOD, 443, echoes), p.w.origin(GOOD, 853, echoes), p.w.origin(GOOD, 8443, echoes), p.w.origin(OTHER, 443, echoes)
    for target in ("ok.test:853", "ok.test:443"):
        said(p.connect(target)[0], 403, "policy")
    p.tunnel("ok.test:8443")
    p.tunnel("other.test:443")
    r = Relayed(lab, BLOCK_DOH_443="on", DOH_BLOCKLIST=GOOD)
    r.origin()
    r.origin(OTHER)
    c = r.client()
    c.offer(client_hello("ok.test"))
    check(client_hello("ok.test") not in shut(c), "a blocked address is relayed")
    passes(r.client(OTHER), client_hello("other.test"))


# ---- requests that do not look like one

DISGUISES = {"an empty line first": b"\r\n" + request("GET", "/", host="no.test"),
             "a line feed first": b"\n" + request("GET", "/", host="no.test"),
             "a method nobody knows": request("FROB", "/", host="no.test"), "a small method": request("get", "/", host="no.test"),
             "HTTP/0.9": b"GET /\r\n", "a version nobody knows": request("GET", "/", host="no.test", version="HTTP/3.7"),
             "a tab": b"GET\t/ HTTP/1.1\r\nHost: no.test\r\n\r\n", "two blanks": b"GET  / HTTP/1.1\r\nHost: no.test\r\n\r\n"}


@test("POL-01", limit=60)
def a_denied_host_is_not_reached_by_an_odd_request_line(lab):
    r = Relayed(lab)
    o = r.w.origin(GOOD, 80, echoes)
    seen = []
    for name, data in DISGUISES.items():
        c = r.client(GOOD, 80)
        c.offer(data)
        with contextlib.suppress(Exception):
            c.more(3)
        c.close()
        seen += [name for x in o.conns if data in bytes(x.seen)]
    equal(sorted(set(seen)), [], "requests that reached an origin by disguise")


@test("POL-01", "vault 8.2", limit=60)
def an_upgrade_to_another_http_does_not_hide_further_requests(lab):
    """After a switch to h2c every authority would be out of our sight."""
    r = Relayed(lab)
    def script(conn):
        q = conn.head()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + q.get("upgrade",
                                                                                                  "none").encode() + b"\r\n\r\n")
        echoes(conn)
    o = r.w.origin(GOOD, 80, script)
    with r.w.inside():
        c = r.w.keep(Client(80, GOOD))
    c.send(request("GET", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
                   host="ok.test"))
    with contextlib.suppress(Exception):
        c.response()
        c.offer(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        c.more(2)
    check(all(not q.has("upgrade") for q in o.requests), "Upgrade: h2c reached the origin")
    check(all(b"PRI *" not in bytes(x.seen) for x in o.conns), "HTTP/2 reached the origin")


@test("POL-01", "E18", limit=60)
def streams_of_http2_to_the_proxy_are_judged_one_by_one(lab):
    try:
        import h2.config
        import h2.connection
        import h2.events
    except ImportError:
        raise Skipped("python3-h2 is not installed") from None
    p = Proxied(lab)
    p.w.origin(GOOD, 80, echo)
    c = p.client()
    h = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, validate_outbound_headers=False))
    h.initiate_connection()
    asked = [("GET", "http", "ok.test", "/"), ("GET", "http", "no.test", "/"), ("CONNECT", None, "no.test:443", None),
             ("GET", "http", "ok.test", "/")]
    for i, (method, scheme, authority, path) in enumerate(asked):
        fields = [(":method", method), (":authority", authority)] + ([(":scheme", scheme), (":path", path)] if scheme else [])
        h.send_headers(1 + 2 * i, fields, end_stream=True)
    c.send(h.data_to_send())
    status, end = {}, time.monotonic() + 8
    while len(status) < len(asked) and time.monotonic() < end:
        try:
            c.more(2)
        except Exception:
            break
        for event in h.receive_data(c.buf):
            if isinstance(event, h2.events.ResponseReceived):
                status[event.stream_id] = dict(event.headers).get(b":status", dict(event.headers).get(":status"))
        c.buf = b""
        c.send(h.data_to_send())
    seen = [int(status.get(1 + 2 * i, 0)) for i in range(len(asked))]
    check(seen in ([0] * 4, [200, 403, 403, 200], [400, 400, 403, 400]), "statuses:", seen)
    equal(p.ns.asked("no.test"), [])


# ---- what must go on working

@test("4.2", "4.6")
def services_of_the_sandbox_itself_are_not_redirected(lab):
    r = Relayed(lab)
    def serve(address, port):
        with r.w.inside(0):
            return r.w.origin(address, port, echoes)
    for address in ("127.0.0.1", "::1", INSIDE[4], INSIDE[6]):
        for port in (80, 443, 8000):
            serve(address, port)
            passes(r.client(address, port), b"hello neighbour")


@test("4.2")
def a_service_of_the_sandbox_is_reached_from_outside(lab):
    r = Relayed(lab)
    for address in (INSIDE[4], INSIDE[6]):
        for port in (80, 443, 8000):
            with r.w.inside(0):
                r.w.origin(address, port, echoes)
            c = r.w.keep(Client(port, address))
            passes(c, b"hello from outside")


@test("B6", limit=120)
def connections_that_say_nothing_lock_nobody_out(lab):
    """More of them than the relay takes: it serves again when they are gone, and DNS and API all the time."""
    r = Relayed(lab, RELAY_MAX_CONNECTIONS="200", FIRST_BYTES_TIMEOUT="3")
    r.origin()
    stop, threads = [], []
    def hold():
        kept = []
        for _ in range(100):
            with contextlib.suppress(OSError):
                kept.append(r.w.connect(FREE, 443))
        while not stop:
            time.sleep(0.05)
        for s in kept:
            s.close()
    for _ in range(4):
        threads.append(threading.Thread(target=hold))
        threads[-1].start()
    time.sleep(1)
    equal(r.w.resolve("ok.test"), [GOOD])
    equal(r.s.policy()["defaultAction"], "deny")
    stop.append(True)
    for t in threads:
        t.join()
    def served():
        with contextlib.suppress(Exception):
            passes(r.client(), client_hello("ok.test"))
            return True
    wait_for(served, "the relay serves again", 15)
    r.w.recorder.nothing_left("a connection", dst=[FREE, BAD])


@test("B6", limit=120)
def ten_thousand_redirected_connections_lock_nobody_out(lab):
    r = Relayed(lab, learn=False)
    r.origin()
    job = r.w.start(attempts.tried, {"way": "many_connections", "ip": FREE, "port": 443, "count": 10000, "seconds": 60})
    time.sleep(1)
    for _ in range(5):
        equal(r.s.patch([deny("unrelated.test")])["status"], "ok")
        equal(r.w.resolve("ok.test"), [GOOD])
        time.sleep(0.3)
    equal(r.s.health()[0], 200)
    job.stop()
    def served():
        with contextlib.suppress(Exception):
            passes(r.client(), client_hello("ok.test"))
            return True
    wait_for(served, "the relay serves again", 20)
    r.w.recorder.nothing_left("a connection", dst=FREE)
