#!/usr/bin/env python3
"""cluster.py — what the gateway costs on a cluster: start and memory with 100,000 sandboxes of a Kubernetes API, how soon traffic sees an
update while thousands a second come, CPU of a request among that many, memory of clients that wait for one sandbox to wake.

    bench/cluster.py [--build DIR] [--rounds N] [list updates lookup wait]
"""
import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "tests", part) for part in ("flow", "harness")]
from fast import NS  # noqa: E402
from fastpath_server import FastPath, code, route, state  # noqa: E402
from kube_server import KubeServer  # noqa: E402
from lib import Lab, wait_for  # noqa: E402
from signed import RING, scope  # noqa: E402

MANY, BYTES, STEM = 100000, 700, "0123456789abcdef0123456789abc"
MIB, LOOPBACK = 1 << 20, "--allow-target-cidr=127.0.0.0/8"
PLAIN = b"GET /status.ok HTTP/1.1\r\nHost: gw.test\r\nUser-Agent: load/1.0\r\nAccept: */*\r\n\r\n"
ASLEEP = b"GET /2 HTTP/1.1\r\nHost: gw.test\r\nOpenSandbox-Ingress-To: %s\r\nUser-Agent: load/1.0\r\nAccept: */*\r\n\r\n"


def show(what, value, unit, target=None, more=""):
    word = "" if target is None else f"   target {target}: {'met' if value <= target else 'MISSED'}"
    print(f"  {what:<66} {value:9.2f} {unit:<4}{word}{more}", flush=True)


def spread(values):
    return f"   {min(values):.2f} .. {max(values):.2f}"


class Cluster:
    """A Kubernetes API with so many sandboxes beside what is put into it, a gateway that watches it, and an origin on 127.0.0.0/8."""

    def __init__(self, o, objects):
        self.o, self.lab = o, Lab(os.path.join(o.build, "sallyport-ingress"), 2, tempfile.mkdtemp(dir=o.dir))
        self.server = KubeServer(self.lab.dir)
        self.lab.peers.append(self.server)
        self.server.fill(objects, size=BYTES, stem=STEM)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        faults = self.lab.clear()
        if faults:
            print("  " + "\n  ".join(faults))

    def gateway(self, *flags):
        """Started; what the start took, in s."""
        self.gw = self.lab.gateway("--provider-type=batchsandbox", LOOPBACK, *flags, env={"KUBECONFIG": self.server.kubeconfig()}, start=False)
        self.gw.settles = False  # connections to the origin stay
        began = time.monotonic()
        self.gw.start()
        return time.monotonic() - began

    def memory(self):
        """(resident, most that was resident), bytes."""
        with open(f"/proc/{self.gw.pid}/status", encoding="ascii") as f:
            kib = {k: int(v.split()[0]) for k, _, v in (line.partition(":") for line in f) if k in ("VmRSS", "VmHWM")}
        return 1024 * kib["VmRSS"], 1024 * kib["VmHWM"]

    def cpu_s(self):
        """Of all its threads."""
        folder = f"/proc/{self.gw.pid}/task"
        total = 0
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9


@contextlib.contextmanager
def origin(o):
    """bench-origin's port."""
    process = subprocess.Popen([os.path.join(o.build, "bench/bench-origin"), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline().split()[-1].rpartition(":")[2])
    finally:
        process.kill()
        process.wait()


def found(o):
    print(f"list: {MANY} sandboxes of {BYTES} bytes, in pages of 500, over TLS")
    took, resident, most = [], [], []
    for _ in range(o.rounds):
        with Cluster(o, MANY) as c:
            took.append(c.gateway())
            if c.gw.metric("ingress_kube_objects") != MANY:
                raise SystemExit("not all of them are there")
            time.sleep(0.5)
            rss, hwm = c.memory()
            resident.append(rss / MIB)
            most.append(hwm / MIB)
    show("from the start of the program to its listener", statistics.median(took), "s", 3, spread(took))
    show("resident", max(resident), "MiB", 60, spread(resident))
    show("at most", max(most), "MiB", None, spread(most))


class Storm:
    """Updates of other sandboxes at a steady rate, each with another address."""

    def __init__(self, server, rate):
        self.server, self.rate, self.sent, self.over = server, rate, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        began = time.monotonic()
        while not self.over.wait(0.002):
            due = int((time.monotonic() - began) * self.rate)
            with self.server.lock:
                for i in range(self.sent, due):
                    self.server.put(f"busy{i % 5000}", f"10.0.{i % 200}.{i % 7}")
            self.sent = due

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def answers(conn):
    """The address that was dialled."""
    while True:
        conn.request()
        where = conn.sock.getsockname()[0].encode()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(where), where))


def updates(o):
    print(f"updates: from the change to the first answer of the new address, new connections, among {MANY} sandboxes")
    for rate, target in ((0, None), (2000, 50), (5000, None)):
        with Cluster(o, MANY) as c:
            port = c.lab.backend(answers, host="0.0.0.0").port
            c.gateway("--log-level=warn")
            wait_for(lambda: c.gw.metric("ingress_kube_watching") == 1, "a watch", 20)
            c.server.put("probe", "127.0.0.2")
            ms, cpu, began = [], c.cpu_s(), time.monotonic()
            with Storm(c.server, rate) as storm:
                for i in range(60 * o.rounds):
                    ms.append(1000 * visible_after(c, port, f"127.0.0.{3 - i % 2}"))
                    time.sleep(0.007 * (i % 3))
            elapsed = time.monotonic() - began
            ms.sort()
            title = f"{rate} a second ({storm.sent / elapsed:.0f} made):" if rate else "quiet:"
            show(f"{title} p50", statistics.median(ms), "ms")
            show(f"{title} p99", ms[int(0.99 * (len(ms) - 1))], "ms", target, f"   most {ms[-1]:.1f}")
            show(f"{title} our CPU, all of it", 100 * (c.cpu_s() - cpu) / elapsed, "%")


def visible_after(c, port, address):
    """Seconds; what is answered meanwhile comes from the old one."""
    began = time.monotonic()
    c.server.put("probe", address)
    while True:
        client = c.gw.client()
        r = client.ask("GET", f"/sandboxes/probe/port/{port}/", "Connection: close")
        client.close()
        c.lab.peers.remove(client)
        if r.text == address:
            return time.monotonic() - began
        if time.monotonic() > began + 20:
            raise SystemExit(f"not seen within 20 s: {r.status} {r.text[:100]}")


def lookup(o):
    print(f"lookup: CPU of a request of 1 KB on kept connections, one sandbox and {MANY}, in turn")
    spent = collections.defaultdict(list)
    with origin(o) as port, Cluster(o, 0) as one, Cluster(o, MANY) as many:
        for c in (one, many):
            c.gateway("--log-level=warn")
            c.server.put("probe", "127.0.0.1")
            wait_for(lambda c=c: c.gw.metric("ingress_kube_objects") % MANY == 1, "the sandbox", 20)
        for i in range(2 * o.rounds):
            for c in (one, many)[::1 - 2 * (i % 2)]:
                spent[c].append(spent_on(o, c, port))
        show("one", statistics.median(spent[one]), "us", None, spread(spent[one]))
        show(f"{MANY}", statistics.median(spent[many]), "us", None, spread(spent[many]))
        show("ratio of the rounds, median", statistics.median(b / a for a, b in zip(spent[one], spent[many])), "")


def spent_on(o, c, port):
    """us of the gateway's CPU for each request of a second."""
    before = c.cpu_s()
    out = subprocess.run([os.path.join(o.build, "bench/bench-load"), "--to", f"127.0.0.1:{c.gw.port}", "--path",
                          f"/sandboxes/probe/port/{port}/1024", "--seconds", "1", "--json"], check=True, capture_output=True, text=True)
    return 1e6 * (c.cpu_s() - before) / json.loads(out.stdout)["requests"]


# ---- clients that wait

def dial(port):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except OSError:
            time.sleep(0.05)
    raise SystemExit("no connection")


def read_all(socks):
    """An answer of each → how often each status."""
    got = collections.Counter()
    for s in socks:
        s.settimeout(120)
        with s.makefile("rb") as f:
            status = f.readline().split()[1:2]
            length = 0
            while (line := f.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            f.read(length)
        got[status[0].decode() if status else "end"] += 1
    return got


def clients(port, n, pipe):
    """A process of its own: that many connections, which do what the pipe says."""
    socks = [dial(port) for _ in range(n)]
    while True:
        what = pipe.recv()
        if isinstance(what, bytes):
            for s in socks:
                s.sendall(what)
            pipe.send(None)
        elif what:
            pipe.send(read_all(socks))
        else:
            return


class Crowd:
    """Clients in two processes: one may have no more descriptors than the gateway."""

    def __init__(self, port, n):
        self.pipes, self.processes = [], []
        for _ in range(2):
            ours, theirs = multiprocessing.Pipe()
            self.pipes.append(ours)
            self.processes.append(multiprocessing.Process(target=clients, args=(port, n // 2, theirs), daemon=True))
            self.processes[-1].start()

    def all(self, what):
        for p in self.pipes:
            p.send(what)
        return [p.recv() for p in self.pipes]

    def read(self):
        return sum(self.all(True), collections.Counter())

    def end(self):
        for p in self.pipes:
            p.send(None)
        for p in self.processes:
            p.join(20)


class Sleeper:
    """A sandbox that sleeps until it is told, a gateway that wakes it, and a crowd at its door."""

    def __init__(self, o, n, port):
        self.awake, self.fp, self.lab = threading.Event(), FastPath(), Lab(os.path.join(o.build, "sallyport-ingress"), 2, o.dir)
        self.fp.state[NS, "sb1"] = lambda call: state("READY") if self.awake.is_set() else state("PAUSED", checkpoint="c")
        self.fp.resume[NS, "sb1"] = state("RESUMING")
        self.fp.resolve[NS, "sb1"] = lambda call: route(port) if self.awake.is_set() else code(9)
        self.gw = self.lab.gateway("--provider-type=fast-sandbox", f"--fastpath-endpoint={self.fp.endpoint}", f"--secure-access-keys={RING}", LOOPBACK,
                                   "--wake-enabled", "--wake-park-budget=120s", "--wake-park-max=20000", "--max-connections=15000", "--keep-alive-timeout=1h",
                                   "--backend-protocol=h2c", "--log-level=error")
        self.gw.settles = False  # connections to the origin stay
        self.crowd = Crowd(self.gw.port, n)

    def end(self):
        self.crowd.end()
        for fault in self.lab.clear():
            print("  " + fault)
        self.fp.stop()


def wait(o):
    n = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1000) // 2 * 2
    print(f"wait: {n} clients on kept connections that wait for one sandbox to wake" + ("" if n == 10000 else " (there are no descriptors for more)"))
    with origin(o) as port:
        s = Sleeper(o, n, port)
        s.crowd.all(PLAIN)
        s.crowd.read()
        time.sleep(1.5)
        idle = s.gw.rss()
        s.crowd.all(ASLEEP % scope("sb1").encode())
        wait_for(lambda: s.gw.metric("ingress_park_active") == n, "all of them wait", 60)
        time.sleep(1.5)
        show("each, beside its connection", (s.gw.rss() - idle) / 1024 / n, "KiB", 1.5)
        show("ResumeSandbox calls", s.fp.count("ResumeSandbox"), "", 1)
        before, began = s.fp.count("ResolveEndpoint"), time.monotonic()
        s.awake.set()
        got = s.crowd.read()
        show("all answered after the sandbox woke", time.monotonic() - began, "s", None, "   " + ", ".join(f"{v} times {k}" for k, v in got.items()))
        show("ResolveEndpoint calls for that", s.fp.count("ResolveEndpoint") - before, "", 1)
        s.end()


def main():
    figures = {"list": found, "updates": updates, "lookup": lookup, "wait": wait}
    ap = argparse.ArgumentParser(description="What the gateway costs on a cluster.")
    ap.add_argument("--build", default=os.path.join(HERE, "..", "build", "release"))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("figures", nargs="*", choices=[*figures, []], help="none: all")
    o = ap.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="bench-") as o.dir:
        for name in o.figures or figures:
            figures[name](o)


if __name__ == "__main__":
    main()
