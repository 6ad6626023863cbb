"""Long bodies between plain connections, which go through a kernel pipe past the codecs: every byte, in order, however the
message is framed, and every way in which it can break off."""
import fcntl
import hashlib
import struct
import termios
import threading
import time

from lib import P, Ended, Late, check, equal, request, test, wait_for
from wire import Response

MIB = 1 << 20
PIECE = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(8192))  # 256 KiB in which no stretch looks like another


def body(n):
    return (PIECE * (n // len(PIECE) + 1))[:n]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def sends(n, framing, then="close", wait=0):
    """A script: one request, an answer of n bytes by length or until EOF."""
    def script(conn):
        conn.request()
        field = b"Content-Length: %d\r\n" % n if framing == "length" else b"Connection: close\r\n"
        conn.send(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n")
        conn.send(body(n))
        time.sleep(wait)
        if then == "rst":
            conn.rst()
        elif then == "hold":
            conn.ending(60)
    return script


def swallow(wire, n):
    """Takes n bytes from a connection; their digest."""
    seen = hashlib.sha256()
    while n > 0:
        if not wire.buf:
            wire.more(20)
        part, wire.buf = wire.buf[:n], wire.buf[n:]
        wire.seen.clear()
        seen.update(part)
        n -= len(part)
    return seen.hexdigest()


def head_of(client):
    r = Response(client.until(b"\r\n\r\n", 20))
    equal(r.status, 200, "status")
    return r


@test("STR-04", "STR-05", limit=120)
def long_answer_arrives_whole(lab):
    n = 24 * MIB + 12345
    gw = lab.gateway(routes={"sb1": lab.backend(sends(n, "length"))})
    c = gw.client().send(request("GET", P + "/"))
    head_of(c)
    equal(swallow(c, n), digest(body(n)), "body")
    check(c.silent(0.2), "more than the body came")
    line = gw.access()[-1]
    equal((line["bytes_out"], line["why"]), (n, "ok"), "access line")


@test("STR-02", "STR-04", limit=120)
def answer_until_eof_arrives_whole_at_an_old_client(lab):
    n = 9 * MIB + 77
    gw = lab.gateway(routes={"sb1": lab.backend(sends(n, "eof"))})
    c = gw.client().send(request("GET", P + "/", version="HTTP/1.0"))
    head_of(c)
    equal(swallow(c, n), digest(body(n)), "body")
    equal(c.ending(10), "fin", "ending")


@test("STR-04", limit=120)
def connection_serves_on_behind_a_long_answer(lab):
    n = 3 * MIB
    big = body(n)

    def script(conn):
        while True:
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + big)
    b = lab.backend(script)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    c = gw.client()
    for _ in range(20):
        c.send(request("GET", P + "/"))
        head_of(c)
        equal(swallow(c, n), digest(big), "body")
    equal(len(b.conns), 1, "connections to the backend")
    c.send(request("GET", P + "/") * 3)  # pipelined
    for _ in range(3):
        head_of(c)
        equal(swallow(c, n), digest(big), "body of a pipelined request")


@test("STR-04", limit=120)
def long_upload_arrives_whole(lab):
    n = 24 * MIB + 321
    seen = []

    def script(conn):
        for _ in range(2):
            conn.head()
            seen.append(swallow(conn, n))
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client()
    for i in range(2):
        c.send(f"PUT {P}/ HTTP/1.1\r\nHost: gw.test\r\nContent-Length: {n}\r\n\r\n")
        c.send(body(n))
        equal(c.response("PUT").body, b"ok", "answer")
        equal(seen[i], digest(body(n)), "body")


def tunnel(lab, script, **how):
    gw = lab.gateway(routes={"sb1": lab.backend(script)}, **how)
    c = gw.client().send(request("GET", P + "/", "Connection: Upgrade", "Upgrade: bulk/1"))
    equal(Response(c.until(b"\r\n\r\n")).status, 101, "status")
    return gw, c


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bulk/1\r\n\r\n"


@test("WS-07", limit=120)
def tunnel_moves_bulk_both_ways_at_once_and_small_pieces_between(lab):
    n = 16 * MIB
    seen = []

    def script(conn):
        conn.request()
        conn.send(SWITCH)
        out = threading.Thread(target=lambda: conn.send(body(n)), daemon=True)
        out.start()
        seen.append(swallow(conn, n))
        out.join()
        for _ in range(50):
            conn.send(conn.exact(7))
        conn.ending(10)
    gw, c = tunnel(lab, script)
    out = threading.Thread(target=lambda: c.send(body(n)), daemon=True)
    out.start()
    equal(swallow(c, n), digest(body(n)), "to the client")
    out.join()
    for i in range(50):
        c.send(b"ping %02d" % i)
        equal(c.exact(7, 2), b"ping %02d" % i, "echo")
    c.fin()
    equal(c.ending(5), "fin", "ending")
    equal(seen, [digest(body(n))], "to the backend")


@test("WS-07", "STR-04", limit=120)
def half_closed_tunnel_still_moves_bulk(lab):
    n = 8 * MIB

    def script(conn):
        conn.request()
        conn.send(SWITCH)
        equal(conn.ending(10), "fin", "the client's end")
        conn.send(body(n))
    _, c = tunnel(lab, script)
    c.fin()
    equal(swallow(c, n), digest(body(n)), "body")
    equal(c.ending(10), "fin", "ending")


@test("STR-04", limit=180)
def slow_reader_holds_up_the_writer_and_gets_everything(lab):
    lab.alone(buffers=65536)
    n = 64 * MIB
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(sends(n, "length"))})
    before = gw.rss()
    c = gw.client(rcvbuf=16384).send(request("GET", P + "/"))
    head_of(c)
    seen, got = hashlib.sha256(), 0
    for _ in range(100):
        c.more(20)
        seen.update(c.buf)
        got += len(c.buf)
        c.buf = b""
        c.seen.clear()
        time.sleep(0.01)
    check(gw.rss() - before < 512 * 1024 * lab.fat, "resident memory grew by", gw.rss() - before)
    while got < n:
        c.more(20)
        seen.update(c.buf)
        got += len(c.buf)
        c.buf = b""
        c.seen.clear()
    equal(seen.hexdigest(), digest(body(n)), "body")


@test("STR-02", limit=120)
def answer_that_breaks_off_in_bulk_is_cut_and_not_ended(lab):
    n = 8 * MIB
    for then in ("close", "rst"):
        def script(conn, then=then):
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * n))
            conn.send(body(n))
            if then == "rst":
                time.sleep(0.3)
                conn.rst()
        gw = lab.gateway(routes={"sb1": lab.backend(script)})
        c = gw.client().send(request("GET", P + "/"))
        head_of(c)
        equal(swallow(c, n), digest(body(n)), "what came before the end")
        check(c.ending(10) in ("fin", "reset"), "the client waits on")
        equal(gw.access(why="origin-gone")[-1]["bytes_out"], n, "bytes in the access line")


@test("STR-03", limit=120)
def client_that_leaves_in_bulk_ends_the_backend_and_leaves_nothing(lab):
    ended = []

    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        try:
            while True:
                conn.send(PIECE)
        except (Ended, Late, OSError):
            ended.append(time.monotonic())
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(script)})
    gw.settle()
    fds = gw.fds()
    for leave in ("close", "rst", "stall"):
        c = gw.client(rcvbuf=16384).send(request("GET", P + "/"))
        head_of(c)
        if leave != "stall":
            swallow(c, 4 * MIB)
        else:
            time.sleep(0.5)
        left = time.monotonic()
        if leave == "rst":
            c.rst()
        else:
            c.close()
        wait_for(lambda: ended, "the end of the backend's connection", within=3 * lab.slow)
        check(ended.pop() - left < 1.5 * lab.slow, "the backend was told late:", leave)
    gw.settle()
    wait_for(lambda: gw.fds() <= fds, "descriptors back at base")


@test("STR-03", limit=120)
def upload_that_breaks_off_in_bulk_never_looks_whole(lab):
    endings = []

    def script(conn):
        conn.head()
        try:
            while True:
                conn.more(10)
                conn.buf = b""
                conn.seen.clear()
        except Ended as e:
            endings.append(str(e))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client()
    c.send(f"PUT {P}/ HTTP/1.1\r\nHost: gw.test\r\nContent-Length: {1 << 30}\r\n\r\n")
    c.send(body(8 * MIB))
    c.close()
    wait_for(lambda: endings, "the end of the backend's connection")
    gw.access(why="client-gone")


@test("STR-04", limit=120)
def early_answer_to_a_bulk_upload_arrives(lab):
    def script(conn):
        conn.head()
        swallow(conn, 4 * MIB)
        conn.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")
        conn.ending(10)
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client()
    c.send(f"PUT {P}/ HTTP/1.1\r\nHost: gw.test\r\nContent-Length: {1 << 30}\r\n\r\n")
    threading.Thread(target=lambda: c.offer(body(64 * MIB)), daemon=True).start()
    r = c.response("PUT")
    equal((r.status, r.body), (413, b"no!"), "answer")


@test("STR-04", limit=180)
def many_stalled_long_answers_hold_few_pipes_and_all_finish(lab):
    n = 6 * MIB
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(sends(n, "length"))})
    clients = [gw.client(rcvbuf=16384).send(request("GET", P + "/")) for _ in range(60)]
    for c in clients:
        head_of(c)
    time.sleep(0.5)
    check(gw.fds() < 60 * 2 + 64 + 40, "descriptors:", gw.fds())
    for c in clients:
        equal(swallow(c, n), digest(body(n)), "body")


# ---- what ends or changes an exchange while its bytes are in a pipe

def endless(conn):
    """A script: one request, an answer without end."""
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
    while True:
        conn.send(PIECE)


def flows(gw, n=2 * MIB, **how):
    """A client in the midst of an endless answer."""
    c = gw.client(**how).send(request("GET", P + "/"))
    head_of(c)
    equal(swallow(c, n), digest(body(n)), "the beginning")
    return c


def drained_end(wire, within=10):
    """Reads on, keeping nothing; how it ends."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        wire.buf = b""
        wire.seen.clear()
        try:
            wire.more(until - time.monotonic())
        except Ended as e:
            return str(e)
        except Late:
            break
    return "late"


@test("STR-04", "OPS-03", limit=60)
def route_that_goes_cuts_bulk_and_frees_its_connections(lab):
    b = lab.backend(endless)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    for rcvbuf in (0, 16384):
        c = flows(gw, rcvbuf=rcvbuf)
        time.sleep(0.2 if rcvbuf else 0)    # now and then the pipe is full
        gw.reload(routes={})
        check(drained_end(c) in ("fin", "reset"), "the client waits on")
        wait_for(lambda: gw.metric("sallyport_backend_connections") == 0, "no backend connection left")
        gw.reload(routes={"sb1": b})
    gw.access(2, why="revoked")


@test("OPS-01", "STR-04", limit=60)
def bulk_ends_whole_within_the_drain_and_is_cut_behind_it(lab):
    n = 12 * MIB
    gw = lab.gateway("--drain-timeout=10s", routes={"sb1": lab.backend(sends(n, "length"))})
    c = gw.client(rcvbuf=65536).send(request("GET", P + "/"))
    head_of(c)
    equal(swallow(c, 2 * MIB), digest(body(2 * MIB)), "the beginning")
    gw.signal(15)
    time.sleep(0.3)
    seen = hashlib.sha256(body(2 * MIB))
    while True:
        try:
            c.more(10)
        except Ended as e:
            equal(str(e), "fin", "ending")
            break
        seen.update(c.buf)
        c.buf = b""
    equal(seen.hexdigest(), digest(body(n)), "body")
    equal(gw.exit(10), 0, "exit status")

    gw = lab.gateway("--drain-timeout=300ms", "--linger-timeout=300ms", routes={"sb1": lab.backend(endless)})
    running, stalled = flows(gw), flows(gw, rcvbuf=16384)
    start = time.monotonic()
    gw.signal(15)
    check(drained_end(running) in ("fin", "reset"), "the client waits on")
    equal(gw.exit(10), 0, "exit status")
    check(time.monotonic() - start < 3 * lab.slow, "it took", time.monotonic() - start)
    check(drained_end(stalled) in ("fin", "reset"), "the client waits on")


@test("STR-06", "STR-04", limit=60)
def idle_bulk_is_ended_and_slow_bulk_is_not(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        conn.send(body(4 * MIB))
        for _ in range(8):
            time.sleep(0.25)
            conn.send(body(30000))
        conn.ending(20)
    gw = lab.gateway("--workers=1", f"--idle-timeout={600 * lab.slow}ms", "--linger-timeout=200ms", routes={"sb1": lab.backend(script), "sb2": lab.backend(endless)})
    c = gw.client().send(request("GET", P + "/"))
    head_of(c)
    equal(swallow(c, 4 * MIB + 8 * 30000), digest(body(4 * MIB) + 8 * body(30000)), "body")
    check(drained_end(c) in ("fin", "reset"), "a backend that stands still is waited for")
    c = gw.client(rcvbuf=16384).send(request("GET", "/sandboxes/sb2/port/3000/"))
    head_of(c)
    wait_for(lambda: gw.metric("sallyport_exchanges", state="body") == 0, "the end of a client that takes nothing")
    gw.access(2, why="deadline")


@test("STR-04", limit=60)
def bulk_upload_that_stands_still_is_blamed_on_who_holds_it_up(lab):
    stalls = threading.Event()

    def script(conn):
        conn.head()
        swallow(conn, 2 * MIB)
        if stalls.is_set():
            time.sleep(6 * lab.slow)
        while True:
            conn.more(20)
            conn.buf = b""
            conn.seen.clear()
    gw = lab.gateway("--workers=1", f"--idle-timeout={500 * lab.slow}ms", "--response-timeout=60s", routes={"sb1": lab.backend(script, rcvbuf=65536)})

    def upload(n):
        c = gw.client()
        c.send(f"PUT {P}/ HTTP/1.1\r\nHost: gw.test\r\nContent-Length: {1 << 30}\r\n\r\n")
        threading.Thread(target=lambda: c.offer(body(n)), daemon=True).start()
        return c.response("PUT").status
    equal(upload(4 * MIB), 408, "the client stands still")
    stalls.set()
    equal(upload(64 * MIB), 504, "the backend stands still")


@test("STR-02", limit=60)
def whatever_the_backend_said_before_it_left_arrives_or_the_client_sees_a_cut(lab):
    """The client stands still meanwhile, so that there are bytes in the pipe."""
    n = 24 * MIB

    def script(conn):
        r = conn.request()
        kind, then = r.get("x-kind"), r.get("x-then")
        first = {"length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * n), "eof": b"HTTP/1.1 200 OK\r\n\r\n", "tunnel": SWITCH}[kind]
        conn.send(first)
        conn.sock.setblocking(False)
        data, sent, quiet = body(n), 0, 0
        while quiet < 20 and sent < n:
            try:
                sent += conn.sock.send(data[sent:sent + 262144])
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.02)
        left.append(sent)
        if then == "rst":
            conn.rst()
    gw = lab.gateway("--workers=1", "--linger-timeout=20s", routes={"sb1": lab.backend(script)})
    for kind in ("length", "eof", "tunnel"):
        for then in ("close", "rst"):
            left = []
            fields = ["Connection: Upgrade", "Upgrade: bulk/1"] if kind == "tunnel" else []
            version = "HTTP/1.0" if kind == "eof" else "HTTP/1.1"
            c = gw.client(rcvbuf=65536).send(request("GET", P + "/", f"X-Kind: {kind}", f"X-Then: {then}", *fields, version=version))
            Response(c.until(b"\r\n\r\n", 20))
            wait_for(lambda: left, "the backend has left", 20)
            time.sleep(1.2)
            got, ending, seen = len(c.buf), "late", hashlib.sha256(c.buf)
            try:
                while True:
                    c.buf = b""
                    c.seen.clear()
                    c.more(10)
                    got += len(c.buf)
                    seen.update(c.buf)
            except (Ended, Late) as e:
                ending = str(e)
            equal(seen.hexdigest(), digest(body(got)), f"{kind} {then}: what arrived")
            check(ending in ("fin", "reset"), f"{kind} {then}: the client waits on")
            if then == "close":
                equal(got, left[0], f"{kind}: bytes before the end")
            elif kind == "eof" and got < left[0]:   # a length says so by itself, and a tunnel has ends of its own
                equal(ending, "reset", f"{got} of {left[0]} bytes and then")


def arrived(sock):
    """All that was sent has been acknowledged."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0] == 0


@test("STR-02", limit=60)
def answer_that_came_whole_before_a_reset_reaches_a_slow_reader_whole(lab):
    n, gone = 5 * MIB, []

    def script(conn):
        r = conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n if r.get("x-kind") == "length" else SWITCH)
        conn.send(body(n))
        wait_for(lambda: arrived(conn.sock), "all in the gateway's hands")
        conn.rst()
        gone.append(True)
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(script)})
    for kind in ("length", "tunnel"):
        gone.clear()
        fields = ["Connection: Upgrade", "Upgrade: bulk/1"] if kind == "tunnel" else []
        c = gw.client(rcvbuf=65536).send(request("GET", P + "/", f"X-Kind: {kind}", *fields))
        c.until(b"\r\n\r\n")
        wait_for(lambda: gone, "the reset", 20)
        time.sleep(1.5)
        equal(swallow(c, n), digest(body(n)), f"{kind}: body")


@test("STR-04", limit=60)
def bulk_flows_both_ways_in_one_exchange(lab):
    n = 16 * MIB
    seen = []

    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n)
        out = threading.Thread(target=lambda: conn.send(body(n)[:-1]), daemon=True)
        out.start()
        seen.append(swallow(conn, n))
        out.join()
        conn.send(body(n)[-1:])     # an answer that is whole would end the upload
        conn.ending(10)
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(script)})
    c = gw.client()
    c.send(f"POST {P}/ HTTP/1.1\r\nHost: gw.test\r\nContent-Length: {n}\r\n\r\n")
    out = threading.Thread(target=lambda: c.offer(body(n)), daemon=True)
    out.start()
    head_of(c)
    equal(swallow(c, n), digest(body(n)), "to the client")
    out.join()
    wait_for(lambda: seen, "the upload")
    equal(seen, [digest(body(n))], "to the backend")
    line = gw.access()[-1]
    equal((line["bytes_in"], line["bytes_out"], line["why"]), (n, n, "ok"), "access line")


@test("STR-04", limit=60)
def reload_leaves_bulk_alone(lab):
    n = 24 * MIB
    gw = lab.gateway("--workers=1", routes={"sb1": lab.backend(sends(n, "length"))})
    c = gw.client(rcvbuf=65536).send(request("GET", P + "/"))
    head_of(c)
    seen, got = hashlib.sha256(), 0
    for i in range(12):
        gw.signal(1)
        part = c.exact(2 * MIB, 20)
        seen.update(part)
        got += len(part)
    equal((got, seen.hexdigest()), (n, digest(body(n))), "body")
