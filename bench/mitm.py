#!/usr/bin/env python3
"""mitm.py — what reading TLS costs: the sidecar with a credential and with scrubbing, beside squid (ssl-bump) and mitmdump with the
same header added, all three behind a redirect, in network namespaces of their own (root).

    bench/mitm.py [--build DIR] [--rounds N] [--seconds N] [--held N] [--only NAME …] [keepalive close bulk h2 memory idle names]
"""
import argparse
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

from readers import HERE, KIB, MIB, NAME, OTHERS, Ours, certificates, start, start_origin, write
from sandbox import (LIBC, NAMESERVER, NEWNS, ORIGIN, PDEATHSIG, REC_PRIVATE, WORKLOAD, Sandbox, ask, cpu, memory, must,
                     nameserver)

NEWPID = 0x20000000
FEW = 0.01  # of all requests: so many may fail, and are told of


# ---- the client

def client(box, where, folder, *flags, **how):
    def child():
        LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        box.enter(where)
        os.setgid(WORKLOAD)
        os.setuid(WORKLOAD)
    argv = [os.path.join(folder, "load"), "--to", f"{ORIGIN}:443", "--host", NAME, "--tls", "--json", *map(str, flags)]
    return subprocess.Popen(argv, preexec_fn=child, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **how)


def once(box, name, one, folder, flags):
    """us of CPU, and what the client saw: single requests may fail, others than the sidecar's are not ours to mend."""
    one.turn()
    before = cpu(one.pids())
    p = client(box, one.where, folder, *flags)
    out = p.communicate()[0]
    spent = cpu(one.pids()) - before
    try:
        seen = json.loads(out)
    except ValueError:
        raise SystemExit(f"{name}: {p.returncode}: {out}") from None
    failed = seen["errors"] + seen["refused"]
    if failed > seen["requests"] * FEW or failed and name == "sidecar":
        raise SystemExit(f"{name}: {out}")
    return spent / 1e3, seen


# ---- figures

# title | CPU for each | of what the client counts | so many | the client's flags | targets: at most so much of whose CPU
CPU = {
    "keepalive": ("1 KiB, 8 connections that stay", "request", "requests", 1, ["--path", "/1k", "--connections", 8],
                  {"squid": 0.5, "mitmdump": 1 / 25}),
    "close": ("1 KiB, a new connection for each request", "request", "requests", 1,
              ["--path", "/1k", "--connections", 8, "--close"], {"squid": 0.6}),
    "bulk": ("10 MiB bodies, 4 at once", "MiB", "bytes", MIB, ["--path", "/10m", "--connections", 4], {"squid": 0.2}),
    "h2": ("1 KiB, h2 on both sides, 4 connections of 10 streams", "request", "requests", 1,
           ["--path", "/1k", "--h2", "--connections", 4, "--streams", 10], {"mitmdump": 1 / 25}),
}


def biggest(one):
    return max((memory(p) for p in one.pids()), key=lambda m: m["Rss"])


def compare(box, o, folder, figure):
    title, unit, counted, of, flags, targets = CPU[figure]
    print(f"{figure}: {title}: us of CPU for a {unit}", flush=True)
    ones = {n: one for n, one in start(box, o, folder).items() if figure != "h2" or not n.startswith("squid")}
    rows = {name: [] for name in ones}
    failed = dict.fromkeys(ones, 0)
    for turn in range(o.rounds + 1):
        for name in list(ones) if turn % 2 else reversed(ones):
            us, seen = once(box, name, ones[name], folder, [*flags, "--seconds", o.seconds if turn else 1])
            if seen[counted] == 0:
                raise SystemExit(f"{name}: {seen}")
            failed[name] += seen["errors"] + seen["refused"]
            if turn:
                rows[name].append((us * of / seen[counted], seen["p50_us"], seen["p99_us"], seen["rate"]))
    for name, row in rows.items():
        us = sorted(r[0] for r in row)
        p50, p99, rate = (statistics.median(r[i] for r in row) for i in (1, 2, 3))
        print(f"  {name:<16} {statistics.median(us):10.1f}   {us[0]:.1f} .. {us[-1]:.1f}   p50 {p50:.0f} us  p99 {p99:.0f} us"
              f"  {rate:.0f}/s   Rss {biggest(ones[name])['Rss']} KiB{f'   failed {failed[name]}' if failed[name] else ''}")
    for name in rows:
        if name == "sidecar" or "sidecar" not in rows:
            continue
        ratio = statistics.median(a[0] / b[0] for a, b in zip(rows["sidecar"], rows[name]))
        limit = targets.get(name.partition(",")[0])
        word = "" if limit is None else f"   target {limit:.3f}: {'met' if ratio <= limit else 'MISSED'}"
        print(f"  sidecar / {name:<16} {ratio:.4f}{word}", flush=True)


def show_memory(name, what, m, target=None):
    word = "" if target is None else f"   target {target} MiB: {'met' if m['Rss'] <= KIB * target else 'MISSED'}"
    print(f"  {name:<16} {what:<11} Rss {m['Rss']:6} KiB  Pss {m['Pss']:6}  anonymous {m['Anonymous']:6}  most {m['VmHWM']:6}{word}",
          flush=True)


def resident(box, o, folder):
    print("memory: of the process that reads: fresh, and after some seconds of load")
    for name, one in start(box, o, folder).items():
        time.sleep(2)
        show_memory(name, "idle", biggest(one), 8 if name == "sidecar" else None)
        for figure in ("keepalive", "close", "bulk"):
            once(box, name, one, folder, [*CPU[figure][4], "--seconds", 2])
        time.sleep(1)
        show_memory(name, "after load", biggest(one))


def idle(box, o, folder):
    n = o.held
    print(f"idle: {n} connections held open: KiB for each")
    for how, flags in (("after one request each", ["--path", "/1k", "--idle", n, "--connections", 8]),
                       ("with a tunnel to the origin each", ["--path", "/ws", "--ws", n, "--connections", 8])):
        for name, one in start(box, o, folder).items():
            once(box, name, one, folder, [*CPU["keepalive"][4], "--requests", 200])
            before = biggest(one)["Rss"]
            p = client(box, one.where, folder, *flags)
            if not select.select([p.stdout], [], [], 60)[0] or "holding" not in p.stdout.readline():
                raise SystemExit(f"{name}: they are not held")
            time.sleep(2)
            each = (biggest(one)["Rss"] - before) / n
            word = f"   target 40: {'met' if each <= 40 else 'MISSED'}" if name == "sidecar" else ""
            print(f"  {how:<42} {name:<16} {each:8.1f} KiB{word}", flush=True)
            p.terminate()
            p.wait()
            one.stop()


def visit(box, where, names):
    """One request to each name, over a new connection; the origin closes its own after each."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name, address in names:
        with box.socket(where, to=(address, 443)) as raw, context.wrap_socket(raw, server_hostname=name) as s:
            s.sendall(f"GET /1k HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            head = s.recv(4096)
            if b" 200 " not in head[:20]:
                raise SystemExit(f"{name}: {head[:200]}")
            while s.recv(4096):
                pass


def names(box, o, folder):
    """What a name that was never asked for costs beyond one that was: both handshakes are whole in either case."""
    print("names: the first request to a new name: us of CPU beyond one to a known name")
    one = Ours(box, o, folder)
    dns = box.socket("box", socket.SOCK_DGRAM, (NAMESERVER, 53))
    spent = {"new": [], "known": []}
    for turn in range(o.rounds + 1):
        group = [(f"h{turn * 100 + i}.names.test", f"198.18.{(turn * 100 + i) >> 8}.{(turn * 100 + i) & 255}") for i in range(100)]
        for name, _ in group:
            ask(dns, name)
        for kind in ("new", "known"):
            before = cpu(one.pids())
            visit(box, "box", group)
            if turn:
                spent[kind].append((cpu(one.pids()) - before) / 1e3 / len(group))
    more = statistics.median(a - b for a, b in zip(spent["new"], spent["known"]))
    for kind, us in spent.items():
        print(f"  {kind:<16} {statistics.median(us):10.1f}   {min(us):.1f} .. {max(us):.1f}")
    print(f"  more             {more:10.1f}   target 1000: {'met' if more <= 1000 else 'MISSED'}")


OTHER_FIGURES = {"memory": resident, "idle": idle, "names": names}
FIGURES = [*CPU, *OTHER_FIGURES]


def own_files():
    """Where the sidecar puts its authority: folders of ours in place of the machine's, in these namespaces alone."""
    for path in ("/var/lib/mitmproxy", "/opt/opensandbox", "/usr/local/share/ca-certificates", "/etc/ssl/certs"):
        os.makedirs(path, exist_ok=True)
        must(LIBC.mount(b"none", path.encode(), b"tmpfs", ctypes.c_ulong(0), None))
    write("/etc/ssl/certs/ca-certificates.crt", "")


def measure(figure, o, folder):
    """In namespaces of its own."""
    box = Sandbox()
    own_files()
    box.fork("world", nameserver)
    certificates(folder)
    shutil.copy(os.path.join(o.build, "bench/bench-load"), os.path.join(folder, "load"))
    start_origin(box, folder, o.build, figure == "h2")
    time.sleep(0.5)
    if figure in CPU:
        compare(box, o, folder, figure)
    else:
        OTHER_FIGURES[figure](box, o, folder)
    sys.stdout.flush()


def alone(figure, o, folder):
    """As the first process of a namespace: with it everything ends that it started, whatever that has become."""
    must(LIBC.unshare(NEWPID | NEWNS))
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    must(LIBC.mount(None, b"/", None, ctypes.c_ulong(REC_PRIVATE), None))
    must(LIBC.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None))
    measure(figure, o, folder)
    return 0


def forked(figure, o):
    folder = tempfile.mkdtemp(prefix="mitm-")
    os.chmod(folder, 0o755)
    try:
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        code = 1
        try:
            code = alone(figure, o, folder)
        except SystemExit as e:
            print(e, file=sys.stderr)
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description="what reading TLS costs")
    p.add_argument("--build", default=os.path.join(HERE, "../build/release"))
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=int, default=2)
    p.add_argument("--held", type=int, default=500)
    p.add_argument("--only", action="append", choices=["sidecar", *OTHERS], help="of those that read (default: all)")
    p.add_argument("figures", nargs="*")
    o = p.parse_args()
    o.only = o.only or ["sidecar", *OTHERS]
    missing = {program for name in o.only if (program := name.partition(",")[0]) in OTHERS and not shutil.which(program)}
    if missing:
        raise SystemExit(f"not installed: {' '.join(missing)}")
    unknown = set(o.figures) - set(FIGURES)
    if unknown or os.geteuid() != 0:
        raise SystemExit(f"no such figure: {' '.join(unknown)}" if unknown else "needs root, for network namespaces")
    o.build = os.path.abspath(o.build)
    for figure in o.figures or FIGURES:
        if forked(figure, o) != 0:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
