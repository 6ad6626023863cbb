"""ClientHello messages as bytes (RFC 8446 section 4.1.2), whole and well-formed or just not, in as many records as wanted."""
import struct

ECH, SERVER_NAME, ALPN, VERSIONS, GROUPS, SIGNATURES, PADDING = 0xfe0d, 0, 16, 43, 10, 13, 21
ACCESS_DENIED = 49


def vector(size, data):
    return len(data).to_bytes(size, "big") + data


def extension(number, data):
    return struct.pack("!H", number) + vector(2, data)


def server_name(*names):
    return extension(SERVER_NAME, vector(2, b"".join(b"\0" + vector(2, n if isinstance(n, bytes) else n.encode()) for n in names)))


def message(name=None, ech=False, alpn=(), extra=b"", padding=0):
    """The handshake message.  name: text, bytes, or None for no server_name at all; extra: extensions as bytes."""
    ext = server_name(name) if name is not None else b""
    ext += extension(VERSIONS, b"\x04\x03\x04\x03\x03") + extension(GROUPS, b"\0\x02\0\x1d")
    ext += extension(SIGNATURES, b"\0\x04\x04\x03\x08\x04")
    if alpn:
        ext += extension(ALPN, vector(2, b"".join(vector(1, p.encode()) for p in alpn)))
    if ech:
        ext += extension(ECH, b"\0\0\x01\0\x01\x2a" + vector(2, b"k" * 32) + vector(2, b"e" * 144))
    ext += extra + (extension(PADDING, bytes(padding)) if padding else b"")
    body = b"\x03\x03" + b"R" * 32 + vector(1, b"S" * 32) + vector(2, b"\x13\x01\xc0\x2b\xc0\x2f") + b"\x01\0" + vector(2, ext)
    return b"\x01" + vector(3, body)


def records(data, most=16384):
    """The message in records of at most so many bytes."""
    return b"".join(b"\x16\x03\x01" + vector(2, data[i:i + most]) for i in range(0, len(data), most))


def client_hello(name=None, most=16384, **how):
    return records(message(name, **how), most)


def alert(data):
    """Description of the alert that data begins with, or None."""
    return data[6] if len(data) >= 7 and data[0] == 21 else None
