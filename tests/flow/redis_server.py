"""A real redis-server as a process of the test's own, on loopback or a socket; and a relay in front of it that can stall,
cut and move to another server."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

from gateway import LIBC, PR_SET_PDEATHSIG, free_port
from wire import Failed, Skipped, wait_for


class Redis:
    """lines: more of its configuration, each a line; socket_only: a Unix socket in place of a port."""

    def __init__(self, lab, *lines, socket_only=False, port=0):
        if not shutil.which("redis-server"):
            raise Skipped("the program redis-server is not installed")
        self.dir = os.path.join(lab.dir, f"redis-{time.monotonic_ns()}")
        os.mkdir(self.dir)
        self.path = os.path.join(self.dir, "s")
        self.port = 0 if socket_only else port or free_port()
        self.lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.dir}", f"unixsocket {self.path}", 'save ""',
                      "appendonly no", "daemonize no", *lines]
        self.process = None
        lab.peers.append(self)
        self.start()

    def start(self):
        conf = os.path.join(self.dir, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write("\n".join(self.lines) + "\n")
        with open(os.path.join(self.dir, "out"), "ab") as out:
            self.process = subprocess.Popen(["redis-server", conf], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        wait_for(self.answers, "redis-server")

    def answers(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.dir, "out"), encoding="utf-8", errors="replace") as f:
                raise Failed(f"redis-server does not start: {f.read()[-800:]}")
        with contextlib.suppress(OSError, RedisError):
            self.ask("PING")
            return True
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.stop()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, *words):
        """One command over its socket, as the default user or the one of `lines`."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(self.path)
            f = s.makefile("rb")
            if any(line.startswith("requirepass ") for line in self.lines):
                send(s, "AUTH", next(line.split()[1] for line in self.lines if line.startswith("requirepass ")))
                read(f)
            send(s, *words)
            return read(f)

    def list(self, key="opensandbox:renew:intent"):
        """All of a list, the oldest first."""
        return self.ask("LRANGE", key, "0", "-1")[::-1]


class RedisError(Exception):
    """The server says no."""


def send(s, *words):
    words = [w.encode() if isinstance(w, str) else w for w in words]
    s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))


def read(f):
    line = f.readline()
    if not line.endswith(b"\r\n"):
        raise OSError("the server has hung up")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b":":
        return int(rest)
    if kind == b"-":
        raise RedisError(rest.decode())
    n = int(rest)
    if kind == b"*":
        return [read(f) for _ in range(n)]
    return None if n < 0 else f.read(n + 2)[:-2].decode()


class Relay:
    """Between the gateway and a server: forwards bytes, unless it stalls."""

    def __init__(self, lab, port):
        self.to, self.stalled, self.pairs, self.accepted = port, False, [], 0
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        lab.peers.append(self)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                b = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                a.close()
                continue
            self.pairs += [a, b]
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self.carry, args=(x, y), daemon=True).start()

    def carry(self, x, y):
        with contextlib.suppress(OSError):
            while data := x.recv(65536):
                while self.stalled:
                    time.sleep(0.02)
                y.sendall(data)
        for s in (x, y):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for s in self.pairs:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        self.pairs = []

    def close(self):
        self.stalled = False
        self.listener.close()
        self.cut()
