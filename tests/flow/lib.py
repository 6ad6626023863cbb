"""What the flow tests are made of: the real gateway as a process of its own, a backend that plays a script, a client
that writes exactly the bytes it is told to, and readers that believe nothing.  The peers are written by hand over raw
sockets, because a library would repair just what a test wants to see broken.

A test is a function that takes a Lab and raises Failed; it is known by the ids of the cases it shows:

    @test("H1-02")
    def answer_with_length_and_coding_is_one_framing(lab):
        b = lab.backend(lambda c: c.answer(b"HTTP/1.1 200 OK\\r\\n..."))
        gw = lab.gateway(routes={"sb1": b})
        r = gw.client().ask("GET", P + "/x")
        equal(r.body, b"hello", "body")

Each test runs in a process of its own.  When it returns, the Lab closes all peers, waits until the gateway has given
every descriptor back, ends it with SIGTERM and fails the test for a crash, a sanitizer report, an assertion or an exit
status that is not 0.
"""
import ctypes
import os
import socket
import subprocess
import time

from backend import Backend, BackendConn, echo, plays, says  # noqa: F401
from gateway import LIBC, REPORT, Gateway, entry, secure  # noqa: F401
from wire import (PATIENCE, Client, Ended, Failed, Head, Late, Message, Request, Response, Skipped, Wire, answer, check,  # noqa: F401
                  chunked, equal, request, short, soon, took, wait_for)

P = "/sandboxes/sb1/port/3000"
P2 = "/sandboxes/sb2/port/3000"
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000

TESTS = []


def test(*ids, limit=60):
    """Registers a test under the ids of the scenarios and cards that it shows."""
    def register(run):
        TESTS.append({"name": run.__name__, "ids": ids, "run": run, "limit": limit, "file": run.__module__})
        return run
    return register


class Lab:
    """What a test makes, and its clearing up."""

    def __init__(self, program, workers, folder):
        self.program, self.workers, self.dir = program, workers, folder
        self.long = bool(os.environ.get("SALLYPORT_FLOW_LONG"))
        self.gateways, self.backends, self.peers, self.hold = [], [], [], []
        with open(program, "rb") as f:
            code = f.read()
        self.sanitizer = "address" if b"__asan_init" in code else "thread" if b"__tsan_init" in code else ""
        self.slow = 3 if self.sanitizer else 1  # times may be so much longer
        self.fat = {"": 1, "address": 2, "thread": 16}[self.sanitizer]  # and resident memory so much more

    def backend(self, script=None, **how):
        b = Backend(script, **how)
        self.backends.append(b)
        return b

    def deaf(self):
        """An entry whose port 3000 leads to a listener that drops every SYN: its accept queue is full."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        self.hold.append(listener)
        for _ in range(8):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((host, port))
            self.hold.append(s)
        time.sleep(0.05)
        return {"address": host, "ports": {"3000": {"address": f"{host}:{port}"}}}

    def gateway(self, *flags, routes=None, env=None, start=True, nofile=0):
        """A gateway with these flags; routes: id → Backend, or an entry of the file."""
        gw = Gateway(self, flags, routes, env, start, nofile)
        self.gateways.append(gw)
        return gw

    def run(self, *argv, env=None, within=20):
        """The program with just these arguments: (exit status, stdout, stderr)."""
        done = subprocess.run([self.program, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=within, check=False, env={"PATH": "/usr/bin:/bin", **(env or {})})
        check(not REPORT.search(done.stderr), "report:", done.stderr[-3000:])
        return done.returncode, done.stdout, done.stderr

    def alone(self, resolv=None, buffers=0):
        """From here on a network of the test's own, with loopback only.  resolv: what /etc/resolv.conf says in it; buffers:
        so many bytes at most does the kernel keep for each side of a connection."""
        if os.geteuid() != 0:
            raise Skipped("needs root for a network namespace")
        if LIBC.unshare(CLONE_NEWNET | (CLONE_NEWNS if resolv else 0)) != 0:
            raise Skipped(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        self.ip("link", "set", "lo", "up")
        for name in ("tcp_rmem", "tcp_wmem") if buffers else ():
            with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as f:
                f.write(f"4096 {buffers} {buffers}")
        if resolv:
            path = os.path.join(self.dir, "resolv.conf")
            with open(path, "w", encoding="ascii") as f:
                f.write(resolv)
            self.command("mount", "--make-rprivate", "/")
            self.command("mount", "--bind", path, "/etc/resolv.conf")

    def ip(self, *words):
        self.command("ip", *words)

    def command(self, *argv):
        """A tool of the system; where it cannot do its work the test is skipped."""
        try:
            subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        except FileNotFoundError:
            raise Skipped(f"the program {argv[0]} is not installed") from None
        except subprocess.CalledProcessError as e:
            raise Skipped(f"{' '.join(argv)}: {e.stderr.decode().strip()}") from None

    def clear(self):
        """Closes everything; the faults found on the way."""
        faults = []
        for b in self.backends:
            faults += [f"backend script: {type(e).__name__}: {e}" for e in b.faults]
        for peer in self.peers + self.hold:
            peer.close()
        for b in self.backends:
            b.close()
        for gw in self.gateways:
            fault = gw.finish()
            if fault:
                faults.append(f"gateway: {fault}")
        return faults
