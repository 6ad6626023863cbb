"""Everything that speaks to the gateway, at once and at random: both versions with and without TLS, uploads and long answers,
gRPC, WebSockets, half-made handshakes; peers that leave, reset and stall in any state, while certificates and routes change
beneath them.  What arrives whole must be right; at the end all is given back, and SIGTERM in mid-storm is a clean end."""
import hashlib
import os
import random
import signal
import threading
import time

from lib import Client, Ended, Failed, Late, check, equal, request, test, wait_for
from pairs import PAIRS, TLS_HOST, Setup, TlsClient, h2c, serves2
from tls_flow import Pair as Certificate
import ws

KIB, MIB = 1 << 10, 1 << 20
PIECE = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(8192))
SIZES = (0, 1, 700, 20 * KIB, 70 * KIB, 300 * KIB, 1200 * KIB)
SHORT = tuple(f"--{name}-timeout={ms}ms" for name, ms in (("head", 500), ("keep-alive", 700), ("connect", 400), ("response", 1000), ("idle", 1000), ("tunnel-idle", 1000),
                                                          ("half-close", 300), ("linger", 200), ("backend-idle", 300)))
PEERS_FAULT = (Ended, Late, OSError, ValueError)    # the other end was cut, as it had to be


def maybe(p):
    return random.random() < p


def body(n):
    return (PIECE * (n // len(PIECE) + 1))[:n]


def nap():
    if maybe(0.1):
        time.sleep(random.choice((0.01, 0.1, 0.8)))


# ---- the sandboxes

def tunnels(part):
    part.switch()
    for _ in range(random.randrange(30)):
        data = part.rx(within=1)
        if not data:
            break
        part.tx(data)
        if maybe(0.02):
            part.reset()
            return
    part.fin()


def answers(part):
    """X-Size bytes of the pattern, framed somehow, ended somehow."""
    n = int(part.get("x-size", "0"))
    data = body(n)
    how = random.choice(("length", "chunked", "eof" if part.version == "h1" else "length"))
    grpc = (part.get("content-type") or "").startswith("application/grpc")
    if maybe(0.1):
        part.interim(103, "Link: </x>")
    part.head(200, *(["Content-Type: application/grpc"] if grpc else []), how="chunked" if grpc else how, length=n)
    if part.method == "HEAD":
        return
    step = random.choice((16 * KIB, 300 * KIB, 2 * MIB))
    for at in range(0, n, step):
        part.data(data[at:at + step])
        if maybe(0.02):
            part.reset()
            return
        if maybe(0.05):
            nap()
    part.end(["grpc-status: 0"] if grpc else [])


def sandbox(part):
    upgrade = part.get("upgrade") or part.get(":protocol")
    if upgrade and maybe(0.9):
        tunnels(part)
        return
    if upgrade:
        part.answer(403, body=b"no")
        return
    nap()
    early = maybe(0.1)
    if not early and part.get("x-upload"):
        got = part.body()
        if len(got) != int(part.get("x-upload")) or got != body(len(got)):
            raise Failed(f"an upload of {part.get('x-upload')} came as {len(got)}")
    if maybe(0.05):
        part.reset()
        return
    answers(part)
    if early and part.version == "h1":
        part.is_over = True
        if maybe(0.5):
            part.gone(random.choice((0.1, 0.7)))


# ---- the clients

def leave(call):
    """Somehow."""
    how = random.randrange(4)
    if how == 0:
        call.leave()
    elif how == 1:
        call.reset()
        call.leave()
    elif how == 2 and hasattr(call, "wire"):
        call.wire.rst()
    else:
        call.cut() if hasattr(call, "cut") and call.__dict__.get("tls") else call.leave()


def asks(setup, pair):
    n, up = random.choice(SIZES), random.choice((0, 0, 0) + SIZES)
    grpc = pair.client == "h2" and maybe(0.2)
    method = "POST" if up or grpc else random.choice(("GET", "GET", "HEAD"))
    fields = [f"X-Size: {n}"] + ([f"X-Upload: {up}"] if up else []) + (["Content-Type: application/grpc", "TE: trailers"] if grpc else [])
    length = (up if maybe(0.7) or grpc else "chunked") if up else None
    call = setup.call(pair, method, "/x", *fields, length=length)
    try:
        if up:
            data, step = body(up), random.choice((10 * KIB, 200 * KIB, 2 * MIB))
            for at in range(0, up, step):
                call.data(data[at:at + step])
                if maybe(0.03):
                    return
            if maybe(0.05):
                return
            call.end()
        nap()
        if maybe(0.1):
            return
        if maybe(0.1):
            call.some(2)
            return
        a = call.finish()
        if a.status == 200 and a.whole and method != "HEAD":
            check(a.body == body(n), f"{pair}: an answer of {n} bytes came as {len(a.body)}")
    finally:
        leave(call)


def many(setup, pair):
    """Several streams on one connection, some of which are reset."""
    if pair.client != "h2":
        return
    conn = setup.conn2(pair)
    try:
        streams = []
        for _ in range(random.choice((3, 10, 30))):
            n = random.choice(SIZES[:5])
            head = [(":method", "GET"), (":scheme", "https" if pair.tls else "http"), (":path", setup.path(pair, "/m")), (":authority", TLS_HOST),
                    ("x-size", str(n))]
            streams.append((conn.open(head, end=True), n))
        for s, n in streams:
            if maybe(0.3):
                s.reset()
                continue
            got = s.read(2)
            if s.whole and s.heads and dict(s.heads[0])[":status"] == "200":
                check(got == body(n), f"{pair}: a stream of {n} bytes came as {len(got)}")
    finally:
        conn.close()


def chats(setup, pair):
    call = setup.socket(pair)
    try:
        if call.head(2).status not in (101, 200) or maybe(0.1):
            return
        for _ in range(random.randrange(20)):
            data = os.urandom(random.choice((1, 100, 40 * KIB)))
            call.tx(data)
            if maybe(0.05):
                return
            got = call.rx(len(data), 2)
            check(data.startswith(got) if got else True, f"{pair}: a tunnel said something else")
        call.fin()
        call.over(1)
    finally:
        leave(call)


def bulk_tunnel(setup, pair):
    """Long enough for a pipe, both ways."""
    if pair.client != "h1" or pair.tls or pair.backend != "h1":
        return
    c = Client(setup.gw.port, rcvbuf=random.choice((0, 16384)))
    try:
        c.send(request("GET", setup.path(pair, "/ws"), *ws.fields()))
        if c.head().status != 101:
            return
        data = body(2 * MIB)
        out = threading.Thread(target=lambda: c.offer(data), daemon=True)
        out.start()
        at = 0
        while at < len(data):
            c.more(1)
            check(data[at:at + len(c.buf)] == c.buf, "the tunnel's bytes are others")
            at += len(c.buf)
            c.buf = b""
            c.seen.clear()
            if maybe(0.01):
                break
    finally:
        c.rst() if maybe(0.5) else c.close()


def half_made(setup, pair):
    """Handshakes and prefaces that come to nothing."""
    c = Client(setup.tls_port if pair.tls else setup.gw.port)
    try:
        first = random.choice((b"", b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03" + os.urandom(40), os.urandom(60), b"PRI * HTTP/2.0\r\n\r\nSM", b"GET / HT"))
        c.offer(first)
        nap()
        if maybe(0.3):
            c.ending(1)
    finally:
        c.rst() if maybe(0.5) else c.close()
    if pair.tls and maybe(0.5):
        TlsClient(setup.tls_port, random.choice((("h2",), ("http/1.1",)))).close()


KINDS = (asks, asks, asks, asks, many, chats, bulk_tunnel, half_made)


class Storm:
    """The clients, each a thread, until stop()."""

    def __init__(self, setup, clients):
        self.setup, self.wrong, self.visits, self.over = setup, [], 0, False
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def run(self):
        while not self.over:
            self.visits += 1
            pair = random.choice(PAIRS)
            try:
                random.choice(KINDS)(self.setup, pair)
            except PEERS_FAULT:
                pass
            except Failed as e:
                if "cut" not in str(e):
                    self.wrong.append(str(e))
            except Exception as e:
                self.wrong.append(repr(e))
            while len(self.setup.lab.peers) > 100:
                self.setup.lab.peers.pop(0).close()

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join(20)
        check(not self.wrong, "wrong:", self.wrong[:3])
        check(not any(t.is_alive() for t in self.threads), "a client hangs")


def begin(lab):
    setup = Setup(lab, sandbox, *SHORT, "--max-connections=300", f"--max-memory={random.choice((4, 64))}MiB", "--drain-timeout=2s",
                  f"--move-timeout={random.choice((0, 1, 5))}s", "--backend-protocol=auto",
                  f"--tls-cert-dir={lab.dir}/more")
    setup.b1.script, setup.b1.h2 = serves2(sandbox), []     # gRPC comes in HTTP/2
    return setup


def change(setup, turn, certs):
    """What an operator does, all at once."""
    gw = setup.gw
    if turn % 2 == 0:
        certs[0].replace(certs[1 + turn // 2 % 2])
    if turn % 4 == 1:
        with open(certs[0].key, "w", encoding="ascii") as f:
            f.write("half a key")
    ports = {str(4000 + turn): {}} if turn % 4 else {}    # another endpoint: it has moved; only another end: it runs on
    gw.routes["sb2"] = {**h2c(setup.b2), "expiresAt": f"20{30 + turn % 50}-01-01T00:00:00Z"}
    gw.routes["sb2"]["ports"] = {**gw.routes["sb2"]["ports"], **ports}
    if turn % 3 == 0:
        gw.routes["sb1"] = {"address": setup.b1.host, "ports": {"3000": {"address": setup.b1.address}, **ports}}
    gw.write_routes() if turn % 5 else gw.write_routes("{\"sandboxes\":")
    gw.signal(signal.SIGHUP)
    if turn % 8 == 3:
        gw.signal(signal.SIGSTOP)
        time.sleep(0.1)
        gw.signal(signal.SIGCONT)
    if turn % 6 == 2:    # no descriptor for a while
        most = gw.limit_fds(gw.fds() + random.randrange(10))
        time.sleep(0.3)
        gw.limit_fds(most)


def calm(setup):
    """Nothing is left of it."""
    gw = setup.gw
    for b in (setup.b1, setup.b2):
        upload = [f for f in b.faults if "upload" in str(f)]
        check(not upload, upload[:3])
        b.faults = []
    for p in setup.lab.peers:
        p.close()
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no client connection left", 6)
    for state in ("head", "dial", "wait", "body", "tunnel", "closing"):
        wait_for(lambda s=state: gw.metric("sallyport_exchanges", state=s) == 0, f"no exchange in {state}", 3)
    wait_for(lambda: gw.metric("sallyport_backend_connections") == 0, "no backend connection left", 5)
    equal(gw.metric("sallyport_memory_held_bytes"), 0, "memory held")
    gw.settle()
    pipes = gw.open_files().get("pipe", 0)
    return pipes


def run_storm(lab, seconds, clients):
    os.mkdir(f"{lab.dir}/more")
    certs = [Certificate(f"{lab.dir}/more", "a", "a.test"), *[Certificate(lab.dir, f"n{i}", "a.test") for i in range(2)]]
    setup = begin(lab)
    gw = setup.gw
    pipes = gw.open_files().get("pipe", 0)
    storm, end, turn, rss = Storm(setup, clients), time.monotonic() + seconds, 0, []
    while time.monotonic() < end:
        time.sleep(0.5)
        change(setup, turn, certs)
        turn += 1
        check(gw.alive(), "the gateway is gone")
        rss.append(gw.rss())
    storm.stop()
    equal(calm(setup), pipes, "pipes")
    check(storm.visits > 3 * seconds, "only", storm.visits, "visits")
    quarter = len(rss) // 4
    if lab.long and not lab.sanitizer:
        check(max(rss[-quarter:]) < 1.3 * max(rss[quarter:2 * quarter]), "memory grows:", rss[::quarter])
    if os.environ.get("STORM_TALK"):
        whys = [line["why"] for line in gw.logged("ingress requested")]
        print(storm.visits, "visits, exchanges", {w: whys.count(w) for w in sorted(set(whys))}, "MiB", rss[0] >> 20, rss[-1] >> 20)
    storm = Storm(setup, clients)
    time.sleep(1.5)
    gw.signal(signal.SIGTERM)
    equal(gw.exit(6 * lab.slow), 0, "exit status in mid-storm")
    storm.over = True
    for t in storm.threads:
        t.join(20)
    for b in (setup.b1, setup.b2):
        b.faults = []


@test("OPS-01", "H1-11", "OPS-03", limit=400)
def nothing_is_lost_or_kept_in_a_storm(lab):
    run_storm(lab, 180 if lab.long else 8, 10)
