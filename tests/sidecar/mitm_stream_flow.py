"""Long, slow and cut bodies through interception: bytes go on as they come, a slow reader slows the writer, an end is told as it
was, and who leaves is noticed on the other side."""
import contextlib
import socket
import struct
import threading
import time

from bench import check, equal, test, wait_for
from vaulted import BOTH, SECRET, Vaulted, clean, every, injected
from webs import H2Answer, Said
from wire import Ended, Late, chunked, request


def rss(b):
    with open(f"/proc/{b.s.worker}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


class Body:
    """What comes of one answer's body, in whichever version."""

    def __init__(self, c, target="/v1/x", *fields):
        self.c = c
        if c.version == "h2":
            self.s = c.open("GET", target, *fields)
            self.head = dict(self.s.next_head(0, within=20))
        else:
            c.send(request("GET", target, *fields, host="api.test"))
            self.head = c.head()
            self.kind, self.left = self.head.framing(False)

    def piece(self, within=20):
        """Some bytes, or b"" at a proper end; Ended if it was cut."""
        if self.c.version == "h2":
            data = self.s.take(within=within)
            if not data and not self.s.ended:
                raise Ended(f"reset {self.s.rst}")
            return data
        self.c.patience = within
        if self.kind == "chunked":
            n = int(self.c.until(b"\r\n"), 16)
            if n == 0:
                self.c.until(b"\r\n")
                return b""
            data = self.c.exact(n + 2)
            return data[:-2]
        if not self.left:
            return b""
        if not self.c.buf:
            try:
                self.c.more()
            except Ended:
                if self.kind == "eof":
                    return b""
                raise
        data, self.c.buf = self.c.buf, b""
        self.left -= len(data) if self.left > 0 else 0
        return data

    def rest(self):
        return b"".join(iter(self.piece, b""))

    def leave(self):
        if self.c.version == "h2":
            self.s.reset()
        else:
            self.c.close()


# ---- as they come

@test("STR-01", "14.3", "23", limit=180)
def each_event_is_there_before_the_next_is_written(lab):
    """No clock: the origin writes on only after the client has the event before."""
    go = threading.Event()
    event = b"data: 0123456789012345678901234567890\n\n"
    def events():
        for i in range(15):
            check(go.wait(30), "the client has not got event", i)
            go.clear()
            yield event
    def handler(q):
        if "/eof" in q.target and q.version != "HTTP/2":
            q.conn.send(b"HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n")
            for e in events():
                q.conn.send(e)
            q.conn.sock.settimeout(5)
            with contextlib.suppress(OSError):
                q.conn.sock.unwrap()        # the end is said; without it this would be a cut
            return None
        return Said(200, *(["Content-Type: text/event-stream"] if "/sse" in q.target else []), body=events())
    for b, c in every(lab, handler=handler):
        for target in ("/v1/sse", "/v1/any", "/other/any") + (("/v1/eof",) if c.version == "h1" else ()):
            go.set()
            body = Body(c if target != "/v1/eof" else b.h1(), target)
            for _ in range(15):
                seen = b""
                while len(seen) < len(event):
                    seen += body.piece()
                equal(seen, event)
                go.set()
            equal(body.piece(), b"")
            go.clear()
        injected(b) if "/v1" in b.api.last.target else None


@test("STR-01", "14.2", limit=120)
def coded_events_come_one_by_one_too(lab):
    import zlib
    go = threading.Event()
    def handler(q):
        z = zlib.compressobj(wbits=31)
        def events():
            for i in range(10):
                check(go.wait(30), "the client has not got event", i)
                go.clear()
                yield z.compress(b"data: event %d %s\n\n" % (i, SECRET.encode())) + z.flush(zlib.Z_SYNC_FLUSH)
            yield z.flush()
        return Said(200, "Content-Type: text/event-stream", "Content-Encoding: gzip", body=events())
    b = Vaulted(lab, handler=handler)
    for c in b.clients():
        go.set()
        body, d, text = Body(c), zlib.decompressobj(wbits=31), b""
        for i in range(10):
            want = b"data: event %d %s\n\n" % (i, b"*" * len(SECRET))
            text = b""
            while len(text) < len(want):
                text += d.decompress(body.piece())
            equal(text, want)
            go.set()
        body.rest()
        go.clear()


# ---- ends

@test("STR-02", "14.3", "23", limit=240)
def the_tail_of_an_answer_arrives_whole_or_is_seen_as_cut(lab):
    n = 4 << 20
    data = (b"event " * (n // 6 + 1))[:n]
    for ending in ("whole", "cut", "length"):
        def script(q, ending=ending):
            if ending == "length":
                return Said(raw=b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (n + 1) + data, then="close")
            return Said(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(data, last=ending == "whole"), then="close")
        b = Vaulted(lab, handler=script, alpn=("http/1.1",))
        for i in range(100 if lab.long else 3):
            for make in (b.h1, lambda: b.h2(window=65535)):
                body, got, end = Body(make()), [], "whole"
                try:
                    while (part := body.piece()):
                        got.append(part)
                        if i % 2 and len(got) < 20:
                            time.sleep(0.005)
                except (Ended, Late) as e:
                    end = str(e)
                equal((ending, i, len(b"".join(got))), (ending, i, n))
                check((end == "whole") == (ending == "whole"), ending, body.c.version, end)


@test("STR-02", "14.2", limit=120)
def what_is_held_back_of_a_cut_answer_is_not_shown(lab):
    """An origin that ends in the middle of a secret: what could be its beginning is no part of what the client gets."""
    def script(q):
        return Said(200, body=[b"x" * 1000, SECRET[:12].encode()], then="cut")
    b = Vaulted(lab, handler=script, alpn=("h2",))
    for c in (b.h1(), b.h2()):
        body, got = Body(c), b""
        with contextlib.suppress(Ended):
            while (part := body.piece()):
                got += part
            check(False, "a clean end")
        check(got in (b"x" * 1000, b"x" * 1000 + SECRET[:12].encode()), got[-40:])


@test("STR-03", "14.3", limit=240)
def who_leaves_is_noticed_on_the_other_side(lab):
    gone = []
    def handler(q):
        s = getattr(q, "stream", None)
        try:
            if q.method == "POST":
                while s and s.take(within=30):
                    pass
                while not s:
                    q.conn.more(30)
                    q.conn.buf = b""
                check(s.rst is not None or s.conn.dead, "not cut")
                gone.append(q)
                return None
            if "/late" in q.target:
                if s:
                    wait_for(lambda: s.rst is not None or s.conn.dead, "a reset", 30)
                    s.over()
                q.conn.more(30)
            head = Said(200)
            if s:
                s.head([(":status", "200")])
            else:
                q.conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3000):
                if s:
                    s.over()
                    s.send(b"tick")
                else:
                    q.conn.send(chunked(b"tick", last=False))
                time.sleep(0.01)
            return head
        except (Ended, OSError):
            gone.append(q)
            raise
    for alpn in (("http/1.1",), ("h2",)):
        b = Vaulted(lab, handler=handler, alpn=alpn, eager=True)
        for make in (b.h1, b.h2):
            for how in ("late", "mid", "upload"):
                for leave in ("fin", "rst") if make == b.h1 else ("reset", "rst"):
                    before, asked = len(gone), len(b.api.asked)
                    c = make()
                    stream = None
                    if how == "upload":
                        if c.version == "h2":
                            stream = c.open("POST", "/v1/up", end=False)
                            stream.send(b"x" * 1000)
                        else:
                            c.send(request("POST", "/v1/up", "Content-Length: 100000", host="api.test") + b"x" * 1000)
                    elif c.version == "h2":
                        stream = c.open("GET", f"/v1/{how}")
                    else:
                        c.send(request("GET", f"/v1/{how}", host="api.test"))
                    if how == "mid":
                        if stream:
                            stream.next_head(0)
                            stream.take(8)
                        else:
                            c.until(b"tick")
                    wait_for(lambda: len(b.api.asked) > asked, "the request at the origin", 20)
                    if leave == "reset":
                        stream.reset()
                    elif leave == "fin":
                        c.close()
                    else:
                        with contextlib.suppress(OSError):
                            raw = c.sock
                            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            c.close() if c.version == "h2" else raw.close()
                    wait_for(lambda: len(gone) > before, f"origin {alpn}, {make.__name__}, {how}: {leave} is noticed", 20)


# ---- back-pressure

@test("STR-04", "14.3", "B6", limit=240)
def a_slow_reader_slows_the_writer(lab):
    sent = {}
    def handler(q):
        def pieces():
            piece = b"z" * 65536
            for _ in range(4000):       # 250 MiB
                yield piece
                sent[q.target] = sent.get(q.target, 0) + len(piece)
        return Said(200, body=pieces())
    for alpn in (("http/1.1",), ("h2",)):
        b = Vaulted(lab, handler=handler, alpn=alpn)
        sent.clear()
        bodies = [Body(make(), f"/v1/{i}") for i, make in enumerate([b.h1, lambda: b.h2(window=65535)] * 5)]
        before = rss(b)
        def still():
            one = dict(sent)
            time.sleep(0.5)
            return dict(sent) == one
        wait_for(still, "the writers stop", 60)
        grown = rss(b) - before
        check(lab.sanitizer or grown < 10 * 256, "grew by", grown, "kB")
        check(max(sent.values()) < 60 << 20, "written ahead", sent)
        fast = Body(b.h2(), "/v1/fast")        # another one keeps its speed meanwhile
        got = 0
        while got < 32 << 20:
            got += len(fast.piece())
        fast.leave()
        for body in bodies:
            body.leave()


@test("STR-04", limit=240)
def a_slow_origin_slows_the_uploader(lab):
    read = threading.Event()
    def handler(q):
        s = getattr(q, "stream", None)
        read.wait(120)
        n = 0
        if s:
            while (part := s.take(within=60)):
                n += len(part)
        else:
            end = b"" if q.has("content-length") else b"\r\n0\r\n\r\n"
            last = b""
            while n < total or not last.endswith(end):
                if not q.conn.buf:
                    q.conn.more(60)
                n += len(q.conn.buf)
                last, q.conn.buf = last[-8:] + q.conn.buf[-8:], b""
        return Said(200, body=b"%d" % n)
    total = 48 << 20
    for alpn in (("http/1.1",), ("h2",)):
        b = Vaulted(lab, handler=handler, alpn=alpn, eager=True)
        for make in (b.h1, b.h2):
            read.clear()
            before, c, done = rss(b), make(), []
            def push():
                if c.version == "h2":
                    s = c.open("POST", "/v1/x", end=False)
                    for _ in range(total >> 20):
                        s.send(bytes(1 << 20), patience=120)
                    s.send(b"", end=True)
                    done.append(H2Answer(s, 60).body)
                else:
                    c.sock.settimeout(120)
                    c.send(request("POST", "/v1/x", f"Content-Length: {total}", host="api.test"))
                    for _ in range(total >> 20):
                        c.send(bytes(1 << 20))
                    c.patience = 60
                    done.append(c.response().body)
            t = threading.Thread(target=push, daemon=True)
            t.start()
            time.sleep(1.5)
            check(not done, "all was taken")
            check(lab.sanitizer or rss(b) - before < 4096, alpn, c.version, "grew by", rss(b) - before, "kB")
            read.set()
            t.join(120)
            check(len(done) == 1 and total <= int(done[0]) < total * 1.1, "received, with what frames it:", done)


@test("STR-04", "15", limit=120)
def one_stream_that_stands_does_not_stop_its_neighbours(lab):
    def handler(q):
        return Said(200, body=[b"y" * 65536] * 30) if "/big" in q.target else Said(200, body=b"small")
    for alpn in (BOTH, ("h2",), ("http/1.1",)):
        b = Vaulted(lab, handler=handler, alpn=alpn)
        c = b.h2(window=65535)
        stands = [c.open("GET", "/v1/big") for _ in range(3)]
        for s in stands:
            s.next_head(0)
        for _ in range(20):
            equal(c.ask("GET", "/v1/small").body, b"small")
        for s in stands:
            equal(len(s.read(30)), 30 * 65536)


# ---- bit-exact

@test("STR-05", limit=120)
def ranges_digests_and_redirects_of_a_registry_pass_unchanged(lab):
    import hashlib
    import random
    blob = random.Random(1).randbytes(3 << 20)
    digest = "sha256:" + hashlib.sha256(blob).hexdigest()
    def handler(q):
        if "/go" in q.target:
            return Said(307, "Location: https://other.test/blob", f"Docker-Content-Digest: {digest}")
        if q.has("range"):
            first, last = (int(x) for x in q.get("range")[6:].split("-"))
            return Said(206, f"Content-Range: bytes {first}-{last}/{len(blob)}", f"Docker-Content-Digest: {digest}", body=blob[first:last + 1])
        return Said(200, f"Docker-Content-Digest: {digest}", "Content-Type: application/octet-stream", f"Content-Length: {len(blob)}",
                    body=b"" if q.method == "HEAD" else blob)
    for b, c in every(lab, handler=handler):
        a = c.ask("HEAD", "/v1/blob")
        equal((a.get("content-length"), a.get("docker-content-digest"), a.body), (str(len(blob)), digest, b""))
        whole = c.ask("GET", "/v1/blob")
        equal((whole.body == blob, whole.get("content-length"), whole.get("docker-content-digest")), (True, str(len(blob)), digest))
        parts = b""
        for first in range(0, len(blob), 1000003):
            last = min(first + 1000003, len(blob)) - 1
            a = c.ask("GET", "/v1/blob", f"Range: bytes={first}-{last}")
            equal((a.status, a.get("content-range"), a.get("content-length")), (206, f"bytes {first}-{last}/{len(blob)}", str(last - first + 1)))
            parts += a.body
        check(parts == blob, "the parts are the whole")
        equal(c.ask("GET", "/v1/go").get("location"), "https://other.test/blob")


# ---- many, and slow heads

@test("B6", "B7", "23", limit=240)
def many_idle_connections_and_slow_heads_lock_nobody_out(lab):
    n = 1000 if lab.long else 250
    b = Vaulted(lab, HEAD_TIMEOUT="2")
    kept = []
    before = rss(b)
    for i in range(n):
        c = b.h1() if i % 2 else b.h2()
        if i < 20:
            equal(c.ask("GET", "/v1/x").status, 200)
        kept.append(c)
    per = (rss(b) - before) / n
    check(per < (2000 if lab.sanitizer else 100), "kB for each idle connection:", per)
    slow = b.h1()
    slow.send(b"GET /v1/x HTTP/1.1\r\nHost: api")
    equal(b.h1().ask("GET", "/v1/x").status, 200)
    check(slow.ending(20) in ("fin", "reset"), "a head that never ends")
    for c in kept[:40]:
        with contextlib.suppress(Ended, Late):
            equal(c.ask("GET", "/v1/x").status, 200)
    for c in kept:
        c.close()


@test("15", "B6", limit=120)
def heads_that_are_too_large_are_refused_and_others_go_on(lab):
    b = Vaulted(lab)
    for fields in (["X-Long: " + "v" * 400000], [f"X-{i}: {'v' * 5000}" for i in range(100)], [f"X-{i}: 1" for i in range(40000)]):
        for make in (b.h1, b.h2):
            n = len(b.asked())
            try:
                a = make().ask("GET", "/v1/x", *fields)
                check(a.status in (400, 431), a.status)
            except (Ended, Late) as e:
                check("reset" in str(e) or "fin" in str(e), e)
            equal(len(b.asked()), n)
    for make in (b.h1, b.h2):
        many = [f"X-{i}: 1" for i in range(300)]
        equal(make().ask("GET", "/v1/x", *many).status, 431)
        equal(make().ask("GET", "/v1/x", *many[:200]).status, 200)
        injected(b)
    for c in b.clients():
        equal(c.ask("GET", "/v1/x", "X-Big: " + "v" * 20000).status, 200)
        injected(b)
    def flood(q):
        return Said(200, *[f"X-{i}: {SECRET}" for i in range(3000)])
    b.api.handler = flood
    for c in b.clients():
        with contextlib.suppress(Ended):
            a = c.ask("GET", "/v1/x")
            clean(a)
            check(a.status in (200, 502), a.status)




@test("STR-06", limit=90)
def only_silence_in_both_directions_ends_a_stream(lab):
    def handler(q):
        s = getattr(q, "stream", None)
        send = s.send if s else lambda data: q.conn.send(chunked(data, last=False))
        if s:
            s.head([(":status", "200")])
        else:
            q.conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(12):         # four times the limit in all
            send(b": alive\n")
            time.sleep(0.7)
        if "/then-silent" in q.target:
            with contextlib.suppress(Ended, Late, OSError):
                s.over_within(60) if s else q.conn.ending(60)
            return None
        if s:
            s.send(b"", end=True)
        else:
            q.conn.send(b"0\r\n\r\n")
        return None
    b = Vaulted(lab, handler=handler, eager=True, IDLE_TIMEOUT="2")
    for make in (b.h1, b.h2):
        equal(Body(make()).rest(), b": alive\n" * 12)
        body, got = Body(make(), "/v1/then-silent"), b""
        try:
            while (part := body.piece(30)):
                got += part
            check(False, "a clean end")
        except Ended:
            equal(got, b": alive\n" * 12)
    wait_for(lambda: len(b.s.logged(lambda line: (line.get("why"), line.get("state")) == ("deadline", "body"))) == 2, "the limit in the log")
