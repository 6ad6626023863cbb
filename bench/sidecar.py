#!/usr/bin/env python3
"""sidecar.py — what the sidecar costs, in network namespaces of its own (root): time that its DNS takes beside the upstream's, time
of a change and of a cut, CPU of a relayed download beside haproxy in TCP mode, time of a start, resident memory.

    bench/sidecar.py [--build DIR] [--rounds N] [answer change cut relay start memory]
"""
import argparse
import contextlib
import itertools
import json
import os
import select
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time

from sandbox import NAMESERVER, ORIGIN, PROXY, WORKLOAD, Sandbox, Sidecar, ask, client_hello, cpu, memory, nameserver, origin, run

HERE = os.path.dirname(os.path.abspath(__file__))
RULES, LEASES, GIB, FLOW = 4096, 10000, 1 << 30, "198.51.100.77"
MSG_TRUNC = 0x20


def allow(target):
    return {"action": "allow", "target": target}


def policy(*rules):
    return {"defaultAction": "deny", "egress": list(rules)}


def many(letter, net):
    """Half of them names, half of them single addresses."""
    half = RULES // 2
    return policy(*(allow(f"*.{letter}{i}.test") for i in range(half)),
                  *(allow(f"{net}.{i >> 8}.{i & 255}") for i in range(half)))


def show(what, seconds, target=None):
    """Of milliseconds the median, and how far they are apart."""
    ms = sorted(1000 * s for s in seconds)
    middle = statistics.median(ms)
    word = "" if target is None else f"   target {target}: {'met' if middle <= target else 'MISSED'}"
    print(f"  {what:<58} {middle:8.3f} ms   {ms[0]:.3f} .. {ms[-1]:.3f}{word}", flush=True)


# ---- DNS

def answer(box, o):
    """New names, each with an address of its own: asked directly in the twin and through us in turn."""
    print("answer: a name that nobody asked for before, directly and through us")
    numbers = itertools.count()
    for mode in ("dns+nft", "dns"):
        with Sidecar(box, o.build, MODE=mode, RULES=policy(allow("*.test")), DNS_MAX_DOMAIN_RATE="0"):
            ways = {name: box.socket(name, socket.SOCK_DGRAM, (NAMESERVER, 53)) for name in ("twin", "box")}
            times = {name: [] for name in ways}
            for i in range(100 + 300 * o.rounds):
                for name, s in sorted(ways.items(), reverse=i % 2 == 0):
                    took = ask(s, f"h{next(numbers)}.test", i)
                    if i >= 100:
                        times[name].append(1e6 * took)
        parts = {name: statistics.quantiles(t, n=100) for name, t in times.items()}
        for at in (50, 99):
            plain, ours = (parts[name][at - 1] for name in ("twin", "box"))
            print(f"  {mode:<8} p{at}  upstream {plain:7.1f} us   through us {ours:7.1f} us   more {ours - plain:7.1f} us"
                  f"   target 150: {'met' if ours - plain <= 150 else 'MISSED'}")


# ---- changes

def change(box, o):
    print(f"change: {RULES // 2} names and {RULES // 2} single addresses, from the last byte of the request")
    for relay in ("off", "on"):
        first, again, one, spent = [], [], [], []
        a, b = many("a", "198.18"), many("b", "198.19")
        for _ in range(3):
            with Sidecar(box, o.build, RULES=policy(), MITMPROXY_TRANSPARENT=relay) as s:
                first.append(s.change("POST", a, "198.18.7.255"))
                for _ in range(o.rounds):
                    before = cpu(s.pids())
                    again += [s.change("POST", b, "198.19.7.255"), s.change("POST", a, "198.18.7.255")]
                    spent.append((cpu(s.pids()) - before) / 2e9)
            with Sidecar(box, o.build, RULES=policy(), MAX_RULES="8192", MITMPROXY_TRANSPARENT=relay) as s:
                s.change("POST", a)
                one += [s.change("PATCH", [allow(f"198.19.0.{i}")], f"198.19.0.{i}") for i in range(o.rounds)]
        for title, pairs in (("the first time", first), ("all of them replaced by others", again), ("one more by PATCH", one)):
            show(f"relay {relay}: {title}: in force", [p[0] for p in pairs], 10)
            show(f"relay {relay}: {title}: the answer", [p[1] for p in pairs])
        show(f"relay {relay}: all of them replaced by others: our CPU", spent)


def cut_once(box, s, open_policy, listener):
    """Seconds from the last byte of a change to the answer, the client's reset, and its peer's."""
    s.change("POST", open_policy)
    client = box.socket("box", to=(FLOW, 9000))
    peer = listener.accept()[0]
    client.sendall(b"x")
    peer.recv(1)
    api, last = s.request("POST", policy(*open_policy["egress"][:-1], {"action": "deny", "target": FLOW}))
    took, poll = {}, select.poll()
    for sock in (api, client, peer):
        poll.register(sock, select.POLLIN)
    began = time.monotonic()
    api.sendall(last)
    while len(took) < 3 and time.monotonic() < began + 2:
        for fd, _ in poll.poll(100):
            name = {api.fileno(): "api", client.fileno(): "client", peer.fileno(): "peer"}[fd]
            took[name] = time.monotonic() - began
            poll.unregister(fd)
    for sock in (api, client, peer):
        sock.close()
    return took


def cut(box, o):
    listener = socket.create_server((FLOW, 9000))
    for title, rules in (("one rule", []), (f"{RULES} rules", many("a", "198.18")["egress"][1:])):
        print(f"cut: an open connection loses its permission, {title}")
        with Sidecar(box, o.build, RULES=policy()) as s:
            took = [cut_once(box, s, policy(*rules, allow(FLOW)), listener) for _ in range(2 * o.rounds)]
        for name in ("client", "peer", "api"):
            seen = [t[name] for t in took if name in t]
            if len(seen) < len(took):
                print(f"  {name}: not told in {len(took) - len(seen)} of {len(took)}")
            if seen:
                show({"client": "the client's socket ends", "peer": "its peer's ends", "api": "the answer"}[name], seen, 20)


# ---- downloads

def swallow(s, n):
    buffer = bytearray(1 << 20)
    while n > 0:
        got = s.recv_into(buffer, min(n, len(buffer)), MSG_TRUNC)
        if got == 0:
            raise SystemExit("a download ended early")
        n -= got


def begin(s, kind, n):
    if kind == "connect":
        s.sendall(b"CONNECT big.test:443 HTTP/1.1\r\nHost: big.test:443\r\n\r\n")
        if b" 200 " not in s.recv(4096):
            raise SystemExit("CONNECT was refused")
    if kind == "http":
        s.sendall(b"GET /%d HTTP/1.1\r\nHost: big.test\r\nConnection: close\r\n\r\n" % n)
    else:
        s.sendall(client_hello("big.test") + struct.pack("!Q", n))


def download(box, where, to, kind, at_once):
    """A GiB over so many connections, each read by a process of its own; seconds."""
    began = time.monotonic()
    pids = []
    for _ in range(at_once):
        s = box.socket(where, to=to)

        def work(s=s):
            begin(s, kind, GIB // at_once)
            swallow(s, GIB // at_once)
            os._exit(7)
        pids.append(box.fork(where, work))
        s.close()
    if any(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 7 for pid in pids):
        raise SystemExit(f"{where}, {kind}: a download failed")
    return time.monotonic() - began


def wait_for(box, port):
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError), box.socket("twin", to=("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise SystemExit("haproxy does not listen")


def haproxies(box, folder):
    """In the twin, one process each: as it comes, and with splice switched on.  What the workload sends to 80 and 443 is redirected
    to the one whose turn it is."""
    started = {}
    for name, base, option in (("haproxy", 7000, ""), ("haproxy, splice", 7100, "option splice-auto")):
        path = os.path.join(folder, f"{base}.cfg")
        with open(path, "w", encoding="ascii") as f:
            f.write("global\n nbthread 1\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n")
            f.write(f" {option}\n")
            for port in (80, 443):
                f.write(f"listen l{port}\n bind 127.0.0.1:{base + port % 80}\n server o {ORIGIN}:{port}\n")
        started[name] = (base, box.spawn("twin", ["haproxy", "-db", "-f", path]))
        wait_for(box, base)
    return started


def redirect(box, base):
    box.enter("twin")
    run("nft", "-f", "-", feed=f"""add table ip bench
        delete table ip bench
        table ip bench {{
            chain out {{
                type nat hook output priority -100
                meta skuid {WORKLOAD} tcp dport 80 redirect to :{base}
                meta skuid {WORKLOAD} tcp dport 443 redirect to :{base + 43}
            }}
        }}
        """)
    box.enter("world")


def relay_rounds(box, o, ours, others, kind, at_once):
    """us of CPU for a GiB, by name."""
    spent = {name: [] for name in ("sidecar", *others)}
    for turn in range(o.rounds + 1):
        order = list(spent) if turn % 2 else list(spent)[::-1]
        for name in order:
            port = 80 if kind == "http" else 443
            if name == "sidecar":
                where, to, pids = "box", (ORIGIN, port), ours.pids()
                if kind == "connect":
                    to = ("127.0.0.1", PROXY)
            else:
                base, process = others[name]
                redirect(box, base)
                where, to, pids = "twin", (ORIGIN, port), [process.pid]
            before = cpu(pids)
            download(box, where, to, "tls" if kind == "connect" and name != "sidecar" else kind, at_once)
            if turn:
                spent[name].append((cpu(pids) - before) / 1e6)
    return spent


def relay(box, o):
    if not shutil.which("haproxy"):
        raise SystemExit("haproxy is not installed")
    print("relay: ms of CPU for a download of 1 GiB")
    folder = tempfile.mkdtemp()
    others = haproxies(box, folder)
    try:
        with Sidecar(box, o.build, RULES=policy(allow("big.test")), MITMPROXY_TRANSPARENT="on", PROXY_ADDR=f"127.0.0.1:{PROXY}") as s:
            ask(box.socket("box", socket.SOCK_DGRAM, (NAMESERVER, 53)), "big.test")
            for kind, at_once in itertools.product(("tls", "http", "connect"), (1, 4)):
                spent = relay_rounds(box, o, s, others, kind, at_once)
                for name, ms in spent.items():
                    ratio = statistics.median(a / b for a, b in zip(spent["sidecar"], ms))
                    word = "" if name != "haproxy" else f"   target 1.2: {'met' if ratio <= 1.2 else 'MISSED'}"
                    print(f"  {kind:<8} {at_once} at once  {name:<16} {statistics.median(ms):8.1f}   {min(ms):.1f} .. {max(ms):.1f}"
                          f"   sidecar / {name} {ratio:.3f}{word}", flush=True)
    finally:
        for _, process in others.values():
            process.terminate()
            process.wait()
        shutil.rmtree(folder)


# ---- start, memory

def start(box, o):
    print("start: from exec to the first 200 of /healthz")
    folder = tempfile.mkdtemp()
    kept = os.path.join(folder, "policy.json")
    with open(kept, "w", encoding="ascii") as f:
        json.dump(many("a", "198.18"), f)
    for title, how in (("by itself", {}), ("with relay and proxy", {"MITMPROXY_TRANSPARENT": "on", "PROXY_ADDR": f"127.0.0.1:{PROXY}"}),
                       ("under the supervisor", {"supervised": True}), ("mode dns", {"MODE": "dns"}),
                       (f"with {RULES} rules", {"POLICY_FILE": kept})):
        times = []
        for _ in range(2 * o.rounds):
            s = Sidecar(box, o.build, **how)
            times.append(s.start())
            s.__exit__()
            time.sleep(0.1)
        show(title, times, 50)
    shutil.rmtree(folder)


def print_memory(title, pid, target):
    m = memory(pid)
    word = "" if target is None else f"   target {target}: {'met' if m['Rss'] <= 1024 * target else 'MISSED'}"
    print(f"  {title:<44} Rss {m['Rss']:6} KiB  Pss {m['Pss']:6}  anonymous {m['Anonymous']:6}  most {m['VmHWM']:6}{word}", flush=True)


def resident(box, o):
    print("memory: resident")
    with Sidecar(box, o.build, RULES=policy()) as s:
        time.sleep(2)
        print_memory("idle", s.pids()[0], 6)
    with Sidecar(box, o.build, RULES=policy(), supervised=True, MITMPROXY_TRANSPARENT="on", PROXY_ADDR=f"127.0.0.1:{PROXY}") as s:
        time.sleep(2)
        supervisor, pid = s.pids()
        print_memory("idle, with relay and proxy", pid, 6)
        print_memory("its supervisor", supervisor, None)
        s.change("POST", many("a", "198.18"))
        time.sleep(2)
        print_memory(f"{RULES} rules", pid, 12)
        dns = box.socket("box", socket.SOCK_DGRAM, (NAMESERVER, 53))
        for i in range(LEASES):
            ask(dns, f"h{i}.a{i % (RULES // 2)}.test", i)
        time.sleep(2)
        print_memory(f"{RULES} rules and {LEASES} leases", pid, 12)
        s.change("POST", many("a", "198.19"))
        time.sleep(2)
        print_memory("after a change of the policy", pid, 12)


FIGURES = {"answer": answer, "change": change, "cut": cut, "relay": relay, "start": start, "memory": resident}


def measure(figure, o):
    """In namespaces of its own: what one sidecar left in them must not meet the next."""
    box = Sandbox()
    box.fork("world", nameserver)
    box.fork("world", origin)
    time.sleep(0.3)
    figure(box, o)
    sys.stdout.flush()
    os._exit(0)


def main():
    p = argparse.ArgumentParser(description="what the sidecar costs")
    p.add_argument("--build", default=os.path.join(HERE, "../build/release"))
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("figures", nargs="*")
    o = p.parse_args()
    unknown = set(o.figures) - set(FIGURES)
    if unknown or os.geteuid() != 0:
        raise SystemExit(f"no such figure: {' '.join(unknown)}" if unknown else "needs root, for network namespaces")
    o.build = os.path.abspath(o.build)
    for name in o.figures or FIGURES:
        pid = os.fork()
        if pid == 0:
            measure(FIGURES[name], o)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
