"""What the soak is made of: bodies that say the secret at places a number decides, origins that play them, times in which things
were broken on purpose, and a world whose clients look for secrets in all that comes."""
import contextlib
import hashlib
import os
import random
import socket
import ssl
import threading
import time

from bench import allow, check, closed, wait_for
from scrub_flow import coders
from vaulted import ADDRESSES, BOTH, Vaulted, binding, filled, vault
from webs import H1Client, H2Client, Said, Shared, Web
from wire import Client, Ended, Late

MARK, LENGTH = b"CANARY-", 30
NONE, STARS = b"-" * LENGTH, b"*" * LENGTH      # in place of a secret that did not come, or did not come back
PLACE = b"__PLACE_OF_SECRET__"
PATTERN = b"".join(hashlib.sha256(b"%d" % i).hexdigest().encode() for i in range(8192))     # 512 KiB
ROADS = (OSError, Ended, Late)
PROXY, REPLAYED, HELD = 3128, 65536, 1 << 20
MUTE = "198.51.100.77"      # mute.test takes connections and says nothing: who has to ask it first waits
POLICY = closed(allow("api.test"), allow("*.api.test"), allow("other.test"), allow("evil.test"), allow("mute.test"))


def fresh():
    return (MARK + os.urandom(20).hex().encode())[:LENGTH].decode()


def text_of(seed, size, value=STARS):
    """A body with the value at places that the seed decides."""
    r = random.Random(seed)
    at = r.randrange(len(PATTERN) // 2)
    data = bytearray((PATTERN[at:] * (size // (len(PATTERN) - at) + 1))[:size])
    n = min(r.randrange(1, 5), size // LENGTH)
    for i in range(n):      # each in a part of its own
        place = i * (size // n) + r.randrange(size // n - LENGTH + 1)
        data[place:place + LENGTH] = value
    return bytes(data)


def pieces_of(r, data):
    out, at = [], 0
    while at < len(data):
        n = r.choice((1, 7, 100, 1000, 16384, 60000)) if len(out) < 40 else len(data)
        out.append(data[at:at + n])
        at += n
    return out


# ---- the outside

def answers(q):
    """A handler.  The path says what: /v1/KIND/SEED/SIZE/CODING."""
    del q.conn.backend.asked[:-20], q.conn.backend.requests[:-20]
    q.conn.seen.clear()
    kind, seed, size, coding = q.target.split("/")[2:6]
    value = (q.get("authorization") or "").encode().removeprefix(b"Bearer ") or NONE
    return KINDS[kind](q, random.Random(int(seed)), text_of(int(seed), int(size), value), coding, value)


def said(r, value, coding, body, **how):
    more = [] if coding == "identity" else [f"Content-Encoding: {coding}"]
    if not isinstance(body, bytes) and how.get("then") != "cut":
        how["trailers"] = [f"X-Late: {value.decode()}"]
    interim = [(103, [f"Link: <{value.decode()}>"])] if r.random() < 0.1 else ()
    return Said(200, f"X-Echo: {value.decode()}", "Content-Type: text/plain", *more, body=body, interim=interim, **how)


def says_get(_, r, text, coding, value):
    if coding == "identity" and r.random() < 0.4:
        return said(r, value, coding, text)
    return said(r, value, coding, pieces_of(r, coders()[coding][0](text)))


def says_last(_, r, text, coding, value):
    """Whole; and then the connection closes, which nobody was told."""
    return said(r, value, coding, text, then="close")


def says_cut(_, r, text, coding, value):
    data = coders()[coding][0](text)
    return said(r, value, coding, pieces_of(r, data[:r.randrange(1, len(data))]), then="cut")


def says_nothing(q, r, *_):
    """The connection goes without a byte of an answer."""
    if q.version == "HTTP/2":
        q.stream.reset(r.choice((2, 7)))


def says_events(_, r, text, coding, value):
    def slow():
        for i in range(10):
            yield b"data: %d %s\n\n" % (i, value)
            time.sleep(0.02)
    return Said(200, "Content-Type: text/event-stream", body=slow())


def takes_upload(q, r, text, coding, value):
    return None if q.over else said(r, value, coding, coders()[coding][0](hashlib.sha256(q.body).hexdigest().encode() + value))


def says_body(q, *_):
    return None if q.over else Said(200, body=q.body)


def speaks_frames(q, r, text, coding, value):
    if q.version == "HTTP/2":
        return Said(501)
    q.conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Echo: " + value + b"\r\n\r\n")
    with contextlib.suppress(Ended, Late):
        while True:
            q.conn.more(30)
            data, q.conn.buf = q.conn.buf, b""
            q.conn.send(data)
    return None


KINDS = {"get": says_get, "last": says_last, "cut": says_cut, "none": says_nothing, "events": says_events, "upload": takes_upload,
         "held": says_body, "ws": speaks_frames}


def end(sock):
    """Ends a socket under the threads that use it; its number is nobody else's before close()."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock.sock if isinstance(sock, Shared) else sock, socket.SHUT_RDWR)


class Stage(Web):
    """An origin that closes a connection when its threads are through with it."""

    def play_stream(self, conn, s):
        conn.hands = [*getattr(conn, "hands", ()), threading.current_thread()]
        super().play_stream(conn, s)

    def play_h2(self, conn):
        super().play_h2(conn)
        for t in getattr(conn, "hands", ()):
            t.join(30)

    def hang_up(self):
        for c in list(self.conns):
            if not isinstance(c, OSError):      # a handshake that failed
                end(c.sock)

    def close(self):
        self.stop()
        self.hang_up()


# ---- what may fail

class Windows:
    """Times in which something was broken on purpose: what ran then may have failed."""

    def __init__(self):
        self.lock, self.all, self.told = threading.Lock(), [], []

    @contextlib.contextmanager
    def broken(self, *whats):
        mine = [whats, time.monotonic(), None]
        with self.lock:
            self.all = self.all[-400:] + [mine]
        try:
            yield
        finally:
            mine[2] = time.monotonic()

    def met(self, what, since, until=None):
        """Was it broken at any time from `since` on (until `until`)?"""
        with self.lock:
            return any(what in whats and (over is None or over >= since) and (until is None or begun <= until)
                       for whats, begun, over in self.all)

    def tell(self, what):
        """For whoever reads a fault."""
        self.told = self.told[-30:] + [(time.monotonic(), what)]

    def before(self, seconds=3):
        now = time.monotonic()
        return " ".join(f"{what}@-{now - at:.2f}" for at, what in self.told if now - at < seconds)


# ---- the world

class Soaking(Vaulted):
    """wrong: what must not have been.  counts: of each kind, done and not."""

    def __init__(self, lab):
        self.secrets, self.windows, self.random = [fresh()], Windows(), random.Random()
        self.wrong, self.counts, self.coded = [], {}, sorted(coders())
        super().__init__(lab, handler=answers, supervised=True, PROXY_ADDR=f"127.0.0.1:{PROXY}", body=self.body(), DRAIN_TIMEOUT="3",
                         rules=POLICY, zone={"mute.test": {"A": [MUTE]}})
        self.w.recorder.close()
        self.w.origin(MUTE, 443, lambda c: c.ending(3600))
        self.learn("mute.test")
        self.again("api.test")
        self.again("other.test", ("http/1.1",))

    def body(self, *hosts):
        hosts = hosts or ("api.test", "other.test", "mute.test")
        return vault(binding(hosts=hosts), filled(PLACE.decode(), "body", name="f", paths=["/held/*"], hosts=hosts), k=self.secrets[-1])

    def again(self, name, alpn=BOTH):
        """An origin anew; every connection to it is cut."""
        old = self.web[name]
        context, alpns = getattr(old, "kept", (None, None))
        if alpns != alpn:
            context = self.w.ca.server(name, "*." + name, alpn=alpn)
        old.close()
        self.w.things.remove(old)
        wait_for(lambda: self.listens(name, context), "the port is free again", 20)
        self.web[name].kept = (context, alpn)

    def listens(self, name, context):
        with contextlib.suppress(OSError):
            self.web[name] = self.w.keep(Stage(ADDRESSES[name], 443, answers, context))
            return True
        return False

    def trim(self):
        """What the harness remembers of hours."""
        for w in self.web.values():
            w.conns[:] = [c for c in w.conns if not getattr(c, "closed", True)]
            w.snis.clear()
        self.w.things[:] = [t for t in self.w.things if not (hasattr(t, "fileno") and t.fileno() < 0)]

    # -- clients
    def sock(self, name):
        with self.w.inside():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(20)
        try:
            s.connect((ADDRESSES.get(name, MUTE), 443))
        except OSError:
            s.close()
            raise
        return s

    def through(self, name):
        """The same through a tunnel of the explicit proxy."""
        with self.w.inside():
            c = Client(PROXY, "127.0.0.1")
        a = c.ask("CONNECT", f"{name}:443", host=f"{name}:443")
        if a.status != 200:
            c.close()
            raise Ended(f"CONNECT {a.status}")
        return c.sock

    def client(self, name=None, version=None, window=1 << 20, trust=None):
        """opened: when it was begun."""
        begun = time.monotonic()
        name = name or self.random.choice(("api.test", "other.test"))
        version = version or self.random.choice(("h1", "h2"))
        s = self.through(name) if self.random.random() < 0.25 else self.sock(name)
        try:
            how = {"context": ssl.create_default_context(cafile=trust)} if trust else {}
            s = self.handshake(name, sock=s, alpn=BOTH if version == "h2" else ("http/1.1",), **how)
        except BaseException:
            s.close()
            raise
        c = H2Client(s, name, window) if s.selected_alpn_protocol() == "h2" else H1Client(s, name)
        c.opened = begun
        return c

    def part(self, c, *threads):
        """Ends a client; its socket's number is not given back while a thread may still use it."""
        if c.version == "h1":
            self.clean("the wire", c.seen)
        end(c.sock)
        for t in threads:
            t.join(20)
        if c.version == "h2":
            c.ending(20)
        c.close()

    def hello(self, name):
        """A ClientHello that offers both protocols."""
        out, inn = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=self.theirs)
        context.set_alpn_protocols(BOTH)
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(inn, out, server_hostname=name).do_handshake()
        return out.read()

    # -- judging
    def fault(self, what, text):
        if len(self.wrong) < 50:
            self.wrong.append(f"{what}: {text} [{self.windows.before()}]")

    def clean(self, what, data):
        at = bytes(data).find(MARK)
        if at >= 0:
            self.fault(what, f"a secret: {bytes(data)[max(0, at - 40):at + 60]!r}")

    def lost(self, what, text, name, opened, begun):
        """It may only be lost while the worker, its origin or its permission was gone, or where its connection was made while
        the name was not bound."""
        w = self.windows
        if not (w.met("kill", begun) or w.met(name, begun) or w.met("vault", opened, time.monotonic() if opened == begun else opened)):
            self.fault(what, f"was lost: {text}")

    def judge(self, what, c, a, wanted, begun, coding="identity", again=True):
        """Looks for secrets in everything that came, then at what is whole.  wanted: the body, or several that may be; again:
        the request could be said again."""
        for held in (a.raw, a.body, repr(a.trailers).encode(), *[i.raw for i in a.interim if i is not a]):
            self.clean(what, held)
        if a.status != 200 or a.end != "whole":
            if again:
                self.lost(what, f"{a.status} {a.end} {a.body[:80]!r}", c.host, c.opened, begun)
            return False
        body = a.body
        if coding != "identity":
            check(a.get("content-encoding") == coding, what, "content-encoding", a.get("content-encoding"))
            body = coders()[coding][1](body)
            self.clean(what, body)
        unbound = self.windows.met("vault", begun) or self.windows.met("vault", c.opened, c.opened) or self.windows.met("kill", begun)
        if not unbound and (NONE in body or a.get("x-echo") == NONE.decode()):
            self.fault(what, "went without the credential")
        bodies = wanted if isinstance(wanted, tuple) else (wanted,)
        if body.replace(NONE, STARS) not in (*bodies, *((bodies[0].replace(STARS, PLACE),) if unbound else ())):
            at = next((i for i, (x, y) in enumerate(zip(body, bodies[0])) if x != y), min(len(body), len(bodies[0])))
            self.fault(what, f"another body: {len(body)} of {len(bodies[0])} bytes, from {at}: {body[at:at + 60]!r}")
        return (a.get("connection") or "").lower() != "close"

    def count(self, what, good):
        self.counts.setdefault(what, [0, 0])[0 if good else 1] += 1
