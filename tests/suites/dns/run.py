#!/usr/bin/python3
"""Starts the sidecar's DNS (tests/harness/dns_main.c) on free loopback ports and aims dns_probe.py at it.

    run.py --server PATH [--corpus DIR] [--only TEXT]

Fails if a case fails (one that fails runs once more, alone: some watch the clock), or if the server does not end with status 0.
Ends with status 77, skipped, where python3-dnspython is not installed.
"""
import argparse, os, re, signal, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = '{"egress":[{"action":"allow","target":"probe.test"},{"action":"allow","target":"*.probe.test"}]}\n'


def free_port():
    """a port of loopback that is free now, for UDP and TCP"""
    while True:
        with socket.socket() as t, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
            t.bind(("127.0.0.1", 0))
            try:
                u.bind(t.getsockname())
                return "127.0.0.1:%d" % t.getsockname()[1]
            except OSError:
                pass


def wait_for(server, address):
    host, port = address.split(":")
    end = time.time() + 20
    while time.time() < end and server.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.05)


def probe(target, upstream, corpus, only):
    """-> (status, names of the cases that failed)"""
    argv = [sys.executable, HERE + "/dns_probe.py", "--target", target, "--upstream", upstream]
    argv += ["--corpus", corpus] * bool(corpus) + ["--only", only] * bool(only)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=300, text=True)
    print(done.stdout, end="", flush=True)
    return done.returncode, re.findall(r"^FAIL (\S+)", done.stdout, re.M)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--server", required=True)
    ap.add_argument("--corpus")
    ap.add_argument("--only")
    a = ap.parse_args()
    try:
        import dns.message  # noqa: F401
    except ImportError:
        print("python3-dnspython is not installed")
        return 77
    target, upstream = free_port(), free_port()
    with tempfile.NamedTemporaryFile("w", prefix="sallyport-dns-") as policy:
        policy.write(POLICY)
        policy.flush()
        server = subprocess.Popen([a.server, target, upstream, policy.name], stdin=subprocess.DEVNULL)
        try:
            wait_for(server, target)
            status, failed = probe(target, upstream, a.corpus, a.only)
            if 0 < len(failed) <= 3:
                status, _ = probe(target, upstream, a.corpus, "^(%s)$" % "|".join(map(re.escape, failed)))
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait(30)
    if ended != 0:
        print("the server ended with status %d" % ended)
    return status or ended != 0


if __name__ == "__main__":
    sys.exit(main())
