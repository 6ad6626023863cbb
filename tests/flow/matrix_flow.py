"""What an exchange is must not depend on the versions at its ends: the same stories over {h1, h2} with and without TLS to {h1, h2c}."""
import contextlib
import hashlib
import random
import signal
import threading
import time

from h2wire import CANCEL, HEADERS, NO_ERROR
from lib import Ended, Failed, Late, check, equal, wait_for
from pairs import BIG, PAIRS, Setup, over_pairs
from wire import PATIENCE

LEAN = {"ASAN_OPTIONS": "exitcode=99:quarantine_size_mb=1"}  # what was freed does not count as held


def digest(data):
    return hashlib.sha256(data).hexdigest()


# ---- whole exchanges

@over_pairs("MATRIX")
def request_and_answer_pass(lab, each):
    def handler(part):
        body = part.body()
        seen.append((part.version, part.method, part.target, part.get("x-a"), part.get("x-forwarded-proto"), part.all("cookie"), body))
        part.answer(201, "X-B: 1", "X-B: 2", "Set-Cookie: a=1", "Set-Cookie: b=2", body=b"<" + body + b">")
    s, seen = Setup(lab, handler), []

    def do(pair):
        for body in (None, b"", b"hello"):
            method = "GET" if body is None else "POST"
            a = s.ask(pair, method, "/p%2f?q=%20", "X-A: some value", "Cookie: k=v; l=w", body=body)
            equal((a.status, a.body, a.whole), (201, b"<" + (body or b"") + b">", True), "answer")
            equal((a.all("x-b"), a.all("set-cookie")), (["1", "2"], ["a=1", "b=2"]), "repeated fields")
            equal(seen.pop(), (pair.backend, method, "/p%2f?q=%20", "some value", "https" if pair.tls else "http", ["k=v; l=w"], body or b""),
                  "at the backend")
    each(do)


@over_pairs("MATRIX", limit=240)
def big_bodies_pass_both_ways(lab, each):
    def handler(part):
        body = part.body()
        part.answer(200, f"X-Up: {digest(body)}", body=down)
    down, up = random.randbytes(4 * BIG + 1), random.randbytes(3 * BIG + 17)
    s = Setup(lab, handler)

    def do(pair):
        for length in (len(up), "chunked"):
            c = s.call(pair, "POST", length=length)
            for at in range(0, len(up), 100_000):
                c.data(up[at:at + 100_000])
            c.end()
            a = c.finish()
            equal((a.status, a.get("x-up"), digest(a.body), a.whole), (200, digest(up), digest(down), True), f"bodies, length {length}")
            c.leave()
    each(do)


@over_pairs("MATRIX", "STR-01")
def each_piece_passes_while_both_directions_stay_open(lab, each):
    def handler(part):
        part.head(200, how="chunked")
        while (data := piece(part)):
            part.data(data)
        part.end()

    def piece(part):
        if part.version == "h2":
            return part.stream.take()
        n = int(part.conn.until(b"\r\n"), 16)
        data = part.conn.exact(n + 2)[:-2]
        if not n:
            part.is_over = True
        return data
    s = Setup(lab, handler)

    def do(pair):
        c = s.call(pair, "POST", length="chunked")
        for i in range(12):
            data = b"piece %04d" % i
            c.data(data)
            got = b""
            while data not in got:
                c.some()
                got += c.rx()
        c.end()
        c.leave()
    each(do)


@over_pairs("MATRIX")
def answers_without_a_body_have_none(lab, each):
    def handler(part):
        part.body()
        how = part.target[1:]
        if how == "head":
            part.head(200, "X-A: b", length=5, end=True)
        elif how in ("204", "304"):
            part.head(int(how), "ETag: x", end=True)
        elif how == "empty":
            part.answer(200)
        else:
            part.answer(200, body=b"after")
    s = Setup(lab, handler)

    def do(pair):
        how = {"wire": s.wire1(pair)} if pair.client == "h1" else {"conn": s.conn2(pair)}
        for method, what, status, length in (("HEAD", "head", 200, "5"), ("GET", "204", 204, None), ("GET", "304", 304, None), ("GET", "empty", 200, "0")):
            a = s.ask(pair, method, "/" + what, **how)
            equal((a.status, a.body, a.whole), (status, b"", True), what)
            check(a.get("content-length") in (length, None) if what == "304" else a.get("content-length") == length, what, "length", a.fields)
            a = s.ask(pair, "GET", "/after", **how)
            equal((a.status, a.body), (200, b"after"), f"the next answer on the connection, after {what}")
    each(do)


@over_pairs("MATRIX")
def interim_answers_pass(lab, each):
    def handler(part):
        part.interim(103, "Link: </a.css>; rel=preload")
        part.interim(103, "Link: </b.css>; rel=preload")
        part.answer(200, body=b"ok")
    s = Setup(lab, handler)

    def do(pair):
        a = s.ask(pair)
        equal([(n, dict(f).get("link")) for n, f in a.interim], [(103, "</a.css>; rel=preload"), (103, "</b.css>; rel=preload")], "interim answers")
        equal((a.status, a.body, a.whole), (200, b"ok", True), "answer")
    each(do)


@over_pairs("MATRIX")
def body_is_asked_for_with_100(lab, each):
    def handler(part):
        seen.append(part.get("expect"))
        part.interim(100)
        part.answer(200, body=part.body())
    s, seen = Setup(lab, handler), []

    def do(pair):
        c = s.call(pair, "POST", "/", "Expect: 100-continue", length=5)
        if pair.client == "h1":
            equal(c.wire.until(b"\r\n\r\n").split(b" ")[1], b"100", "interim status")
        else:
            equal(dict(c.stream.next_head(0))[":status"], "100", "interim status")
        c.data(b"hello").end()
        a = c.finish()
        equal((a.status, a.body, a.whole, seen.pop()), (200, b"hello", True, "100-continue"), "answer")
        c.leave()
    each(do)


@over_pairs("MATRIX")
def trailers_pass_both_ways(lab, each):
    def handler(part):
        part.body()
        seen.append([f for f in part.trailers if f[0] == "x-up"])
        part.answer(200, "Trailer: x-down", body=b"body", trailers=["X-Down: yes", "X-Down: again"], how="chunked")
    s, seen = Setup(lab, handler), []

    def do(pair):
        c = s.call(pair, "POST", "/", "TE: trailers", "Trailer: x-up" if pair.client == "h2" else "X-Y: z", length="chunked")
        c.data(b"hello").end(["X-Up: 1"])
        a = c.finish()
        equal((a.status, a.body, a.whole), (200, b"body", True), "answer")
        equal((seen.pop(), a.trailers), ([("x-up", "1")], [("x-down", "yes"), ("x-down", "again")]), "trailers")
        c.leave()
    each(do)


@over_pairs("MATRIX")
def answer_of_unknown_length_is_whole_only_with_its_end(lab, each):
    def handler(part):
        part.body()
        how, _, ending = part.target[1:].partition("-")
        part.head(200, how=how, length=2 * len(body))
        part.data(body)
        if ending == "cut":
            if part.version == "h1":
                part.is_over = True   # FIN where more should come
                part.conn.fin()
            else:
                part.reset()
        elif ending == "rst":
            time.sleep(0.05)
            part.reset()
        else:
            part.end()
    body = random.randbytes(300_000)
    s = Setup(lab, handler)

    def do(pair):
        hows = ["chunked", "chunked-cut", "chunked-rst", "length-cut", "length-rst"]
        if pair.backend == "h1":
            hows += ["eof", "eof-rst"]
        for how in hows:
            a = s.ask(pair, "GET", "/" + how)
            whole = "-" not in how
            equal((a.status, a.whole), (200, whole), f"{how}: status and wholeness")
            check(body.startswith(a.body), how, "other bytes")
            if whole:
                equal(a.body == body, True, f"{how}: {len(a.body)} bytes of {len(body)}")
    each(do)


@over_pairs("MATRIX", "STR-02", limit=240)
def tail_of_an_answer_arrives_at_a_slow_client(lab, each):
    def handler(part):
        part.body()
        part.head(200, how="chunked")
        part.data(event)
        part.end()
    event = random.randbytes(2 * BIG)
    s = Setup(lab, handler)
    s.rcvbuf = 65536

    def do(pair):
        for _ in range(4):
            c = s.call(pair)
            time.sleep(0.05)
            a = c.finish()
            equal((len(a.body), digest(a.body), a.whole), (len(event), digest(event), True), "body")
            c.leave()
    each(do)


@over_pairs("MATRIX", "E-EARLY")
def early_answer_arrives_whole(lab, each):
    def handler(part):
        part.some()
        part.answer(413, body=big)
        if part.version == "h1":    # a server that closes without having read everything, gently
            part.is_over = True
            with contextlib.suppress(Ended, Late):
                for _ in range(100):
                    part.conn.more(2)
    big = random.randbytes(200_000)
    s = Setup(lab, handler)

    def do(pair):
        for length in (50 * BIG, "chunked"):
            c = s.call(pair, "POST", length=length)
            c.data(b"x" * 10_000)
            with contextlib.suppress(Ended, Late):
                for _ in range(20):
                    if pair.client == "h2" and c.stream.heads:
                        break
                    c.data(b"x" * 10_000, patience=0.2)
            a = c.finish()
            equal((a.status, a.body == big, a.whole), (413, True, True), f"the early answer, {len(a.body)} bytes, length {length}")
            c.leave()
    each(do)


@over_pairs("MATRIX", limit=600)
def slow_reader_holds_no_memory_of_the_gateway(lab, each):
    """The reader stands still until nothing moves any more; then it reads all of it."""
    def handler(part):
        part.body()
        n = int(part.target[1:])
        part.head(200, length=n)
        with contextlib.suppress(Ended, Late):
            for at in range(0, n, len(block)):
                part.data(block[:min(len(block), n - at)])
                moved[0] = at
            part.end()
    block, moved = bytes(BIG), [0]
    n = (500 if lab.long else 24) * BIG
    s = Setup(lab, handler, env=LEAN)

    def read(c, limit=None):
        """Bytes read, all or about as many as the limit says."""
        total = 0
        if isinstance(c.head().status, int) and hasattr(c, "wire"):
            total, c.wire.buf = len(c.wire.buf), b""
            while total < (limit or n):
                c.wire.more()
                total, c.wire.buf, c.wire.seen = total + len(c.wire.buf), b"", bytearray()
        else:
            while total < (limit or n):
                part = c.stream.take()
                check(part, "the body ended at", total, c.stream.rst, c.conn.dead)
                total += len(part)
        return total

    def stalled():
        last = -1
        while last != moved[0]:
            last = moved[0]
            time.sleep(0.3)

    def do(pair):
        for round_ in range(2):         # the first fills pools
            before, moved[0] = s.gw.rss(), 0
            c = s.call(pair, "GET", f"/{n}")
            c.head()
            stalled()
            grown = s.gw.rss() - before
            check(moved[0] < n - BIG or n < 50 * BIG, "the backend was never slowed")
            if round_:
                check(grown < 512 * 1024 * lab.fat, f"grown by {grown >> 10} KiB")
            equal(read(c), n, "bytes")
            c.leave()
    each(do)


# ---- tunnels

@over_pairs("MATRIX", "WS-01", "WS-04")
def websocket_passes_in_every_pairing(lab, each):
    def handler(part):
        head.append(part)
        part.switch()
        part.tx(b"\x81\x02hi")
        while (data := part.rx(within=20)):
            part.tx(data)
        part.fin()
    head = []
    for extended in (True, False):      # a backend without RFC 8441 is asked in HTTP/1.1
        s = Setup(lab, handler, ours={8: 1} if extended else {})

        def do(pair):
            c = s.socket(pair, "/ws", "Sec-WebSocket-Protocol: chat", "Origin: https://gw.test")
            if pair.client == "h2":
                c.data(b"early ")       # before the answer (WS-01 c)
            a = c.head()
            equal(a.status, 200 if pair.client == "h2" else 101, "status")
            for name in ("connection", "upgrade", "sec-websocket-accept", "sec-websocket-key"):
                check(pair.client == "h1" or a.get(name) is None, name, "on HTTP/2")
            part = head.pop()
            equal((part.target, part.get("origin"), part.get("sec-websocket-protocol"), part.get("sec-websocket-version")),
                  ("/ws", "https://gw.test", "chat", "13"), "handshake at the backend")
            equal(part.version, "h2" if extended and pair.backend == "h2" else "h1", "version of the handshake")
            want = b"\x81\x02hi" + (b"early " if pair.client == "h2" else b"")
            equal(c.rx(len(want)), want, "what came first")
            for _ in range(12):
                big = random.randbytes(30_000)
                c.tx(big)
                got = b""
                while len(got) < len(big):
                    got += c.rx()
                equal(digest(got), digest(big), "bytes there and back")
            c.fin()
            equal(c.rx(), b"", "the clean end")
            c.leave()
        each(do)


@over_pairs("MATRIX", "WS-10", which=[p for p in PAIRS if p.client == "h2"])
def server_of_a_tunnel_may_end_first(lab, each):
    def handler(part):
        part.switch()
        part.tx(bytes(100_000))
        part.fin()
        with contextlib.suppress(Ended, Late):
            part.rx(1 << 30, within=3)
    s = Setup(lab, handler, ours={8: 1})

    def do(pair):
        c = s.socket(pair)
        equal(c.head().status, 200, "status")
        with contextlib.suppress(Ended, Late):
            for _ in range(50):
                c.tx(b"x" * 100)
                time.sleep(0.002)
        got = 0
        while (data := c.stream.take()):
            got += len(data)
        equal((got, c.stream.ended), (100_000, True), "bytes and END_STREAM")
        check(c.stream.rst in (None, NO_ERROR, CANCEL), "reset", c.stream.rst)
        c.conn.ping()
    each(do)


@over_pairs("MATRIX", "WS-04")
def refused_handshake_is_an_answer(lab, each):
    def handler(part):
        part.answer(403, "X-Why: no", body=b"not for you")
        part.is_over = True
    s = Setup(lab, handler, ours={8: 1})

    def do(pair):
        c = s.socket(pair)
        a = c.finish()
        equal((a.status, a.get("x-why"), a.body, a.whole), (403, "no", b"not for you", True), "answer")
        c.leave()
    each(do)


@over_pairs("MATRIX")
def connect_is_refused(lab, each):
    s = Setup(lab, lambda part: seen.append(part))
    seen = []

    def do(pair):
        if pair.client == "h1":
            c = s.wire1(pair)
            c.send("CONNECT gw.test:80 HTTP/1.1\r\nHost: gw.test:80\r\n\r\n")
            equal(c.response("CONNECT").status, 400, "status")
        else:
            conn = s.conn2(pair)
            stream = conn.open([(":method", "CONNECT"), (":authority", "gw.test:80")])
            with contextlib.suppress(Ended):
                equal(dict(stream.next_head(0))[":status"], "400", "status")
            conn.ping()
        equal(seen, [], "requests at the backend")
    each(do)


# ---- ends that come too soon

@over_pairs("MATRIX", "STR-03", limit=300)
def client_that_leaves_in_any_state_ends_the_backend_side(lab, each):
    def handler(part):
        when = part.get("x-when")
        try:
            if when == "tunnel":
                part.switch()
                part.rx(4)
            elif when in ("answer", "upload and answer"):
                part.head(200, how="chunked")
                part.data(b"first")
            elif when == "upload":
                part.some()
            started.set()
            heard = {"tunnel": tunnel_gone, "answer": talk_gone}.get(when.split()[-1], lambda p: p.gone(4))(part)
            ends.append((part.version, heard, time.monotonic()))
        except (Ended, Late) as e:
            ends.append((part.version, True, time.monotonic()))
            started.set()

    def talk_gone(part):
        """A half-close after the final head is no departure; who is gone does not take what comes next."""
        part.is_over = True
        try:
            for _ in range(200):
                part.data(b"more")
                time.sleep(0.02)
        except Ended:
            return True
        return False

    def tunnel_gone(part):
        with contextlib.suppress(Ended, Late):
            while part.rx(within=4):
                pass
        return True
    s = Setup(lab, handler, ours={8: 1})
    started, ends = threading.Event(), []

    def do(pair):
        for when in ("wait", "answer", "upload", "upload and answer", "tunnel"):
            for how in ("reset", "leave", "cut") if pair.tls else ("reset", "leave"):
                started.clear()
                ends.clear()
                if when == "tunnel":
                    c = s.socket(pair, "/ws", "X-When: tunnel")
                    c.head()
                    c.tx(b"well")
                else:
                    c = s.call(pair, "POST" if "upload" in when else "GET", "/", f"X-When: {when}", length=1000 if "upload" in when else None)
                    if "upload" in when:
                        c.data(b"x" * 500)
                check(started.wait(PATIENCE), when, "did not begin")
                if when != "wait" and when != "upload":
                    c.some() if when != "tunnel" else None
                start = time.monotonic()
                getattr(c, how)()
                wait_for(lambda: ends, f"the backend to hear of it: {when}, {how}", 3)
                check(ends[0][1] and ends[0][2] - start < 1.0 * lab.slow, f"{when}, {how}: heard", ends[0], "after", start)
                if pair.client == "h2" and how == "reset":
                    c.conn.ping().close()
    each(do)


@over_pairs("MATRIX")
def client_that_leaves_within_its_head_does_no_harm(lab, each):
    s = Setup(lab, lambda part: part.answer(200, body=b"ok"))

    def do(pair):
        if pair.client == "h1":
            for at in (1, 20, 40):
                c = s.wire1(pair)
                c.send(f"GET {s.path(pair, '/')} HTTP/1.1\r\nHost: gw.test\r\n"[:at])
                c.rst() if at == 20 else c.close()
        else:
            conn = s.conn2(pair)
            conn.f(1, 0, 1, conn.enc.encode([(":method", "GET")]))   # HEADERS without END_HEADERS
            conn.close()
        equal(s.ask(pair).body, b"ok", "the next one")
    each(do)


@over_pairs("MATRIX", "H10", limit=240)
def backend_that_breaks_off_is_never_a_clean_end(lab, each):
    def handler(part):
        when = part.target[1:]
        if when == "before":
            part.body()
        elif when == "head":        # half of it, then nobody is there any more
            part.body()
            if part.version == "h1":
                part.conn.send("HTTP/1.1 200 OK\r\nContent-Le")
            else:
                part.conn.f(HEADERS, 0, part.stream.id, b"\x88")
                part.conn.close()
                return
            time.sleep(0.05)
        elif when == "upload":
            part.some()
        elif when == "tunnel":
            part.switch()
            part.rx(4)
            part.tx(b"some")
            time.sleep(0.05)
        elif when == "answer":
            part.body()
            part.head(200, length=1000)
            part.data(b"x" * 500)
            time.sleep(0.05)
        part.reset()
    s = Setup(lab, handler, ours={8: 1})

    def do(pair):
        a = s.ask(pair, "POST", "/before", body=b"hello")
        equal((a.status, a.whole), (502, True), "reset before the head")
        a = s.ask(pair, "POST", "/head", body=b"hello")
        equal((a.status, a.whole), (502, True), "end within the head")
        c = s.call(pair, "POST", "/upload", length=100_000).data(b"x" * 1000)
        equal(c.head().status, 502, "reset while the body was coming")
        c.leave()
        a = s.ask(pair, "GET", "/answer")
        equal((a.status, a.whole), (200, False), "reset within the answer")
        check(len(a.body) <= 500, "bytes", len(a.body))
        c = s.socket(pair, "/tunnel")
        check(c.head().status < 300, "status of the handshake")
        c.tx(b"well")
        try:
            while c.rx(within=5):
                pass
            clean = True
        except Failed:
            clean = False
        check(not clean or (pair.client == "h1" and not pair.tls), "a tunnel that was cut ends as if it were over")   # TCP's FIN may be either
        c.leave()
    each(do)


# ---- change under load

def paced(part, seconds, every=0.02):
    """An answer that takes its time: numbered pieces, then the end."""
    part.head(200, how="chunked")
    n = int(seconds / every)
    for i in range(n):
        part.data(b"%08d" % i)
        time.sleep(every)
    part.end()
    return n


@over_pairs("MATRIX", "RELOAD", limit=180)
def reload_disturbs_nothing_that_runs(lab, each):
    def handler(part):
        part.body()
        paced(part, 1.2)
    s = Setup(lab, handler)
    calls = []

    def begin(pair):
        for _ in range(3):
            c = s.call(pair)
            equal(c.head().status, 200, "status")
            calls.append((pair, c))
    each(begin)
    for i in range(3):
        s.gw.reload({**{k: s.gw.routes[k] for k in ("sb1", "sb2")}, f"new{i}": s.b1})
        time.sleep(0.1)
    want = b"".join(b"%08d" % i for i in range(60))
    for pair, c in calls:
        a = c.finish()
        equal((a.body == want, a.whole), (True, True), f"{pair}: {len(a.body)} bytes of {len(want)} under reload")
        c.leave()


@over_pairs("MATRIX", "DRAIN", limit=180)
def drain_lets_what_runs_come_to_its_end(lab, each):
    def handler(part):
        part.body()
        paced(part, 1.5)
    s = Setup(lab, handler, "--drain-timeout=20s")
    calls = []

    def begin(pair):
        for _ in range(2):
            c = s.call(pair)
            equal(c.head().status, 200, "status")
            calls.append((pair, c))
    each(begin)
    s.gw.signal(signal.SIGTERM)
    want = b"".join(b"%08d" % i for i in range(75))
    for pair, c in calls:
        a = c.finish()
        equal((a.body == want, a.whole), (True, True), f"{pair}: {len(a.body)} bytes of {len(want)} while draining")
        if pair.client == "h2":
            c.conn.ending()
            check(c.conn.goaway and c.conn.goaway[1] == NO_ERROR, f"{pair}: GOAWAY", c.conn.goaway)
    equal(s.gw.exit(20), 0, "exit status")


@over_pairs("MATRIX", "CHURN", limit=240)
def many_at_once_with_some_that_leave(lab, each):
    """Twelve parallel exchanges in each pairing, a third of them given up on: the others are whole."""
    def handler(part):
        part.body()
        with contextlib.suppress(Ended, Late):
            paced(part, 0.3, 0.01)
    s = Setup(lab, handler)
    want = b"".join(b"%08d" % i for i in range(30))

    def do(pair):
        how = {"conn": s.conn2(pair)} if pair.client == "h2" else {}
        calls = [s.call(pair, "POST", "/", length=3, **how).data(b"abc").end() for _ in range(12)]
        for i, c in enumerate(calls):
            c.head()
            if i % 3 == 0:
                c.reset()
        for i, c in enumerate(calls):
            if i % 3:
                a = c.finish()
                equal((a.body == want, a.whole), (True, True), f"exchange {i}, {len(a.body)} bytes")
        for c in calls:
            c.leave()
    each(do)
