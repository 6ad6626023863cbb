"""DNS messages as bytes, for both sides of the sidecar: what a test asks and what its nameserver answers."""
import socket
import struct

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "OPT": 41,
         "SVCB": 64, "HTTPS": 65, "ANY": 255}
NAMES = {number: name for name, number in TYPES.items()}
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
EDE_BLOCKED = 15


def put_name(name):
    out = b""
    for label in name.rstrip(".").split(".") if name.rstrip(".") else []:
        raw = label.encode("latin-1")
        out += bytes([len(raw)]) + raw
    return out + b"\0"


def get_name(data, at):
    """(name without final dot, position behind it)."""
    labels, end, hops = [], None, 0
    while True:
        n = data[at]
        if n >= 0xc0:
            end = at + 2 if end is None else end
            at = struct.unpack_from("!H", data, at)[0] & 0x3fff
            hops += 1
            if hops > 64:
                raise ValueError("compression without end")
            continue
        at += 1
        if n == 0:
            return ".".join(labels), at if end is None else end
        labels.append(data[at:at + n].decode("latin-1"))
        at += n


def number(kind):
    return TYPES[kind] if isinstance(kind, str) else kind


def query(name, kind="A", ident=0x1234, edns=None, rd=True, cd=False, do=False, options=b""):
    """The bytes of a question.  edns: the UDP size it offers, or None."""
    head = struct.pack("!HHHHHH", ident, (0x0100 if rd else 0) | (0x0010 if cd else 0), 1, 0, 0, 0 if edns is None else 1)
    body = put_name(name) + struct.pack("!HH", number(kind), 1)
    opt = b"" if edns is None else struct.pack("!BHHIH", 0, 41, edns, 0x8000 if do else 0, len(options)) + options
    return head + body + opt


class Record:
    def __init__(self, name, kind, klass, ttl, data, whole, at):
        self.name, self.kind, self.klass, self.ttl, self.data = name, NAMES.get(kind, kind), klass, ttl, data
        self.text = data.hex()
        if kind == 1:
            self.text = socket.inet_ntop(socket.AF_INET, data)
        elif kind == 28:
            self.text = socket.inet_ntop(socket.AF_INET6, data)
        elif kind in (2, 5, 12):
            self.text = get_name(whole, at)[0]
        elif kind == 16:
            self.text = "".join(piece.decode("latin-1") for piece in texts(data))

    def __repr__(self):
        return f"{self.name} {self.ttl} {self.kind} {self.text}"


def texts(data):
    at = 0
    while at < len(data):
        yield data[at + 1:at + 1 + data[at]]
        at += 1 + data[at]


class Message:
    """A message taken apart: id, flags, rcode, name, kind, answers, authority, additional (without OPT), edns (size or None),
    do, options [(code, bytes)]."""

    def __init__(self, raw):
        self.raw = raw
        self.id, self.flags, nq, *counts = struct.unpack_from("!HHHHHH", raw)
        self.rcode, self.tc, self.aa = self.flags & 15, bool(self.flags & 0x0200), bool(self.flags & 0x0400)
        self.rd, self.ra, self.ad, self.cd = (bool(self.flags & bit) for bit in (0x0100, 0x0080, 0x0020, 0x0010))
        self.name, self.kind, self.edns, self.do, self.options, at = None, None, None, False, [], 12
        self.extended = 0
        for _ in range(nq):
            self.name, at = get_name(raw, at)
            kind, self.klass = struct.unpack_from("!HH", raw, at)
            self.kind = NAMES.get(kind, kind)
            at += 4
        sections = []
        for n in counts:
            records = []
            for _ in range(n):
                name, at = get_name(raw, at)
                kind, klass, ttl, length = struct.unpack_from("!HHIH", raw, at)
                at += 10
                if kind == 41:
                    self.edns, self.do = klass, bool(ttl & 0x8000)
                    self.options = list(options(raw[at:at + length]))
                else:
                    records.append(Record(name, kind, klass, ttl, raw[at:at + length], raw, at))
                at += length
            sections.append(records)
        if at != len(raw):
            raise ValueError(f"{len(raw) - at} bytes behind a message")
        self.answers, self.authority, self.additional = sections

    @property
    def addresses(self):
        return [r.text for r in self.answers if r.kind in ("A", "AAAA")]

    @property
    def ede(self):
        """Codes of its extended errors."""
        return [struct.unpack_from("!H", data)[0] for code, data in self.options if code == 15]

    @property
    def denied(self):
        """Is this how a refusal by policy looks (E3)?"""
        soa = [r for r in self.authority if r.kind == "SOA"]
        return (self.rcode == NXDOMAIN and not self.answers and len(soa) == 1 and soa[0].ttl == 1
                and (self.edns is None or EDE_BLOCKED in self.ede))

    def __repr__(self):
        return (f"<{self.name} {self.kind} rcode {self.rcode}{' TC' if self.tc else ''} answers {self.answers} "
                f"authority {self.authority} edns {self.edns} options {self.options}>")


def options(data):
    at = 0
    while at < len(data):
        code, length = struct.unpack_from("!HH", data, at)
        yield code, data[at + 4:at + 4 + length]
        at += 4 + length


def rdata(kind, value):
    """Bytes of a record's data: bytes as they are, addresses, names, texts; (priority, name) of MX; (priority, target,
    [(key, bytes)…]) of HTTPS."""
    if isinstance(value, bytes):
        return value
    if kind == "A":
        return socket.inet_pton(socket.AF_INET, value)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, value)
    if kind in ("CNAME", "NS", "PTR"):
        return put_name(value)
    if kind == "TXT":
        raw = value.encode()
        return b"".join(bytes([len(raw[i:i + 255])]) + raw[i:i + 255] for i in range(0, len(raw), 255))
    if kind == "MX":
        return struct.pack("!H", value[0]) + put_name(value[1])
    if kind in ("HTTPS", "SVCB"):
        params = b"".join(struct.pack("!HH", key, len(data)) + data for key, data in value[2])
        return struct.pack("!H", value[0]) + put_name(value[1]) + params
    raise ValueError(kind)


def soa(zone):
    return put_name("ns." + zone) + put_name("admin." + zone) + struct.pack("!IIIII", 1, 3600, 600, 86400, 60)


def reply(q, records=(), rcode=NOERROR, authority=(), tc=False, ident=None, name=None, edns=True, ttl=60, aa=False):
    """The bytes of an answer to Message q.  records: (owner or None for the question's, kind, value[, ttl])."""
    def put(rows):
        out = b""
        for owner, kind, value, *rest in rows:
            data = soa(value) if kind == "SOA" else rdata(kind, value)
            out += put_name(q.name if owner is None else owner)
            out += struct.pack("!HHIH", number(kind), 1, rest[0] if rest else ttl, len(data)) + data
        return out
    flags = 0x8080 | (q.flags & 0x0110) | (0x0400 if aa else 0) | (0x0200 if tc else 0) | rcode
    opt = edns and q.edns is not None
    head = struct.pack("!HHHHHH", q.id if ident is None else ident, flags, 1, len(records), len(authority), 1 if opt else 0)
    question = put_name(q.name if name is None else name) + struct.pack("!HH", number(q.kind), q.klass)
    return head + question + put(records) + put(authority) + (struct.pack("!BHHIH", 0, 41, 1232, 0, 0) if opt else b"")
