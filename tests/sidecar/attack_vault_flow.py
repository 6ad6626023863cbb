"""What a workload or a hostile origin tries to get at a secret, to keep it in an answer, or to bring the worker down."""
import contextlib
import gzip
import random
import ssl
import threading
import time
import zlib

from bench import check, equal, test
from h2wire import DATA, END_HEADERS, END_STREAM, HEADERS, PUSH, frame, u32
from vaulted import BOTH, SECRET, Vaulted, binding, filled, injected, refused, vault
from webs import Said
from wire import Ended, Failed, Late, chunked, request, wait_for

UNAVAILABLE = "credential proxy unavailable"


def begin(b):
    b.worker = b.s.worker
    return b


def lives(b):
    """The worker that began is still there."""
    equal(b.s.worker, b.worker, "the worker")
    check(b.s.alive(), "the sidecar ended")


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:"))


def all_of(c, data, within=1.5):
    """Every byte that comes back for data, until nothing more does."""
    c.offer(data)
    with contextlib.suppress(Ended, Late):
        while True:
            c.more(within)
    return bytes(c.seen)


def readings(data):
    """The bytes as they are, and what a reader that looks for gzip or deflate in them finds."""
    yield data
    for at in range(len(data)):
        if data[at:at + 3] == b"\x1f\x8b\x08":
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj(31).decompress(data[at:])


def unsaid(data, *what, secret=SECRET):
    for r in readings(data):
        check(secret.encode() not in r, "the secret came back:", *what, r[:600])


class Stalled:
    """A handler that lets requests to /v1/slow wait until the test goes on."""

    def __init__(self):
        self.go = threading.Event()

    def __call__(self, q):
        if "/slow" in q.target:
            self.go.wait(120)
        return Said(200, body=b"x")


S = SECRET.encode()
Z = gzip.compress(S * 3)
KEPT = (b"content-encoding", b"trailer", b"upgrade", b"connection", b"te", b"transfer-encoding", b"content-length")  # as 14.2 has it
HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + S, b"HTTP/1.1 200 OK\r\n\r\n" + S, b"HTTP/1.0 200 OK\r\n\r\n" + S, S, S + b"\r\n\r\n",
    b"HTTP/0.9 200 OK\r\n\r\n" + S, b"HTTP/1.1 200 " + S + b"\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 204 X\r\nContent-Length: 20\r\n\r\n" + S,
    b"HTTP/1.1 304 X\r\nContent-Length: 20\r\n\r\n" + S, b"HTTP/1.1 205 X\r\nContent-Length: 20\r\n\r\n" + S, b"HTTP/1.1 199 X\r\n\r\n" + S,
    b"HTTP/1.1 103 X\r\nLink: " + S + b"\r\n\r\nHTTP/1.1 102 " + S + b"\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 0\r\nX: " + S + b"\r\n\r\n",
    b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + S, b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + S,
    b"HTTP/1.1 200 X\r\nX: a\r\n b" + S + b"\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 X\nX: " + S + b"\n\n", b"HTTP/1.1 200 X\r\nX : " + S + b"\r\n\r\n",
    b"HTTP/1.1 200 X\r\n" + S + b"\r\n\r\n", b"HTTP/1.1 200 X\r\nX: a\0" + S + b"\r\n\r\n", b"HTTP/1.1 200 X\r\nX: \t " + S + b" \t\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5;" + S + b"\r\nhello\r\n0;x=" + S + b"\r\nX: " + S + b"\r\n\r\n",
    b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n14\r\n" + S + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 200 X\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(Z), Z), b"HTTP/1.1 200 X\r\nTransfer-Encoding: gzip\r\n\r\n" + Z,
    b"HTTP/1.1 200 X\r\nTransfer-Encoding: identity\r\n\r\n" + S, b"HTTP/1.1 200 X\r\nContent-Length: 20, 20\r\n\r\n" + S,
    b"HTTP/1.1 206 X\r\nContent-Range: bytes 0-19/20\r\nContent-Length: 20\r\n\r\n" + S, b"HTTP/1.1 999 X\r\nContent-Length: 20\r\n\r\n" + S,
    b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n" + b"HTTP/1.1 200 X\r\nContent-Length: 20\r\n\r\n" + S,
    b"HTTP/1.1 100 X\r\n\r\n" * 50 + b"HTTP/1.1 200 X\r\nContent-Length: 20\r\n\r\n" + S,
] + [b"HTTP/1.1 200 X\r\n" + line + b"\r\nContent-Length: %d\r\n\r\n" % len(Z) + Z for line in (
    b"Content-Encoding: gzip", b"content-encoding: GZIP", b"Content-Encoding: \"gzip\"", b"Content-Encoding: gzip;q=1", b"Content-Encoding: identity, gzip",
    b"Content-Encoding: gzip, identity", b"Content-Encoding: , gzip ,", b"Content-Encoding:\x0bgzip", b"Content-Encoding: gzip,gzip", b"Content-Encoding: x-gzip",
    b"Content-Encoding: gzip\r\nContent-Encoding: identity", b"Content-Encoding: identity\r\nContent-Encoding: gzip", b"Content-Encoding: none, gzip",
    b"Content-Encoding: gzip\xc2\xa0", b"Content-Encoding: \tgzip\t", b"Content-Encoding:gzip", b"Content-Encoding: deflate", b"Content-Encoding: gzip gzip")]


@test("14.2", "VLT-06", limit=240)
def whatever_an_origin_says_in_http1_the_secret_is_not_in_it(lab):
    said = Said()
    b = begin(Vaulted(lab, alpn=("http/1.1",), handler=lambda q: said))
    asks = [request("GET", "/v1/x", host="api.test"), request("HEAD", "/other", host="api.test"),
            request("GET", "/v1/x", "Connection: upgrade", "Upgrade: x", host="api.test"),
            request("POST", "/v1/x", "Connection: upgrade", "Upgrade: x", host="api.test", body=b"abc"),
            request("GET", "/v1/x", "Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
                    host="api.test"), request("GET", "/v1/x", host="api.test", version="HTTP/1.0")]
    for raw in HEADS:
        for ask in asks:
            if b"101 X" in raw and b"websocket" in raw and b"websocket" in ask:
                continue  # frames are nobody's to read (14.2)
            said = Said(raw=raw, then="close")
            unsaid(all_of(b.h1(), ask, 0.3), raw, ask)
    lives(b)


@test("14.2", limit=240)
def mangled_answers_do_no_harm(lab):
    seed = random.randrange(1 << 32)
    r, said = random.Random(seed), Said()
    b = begin(Vaulted(lab, alpn=("http/1.1",), handler=lambda q: said))
    end = time.monotonic() + (120 if lab.long else 15)
    while time.monotonic() < end:
        raw = bytearray(r.choice(HEADS))
        for _ in range(r.randrange(1, 6)):
            at = r.randrange(len(raw))
            kind = r.randrange(4)
            if kind == 0:
                raw[at] = r.randrange(256)
            elif kind == 1:
                del raw[at:at + r.randrange(1, 9)]
            elif kind == 2:
                raw[at:at] = bytes(raw[at:at + r.randrange(1, 40)])
            else:
                raw[at:at] = r.choice([b"\r\n", b"0\r\n\r\n", b"HTTP/1.1 200 X\r\n", b"Content-Encoding: br\r\n", S, Z, b"\0", b"Transfer-Encoding: chunked\r\n"])
            raw = raw or bytearray(b"x")
        said = Said(raw=bytes(raw), then="close")
        got = all_of(b.h1(), request(r.choice(["GET", "HEAD"]), "/v1/x", host="api.test"), 0.1)
        heads, _, rest = got.rpartition(b"\r\n\r\n")
        kept = [v for v in heads.split(b"\r\n") if S in v.partition(b":")[2] and v.partition(b":")[0].lower() not in KEPT]
        check(not kept and S not in rest, "seed", seed, raw, got)
    lives(b)


# ---- HTTP/2 of the origin

def block(*pairs):
    """A header block that indexes nothing."""
    out = b""
    for n, v in pairs:
        n, v = n.encode(), v if isinstance(v, bytes) else v.encode()
        check(len(n) < 127 and len(v) < 127, "short ones only")
        out += b"\x10" + bytes([len(n)]) + n + bytes([len(v)]) + v
    return out


OK = block((":status", "200"))


def frames_of(sid):
    """Answers by the letter and against it, each with the secret in it somewhere."""
    h = lambda data, flags=END_HEADERS: frame(HEADERS, flags, sid, data)
    d = lambda data, flags=END_STREAM: frame(DATA, flags, sid, data)
    for status in ("204", "304", "205", "200"):
        yield h(block((":status", status), ("x-echo", S))) + d(S)
    yield h(block((":status", "103"), ("link", S))) + h(OK) + d(S)
    yield h(block((":status", "101"), ("x", S))) + d(S)
    yield h(block((":status", "200"), ("content-length", "0"))) + d(S)
    yield h(block((":status", "200"), ("content-length", "5"))) + d(S)
    yield h(block((":status", "200"), ("content-encoding", "gzip"))) + d(Z)
    yield h(block((":status", "200"), ("content-encoding", "identity"), ("content-encoding", "gzip"))) + d(Z)
    yield h(block((":status", "200"), ("content-encoding", "gzip"))) + h(block(("x-late", S)), END_HEADERS | END_STREAM)
    yield h(block((":status", "200"), ("content-encoding", "deflate"))) + d(Z)
    yield h(block((":status", "200"), ("transfer-encoding", "gzip"))) + d(Z)
    yield h(block((":status", "200"), ("X-Upper", S))) + d(S)
    yield h(OK) + d(b"", 0) * 50 + d(S)
    yield h(OK) + b"".join(d(S[i:i + 1], 0) for i in range(len(S))) + d(b"")
    yield h(OK) + d(S[:9], 0) + h(block(("x-late", S), ("content-encoding", "gzip")), END_HEADERS | END_STREAM)
    yield h(OK) + d(S[:9], 0) + h(block((":status", "200"), ("x", S)), END_HEADERS | END_STREAM)
    yield h(OK) + h(OK) + d(S)
    yield frame(PUSH, END_HEADERS, sid, u32(2) + block((":method", "GET"), (":path", "/" + SECRET), (":scheme", "https"), (":authority", "api.test"))) + h(OK) + d(S)
    yield frame(10, 0, sid, b"\0\0h3=\":443\"" + S) + frame(0xbe, 0, sid, S) + h(OK) + d(S)
    yield frame(7, 0, 0, u32(sid) + u32(0) + S) + h(OK) + d(S)
    yield d(S)
    yield h(OK, 0) + frame(9, 0, sid, b"") + frame(9, END_HEADERS, sid, block(("x", S))) + d(S)
    yield h(block(("x", S)))
    yield h(block((":status", "2000"))) + d(S)
    yield h(block((":status", "200"), (":status", "200"))) + d(S)


class Frames:
    """Plays bytes of frames in place of an answer."""

    def __init__(self):
        self.make = lambda sid: b""

    def __call__(self, q):
        if q.version == "HTTP/2":
            with contextlib.suppress(Exception):
                q.stream.conn.sock.sendall(self.make(q.stream.id))
        return None


def heard(c, method="GET", within=1.0):
    """What a client of HTTP/2 hears of one request, as one text."""
    s = c.open(method, "/v1/x")
    with contextlib.suppress(Ended, Late, Failed):
        s.over_within(within)
    return b"".join(n.encode() + v.encode("latin-1") + b"\n" for h in s.heads for n, v in h) + bytes(s.data)


@test("14.2", "14.4", "VLT-06", limit=240)
def whatever_an_origin_says_in_http2_the_secret_is_not_in_it(lab):
    frames, n = Frames(), len(list(frames_of(1)))
    b = begin(Vaulted(lab, handler=frames))
    for i in range(n):
        frames.make = lambda sid, i=i: list(frames_of(sid))[i]
        for method in ("GET", "HEAD"):
            unsaid(heard(b.h2(), method), "row", i, method)
            unsaid(all_of(b.h1(), request(method, "/v1/x", host="api.test"), 0.4), "row", i, method, "to HTTP/1.1")
    lives(b)


@test("14.2", limit=240)
def mangled_frames_do_no_harm(lab):
    seed = random.randrange(1 << 32)
    r, frames = random.Random(seed), Frames()
    b = begin(Vaulted(lab, handler=frames))

    def mangled(sid):
        raw = bytearray(r.choice(list(frames_of(sid))) + r.choice(list(frames_of(sid))))
        for _ in range(r.randrange(1, 5)):
            at = r.randrange(len(raw))
            if r.randrange(2):
                raw[at] = r.randrange(256)
            else:
                raw[at:at] = r.choice([frame(r.randrange(12), r.randrange(256), r.choice([0, sid, 2, sid + 2]), r.randbytes(r.randrange(20))), S, b"\0"])
        return bytes(raw)
    frames.make = mangled
    end = time.monotonic() + (120 if lab.long else 15)
    while time.monotonic() < end:
        got = heard(b.h2(), r.choice(["GET", "HEAD"]), 0.2) if r.randrange(2) else all_of(b.h1(), request("GET", "/v1/x", host="api.test"), 0.15)
        check(S not in got, "seed", seed, got)
    lives(b)


# ---- requests that are held, joined or long

@test("11", "12", limit=120)
def what_is_held_keeps_its_framing_whatever_stands_around_it(lab):
    for alpn in (BOTH, ("http/1.1",), ("h2",)):
        b = begin(Vaulted(lab, alpn=alpn, body=vault(filled("PH", "body", "header"), k=SECRET)))
        for c in (b.h1, b.h2):
            for fields in ([], ["Expect: 100-continue"], ["Upgrade: x", "Connection: upgrade"], ["X-A: PH"]):
                if c == b.h2 and "Upgrade" in repr(fields):
                    continue
                k = c()
                a = k.ask("POST", "/v1/x", "Content-Type: text/plain", *fields, body=[b"a", b"PH", b"b"], trailers=["X-Sum: 1", "Authorization: x"])
                q = b.api.last
                equal((a.status, q.body), (200, b"a" + S + b"b"), fields)
                equal(k.ask("GET", "/v1/x").status, 200, "the connection goes on")
        lives(b)


@test("12", "14.2", limit=120)
def long_fields_do_no_harm(lab):
    said = Said()
    for alpn in (BOTH, ("http/1.1",)):
        b = begin(Vaulted(lab, alpn=alpn, handler=lambda q: said, body=vault(filled("PH", "header", "query", "path"), k="1234")))
        for c in (b.h1, b.h2):
            for line in ("X-A: " + "PH" * 30000, "X-A: " + "PH" * 10000, "X-A: " + "a" * 60000):
                with contextlib.suppress(Ended):
                    check(c().ask("GET", "/v1/x", line).status in (200, 431), "an answer")
            for line in ("X-A: " + "1234" * 15000, "X-A: " + "1234" * 3000, "X-A: " + "1234" * 60000):
                said = Said(200, line, body=b"x", trailers=[line])
                with contextlib.suppress(Ended):
                    a = c().ask("GET", "/v1/x")
                    check("1234" not in (a.get("x-a") or ""), "it came back")
            said = Said()
            equal(c().ask("GET", "/v1/x").status, 200)
        lives(b)


# ---- what is never finished

@test("11", "B7", limit=180)
def placeholders_without_end_use_up_no_memory(lab):
    slow, value = Stalled(), "CANARY-" + "v" * 993
    b = begin(Vaulted(lab, alpn=("http/1.1",), handler=slow, body=vault(filled("PH", "header"), binding("plain", paths=("/plain",)), k=value)))
    before, cs, line = resident(b.worker), [b.h1() for _ in range(90)], "X-A: " + "PH" * 3500
    for c in cs:
        c.send(request("GET", "/v1/slow", line, host="api.test"))
    def refusals():
        out = []
        for c in cs:
            with contextlib.suppress(Late, Ended):
                c.more(0.001)
            if c.buf:
                out.append(c)
        return out
    end = time.monotonic() + 60
    while not (done := refusals()):
        check(time.monotonic() < end, "nobody was refused; grown by", (resident(b.worker) - before) >> 20)
    refused(done[0].response(), 503, UNAVAILABLE)
    cs.remove(done[0])
    wait_for(lambda: b.h1().ask("GET", "/plain").status == 200, "an answer where nothing is put together", 20)
    slow.go.set()
    for c in cs:
        with contextlib.suppress(Ended):
            check(c.response().status in (200, 503), "an answer")
    equal(b.h1().ask("GET", "/v1/x", "X-A: PH").status, 200, "afterwards")
    lives(b)


@test("11", "B7", limit=180)
def bodies_that_are_held_use_up_no_memory(lab):
    b = begin(Vaulted(lab, body=vault(filled("PH", "body"), k=SECRET)))
    before, cs, streams = resident(b.worker), [b.h2() for _ in range(4)], []
    for c in cs:
        for _ in range(40):
            with contextlib.suppress(Ended):
                s = c.open("POST", "/v1/x", "Content-Type: text/plain", end=False)
                streams.append(s)
                s.send(b"x" * 1000000, patience=20)
    refusals = [s for s in streams if s.heads]
    check(refusals and dict(refusals[0].heads[0])[":status"] == "503", "refused:", len(refusals))
    for s in streams:
        s.reset()
    equal(b.h2().ask("POST", "/v1/x", "Content-Type: text/plain", body=b"PH").status, 200, "afterwards")
    equal(b.api.last.body, S)
    lives(b)


@test("11", "B7", limit=180)
def a_held_body_of_single_bytes_costs_little(lab):
    b = begin(Vaulted(lab, body=vault(filled("PH", "body"), k=SECRET)))
    before, c = resident(b.worker), b.h2()
    for _ in range(8):
        s = c.open("POST", "/v1/x", "Content-Type: text/plain", end=False)
        for _ in range(20):
            c.h2.offer(b"".join(frame(DATA, 0, s.id, b"x") for _ in range(500)))
            time.sleep(0.02)
    time.sleep(2)
    k = b.h1()
    k.send(request("POST", "/v1/x", "Content-Type: text/plain", "Transfer-Encoding: chunked", host="api.test"))
    for _ in range(30):
        k.send(b"1\r\nx\r\n" * 1000)
    time.sleep(2)
    check(resident(b.worker) - before < (64 << 20) * lab.slow, "grown by", resident(b.worker) - before)
    lives(b)


@test("15", "B7", limit=180)
def names_and_handshakes_without_end_use_up_no_memory(lab):
    b = begin(Vaulted(lab, body=vault(binding(hosts=("*.api.test",)), k=SECRET), rules=None, zone={"*.api.test": {"A": ["198.51.100.10"]}}))
    before = resident(b.worker)
    for i in range(600):
        name = f"n{i}.api.test"
        b.w.resolve(name)
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
        s = b.w.connect("198.51.100.10", 443)
        inc, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        o = ctx.wrap_bio(inc, out, server_hostname=name)
        with contextlib.suppress(ssl.SSLWantReadError):
            o.do_handshake()
        s.sendall(out.read())
    check(resident(b.worker) - before < (128 << 20) * lab.slow, "grown by", resident(b.worker) - before)
    lives(b)


# ---- requests

def asks(r):
    """A request of HTTP/1 that is mangled here and there."""
    lines = [b"%s %s HTTP/1.1" % (r.choice([b"GET", b"POST", b"PUT", b"get", b"CONNECT"]), r.choice(
        [b"/v1/x", b"/v1/PH?a=PH", b"http://api.test/v1/x", b"https://evil.test/v1/x", b"*", b"/v1/%2e%2e/PH", b"//evil.test/v1/PH", b"https://api.test?PH"])),
        b"Host: " + r.choice([b"api.test", b"evil.test", b"api.test:443", b"API.TEST.", b"198.51.100.66"])]
    more = [b"Authorization: Basic UEg6UEg=", b"Authorization: Basic UEg6UEg", b"Authorization: PH", b"X: PH", b"Content-Length: 5", b"Transfer-Encoding: chunked",
            b"Content-Type: application/json", b"Content-Type: application/x-www-form-urlencoded", b"Connection: close, authorization", b"Expect: 100-continue",
            b"Upgrade: websocket", b"Connection: upgrade", b"Host: evil.test", b"TE: trailers", b"Cookie: a=PH; b=PHPH", b"Accept-Encoding: PH, gzip;q=PH, *", b"Range: bytes=0-1"]
    lines += r.sample(more, r.randrange(6))
    raw = bytearray(b"\r\n".join(lines) + b"\r\n\r\n" + r.choice([b"", b"hello", b"aPHb", b"4\r\naPHb\r\n0\r\nX: PH\r\nAuthorization: PH\r\n\r\n"]))
    for _ in range(r.choice([0, 0, 1, 2, 4])):
        at = r.randrange(len(raw))
        if r.randrange(2):
            raw[at] = r.randrange(256)
        else:
            raw[at:at] = r.choice([b"\r\n", b"\n", b"\0", b" ", b"PH", b":", b"Host: evil.test\r\n", b"\r\n\r\n"])
    return bytes(raw)


def ask_frames(r):
    """The same of HTTP/2."""
    fields = [(":method", r.choice(["GET", "POST", "CONNECT"])), (":scheme", r.choice(["https", "http"])),
              (":authority", r.choice(["api.test", "evil.test", "API.test.", "api.test:443"])), (":path", r.choice(["/v1/x", "/v1/PH?PH", "//evil.test", "*", ""]))]
    fields += r.sample([("authorization", "Basic UEg6UEg="), ("host", "evil.test"), ("host", "api.test"), ("x", "PH"), ("content-length", "4"), ("te", "trailers"),
                        ("content-type", "text/plain"), ("cookie", "a=PH"), ("cookie", "PH=b"), (":protocol", "websocket"), ("connection", "x")], r.randrange(4))
    if not r.randrange(4):
        r.shuffle(fields)
    raw = bytearray(frame(HEADERS, END_HEADERS | r.choice([0, 0, END_STREAM]), 1, block(*fields)))
    for _ in range(r.randrange(4)):
        raw += frame(DATA, r.choice([0, END_STREAM]), 1, r.choice([b"aPHb", b"", b"P", b"H"]))
    if not r.randrange(3):
        raw += frame(HEADERS, END_HEADERS | END_STREAM, 1, block(("authorization", "PH"), ("x", "PH")))
    for _ in range(r.choice([0, 0, 1, 3])):
        raw[r.randrange(len(raw))] = r.randrange(256)
    return bytes(raw)


@test("8", "VLT-01", "VLT-06", limit=240)
def mangled_requests_never_bring_the_secret_to_others(lab):
    seed = random.randrange(1 << 32)
    r = random.Random(seed)
    for how in (dict(body=vault(filled("PH", "body", "header", "query", "path", paths=("/*",), methods=("GET", "POST", "PUT"), schemes=["https", "http"]), k=SECRET)),
                dict(body=vault(binding(paths=("/*",), schemes=["https", "http"]), k=SECRET))):
        b, end = begin(Vaulted(lab, **how)), time.monotonic() + (60 if lab.long else 8)
        while time.monotonic() < end:
            kind = r.randrange(4)
            with contextlib.suppress(Ended, Late, OSError):
                if kind == 0:
                    c = b.h2()
                    c.h2.offer(ask_frames(r))
                    time.sleep(0.1)
                    c.close()
                else:
                    c = b.h1() if kind < 3 else b.plain(r.choice(["api.test", "evil.test"]))
                    got = all_of(c, asks(r), 0.1)
                    unsaid(got, "seed", seed)
        for web in b.clear.values():
            web.faults.clear()  # what does not look like HTTP is relayed there as it is, without a credential (8.1)
        for web in (*b.web.values(), *b.clear.values()):
            mine = web in (b.web["api.test"], b.clear["api.test"])
            if not mine:
                b.unseen(at=web)
            for q in web.asked:
                check(SECRET not in repr(q) or (q.authority or "").lower().rstrip(".").split(":")[0].rstrip(".") == "api.test", "seed", seed, q)
        lives(b)


@test("17", "20", limit=120)
def the_most_talkative_log_says_no_value(lab):
    b = begin(Vaulted(lab, body=vault(filled("PH-77", "body", "header", "query", "path", paths=("/*",)), k=SECRET), LOG_LEVEL="debug"))
    for c in b.clients():
        for ask in (lambda c: c.ask("POST", "/v1/PH-77?q=PH-77", "X: PH-77", "Authorization: Basic UEgtNzc6UEgtNzc=", "X-Request-Id: PH-77", "Content-Type: text/plain", body=b"PH-77"),
                    lambda c: c.ask("GET", "/v1/" + "%25" * 9 + "2f?PH-77"), lambda c: c.ask("GET", "/v1/x", host="evil.test"),
                    lambda c: c.ask("GET", "/v1/PH-77/..", "Cookie: PH-77")):
            with contextlib.suppress(Ended):
                ask(c)
    b.patch({"expectedRevision": 99, "credentials": {"replace": [{"name": "k", "source": {"value": SECRET + "2"}}]}}, 409)
    b.s.ask("POST", "/credential-vault", '{"credentials":[{"name":"' + SECRET + '","source":{"type":"inline","value":"' + SECRET)
    text = b.s.stdout() + b.s.stderr()
    check("injected" in text, "it talks")
    check(SECRET not in text and "PH-77" not in text.replace('"request_id":"PH-77"', ""), "in the log:", [line for line in text.splitlines() if SECRET in line or "PH-77" in line][:3])
