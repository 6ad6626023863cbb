"""The nameservers of the outside: a scripted one that counts, lies, cuts, waits or says nothing, and unbound where it is
installed.  The scripted one keeps every question it got; what it has not got has not been asked."""
import collections
import contextlib
import heapq
import os
import select
import socket
import struct
import subprocess
import threading
import time

import dnswire
from wire import Skipped, wait_for

Question = collections.namedtuple("Question", "at name kind tcp peer message raw")


class Nameserver:
    """Answers at these addresses, UDP and TCP port `port`, from a zone:

        {"ok.test": {"A": ["198.51.100.10"], "AAAA": [...], "TXT": [...], "CNAME": ["x.test"]}, "*.wild.test": {...}}

    A value may be a function of the Question that gives the list (addresses in turn).  A name that is in no zone is
    NXDOMAIN, a type that a name lacks is NOERROR without records, both with a SOA.  CNAMEs are followed within the zone.
    All of it may be changed while it runs:

    zone     the dict itself
    ttl      of all records (60)
    silent   True: no answer at all
    delay    seconds before each answer
    rcode    answer everything with this code
    cut      UDP answers longer than this many bytes are sent empty with TC
    script   function(Question) → list of byte strings to send back (each a whole message), or None for the zone's answer
    """

    def __init__(self, addresses, zone=None, port=53):
        self.addresses, self.port = addresses, port
        self.zone = zone if zone is not None else {}
        self.ttl, self.silent, self.delay, self.rcode, self.cut, self.script = 60, False, 0.0, None, 1232, None
        self.questions = []
        self.faults = []
        self.socks = {}
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            udp, tcp = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_STREAM)
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            for s in (udp, tcp):
                s.bind((address, port))
                self.socks[s.fileno()] = s
            tcp.listen(256)
        self.waiting, self.count, self.stopping = [], 0, False
        self.wake_r, self.wake_w = os.pipe()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    # -- what a test asks
    def asked(self, name=None, kind=None, tcp=None):
        """The questions so far that fit; a name matches itself and everything below it, in any case."""
        want = name.lower().rstrip(".") if name else None

        def fits(q):
            have = q.name.lower()
            return ((want is None or have == want or have.endswith("." + want)) and (kind is None or q.kind == kind)
                    and (tcp is None or q.tcp == tcp))
        return [q for q in list(self.questions) if fits(q)]

    def forget(self):
        self.questions.clear()

    # -- how it answers
    def lookup(self, q):
        """(rcode, records) of the zone."""
        name, records = q.name.lower(), []
        for _ in range(16):
            node = self.node(name)
            if node is None:
                return (dnswire.NOERROR if records else dnswire.NXDOMAIN), records
            if "CNAME" in node and q.kind != "CNAME":
                target = node["CNAME"][0]
                records.append((name, "CNAME", target))
                name = target.lower().rstrip(".")
                continue
            values = node.get(q.kind, [])
            for value in values(q) if callable(values) else values:
                records.append((None if name == q.name.lower() else name, q.kind, value))
            break
        return dnswire.NOERROR, records

    def node(self, name):
        zone = self.zone
        if name in zone:
            return zone[name]
        labels = name.split(".")
        for i in range(1, len(labels)):
            if "*." + ".".join(labels[i:]) in zone:
                return zone["*." + ".".join(labels[i:])]
        return {} if any(k.endswith("." + name) for k in zone) else None

    def answers(self, q):
        if self.script:
            out = self.script(q)
            if out is not None:
                return out
        if self.rcode is not None:
            return [dnswire.reply(q.message, rcode=self.rcode)]
        rcode, records = self.lookup(q)
        own = ".".join(q.name.split(".")[-2:]) or "test"
        authority = [] if any(r[1] == q.kind for r in records) else [(own, "SOA", own)]
        whole = dnswire.reply(q.message, records, rcode, authority, ttl=self.ttl)
        if not q.tcp and len(whole) > min(self.cut, q.message.edns or 512):
            whole = dnswire.reply(q.message, tc=True)
        return [whole]

    # -- the loop
    def serve(self):
        poll, streams = select.poll(), {}
        for fd in (*self.socks, self.wake_r):
            poll.register(fd, select.POLLIN)
        while not self.stopping:
            pause = None
            if self.waiting:
                pause = max(0, (self.waiting[0][0] - time.monotonic()) * 1000)
            for fd, _ in poll.poll(pause):
                if fd in self.socks:
                    with contextlib.suppress(OSError):
                        self.ready(self.socks[fd], poll, streams)
                elif fd in streams and not self.read(*streams[fd]):
                    poll.unregister(fd)
                    streams.pop(fd)[0].close()
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, _, data, send = heapq.heappop(self.waiting)
                with contextlib.suppress(OSError):
                    send(data)
        for conn, *_ in streams.values():
            conn.close()

    def ready(self, sock, poll, streams):
        if sock.type == socket.SOCK_DGRAM:
            raw, peer = sock.recvfrom(65535)
            self.take(raw, False, peer, lambda data: sock.sendto(data, peer))
            return
        conn, peer = sock.accept()
        streams[conn.fileno()] = (conn, peer, bytearray())
        poll.register(conn, select.POLLIN)

    def read(self, conn, peer, buf):
        try:
            data = conn.recv(65535)
        except OSError:
            return False
        buf += data
        while len(buf) >= 2 and len(buf) >= 2 + struct.unpack_from("!H", buf)[0]:
            n = struct.unpack_from("!H", buf)[0]
            raw = bytes(buf[2:2 + n])
            del buf[:2 + n]
            self.take(raw, True, peer, lambda out, to=conn: to.sendall(struct.pack("!H", len(out)) + out))
        return bool(data)

    def take(self, raw, tcp, peer, send):
        try:
            m = dnswire.Message(raw)
            q = Question(time.monotonic(), m.name, m.kind, tcp, peer, m, raw)
            self.questions.append(q)
            if self.silent:
                return
            for data in self.answers(q):
                self.count += 1
                heapq.heappush(self.waiting, (time.monotonic() + self.delay, self.count, data, send))
        except Exception as e:  # a message that is none is the test's to report
            self.faults.append(f"{self.addresses}: {type(e).__name__}: {e} on {raw[:80].hex()}")

    def close(self):
        self.stopping = True
        with contextlib.suppress(OSError):
            os.write(self.wake_w, b"x")
        self.thread.join(2)
        for s in self.socks.values():
            s.close()


class Unbound:
    """A real nameserver with local zones: lines are texts such as `ok.test. 60 IN A 198.51.100.10`."""

    def __init__(self, folder, addresses, lines):
        self.config = os.path.join(folder, "unbound.conf")
        text = "server:\n do-daemonize: no\n chroot: \"\"\n username: \"\"\n use-syslog: no\n pidfile: \"\"\n directory: \"%s\"\n" % folder
        text += " module-config: \"iterator\"\n num-threads: 1\n local-zone: \"test.\" static\n edns-buffer-size: 1232\n"
        text += "".join(f" interface: {a}\n" for a in addresses)
        text += " access-control: 0.0.0.0/0 allow\n access-control: ::/0 allow\n"
        text += "".join(f" local-data: '{line}'\n" for line in lines)
        with open(self.config, "w", encoding="ascii") as f:
            f.write(text + "remote-control:\n control-enable: no\n")
        try:
            self.process = subprocess.Popen(["unbound", "-d", "-c", self.config], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Skipped("the program unbound is not installed") from None
        wait_for(lambda: self.answers(addresses[0]), "unbound answers")

    @staticmethod
    def answers(address):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.2)
            try:
                s.connect((address, 53))
                s.send(dnswire.query("test", "SOA"))
                return s.recv(4096)
            except OSError:
                return None

    def close(self):
        self.process.kill()
        self.process.wait()
