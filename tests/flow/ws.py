"""WebSocket ends for the flow tests: frames as bytes, a handshake that is checked, and backends that play one end.  Frames
are built and read here and nowhere else, so that a test compares what was on the wire and not what a library made of it."""
import base64
import hashlib
import json
import os
import struct

from lib import P, answer, check, equal, request

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG, CONTINUE = 1, 2, 8, 9, 10, 0


def accept_of(key):
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def fields(*more, key=KEY):
    return ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *more)


def handshake(target=P + "/ws", *more, host="gw.test", key=KEY):
    """The bytes of a client's handshake."""
    return request("GET", target, *fields(*more, key=key), host=host)


def switch(*more, key=KEY):
    """The bytes of a backend's 101."""
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
             f"Sec-WebSocket-Accept: {accept_of(key)}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def xor(data, mask):
    if not any(mask):
        return data
    n = len(data)
    long = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(data, "big") ^ int.from_bytes(long, "big")).to_bytes(n, "big")


def frame(opcode, payload=b"", fin=True, mask=None, rsv1=False):
    """The bytes of a frame; mask: four bytes, as a client must have."""
    if isinstance(payload, str):
        payload = payload.encode()
    first = (0x80 if fin else 0) | (0x40 if rsv1 else 0) | opcode
    n, bit = len(payload), 0x80 if mask is not None else 0
    if n < 126:
        head = struct.pack("!BB", first, bit | n)
    elif n < 65536:
        head = struct.pack("!BBH", first, bit | 126, n)
    else:
        head = struct.pack("!BBQ", first, bit | 127, n)
    return head + (mask + xor(payload, mask) if mask is not None else payload)


def masked(opcode, payload=b"", fin=True, rsv1=False):
    """A client's frame with a mask of its own."""
    return frame(opcode, payload, fin, os.urandom(4), rsv1)


def closing(code, reason=""):
    """The payload of a close frame."""
    return struct.pack("!H", code) + reason.encode()


class Frame:
    def __init__(self, opcode, fin, rsv1, mask, payload):
        self.opcode, self.fin, self.rsv1, self.mask, self.payload = opcode, fin, rsv1, mask, payload

    def key(self):
        return self.opcode, self.fin, self.rsv1, self.payload

    def __repr__(self):
        return f"Frame({self.opcode}, fin={self.fin}, rsv1={self.rsv1}, {self.payload[:40]!r} of {len(self.payload)})"


def read_frame(wire, timeout=None):
    a, b = wire.exact(2, timeout)
    check(a & 0x30 == 0, "reserved bits in a frame:", hex(a))
    n = b & 127
    if n == 126:
        n, = struct.unpack("!H", wire.exact(2, timeout))
    elif n == 127:
        n, = struct.unpack("!Q", wire.exact(8, timeout))
    mask = wire.exact(4, timeout) if b & 128 else None
    payload = wire.exact(n, timeout)
    return Frame(a & 15, bool(a & 128), bool(a & 64), mask, xor(payload, mask) if mask else payload)


def expect_frame(wire, opcode, payload, timeout=None):
    if isinstance(payload, str):
        payload = payload.encode()
    f = read_frame(wire, timeout)
    equal((f.opcode, f.payload), (opcode, payload), "frame")
    return f


def opened(gw, target=P + "/ws", *more, host="gw.test", **how):
    """A client behind a 101 whose accept value is right; the answer in .switch."""
    c = gw.client(**how)
    c.send(handshake(target, *more, host=host))
    r = c.response()
    equal(r.status, 101, f"status of the handshake, body {r.body!r}")
    equal(r.get("sec-websocket-accept"), accept_of(KEY), "accept value")
    equal(r.get("upgrade", "").lower(), "websocket", "Upgrade of the answer")
    check("upgrade" in r.get("connection", "").lower(), "Connection of the answer:", r.get("connection"))
    c.switch = r
    return c


def upgraded(conn, *more):
    """A backend's side of the handshake; the request."""
    r = conn.head()
    equal((r.method, r.get("upgrade", "").lower(), r.get("connection", "").lower()), ("GET", "websocket", "upgrade"),
          "handshake at the backend")
    conn.send(switch(*more, key=r.get("sec-websocket-key")))
    return r


def serves(talk, *more):
    """A script: switches, then talk(conn)."""
    def script(conn):
        upgraded(conn, *more)
        talk(conn)
    return script


def echoes(conn):
    """Data frames come back, pings get a pong, a close gets its like and ends it."""
    while True:
        f = read_frame(conn, 3600)
        check(f.mask is not None, "a frame of the client without mask")
        conn.send(frame(PONG if f.opcode == PING else f.opcode, f.payload, f.fin, None, f.rsv1))
        if f.opcode == CLOSE:
            return


ECHO = serves(echoes)


def mixed(conn):
    """A script: handshakes get an echo socket, other requests a JSON text of what came."""
    while True:
        while b"\r\n\r\n" not in conn.buf:
            conn.more(600)
        if b"upgrade: websocket" in conn.buf.lower():
            ECHO(conn)
            return
        r = conn.request()
        seen = {"line": r.line, "fields": r.fields, "conn": conn.number, "port": conn.backend.port}
        conn.send(answer(200, "Content-Type: application/json", body=json.dumps(seen).encode()))


def says_hello(c, word="hi"):
    """One message there and back on an echo socket."""
    c.send(masked(TEXT, word))
    expect_frame(c, TEXT, word)


def ended(wire, within=8.0):
    """True if the peer ends within that time, whatever comes before."""
    return wire.ending(within) != "late"
