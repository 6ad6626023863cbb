"""HTTP/2 as frames, for either end of a connection: what a test says is what is sent, what comes is judged by the letter.  A
thread reads; the test's threads wait for what they want to see.  Only HPACK is a library's (python3-hpack), since a mistake
there breaks the connection and hides nothing."""
import contextlib
import socket
import struct
import threading
import time

import hpack

from wire import PATIENCE, Ended, Failed, Late, check

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINUP, CONT = range(10)
(NO_ERROR, PROTOCOL, INTERNAL, FLOW, SETTO, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION, CONNECT, CALM) = range(12)
TABLE, ENABLE_PUSH, MAX_STREAMS, WINDOW, MAX_FRAME, MAX_LIST, EXTENDED = 1, 2, 3, 4, 5, 6, 8
END_STREAM, ACK, END_HEADERS, PADDED, PRIO = 1, 1, 4, 8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NAMES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION")
HOP = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host"}


def frame(kind, flags, sid, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", sid) + payload


def u32(n):
    return struct.pack(">I", n)


def settings(values):
    return b"".join(struct.pack(">HI", k, v) for k, v in values.items())


def form(fields, request):
    """What is wrong with a received field section, or None."""
    regular = False
    for name, value in fields:
        if name != name.lower():
            return f"the name {name!r} is not in lower case"
        if name.startswith(":"):
            if regular:
                return f"{name} after a regular field"
        else:
            regular = True
        if name in HOP and (name != "host" or not request):
            return f"a connection-specific field {name}: {value!r}"
        if name == "te" and value != "trailers":
            return f"te: {value!r}"
        if any(c in value for c in "\r\n\0") or value != value.strip(" \t"):
            return f"a value {value!r}"
    names = [n for n, _ in fields]
    return next((f"{n} twice" for n in names if n.startswith(":") and names.count(n) > 1), None)


class Stream:
    """One exchange.  Bytes that the test has not taken keep the peer's window down."""

    def __init__(self, conn, sid):
        self.conn, self.id, self.cond = conn, sid, conn.cond
        self.window = conn.peer.get(WINDOW, 65535)
        self.heads, self.data, self.n, self.ended, self.rst, self.sent_end, self.uncredited = [], bytearray(), 0, False, None, False, 0
        self.at = None          # when END_STREAM or RST_STREAM came

    # -- out
    def head(self, fields, end=False, **how):
        """fields: pairs, or 'name: value'."""
        pairs = [f if isinstance(f, tuple) else tuple(x.strip() for x in f.split(":", 1)) for f in fields]
        self.conn.head(self.id, pairs, end, **how)
        self.sent_end = self.sent_end or end
        return self

    def send(self, data=b"", end=False, patience=20):
        """DATA as the windows allow."""
        view, limit = memoryview(data), time.monotonic() + patience
        while True:
            with self.cond:
                while len(view) and min(self.window, self.conn.window) <= 0:
                    self.over()
                    if not self.cond.wait(max(0.001, limit - time.monotonic())) and time.monotonic() > limit:
                        raise Late("the peer opens no window")
                self.over()
                n = min(len(view), self.window, self.conn.window, self.conn.peer.get(MAX_FRAME, 16384)) if len(view) else 0
                self.window -= n
                self.conn.window -= n
            last = end and n == len(view)
            self.conn.f(DATA, END_STREAM if last else 0, self.id, bytes(view[:n]))
            view = view[n:]
            if not len(view):
                self.sent_end = self.sent_end or end
                return self

    def over(self):
        if self.rst is not None:
            raise Ended(f"reset {self.rst}")
        if self.conn.dead:
            raise Ended(self.conn.dead)

    def reset(self, code=CANCEL):
        self.sent_end = True
        self.conn.f(RST, 0, self.id, u32(code))
        return self

    # -- in
    def wait(self, question, what, within=PATIENCE):
        """Until question() is true, or the stream is over; True if it is."""
        end = time.monotonic() + within
        with self.cond:
            while not question():
                if self.ended or self.rst is not None or self.conn.dead:
                    return bool(question())
                left = end - time.monotonic()
                if left <= 0:
                    raise Late(f"no {what} on stream {self.id}")
                self.cond.wait(left)
        return True

    def next_head(self, index, what="head", within=PATIENCE):
        """The head number index as pairs."""
        if not self.wait(lambda: len(self.heads) > index, what, within):
            raise Ended(f"reset {self.rst}" if self.rst is not None else self.conn.dead or "fin")
        check(not self.conn.faults, "on HTTP/2:", self.conn.faults)
        return self.heads[index]

    def take(self, least=1, most=1 << 30, within=PATIENCE):
        """Body bytes; b"" at the end."""
        self.wait(lambda: len(self.data) >= least, f"{least} bytes", within)
        with self.cond:
            out = bytes(self.data[:most])
            del self.data[:most]
            self.uncredited += len(out)
            n = self.uncredited if self.uncredited >= self.conn.credit_at or (not self.data and self.uncredited) else 0
            self.uncredited -= n
            over = self.ended or self.rst is not None
        if n and not over:
            self.conn.offer(frame(WINUP, 0, self.id, u32(n)))
        return out

    def read(self, within=PATIENCE):
        """All that is left of the body."""
        parts = []
        while (part := self.take(within=within)):
            parts.append(part)
        return b"".join(parts)

    @property
    def whole(self):
        return self.ended and self.rst is None

    def over_within(self, within=PATIENCE):
        """True when it has ended or was reset within that time."""
        with contextlib.suppress(Late):
            self.wait(lambda: False, "end", within)
            return True
        return False


class H2:
    """One end of a connection."""

    def __init__(self, sock, server=False, ours=None, preface=None, on_stream=None, ack=True, begin=True):
        self.sock, self.server, self.on_stream, self.ack = sock, server, on_stream, ack
        self.ours = {WINDOW: 65535, **(ours or {})}
        self.cond, self.out_lock = threading.Condition(), threading.RLock()
        self.enc, self.dec = hpack.Encoder(), hpack.Decoder()
        self.dec.max_header_list_size = 1 << 24
        self.peer, self.streams, self.seen, self.faults = {}, {}, [], []
        self.window, self.goaway, self.dead, self.next_id, self.acks, self.pongs = 65535, None, None, 1, 0, []
        self.credit_at = max(1, self.ours[WINDOW] // 4)
        self.buf, self.at, self.reply = b"", 0, b""
        sock.settimeout(60)
        if begin:
            first = b"" if server else PREFACE if preface is None else preface
            self.offer(first + frame(SETTINGS, 0, 0, settings(ours or {})))
            threading.Thread(target=self.run, daemon=True).start()

    # -- out
    def send(self, data):
        with self.out_lock:
            try:
                self.sock.sendall(data)
            except TimeoutError as e:
                raise Late("the peer takes no more bytes") from e
            except (OSError, ValueError) as e:
                raise Ended("reset") from e
        return self

    def offer(self, data):
        with contextlib.suppress(Ended, Late):
            self.send(data)
        return self

    def f(self, kind, flags, sid, payload=b""):
        return self.send(frame(kind, flags, sid, payload))

    def head(self, sid, pairs, end=False, huge=16384):
        with self.out_lock:
            block = self.enc.encode(pairs, huffman=True)
            rest = block[huge:]
            self.f(HEADERS, (END_STREAM if end else 0) | (0 if rest else END_HEADERS), sid, block[:huge])
            while rest:
                part, rest = rest[:huge], rest[huge:]
                self.f(CONT, 0 if rest else END_HEADERS, sid, part)

    def open(self, pairs=(), end=False, sid=None):
        """A client's new stream, its head sent if there are fields."""
        with self.out_lock:
            with self.cond:
                s = Stream(self, sid or self.next_id)
                self.next_id = max(self.next_id, s.id) + 2
                self.streams[s.id] = s
            if pairs:
                s.head(pairs, end)
        return s

    def ping(self, within=PATIENCE):
        """There and back, so that what was sent before has been read."""
        mark = struct.pack(">d", time.monotonic())
        self.f(PING, 0, 0, mark)
        self.until(lambda: mark in self.pongs, "PING back", within)
        return self

    def until(self, question, what, within=PATIENCE):
        end = time.monotonic() + within
        with self.cond:
            while not question():
                if self.dead:
                    raise Ended(self.dead)
                left = end - time.monotonic()
                if left <= 0:
                    raise Late(what)
                self.cond.wait(left)
        return self

    def ending(self, within=PATIENCE):
        """How the connection ends: 'fin', 'reset', or 'late'."""
        with contextlib.suppress(Late, Ended):
            self.until(lambda: self.dead, "end", within)
        return self.dead or "late"

    def close(self):
        """Ends it, also under the thread that reads."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # -- in
    def run(self):
        try:
            if self.server:
                check(self.exact(24) == PREFACE, "a preface that is none:", self.buf[:24])
            while True:
                head = self.exact(9)
                n, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                sid = int.from_bytes(head[5:9], "big") & 0x7fffffff
                if n > self.ours.get(MAX_FRAME, 16384):
                    raise Failed(f"a frame of {n} bytes")
                self.got(kind, flags, sid, self.exact(n))
        except Ended as e:
            self.die(str(e))
        except Exception as e:  # what is wrong with the peer is the test's to report
            self.faults.append(f"{type(e).__name__}: {e}")
            self.die("reset")

    def exact(self, n):
        while len(self.buf) - self.at < n:
            try:
                data = self.sock.recv(262144)
            except TimeoutError:
                continue
            except (OSError, ValueError) as e:
                raise Ended("reset") from e
            if not data:
                raise Ended("fin")
            self.buf, self.at = self.buf[self.at:] + data, 0
        self.at += n
        return self.buf[self.at - n:self.at]

    def die(self, how):
        with self.cond:
            self.dead = how
            self.cond.notify_all()

    def got(self, kind, flags, sid, p):
        fresh = None
        with self.cond:
            self.seen.append((kind, flags, sid, len(p)))
            if kind == SETTINGS:
                self.got_settings(flags, p)
            elif kind == PING:
                if flags & ACK:
                    self.pongs.append(p)
                elif self.ack:
                    self.reply += frame(PING, ACK, 0, p)
            elif kind == GOAWAY:
                self.goaway = (int.from_bytes(p[:4], "big") & 0x7fffffff, int.from_bytes(p[4:8], "big"))
            elif kind == WINUP:
                self.got_window(sid, int.from_bytes(p, "big"))
            elif kind in (HEADERS, CONT):
                fresh = self.got_headers(kind, flags, sid, p)
            elif kind == DATA:
                self.got_data(flags, sid, p)
            elif kind == RST and sid in self.streams:
                s = self.streams[sid]
                s.rst, s.at = int.from_bytes(p, "big"), time.monotonic()
            self.cond.notify_all()
        if self.reply:      # without the lock: who writes may wait for it
            self.offer(self.reply)
            self.reply = b""
        if fresh and self.on_stream:
            self.on_stream(fresh)

    def got_settings(self, flags, p):
        if flags & ACK:
            self.acks += 1
            return
        for at in range(0, len(p) - 5, 6):
            k, v = struct.unpack(">HI", p[at:at + 6])
            if k == WINDOW:
                for s in self.streams.values():
                    s.window += v - self.peer.get(WINDOW, 65535)
            if k == TABLE:
                self.enc.header_table_size = min(v, 4096)
            self.peer[k] = v
        self.peer.setdefault(0, True)   # settings have come
        if self.ack:
            self.reply += frame(SETTINGS, ACK, 0)

    def got_window(self, sid, n):
        if sid == 0:
            self.window += n
            check(self.window < 1 << 31, "the connection's window is too large")
        elif sid in self.streams:
            self.streams[sid].window += n

    def got_headers(self, kind, flags, sid, p):
        if kind == HEADERS:
            if flags & PADDED:
                p = p[1:len(p) - p[0]]
            if flags & PRIO:
                p = p[5:]
            self.block, self.block_flags = b"", flags
        self.block += p
        if not flags & END_HEADERS:
            return None
        fields = [(k, v) for k, v in self.dec.decode(self.block)]
        wrong = form(fields, self.server)
        if wrong:
            self.faults.append(wrong)
        fresh = None
        if sid not in self.streams and self.server:
            fresh = self.streams[sid] = Stream(self, sid)
        s = self.streams.get(sid)
        if s:
            s.heads.append(fields)
            if self.block_flags & END_STREAM:
                s.ended, s.at = True, time.monotonic()
        return fresh

    def got_data(self, flags, sid, p):
        n = len(p)
        if flags & PADDED:
            p = p[1:len(p) - p[0]]
        s = self.streams.get(sid)
        if s and not s.ended and s.rst is None:
            s.data += p
            s.n += len(p)
            s.uncredited += n - len(p)
            if flags & END_STREAM:
                s.ended, s.at = True, time.monotonic()
        if n:
            self.reply += frame(WINUP, 0, 0, u32(n))
