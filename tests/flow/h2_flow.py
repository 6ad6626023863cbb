"""HTTP/2 by itself: what a client may not do, what a backend may, floods, limits, and that one stream's trouble is no other's."""
import contextlib
import json
import random
import struct
import threading
import time

from h2wire import (ACK, CALM, CANCEL, CONT, DATA, END_HEADERS, END_STREAM, EXTENDED, GOAWAY, HEADERS, MAX_LIST, MAX_STREAMS, NO_ERROR,
                    PADDED, PING, PRIORITY, PROTOCOL, REFUSED, RST, SETTINGS, TABLE, WINDOW, WINUP, frame, settings, u32)
from lib import Client, Ended, Failed, Late, check, equal, soon, test, wait_for
from pairs import PAIRS, Pair, Setup, h2c, over_pairs, serves1, serves2

H1, H2P = Pair("h2", False, "h1"), Pair("h2", False, "h2")
BOTH = [H1, H2P]
CONNECT_SETTING = {8: 1}


def says_ok(part):
    part.body()
    part.answer(200, body=b"ok")


def head_of(s, pair, method="GET", rest="/", *more, drop=()):
    head = [(":method", method), (":scheme", "http"), (":path", s.path(pair, rest)), (":authority", "gw.test")]
    return [f for f in head if f[0] not in drop] + list(more)


def fine(s, conn, pair=H1):
    """The connection carries another exchange."""
    a = s.ask(pair, conn=conn)
    equal((a.status, a.body), (200, b"ok"), "an exchange beside it")


def refused(stream):
    """The stream is malformed: reset, or answered 4xx or 501."""
    with contextlib.suppress(Ended):
        status = int(dict(stream.next_head(0))[":status"])
        check(400 <= status < 500 or status == 501, "status", status)
        return
    equal(stream.rst, PROTOCOL, "code of the reset")


# ---- H2-01

BAD = {
    "upgrade": [("upgrade", "h2c")], "keep-alive": [("keep-alive", "5")], "proxy-connection": [("proxy-connection", "x")],
    "connection": [("connection", "close")], "empty transfer-encoding": [("transfer-encoding", "")],
    "chunked": [("transfer-encoding", "chunked")], "two lengths": [("content-length", "1"), ("content-length", "2")],
    "empty name": [("", "x")], "DEL in a name": [("a\x7fb", "x")], "high byte in a name": [(b"a\xe4b", b"x")], "upper case": [("X-A", "x")],
    "blank in a name": [("a b", "x")], "colon in a name": [("a:b", "x")], "CR": [("x-a", "a\rb")], "LF": [("x-a", "a\nGET / HTTP/1.1")],
    "NUL": [("x-a", "a\0b")], "CRLF": [("x-a", "a\r\nx-b: c")], "TAB at the end": [("x-a", "a\t")], "blank at the start": [("x-a", " a")],
    "te: gzip": [("te", "gzip")], ":status": [(":status", "200")], ":foo": [(":foo", "x")], "another host": [("host", "other.test")],
}


@test("H2-01")
def field_that_would_become_something_else_is_refused(lab):
    s = Setup(lab, says_ok)
    conn = s.conn2(H1)
    for name, more in BAD.items():
        n = len(s.b1.requests)
        with _named(name):
            refused(conn.open(head_of(s, H1, "GET", "/", *more), end=True))
            fine(s, conn)
            equal(len(s.b1.requests), n + 1, "requests at the backend")


@contextlib.contextmanager
def _named(what):
    try:
        yield
    except (Failed, Ended, Late) as e:
        raise Failed(f"{what}: {type(e).__name__} {e}").with_traceback(e.__traceback__) from None


@test("H2-01")
def pseudo_field_that_is_wrong_is_refused(lab):
    s = Setup(lab, says_ok)
    conn = s.conn2(H1)
    path, ok = s.path(H1, "/"), dict(head_of(s, H1))
    wrong = {"no method": {":method": None}, "no scheme": {":scheme": None}, "no path": {":path": None}, "empty path": {":path": ""},
             "path x": {":path": "x"}, "path * with GET": {":path": "*"}, "TAB in the path": {":path": path + "a\tb"},
             "blank in the path": {":path": path + "a b"}, "method": {":method": "GE(T"}, "user in the authority": {":authority": "a@b"},
             "slash in the authority": {":authority": "a/b"}, "CONNECT with a path": {":method": "CONNECT"},
             "GET with a protocol": {":protocol": "websocket"}, "LF in the path": {":path": path + "\nx: y"}}
    for name, change in wrong.items():
        n = len(s.b1.requests)
        with _named(name):
            fields = [(k, v) for k, v in {**ok, **change}.items() if v is not None]
            refused(conn.open(fields, end=name != "GET with a protocol"))
            fine(s, conn)
            equal(len(s.b1.requests), n + 1, "requests at the backend")
    for name, fields in {"twice": [(":method", "GET"), *head_of(s, H1)], "after a field": [*head_of(s, H1, drop=[":path"]), ("x-a", "b"), (":path", path)]}.items():
        with _named(name):
            refused(conn.open(fields, end=True))
            fine(s, conn)


@test("H2-01")
def body_that_is_not_as_long_as_it_says_never_ends_well(lab):
    ends = []

    def handler(part):
        try:
            ends.append(part.body())
            part.answer(200, body=b"ok")
        except (Ended, Late) as e:
            ends.append(e)
            raise
    s = Setup(lab, handler)
    for pair in BOTH:
        conn = s.conn2(pair)
        for data in (b"abc", b"x" * 11):
            ends.clear()
            stream = conn.open(head_of(s, pair, "POST", "/", ("content-length", "10")))
            with contextlib.suppress(Ended):
                stream.send(data, end=True)
            refused(stream)
            wait_for(lambda: not any(isinstance(e, bytes) for e in ends), "no whole body at the backend", 1)
            time.sleep(0.05)
            check(not any(isinstance(e, bytes) for e in ends), "the backend got a whole body:", ends)
        ends.clear()
        a = s.ask(pair, "POST", body=b"y" * 10, conn=conn)
        equal(a.status, 200, "the next on the connection")


BAD_ANSWERS = {
    "connection": [("connection", "close")], "keep-alive": [("keep-alive", "x")], "transfer-encoding": [("transfer-encoding", "chunked")],
    "upgrade": [("upgrade", "x")], "upper case": [("X-A", "x")], "LF": [("x-a", "a\nx-b: c")], "CRLF": [("x-a", "a\r\n\r\nHTTP/1.1 200 OK")],
    "NUL": [("x-a", "a\0b")], "blank in a name": [("a b", "x")], "colon in a name": [("a:b", "x")], "empty name": [("", "x")],
    "two lengths": [("content-length", "1"), ("content-length", "2")], "length that is none": [("content-length", "+2")],
    ":foo": [(":foo", "x")], ":path": [(":path", "/")], "status twice": [(":status", "200")],
}


@test("H2-01", limit=90)
def answer_that_would_become_something_else_is_502(lab):
    todo = [None]

    def handler(part):
        part.body()
        if todo[0] is None:
            part.answer(200, body=b"ok")
        else:
            part.stream.head(todo[0])
            part.stream.send(b"ok", end=True)
    s = Setup(lab, handler)
    cases = {name: [(":status", "200"), *more] for name, more in BAD_ANSWERS.items()}
    cases.update({"no status": [("x-a", "b")], "status of two digits": [(":status", "20")], "status 101": [(":status", "101")],
                  "status after a field": [("x-a", "b"), (":status", "200")]})
    for client in ("h1", "h2"):
        pair = Pair(client, False, "h2")
        for name, head in cases.items():
            with _named(f"{name} to {client}"):
                todo[0] = head
                c = s.call(pair)
                a = c.finish()
                equal((a.status, a.whole), (502, True), "status")
                check(client == "h2" or not c.wire.buf, "more than an answer:", c.wire.buf if client == "h1" else "")
                c.leave()
                todo[0] = None
                equal(s.ask(pair).body, b"ok", "the next answer")


@test("H2-01")
def answer_that_is_not_as_long_as_it_says_is_cut(lab):
    def handler(part):
        part.body()
        if part.target == "/":
            part.answer(200, body=b"ok")
        else:
            part.stream.head([(":status", "200"), ("content-length", "10")])
            part.stream.send(b"x" * int(part.target[1:]), end=True)
    s = Setup(lab, handler)
    for client in ("h1", "h2"):
        pair = Pair(client, False, "h2")
        for n in (3, 11):
            with contextlib.suppress(Ended):
                a = s.ask(pair, "GET", f"/{n}")
                check(a.status == 502 or not a.whole, f"{n} bytes of 10 to {client}: status {a.status}, whole {a.whole}, {a.body}")
            equal(s.ask(pair).body, b"ok", "the next answer")


@test("H2-06")
def te_is_made_anew_for_each_version(lab):
    seen = []

    def handler(part):
        part.body()
        seen.append((part.get("te"), (part.get("connection") or "").lower()))
        part.answer(200, body=b"ok")
    s = Setup(lab, handler)
    for pair in PAIRS:
        s.ask(pair, "GET", "/", "TE: trailers, deflate" if pair.client == "h1" else "TE: trailers", *(["Connection: TE"] if pair.client == "h1" else []))
        te, connection = seen.pop()
        equal(te, "trailers", f"{pair}: te")
        equal("te" in connection.replace(" ", "").split(","), pair.backend == "h1", f"{pair}: connection, {connection}")
        s.ask(pair)
        equal(seen.pop()[0], None, f"{pair}: te of a client that has none")


@test("H2-06")
def cookie_crumbs_are_one_field_on_http_1(lab):
    seen = []

    def handler(part):
        part.body()
        seen.append(part.all("cookie"))
        part.answer(200, body=b"ok")
    s = Setup(lab, handler)
    for pair in BOTH:
        stream = s.conn2(pair).open(head_of(s, pair, "GET", "/", ("cookie", "a=1"), ("cookie", "b=2"), ("x-a", "b"), ("cookie", "c=3")), end=True)
        stream.read()
        crumbs = seen.pop()
        equal("; ".join(crumbs), "a=1; b=2; c=3", "cookies")
        check(pair.backend == "h2" or len(crumbs) == 1, "fields", crumbs)


# ---- H2-02, H2-03

def calmed(conn, within=15):
    """The connection ends for the flood, with its reason where it got through."""
    check(conn.ending(within) != "late", "the connection goes on")
    check(conn.goaway is None or conn.goaway[1] in (CALM, PROTOCOL), "GOAWAY", conn.goaway)


@test("H2-02", limit=120)
def reset_flood_ends_its_connection_and_no_other(lab):
    at_once, most, lock = [0], [0], threading.Lock()

    def handler(part):
        if part.target == "/ok":
            part.answer(200, body=b"ok")
            return
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        part.gone(10)
        with lock:
            at_once[0] -= 1
    s = Setup(lab, handler)
    other = s.conn2(H1)
    s.ask(H1, "GET", "/ok", conn=other)
    before = s.gw.rss()
    for pair in BOTH:
        conn, n = s.conn2(pair), 0
        with contextlib.suppress(Ended, Late):
            for n in range(20_000):
                sid = conn.open().id
                with conn.out_lock:
                    conn.head(sid, head_of(s, pair, "GET", "/flood"), True)
                    conn.f(RST, 0, sid, u32(CANCEL))
                if conn.dead:
                    break
        calmed(conn)
        check(conn.goaway is None or conn.goaway[1] == CALM, "GOAWAY", conn.goaway)
        check(n < 19_999, "resets taken", n)
        equal(s.ask(H1, "GET", "/ok", conn=other).status, 200, "another connection")
    wait_for(lambda: at_once[0] == 0, "all backend exchanges to be given up", 10)
    check(most[0] < 2000, "backend exchanges at once", most[0])
    check(s.gw.rss() - before < (16 << 20) * lab.fat, "grown by", (s.gw.rss() - before) >> 10, "KiB")


@test("H2-02")
def streams_beyond_the_limit_are_refused(lab):
    """Before a client has acknowledged the limit it cannot know it, and loses just what was too much."""
    go = threading.Event()

    def handler(part):
        go.wait(10)
        part.answer(200, body=b"ok")
    s = Setup(lab, handler, "--h2-max-streams=10")
    conn = s.conn2(H2P, ack=False)
    equal(conn.peer.get(MAX_STREAMS), 10, "SETTINGS_MAX_CONCURRENT_STREAMS")
    streams = [conn.open(head_of(s, H2P), end=True) for _ in range(14)]
    wait_for(lambda: sum(x.rst == REFUSED for x in streams) == 4, "four to be refused")
    go.set()
    equal(sum(x.read() == b"ok" for x in streams), 10, "answered")
    fine(s, conn, H2P)
    go.clear()
    conn = s.conn2(H2P)
    conn.ping()         # our acknowledgement has been read
    streams = [conn.open(head_of(s, H2P), end=True) for _ in range(11)]
    wait_for(lambda: streams[-1].rst in (REFUSED, PROTOCOL) or conn.dead, "the eleventh to be refused, or the connection")
    go.set()
    fine(s, s.conn2(H2P), H2P)


FLOODS = {
    "PING": lambda conn, i: frame(PING, 0, 0, b"12345678"),
    "SETTINGS": lambda conn, i: frame(SETTINGS, 0, 0, settings({TABLE: 4096})),
    "empty SETTINGS": lambda conn, i: frame(SETTINGS, 0, 0),
    "CONTINUATION": lambda conn, i: frame(CONT, 0, 1, b"\x00\x01a\x01b") if i else frame(HEADERS, 0, 1, b"\x82\x86"),
    "empty CONTINUATION": lambda conn, i: frame(CONT, 0, 1) if i else frame(HEADERS, 0, 1, b"\x82\x86"),
    "empty DATA": lambda conn, i: frame(DATA, 0, conn.flood.id),
    "padding only": lambda conn, i: frame(DATA, PADDED, conn.flood.id, b"\x00"),
    "WINDOW_UPDATE": lambda conn, i: frame(WINUP, 0, conn.flood.id, u32(1)),
    "WINDOW_UPDATE of the connection": lambda conn, i: frame(WINUP, 0, 0, u32(1)),
    "PRIORITY": lambda conn, i: frame(PRIORITY, 0, 2 * i + 1, u32(0) + b"\x10"),
    "RST_STREAM of what is over": lambda conn, i: frame(RST, 0, conn.flood.id, u32(CANCEL)),
}


@test("H2-03", limit=240)
def flood_of_small_frames_ends_its_connection(lab):
    go = threading.Event()

    def handler(part):
        if part.target == "/flood":
            go.wait(30)
            return
        says_ok(part)
    s = Setup(lab, handler)
    other = s.conn2(H1)
    fine(s, other)
    before = s.gw.rss()
    for name, make in FLOODS.items():
        with _named(name):
            conn = s.conn2(H2P, ack=False)
            if "CONTINUATION" not in name:
                conn.flood = conn.open(head_of(s, H2P, "POST", "/flood"))
            conn.ping()
            sent = 0
            with contextlib.suppress(Ended, Late):
                while sent < 200_000 and not conn.dead:
                    conn.send(b"".join(make(conn, i) for i in range(sent, sent + 200)))
                    sent += 200
            calmed(conn)
            check(sent < 200_000, "frames taken", sent)
            fine(s, other)
    go.set()
    check(s.gw.rss() - before < (16 << 20) * lab.fat, "grown by", (s.gw.rss() - before) >> 10, "KiB")


@test("H2-03")
def replies_to_a_client_that_does_not_read_are_bounded(lab):
    """PING after PING, and nothing of the answers is taken: the kernel's buffers fill, then ours must not."""
    s = Setup(lab, says_ok)
    c = s.gw.client(rcvbuf=4096)
    c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    before = s.gw.rss()
    c.sock.settimeout(3)
    with contextlib.suppress(OSError):
        for _ in range(4000):
            c.sock.sendall(frame(PING, 0, 0, b"12345678") * 200)
    check(s.gw.rss() - before < (8 << 20) * lab.fat, "grown by", (s.gw.rss() - before) >> 10, "KiB")
    fine(s, s.conn2(H1))


@test("H2-03")
def honest_client_that_talks_much_is_no_flood(lab):
    """Many small exchanges, each with its window updates and pings, on one connection."""
    s = Setup(lab, says_ok)
    for pair in BOTH:
        conn = s.conn2(pair)
        for i in range(1500):
            a = s.ask(pair, "POST", body=b"x" * 10, conn=conn)
            equal((a.status, a.body), (200, b"ok"), f"exchange {i}")
            if i % 10 == 0:
                conn.ping()


# ---- H2-04, and what else a backend may do

@test("H2-04", limit=120)
def backend_with_awkward_settings_serves_all(lab):
    body = bytes(range(256)) * 64
    windows = []

    def greet(h2):
        h2.offer(frame(SETTINGS, 0, 0, settings({WINDOW: 100})))
        threading.Timer(0.3, lambda: h2.offer(frame(SETTINGS, 0, 0, settings({WINDOW: 5000})))).start()
        windows.append(h2)

    def handler(part):
        got = b""
        part.stream.wait(lambda: part.stream.data or part.stream.ended, "body")
        got = part.body()
        part.answer(200, body=got)

    s = Setup(lab, handler, ours={TABLE: 0, WINDOW: 0, MAX_STREAMS: 1}, greet=greet)
    for pair in (Pair("h1", False, "h2"), H2P):
        answers = []

        def one(i):
            try:
                a = s.ask(pair, "POST", f"/{i}", body=body)
                answers.append((a.status, a.body == body, a.whole))
            except Exception as e:
                answers.append(repr(e))
        threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(40)
        equal(answers, [(200, True, True)] * 20, f"{pair}: answers")
    for h2 in s.b2.h2:
        equal(h2.faults, [], "faults of the gateway")
        wait_for(lambda: h2.acks >= 1 or h2.dead, "SETTINGS to be acknowledged")


@test("MAX-STREAMS", limit=120)
def backend_that_takes_one_at_a_time_gets_one_at_a_time(lab):
    running, most, lock = {}, [0], threading.Lock()

    def handler(part):
        with lock:
            running[part.conn] = running.get(part.conn, 0) + 1
            most[0] = max(most[0], running[part.conn])
        time.sleep(0.05)
        with lock:
            running[part.conn] -= 1
        part.answer(200, body=b"ok")
    s = Setup(lab, handler, ours={MAX_STREAMS: 1})
    conn = s.conn2(H2P)
    s.ask(H2P, conn=conn)       # the settings are known from here on
    calls = [s.call(H2P, conn=conn) for _ in range(20)]
    equal([c.finish().status for c in calls], [200] * 20, "answers")
    check(most[0] <= 2, "streams at once on a connection", most[0])     # one may still be ending


@test("GOAWAY", limit=90)
def what_runs_survives_goaway_of_the_backend_and_new_ones_go_elsewhere(lab):
    go = threading.Event()

    def handler(part):
        if part.target == "/slow":
            part.head(200, how="chunked")
            part.data(b"first ")
            go.wait(10)
            part.data(b"last")
            part.end()
        else:
            part.answer(200, body=b"%d" % id(part.conn))
    for client in ("h1", "h2"):
        go.clear()
        pair = Pair(client, False, "h2")
        s = Setup(lab, handler, "--workers=1")
        slow = s.call(pair, "GET", "/slow")
        slow.some()
        first = s.b2.h2[0]
        first.f(GOAWAY, 0, 0, u32(max(first.streams)) + u32(NO_ERROR))
        time.sleep(0.1)
        for _ in range(3):
            check(s.ask(pair, "GET", "/new").body != b"%d" % id(first), "a new request on the connection that is going")
        go.set()
        a = slow.finish()
        equal((a.body, a.whole), (b"first last", True), "what ran")
        equal(len(s.b2.h2), 2, "connections")
        slow.leave()


@test("GOAWAY", limit=90)
def request_that_was_not_processed_is_sent_once_more(lab):
    """GOAWAY below its id, or REFUSED_STREAM: any method, since nothing was done."""
    tries = []

    def handler(part):
        tries.append(part.target)
        if tries.count(part.target) == 1 and part.target != "/warm":
            if part.target == "/goaway":
                part.conn.f(GOAWAY, 0, 0, u32(part.stream.id - 2 if part.stream.id > 1 else 0) + u32(NO_ERROR))
                part.conn.close()
            else:
                part.stream.reset(REFUSED)
            return
        part.answer(200, body=part.body())
    for client in ("h1", "h2"):
        pair = Pair(client, False, "h2")
        for what in ("/refused", "/goaway"):
            tries.clear()
            s = Setup(lab, handler)
            s.ask(pair, "GET", "/warm")
            a = s.ask(pair, "POST", what, body=b"once")
            equal((a.status, a.body, tries.count(what)), (200, b"once", 2), f"{pair}{what}: answer, tries")


@test("GOAWAY")
def request_that_may_have_been_seen_is_not_repeated(lab):
    tries = []

    def handler(part):
        tries.append(part.target)
        part.stream.reset(CANCEL)
    s = Setup(lab, handler)
    for client in ("h1", "h2"):
        tries.clear()
        a = s.ask(Pair(client, False, "h2"), "POST", "/", body=b"once")
        equal((a.status, len(tries)), (502, 1), f"{client}: status, tries")


@test("BACKEND-NOT-H2")
def backend_that_is_not_http_2_is_502_and_a_silent_one_504(lab):
    def garbage(conn):
        conn.more()
        conn.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        conn.ending(3)

    def silent(conn):
        conn.ending(20)

    def gone(conn):
        conn.more()
    for script, status in ((garbage, 502), (silent, 504), (gone, 502)):
        b = lab.backend(script)
        gw = lab.gateway("--connect-timeout=1s", routes={"sb1": h2c(b)})
        r = gw.client().ask("GET", "/sandboxes/sb1/port/3000/")
        equal(r.status, status, script.__name__)


@test("POOL")
def streams_share_a_backend_connection(lab):
    def handler(part):
        time.sleep(0.05)
        part.answer(200, body=b"ok")
    s = Setup(lab, handler, "--workers=1")
    s.ask(H2P)
    conn = s.conn2(H2P)
    calls = [s.call(H2P, conn=conn) for _ in range(40)]
    equal([c.finish().status for c in calls], [200] * 40, "answers")
    equal(len(s.b2.h2), 1, "connections to the backend")


@test("POOL")
def reset_of_one_stream_is_no_other_ones_trouble(lab):
    def handler(part):
        part.head(200, how="chunked")
        for i in range(30):
            part.data(b"%02d" % i)
            time.sleep(0.01)
        part.end()
    s = Setup(lab, handler, "--workers=1")
    conn = s.conn2(H2P)
    calls = [s.call(H2P, conn=conn) for _ in range(10)]
    for c in calls:
        c.head()
    for c in calls[::2]:
        c.reset()
    for c in calls[1::2]:
        a = c.finish()
        equal((a.body, a.whole), (b"".join(b"%02d" % i for i in range(30)), True), "one that goes on")
    equal(len(s.b2.h2), 1, "connections to the backend")


@test("N2", limit=120)
def windows_of_the_connection_come_back_from_streams_that_were_given_up(lab):
    """More than any window holds, in streams that are reset with bytes on the way: in both roles."""
    def handler(part):
        if part.target == "/up":
            part.gone(10)
        elif part.target == "/down":
            part.head(200, how="chunked")
            part.data(bytes(60_000))
            part.gone(10)
        else:
            part.answer(200, body=part.body())
    s = Setup(lab, handler, "--workers=1")
    s.ask(H2P, body=b"")
    for pair in (H2P, H1):
        conn = s.conn2(pair)
        for rest in ("/up", "/down"):
            for _ in range(100):
                c = s.call(pair, "POST", rest, length="chunked", conn=conn)
                c.data(bytes(60_000), patience=5)
                if rest == "/down":
                    c.some()
                c.reset()
        conn.ping()
        body = random.randbytes(2 << 20)
        a = s.ask(pair, "POST", "/", body=body, conn=conn)
        equal((a.status, len(a.body), a.body == body), (200, len(body), True), f"{pair}: afterwards")
    equal(len(s.b2.h2), 1, "HTTP/2 connections to the backend")


# ---- H2-05

@test("H2-05")
def odd_but_legal_frames_are_taken(lab):
    s = Setup(lab, says_ok)
    conn = s.conn2(H1)
    for sid in (3, 5, 7, 9, 11):
        conn.f(PRIORITY, 0, sid, u32(0) + b"\x10")
    a = conn.open(head_of(s, H1), end=True, sid=13)
    equal(a.read(), b"ok", "after PRIORITY for idle ids")
    conn.f(WINUP, 0, 13, u32(10)).f(RST, 0, 13, u32(CANCEL)).f(0x42, 0xff, 0, b"??").f(0x42, 0, 13, b"??").f(PING, ACK, 0, b"12345678")
    b = conn.open(head_of(s, H1, "POST"))
    conn.f(DATA, PADDED, b.id, b"\x05" + bytes(5)).f(DATA, PADDED | END_STREAM, b.id, b"\x03hi" + bytes(3))
    equal(b.read(), b"ok", "after padding only")
    equal(s.b1.requests[-1].body, b"hi", "the body without padding")
    fine(s, conn)
    conn = s.conn2(H1)
    equal(conn.open(head_of(s, H1), end=True, sid=5).read(), b"ok", "stream 5 first")
    conn.head(3, head_of(s, H1), True)
    check(conn.ending() != "late" and (conn.goaway is None or conn.goaway[1] == PROTOCOL), "stream 3 after 5:", conn.goaway)
    fine(s, s.conn2(H1))


# ---- H2-07

@over_pairs("H2-07", which=[p for p in PAIRS if p.client == "h2"])
def only_the_stopped_stream_pauses(lab, each):
    def handler(part):
        part.body()
        if part.target == "/big":
            part.head(200, length=n)
            for _ in range(n // 65536):
                part.data(bytes(65536))
            part.end()
        else:
            part.answer(200, body=b"x" * 50_000)
    n = 8 << 20
    s = Setup(lab, handler)

    def do(pair):
        conn = s.conn2(pair)
        big = s.call(pair, "GET", "/big", conn=conn)
        big.head()
        time.sleep(0.2)
        for _ in range(20):
            equal(len(s.ask(pair, "GET", "/small", conn=conn).body), 50_000, "beside it")
        got = 0
        while (data := big.stream.take()):
            got += len(data)
        equal((got, big.stream.whole), (n, True), "the stopped one, read on")
    each(do)


@over_pairs("STR-01", which=[p for p in PAIRS if "h2" in (p.client, p.backend)], limit=180)
def event_arrives_at_once_over_http_2(lab, each):
    sent = []

    def handler(part):
        part.head(200, "Content-Type: text/event-stream", how="chunked")
        for i in range(20):
            sent.append(time.monotonic())
            part.data(b"data: %033d\n" % i)
            time.sleep(0.02)
        part.end()
    s = Setup(lab, handler)

    def do(pair):
        def worst():
            sent.clear()
            seen, got = [], b""
            c = s.call(pair)
            for i in range(20):
                while b"%033d\n" % i not in got:
                    c.some()
                    got += c.rx()
                seen.append(time.monotonic())
            c.leave()
            return sorted(b - a for a, b in zip(sent, seen))[-2]
        soon(worst, 0.02 * lab.slow, f"delay of an event, {pair}")
    each(do)


# ---- limits and deadlines

@test("LIMIT-HEAD", limit=90)
def head_passes_up_to_the_limit_and_is_431_above(lab):
    def handler(part):
        part.body()
        seen.append(len(part.get("x-big", "")))
        part.answer(200, body=b"ok")
    seen = []
    s = Setup(lab, handler, "--max-head-bytes=300KiB")
    for pair in BOTH:
        conn = s.conn2(pair)
        equal(conn.peer.get(MAX_LIST), 300 << 10, "SETTINGS_MAX_HEADER_LIST_SIZE")
        fields = [(f"x-{i}", "v" * 30_000) for i in range(8)] + [("x-big", "w" * 40_000)]
        stream = conn.open(head_of(s, pair, "GET", "/", *fields), end=True)
        equal((stream.read(), seen.pop()), (b"ok", 40_000), f"{pair}: 280 KiB of head")
        stream = conn.open(head_of(s, pair, "GET", "/", *fields, ("x-more", "v" * 40_000)), end=True)
        equal(dict(stream.next_head(0))[":status"], "431", f"{pair}: above the limit")
        fine_after = s.ask(pair, conn=conn)
        equal(fine_after.status, 200, "the next on the connection")
        check(len(seen) == 1, "heads at the backend", seen)
        seen.clear()


@test("LIMIT-HEAD")
def field_above_64_kib_ends_the_connection(lab):
    s = Setup(lab, says_ok)
    conn = s.conn2(H1)
    with contextlib.suppress(Ended):
        conn.open(head_of(s, H1, "GET", "/", ("x-a", "q" * 140_000)), end=True)
    check(conn.ending() != "late", "the connection goes on")
    check(conn.goaway, "no GOAWAY")
    equal(s.b1.requests, [], "requests at the backend")


@test("LIMIT-HEAD")
def answer_head_above_the_limit_is_502(lab):
    def handler(part):
        part.answer(200, *[f"X-{i}: {'v' * 20_000}" for i in range(12)], body=b"ok")
    s = Setup(lab, handler, "--max-head-bytes=64KiB")
    for pair in PAIRS:
        equal(s.ask(pair).status, 502, f"{pair}: status")


@test("DEADLINE")
def head_that_does_not_come_has_a_deadline(lab):
    s = Setup(lab, says_ok, "--head-timeout=1s", "--keep-alive-timeout=2s")
    conn = s.conn2(H1)
    conn.f(HEADERS, 0, 1, b"\x82\x86")
    check(conn.ending(6) != "late" or any(f[0] == RST for f in conn.seen), "the head may take for ever")
    c = s.gw.client()
    c.send(b"PRI * HTTP/2.0\r\n")
    check(c.ending(6) != "late", "the preface may take for ever")


@test("DEADLINE")
def idle_connection_is_told_goodbye(lab):
    s = Setup(lab, says_ok, "--keep-alive-timeout=1s")
    conn = s.conn2(H1)
    fine(s, conn)
    check(conn.ending(6) == "fin", "ends", conn.dead)
    equal(conn.goaway and conn.goaway[1], NO_ERROR, "GOAWAY")


@test("DEADLINE")
def quiet_body_and_late_answer_have_deadlines_per_stream(lab):
    def handler(part):
        if part.target == "/late":
            part.gone(10)
        elif part.target == "/quiet":
            part.head(200, how="chunked")
            part.data(b"first")
            part.gone(10)
        else:
            says_ok(part)
    s = Setup(lab, handler, "--response-timeout=700ms", "--idle-timeout=700ms")
    for pair in BOTH:
        conn = s.conn2(pair)
        late, quiet = s.call(pair, "GET", "/late", conn=conn), s.call(pair, "GET", "/quiet", conn=conn)
        equal(late.finish().status, 504, f"{pair}: no answer")
        a = quiet.finish()
        equal((a.body, a.whole), (b"first", False), f"{pair}: a body that stands still")
        fine(s, conn, pair)


# ---- WS-04

@test("WS-04", "sn-efdc3d14")
def extended_connect_is_announced_and_made_a_handshake(lab):
    keys = []

    def handler(part):
        keys.append((part.method, part.get("sec-websocket-key"), part.get("connection", "").lower(), part.get("upgrade")))
        part.switch()
        part.fin()
    s = Setup(lab, handler)
    for tls in (False, True):
        conn = s.conn2(Pair("h2", tls, "h1"))
        equal(conn.peer.get(EXTENDED), 1, "SETTINGS_ENABLE_CONNECT_PROTOCOL")
    for _ in range(2):
        c = s.socket(H1)
        equal(c.head().status, 200, "status")
    equal([k[::2] for k in keys], [("GET", "upgrade")] * 2, "handshakes")
    check(all(len(k[1]) == 24 and k[1].endswith("==") for k in keys) and keys[0][1] != keys[1][1], "keys", keys)
    equal(keys[0][3].lower(), "websocket", "Upgrade")


@test("WS-04", "sn-efdc3d14")
def wrong_accept_value_is_502(lab):
    values = ["s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", None, "x"]

    def handler(part):
        accept = values[0]
        part.is_over = True
        part.conn.send("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       + (f"Sec-WebSocket-Accept: {accept}\r\n" if accept else "") + "\r\n")
        part.gone(3)
    s = Setup(lab, handler)
    while values:
        equal(s.socket(H1).head().status, 502, f"status for {values[0]}")
        values.pop(0)


@test("WS-04")
def extended_connect_for_anything_else_is_501(lab):
    s = Setup(lab, says_ok)
    conn = s.conn2(H1)
    stream = conn.open([(":method", "CONNECT"), (":protocol", "connect-udp"), *head_of(s, H1)[1:]])
    equal(dict(stream.next_head(0))[":status"], "501", "status")
    fine(s, conn)
    equal(len(s.b1.requests), 1, "requests at the backend")


@test("WS-04")
def upgrade_over_cleartext_http_1_never_makes_http_2(lab):
    s = Setup(lab, says_ok)
    r = s.gw.client().ask("GET", s.path(H1, "/"), "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    equal((r.status, r.body), (200, b"ok"), "answer")
    head = s.b1.requests[-1]
    equal((head.get("upgrade"), head.get("http2-settings")), (None, None), "what reached the backend")


# ---- what is seen of it

@test("LOG")
def access_line_says_what_was_spoken(lab):
    s = Setup(lab, says_ok)
    for pair in PAIRS:
        s.ask(pair, "GET", f"/log-{pair.client}-{pair.tls}-{pair.backend}")
    lines = s.gw.access(n=8)
    equal(sorted({line.get("protocol") for line in lines}, key=str), ["HTTP/1.1", "HTTP/2.0"], "protocols")
