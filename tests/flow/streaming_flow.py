"""Bodies that are long, slow or cut: the cards STR-01 to STR-06 over HTTP/1.1, scaled down in time and size."""
import hashlib
import random
import threading
import time

from lib import P, P2, Ended, Late, answer, check, chunked, equal, request, says, soon, test, took, wait_for

MIB = 1 << 20
LEAN = {"ASAN_OPTIONS": "exitcode=99:quarantine_size_mb=1"}  # what was freed does not count as held
POOLS = 8 * MIB  # chunks that two workers keep for the next load


# ---- STR-01

def event_stream(form, content_type, times, n=40, every=0.02):
    """A script: n events of 40 bytes, in one of the forms in which an answer without a length may come."""
    def script(conn):
        conn.request()
        field = f"Content-Type: {content_type}\r\n" if content_type else ""
        coding = "Transfer-Encoding: chunked\r\n" if form == "chunked" else ""
        conn.send(f"HTTP/1.{0 if form == '1.0' else 1} 200 OK\r\n{field}{coding}\r\n")
        for i in range(n):
            event = b"data: %033d\n" % i
            times.append(time.monotonic())
            conn.send(chunked(event, last=False) if form == "chunked" else event)
            time.sleep(every)
        if form == "chunked":
            conn.send(b"0\r\n\r\n")
    return script


def worst_delay(gw, sent, version, want):
    """Reads 20 events of a fresh stream; the second worst delay."""
    sent.clear()
    seen = []
    c = gw.client().send(request("GET", P + "/", "Accept: text/event-stream", version=version))
    r = c.head()
    equal((r.get("content-type"), r.has("content-length")), (want or None, False), "type and length")
    equal(r.has("transfer-encoding"), version == "HTTP/1.1", f"coding to {version}")
    for i in range(20):
        c.until(b"data: %033d\n" % i)
        seen.append(time.monotonic())
    if version == "HTTP/1.1":
        c.until(b"0\r\n\r\n")
    else:
        equal(c.ending(), "fin", "ending")
    return sorted(b - a for a, b in zip(sent, seen))[-2]


@test("STR-01", "sn-4d2d4b73", limit=120)
def each_event_arrives_at_once_in_every_form(lab):
    for form in ("chunked", "until EOF", "1.0"):
        for content_type in ("text/event-stream", "application/x-ndjson", "") if form != "1.0" else ("text/event-stream",):
            sent = []
            gw = lab.gateway(routes={"sb1": lab.backend(event_stream(form, content_type, sent, n=20))})
            for version in ("HTTP/1.1", "HTTP/1.0"):
                soon(lambda: worst_delay(gw, sent, version, content_type), 0.02 * lab.slow, f"delay of an event, {form}, {content_type}, to {version}")


@test("STR-01", "sn-4d2d4b73")
def event_arrives_while_the_stream_stays_open(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent.append(time.monotonic())
        conn.send(b"9\r\ndata: 1\n\n\r\n")
        conn.ending(10)
    sent = []
    gw = lab.gateway(routes={"sb1": lab.backend(script)})

    def delay():
        c = gw.client().send(request("GET", P + "/", "Accept: text/event-stream"))
        c.until(b"data: 1\n\n")
        seconds = time.monotonic() - sent[-1]
        check(c.silent(0.1), "the stream does not stay open")
        return seconds
    soon(delay, 0.05, "delay of the event")


@test("STR-01")
def head_of_an_answer_does_not_wait_for_its_body(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        time.sleep(0.5)
        conn.send(b"ok")
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client().send(request("GET", P + "/"))
    seconds, _ = took(c.head)
    check(seconds < 0.3, "the head came after", seconds)
    equal(c.exact(2), b"ok", "body")


@test("STR-01")
def upload_in_small_pieces_arrives_piece_by_piece(lab):
    seen = []

    def script(conn):
        conn.head()
        while sum(n for _, n in seen) < 2000:
            if not conn.buf:
                conn.more()
            seen.append((time.monotonic(), conn.buf.count(b"x")))
            conn.buf = b""
        conn.send(answer(200, body=b"ok"))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})

    def worst():
        """The worst delay of a piece; pieces that came together count as one that came late."""
        seen.clear()
        c = gw.client().send(request("POST", P + "/", "Transfer-Encoding: chunked"))
        sent = []
        for _ in range(20):
            sent.append(time.monotonic())
            c.send(chunked(b"x" * 100, last=False))
            time.sleep(0.03)
        c.send(b"0\r\n\r\n")
        equal(c.response().status, 200, "status")
        c.close()
        pieces = [t for t, n in seen if n]
        return max(t - s for s, t in zip(sent, pieces)) if len(pieces) == 20 else 1.0
    soon(worst, 0.025 * lab.slow, "delay of a piece", tries=5)


# ---- STR-02

@test("STR-02")
def tail_of_an_answer_that_ends_at_once_arrives(lab):
    """A big last event, the last chunk and FIN without a pause; the client is slow.  Then without the last chunk."""
    event = random.randbytes(2 * MIB)
    last = [True]

    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(event, last=last[0]))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    for i in range(16):
        last[0] = i % 2 == 0
        c = gw.client(rcvbuf=65536).send(request("GET", P + "/"))
        time.sleep(0.1)
        r = c.response()
        equal(hashlib.sha256(r.body).digest() == hashlib.sha256(event).digest(), True, f"body of {len(r.body)} bytes, whole {last[0]}")
        equal(r.whole, last[0], f"a last chunk, end {r.end}")
        c.close()


@test("STR-02")
def tail_of_an_answer_until_eof_arrives_and_a_reset_is_no_end(lab):
    body = random.randbytes(2 * MIB)
    for then in ("close", "rst"):
        def script(conn):
            conn.request()
            conn.send(b"HTTP/1.0 200 OK\r\n\r\n" + body)
            if then == "rst":
                time.sleep(0.3)
                conn.rst()
        gw = lab.gateway(routes={"sb1": lab.backend(script)})
        for version in ("HTTP/1.1", "HTTP/1.0"):
            c = gw.client(rcvbuf=65536).send(request("GET", P + "/", version=version))
            time.sleep(0.1)
            r = c.response()
            equal((r.whole, r.body == body if then == "close" else True), (then == "close", True), f"{then} {version}: {len(r.body)} bytes, {r.end}")


# ---- STR-03

@test("STR-03")
def client_that_leaves_in_any_phase_ends_the_backend_side(lab):
    def script(conn):
        r = conn.head()
        phase[0] = r.get("x-phase")
        if phase[0] == "stream":
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 1000, last=False))
        try:
            if phase[0] == "stream":
                for _ in range(200):
                    conn.send(chunked(b"x", last=False))
                    time.sleep(0.02)
            conn.ended = conn.ending(4)
        except Ended as e:
            conn.ended = str(e)
        ends.append(time.monotonic())
    for when in ("wait", "stream", "upload", "quiet stream"):
        for how in ("fin", "rst"):
            phase, ends = [None], []
            b = lab.backend(script)
            gw = lab.gateway(routes={"sb1": b})
            c = gw.client()
            if when == "upload":
                c.send(request("POST", P + "/", "X-Phase: upload", "Content-Length: 1000") + b"x" * 500)
            else:
                c.send(request("GET", P + "/", f"X-Phase: {when}"))
            wait_for(lambda: phase[0], "the request at the backend")
            if when == "stream":
                c.until(b"xxx")
            time.sleep(0.05)
            start = time.monotonic()
            c.rst() if how == "rst" else c.close()
            wait_for(lambda: ends, f"the backend hears of it: {when}, {how}", 3)
            check(ends[0] - start < 1, when, how, "after", ends[0] - start)
            check(b.conns[0].ended in ("fin", "reset"), when, how, b.conns[0].ended)
            gw.access(1, why="client-gone")


@test("STR-03")
def half_close_after_a_complete_request_is_no_departure_while_an_answer_is_written(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(10):
            conn.send(b"5\r\nevent\r\n")
            time.sleep(0.05)
        conn.send(b"0\r\n\r\n")
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client().send(request("GET", P + "/"))
    r = c.head()
    r = c.fin().read_body(r, False)
    equal((r.body, r.whole), (b"event" * 10, True), "answer")
    equal(c.ending(), "fin", "ending")


# ---- STR-04

class Counted:
    """A script that writes as much as is taken, and counts it."""

    def __init__(self, size):
        self.size, self.taken = size, 0

    def __call__(self, conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.size)
        left, piece = self.size, bytes(65536)
        conn.sock.settimeout(60)
        while left:
            n = conn.sock.send(piece[:min(left, 65536)])
            left -= n
            self.taken += n


@test("STR-04")
def slow_reader_slows_the_writer_and_nobody_else(lab):
    """40 downloads that nobody reads: what the gateway holds for each is bounded, another client has full speed."""
    lab.alone(buffers=131072)
    n = 40
    writer = Counted(256 * MIB)
    gw = lab.gateway(env=LEAN, routes={"sb1": lab.backend(writer), "sb2": lab.backend(says("x" * 4 * MIB))})
    gw.client().ask("GET", P2 + "/")
    before = gw.rss()
    slow = [gw.client(rcvbuf=8192).send(request("GET", P + "/")) for _ in range(n)]
    last = -1
    while writer.taken != last:
        last = writer.taken
        time.sleep(0.3)
    held = gw.metric("sallyport_memory_held_bytes")
    check(held < n * 256 * 1024, "held per flow:", held / n)
    growth = gw.rss() - before
    check(growth < (n * 256 * 1024 + POOLS) * lab.fat, "resident memory per flow:", growth / n)
    seconds, r = took(lambda: gw.client().ask("GET", P2 + "/"))
    equal(len(r.body), 4 * MIB, "the other client's body")
    check(seconds < 0.7 * lab.slow, "it took", seconds)
    for c in slow[:5]:
        while len(c.seen) < 4 * MIB:
            c.more()
            c.buf = b""
    check(writer.taken > last, "the writer does not go on when the reader does")


@test("STR-04")
def slow_backend_slows_the_uploader_and_nobody_else(lab):
    lab.alone(buffers=131072)
    n, size = 40, 4 * MIB
    go = threading.Event()

    def script(conn):
        conn.head()
        go.wait(20)
        total = len(conn.buf)
        while total < size:
            conn.buf = b""
            conn.more()
            total += len(conn.buf)
        conn.send(answer(200, body=b"%d" % total))
    gw = lab.gateway(env=LEAN, routes={"sb1": lab.backend(script, rcvbuf=8192), "sb2": lab.backend(says("ok"))})
    gw.client().ask("GET", P2 + "/")
    before = gw.rss()
    taken = [0] * n
    clients = [gw.client().send(request("PUT", P + "/", f"Content-Length: {size}")) for _ in range(n)]

    def push():
        moved = False
        for i, c in enumerate(clients):
            if taken[i] < size:
                c.sock.setblocking(False)
                try:
                    k = c.sock.send(bytes(min(65536, size - taken[i])))
                except BlockingIOError:
                    k = 0
                taken[i] += k
                moved |= k > 0
        return moved
    quiet = 0
    while quiet < 20:
        quiet = 0 if push() else quiet + 1
        time.sleep(0.01)
    check(max(taken) < size, "an upload was swallowed whole:", max(taken))
    held = gw.metric("sallyport_memory_held_bytes")
    check(held < n * 256 * 1024, "held per flow:", held / n)
    growth = gw.rss() - before
    check(growth < (n * 256 * 1024 + POOLS) * lab.fat, "resident memory per flow:", growth / n)
    seconds, r = took(lambda: gw.client().ask("GET", P2 + "/"))
    check(r.status == 200 and seconds < 0.5, "another request took", seconds)
    go.set()
    end = time.monotonic() + 15
    while min(taken) < size and time.monotonic() < end:
        if not push():
            time.sleep(0.005)
    for c in clients:
        equal(c.response().text, str(size), "what the backend got")


@test("STR-04")
def both_directions_at_once_do_not_block_each_other(lab):
    """An echo of 8 MiB: the backend answers while it reads, the client reads while it writes."""
    size = 8 * MIB

    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        left = size
        while left:
            if not conn.buf:
                conn.more()
            data, conn.buf = conn.buf, b""
            left -= len(data)
            conn.send(data)
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    data = random.randbytes(size)
    c = gw.client().send(request("POST", P + "/", f"Content-Length: {size}"))
    t = threading.Thread(target=lambda: c.sock.sendall(data))
    t.start()
    r = c.response()
    t.join(5)
    equal(hashlib.sha256(r.body).hexdigest(), hashlib.sha256(data).hexdigest(), f"{len(r.body)} bytes")


@test("STR-04")
def big_bodies_pass_whole_at_constant_memory(lab):
    size = 96 * MIB
    piece = random.randbytes(MIB)
    want = hashlib.sha256(piece * (size // MIB)).hexdigest()

    def script(conn):
        r = conn.head()
        if r.method == "GET":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // MIB):
                conn.send(piece)
            return
        digest, left = hashlib.sha256(), size
        while left:
            if not conn.buf:
                conn.more()
            digest.update(conn.buf)
            left -= len(conn.buf)
            conn.buf = b""
            del conn.seen[:]
        conn.send(answer(200, body=digest.hexdigest().encode()))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    before = gw.rss()
    c = gw.client().send(request("GET", P + "/"))
    c.head()
    digest, left, most = hashlib.sha256(c.buf), size - len(c.buf), 0
    while left:
        c.buf = b""
        c.more()
        del c.seen[:]
        digest.update(c.buf)
        left -= len(c.buf)
    most = gw.rss() - before
    equal(digest.hexdigest(), want, "download")
    c = gw.client().send(request("PUT", P + "/", f"Content-Length: {size}"))
    for _ in range(size // MIB):
        c.send(piece)
    equal(c.response().text, want, "upload")
    most = max(most, gw.rss() - before)
    check(most < 4 * MIB * 2 * lab.fat, "resident memory grew by", most)


# ---- STR-05

@test("STR-05")
def what_an_image_pull_needs_passes_unchanged(lab):
    blob = random.randbytes(300000)
    name = "sha256:" + hashlib.sha256(blob).hexdigest()

    def script(conn):
        while True:
            r = conn.request()
            common = f"Docker-Content-Digest: {name}\r\nContent-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\nETag: \"x\"\r\n"
            if "/manifests/" in r.target:
                conn.send(f"HTTP/1.1 200 OK\r\n{common}Content-Length: {len(blob)}\r\n\r\n".encode() + (b"" if r.method == "HEAD" else blob))
            elif r.has("range"):
                start = int(r.get("range")[6:-1])
                conn.send(f"HTTP/1.1 206 Partial Content\r\n{common}Content-Range: bytes {start}-{len(blob) - 1}/{len(blob)}\r\nContent-Length: {len(blob) - start}\r\n\r\n".encode() + blob[start:])
            else:
                conn.send(f"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://blobs.test/{name}?sig=%2Fx\r\n{common}Content-Length: 0\r\n\r\n".encode())
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    r = c.ask("HEAD", P + "/v2/a/manifests/latest", "Accept: application/vnd.oci.image.index.v1+json")
    equal((r.status, r.get("content-length"), r.get("docker-content-digest"), r.body), (200, str(len(blob)), name, b""), "HEAD")
    r = c.ask("GET", P + f"/v2/a/blobs/{name}")
    equal((r.status, r.get("location"), b.last.target), (307, f"http://blobs.test/{name}?sig=%2Fx", f"/v2/a/blobs/{name}"), "redirect")
    r = c.ask("GET", P + f"/v2/a/blobs/{name}", "Range: bytes=100000-", "If-Range: \"x\"")
    equal((r.status, r.get("content-range"), r.body == blob[100000:], r.all("etag")), (206, f"bytes 100000-299999/{len(blob)}", True, ["\"x\""]), "range")
    equal((b.last.get("range"), b.last.get("if-range")), ("bytes=100000-", "\"x\""), "range at the backend")
    r = c.ask("GET", P + "/v2/a/manifests/latest")
    equal(("sha256:" + hashlib.sha256(r.body).hexdigest(), len(b.conns)), (name, 1), "digest, backend connections")


# ---- STR-06

FLAGS = tuple(f"--{name}-timeout=2s" for name in ("idle", "response", "keep-alive", "head", "connect", "linger"))


@test("STR-06")
def long_streams_outlive_every_deadline_while_bytes_move(lab):
    """All deadlines are 2 s; a stream with a comment each 0.4 s, an upload in steps of 0.4 s, a tunnel that is silent: 3.2 s each."""
    def script(conn):
        r = conn.head()
        if r.target == "/up":
            conn.read_body(r, False)
            conn.send(answer(200, body=b"%d" % len(r.body)))
        elif r.target == "/ws":
            conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            equal(conn.exact(4), b"ping", "what comes through the tunnel")
            conn.send(b"pong")
            conn.ending(10)
        else:
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(8):
                conn.send(b"2\r\n:\n\r\n")
                time.sleep(0.4)
            conn.send(b"0\r\n\r\n")
    gw = lab.gateway(*FLAGS, routes={"sb1": lab.backend(script)})
    ws = gw.client().send(request("GET", P + "/ws", "Connection: Upgrade", "Upgrade: websocket"))
    equal(ws.head().status, 101, "tunnel")
    up = gw.client().send(request("PUT", P + "/up", "Content-Length: 80"))
    down = gw.client().send(request("GET", P + "/down"))
    for _ in range(8):
        up.send(b"x" * 10)
        time.sleep(0.4)
    equal(up.response().text, "80", "upload")
    r = down.response()
    equal((r.body, r.whole), (b":\n" * 8, True), "stream")
    ws.send(b"ping")
    equal(ws.exact(4), b"pong", "tunnel after a silence")


@test("STR-06")
def bytes_in_either_direction_keep_an_exchange_alive(lab):
    """The answer has begun and is silent; the upload goes on for 3.2 s."""
    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n")
        conn.exact(80)
        conn.send(b"3\r\nend\r\n0\r\n\r\n")
    gw = lab.gateway(*FLAGS, routes={"sb1": lab.backend(script)})
    c = gw.client().send(request("PUT", P + "/", "Content-Length: 80"))
    for _ in range(8):
        c.send(b"x" * 10)
        time.sleep(0.4)
    r = c.response()
    equal((r.body, r.whole), (b"beginend", True), "answer")


@test("STR-06")
def name_of_the_deadline_stands_in_the_log(lab):
    def script(conn):
        r = conn.head()
        if r.target == "/body":
            conn.send(answer(200, body=b"xx")[:-1])
        conn.ending(5)
    gw = lab.gateway("--idle-timeout=300ms", "--response-timeout=300ms", routes={"sb1": lab.backend(script)})
    for target, state in (("/body", "body"), ("/wait", "closing")):
        c = gw.client().send(request("GET", P + target))
        try:
            c.response()
        except (Ended, Late):
            pass
        line = gw.access(1, uri=P + target)[0]
        equal((line["why"], line["state"]), ("deadline", state), target)
