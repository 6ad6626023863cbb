"""Attacks over HTTP/2 and TLS, from either side: what a hostile client makes of a request, what a hostile sandbox makes of an
answer, and what either can make the gateway hold or keep."""
import contextlib
import threading

import hpack

from h2wire import (CONT, DATA, END_HEADERS, END_STREAM, HEADERS, MAX_STREAMS, PREFACE, PUSH, SETTINGS, WINDOW, WINUP, frame,
                    settings, u32)
from lib import P, Ended, Failed, Late, check, equal, secure, test, wait_for
from pairs import Pair, Setup, TlsClient, h2c
from signed import RING, Proof

H1, H2P, H1TO2 = Pair("h2", False, "h1"), Pair("h2", False, "h2"), Pair("h1", False, "h2")
JUNK = 0x42             # a type of frame that nobody knows, and everybody has to pass over
KIB = 1 << 10
TOKEN = "s3cret-t0ken"


def says_ok(part):
    part.body()
    part.answer(200, body=b"ok")


def head_of(s, pair, method="GET", rest="/", *more):
    return [(":method", method), (":scheme", "http"), (":path", s.path(pair, rest)), (":authority", "gw.test"), *more]


def status_of(stream):
    """The status, or None for a stream that was reset."""
    with contextlib.suppress(Ended):
        return int(dict(stream.next_head(0))[":status"])
    return None


@contextlib.contextmanager
def named(what):
    try:
        yield
    except (Failed, Ended, Late) as e:
        raise Failed(f"{what}: {type(e).__name__} {e}").with_traceback(e.__traceback__) from None


# ---- requests

@test("H2-01", limit=90)
def line_end_or_nul_anywhere_in_a_head_or_trailer_is_refused(lab):
    s = Setup(lab, says_ok)
    for pair in (H1, H2P):
        conn = s.conn2(pair)
        ok = dict(head_of(s, pair))
        for c in "\r\n\0":
            for name in ok:
                with named(f"{pair}: {c!r} in {name}"):
                    bad = list({**ok, name: ok[name][:2] + c + ok[name][2:]}.items())
                    check(status_of(conn.open(bad, end=True)) in (None, 400), "passed")
            for field in (("x-a" + c, "b"), ("x-a", "a" + c + "b"), ("cookie", "a=b" + c)):
                with named(f"{pair}: {field!r}"):
                    check(status_of(conn.open([*ok.items(), field], end=True)) in (None, 400), "passed")
                    up = conn.open(head_of(s, pair, "POST"))
                    with contextlib.suppress(Ended):
                        up.send(b"abc").head([field], end=True)
                    check(status_of(up) in (None, 400), "passed as a trailer")
        equal(s.ask(pair, conn=conn).body, b"ok", "an exchange beside them")
    check(not any(r.whole and r.body for r in s.b1.requests), "a whole body at the backend")


@test("H2-01", limit=90)
def lengths_that_are_none_are_refused(lab):
    s = Setup(lab, says_ok)
    for pair in (H1, H2P):
        conn = s.conn2(pair)
        for value in ("+5", "0x5", " 5", "5 ", "5,5", "5;", "", "-0", "99999999999999999999", "5\x0b"):
            stream = conn.open(head_of(s, pair, "POST", "/", ("content-length", value)))
            with named(f"{pair}: {value!r}"):
                with contextlib.suppress(Ended):
                    stream.send(b"12345", end=True)
                check(status_of(stream) in (None, 400), "passed")
        with named(f"{pair}: a length and trailers without a body"):
            stream = conn.open(head_of(s, pair, "POST", "/", ("content-length", "10")))
            stream.head([("x-t", "1")], end=True)
            check(status_of(stream) != 200, "passed")
        equal(s.ask(pair, conn=conn).body, b"ok", "an exchange beside them")


OURS = [("opensandbox-secure-access", TOKEN), ("opensandbox-ingress-to", "y"), ("open-sandbox-ingress", "z"), ("open-sandbox-api-key", "k"),
        ("opensandbox-access-renew", "r"), ("x-fast-sandbox-route-credential", "c"), ("x-forwarded-for", "6.6.6.6"), ("x-forwarded-host", "e"),
        ("x-forwarded-proto", "e"), ("forwarded", "for=6.6.6.6"), ("x-real-ip", "6.6.6.6"), ("host", "e"), ("expect", "100-continue"),
        ("proxy-authorization", "p"), ("trailer", "x-t"), ("http2-settings", "AAAA")]


@test("H2-01", "PH-07", "SR-06")
def trailers_bring_nothing_that_routes_frames_or_opens(lab):
    seen = []

    def handler(part):
        part.body()
        seen.append(part.trailers)
        part.answer(200, body=b"ok")
    s = Setup(lab, handler)
    for pair in (H1, H2P):
        stream = s.conn2(pair).open(head_of(s, pair, "POST"))
        stream.send(b"abc").head([*OURS, ("x-ok", "1"), ("authorization", "of the application")], end=True)
        equal(status_of(stream), 200, "status")
        equal(seen.pop(), [("x-ok", "1"), ("authorization", "of the application")], f"{pair}: trailers at the backend")


@test("PH-07", "SR-03", "SR-06")
def access_is_asked_for_over_http_2_too_and_stops_at_the_gateway(lab):
    s = Setup(lab, says_ok, f"--secure-access-keys={RING}", "--deny-ports=4000")
    s.gw.reload({"sb1": secure(s.b1, TOKEN), "sb2": {**h2c(s.b2), "secureAccessToken": TOKEN}})
    name = "opensandbox-secure-access"
    for pair in (H1, H2P):
        conn, sandbox = s.conn2(pair), "sb1" if pair.backend == "h1" else "sb2"
        for more, wanted in (((), 401), (((name, "x"),), 401), (((name, "x"), (name, TOKEN)), 401), (((name, TOKEN.upper()),), 401),
                             ((("cookie", f"{name}={TOKEN}"),), 401), (((name, TOKEN),), 200), (((name, TOKEN), (name, "x")), 200)):
            with named(f"{pair}: {more}"):
                equal(status_of(conn.open(head_of(s, pair, "GET", "/", *more), end=True)), wanted, "status")
        up = conn.open(head_of(s, pair, "POST"))
        with contextlib.suppress(Ended):
            up.send(b"x").head([(name, TOKEN)], end=True)
        equal(status_of(up), 401, "with the token among the trailers")
        equal(status_of(conn.open([(":method", "CONNECT"), (":protocol", "websocket"), *head_of(s, pair)[1:]])), 401, "a tunnel")
        proof = Proof(sandbox)
        for path, wanted in ((proof.path + "/", 200), (Proof(sandbox).forged().path + "/", 401), (f"/sandboxes/{sandbox}/port/4000/", 403),
                             (f"/sandboxes/{sandbox}/port/%34000/", 400), (f"/sandboxes/{sandbox}/port/04000/", 400)):
            head = [(k, path if k == ":path" else v) for k, v in head_of(s, pair)]
            equal(status_of(conn.open(head, end=True)), wanted, path)
        told = b"".join(r.raw for r in s.b1.requests).decode() + str([x.heads for h2 in s.b2.h2 for x in h2.streams.values()])
        for secret in (TOKEN, proof.sig, name):
            check(secret not in told and secret not in told.lower() and secret not in s.gw.stdout(), secret, "got through")


# ---- answers

def block(*fields):
    """Leaves the table as it is, so that others may go on with it."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*f) for f in fields], huffman=False)


def pieces(part, data):
    out = frame(HEADERS, 0, part.stream.id, data[:16000])
    for at in range(16000, len(data), 16000):
        out += frame(CONT, END_HEADERS if at + 16000 >= len(data) else 0, part.stream.id, data[at:at + 16000])
    part.conn.offer(out)


def bomb(enc):
    """A byte for each 4 KB: the field is in the table, and named again and again."""
    return enc.encode([OK, ("x-a", "v" * 3900)], huffman=False) + enc.encode([("x-a", "v" * 3900)]) * 60000


OK = (":status", "200")
BAD_HEADS = {
    "connection": [OK, ("connection", "close")], "coding": [OK, ("transfer-encoding", "chunked")], "upgrade": [OK, ("upgrade", "h2c")],
    "upper case": [OK, ("X-A", "1")], "CRLF": [OK, ("x-a", "b\r\nset-cookie: c=d")], "LF": [OK, ("x-a", "b\nc")], "NUL": [OK, ("x-a", "b\0")],
    "blank at the start": [OK, ("x-a", " b")], ":path": [OK, (":path", "/")], "blank in a name": [OK, ("x a", "b")], "no name": [OK, ("", "b")],
    "no status": [("x-a", "b")], "two": [OK, OK], "099": [(":status", "099")], "0200": [(":status", "0200")], "+20": [(":status", "+20")],
    "101": [(":status", "101")], "103 that ends": [(":status", "103")], "two lengths": [OK, ("content-length", "5"), ("content-length", "5")],
    "a list of lengths": [OK, ("content-length", "5, 6")], "length without body": [OK, ("content-length", "10")],
}
BAD_ACTS = {
    "body before the head": lambda part: part.conn.f(DATA, END_STREAM, part.stream.id, b"hello"),
    "body after a 103": lambda part: part.interim(103) or part.conn.f(DATA, END_STREAM, part.stream.id, b"hello"),
    "push": lambda part: part.conn.f(PUSH, END_HEADERS, part.stream.id, u32(2) + b"\x82\x86"),
    "a stream of its own": lambda part: part.conn.f(HEADERS, END_HEADERS | END_STREAM, 2, b"\x88"),
    "a stream nobody opened": lambda part: part.conn.f(HEADERS, END_HEADERS | END_STREAM, part.stream.id + 100, b"\x88"),
    "a frame too large": lambda part: part.conn.send(frame(DATA, 0, part.stream.id, bytes(20000))),
    "103s without end": lambda part: part.conn.offer(frame(HEADERS, END_HEADERS, part.stream.id, block((":status", "103"), ("link", "x"))) * 30000),
    "1.8 MB of head": lambda part: pieces(part, block(OK, *((f"x-{i}", "v" * 30000) for i in range(60)))),
    "20 000 fields": lambda part: pieces(part, block(OK, *[("a", "b")] * 20000)),
    "a bomb": lambda part: pieces(part, bomb(part.conn.enc)),
    "CONTINUATION of a byte": lambda part: part.conn.offer(frame(HEADERS, 0, part.stream.id, b"\x88") + frame(CONT, 0, part.stream.id, b"\x88") * 9000),
}


@test("H2-01", "H2-03", limit=120)
def answer_that_is_none_is_502_on_either_side(lab):
    act = [None]

    def handler(part):
        if part.target == "/ok":
            says_ok(part)
        else:
            with contextlib.suppress(Ended, Late):
                act[0](part)
            part.stream.over_within(3)
    s = Setup(lab, handler, "--max-head-bytes=256KiB")
    before = None
    for pair in (H1TO2, H2P):
        acts = {**{k: lambda part, f=f: part.conn.f(HEADERS, END_HEADERS | END_STREAM, part.stream.id, block(*f)) for k, f in BAD_HEADS.items()}, **BAD_ACTS}
        for name, do in acts.items():
            act[0] = do
            with named(f"{pair}: {name}"):
                equal(s.ask(pair).status, 502, "status")
                wait_for(lambda: s.ask(pair, "GET", "/ok").status == 200, "the next request to be served", 4)
            before = before or s.gw.rss()
    check(s.gw.rss() - before < (16 << 20) * lab.fat, "grown by", (s.gw.rss() - before) >> 10, "KiB")


BAD_ENDS = {
    "too short": ([OK, ("content-length", "10")], [(DATA, END_STREAM, b"hello")]),
    "too long": ([OK, ("content-length", "3")], [(DATA, END_STREAM, b"hello")]),
    "a status among the trailers": ([OK], [(DATA, 0, b"hello"), (HEADERS, END_HEADERS | END_STREAM, block((":status", "500")))]),
    "a coding among the trailers": ([OK], [(DATA, 0, b"hello"), (HEADERS, END_HEADERS | END_STREAM, block(("transfer-encoding", "chunked")))]),
    "a line end in a trailer": ([OK], [(DATA, 0, b"hello"), (HEADERS, END_HEADERS | END_STREAM, block(("x-t", "a\r\nb: c")))]),
    "trailers that do not end": ([OK], [(DATA, 0, b"hello"), (HEADERS, END_HEADERS, block(("x-t", "1")))]),
}


@test("H2-01", "H1-03")
def answer_with_a_false_end_never_looks_whole(lab):
    frames = [None]

    def handler(part):
        head, rest = frames[0]
        part.conn.f(HEADERS, END_HEADERS, part.stream.id, block(*head))
        for kind, flags, payload in rest:
            part.conn.f(kind, flags, part.stream.id, payload)
    s = Setup(lab, handler)
    for pair in (H1TO2, H2P):
        for name, said in BAD_ENDS.items():
            frames[0] = said
            with named(f"{pair}: {name}"):
                a = s.ask(pair)
                check(a.status == 502 or not a.whole, "it looks whole:", a.status, a.body)
                check("b" not in dict(a.trailers), "trailers", a.trailers)


# ---- what the gateway can be made to hold

def flood(conn, streams, data, junk, rounds):
    """In each round a frame of data for each stream, and so much behind it that the rest of a chunk is taken."""
    sent, noise = 0, b"".join(frame(JUNK, 0, 0, bytes(min(16384, junk - at))) for at in range(0, junk, 16384))
    for _ in range(rounds):
        for stream in streams:
            conn.send(frame(DATA, 0, stream.id, data) + noise)
            sent += len(data)
    conn.ping()
    return sent


@test("STR-04", limit=120)
def body_in_tiny_pieces_holds_no_chunk_for_each(lab):
    """A byte of body for each 16 KiB that are read, while nobody takes it: it must not keep the 16 KiB."""
    go = threading.Event()

    def handler(part):
        if part.target == "/ok":
            says_ok(part)
        else:
            go.wait(60)
    s = Setup(lab, handler, "--workers=1")
    for size, junk, rounds, bulk in ((1, 16300, 800, False), (512, 15700, 100, False), (512, 65000, 100, True)):
        with named(f"{size} bytes of {junk}{' in bulk' if bulk else ''}"):
            conn = s.conn2(H1)
            if bulk:
                conn.open(head_of(s, H1, "POST", "/ok")).send(bytes(300_000))
            tunnels = [conn.open([(":method", "CONNECT"), (":protocol", "websocket"), *head_of(s, H1, "GET", f"/{i}")[1:]]) for i in range(4)]
            conn.ping()
            before = s.gw.rss()
            sent = flood(conn, tunnels, bytes(size), junk, rounds)
            grown = s.gw.rss() - before
            check(grown < (20 * sent + 2048 * KIB) * lab.fat, sent >> 10, "KiB hold", grown >> 10, "KiB")
            conn.close()
    go.set()


@test("STR-04", limit=120)
def answer_in_tiny_pieces_to_a_slow_reader_holds_no_chunk_for_each(lab):
    """The same from the other side: a sandbox, and a client that gives no window."""
    def handler(part):
        if part.target == "/ok":
            says_ok(part)
            return
        part.stream.head([OK])
        with contextlib.suppress(Ended, Late):
            flood(part.conn, [part.stream], b"x", 16300, 800)
        done.append(True)
    done = []
    s = Setup(lab, handler, "--workers=1")
    conn = s.conn2(H2P, ours={WINDOW: 0})
    s.ask(H2P, "GET", "/ok")
    before = s.gw.rss()
    for i in range(4):
        conn.open(head_of(s, H2P, "GET", f"/{i}"), end=True)
    wait_for(lambda: len(done) == 4, "all to be sent", 60)
    grown = s.gw.rss() - before
    check(grown < 4096 * KIB * lab.fat, "3 KiB hold", grown >> 10, "KiB")


# ---- what the gateway can be made to keep

@test("POOL", "MAX-STREAMS")
def backend_that_takes_no_more_streams_is_left(lab):
    """It says so when its connection has just been used: who waits for room that never comes must not keep the descriptor."""
    def handler(part):
        part.body()
        part.conn.f(SETTINGS, 0, 0, settings({MAX_STREAMS: 0}))
        part.answer(200, body=b"ok")
    s = Setup(lab, handler, "--workers=1")
    for _ in range(10):
        equal(s.ask(H2P).status, 200, "status")
    wait_for(lambda: s.gw.metric("sallyport_backend_connections_h2") == 0, "no connection to the backend to be left", 5)


@test("DEADLINE", limit=90)
def client_that_reads_nothing_is_left(lab):
    """Its streams are cut at their deadlines, and what says so cannot leave: the connection has a deadline too."""
    def handler(part):
        part.head(200, how="chunked")
        with contextlib.suppress(Ended, Late, OSError):
            for _ in range(400):
                part.data(bytes(65536))
    s = Setup(lab, handler, "--workers=1", "--idle-timeout=1s", "--linger-timeout=1s", "--keep-alive-timeout=1s")
    for tls in (False, True):
        wire, enc = s.keep(TlsClient(s.tls_port, ("h2",), rcvbuf=4096)) if tls else s.gw.client(rcvbuf=4096), hpack.Encoder()
        wire.send(PREFACE + frame(SETTINGS, 0, 0, settings({WINDOW: 1 << 24})) + frame(WINUP, 0, 0, u32(1 << 28)) + b"".join(
            frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * i, enc.encode(head_of(s, H1))) for i in range(20)))
        wait_for(lambda: s.gw.metric("sallyport_exchanges") > 0, "the requests")
        wait_for(lambda: s.gw.metric("sallyport_client_connections") == 0, "the connection to be given up", 20)


@test("DEADLINE", "POOL", limit=90)
def backend_that_reads_nothing_is_left(lab):
    """The uploads to it have been given up by their clients; the RST_STREAMs that would say so cannot leave."""
    def script(conn):
        conn.exact(24)
        conn.send(frame(SETTINGS, 0, 0, settings({MAX_STREAMS: 1, WINDOW: 1 << 24})) + frame(WINUP, 0, 0, u32(1 << 24)))
        deaf.append(conn)
        over.wait(60)
    deaf, over = [], threading.Event()
    gw = lab.gateway("--workers=1", "--linger-timeout=1s", "--backend-idle-timeout=1s", routes={"sb1": h2c(lab.backend(script, rcvbuf=4096))})
    for _ in range(3):
        c = gw.client().send(f"POST {P}/x HTTP/1.1\r\nHost: a\r\nContent-Length: 90000000\r\n\r\n")
        c.sock.settimeout(0.5)
        with contextlib.suppress(OSError):
            for _ in range(400):
                c.sock.sendall(bytes(65536))
        c.rst()
    equal(len(deaf), 3, "connections to the backend")
    wait_for(lambda: gw.metric("sallyport_backend_connections_h2") == 0, "the connections to be given up", 20)
    over.set()
