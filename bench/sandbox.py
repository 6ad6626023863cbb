"""sandbox.py — what bench/sidecar.py measures in: network namespaces, the world outside of them, a sidecar, an API client.

    box    the sandbox, 10.99.0.2: the sidecar and its workload
    twin   the same without a sidecar, 10.98.0.2: for whoever is compared with it
    world  where the measuring process stands: 198.51.100.0/24 and 198.18.0.0/15 are at home there

Everything ends with the process that made it.
"""
import contextlib
import ctypes
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWNET, REC_PRIVATE, PDEATHSIG = 0x00020000, 0x40000000, 0x44000, 1
NAMESERVER, ORIGIN = "198.51.100.53", "198.51.100.10"
API, PROXY, EVERYWHERE, WORKLOAD = 18080, 18082, 9100, 65534
TOKEN = "bench"


def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*argv, feed=None):
    return subprocess.run(argv, input=feed, check=True, capture_output=True, text=True).stdout


class Sandbox:
    def __init__(self):
        must(LIBC.unshare(NEWNS))
        must(LIBC.mount(None, b"/", None, ctypes.c_ulong(REC_PRIVATE), None))
        if os.path.isdir("/var/egress"):
            must(LIBC.mount(b"none", b"/var/egress", b"tmpfs", ctypes.c_ulong(0), None))
        self.fd = {}
        for name in ("box", "twin", "world"):
            must(LIBC.unshare(NEWNET))
            self.fd[name] = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        lines = ["link set lo up"]
        for n, name in ((99, "box"), (98, "twin")):
            self.enter(name)
            run("ip", "-batch", "-", feed=f"""link set lo up
                link add e0 type veth peer name o{n} netns /proc/{os.getpid()}/fd/{self.fd['world']}
                link set e0 up
                addr add 10.{n}.0.2/24 dev e0
                route add default via 10.{n}.0.1""")
            lines += [f"link set o{n} up", f"addr add 10.{n}.0.1/24 dev o{n}"]
        self.enter("world")
        lines += [f"route add local {net} dev lo" for net in ("198.51.100.0/24", "198.18.0.0/15")]
        run("ip", "-batch", "-", feed="\n".join(lines))

    def enter(self, name):
        must(LIBC.setns(self.fd[name], NEWNET))

    @contextlib.contextmanager
    def inside(self, name, uid=WORKLOAD):
        self.enter(name)
        LIBC.setfsuid(uid)
        try:
            yield
        finally:
            LIBC.setfsuid(0)
            self.enter("world")

    def socket(self, name, kind=socket.SOCK_STREAM, to=None):
        """A socket of the workload's, which waits ten seconds at most."""
        with self.inside(name):
            s = socket.socket(socket.AF_INET, kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 10, 0))
            if to:
                s.connect(to)
            return s

    def fork(self, name, what, *args):
        """A process there that ends with this one; its pid."""
        pid = os.fork()
        if pid:
            return pid
        LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        self.enter(name)
        try:
            what(*args)
        finally:
            os._exit(0)

    def spawn(self, name, argv, env=None, **how):
        def child():
            LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self.enter(name)
        return subprocess.Popen(argv, preexec_fn=child, env={"PATH": os.environ["PATH"], **(env or {})},
                                stdin=subprocess.DEVNULL, **how)


# ---- the world outside

def names_of(message):
    """Of a question: its labels, and where it ends."""
    at, labels = 12, []
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]])
        at += 1 + message[at]
    return labels, at + 5


def nameserver():
    """A of hN.…: 198.18.0.0 + N; of anything else: the origin.  No other record.  Each for five minutes."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    s.bind((NAMESERVER, 53))
    base = struct.unpack("!I", socket.inet_aton("198.18.0.0"))[0]
    while True:
        message, client = s.recvfrom(4096)
        labels, end = names_of(message)
        first = labels[0].lower() if labels else b""
        number = int(first[1:]) if first[:1] == b"h" and first[1:].isdigit() else -1
        address = struct.pack("!I", base + number) if number >= 0 else socket.inet_aton(ORIGIN)
        is_a = message[end - 4:end - 2] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 300, 4) + address if is_a else b""
        s.sendto(message[:2] + b"\x81\x80\0\1" + struct.pack("!HHH", int(is_a), 0, 0) + message[12:end] + answer, client)


def exactly(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise ConnectionResetError("too early")
        data += piece
    return data


def serve(s, port, file, size):
    """HTTP on 80: GET /N; else a ClientHello and eight bytes: the number of bytes that are wanted."""
    with s, contextlib.suppress(OSError):
        if port == 80:
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(4096)
            n = int(head.split()[1][1:])
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % n)
        else:
            exactly(s, struct.unpack("!3xH", exactly(s, 5))[0])
            n = struct.unpack("!Q", exactly(s, 8))[0]
        while n > 0:
            n -= os.sendfile(s.fileno(), file, 0, min(n, size))


def take_all(listener):
    while True:
        listener.accept()[0].close()


def origin():
    size = 4 << 20
    file = os.memfd_create("body")
    os.write(file, os.urandom(size))

    def accept(listener, port):
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0], port, file, size), daemon=True).start()
    everywhere = socket.create_server(("", EVERYWHERE), backlog=1024)
    threading.Thread(target=take_all, args=(everywhere,), daemon=True).start()
    for port in (80, 443):
        listener = socket.create_server((ORIGIN, port), backlog=64)
        threading.Thread(target=accept, args=(listener, port), daemon=True).start()
    signal.pause()


def client_hello(name):
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


# ---- the sidecar

class Sidecar:
    def __init__(self, box, build, supervised=False, **variables):
        self.box = box
        self.argv = [os.path.join(build, "sallyport-egress")]
        if supervised:
            self.argv = [os.path.join(build, "sallyport-supervisor"), "--", *self.argv]
        values = {"MODE": "dns+nft", "TOKEN": TOKEN, "DNS_UPSTREAM": NAMESERVER, "DNS_MAX_RATE": "0", "LOG_LEVEL": "warn",
                  "ON_EXIT": "remove", **variables}
        self.env = {"OPENSANDBOX_EGRESS_" + k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
        self.process = None
        self.errors = subprocess.DEVNULL if supervised else None  # where the supervisor tells of every start

    def start(self):
        """Until healthy; seconds from exec to the first 200 of /healthz."""
        read, write = os.pipe()

        def child():
            LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self.box.enter("box")
            os.write(write, struct.pack("d", time.monotonic()))
        self.process = subprocess.Popen(self.argv, preexec_fn=child, env={"PATH": os.environ["PATH"], **self.env},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        os.close(write)
        began = struct.unpack("d", os.read(read, 8))[0]
        os.close(read)
        while self.health() != 200:
            if self.process.poll() is not None or time.monotonic() > began + 10:
                raise SystemExit("the sidecar does not become healthy")
            time.sleep(0.0005)
        return time.monotonic() - began

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(15)

    def pids(self):
        """The worker, and whoever keeps it."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [pid, *map(int, f.read().split())]

    def health(self):
        try:
            s = self.box.socket("box", to=("127.0.0.1", API))
            with s:
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return int(s.recv(4096)[9:12])
        except (OSError, ValueError):
            return 0

    def request(self, method, body, path="/policy"):
        """A socket with all of it sent but the last byte, and that byte."""
        data = json.dumps(body, separators=(",", ":")).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\nContent-Length: {len(data)}\r\n\r\n"
        s = self.box.socket("box", to=("127.0.0.1", API))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(head.encode() + data[:-1])
        time.sleep(0.02)
        return s, data[-1:]

    def reaches(self, address):
        try:
            self.box.socket("box", to=(address, EVERYWHERE)).close()
            return True
        except ConnectionRefusedError:
            return False

    def change(self, method, body, address=None):
        """Seconds from the last byte of the request to the answer, which must be 200; before that, if there is an address, to when
        it can be reached, which it could not before."""
        if address and self.reaches(address):
            raise SystemExit(f"{address} is not refused")
        s, last = self.request(method, body)
        with s:
            began = time.monotonic()
            s.sendall(last)
            while address and not self.reaches(address):
                time.sleep(0.0003)
            in_force = time.monotonic() - began
            answer = s.recv(65536)
            took = time.monotonic() - began
        if answer[9:12] != b"200":
            raise SystemExit(f"{method} /policy: {answer[:300]}")
        return (in_force, took) if address else took


def question(name, number):
    q = struct.pack("!HHHHHH", number & 0xffff, 0x100, 1, 0, 0, 0)
    return q + b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0\0\1\0\1"


def ask(s, name, number=0):
    """One question on a connected socket; seconds until its answer."""
    q = question(name, number)
    began = time.monotonic()
    s.send(q)
    answer = s.recv(4096)
    took = time.monotonic() - began
    if answer[:2] != q[:2] or answer[3] & 15 or answer[6:8] == b"\0\0":
        raise SystemExit(f"{name}: {answer.hex()} after {took:.3f} s")
    return took


# ---- what a process costs

def cpu(pids):
    """Nanoseconds that all threads of these processes have run."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
    return total


def memory(pid):
    """KiB by name: of smaps_rollup, and VmHWM."""
    rows = {}
    for file in ("smaps_rollup", "status"):
        with open(f"/proc/{pid}/{file}", encoding="ascii") as f:
            for line in f:
                words = line.split()
                if len(words) == 3 and words[2] == "kB":
                    rows[words[0][:-1]] = int(words[1])
    return rows
