"""Ways out of a sandbox, one function each, tried by a process inside the namespace with the privileges of a workload.

tried({"way": NAME, ...arguments}) gives (outcome, detail, seconds).  An attempt does what an attacker would do and no more,
and says how it was answered: `reached` somebody replied, `answered` refused at once, `silent` neither within a second,
`sent` no answer is to be expected, `unable` this kernel or these privileges do not even let one try.  Whether anything got
out is seen by the recorder outside, not by the one who tries.
"""
import contextlib
import ctypes
import errno
import json
import os
import random
import resource
import select
import socket
import struct
import time

ANSWER_S = 1.0
SO_MARK, SO_BINDTODEVICE, SO_RCVMARK = 36, 25, 75
IP_NODEFRAG, IP_PKTINFO, IPV6_RTHDR = 22, 8, 57
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
MSG_FASTOPEN = 0x20000000
OURS = random.Random(os.getpid())
WAYS = {}


def way(run):
    WAYS[run.__name__] = run
    return run


class Unable(Exception):
    """Not even the attempt can be made here."""


def family(ip):
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def made(*kind):
    try:
        return socket.socket(*kind)
    except OSError as e:
        raise Unable(e.strerror) from e


def option(s, level, name, value):
    try:
        s.setsockopt(level, name, value)
    except OSError as e:
        raise Unable(e.strerror) from e


def dressed(s, a):
    """What several ways have in common: a mark, a device, a route of one's choice."""
    if a.get("mark"):
        option(s, socket.SOL_SOCKET, SO_MARK, struct.pack("I", a["mark"]))
    if a.get("device"):
        option(s, socket.SOL_SOCKET, SO_BINDTODEVICE, a["device"].encode() + b"\0")
    if a.get("option"):  # a source route of IPv4, RFC 791 section 3.1
        option(s, socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([a["option"], 7, 4]) + socket.inet_aton(a["hop"]) + b"\0")
    if a.get("segments"):  # a segment routing header, RFC 8754 section 2
        hop = socket.inet_pton(socket.AF_INET6, a["segments"])
        option(s, socket.IPPROTO_IPV6, IPV6_RTHDR, bytes([0, 4, 4, 1, 1, 0, 0, 0]) + bytes(16) + hop)
    s.settimeout(ANSWER_S)
    return s


def heard(s):
    """Waits for a datagram in reply, or for the kernel's word of a refusal."""
    try:
        return "reached", s.recv(4096)[:80].hex()
    except TimeoutError:
        return "silent", ""


def payload(a):
    return a.get("payload", "sallyport").encode()


# ---- plain sockets

@way
def tcp(a):
    kind = (family(a["ip"]), socket.SOCK_STREAM, a.get("protocol", 0))
    with dressed(made(*kind), a) as s:
        try:
            if a.get("fast"):
                s.sendto(payload(a), MSG_FASTOPEN, (a["ip"], a["port"]))
            else:
                s.connect((a["ip"], a["port"]))
        except TimeoutError:
            return "silent", ""
        with contextlib.suppress(OSError):
            s.sendall(payload(a))
        return connected(s)


def connected(s):
    """A redirected connection is accepted by the sidecar: only an answer of the other side means that it got there."""
    try:
        data = s.recv(256)
    except TimeoutError:
        return "silent", "connected"
    return ("reached", data[:80].hex()) if data else ("answered", "closed")


@way
def udp(a):
    with dressed(made(family(a["ip"]), socket.SOCK_DGRAM, a.get("protocol", 0)), a) as s:
        option(s, socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.connect(socket.getaddrinfo(a["ip"], a["port"], s.family)[0][4])
        s.send(payload(a))
        return heard(s)


@way
def udp_from_device(a):
    """The device is named with the datagram itself (IP_PKTINFO)."""
    with made(socket.AF_INET, socket.SOCK_DGRAM) as s:
        about = struct.pack("I4s4s", socket.if_nametoindex(a["through"]), bytes(4), bytes(4))
        s.settimeout(ANSWER_S)
        s.sendmsg([payload(a)], [(socket.IPPROTO_IP, IP_PKTINFO, about)], 0, (a["ip"], a["port"]))
        return heard(s)


@way
def ping(a):
    v4 = family(a["ip"]) == socket.AF_INET
    with dressed(made(family(a["ip"]), socket.SOCK_DGRAM, socket.IPPROTO_ICMP if v4 else socket.IPPROTO_ICMPV6), a) as s:
        s.connect((a["ip"], 0))
        s.send(bytes([8 if v4 else 128]) + bytes(7) + payload(a))
        return heard(s)


def question(name, kind=1, edns=False):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split(".") if x)
    extra = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    return struct.pack(">HHHHHH", OURS.randrange(65536), 0x100, 1, 0, 0, int(edns)) + labels + b"\0" + struct.pack(">HH", kind,
                                                                                                                   1) + extra


def rcode(reply):
    return "reached", f"rcode {reply[3] & 15}, {struct.unpack('>H', reply[6:8])[0]} answers"


@way
def dns(a):
    """A query over UDP; reached says what the answer was, whoever gave it."""
    with dressed(made(family(a["ip"]), socket.SOCK_DGRAM), a) as s:
        s.connect((a["ip"], a.get("port", 53)))
        s.send(question(a["name"], a.get("kind", 1), a.get("edns", False)))
        try:
            return rcode(s.recv(65535))
        except TimeoutError:
            return "silent", ""


@way
def dns_tcp(a):
    with dressed(made(family(a["ip"]), socket.SOCK_STREAM), a) as s:
        q = question(a["name"], a.get("kind", 1))
        try:
            s.connect((a["ip"], a.get("port", 53)))
            s.sendall(struct.pack(">H", len(q)) + q)
            reply = s.recv(65535)
            return rcode(reply[2:]) if len(reply) > 14 else ("answered", "closed")
        except TimeoutError:
            return "silent", ""


# ---- packets with headers of one's own: CAP_NET_RAW

def checksum(data, total=0):
    data += b"\0" * (len(data) % 2)
    total += sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def headed(source, target, protocol, body, fragment=0, ident=0):
    """An IP packet, whole but for the checksum that the kernel writes."""
    src, dst = (socket.inet_pton(family(x), x) for x in (source, target))
    if len(src) == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), ident, fragment, 64, protocol, 0) + src + dst
        return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + body
    return struct.pack(">IHBB", 0x60000000, len(body), protocol, 64) + src + dst + body


def pseudo(source, target, protocol, n):
    src, dst = (socket.inet_pton(family(x), x) for x in (source, target))
    return ~checksum(src + dst + struct.pack(">II", n, protocol)) & 0xffff


def datagram(source, sport, target, dport, data):
    head = struct.pack(">HHHH", sport, dport, 8 + len(data), 0)
    total = checksum(head + data, pseudo(source, target, 17, 8 + len(data)))
    return head[:6] + struct.pack(">H", total or 0xffff) + data


def segment(source, sport, target, dport, flags, data, seq=1):
    head = struct.pack(">HHIIBBHHH", sport, dport, seq, 1, 0x50, flags, 1000, 0, 0)
    total = checksum(head + data, pseudo(source, target, 6, 20 + len(data)))
    return head[:16] + struct.pack(">H", total) + head[18:] + data


def raw_send(packet, target, *options):
    with made(family(target), socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        for level, name, value in options:
            option(s, level, name, value)
        s.sendto(packet, (target, 0))
    return "sent", ""


def marked(a):
    return [(socket.SOL_SOCKET, SO_MARK, struct.pack("I", a["mark"]))] if a.get("mark") else []


@way
def raw_udp(a):
    body = datagram(a["source"], a.get("sport", 4000), a["ip"], a["port"], payload(a))
    return raw_send(headed(a["source"], a["ip"], 17, body), a["ip"], *marked(a))


@way
def raw_tcp(a):
    body = segment(a["source"], a.get("sport", 4001), a["ip"], a["port"], a["flags"], payload(a))
    return raw_send(headed(a["source"], a["ip"], 6, body), a["ip"], *marked(a))


@way
def raw_protocol(a):
    body = payload(a).ljust(32, b"S")
    return raw_send(headed(a["source"], a["ip"], a["number"], body), a["ip"])


@way
def raw_fragments(a):
    whole = datagram(a["source"], 4002, a["ip"], a["port"], payload(a).ljust(32, b"S"))
    nodefrag = (socket.IPPROTO_IP, IP_NODEFRAG, 1)
    raw_send(headed(a["source"], a["ip"], 17, whole[:24], 0x2000, 7777), a["ip"], nodefrag)
    return raw_send(headed(a["source"], a["ip"], 17, whole[24:], 3, 7777), a["ip"], nodefrag)


@way
def raw_routing_header(a):
    inner = datagram(a["source"], 4000, a["ip"], a["port"], payload(a))
    hop = socket.inet_pton(socket.AF_INET6, a["ip"])
    return raw_send(headed(a["source"], a["ip"], 43, struct.pack(">BBBBI", 17, 2, a["number"], 1, 0) + hop + inner), a["ip"])


@way
def raw_extension(a):
    """An IPv6 packet whose UDP head stands behind another header: destination options, or that of a first fragment."""
    inner = datagram(a["source"], 4007, a["ip"], a["port"], payload(a).ljust(24, b"S"))
    if a["number"] == 44:
        raw_send(headed(a["source"], a["ip"], 44, struct.pack(">BBHI", 17, 0, 1, 7) + inner[:24]), a["ip"])
        return raw_send(headed(a["source"], a["ip"], 44, struct.pack(">BBHI", 17, 0, 24, 7) + inner[24:]), a["ip"])
    return raw_send(headed(a["source"], a["ip"], a["number"], struct.pack(">BBBBI", 17, 0, 1, 4, 0) + inner), a["ip"])


@way
def icmp_error(a):
    """Pretends that a packet of an open connection could not be delivered; about says whose (RFC 792)."""
    with made(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(ANSWER_S)
        s.connect((a["about"], 443))
        port = s.getsockname()[1]
        inner = headed(a["about"], a["source"], 6, segment(a["about"], 443, a["source"], port, 16, payload(a)))
        body = bytes([3, 1, 0, 0, 0, 0, 0, 0]) + inner
        body = body[:2] + struct.pack(">H", checksum(body)) + body[4:]
        return raw_send(headed(a["source"], a["ip"], 1, body), a["ip"])


@way
def used_ports(a):
    """Sends from every local port that a socket of somebody else may have asked a nameserver from."""
    q, sent = question(a["name"]), 0
    for port in range(*a["ports"]):
        with contextlib.suppress(OSError), socket.socket(family(a["ip"]), socket.SOCK_DGRAM) as s:
            s.bind(("", port))
            s.connect((a["ip"], 53))
            s.setblocking(False)
            s.send(q)
            sent += 1
    return "sent", str(sent)


@way
def raw_used_ports(a):
    """The same by packets of one's own, whoever holds the port."""
    q = question(a["name"])
    with made(family(a["ip"]), socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        for port in range(*a["ports"]):
            with contextlib.suppress(OSError):
                s.sendto(headed(a["source"], a["ip"], 17, datagram(a["source"], port, a["ip"], 53, q)), (a["ip"], 0))
    return "sent", ""


@way
def neighbour(a):
    """Neighbour discovery with a payload, to somebody who is none (number: the type)."""
    with made(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as s:
        for hops in (16, 18):  # IPV6_UNICAST_HOPS, IPV6_MULTICAST_HOPS
            option(s, socket.IPPROTO_IPV6, hops, 255)
        s.sendto(bytes([a["number"]]) + bytes(23) + payload(a).ljust(40, b"S"), (a["ip"], 0))
    return "sent", ""


@way
def forged_inbound(a):
    """Over lo a raw socket can be anybody: first a packet as if from outside, then the `answer`."""
    with made(family(a["ip"]), socket.SOCK_DGRAM) as s:
        s.bind((a["source"], 4004))
        raw_send(headed(a["ip"], a["source"], 17, datagram(a["ip"], a["port"], a["source"], 4004, b"hello")), a["source"])
        s.sendto(payload(a), (a["ip"], a["port"]))
    return "sent", ""


@way
def forged_reply(a):
    """A datagram over lo as if from outside, to a socket that has asked nobody."""
    with made(family(a["ip"]), socket.SOCK_DGRAM) as s:
        s.bind((a["source"], 4006))
        s.settimeout(ANSWER_S)
        raw_send(headed(a["ip"], a["source"], 17, datagram(a["ip"], a["port"], a["source"], 4006, payload(a))), a["source"])
        return heard(s)


@way
def forged_replies(a):
    """Answers of the upstream to whoever waits for one: every local UDP port that is in sight, many ids."""
    ports = {int(line.split()[1].split(":")[1], 16) for line in open("/proc/net/udp", encoding="ascii").readlines()[1:]}
    answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 300, 4) + socket.inet_aton(a["address"])
    q = question(a["name"])
    with made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        for port in ports:
            for ident in range(a.get("ids", 256)):
                reply = struct.pack(">HHHHHH", ident, 0x8180, 1, 1, 0, 0) + q[12:] + answer
                with contextlib.suppress(OSError):
                    s.sendto(headed(a["ip"], a["source"], 17, datagram(a["ip"], 53, a["source"], port, reply)), (a["source"], 0))
    return "sent", f"{len(ports)} ports"


# ---- frames: past the output hook

@way
def frame(a):
    """A frame with a packet of one's own; bypass: past the queues as well."""
    arp = a.get("arp", False)
    kind = 0x0806 if arp else 0x86dd if ":" in a["ip"] else 0x0800
    body = payload(a).ljust(80, b"S") if arp else headed(a["source"], a["ip"], 17,
                                                         datagram(a["source"], 4003, a["ip"], a["port"], payload(a)))
    with made(socket.AF_PACKET, socket.SOCK_RAW if a.get("whole") else socket.SOCK_DGRAM, 0) as s:
        if a.get("bypass"):
            option(s, SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        if a.get("mark"):
            option(s, socket.SOL_SOCKET, SO_MARK, struct.pack("I", a["mark"]))
        station = bytes.fromhex(a["station"])
        if a.get("whole"):
            body = station + bytes.fromhex("020000000002") + struct.pack(">H", kind) + body
        s.sendto(body, (a["through"], kind, 0, 0, station))
    return "sent", ""


XDP = {"RX": 2, "TX": 3, "UMEM_REG": 4, "FILL": 5, "COMPLETION": 6, "OFFSETS": 1}
SOL_XDP, AF_XDP, XDP_COPY, PAGE = 283, 44, 2, 4096


@way
def xdp(a):
    """A frame from an AF_XDP socket in copy mode: past every hook there is."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    with made(AF_XDP, socket.SOCK_RAW, 0) as s:
        memory = libc.mmap(None, 4 * PAGE, 3, 0x22, -1, 0)
        option(s, SOL_XDP, XDP["UMEM_REG"], struct.pack("QQIIII", memory, 4 * PAGE, PAGE, 0, 0, 0))
        for ring in ("FILL", "COMPLETION", "TX"):
            option(s, SOL_XDP, XDP[ring], struct.pack("I", 4))
        offsets = struct.unpack("16Q", s.getsockopt(SOL_XDP, XDP["OFFSETS"], 128))
        producer, _, entries, _ = offsets[4:8]
        ring = libc.mmap(None, PAGE, 3, 1, s.fileno(), 0x80000000)
        index = socket.if_nametoindex(a["through"])
        name = struct.pack("HHIII", AF_XDP, XDP_COPY, index, a.get("queue", 0), 0)
        if libc.bind(s.fileno(), name, len(name)) != 0:
            code = ctypes.get_errno()
            return ("unable" if code in (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL) else "answered"), os.strerror(code)
        body = headed(a["source"], a["ip"], 17, datagram(a["source"], 4005, a["ip"], a["port"], payload(a)))
        whole = bytes.fromhex(a["station"]) + bytes.fromhex("020000000002") + struct.pack(">H", 0x0800) + body
        ctypes.memmove(memory, whole, len(whole))
        ctypes.memmove(ring + entries, struct.pack("QII", 0, len(whole), 0), 16)
        ctypes.c_uint32.from_address(ring + producer).value = 1
        libc.sendto(s.fileno(), None, 0, socket.MSG_DONTWAIT, None, 0)
        time.sleep(0.02)
    return "sent", ""


@way
def read_marks(a):
    """Every mark that can be read off a passing packet within `seconds`; also after a query that lets us send one."""
    with made(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as s, made(socket.AF_INET, socket.SOCK_DGRAM) as q:
        option(s, socket.SOL_SOCKET, SO_RCVMARK, 1)
        dressed(q, a)
        seen, frames, end = set(), 0, time.monotonic() + a["seconds"]
        while time.monotonic() < end:
            q.sendto(question(f"m{OURS.randrange(1 << 30)}.{a['name']}"), (a["ip"], 53))
            while select.select([s], [], [], 0.05)[0]:
                _, about, _, _ = s.recvmsg(2048, 256)
                frames += 1
                seen |= {struct.unpack("I", d)[0] for level, _, d in about if level == socket.SOL_SOCKET and len(d) == 4}
    return ("reached" if seen - {0} else "answered"), json.dumps({"marks": sorted(seen - {0}), "frames": frames})


# ---- what the sidecar holds in the namespace

@way
def seize(a):
    """Takes a share of a port that is ours, or the whole of it while nobody has it."""
    kind = socket.SOCK_DGRAM if a.get("datagram") else socket.SOCK_STREAM
    with made(family(a["ip"]), kind) as s:
        for name in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            option(s, socket.SOL_SOCKET, name, 1)
        s.bind((a["ip"], a["port"]))
        if kind == socket.SOCK_STREAM:
            s.listen(16)
    return "reached", "it is ours now"


@way
def kill(a):
    os.kill(a["pid"], a["signal"])
    return "reached", "taken"


@way
def look(a):
    """Opens a file of another process."""
    with open(a["path"], "rb") as f:
        return "reached", f.read(4096).hex()


@way
def many_connections(a):
    """Opens as many as it can get and keeps them for so many seconds."""
    kept = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for _ in range(a["count"]):
        with contextlib.suppress(OSError):
            s = socket.socket(family(a["ip"]), socket.SOCK_STREAM)
            kept.append(s)
            s.setblocking(False)
            s.connect_ex((a["ip"], a["port"]))
    time.sleep(a["seconds"])
    return "sent", str(len(kept))


@way
def many_names(a):
    """Asks for so many different names below one; how many were answered, with which codes."""
    codes, sent, answered = {}, 0, 0
    with made(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((a["ip"], 53))
        s.setblocking(False)
        end = time.monotonic() + a["seconds"]
        while answered < a["count"] and time.monotonic() < end:
            if sent < a["count"] and sent - answered < 200:
                with contextlib.suppress(OSError):
                    s.send(question(f"n{sent}.{a['name']}"))
                    sent += 1
            elif not select.select([s], [], [], 0.5)[0]:
                answered = min(sent, a["count"])  # those are lost; UDP may
            with contextlib.suppress(OSError):
                while True:
                    code = s.recv(2048)[3] & 15
                    codes[code] = codes.get(code, 0) + 1
                    answered += 1
    return "sent", json.dumps(codes)


def tried(a):
    start = time.monotonic()
    try:
        outcome, detail = WAYS[a["way"]](a)
    except Unable as e:
        outcome, detail = "unable", str(e)
    except OSError as e:
        outcome, detail = "answered", errno.errorcode.get(e.errno, str(e))
    return outcome, detail, time.monotonic() - start


def tried_all(rows):
    """One after the other."""
    return [tried(a) for a in rows]
