"""Every pairing of versions, {h1, h2} with and without TLS on the client's side and {h1, h2c} on the backend's, behind one face:
a test says what each end does and is run over all eight.  Calls are the client's exchanges, Parts the backend's."""
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from backend import Backend
from gateway import free_port
from h2wire import CANCEL, H2, NO_ERROR, SETTINGS, WINDOW, frame, settings
from lib import test
from wire import PATIENCE, Client, Ended, Failed, Head, Late, Response, Wire, check, equal
import ws

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "suites" / "common"))
import tlswire  # noqa: E402

TLS_HOST = "gw.test"
BIG = 1 << 20


def certificate(folder, name=TLS_HOST):
    """A key and a certificate of its own for name; the two paths."""
    cert, key = os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
    if not os.path.exists(cert):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7",
                        "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", key, "-out", cert],
                       check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return cert, key


class Pair:
    def __init__(self, client, tls, backend):
        self.client, self.tls, self.backend = client, tls, backend

    def __str__(self):
        return f"{self.client}{'+tls' if self.tls else ''} to {self.backend}"


PAIRS = [Pair(c, t, b) for c in ("h1", "h2") for t in (False, True) for b in ("h1", "h2")]


class Answer:
    """What a client was told.  whole: it ended as it should."""

    def __init__(self, status, fields, interim):
        self.status, self.fields, self.interim = status, [(n.lower(), v) for n, v in fields if not n.startswith(":")], interim
        self.body, self.trailers, self.whole = b"", [], False

    def get(self, name, default=None):
        return next((v for n, v in self.fields if n == name), default)

    def all(self, name):
        return [v for n, v in self.fields if n == name]


def pairs_of(fields):
    return [tuple(x.strip() for x in f.split(":", 1)) for f in fields]


# ---- the client's side

class Call1:
    """An exchange over HTTP/1.1 on a connection of its own, or one that is given."""

    def __init__(self, setup, pair, method, target, fields, length, wire=None):
        self.method, self.chunked = method, length == "chunked"
        self.wire = wire or setup.wire1(pair)
        lines = [f"{method} {target} HTTP/1.1", f"Host: {TLS_HOST}", *fields]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif length is not None:
            lines.append(f"Content-Length: {length}")
        self.wire.send("\r\n".join(lines) + "\r\n\r\n")
        self.seen = None

    def data(self, data, patience=20):
        self.wire.send(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)
        return self

    def end(self, trailers=()):
        if self.chunked:
            self.wire.send("0\r\n" + "".join(t + "\r\n" for t in trailers) + "\r\n")
        return self

    def reset(self):
        self.wire.rst()

    def leave(self):
        self.wire.close()

    def cut(self):
        """FIN, and TLS has not said so."""
        self.wire.sock.sock.shutdown(socket.SHUT_WR)

    def head(self, within=PATIENCE):
        interim = []
        while self.seen is None:
            r = Response(self.wire.until(b"\r\n\r\n", within))
            if 100 <= r.status < 200 and r.status != 101:
                interim.append((r.status, [(n.lower(), v) for n, v in r.fields]))
                continue
            self.raw, self.seen = r, Answer(r.status, r.fields, interim)
        return self.seen

    def some(self, within=PATIENCE):
        """At least a byte of the answer's body, as it lies on the wire."""
        self.head()
        if not self.wire.buf:
            self.wire.more(within)

    def finish(self):
        a = self.head()
        bodyless = self.method == "HEAD" or a.status in (101, 204, 304)
        self.wire.read_body(self.raw, bodyless)
        a.body, a.whole = self.raw.body, self.raw.whole
        a.trailers = [(n.lower(), v) for n, v in self.raw.trailers]
        return a

    # in a tunnel
    def tx(self, data):
        self.wire.send(data)
        return self

    def rx(self, least=1, within=PATIENCE):
        """What has come, at least so many bytes; b"" at a clean end."""
        with contextlib.suppress(Ended):
            while len(self.wire.buf) < least:
                try:
                    self.wire.more(within)
                except Ended as e:
                    if str(e) != "fin":
                        raise Failed("the tunnel was cut") from e
                    raise
        out, self.wire.buf = self.wire.buf, b""
        return out

    def fin(self):
        self.wire.fin()
        return self

    def over(self, within=PATIENCE):
        return self.wire.ending(within) != "late"


class Call2:
    """An exchange over HTTP/2, on a connection of its own or one that is given."""

    def __init__(self, setup, pair, method, target, fields, length, conn=None, protocol=None):
        self.method = method
        self.conn = conn or setup.conn2(pair)
        head = [(":method", method), (":scheme", "https" if pair.tls else "http"), (":path", target), (":authority", TLS_HOST)]
        if protocol:
            head.insert(1, (":protocol", protocol))
        head += [(n.lower(), v) for n, v in pairs_of(fields)]
        if isinstance(length, int):
            head.append(("content-length", str(length)))
        self.stream = self.conn.open(head, end=length is None and not protocol)
        self.answer, self.index = None, 0

    def data(self, data, patience=20):
        self.stream.send(data, patience=patience)
        return self

    def end(self, trailers=()):
        if self.stream.sent_end:
            return self
        if trailers:
            self.stream.head([(n.lower(), v) for n, v in pairs_of(trailers)], end=True)
        else:
            self.stream.send(b"", end=True)
        return self

    def reset(self):
        self.stream.reset(CANCEL)

    def leave(self):
        self.conn.close()

    def cut(self):
        """FIN, and TLS has not said so."""
        self.conn.sock.sock.shutdown(socket.SHUT_WR)

    def head(self, within=PATIENCE):
        interim = []
        while self.answer is None:
            fields = self.stream.next_head(self.index, "head", within)
            self.index += 1
            status = int(dict(fields)[":status"])
            if status < 200:
                check(status != 101, "101 on HTTP/2")
                interim.append((status, [f for f in fields if f[0][0] != ":"]))
                continue
            self.answer = Answer(status, fields, interim)
        return self.answer

    def some(self, within=PATIENCE):
        self.head()
        self.stream.wait(lambda: self.stream.data, "body", within)

    def finish(self):
        a = self.head()
        with contextlib.suppress(Late):
            a.body = self.stream.read()
        a.whole = self.stream.whole or (self.stream.ended and self.stream.rst in (NO_ERROR, CANCEL))
        if len(self.stream.heads) > self.index:
            a.trailers = self.stream.heads[self.index]
        if a.get("content-length") and self.method != "HEAD" and a.status not in (204, 304) and a.whole:
            equal(len(a.body), int(a.get("content-length")), "bytes of the body against content-length")
        check(not self.conn.faults, "on HTTP/2:", self.conn.faults)
        return a

    def tx(self, data):
        self.stream.send(data)
        return self

    def rx(self, least=1, within=PATIENCE):
        out = self.stream.take(least, within=within)
        if not out and not self.stream.ended:
            raise Failed(f"the tunnel was cut: reset {self.stream.rst}, {self.conn.dead}")
        return out

    def fin(self):
        self.stream.send(b"", end=True)
        return self

    def over(self, within=PATIENCE):
        return self.stream.over_within(within)


class TlsClient(Client):
    """A client of the TLS listener."""

    def __init__(self, port, alpn=("http/1.1",), rcvbuf=0, name=TLS_HOST):
        Client.__init__(self, port, rcvbuf=rcvbuf)
        self.sock = tlswire.TlsSocket(self.sock, tlswire.context(alpn), name, strict=True)


# ---- the backend's side

class Part:
    """What both versions have."""
    tunnel = False

    def get(self, name, default=None):
        return next((v for n, v in self.fields if n == name), default)

    def all(self, name):
        return [v for n, v in self.fields if n == name]

    def answer(self, status=200, *fields, body=b"", trailers=(), how="length"):
        """Head, body and end at once."""
        self.head(status, *fields, how=how, length=len(body), end=not body and not trailers and how == "length")
        if self.method != "HEAD" and status not in (204, 304):
            if body:
                self.data(body)
            self.end(trailers)
        return self


class Part1(Part):
    def __init__(self, conn, head):
        self.conn, self.version, self.how = conn, "h1", None
        self.method, self.target = head.method, head.target
        self.raw, self.fields = head, [(n.lower(), v) for n, v in head.fields]
        self.kind, self.length = head.framing(False)
        self.is_over = self.was_read = False

    def body(self):
        self.was_read = True
        m = self.conn.read_body(self.raw, self.kind == "eof")
        if not m.whole:
            raise Ended(m.end)
        self.trailers = [(n.lower(), v) for n, v in m.trailers]
        return m.body

    def some(self):
        if not self.conn.buf:
            self.conn.more()

    def interim(self, status, *fields):
        self.conn.send("\r\n".join([f"HTTP/1.1 {status} X", *fields]) + "\r\n\r\n")

    def head(self, status, *fields, how="length", length=None, end=False):
        lines = [f"HTTP/1.{0 if how == 'eof' else 1} {status} X", *fields]
        if how == "length" and status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        elif how == "chunked":
            lines.append("Transfer-Encoding: chunked")
        self.how = how
        self.conn.send("\r\n".join(lines) + "\r\n\r\n")

    def data(self, data):
        self.conn.send(b"%x\r\n%s\r\n" % (len(data), data) if self.how == "chunked" else data)

    def end(self, trailers=()):
        if self.how == "chunked":
            self.conn.send("0\r\n" + "".join(t + "\r\n" for t in trailers) + "\r\n")
        elif self.how == "eof":
            self.conn.fin()
            self.is_over = True

    def reset(self):
        self.is_over = True
        self.conn.rst()

    def gone(self, within=PATIENCE):
        """True once the other side has given up."""
        self.is_over = True
        return self.conn.ending(within) != "late"

    def switch(self):
        self.tunnel = self.is_over = True
        self.conn.send(ws.switch(key=self.get("sec-websocket-key", ws.KEY)))

    def tx(self, data):
        self.conn.send(data)

    def rx(self, least=1, within=PATIENCE):
        with contextlib.suppress(Ended):
            while len(self.conn.buf) < least:
                self.conn.more(within)
        out, self.conn.buf = self.conn.buf, b""
        return out

    def fin(self):
        self.conn.fin()


class Part2(Part):
    def __init__(self, stream):
        self.stream, self.version, self.conn = stream, "h2", stream.conn
        self.fields = stream.next_head(0)
        self.method, self.target = self.get(":method"), self.get(":path")

    def body(self):
        out = self.stream.read()
        if not self.stream.whole:
            raise Ended(f"reset {self.stream.rst}")
        self.trailers = self.stream.heads[1] if len(self.stream.heads) > 1 else []
        return out

    def some(self):
        self.stream.wait(lambda: self.stream.data, "body")

    def interim(self, status, *fields):
        self.stream.head([(":status", str(status)), *[(n.lower(), v) for n, v in pairs_of(fields)]])

    def head(self, status, *fields, how="length", length=None, end=False):
        head = [(":status", str(status)), *[(n.lower(), v) for n, v in pairs_of(fields)]]
        if how == "length" and length is not None and status not in (204, 304):
            head.append(("content-length", str(length)))
        self.stream.head(head, end=end or self.method == "HEAD" or status in (204, 304))

    def data(self, data):
        self.stream.send(data)

    def end(self, trailers=()):
        if self.stream.sent_end:
            return
        if trailers:
            self.stream.head([(n.lower(), v) for n, v in pairs_of(trailers)], end=True)
        else:
            self.stream.send(b"", end=True)

    def reset(self):
        self.stream.reset(CANCEL)

    def gone(self, within=PATIENCE):
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.stream.rst is not None or self.conn.dead:
                return True
            with self.conn.cond:
                self.conn.cond.wait(0.05)
        return False

    def switch(self):
        self.tunnel = True
        self.stream.head([(":status", "200")])

    def tx(self, data):
        self.stream.send(data)

    def rx(self, least=1, within=PATIENCE):
        return self.stream.take(least, within=within)

    def fin(self):
        self.stream.send(b"", end=True)


def serves1(handler):
    """A script: every request of a connection is the handler's."""
    def script(conn):
        while not conn.closed:
            part = Part1(conn, conn.head())
            handler(part)
            if part.is_over or conn.closed:
                return
            if part.kind in ("length", "chunked") and not part.was_read:
                part.body()
    return script


def serves2(handler, ours=None, greet=None, conns=None):
    """A script: HTTP/2 by prior knowledge, each stream the handler's in a thread of its own; a connection that speaks HTTP/1.1
    is served so.  greet(h2): called with the connection before anything is read; conns: keeps them."""
    def script(conn):
        while len(conn.buf) < 3:
            conn.more(60)
        if not conn.buf.startswith(b"PRI"):
            serves1(handler)(conn)
            return
        h2 = H2(conn.sock, server=True, begin=False, on_stream=lambda s: threading.Thread(target=one, args=(s,), daemon=True).start())
        h2.ours.update(ours or {})
        h2.credit_at = max(1, h2.ours[WINDOW] // 4)
        h2.buf, conn.buf = conn.buf, b""
        conn.backend.h2.append(h2)
        h2.offer(frame(SETTINGS, 0, 0, settings(ours or {})))
        if greet:
            greet(h2)
        h2.run()
        conn.backend.faults += [Failed(f) for f in h2.faults]

    def one(stream):
        try:
            handler(Part2(stream))
        except (Ended, Late, OSError):
            pass
        except Exception as e:  # the test's to report
            stream.conn.faults.append(f"{type(e).__name__}: {e}")
    return script


class Setup:
    """A gateway with both listeners; sandbox sb1 speaks HTTP/1.1, sb2 HTTP/2, both do what the handler says."""

    def __init__(self, lab, handler, *flags, ours=None, greet=None, **how):
        self.lab = lab
        self.b1 = lab.backend(serves1(handler))
        self.b2 = lab.backend(serves2(handler, ours, greet))
        self.b2.h2 = []
        cert, key = certificate(lab.dir)
        self.tls_port = free_port()
        self.gw = lab.gateway(f"--tls-port={self.tls_port}", f"--tls-cert={cert}", f"--tls-key={key}", *flags,
                              routes={"sb1": self.b1, "sb2": h2c(self.b2)}, **how)
        self.rcvbuf = 0

    def path(self, pair, rest):
        return f"/sandboxes/{'sb1' if pair.backend == 'h1' else 'sb2'}/port/3000{rest}"

    def keep(self, peer):
        self.lab.peers.append(peer)
        return peer

    def wire1(self, pair):
        return self.keep(TlsClient(self.tls_port, rcvbuf=self.rcvbuf) if pair.tls else Client(self.gw.port, rcvbuf=self.rcvbuf))

    def conn2(self, pair, **how):
        """An HTTP/2 connection whose settings have been seen."""
        if pair.tls:
            c = TlsClient(self.tls_port, ("h2",), rcvbuf=self.rcvbuf)
            equal(c.sock.selected_alpn_protocol(), "h2", "ALPN")
        else:
            c = Client(self.gw.port, rcvbuf=self.rcvbuf)
        conn = self.keep(H2(c.sock, **how))
        conn.until(lambda: conn.peer, "SETTINGS")
        return conn

    def call(self, pair, method="GET", rest="/", *fields, length=None, **how):
        """A request's head.  length: None (no body), a number, or 'chunked'."""
        make = Call1 if pair.client == "h1" else Call2
        return make(self, pair, method, self.path(pair, rest), fields, length, **how)

    def ask(self, pair, method="GET", rest="/", *fields, body=None, **how):
        c = self.call(pair, method, rest, *fields, length=None if body is None else len(body), **how)
        if body is not None:
            with contextlib.suppress(Ended):    # an answer may be there before the body's end
                c.data(body).end()
        a = c.finish()
        c.leave() if not how else None
        return a

    def socket(self, pair, rest="/ws", *fields):
        """A WebSocket's handshake, whose answer is yet to come."""
        if pair.client == "h1":
            return self.call(pair, "GET", rest, *ws.fields(*fields))
        return self.call(pair, "CONNECT", rest, "sec-websocket-version: 13", *fields, protocol="websocket")


def h2c(backend, protocol="h2c"):
    """An entry whose port 3000 leads to a backend by this protocol."""
    return {"address": backend.host, "ports": {"3000": {"address": backend.address, "protocol": protocol}}}


def over_pairs(*ids, limit=120, which=PAIRS):
    """Registers a test that is run over the pairings, each named where it fails."""
    def register(run):
        def all_pairs(lab):
            run(lab, each)

        def each(do):
            for pair in which:
                try:
                    do(pair)
                except (Failed, Ended, Late) as e:
                    raise Failed(f"{pair}: {type(e).__name__ if not isinstance(e, Failed) else ''} {e}").with_traceback(e.__traceback__) from None
        all_pairs.__name__, all_pairs.__module__ = run.__name__, run.__module__
        return test(*ids, limit=limit)(all_pairs)
    return register
