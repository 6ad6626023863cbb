"""Every deadline and every limit of contract 1.3 that a peer can push against: it fires when it should, and not before."""
import os
import threading
import time

from lib import P, P2, Ended, Late, answer, check, chunked, equal, plays, request, says, test, took, wait_for

BRAND = "OpenSandbox Ingress: "


def between(seconds, low, high, what):
    check(low <= seconds <= high, what, f"after {seconds:.2f} s, wanted {low} to {high}")


def hangs(conn):
    """Takes a request and says nothing."""
    conn.request()
    conn.ending(30)


# ---- deadlines

@test("H1-09")
def head_deadline_is_for_the_whole_head(lab):
    gw = lab.gateway("--head-timeout=600ms", "--keep-alive-timeout=5s", routes={"sb1": lab.backend(says("ok"))})
    used = gw.client()
    used.ask("GET", P + "/")
    for c in (gw.client(), used):
        start = time.monotonic()
        for byte in b"GET / HT":
            c.send(bytes([byte]))
            time.sleep(0.1)
        check(c.ending(3) in ("fin", "reset"), "still open")
        between(time.monotonic() - start, 0.55, 1.3, "head deadline")
        check(c.buf == b"" or c.buf.startswith(b"HTTP/1.1 408 "), "said", c.buf)
    wait_for(lambda: gw.metric("sallyport_exchanges_ended_total", why="deadline") == 2, "deadlines counted")


@test("H1-09")
def idle_client_connection_ends_at_its_deadline(lab):
    gw = lab.gateway("--keep-alive-timeout=500ms", "--head-timeout=5s", routes={"sb1": lab.backend(says("ok"))})
    for first in (False, True):
        c = gw.client()
        if first:
            c.ask("GET", P + "/")
            time.sleep(0.3)
            c.ask("GET", P + "/")
        seconds, ending = took(lambda: c.ending(3))
        equal((ending, c.buf), ("fin", b""), "ending")
        between(seconds, 0.4, 1.2, "keep-alive deadline")


@test("H1-09")
def connection_that_waits_for_a_slow_answer_is_not_idle(lab):
    def script(conn):
        conn.request()
        time.sleep(0.9)
        conn.send(answer(200, body=b"late"))
    gw = lab.gateway("--keep-alive-timeout=300ms", "--head-timeout=300ms", "--idle-timeout=300ms", routes={"sb1": lab.backend(script)})
    equal(gw.client().ask("GET", P + "/").body, b"late", "answer")


@test("sn-ef27c5a2")
def name_that_nobody_resolves_is_504_at_the_connect_deadline(lab):
    lab.alone(resolv="nameserver 127.0.0.9\noptions timeout:1 attempts:1\n")
    gw = lab.gateway("--connect-timeout=700ms", routes={"sb1": {"address": "sandbox.example.test"}})
    seconds, r = took(lambda: gw.client().ask("GET", P + "/"))
    check(r.status in (502, 504) and r.body, "answer", r.raw)
    check(seconds < 1.6, "after", seconds)


@test("sn-ef27c5a2")
def name_of_the_hosts_file_is_dialled(lab):
    b = lab.backend(says("by name"))
    gw = lab.gateway(routes={"sb1": {"address": "localhost", "ports": {"3000": {"address": f"localhost:{b.port}"}}}})
    equal(gw.client().ask("GET", P + "/").body, b"by name", "answer")
    equal(b.last.get("host"), f"localhost:{b.port}", "Host")


@test("H1-05")
def backend_without_an_answer_is_504(lab):
    gw = lab.gateway("--response-timeout=500ms", routes={"sb1": lab.backend(hangs)})
    c = gw.client()
    seconds, r = took(lambda: c.ask("GET", P + "/"))
    equal((r.status, r.text), (504, BRAND + "upstream sent no answer in time\n"), "answer")
    between(seconds, 0.45, 1.2, "response deadline")
    equal(c.ask("GET", "/status.ok").status, 200, "the connection goes on")


@test("STR-06")
def answer_that_stands_still_is_cut(lab):
    gw = lab.gateway("--idle-timeout=500ms", routes={"sb1": lab.backend(plays(answer(200, body=b"x" * 100)[:-50], "hold"))})
    seconds, r = took(lambda: gw.client().ask("GET", P + "/"))
    equal((r.status, len(r.body), r.whole), (200, 50, False), "answer")
    between(seconds, 0.45, 1.3, "idle deadline")
    equal(gw.access(1)[0]["why"], "deadline", "why")


@test("STR-06")
def upload_that_stands_still_ends(lab):
    gw = lab.gateway("--idle-timeout=500ms", routes={"sb1": lab.backend(hangs)})
    c = gw.client().send(request("POST", P + "/", "Content-Length: 100") + b"x" * 50)
    seconds, ending = took(lambda: c.ending(3))
    check(ending in ("fin", "reset"), "still open")
    between(seconds, 0.45, 1.3, "idle deadline")
    check(c.buf == b"" or c.buf.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 504 ")), "said", c.buf)


@test("STR-06")
def upload_that_nobody_reads_ends(lab):
    def script(conn):
        conn.head()
        time.sleep(3)
    gw = lab.gateway("--idle-timeout=600ms", routes={"sb1": lab.backend(script, rcvbuf=4096)})
    c = gw.client().send(request("POST", P + "/", f"Content-Length: {64 << 20}"))
    start = time.monotonic()
    c.sock.settimeout(3)
    try:
        for _ in range(64):
            c.sock.sendall(b"x" * (1 << 20))
    except OSError:
        pass
    check(c.ending(3) in ("fin", "reset"), "still open")
    between(time.monotonic() - start, 0.5, 2.5, "idle deadline")


@test("STR-06")
def client_that_reads_nothing_ends(lab):
    def script(conn):
        conn.request()
        conn.offer(answer(200, body=b"x" * (64 << 20)))
    gw = lab.gateway("--idle-timeout=600ms", "--linger-timeout=500ms", routes={"sb1": lab.backend(script)})
    c = gw.client(rcvbuf=4096).send(request("GET", P + "/"))
    start = time.monotonic()
    line = gw.access(1)[0]
    between(time.monotonic() - start, 0.5, 2.5, "idle deadline")
    equal((line["status"], line["why"]), (200, "deadline"), "access line")
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "the client's connection is gone", 3)
    check(not c.closed, "")


def opens_tunnel(conn):
    conn.request()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")


def tunnel(gw, target=P + "/ws"):
    c = gw.client().send(request("GET", target, "Connection: Upgrade", "Upgrade: websocket"))
    equal(c.head().status, 101, "status")
    return c


@test("STR-06")
def silent_tunnel_ends_only_if_there_is_a_deadline(lab):
    def script(conn):
        opens_tunnel(conn)
        conn.ending(30)
    b = lab.backend(script)
    free = tunnel(lab.gateway("--idle-timeout=200ms", "--response-timeout=200ms", "--half-close-timeout=200ms", routes={"sb1": b}))
    bound = tunnel(lab.gateway("--tunnel-idle-timeout=500ms", routes={"sb1": b}))
    start = time.monotonic()
    for _ in range(5):
        time.sleep(0.2)
        bound.send(b"x")
    check(bound.silent(0.1), "a tunnel with bytes in one direction ended")
    check(bound.ending(2) in ("fin", "reset"), "still open")
    between(time.monotonic() - start, 1.4, 2.3, "tunnel deadline")
    check(free.silent(0.1), "a tunnel without a deadline ended")


@test("OPS-01")
def half_closed_tunnel_ends_when_the_other_direction_is_silent(lab):
    def script(conn):
        opens_tunnel(conn)
        if conn.number:
            conn.fin()
        conn.ending(30)
        for _ in range(4):
            time.sleep(0.2)
            conn.send(b"x")
        time.sleep(3)
    b = lab.backend(script)
    gw = lab.gateway("--half-close-timeout=500ms", routes={"sb1": b})
    c = tunnel(gw).fin()
    start = time.monotonic()
    check(c.ending(4) in ("fin", "reset"), "still open")
    equal(c.buf, b"xxxx", "bytes of the other direction")
    between(time.monotonic() - start, 1.2, 2.2, "half-close deadline after the last byte")
    start = time.monotonic()
    c = tunnel(gw)
    equal(c.ending(1), "fin", "the backend's half-close is passed on")
    wait_for(lambda: gw.metric("sallyport_exchanges", state="tunnel") == 0, "the end of the tunnel", 3)
    between(time.monotonic() - start, 0.4, 1.4, "half-close deadline")


@test("H1-06")
def rest_of_a_refused_upload_is_read_for_a_while_only(lab):
    gw = lab.gateway("--linger-timeout=700ms", routes={"sb1": lab.backend(lambda c: (c.head(), c.send(answer(413, body=b"no")), c.ending(9)))})
    for target, status in ((P + "/", 413), ("/sandboxes/nobody/port/1/", 404)):
        c = gw.client().send(request("POST", target, "Transfer-Encoding: chunked"))
        c.send(chunked(b"x" * 100, last=False))
        r = c.response()
        equal((r.status, r.get("connection")), (status, "close"), target)
        start = time.monotonic()
        try:
            while time.monotonic() - start < 4:
                c.send(chunked(b"x" * 1000, last=False))
                time.sleep(0.05)
        except Ended:
            pass
        between(time.monotonic() - start, 0.5, 1.8, "linger deadline")


@test("H1-06")
def client_that_sends_all_before_it_reads_gets_the_early_answer(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(lambda c: (c.head(), c.send(answer(413, body=b"too large")), c.ending(9)))})
    for target, status in ((P + "/", 413), ("/sandboxes/nobody/port/1/", 404)):
        c = gw.client().send(request("POST", target, f"Content-Length: {8 << 20}"))
        c.send(b"x" * (8 << 20))
        r = c.response()
        equal((r.status, r.whole), (status, True), target)
        equal(c.ending(), "fin", "ending")


@test("sn-f8a8c1ac")
def idle_backend_connection_ends_at_its_deadline(lab):
    ended = []

    def script(conn):
        conn.answer(answer(200, body=b"ok"))
        start = time.monotonic()
        ended.append((conn.ending(5), time.monotonic() - start))
    gw = lab.gateway("--backend-idle-timeout=500ms", routes={"sb1": lab.backend(script)})
    gw.client().ask("GET", P + "/")
    equal(gw.metric("sallyport_backend_connections_idle"), 1, "idle connections")
    wait_for(lambda: ended, "the end of the idle connection")
    equal(ended[0][0], "fin", "ending")
    between(ended[0][1], 0.45, 1.2, "backend idle deadline")


@test("sn-f8a8c1ac")
def only_so_many_backend_connections_are_kept(lab):
    gate = threading.Barrier(10, timeout=10)

    def script(conn):
        conn.request()
        gate.wait()
        conn.send(answer(200, body=b"ok"))
        conn.ending(20)
    for most in (3, 0):
        gate.reset()
        gw = lab.gateway("--workers=1", f"--backend-idle-max={most}", routes={"sb1": lab.backend(script)})
        clients = [gw.client().send(request("GET", P + "/")) for _ in range(10)]
        for c in clients:
            equal(c.response().status, 200, "status")
        wait_for(lambda: gw.metric("sallyport_backend_connections") == most, f"{most} connections kept")
        equal(gw.metric("sallyport_backend_connections_idle"), most, "idle ones")


# ---- limits

@test("H1-09")
def head_over_the_limit_is_431(lab):
    b = lab.backend()
    gw = lab.gateway("--max-head-bytes=16KiB", routes={"sb1": b})
    start = f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA: ".encode()
    room = 16384 - len(start) - 4
    r = gw.client().send(start + b"a" * room + b"\r\n\r\n").response()
    equal((r.status, len(b.last.get("a"))), (200, room), "a head of exactly the limit")
    before = len(b.requests)
    for head in (start + b"a" * (room + 1) + b"\r\n\r\n", start + b"a" * 100000, b"GET /" + b"x" * 100000,
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\n".encode() + b"a:\r\n" * 20000 + b"\r\n", b"x" * 100000):
        c = gw.client().offer(head)
        r = c.response()
        equal((r.status, r.get("connection")), (431, "close"), head[:60])
        check(r.text.startswith(BRAND), r.text)
        check(c.ending() in ("fin", "reset"), "still open")
    equal(len(b.requests), before, "requests at the backend")
    r = gw.client().send(f"GET {P}/ HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nA: ".encode() + b"a" * 20000).response()
    equal(r.status, 431, "status")


@test("H1-09")
def answer_head_over_the_limit_is_502(lab):
    for data in (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 20000 + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
                 b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" * 2000):
        gw = lab.gateway("--max-head-bytes=16KiB", routes={"sb1": lab.backend(lambda c: (c.request(), c.offer(data), c.ending(5)))})
        r = gw.client().ask("GET", P + "/")
        equal((r.status, r.text), (502, BRAND + "upstream sent an invalid response\n"), data[:40])


@test("H1-12")
def trailers_over_the_limit_are_refused(lab):
    gw = lab.gateway("--max-head-bytes=16KiB", routes={"sb1": lab.backend(lambda c: (c.request(), c.ending(5)))})
    c = gw.client().offer(request("POST", P + "/", "Transfer-Encoding: chunked") + b"0\r\nA: " + b"a" * 20000 + b"\r\n\r\n")
    check(c.response().status in (400, 431), "status")
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: " + b"a" * 20000 + b"\r\n\r\n"
    gw = lab.gateway("--max-head-bytes=16KiB", routes={"sb1": lab.backend(plays(data, "hold"))})
    r = gw.client().ask("GET", P + "/")
    equal((r.status, r.whole), (200, False), "answer")


@test("OPS-05")
def connections_over_the_limit_are_refused_and_work_goes_on(lab):
    """B7: some are told so with 503, the rest are closed at once."""
    gw = lab.gateway("--max-connections=40", routes={"sb1": lab.backend(says("ok"))})
    kept = [gw.client() for _ in range(40)]
    for c in kept:
        equal(c.ask("GET", P + "/").status, 200, "up to the limit")
    told = closed = 0
    for c in [gw.client() for _ in range(160)]:
        try:
            r = c.offer(request("GET", P + "/")).response()
            equal((r.status, r.text, r.get("connection"), r.get("retry-after")), (503, BRAND + "gateway is overloaded\n", "close", "1"), "over the limit")
            told += 1
        except Ended:
            closed += 1
    check(told >= 32 and closed >= 32, "told", told, "closed", closed)
    equal((gw.metric("sallyport_overload_total"), gw.metric("sallyport_connections_refused_total")), (told, closed), "refusals counted")
    for c in kept:
        equal(c.ask("GET", P + "/").status, 200, "those that are there go on")
    for c in kept:
        c.close()
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no connections")
    equal(gw.client().ask("GET", P + "/").status, 200, "afterwards")


@test("OPS-05")
def a_limit_that_is_set_is_taken_as_far_as_descriptors_go(lab):
    """By itself half of them are for connections to sandboxes."""
    gw = lab.gateway("--workers=1", "--max-connections=100000", nofile=600)
    line, = gw.told("fewer client connections than are set: the limit of descriptors")
    most = line["served"]
    equal((line["set"], line["descriptors"]), (100000, 600), "line")
    check(200 < most < 500, "served", most)
    for flag, n in ("--max-connections=100000", most), (f"--max-connections={most}", most), ("--max-connections=0", most // 2):
        gw = lab.gateway("--workers=1", flag, nofile=600, routes={"sb1": lab.backend(says("ok"))})
        kept = [gw.client() for _ in range(n)]
        equal({c.ask("GET", "/status.ok").status for c in kept}, {200}, flag)
        equal(gw.client().offer(request("GET", P + "/")).response().status, 503, f"{flag}: one more")
        for c in kept:
            c.close()


def mixed(stop):
    """A script: /stream is an endless one, /ok is answered, anything else is not read."""
    def script(conn):
        r = conn.head()
        if r.target == "/stream":
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not stop.is_set():
                conn.send(b"5\r\nevent\r\n")
                time.sleep(0.02)
            conn.send(b"0\r\n\r\n")
        elif r.target == "/ok":
            conn.send(answer(200, body=b"ok"))
        else:
            stop.wait(20)
    return script


def push(c):
    """As many bytes as are taken without waiting."""
    c.sock.setblocking(False)
    try:
        while True:
            c.sock.send(b"x" * 65536)
    except OSError:
        pass


def fill(gw, hog, most):
    """Opens hogs until somebody is refused for memory; all of them."""
    hogs = []
    while len(hogs) < most and gw.metric("sallyport_overload_total") == 0:
        hogs += [gw.client().send(hog) for _ in range(8)]
        for _ in range(4):
            for c in hogs:
                push(c)
            time.sleep(0.01)
    return hogs


def cap_holds(lab, hog, most, *flags):
    """B7, memory: above the cap new work is refused, what runs goes on, and afterwards all is as before."""
    stop = threading.Event()
    gw = lab.gateway("--max-memory=4MiB", "--backend-idle-max=0", *flags, routes={"sb1": lab.backend(mixed(stop))})
    streams = [gw.client().send(request("GET", P + "/stream")) for _ in range(4)]
    for stream in streams:
        stream.until(b"event")
    hogs = fill(gw, hog, most)
    check(gw.metric("sallyport_overload_total") > 0, "the cap was never reached; held:", gw.metric("sallyport_memory_held_bytes"))
    held = gw.metric("sallyport_memory_held_bytes")
    check(held < 8 << 20, "held far above the cap:", held)
    for stream in streams:
        stream.buf = b""
        for _ in range(10):
            stream.until(b"event", 2)
    said = [c for c in hogs if peek(c).startswith(b"HTTP/1.1 503 ")]
    check(said, "nobody was told")
    statuses = [gw.client(patience=2).ask("GET", P + "/ok").status for _ in range(12)]
    check(503 in statuses and set(statuses) <= {200, 503}, "new connections meanwhile:", statuses)
    equal([gw.client(patience=2).ask("GET", "/status.ok").status for _ in range(12)], [200] * 12, "/status.ok meanwhile")
    for c in hogs:
        c.rst()
    wait_for(lambda: gw.metric("sallyport_memory_held_bytes") < (1 << 20), "memory given back")

    def served():
        try:
            return gw.client(patience=2).ask("GET", P + "/ok").status == 200
        except (Ended, Late):
            return False
    wait_for(served, "new work afterwards")
    stop.set()
    for stream in streams:
        stream.until(b"0\r\n\r\n", 3)


@test("OPS-05")
def memory_cap_holds_against_uploads_that_nobody_reads(lab):
    lab.alone(buffers=16384)
    cap_holds(lab, request("POST", P + "/hog", f"Content-Length: {1 << 30}"), 400)


@test("OPS-05")
def memory_cap_holds_against_heads_that_never_end(lab):
    cap_holds(lab, f"GET {P}/ok HTTP/1.1\r\nHost: x\r\nA: ".encode() + b"a" * 500000, 64, "--max-head-bytes=1MiB")


def peek(c):
    """What has come so far, without waiting for more."""
    c.sock.setblocking(True)
    try:
        while True:
            c.more(0.001)
    except (Ended, Late):
        return c.buf


@test("OPS-05", "sn-5b30c6dc")
def out_of_descriptors_refuses_new_work_and_lets_running_work_go_on(lab):
    """B7: the limit of the running process is lowered under its feet."""
    def script(conn):
        while True:
            r = conn.request()
            if r.target == "/stream":
                conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while not stop.is_set():
                    conn.send(b"5\r\nevent\r\n")
                    time.sleep(0.02)
                conn.send(b"0\r\n\r\n")
            else:
                conn.send(answer(200, body=b"ok"))
    stop = threading.Event()
    gw = lab.gateway(routes={"sb1": lab.backend(script), "sb2": lab.backend(script)})
    stream = gw.client().send(request("GET", P + "/stream"))
    stream.until(b"event")
    used = gw.client()
    equal(used.ask("GET", P + "/").status, 200, "status")
    old = gw.limit_fds(max(int(n) for n in os.listdir(f"/proc/{gw.pid}/fd")) + 1)
    for _ in range(3):
        r = used.ask("GET", P2 + "/")
        check(r.status in (200, 502, 503) and r.body, "a request that needs a new descriptor:", r.status)
        if r.get("connection") == "close":
            used = None
            break
    waiting = [gw.client().send(request("GET", P + "/")) for _ in range(30)]
    before = gw.cpu_s()
    stream.buf = b""
    for _ in range(40):
        stream.until(b"event", 1)
    check(gw.cpu_s() - before < 0.6, "busy while out of descriptors:", gw.cpu_s() - before, "s of CPU in about 0.8 s")
    check(gw.alive(), "gone")
    gw.limit_fds(old)
    served = 0
    for c in waiting:
        try:
            served += c.response().status == 200
        except Ended:
            pass
    check(served > 0, "none of those that waited was served")
    equal(gw.client().ask("GET", P + "/").status, 200, "afterwards")
    stop.set()
    stream.until(b"0\r\n\r\n", 3)
