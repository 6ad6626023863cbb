"""Servers and clients that speak HTTP/1.1 and HTTP/2 alike, clear or over TLS, so that one test can be put to every pair of
them.  A `Web` plays handler(asked) → Said for each request; `H1Client` and `H2Client` ask in the same words and answer in the same."""
import contextlib
import select
import socket
import ssl
import threading
import time

from h2wire import H2, WINDOW
from origins import Origin
from wire import Client, Ended, Failed, Late, chunked, equal, request

BODYLESS = (204, 304)


class Asked:
    """A request as a server got it.  body and trailers are there when the handler is called; over: how it was cut, or None."""

    def __init__(self, conn, version, method, target, authority, fields):
        self.conn, self.version, self.method, self.target, self.authority, self.fields = conn, version, method, target, authority, fields
        self.body, self.trailers, self.over, self.at = b"", [], None, time.monotonic()

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name, default=None):
        found = self.all(name)
        return found[0] if found else default

    def has(self, name):
        return bool(self.all(name))

    def __repr__(self):
        return f"{self.version} {self.method} {self.target} {self.fields}"


class Said:
    """An answer.  fields: 'Name: value'.  body: bytes, or an iterable of pieces that are sent one by one (chunked).  interim:
    [(status, fields)].  raw: these bytes instead of all that (HTTP/1).  then: 'keep', 'close' or 'cut' (no proper end)."""

    def __init__(self, status=200, *fields, body=b"", trailers=(), interim=(), reason="X", raw=None, then="keep"):
        self.status, self.fields, self.body, self.trailers = status, fields, body, trailers
        self.interim, self.reason, self.raw, self.then = interim, reason, raw, then

    def pairs(self, lower=False):
        return split(self.fields, lower)


def split(fields, lower=False):
    out = []
    for f in fields:
        name, _, value = f.partition(":")
        out.append((name.lower() if lower else name, value.strip()))
    return out


def reflect(q):
    """Says back what came: in a field, in the body, in a trailer."""
    said = q.get("authorization", "-")
    return Said(200, f"X-Echo: {said}", "Content-Type: text/plain", body=[f"<{said}|{q.target}|".encode(), q.body, b">"],
                trailers=[f"X-Late: {said}"])


class Shared:
    """A TLS socket that one thread reads while another writes; the library allows only one at a time."""

    def __init__(self, sock):
        self.sock, self.lock, self.timeout = sock, threading.Lock(), 60
        sock.setblocking(False)

    def __getattr__(self, name):
        return getattr(self.sock, name)

    def settimeout(self, seconds):
        self.timeout = seconds

    def again(self, what, end):
        """Calls it until it does not want to wait."""
        while True:
            events = select.POLLIN
            with self.lock:
                try:
                    return what()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLWantWriteError:
                    events = select.POLLOUT
            left = end - time.monotonic()
            poll = select.poll()
            poll.register(self.sock, events)
            if left <= 0:
                raise TimeoutError
            poll.poll(min(left, 5) * 1000)

    def recv(self, n):
        return self.again(lambda: self.sock.recv(n), time.monotonic() + self.timeout)

    def sendall(self, data):
        view, end = memoryview(data), time.monotonic() + self.timeout
        while len(view):
            n = self.again(lambda: self.sock.send(view), end)
            view = view[n:]


class Web(Origin):
    """A server at one outside address and port.  asked: every request whose head came, in order; snis, conns as of an Origin.
    eager: the handler is called with the head alone, and reads asked.stream (HTTP/2) or asked.conn (HTTP/1) by itself.
    h2_only: a hello that does not offer HTTP/2 is answered with the alert for it, as real servers do."""

    def __init__(self, address, port=443, handler=None, tls=None, window=1 << 20, eager=False, h2_only=False):
        self.handler, self.asked, self.window, self.eager, self.h2_only = handler or reflect, [], window, eager, h2_only
        super().__init__(address, port, self.play, tls)

    @property
    def last(self):
        if not self.asked:
            raise Failed("the origin got no request")
        return self.asked[-1]

    def serve(self, sock):
        if self.h2_only and not self.offers_h2(sock):
            with contextlib.suppress(OSError):
                sock.sendall(b"\x15\x03\x03\0\2\2\x78")     # no_application_protocol
                sock.recv(65536)
            sock.close()
            return
        super().serve(sock)

    @staticmethod
    def offers_h2(sock):
        sock.settimeout(20)
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], "big"):
                more = sock.recv(65536, socket.MSG_PEEK)
                if len(more) == len(data):
                    return True
                data = more
        return b"\x02h2" in data

    def play(self, conn):
        spoken = conn.sock.selected_alpn_protocol() if self.tls else None
        if spoken == "h2":
            self.play_h2(conn)
        else:
            self.play_h1(conn)

    # -- HTTP/1.1
    def play_h1(self, conn):
        conn.patience = 600
        while True:
            try:
                r = conn.head()
            except ValueError:  # not HTTP/1
                return
            q = Asked(conn, r.version, r.method, r.target, r.get("host"), r.fields)
            self.asked.append(q)
            if not self.eager:
                if (q.get("expect") or "").lower() == "100-continue":
                    conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                kind, _ = r.framing(False)
                conn.read_body(r, kind == "eof")
                q.body, q.trailers, q.over = r.body, list(r.trailers), None if r.whole else r.end
            if not self.say_h1(conn, q, self.handler(q)):
                return

    @staticmethod
    def say_h1(conn, q, said):
        if said is None:
            return False
        if said.raw is not None:
            conn.send(said.raw)
            return said.then == "keep"
        for status, fields in said.interim:
            conn.send(("\r\n".join([f"HTTP/1.1 {status} X", *fields]) + "\r\n\r\n").encode("utf-8"))
        pieces = not isinstance(said.body, bytes)
        lines = [f"HTTP/1.1 {said.status} {said.reason}", *said.fields]
        named = {n.lower() for n, _ in said.pairs()}
        bare = q.method == "HEAD" or said.status in BODYLESS
        if pieces or said.trailers:
            lines.append("Transfer-Encoding: chunked")
        elif not bare and not named & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(said.body)}")
        conn.send(("\r\n".join(lines) + "\r\n\r\n").encode("utf-8"))
        if bare:
            return said.then == "keep"
        if pieces or said.trailers:
            for p in said.body if pieces else [said.body]:
                if p:
                    conn.send(chunked(p, last=False))
            if said.then != "cut":
                conn.send(b"0\r\n" + "".join(t + "\r\n" for t in said.trailers).encode("utf-8") + b"\r\n")
        else:
            conn.send(said.body)
        return said.then == "keep"

    # -- HTTP/2
    def play_h2(self, conn):
        h = H2(Shared(conn.sock), server=True, ours={WINDOW: self.window},
               on_stream=lambda s: threading.Thread(target=self.play_stream, args=(conn, s), daemon=True).start())
        conn.h2 = h
        h.ending(3600)
        self.faults += [Failed(f"HTTP/2 at the origin: {f}") for f in h.faults]

    def play_stream(self, conn, s):
        try:
            fields = dict_first(s.heads[0])
            q = Asked(conn, "HTTP/2", fields.get(":method"), fields.get(":path"), fields.get(":authority"),
                      [(n, v) for n, v in s.heads[0] if not n.startswith(":")])
            q.stream = s
            self.asked.append(q)
            if not self.eager:
                q.body = s.read(600)
                q.over = None if s.whole else f"reset {s.rst}" if s.rst is not None else "cut"
                q.trailers = [p for head in s.heads[1:] for p in head]
            self.say_h2(s, q, self.handler(q))
        except (Ended, Late, OSError):
            pass
        except Exception as e:  # what a handler finds wrong is the test's to report
            self.faults.append(e)

    @staticmethod
    def say_h2(s, q, said):
        if said is None:
            return
        for status, fields in said.interim:
            s.head([(":status", str(status)), *split(fields, True)])
        bare = q.method == "HEAD" or said.status in BODYLESS
        fields = [(n, v) for n, v in said.pairs(True) if n not in ("connection", "transfer-encoding", "trailer")]
        pieces = [p for p in said.body if p] if isinstance(said.body, (list, tuple)) else said.body
        if isinstance(said.body, bytes) and not bare and not said.trailers and "content-length" not in {n for n, _ in fields}:
            fields.append(("content-length", str(len(said.body))))
        empty = bare or not pieces
        s.head([(":status", str(said.status)), *fields], end=empty and not said.trailers)
        if not bare:
            for p in [said.body] if isinstance(said.body, bytes) else said.body:
                if p:
                    s.send(p, patience=600)
        if said.then == "cut":
            s.reset(2)
        elif said.trailers and not bare:
            s.head(split(said.trailers, True), end=True)
        elif not s.sent_end:
            s.send(b"", end=True)


def dict_first(pairs):
    out = {}
    for n, v in pairs:
        out.setdefault(n, v)
    return out


# ---- clients

class H1Client(Client):
    """A client of HTTP/1.1 on a socket that is there already."""
    version = "h1"

    def __init__(self, sock, host):
        super(Client, self).__init__(sock)
        self.host, self.patience = host, 20

    def ask(self, method, target, *fields, body=None, host=None, trailers=None, version="HTTP/1.1"):
        """body: bytes, or a list of pieces, sent as chunks; trailers ('Name: value') make it chunked as well."""
        pieces = [body or b""] if trailers and not isinstance(body, list) else body if isinstance(body, list) else None
        framing = ["Transfer-Encoding: chunked"] if pieces is not None else []
        head = request(method, target, *fields, *framing, body=None if pieces is not None else body,
                       host=self.host if host is None else host, version=version)
        self.send(head)
        if pieces is not None:
            for p in pieces:
                self.offer(chunked(p, last=False) if p else b"")
            self.offer(chunked(trailers="".join(t + "\r\n" for t in trailers or ())))
        return self.response(method)


class H2Answer:
    """Like wire.Response."""

    def __init__(self, stream, within=20):
        self.interim, self.trailers, self.body, index = [], [], b"", 0
        while True:
            self.fields = stream.next_head(index, within=within)
            self.status = int(dict_first(self.fields)[":status"])
            if self.status >= 200:
                break
            self.interim.append(self)
            index += 1
        self.raw = repr(self.fields).encode()
        self.body = stream.read(within)
        self.trailers = [p for head in stream.heads[index + 1:] for p in head]
        self.end = "whole" if stream.ended else f"reset {stream.rst}" if stream.rst is not None else str(stream.conn.dead)
        self.rst = stream.rst

    whole = property(lambda self: self.end == "whole")
    text = property(lambda self: self.body.decode("utf-8"))

    def all(self, name):
        return [v for n, v in self.fields if n == name.lower()]

    def get(self, name, default=None):
        found = self.all(name)
        return found[0] if found else default

    def has(self, name):
        return bool(self.all(name))


class H2Client:
    """A client of HTTP/2 on a TLS connection."""
    version = "h2"

    def __init__(self, sock, host, window=1 << 20):
        self.sock, self.host = Shared(sock), host
        equal(sock.selected_alpn_protocol(), "h2", "the protocol chosen")
        self.h2 = H2(self.sock, ours={WINDOW: window})

    def open(self, method, target, *fields, host=None, end=True, scheme="https"):
        """A stream whose head is sent.  host: the `:authority`; False: none."""
        authority = [] if host is False else [(":authority", self.host if host is None else host)]
        return self.h2.open([(":method", method), (":scheme", scheme), *authority, (":path", target), *split(fields, True)], end)

    def ask(self, method, target, *fields, body=None, host=None, trailers=None):
        s = self.open(method, target, *fields, host=host, end=body is None and not trailers)
        pieces = body if isinstance(body, list) else [] if body is None else [body]
        with contextlib.suppress(Ended):
            for i, p in enumerate(pieces):
                s.send(p, end=i == len(pieces) - 1 and not trailers)
            if trailers:
                s.head(split(trailers, True), end=True)
        return H2Answer(s)

    def ending(self, within=20):
        return self.h2.ending(within)

    def close(self):
        self.h2.close()


__all__ = ["Asked", "H1Client", "H2Answer", "H2Client", "Said", "Shared", "Web", "reflect", "split"]
