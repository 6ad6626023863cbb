#!/usr/bin/python3
"""Real clients through the gateway's path form, to a sandbox that this script serves.

    path_form.py --base http://HOST:PORT/sandboxes/ID/port/PORT --backend-port PORT [--gateway-pid PID]
                 [--node-modules DIR] [--gib N] [--only TEXT]

- chromium: a page whose scripts use fetch, EventSource and WebSocket by relative addresses, with nothing rewritten
- node-ws-compressed: npm's ws at both ends with permessage-deflate, so that frames must pass bit by bit
- download, upload: N GiB each by curl while the gateway's memory stays what it was

A client that is not installed is skipped.  Last line: 'N passed, N failed, N skipped'.
"""
import argparse, os, re, shutil, signal, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE + "/../../harness")
import demo_backend

ROOM = 48 << 20     # what buffers of a few connections and a sanitizer's bookkeeping may take
done = threading.Event()


class Sandbox(demo_backend.Sandbox):
    def what_arrived(self, query):
        if self.path == "/done":
            done.set()
        super().what_arrived(query)


class Skip(Exception):
    pass


def command(name):
    path = shutil.which(name)
    if not path:
        raise Skip(name + " is not installed")
    return path


def chromium(a):
    profile = tempfile.mkdtemp(prefix="path-form-")
    done.clear()
    p = subprocess.Popen([command("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                          "--disable-component-update", "--no-first-run", "--user-data-dir=" + profile, "--remote-debugging-port=0",
                          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", a.base + "/"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                         env={**os.environ, "TMPDIR": profile})
    try:
        return None if done.wait(40) else "the page did not say that all three work"
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        shutil.rmtree(profile, ignore_errors=True)


def node_ws_compressed(a):
    if not os.path.isdir(a.node_modules + "/ws"):
        raise Skip("npm's ws is not installed")
    server, _, port = a.base.rpartition("/")
    r = subprocess.run([command("node"), HERE + "/deflate.js", a.node_modules, server.replace("http", "ws", 1)],
                       capture_output=True, text=True, timeout=60)
    return None if r.returncode == 0 and "ok" in r.stdout else (r.stdout + r.stderr).strip()[-300:]


def rss(a, peak=False):
    if not a.gateway_pid:
        return 0
    text = open("/proc/%d/status" % a.gateway_pid).read()
    return int(re.search(r"^Vm%s:\s+(\d+)" % ("HWM" if peak else "RSS"), text, re.M).group(1)) << 10


def steadily(a, argv, want):
    """Runs curl and judges its output and what the gateway needed for it."""
    before = rss(a)
    r = subprocess.run([command("curl"), "-sS", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500)
    grown = rss(a, peak=True) - before
    if r.returncode or want not in r.stdout:
        return "curl ended with %d: %s" % (r.returncode, (r.stdout + r.stderr)[-200:])
    if grown > ROOM:
        return "the gateway grew by %d MiB" % (grown >> 20)


def download(a):
    n = int(a.gib * (1 << 30))
    return steadily(a, ["-o", "/dev/null", "-w", "%{http_code} %{size_download}", a.base + "/big?n=%d" % n], "200 %d" % n)


def upload(a):
    n = int(a.gib * (1 << 30))
    with tempfile.NamedTemporaryFile(prefix="path-form-") as f:
        f.truncate(n)                   # all zero bytes, and none on the disk
        return steadily(a, ["-T", f.name, a.base + "/upload"], "%d bytes" % n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", required=True)
    ap.add_argument("--backend-port", type=int, required=True)
    ap.add_argument("--gateway-pid", type=int)
    ap.add_argument("--node-modules", default="./node_modules")
    ap.add_argument("--gib", type=float, default=2)
    ap.add_argument("--only")
    a = ap.parse_args()
    server = demo_backend.Server(("127.0.0.1", a.backend_port), Sandbox)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    count = {"ok": 0, "FAIL": 0, "skip": 0}
    for case in (chromium, node_ws_compressed, download, upload):
        name = case.__name__.replace("_", "-")
        if a.only and not re.search(a.only, name):
            continue
        start = time.time()
        try:
            why = case(a)
            how = "FAIL" if why else "ok"
        except Skip as e:
            how, why = "skip", str(e)
        except (OSError, subprocess.SubprocessError) as e:
            how, why = "FAIL", "%s: %s" % (type(e).__name__, e)
        count[how] += 1
        print("%-4s %-28s %5.1f s  %s" % (how, name, time.time() - start, why or ""), flush=True)
    print("%d passed, %d failed, %d skipped" % tuple(count.values()))
    sys.exit(count["FAIL"] > 0)


if __name__ == "__main__":
    main()
