"""HTTP/1.1 as bytes: what a test writes is what is sent, what a test reads is judged by the letter.  Nothing here repairs or
guesses; a head with two framings, a bare LF or a chunk line of doubtful form is a fault wherever it is seen."""
import contextlib
import json
import re
import socket
import struct
import time

PATIENCE = 8.0


class Failed(Exception):
    """What was seen is not what should be."""


class Skipped(Exception):
    """This machine cannot run the test; the text says why."""


class Ended(Exception):
    """The peer ended the connection; text: 'fin' or 'reset'."""


class Late(Exception):
    """Nothing came in time."""


def check(condition, *text):
    if not condition:
        raise Failed(" ".join(str(t) for t in text))


def equal(seen, wanted, what="value"):
    if seen != wanted:
        raise Failed(f"{what}: seen {short(seen)}, wanted {short(wanted)}")


def short(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:300]} … {text[-60:]} ({len(text)} characters)"


def wait_for(question, what, within=PATIENCE, every=0.01):
    """Asks until the answer is true; gives it back."""
    end = time.monotonic() + within
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failed(f"not within {within} s: {what}")
        time.sleep(every)


def took(run):
    """Seconds that a call needed, and its answer."""
    start = time.monotonic()
    answer = run()
    return time.monotonic() - start, answer


def soon(run, limit, what, tries=3):
    """run() gives seconds; the best of three must be below the limit, since others may need the machine now and then."""
    seen = []
    for _ in range(tries):
        seen.append(run())
        if seen[-1] < limit:
            return
    raise Failed(f"{what}: {min(seen):.3f} s at best, wanted less than {limit}")


class Head:
    """A start line and its fields, as received."""

    def __init__(self, raw):
        self.raw = raw
        lines = raw.split(b"\r\n")
        self.line = lines[0].decode("latin-1")
        self.fields = []
        for line in lines[1:]:
            if line:
                name, colon, value = line.decode("latin-1").partition(":")
                check(colon and name == name.strip(), "a field line that is none:", line)
                self.fields.append((name, value.strip(" \t")))
        check(b"\n" not in raw.replace(b"\r\n", b""), "a bare LF in a head:", raw)

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name, default=None):
        found = self.all(name)
        return found[0] if found else default

    def has(self, name):
        return bool(self.all(name))

    def framing(self, bodyless):
        """('none' | 'length' | 'chunked' | 'eof', length).  Two opinions about it are a fault wherever they are seen."""
        coding, lengths = self.all("transfer-encoding"), self.all("content-length")
        check(not (coding and lengths), "both framings in one head:", self.raw)
        check(len(lengths) < 2 and len(coding) < 2, "doubled framing field:", self.raw)
        if bodyless:
            return "none", 0
        if coding:
            equal(coding[0].lower(), "chunked", "transfer coding")
            return "chunked", -1
        if lengths:
            check(re.fullmatch("[0-9]+", lengths[0]), "content-length", lengths[0])
            return "length", int(lengths[0])
        return "eof", -1


class Message(Head):
    """A head with its body.  end: 'whole', or how it was cut: 'fin', 'reset', 'late'."""
    body = b""
    trailers = ()
    end = "whole"
    chunks = ()

    @property
    def whole(self):
        return self.end == "whole"


class Request(Message):
    def __init__(self, raw):
        super().__init__(raw)
        self.method, self.target, self.version = self.line.split(" ", 2)


class Response(Message):
    interim = ()

    def __init__(self, raw):
        super().__init__(raw)
        m = re.fullmatch(r"(HTTP/1\.[01]) ([0-9]{3})(?: (.*))?", self.line)
        check(m, "a status line that is none:", raw)
        self.version, self.status, self.reason = m[1], int(m[2]), m[3] or ""

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.body)


class Wire:
    """One end of a TCP connection: exact bytes out, everything that came in kept in `seen`."""

    def __init__(self, sock, patience=PATIENCE):
        self.sock = sock
        self.buf = b""
        self.seen = bytearray()
        self.sent_first = None
        self.patience = patience
        self.closed = False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # -- out
    def send(self, data):
        if isinstance(data, str):
            data = data.encode("latin-1")
        self.sock.settimeout(60)
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Ended("reset") from e
        except TimeoutError as e:
            raise Late("the peer takes no more bytes") from e
        return self

    def offer(self, data):
        """Sends what the peer still takes; its end is no fault."""
        with contextlib.suppress(Ended, OSError, Late):
            self.send(data)
        return self

    def fin(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        return self

    def rst(self):
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed = True
        self.sock.close()
        return self

    def close(self):
        """Ends it, also under a thread that reads from it."""
        self.fin()
        self.closed = True
        self.sock.close()

    # -- in
    def more(self, timeout=None):
        """At least one more byte into buf, or Ended, or Late."""
        self.sock.settimeout(self.patience if timeout is None else max(timeout, 0.001))
        try:
            data = self.sock.recv(262144)
        except TimeoutError as e:
            raise Late("no byte came") from e
        except (ConnectionResetError, BrokenPipeError) as e:
            raise Ended("reset") from e
        if not data:
            raise Ended("fin")
        self.buf += data
        self.seen += data

    def until(self, mark, timeout=None):
        end = time.monotonic() + (self.patience if timeout is None else timeout)
        while mark not in self.buf:
            self.more(end - time.monotonic())
        data, _, self.buf = self.buf.partition(mark)
        return data + mark

    def exact(self, n, timeout=None):
        end = time.monotonic() + (self.patience if timeout is None else timeout)
        while len(self.buf) < n:
            self.more(end - time.monotonic())
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def ending(self, within=None):
        """How the connection ends: 'fin', 'reset', or 'late' if it does not.  What comes before it stays in buf."""
        end = time.monotonic() + (self.patience if within is None else within)
        try:
            while True:
                self.more(end - time.monotonic())
        except Ended as e:
            return str(e)
        except Late:
            return "late"

    def silent(self, seconds):
        """True if nothing, not even an end, comes for so long."""
        try:
            self.more(seconds)
        except Late:
            return True
        except Ended:
            return False
        return False

    def read_body(self, m, bodyless):
        kind, length = m.framing(bodyless)
        try:
            if kind == "length":
                while len(self.buf) < length:
                    self.more()
                m.body, self.buf = self.buf[:length], self.buf[length:]
            elif kind == "chunked":
                self.read_chunks(m)
            elif kind == "eof":
                ending = self.ending()
                m.body, self.buf = self.buf, b""
                m.end = "whole" if ending == "fin" else ending
        except (Ended, Late) as e:
            m.end = str(e) if isinstance(e, Ended) else "late"
            if kind == "length":
                m.body, self.buf = self.buf, b""
        return m

    def read_chunks(self, m):
        m.chunks, parts = [], []
        try:
            while True:
                line = self.until(b"\r\n")
                check(re.fullmatch(rb"[0-9a-fA-F]{1,16}\r\n", line), "a chunk line that is none:", line)
                n = int(line, 16)
                if n == 0:
                    break
                data = self.exact(n + 2)
                equal(data[-2:], b"\r\n", "end of a chunk")
                m.chunks.append(n)
                parts.append(data[:-2])
            trailers = []
            while (line := self.until(b"\r\n")) != b"\r\n":
                name, _, value = line.decode("latin-1").rstrip("\r\n").partition(":")
                trailers.append((name, value.strip()))
            m.trailers = trailers
        finally:
            m.body = b"".join(parts)


class Client(Wire):
    """A client of the gateway; bytes as given."""

    def __init__(self, port, host="127.0.0.1", patience=PATIENCE, rcvbuf=0):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(patience)
        sock.connect((host, port))
        super().__init__(sock, patience)

    def head(self):
        """The next response head, interim ones included."""
        return Response(self.until(b"\r\n\r\n"))

    def response(self, method="GET"):
        """The next final response, its interim heads in .interim."""
        interim = []
        while True:
            r = self.head()
            if r.status == 101 or r.status >= 200:
                break
            interim.append(r)
        r.interim = interim
        bodyless = method == "HEAD" or r.status in (101, 204, 304) or (method == "CONNECT" and r.status < 300)
        return self.read_body(r, bodyless)

    def ask(self, method, target, *fields, body=None, host="gw.test", version="HTTP/1.1"):
        """One request; a body gets a Content-Length unless a field frames it."""
        self.send(request(method, target, *fields, body=body, host=host, version=version))
        return self.response(method)


def request(method, target, *fields, body=None, host="gw.test", version="HTTP/1.1"):
    """The bytes of a request.  fields: 'Name: value'."""
    lines = [f"{method} {target} {version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += fields
    framed = any(f.lower().startswith(("content-length:", "transfer-encoding:")) for f in fields)
    if body is not None and not framed:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1") + (body or b"")


def answer(status=200, *fields, body=b"", reason="X"):
    """The bytes of an answer with a length."""
    lines = [f"HTTP/1.1 {status} {reason}", *fields, f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def chunked(*parts, trailers="", last=True):
    """Parts as a chunked body."""
    out = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)
    return out + (b"0\r\n" + trailers.encode("latin-1") + b"\r\n" if last else b"")
