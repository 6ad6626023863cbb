#!/usr/bin/python3
"""Starts a program as the suites want it, aims them at it, and holds the results against the file `thresholds`.

    run.py --gateway PATH [--sidecar PATH] [--suite NAME]... [-j N] [--logs DIR] [--node-modules DIR] [--gib N]

Suites of the gateway: http1, http2 and ws in cleartext, the same with -tls behind the name through the TLS listener, clients,
path_form.  Of the sidecar, in mode proxy: egress; with interception and a vault, in namespaces of their own, as root: transparent,
explicit, badtls.  Of both, likewise: sdk.

Loopback and free ports only.  A suite counts as failed, too, when the program does not end with status 0 or its output holds
a sanitizer's report.  Last line: 'N passed, N failed, N skipped'; skipped are cases that `thresholds` knows, and clients that
are not installed.
"""
import argparse, concurrent.futures, json, os, re, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
SUITES = ["http1", "http1-tls", "http2", "http2-tls", "ws", "ws-tls", "clients", "path_form", "egress", "transparent", "explicit", "badtls", "sdk"]
APART = {"transparent", "explicit", "badtls", "sdk"}    # start their programs themselves
REPORT = re.compile(rb"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion .* failed")


def thresholds():
    least, known = {}, set()
    for line in open(HERE + "/thresholds"):
        words = line.split()
        if words[:1] == ["least"]:
            least[words[1]] = int(words[2])
        elif words[:1] == ["known"]:
            known.add((words[1], words[2]))
            known.add((words[1] + "-tls", words[2]))
    return least, known


def free_ports(n):
    """n ports of loopback that are free now, all different"""
    held = []
    for _ in range(n):
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        held.append(s)
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Program:
    """A running program of ours; its .dir goes with it"""

    def stop(self):
        """-> what was wrong with it, or None"""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        shutil.rmtree(self.dir)
        found = REPORT.search(open(self.log, "rb").read())
        if found:
            return "the program's output holds '%s', see %s" % (found.group().decode(), self.log)
        if status != 0:
            return "the program ended with status %d, see %s" % (status, self.log)

    def wait(self, port, request):
        end = time.time() + 20
        while time.time() < end and self.process.poll() is None:
            try:
                s = socket.create_connection(("127.0.0.1", port), 1)
                s.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % request)
                if s.recv(100).startswith(b"HTTP/1.1 200"):
                    return
            except OSError:
                pass
            time.sleep(0.05)


class Gateway(Program):
    """A running gateway with both listeners and one open sandbox, s1, on 127.0.0.1"""

    def __init__(self, program, log, *flags):
        self.dir = tempfile.mkdtemp(prefix="sallyport-suite-")
        self.log = log
        with open(self.dir + "/routes.json", "w") as f:
            f.write('{"sandboxes":{"s1":{"address":"127.0.0.1"}}}\n')
        subprocess.run(["sh", HERE + "/peers/certs.sh", self.dir], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.ca = self.dir + "/ca.pem"
        self.port, self.tls_port, admin = free_ports(3)
        argv = [program, "--routes=%s/routes.json" % self.dir, "--base-domain=example.test", "--workers=2",
                "--port=%d" % self.port, "--tls-port=%d" % self.tls_port, "--tls-cert=%s/leaf.pem" % self.dir,
                "--tls-key=%s/leaf.key" % self.dir, "--admin-addr=127.0.0.1:%d" % admin, *flags]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        self.wait(self.port, b"/status.ok")


class Names:
    """A DNS server on loopback: every name is 127.0.0.1 and has nothing else"""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            end = query.index(b"\0", 12) + 5
            found = struct.unpack(">H", query[end - 4:end - 2])[0] == 1
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("127.0.0.1")
            self.socket.sendto(query[:2] + struct.pack(">HHHHH", 0x8180, 1, found, 0, 0) + query[12:end] + record * found, peer)


class Sidecar(Program):
    """A running sidecar in mode proxy, as a user without privileges, that lets origin.test pass"""

    def __init__(self, program, log):
        self.dir, self.log = tempfile.mkdtemp(prefix="sallyport-suite-"), log
        self.port, api = free_ports(2)
        rules = [{"action": "allow", "target": target} for target in ("origin.test", "127.0.0.1/32")]
        env = {"MODE": "proxy", "HTTP_ADDR": "127.0.0.1:%d" % api, "PROXY_ADDR": "127.0.0.1:%d" % self.port,
               "DNS_UPSTREAM": "127.0.0.1:%d" % Names().port, "RULES": json.dumps({"defaultAction": "deny", "egress": rules})}
        self.process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=open(log, "wb"), stderr=subprocess.STDOUT,
                                        env={"PATH": "/usr/bin:/bin", **{"OPENSANDBOX_EGRESS_" + k: v for k, v in env.items()}},
                                        user=65534 if os.geteuid() == 0 else None)
        self.wait(api, b"/healthz")


class Nothing:
    """The suite starts its programs itself, and judges them"""

    def stop(self):
        return None


def program(suite, a, log):
    if suite in APART:
        return Nothing()
    if suite == "egress":
        return Sidecar(a.sidecar, log + "-sidecar.log")
    # The probe for HTTP/2 looks for the authority in Host, where the others find the backend's address.
    return Gateway(a.gateway, log + "-gateway.log", *["--backend-host=preserve"] * suite.startswith("http2"))


def probe(suite, gateway, a):
    if suite == "sdk":
        return [PYTHON, HERE + "/sdk/sdk.py", "--gateway", os.path.abspath(a.gateway), "--sidecar", os.path.abspath(a.sidecar),
                "--node-modules", os.path.abspath(a.node_modules), "--logs", os.path.abspath(a.logs)]
    if suite in APART:
        return [PYTHON, HERE + "/egress/intercept.py", suite, "--sidecar", os.path.abspath(a.sidecar), "--node-modules", os.path.abspath(a.node_modules),
                "--logs", os.path.abspath(a.logs), "--gib", str(a.gib)]
    backend, grpc = free_ports(2)
    host, path, modules = "s1-%d.example.test" % backend, "/sandboxes/s1/port/%d" % backend, os.path.abspath(a.node_modules)
    if suite == "egress":
        return [PYTHON, HERE + "/egress/matrix.py", "--proxy", "127.0.0.1:%d" % gateway.port, "--no-mitm", "--no-hosts",
                "--origin-dir", gateway.dir + "/origin", "--origin-port", str(backend), "--plain-port", str(grpc),
                "--node-modules", modules]
    base = "127.0.0.1:%d%s" % (gateway.port, path)
    if suite == "clients":
        return [PYTHON, HERE + "/ingress/clients.py", "--http", base, "--h2c", base, "--tls", "127.0.0.1:%d%s" % (gateway.tls_port, path),
                "--page", "%s:%d" % (host, gateway.tls_port), "--grpc", "127.0.0.1:%d" % gateway.port,
                "--grpc-tls", "127.0.0.1:%d" % gateway.tls_port, "--grpc-name", "s1-%d.example.test" % grpc, "--ca", gateway.ca,
                "--backend-port", str(backend), "--grpc-backend-port", str(grpc), "--node-modules", modules]
    if suite == "path_form":
        return [PYTHON, HERE + "/ingress/path_form.py", "--base", "http://" + base, "--backend-port", str(backend),
                "--node-modules", modules, "--gateway-pid", str(gateway.process.pid), "--gib", str(a.gib)]
    name, _, tls = suite.partition("-")
    return [PYTHON, "%s/%s/%s_probe.py" % (HERE, name, name), "--target", "127.0.0.1:%d" % (gateway.tls_port if tls else gateway.port),
            "--backend", "127.0.0.1:%d" % backend, "--host", host] + ["--tls"] * bool(tls)


def ask(suite, gateway, a, log, only=None):
    """Runs the probe -> (passed, skipped, [(failing case, why)]), or None if it did not finish"""
    argv = probe(suite, gateway, a) + (["--only", only] if only else [])
    with open(log, "wb") as out:
        try:
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=3000 if suite in APART else 600)
        except subprocess.TimeoutExpired:
            return None
    text = open(log, errors="replace").read()
    last = re.search(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\n?\Z", text, re.M)
    if last:
        return int(last[1]), int(last[3] or 0), re.findall(r"^FAIL (?:MUST |SAFE |SHOULD)? *(\S+)(.*)$", text, re.M)


def repeat(suite, gateway, a, log, fresh):
    """Cases that fail once more when they run alone: many watch the clock, and the machine may have been busy"""
    again = ask(suite, gateway, a, log + "-again.log", "^(%s)$" % "|".join(re.escape(name) for name, _ in fresh))
    if not again or again[0] + len(again[2]) != len(fresh):
        return fresh
    still = [c for c in fresh if c[0] in dict(again[2])]
    for name, why in fresh:
        if name not in dict(still):
            print("%s: %s passed only when it ran alone; before: %s" % (suite, name, why.strip()[:200]))
    return still


def run(suite, a, least, known):
    """-> passed, failed, skipped"""
    log = "%s/suite-%s" % (a.logs, suite)
    gateway = program(suite, a, log)
    try:
        seen = ask(suite, gateway, a, log + ".log")
        fresh = [c for c in seen[2] if (suite, c[0]) not in known] if seen else []
        failed_once = len(fresh)
        if 0 < failed_once <= 3 and suite not in ("sdk", "transparent", "explicit"):     # whose checks build upon each other
            fresh = repeat(suite, gateway, a, log, fresh)
    finally:
        wrong = gateway.stop()
        shutil.rmtree(HERE + "/egress/.origin", ignore_errors=True)
    if not seen:
        print("%s: did not finish, see %s.log" % (suite, log))
        return 0, 1, 0
    passed, skipped, failing = seen
    passed += failed_once - len(fresh)
    for name, why in fresh:
        print("%s: FAIL %s %s" % (suite, name, why.strip()[:200]))
    bad = len(fresh)
    if passed < least[suite]:
        print("%s: %d passed, at least %d must" % (suite, passed, least[suite]))
        bad = max(bad, 1)
    if wrong:
        print("%s: %s" % (suite, wrong))
        bad += 1
    by_choice = len(failing) - failed_once
    print("%s: %d passed, %d by choice not, %d failed" % (suite, passed, by_choice, bad), flush=True)
    return passed, bad, skipped + by_choice


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--gateway")
    ap.add_argument("--sidecar")
    ap.add_argument("--suite", action="append", choices=SUITES)
    ap.add_argument("-j", type=int, default=1, help="probes at a time")
    ap.add_argument("--logs", default=tempfile.gettempdir())
    ap.add_argument("--node-modules", default=HERE + "/ingress/node_modules")
    ap.add_argument("--gib", type=float, default=2, help="size of the bodies of path_form, transparent and explicit")
    a = ap.parse_args()
    least, known = thresholds()
    total = [0, 0, 0]
    suites = a.suite or SUITES[:6]
    alone = {"egress", "transparent", "explicit", "badtls"}
    if a.gateway is None and {*suites} - alone or a.sidecar is None and {*suites} & (alone | APART):
        ap.error("a program is missing: --gateway, --sidecar for egress and interception, both for sdk")
    aside = [s for s in suites if s in SUITES[:6]]      # probes wait more than they work; the others want the machine
    with concurrent.futures.ThreadPoolExecutor(a.j) as pool:
        results = list(pool.map(lambda suite: run(suite, a, least, known), aside))
    for result in results + [run(suite, a, least, known) for suite in suites if suite not in aside]:
        total = [x + y for x, y in zip(total, result)]
    print("%d passed, %d failed, %d skipped" % tuple(total))
    sys.exit(total[1] > 0)


if __name__ == "__main__":
    main()
