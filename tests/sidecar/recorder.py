"""Sees every frame that comes out of the sandbox's namespace, on the far end of its device: what a recorder has not seen has
not left."""
import socket
import struct
import threading
import time

from wire import check

ETH_P_ALL, SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 3, 33, 263, 6
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp"}
NEIGHBOURS = range(133, 138)
MEMBERSHIP = (130, 131, 132, 143)


class Frame:
    """One frame: at (monotonic seconds), family 4, 6 or 0 (neither), proto, src, dst, sport, dport, payload (behind the
    transport's head; of ICMP: behind its first 8 bytes), flags (of TCP), kind (of ICMP), raw."""

    def __init__(self, at, raw):
        self.at, self.raw = at, raw
        self.family, self.proto, self.src, self.dst, self.sport, self.dport = 0, "", "", "", 0, 0
        self.payload, self.flags, self.kind = b"", 0, None
        ethertype = struct.unpack_from("!H", raw, 12)[0] if len(raw) >= 14 else 0
        if ethertype == 0x0800 and len(raw) >= 34:
            self.family = 4
            self.src, self.dst = socket.inet_ntoa(raw[26:30]), socket.inet_ntoa(raw[30:34])
            size = struct.unpack_from("!H", raw, 16)[0]
            later = struct.unpack_from("!H", raw, 20)[0] & 0x1fff
            self.transport(raw[23], raw[14 + (raw[14] & 15) * 4:14 + size], later)
        elif ethertype == 0x86dd and len(raw) >= 54:
            self.family = 6
            self.src, self.dst = (socket.inet_ntop(socket.AF_INET6, raw[i:i + 16]) for i in (22, 38))
            size = struct.unpack_from("!H", raw, 18)[0]
            self.extensions(raw[20], raw[54:54 + size])
        else:
            self.proto = {0x0806: "arp"}.get(ethertype, hex(ethertype))

    def extensions(self, proto, data):
        later = 0
        while proto in (0, 43, 44, 60) and len(data) >= 8:
            if proto == 44:
                later = struct.unpack_from("!H", data, 2)[0] >> 3
            proto, data = data[0], data[8 if proto == 44 else (data[1] + 1) * 8:]
        self.transport(proto, data, later)

    def transport(self, proto, data, later):
        self.proto = PROTOCOLS.get(proto, str(proto))
        self.payload = data
        if later:
            return
        if self.proto in ("tcp", "udp", "sctp") and len(data) >= 8:
            self.sport, self.dport = struct.unpack_from("!HH", data)
            self.payload = data[8:]
            if self.proto == "tcp" and len(data) >= 20:
                self.flags = data[13]
                self.payload = data[(data[12] >> 4) * 4:]
        elif self.proto in ("icmp", "icmp6") and len(data) >= 8:
            self.kind = data[0]
            self.payload = data[8:]

    @property
    def of_kernel(self):
        """Address resolution and multicast membership, as the kernel itself sends them."""
        if self.proto == "arp" or (self.proto == "2" and self.family == 4):
            return True
        if self.proto == "icmp6" and self.kind in NEIGHBOURS:
            return len(self.payload) <= 40
        return self.proto == "icmp6" and self.kind in MEMBERSHIP

    def __repr__(self):
        return f"{self.proto} {self.src}:{self.sport} -> {self.dst}:{self.dport} flags {self.flags:#x} {self.payload[:40]!r}"


class Recorder:
    """Records from its making on.  `left()` is what a test asks."""

    def __init__(self, device):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.sock.bind((device, ETH_P_ALL))
        self.frames, self.lost, self.closed = [], 0, False
        self.queued = self.taken = 0
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.record, daemon=True)
        self.thread.start()

    def record(self):
        while True:
            try:
                raw, (_, _, direction, *_) = self.sock.recvfrom(65536)
            except OSError:
                return
            with self.lock:
                self.taken += 1
                if direction != socket.PACKET_OUTGOING:
                    self.frames.append((time.monotonic(), raw))

    def settle(self):
        """Waits until the thread has read all that the kernel has queued for it, however busy the machine is."""
        time.sleep(0.02)
        packets, drops = struct.unpack("II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self.queued += packets - drops
        self.lost += drops
        end = time.monotonic() + 20
        while self.taken < self.queued:
            check(time.monotonic() < end, "the recorder does not keep up")
            time.sleep(0.002)

    def forget(self):
        """What has been seen so far counts no more."""
        self.settle()
        with self.lock:
            self.frames.clear()

    def left(self, dst=None, proto=None, dport=None, src=None, holds=None, since=0.0, match=None, kernel=False):
        """The frames that came out and fit all that is given: dst a text or a collection of texts, proto a name (`tcp`, `udp`,
        `icmp`, `icmp6`, `sctp`, `arp`, or a number as text), holds: bytes anywhere in the frame, match: a function of a
        Frame.  kernel: also what the kernel itself sends (ARP, neighbour discovery, membership)."""
        self.settle()
        check(not self.lost, f"the recorder lost {self.lost} frames: nothing can be said")
        wanted = {dst} if isinstance(dst, str) else dst
        with self.lock:
            frames = [(at, raw) for at, raw in self.frames if at >= since and (holds is None or holds in raw)]
        out = []
        for at, raw in frames:
            f = Frame(at, raw)
            if ((kernel or not f.of_kernel) and (wanted is None or f.dst in wanted) and (proto is None or f.proto == proto)
                    and (dport is None or f.dport == dport) and (src is None or f.src == src) and (match is None or match(f))):
                out.append(f)
        return out

    def nothing_left(self, what="a packet that should not leave", **which):
        """Fails the test if anything fits."""
        seen = self.left(**which)
        check(not seen, f"{what}: {len(seen)} left, the first: {seen[0] if seen else ''}")

    def close(self):
        self.closed = True
        self.sock.close()
