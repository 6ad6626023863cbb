#!/usr/bin/env python3
"""The sidecar's part of scripts/demo: a sandbox in network namespaces of its own, with the sidecar in it and a small internet
around it, and what a workload gets there; then the vault (demo_vault.py).  Without root it shows mode `proxy`, which needs no privilege.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/harness"), str(ROOT / "tests/sidecar"), str(ROOT / "tests/flow"), str(ROOT / "tests/suites/common")]
import dnswire  # noqa: E402
from demo_vault import Vault  # noqa: E402
from wire import Ended, Failed, Late, Skipped  # noqa: E402

TEXT = b"hello from the origin"


class Show:
    def __init__(self):
        self.passed = self.failed = 0

    def title(self, text):
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)

    def check(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"  {'ok  ' if good else 'FAIL'}  {text}", flush=True)

    def said(self, text, mark="|"):
        for line in [x for x in text.splitlines() if x.strip()][:8]:
            print(f"    {mark} {line[:150]}")


def curl(run, *words, env=None):
    """curl by run(*argv) -> (status, stdout, stderr); prints both sides."""
    argv = ["curl", "-sS", "-m", "5", *words]
    print("\n    $ " + " ".join(argv), flush=True)
    start = time.monotonic()
    code, out, err = run(*argv)
    took = time.monotonic() - start
    return code, out, err, took


# ---- in namespaces -----------------------------------------------------------------------------------------------------

class Namespaces:
    """Everything below runs in a process whose namespaces go with it."""

    def __init__(self, show, lab):
        from sidecar import allow, deny
        self.show, self.lab, self.allow, self.deny = show, lab, allow, deny

    def run(self):
        self.stage()
        self.closed_at_first()
        self.one_name()
        self.by_name_only()
        self.cut()
        self.decisions()
        self.end()

    def stage(self):
        from origins import serves
        w = self.w = self.lab.world()
        self.show.title("The sidecar: a sandbox of its own, with nothing allowed")
        w.nameserver({"site.test": {"A": ["198.51.100.10"], "AAAA": ["2001:db8::10"]}, "other.test": {"A": ["198.51.100.10"]}})
        for address in ("198.51.100.10", "2001:db8::10"):  # curl chooses: newer ones take IPv6 first
            w.origin(address, 443, tls=w.ca.server("site.test", "other.test"), script=serves(TEXT))
        w.origin("198.51.100.20", 22, script=serves(TEXT))
        start = time.monotonic()
        self.s = w.sidecar(supervised=True, MITMPROXY_TRANSPARENT="true")
        took = 1000 * (time.monotonic() - start)
        print("    OPENSANDBOX_EGRESS_MODE=dns+nft OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true OPENSANDBOX_EGRESS_TOKEN=…"
              " sallyport-supervisor -- sallyport-egress")
        self.show.check(True, f"/healthz 200, proven in the kernel, {took:.0f} ms after the start of the supervisor")

    def curl(self, *words):
        return curl(lambda *argv: self.w.run(*argv), "--cacert", self.w.ca.file, *words)

    def refused(self, text, *words):
        code, out, err, took = self.curl(*words)
        self.show.said(err or out)
        self.show.check(code != 0 and took < 4, f"{text} ({1000 * took:.0f} ms)")

    def closed_at_first(self):
        self.refused("no name is resolved", "https://site.test/")
        self.refused("no address is reached", "https://198.51.100.10/")

    def api(self, method, body):
        text = json.dumps(body)
        print(f"\n    > {method} /policy {text}")
        r = self.s.ask(method, "/policy", text)
        self.show.said(f"{r.status} {r.text.strip()}", "<")
        return r.status == 200

    def one_name(self):
        self.show.title("One name is allowed, over the API")
        self.show.check(self.api("PATCH", [self.allow("site.test")]), "in force when it answers")
        code, out, err, took = self.curl("https://site.test/")
        self.show.said(out or err)
        self.show.check(code == 0 and "hello" in out, f"curl gets its page ({1000 * took:.0f} ms)")

    def by_name_only(self):
        self.show.title("And nothing else")
        self.refused("another name", "https://other.test/")
        self.refused("another name at the same address, which is open now: the relay looks at the SNI",
                     "--resolve", "other.test:443:198.51.100.10", "https://other.test/")
        self.refused("an address that nobody was told", "--connect-timeout", "3", "http://198.51.100.99:8080/")
        self.refused("DNS over TLS", "--connect-timeout", "3", "telnet://198.51.100.53:853")
        print("\n    $ dig secret-data.evil.test @198.51.100.53")
        m = self.w.ask("secret-data.evil.test", server="198.51.100.53", edns=1232)
        self.show.check(m.rcode == dnswire.NXDOMAIN, "a name server elsewhere: the question comes to us, and is denied unasked")

    def cut(self):
        self.show.title("A permission that goes takes its connections with it")
        self.show.check(self.api("PATCH", [self.allow("198.51.100.20")]), "an address is allowed")
        c = self.w.connect("198.51.100.20", 22)
        self.show.check(self.api("PATCH", [self.deny("198.51.100.20")]), "and denied again")
        c.settimeout(3)
        start = time.monotonic()
        try:
            gone = c.recv(1) == b""
        except OSError:
            gone = True
        self.show.check(gone, f"the connection to it has ended ({1000 * (time.monotonic() - start):.0f} ms later)")

    def decisions(self):
        self.show.title("What was decided")
        print("\n    > GET /policy/log")
        entries = self.s.decisions()
        for e in entries:
            where = e.get("name") or e.get("address", "")
            if e.get("name") and e.get("address"):
                where += f" at {e['address']}"
            where += f":{e['port']}" if e.get("port") else ""
            print(f"    < {e['kind']:<10} {e['verdict']:<6} {where:<44} by {e['rule']:<10} {e['count']} times")
        denied = {e.get("name") for e in entries if e["verdict"] == "deny"}
        self.show.check({"other.test", "secret-data.evil.test"} <= denied, "who was refused, and by which rule")

    def end(self):
        self.show.title("It is killed, and it is stopped")
        self.s.kill_worker()
        code, out, err, _ = self.curl("https://site.test/")
        self.show.said(out or err)
        self.show.check(code == 0 and "hello" in out, "kill -9 of the worker: the next one has the policy, closed meanwhile")
        self.s.term()
        status = self.s.exit()
        self.show.check(status == 0 and not self.w.gets_out("198.51.100.20", 22), "SIGTERM: exit status 0, and nothing leaves any more")


# ---- without privileges --------------------------------------------------------------------------------------------------

class Answerer(threading.Thread):
    """site.test is 127.0.0.1."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            data, peer = self.socket.recvfrom(4096)
            end = data.index(b"\0", 12) + 5
            a = data[end - 4:end - 2] == b"\0\1"
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if a else b""
            self.socket.sendto(data[:2] + b"\x81\x80\0\1" + (b"\0\1" if a else b"\0\0") + b"\0\0\0\0" + data[12:end] + answer, peer)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def origin():
    listener = socket.create_server(("127.0.0.1", 0))

    def loop():
        while True:
            c, _ = listener.accept()
            c.settimeout(10)
            if c.recv(65536):
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(TEXT), TEXT))
            c.close()
    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]


def mode_proxy(show, program, folder):
    show.title("The sidecar without privileges: mode proxy (kernel rules, and a vault in front of port 443, are shown as root)")
    api, proxy, to = free_port(), free_port(), origin()
    rules = {"egress": [{"action": "allow", "target": "site.test"}, {"action": "allow", "target": "127.0.0.1"}]}
    env = {"MODE": "proxy", "HTTP_ADDR": f"127.0.0.1:{api}", "PROXY_ADDR": f"127.0.0.1:{proxy}", "RULES": json.dumps(rules),
           "DNS_UPSTREAM": f"127.0.0.1:{Answerer().port}"}
    print("    " + " ".join(f"OPENSANDBOX_EGRESS_{k}={v!r}" for k, v in env.items()) + " sallyport-egress")
    with open(os.path.join(folder, "egress.log"), "wb") as log:
        p = subprocess.Popen([program], env={**os.environ, **{"OPENSANDBOX_EGRESS_" + k: v for k, v in env.items()}},
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        def run(*argv):
            r = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
            return r.returncode, r.stdout, r.stderr
        health = 1
        for _ in range(200):
            health = run("curl", "-fsS", "-m", "1", f"http://127.0.0.1:{api}/healthz")[0]
            if health == 0:
                break
            time.sleep(0.05)
        show.check(health == 0, "/healthz 200")
        for name, good in (("site.test", True), ("other.test", False)):
            code, out, err, took = curl(run, "-x", f"http://127.0.0.1:{proxy}", "-w", "%{http_code}", f"http://{name}:{to}/")
            show.said(out or err)
            show.check(("hello" in out) == good and (good or "403" in out), f"{name}: {'its page' if good else '403, and why'} ({1000 * took:.0f} ms)")
        _, out, _ = run("curl", "-sS", f"http://127.0.0.1:{api}/policy/log")
        print("\n    > GET /policy/log")
        show.said(out, "<")
        show.check('"other.test"' in out, "what was decided")
    finally:
        p.terminate()
        show.check(p.wait(20) == 0, "exit status 0")


# ---- all of it ---------------------------------------------------------------------------------------------------------------

def in_namespaces(program, folder, report):
    """In a process of its own (see tests/sidecar/run.py); writes its counts into `report`."""
    import privileges
    import world
    from bench import Lab
    world.mount(None, "/", flags=0x4000 | 0x40000)
    world.mount("proc", "/proc", "proc", 0)
    show, lab = Show(), Lab(program, folder)
    privileges.die_with_parent()
    for part in (Namespaces, Vault):
        try:
            part(show, lab).run()
        except Skipped as e:
            print(f"    skipped: {e}")
        except (Failed, Ended, Late, OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            show.check(False, f"{type(e).__name__}: {e}{lab.tail()}")
    for fault in lab.clear():
        show.check(False, fault)
    report.write_text(f"{show.passed} {show.failed}")
    sys.stdout.flush()
    os._exit(0)


def isolated(program, folder):
    """True: it was shown in namespaces; its counts."""
    import privileges
    report = pathlib.Path(folder) / "counts"
    pid = os.fork()
    if pid == 0:
        privileges.must(privileges.LIBC.unshare(privileges.CLONE_NEWPID | privileges.CLONE_NEWNS), "unshare")
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
        in_namespaces(program, folder, report)
    _, status = os.waitpid(pid, 0)
    if status or not report.exists():
        return 0, 1
    return tuple(int(n) for n in report.read_text().split())


def main():
    ap = argparse.ArgumentParser(description="Shows the sidecar at work.")
    ap.add_argument("--sidecar", required=True, help="the program sallyport-egress")
    args = ap.parse_args()
    program = str(pathlib.Path(args.sidecar).resolve())
    folder = tempfile.mkdtemp(prefix="sallyport-demo-")
    os.chmod(folder, 0o755)
    try:
        if os.geteuid() == 0:
            passed, failed = isolated(program, folder)
        else:
            show = Show()
            mode_proxy(show, program, folder)
            passed, failed = show.passed, show.failed
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
