"""Running the gateway: tunnels, reload, stopping, what the log never says, memory, starts that fail, peers that vanish, noise."""
import os
import random
import re
import signal
import socket
import threading
import time

from lib import (P, P2, Client, Ended, Failed, Late, Skipped, answer, check, chunked, equal, request, says, secure, test, took, wait_for)

BRAND = "OpenSandbox Ingress: "


def opens_tunnel(conn):
    conn.request()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")


def holds_tunnel(conn):
    """Answers 101, then sends back what comes."""
    opens_tunnel(conn)
    while True:
        if not conn.buf:
            conn.more(60)
        data, conn.buf = conn.buf, b""
        conn.send(data)


def tunnel(gw, target=P + "/ws"):
    c = gw.client().send(request("GET", target, "Connection: Upgrade", "Upgrade: websocket"))
    equal(c.head().status, 101, "status")
    return c


def events(stop):
    """A script: an event each 20 ms until stop is set, then a clean end."""
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not stop.is_set():
            conn.send(b"7\r\ndata:1\n\r\n")
            time.sleep(0.02)
        conn.send(b"0\r\n\r\n")
    return script


def echoes(c):
    c.send(b"ping")
    return c.exact(4) == b"ping"


# ---- OPS-01

@test("OPS-01")
def tunnels_whose_client_leaves_give_everything_back(lab):
    """Scaled down to 300 tunnels."""
    gw = lab.gateway("--half-close-timeout=1s", routes={"sb1": lab.backend(lambda c: (opens_tunnel(c), time.sleep(30)))})
    clients = [tunnel(gw) for _ in range(300)]
    equal(gw.metric("sallyport_exchanges", state="tunnel"), 300, "tunnels")
    for i, c in enumerate(clients):
        (c.rst, c.close, c.fin)[i % 3]()
    seconds, _ = took(gw.settle)
    check(seconds < 4, "descriptors back after", seconds)


@test("OPS-01")
def tunnels_whose_backend_leaves_give_everything_back(lab):
    leave = threading.Event()

    def script(conn):
        opens_tunnel(conn)
        leave.wait(20)
        (conn.rst, conn.close, conn.fin)[conn.number % 3]()
        if not conn.closed:
            time.sleep(20)
    gw = lab.gateway("--half-close-timeout=1s", routes={"sb1": lab.backend(script)})
    clients = [tunnel(gw) for _ in range(300)]
    leave.set()
    seconds, _ = took(gw.settle)
    check(seconds < 4, "descriptors back after", seconds)
    for c in clients:
        check(c.ending(1) in ("fin", "reset"), "a client was not told")


# ---- OPS-02

@test("OPS-02")
def reload_touches_only_what_changed(lab):
    stop = threading.Event()
    b, s = lab.backend(holds_tunnel), lab.backend(events(stop))
    gw = lab.gateway(routes={"sb1": b, "sb2": s})
    tunnels = [tunnel(gw) for _ in range(60)]
    stream = gw.client().send(request("GET", P2 + "/"))
    stream.until(b"data:1")
    for i in range(20):
        gw.reload({"sb1": b, "sb2": s, f"other-{i}": {"address": "127.0.0.1"}})
    check(all(echoes(c) for c in tunnels), "a tunnel was dropped by an unrelated route")
    stream.until(b"data:1")
    gw.reload(text="{\"sandboxes\": {\"sb1\": }}")
    check(all(echoes(c) for c in tunnels), "a tunnel was dropped by a file that does not parse")
    equal(gw.client().ask("GET", "/sandboxes/other-19/port/1/").status, 502, "the routes of before")
    gw.reload({"sb2": s})
    for c in tunnels:
        check(c.ending(2) in ("fin", "reset"), "a tunnel lives on without its route")
    stream.buf = b""
    stream.until(b"data:1")
    equal(gw.client().ask("GET", P + "/").status, 404, "the route that went")
    stop.set()
    stream.until(b"0\r\n\r\n")


@test("OPS-02")
def bad_routes_file_changes_nothing_and_logs_one_line(lab):
    b = lab.backend(says("ok"))
    gw = lab.gateway(routes={"sb1": b})
    for text, line in (("{\"sandboxes\":{\n\"sb1\":{\"address\":\"127.0.0.1\",\"adress\":1}}}", 2), ("", None), ("{", None), ("{\"sandboxes\":{\"a\":{}}}", 1),
                       ("{\"sandboxes\":{\"a\":{\"address\":\"127.0.0.1\",\"state\":\"Nonsense\"}}}", 1), ("[]", 1)):
        before = len(gw.log())
        gw.reload(text=text)
        time.sleep(0.05)
        fresh = [entry for entry in gw.log()[before:] if entry["level"] in ("warn", "error")]
        equal(len(fresh), 1, f"log lines about {text!r}: {fresh}")
        if line:
            check(re.search(rf"line {line}\b|:{line}:", str(fresh[0])), "no line and column in", fresh[0])
        equal(gw.client().ask("GET", P + "/").body, b"ok", "the route of before")


@test("OPS-02")
def changed_routes_file_is_read_within_two_seconds(lab):
    one, two = lab.backend(says("one")), lab.backend(says("two"))
    gw = lab.gateway(routes={"sb1": one})
    equal(gw.client().ask("GET", P + "/").body, b"one", "before")
    gw.routes["sb1"] = {"address": "127.0.0.1", "ports": {"3000": {"address": two.address}}}
    gw.write_routes()
    wait_for(lambda: gw.client().ask("GET", P + "/").body == b"two", "the new target", 2.2)


@test("OPS-02")
def reload_under_load_loses_nothing(lab):
    b = lab.backend(numbered)
    gw = lab.gateway(routes={"sb1": b})
    load = Load(gw, 8).start()
    for i in range(12):
        gw.reload({"sb1": b, f"other-{i}": {"address": "127.0.0.1"}})
        time.sleep(0.05)
    load.stop()
    equal(load.faults[:3], [], "faults")
    check(load.done > 200, "only", load.done, "requests")
    load.each_once(b)


# ---- load

def numbered(conn):
    """Answers each request with its own number."""
    while True:
        r = conn.request()
        time.sleep(random.uniform(0, 0.004))
        conn.send(answer(200, body=r.get("x-n").encode()))


class Load:
    """Clients in a loop, half of them with a new connection for each request.  What a client may see: its own answer; an end
    of its connection before it has sent a request, or an idle one on which it lost the race; a refused connect once listeners
    are closed."""

    def __init__(self, gw, clients, method="GET"):
        self.gw, self.method = gw, method
        self.ending = threading.Event()
        self.draining = False
        self.faults, self.done, self.sent = [], 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.loop, args=(k,), daemon=True) for k in range(clients)]

    def start(self):
        for t in self.threads:
            t.start()
        return self

    def stop(self):
        self.ending.set()
        for t in self.threads:
            t.join(10)
            check(not t.is_alive(), "a client hangs")

    def loop(self, k):
        c, i, fresh = None, 0, True
        while not self.ending.is_set():
            if c is None:
                try:
                    c, fresh = Client(self.gw.port), True
                except OSError as e:
                    if not self.draining:
                        self.faults.append((k, i, repr(e)))
                    return
            i += 1
            n = f"{k}.{i}"
            try:
                self.sent.append(n)
                r = c.ask(self.method, P + "/", f"X-N: {n}", body=b"x" * 500 if self.method == "POST" else None)
            except (Ended, Late, Failed, OSError) as e:
                if not (self.draining and not fresh and not c.buf):
                    self.faults.append((n, repr(e), "fresh" if fresh else "kept", bytes(c.seen[-200:])))
                c.close()
                c = None
                continue
            with self.lock:
                self.done += 1
            if (r.status, r.text) != (200, n):
                self.faults.append((n, r.status, r.text))
            fresh = False
            if k % 2 or r.get("connection") == "close":
                c.close()
                c = None
        if c:
            c.close()

    def each_once(self, b):
        seen = [q.get("x-n") for q in b.requests]
        twice = {n for n in seen if seen.count(n) > 1} if len(seen) != len(set(seen)) else set()
        equal(twice, set(), "requests that the backend got twice")


# ---- OPS-03

@test("OPS-03", "sn-68a42603")
def sigterm_under_load_loses_no_accepted_request(lab):
    """A request on a fresh connection that the kernel accepted is answered; each reaches the backend once."""
    for method in ("GET", "POST"):
        b = lab.backend(numbered)
        gw = lab.gateway("--drain-timeout=10s", routes={"sb1": b})
        load = Load(gw, 12, method).start()
        time.sleep(0.7)
        load.draining = True
        gw.signal(signal.SIGTERM)
        seconds, code = took(lambda: gw.exit(8))
        load.stop()
        equal(code, 0, "exit status")
        check(seconds < 5, "after", seconds)
        equal(load.faults[:3], [], f"faults, {method}")
        check(load.done > 100, "only", load.done, "requests")
        load.each_once(b)


@test("OPS-03")
def connections_that_wait_to_be_accepted_are_served_before_the_end(lab):
    """The gateway is frozen while clients connect and ask; it wakes up with SIGTERM waiting for it."""
    b = lab.backend(numbered)
    gw = lab.gateway("--workers=1", "--drain-timeout=10s", routes={"sb1": b})
    kept = [gw.client() for _ in range(20)]
    for i, c in enumerate(kept):
        equal(c.ask("GET", P + "/", f"X-N: warm-{i}").status, 200, "before")
    gw.signal(signal.SIGSTOP)
    fresh = [gw.client().send(request("GET", P + "/", f"X-N: fresh-{i}")) for i in range(480)]
    for i, c in enumerate(kept):
        c.send(request("GET", P + "/", f"X-N: kept-{i}"))
    gw.signal(signal.SIGTERM)
    gw.signal(signal.SIGCONT)
    for name, clients in (("fresh", fresh), ("kept", kept)):
        for i, c in enumerate(clients):
            r = c.response()
            equal((r.status, r.text), (200, f"{name}-{i}"), "answer")
            # a worker may come to a connection before it hears of the signal; the connection ends all the same
            check(r.get("connection") in (None, "close"), "connection:", r.get("connection"))
            equal(c.ending(), "fin", "ending")
    equal(gw.exit(8), 0, "exit status")
    equal(len(b.requests), 520, "requests at the backend")


@test("OPS-03")
def active_request_completes_while_everything_else_ends(lab):
    def script(conn):
        if conn.request().target == "/ws":
            conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            conn.ending(20)
            return
        time.sleep(1.5)
        conn.send(answer(200, body=b"slow"))
    gw = lab.gateway("--drain-timeout=3s", routes={"sb1": lab.backend(script)})
    ws, idle, metrics = tunnel(gw), gw.client(), Client(gw.admin_port)
    lab.peers.append(metrics)
    metrics.ask("GET", "/metrics", host="admin")
    idle.ask("GET", "/status.ok")
    active = gw.client().send(request("GET", P + "/"))
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 1, "the active request")
    start = time.monotonic()
    gw.signal(signal.SIGTERM)
    wait_for(lambda: gw.admin("/readyz").status == 503, "/readyz", 1)
    r = active.response()
    equal((r.status, r.body, r.get("connection")), (200, b"slow", "close"), "the active request")
    equal(idle.ending(3), "fin", "the idle connection")
    check(ws.ending(5) in ("fin", "reset"), "the tunnel lives on")
    between = time.monotonic() - start
    check(2.8 < between < 4.5, "the tunnel is cut after", between)
    equal(gw.exit(3), 0, "exit status")


@test("OPS-03")
def sighup_while_draining_changes_nothing(lab):
    gw = lab.gateway("--drain-timeout=2s", routes={"sb1": lab.backend(lambda c: (c.request(), time.sleep(0.5), c.send(answer(200, body=b"ok"))))})
    c = gw.client().send(request("GET", P + "/"))
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 1, "the active request")
    gw.signal(signal.SIGTERM)
    gw.write_routes("{}")
    gw.signal(signal.SIGHUP)
    equal(c.response().body, b"ok", "answer")
    equal(gw.exit(3), 0, "exit status")


# ---- OPS-04

CANARY = "c4n4ry"


@test("OPS-04", limit=90)
def no_canary_is_written_anywhere(lab):
    """Each place that may hold a secret has a canary of its own; error paths included, at log level debug."""
    leak = answer(200, f"Set-Cookie: s={CANARY}-setcookie", f"Location: /{CANARY}-location", f"X-Secret: {CANARY}-field", body=f"{CANARY}-body".encode())

    def script(conn):
        while True:
            target = conn.request().target
            if "/cut" in target:
                conn.send(leak[:-5])
                return
            conn.send(b"SSH-%s-garbage\r\n\r\n" % CANARY.encode() if "/garbage" in target else leak)
    gone, b = lab.backend(), lab.backend(script)
    key = "k=Y2FuYXJ5LWtleS1ieXRlcw=="
    gw = lab.gateway("--log-level=debug", f"--secure-access-keys={key}", "--response-timeout=300ms", "--max-head-bytes=16KiB", "--connect-timeout=300ms",
                     routes={"sb1": b, "gone": gone, "deaf": lab.deaf(), "hangs": lab.backend(lambda c: (c.request(), c.ending(20))),
                             "safe": secure(b, f"{CANARY}-token"), "paused": {**secure(b, f"{CANARY}-token"), "state": "Paused"}})
    gone.stop()
    fields = (f"Authorization: Bearer {CANARY}-auth", f"Cookie: a={CANARY}-cookie", f"Referer: http://x/{CANARY}-referer", f"OpenSandbox-Secure-Access: {CANARY}-access",
              f"OPENSANDBOX-EGRESS-AUTH: {CANARY}-egress", f"OPEN-SANDBOX-API-KEY: {CANARY}-apikey", f"Proxy-Authorization: Basic {CANARY}-proxy", f"X-Custom: {CANARY}-custom",
              f"X-Forwarded-For: {CANARY}-xff", f"User-Agent: {CANARY}-agent", f"Sec-WebSocket-Protocol: {CANARY}-subprotocol")
    said, aside = [], []
    signature = "/x2qxvk/c0ffee42k"
    for accept in ("*/*", "application/json", "text/html"):
        for sb in ("sb1", "gone", "deaf", "hangs", "safe", "paused", "nobody"):
            at = f"/sandboxes/{sb}/port/3000"
            for rest in (f"/p?q={CANARY}-query", f"{signature}/p?q={CANARY}-query", f"/garbage?{CANARY}-query", f"/cut?{CANARY}-query"):
                for method in ("GET", "POST"):
                    if sb in ("deaf", "hangs") and (method == "POST" or "/p?" not in rest or accept != "*/*"):
                        continue
                    c = gw.client()
                    try:
                        r = c.ask(method, at + rest, f"Accept: {accept}", *fields, body=f"{CANARY}-reqbody".encode() if method == "POST" else None)
                    except (Ended, Late):
                        continue
                    if sb != "sb1" or r.status != 200:
                        said.append(r.raw + r.body)
                    c.close()
    for raw in (request("GET", P + "/ws?" + CANARY, "Connection: Upgrade", "Upgrade: websocket", *fields), request("CONNECT", f"user:{CANARY}-userinfo@x:443"),
                request("GET", f"http://user:{CANARY}-userinfo@gw.test/"), request("GET", P + "/", *fields).replace(b"Cookie:", b"Cookie :"),
                request("GET", P + "/", *fields, f"Content-Length: {CANARY}-length"), request("POST", P + "/", *fields, f"Transfer-Encoding: {CANARY}-coding"),
                request("GET", P + "/", *fields, "A: " + CANARY * 5000), f"{CANARY}-garbage\r\n\r\n".encode(), request("GET", P + f"/../..?{CANARY}", *fields),
                request("POST", P + "/x", *fields, "Transfer-Encoding: chunked") + f"{CANARY}-chunk\r\n\r\n".encode(), request("GET", P + "/", *fields, version=f"HTTP/{CANARY}"),
                request("GET", P + "/", *fields)[:-10], request("GET", P + "/status.ok", *fields), request("GET", P + "/", *fields, f"OpenSandbox-Ingress-To: sb1-3000-x2qxvk-c0ffee42k"),
                request("GET", "/", *fields, host="safe-3000-x2qxvk-c0ffee42k"), request("GET", "/", *fields, "OpenSandbox-Ingress-To: safe-3000-x2qxvk-c0ffee42k")):
        c = gw.client(patience=0.5).offer(raw)
        try:
            r = c.head()
            if r.status >= 400:
                said.append(r.raw + c.read_body(r, False).body)
        except (Ended, Late, Failed):
            pass
        aside.append(c)
        if len(aside) > 5:
            aside.pop(0).close()
    waiting = gw.client().send(request("GET", f"/sandboxes/hangs/port/3000{signature}/p?q={CANARY}", *fields))
    pages = "".join(gw.admin(p).text for p in ("/metrics", "/debug/config", "/debug/exchanges", "/debug/pools", "/healthz", "/readyz"))
    waiting.close()
    gw.reload(text="{\"sandboxes\":{\"safe\":{\"address\":\"127.0.0.1\",\"secureAccessToken\":7,\"x\":\"%s-file\"}}}" % CANARY)
    with open(f"/proc/{gw.pid}/cmdline", "rb") as f:
        arguments = f.read().decode()
    key_text = "Y2FuYXJ5LWtleS1ieXRlcw"
    for where, text in (("log", gw.stdout() + gw.stderr()), ("admin pages", pages), ("argument list", arguments)):
        for secret in (CANARY, "c0ffee42", key_text, "canary-key-bytes"):
            at = text.find(secret)
            check(at < 0, secret, "in the", where, ":", text[max(0, at - 300):at + 60])
    check(len(said) > 50, "only", len(said), "errors of ours")
    for text in said:
        check(CANARY.encode() not in text.replace(b"c0ffee42k", b""), "in an error of ours:", text)


# ---- what it shows of itself

@test("contract 13")
def access_line_says_who_asked_what_and_how_it_ended(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(says("hello"))})
    gw.client().ask("POST", P + "/a/b?q=1", "X-Request-Id: id-1", body=b"xyz")
    line = gw.access(1, request_id="id-1")[0]
    equal(list(line)[:8], ["level", "ts", "logger", "msg", "target", "client", "uri", "method"], "first members")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:?\d\d)", line["ts"]), "ts", line["ts"])
    wanted = {"level": "info", "logger": "opensandbox.ingress", "target": lab.backends[0].address, "client": "127.0.0.1", "uri": P + "/a/b", "method": "POST",
              "sandbox_id": "sb1", "port": 3000, "status": 200, "why": "ok", "bytes_in": 3, "bytes_out": 5}
    equal({k: line.get(k) for k in wanted}, wanted, "members")
    check(line["duration_ms"] >= 0, line)
    for target, status in (("/sandboxes/nobody/port/1/", 404), ("/nowhere", 400)):
        gw.client().ask("GET", target, "X-Request-Id: id-2")
        equal(len(gw.access(1, request_id="id-2", status=status, uri=target)), 1, "a refused request has one too")


@test("contract 13")
def every_request_has_one_access_line(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(says("ok"))})
    c = gw.client()
    for i in range(300):
        c.ask("GET", P + "/", f"X-Request-Id: n-{i}")
    lines = gw.access(300)
    equal(sorted(line["request_id"] for line in lines), sorted(f"n-{i}" for i in range(300)), "request ids")


@test("contract 14.3")
def debug_pages_show_what_runs(lab):
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(lambda c: (c.request(), c.ending(20))), "sb2": lab.backend(says("ok"))})
    gw.client().ask("GET", P2 + "/")
    gw.client().send(request("PUT", P + "/secret-path?secret-query", "X-Request-Id: id-3", "Content-Length: 3") + b"abc")
    wait_for(lambda: gw.metric("sallyport_exchanges", state="wait") == 1, "the request")
    r = gw.admin("/debug/exchanges")
    shown = [x for worker in r.json["workers"] for x in worker]
    equal([(x["request_id"], x["method"], x["state"], x["bytes_in"]) for x in shown], [("id-3", "PUT", "wait", 3)], "exchanges")
    check("secret" not in r.text, "a path in", r.text)
    pools = {p["pool"].split("/")[0]: (p["idle"], p["exchanges"]) for worker in gw.admin("/debug/pools").json["workers"] for p in worker}
    equal(sorted(pools.values()), [(0, 1), (1, 0)], "pools: idle connections and exchanges")


@test("contract 1.4")
def log_goes_where_the_variable_says(lab):
    file = os.path.join(lab.dir, "gateway.log")
    gw = lab.gateway(routes={"sb1": lab.backend(says("ok"))}, env={"OPENSANDBOX_LOG_OUTPUT": f"stdout, stderr,{file}"})
    gw.client().ask("GET", P + "/", "X-Request-Id: id-4")
    gw.access(1, request_id="id-4")
    with open(file, encoding="utf-8") as f:
        for where, text in (("file", f.read()), ("stderr", gw.stderr())):
            equal(text.count('"request_id":"id-4"'), 1, f"lines in {where}")


# ---- OPS-05

@test("OPS-05", limit=120)
def memory_is_flat_over_many_names(lab):
    """Scaled down: 30,000 requests over as many ids, paths, request ids and client addresses."""
    b = lab.backend(says("ok"))
    gw = lab.gateway("--trusted-proxies=127.0.0.0/8", "--secure-access-keys=a=YQ==", "--log-level=error", env={"ASAN_OPTIONS": "exitcode=99:quarantine_size_mb=1"},
                     routes={"sb1": b, "safe": secure(b)})
    c, marks, statuses = gw.client(), [], set()
    for i in range(30000):
        n = random.getrandbits(60)
        field = f"X-Forwarded-For: 10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"
        target = (f"/sandboxes/n{n:x}/port/80/{n}", f"/sandboxes/safe/port/{i % 60000 + 1}/x2qxvk/{n & 0xffffffff:08x}a/", f"/sandboxes/safe/port/80/zik0zi/{n & 0xffffffff:08x}b/x")[i % 3]
        c.send(request("GET", target, field, f"X-Request-Id: r{n}", host=f"h{n:x}.example"))
        if i % 50 == 49:
            for _ in range(50):
                statuses.add(c.response().status)
        if i % 6000 == 5999:
            marks.append(gw.rss())
    equal(statuses, {401, 404, 429}, "statuses")
    growth = marks[-1] - marks[1]
    check(growth < 2 << 20, "resident memory grew by", growth, "in the last 18,000 requests:", marks)
    r = c.ask("GET", P + "/")
    equal(r.status, 200, "afterwards")


# ---- OPS-06

@test("OPS-06", "PH-09")
def start_that_fails_says_in_one_line_what_to_change(lab):
    routes = os.path.join(lab.dir, "r.json")
    with open(routes, "w", encoding="ascii") as f:
        f.write("{\"sandboxes\":{}}")
    missing = os.path.join(lab.dir, "missing")
    good = ("--port=0", "--admin-addr=127.0.0.1:0", f"--routes={routes}")
    for args, names in ((("--mode=path",), ("mode", "path", "auto")), (("--port=70000",), ("port", "70000", "65535")), (("--log-level=loud",), ("log-level", "loud", "debug")),
                        (("--idle-timeout=-1s",), ("idle-timeout", "-1s")), (("--idle-timeout=5",), ("idle-timeout", "5")), (("--max-head-bytes=1",), ("max-head-bytes", "1")),
                        (("--workers=-1",), ("workers", "-1")), (("--deny-ports=80-70",), ("deny-ports", "80-70")), (("--trusted-proxies=10.0.0.0/33",), ("trusted-proxies", "10.0.0.0/33")),
                        (("--allow-target-cidr=x",), ("allow-target-cidr", "x")), (("--provider-type=fleets",), ("provider-type", "fleets", "batchsandbox")),
                        (("--secure-access-keys=a=s3cr3t!",), ("secure-access-keys",)), ((f"--secure-access-keys-file={missing}",), ("secure-access-keys-file", missing)),
                        ((f"--routes={missing}",), ("routes", missing)), (("--admin-addr=nowhere",), ("admin-addr", "nowhere")), (("--base-domain=a b",), ("base-domain", "a b"))):
        for check_only in (True, False):
            seconds, (code, out, err) = took(lambda: lab.run(*good, *args, *(("--check",) if check_only else ())))
            equal(code, 2, f"exit status, {args}, --check {check_only}: {err}")
            lines = [line for line in err.splitlines() if line.strip()]
            check(len(lines) == 1 or (len(lines) == 2 and lines[0].startswith("Usage: ")), f"lines about {args}: {err}")
            for name in names:
                check(name in lines[-1], name, "is not in", lines[-1])
            check("s3cr3t" not in err + out, "a secret in", err)
            check(seconds < 5, "after", seconds)


@test("OPS-06")
def flags_that_are_none_get_usage_and_one_line(lab):
    for args in (("--no-such-flag",), ("--no-such-flag=1",), ("--port",), ("--port=x",), ("serve",), ("--lenient-ports=yes",), ("---port=1",), ("--kubeconfig=x",)):
        code, out, err = lab.run(*args)
        equal(code, 2, f"exit status, {args}")
        check(err.strip(), "nothing said about", args)
    code, out, err = lab.run("--no-such-flag", "--help")
    equal(code, 0, "exit status with --help")


@test("OPS-06")
def port_that_is_taken_stops_the_start(lab):
    taken = socket.socket()
    taken.bind(("0.0.0.0", 0))
    taken.listen()
    lab.hold.append(taken)
    port = taken.getsockname()[1]
    routes = os.path.join(lab.dir, "r.json")
    with open(routes, "w", encoding="ascii") as f:
        f.write("{\"sandboxes\":{}}")
    for args, name in (((f"--port={port}", "--admin-addr=127.0.0.1:0"), "port"), (("--port=0", f"--admin-addr=127.0.0.1:{port}"), "admin-addr")):
        code, out, err = lab.run(f"--routes={routes}", *args)
        check(code != 0, "started on a taken port")
        lines = [line for line in err.splitlines() if line.strip()]
        equal(len(lines), 1, f"lines: {err}")
        check(name in lines[0] and "in use" in lines[0], lines[0])


@test("OPS-06")
def log_file_that_cannot_be_opened_stops_the_start(lab):
    routes = os.path.join(lab.dir, "r.json")
    with open(routes, "w", encoding="ascii") as f:
        f.write("{\"sandboxes\":{}}")
    code, out, err = lab.run("--port=0", "--admin-addr=127.0.0.1:0", f"--routes={routes}", env={"OPENSANDBOX_LOG_OUTPUT": "/proc/no/such/file"})
    equal((code, len(err.strip().splitlines())), (2, 1), err)
    check("OPENSANDBOX_LOG_OUTPUT" in err and "/proc/no/such/file" in err, err)


@test("OPS-06")
def gateway_serves_where_there_is_no_ipv6(lab):
    lab.alone()
    for path in ("all", "default", "lo"):
        with open(f"/proc/sys/net/ipv6/conf/{path}/disable_ipv6", "w", encoding="ascii") as f:
            f.write("1")
    gw = lab.gateway(routes={"sb1": lab.backend(says("ok"))})
    equal(gw.client().ask("GET", P + "/").body, b"ok", "answer")


@test("OPS-06")
def settings_that_are_good_start_nothing_with_check(lab):
    routes = os.path.join(lab.dir, "r.json")
    with open(routes, "w", encoding="ascii") as f:
        f.write("{\"sandboxes\":{\"a\":{\"address\":\"127.0.0.1\"}}}")
    seconds, (code, out, err) = took(lambda: lab.run("--check", f"--routes={routes}", "--port=1"))
    equal((code, err), (0, ""), out)


# ---- OPS-08

@test("OPS-08", limit=200)
def peers_that_vanish_are_found(lab):
    """Loopback is taken down under a tunnel, a download and a pooled connection: nothing comes any more, not even a reset."""
    if not lab.long:
        raise Skipped("takes two minutes: run with --long")
    lab.alone()

    def script(conn):
        r = conn.request()
        if r.target == "/ws":
            conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        elif r.target == "/down":
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 1000, last=False))
        else:
            conn.send(answer(200, body=b"ok"))
        time.sleep(190)
    gw = lab.gateway("--backend-idle-timeout=10m", "--keep-alive-timeout=10m", routes={"sb1": lab.backend(script)})
    tunnel(gw)
    gw.client().send(request("GET", P + "/down")).until(b"x" * 1000)
    gw.client().ask("GET", P + "/")
    time.sleep(0.3)
    before = gw.fds()
    lab.ip("link", "set", "lo", "down")
    start = time.monotonic()
    wait_for(lambda: gw.fds() <= gw.base_fds, "all connections closed", 130)
    seconds = time.monotonic() - start
    check(40 < seconds < 125, "closed after", seconds, "of", before)
    lab.ip("link", "set", "lo", "up")
    gone = gw.metric("sallyport_exchanges_ended_total", why="client-gone") + gw.metric("sallyport_exchanges_ended_total", why="origin-gone")
    equal(gone, 2, "endings counted")


# ---- OPS-09

@test("OPS-09", limit=90)
def noise_is_counted_and_not_shouted(lab):
    """Scaled down: as many broken requests as four clients can make in 2 s."""
    gw = lab.gateway(routes={"sb1": lab.backend(says("ok"))})
    stop = threading.Event()
    made = [0] * 4
    hello = bytes.fromhex("16030100c8010000c40303") + os.urandom(190)
    noise = (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", hello, b"\x00\x1d\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01", b"\r\n\r\n\r\nX\r\n\r\n",
             b"GET /x HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", os.urandom(60) + b"\r\n\r\n")

    def shout(k):
        while not stop.is_set():
            try:
                c = Client(gw.port, patience=2)
                c.offer(noise[made[k] % len(noise)])
                c.fin()
                c.ending(1)
                c.close()
                made[k] += 1
            except OSError:
                pass
    threads = [threading.Thread(target=shout, args=(k,), daemon=True) for k in range(4)]
    for t in threads:
        t.start()
    waits, end = [], time.monotonic() + 2
    normal = gw.client()
    while time.monotonic() < end:
        seconds, r = took(lambda: normal.ask("GET", P + "/"))
        equal(r.status, 200, "a normal request meanwhile")
        waits.append(seconds)
        time.sleep(0.01)
    stop.set()
    for t in threads:
        t.join(5)
    waits.sort()
    check(waits[len(waits) * 95 // 100] < 0.1 * lab.slow, "normal requests took", waits[-5:])
    check(sum(made) > 100, "only", sum(made), "noises")
    shouted = [line for line in gw.log() if line["level"] in ("warn", "error")]
    check(len(shouted) < 30, len(shouted), "lines of warning:", shouted[:2])
    broken = gw.metric("sallyport_exchanges_ended_total", why="client-protocol")
    check(broken > sum(made) / 3, "counted", broken, "of", sum(made))
