"""Programs that people use, through the gateway: curl, git, Node's ws, Chromium; and bodies larger than memory should ever
hold.  A program that is not installed is a skipped test that says so.  With --long bodies are of 2 GiB."""
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time

from lib import P, Failed, Skipped, answer, check, equal, request, secure, test, wait_for
from signed import RING, Proof
from ws import CLOSE, closing, frame, read_frame, upgraded

FOLDER = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(FOLDER, "..", "..", "build", "flow-clients")
TOKEN = "s3cret-t0ken"


def needs(*programs):
    for name in programs:
        if not shutil.which(name):
            raise Skipped(f"the program {name} is not installed")


def run(*argv, within=60, env=None, stdin=None, folder=None, good=True):
    """Runs a program to its end; its stdout."""
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": folder or "/nonexistent", "LC_ALL": "C.UTF-8", **(env or {})}
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=within, env=env, cwd=folder, check=False)
    check(not good or done.returncode == 0, " ".join(argv[:3]), "ends with", done.returncode, done.stderr[-2000:].decode("utf-8", "replace"))
    return done.stdout


# ---- curl ----------------------------------------------------------------------------------------------------------

def with_body(conn):
    """The next request; its body is asked for where the client waits for that."""
    r = conn.head()
    if r.get("expect"):
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    return conn.read_body(r, r.framing(False)[0] == "eof")


def site(conn):
    """A small site: what curl asks for by name."""
    while True:
        r = with_body(conn)
        if r.target == "/gzip":
            conn.send(answer(200, "Content-Encoding: gzip", body=gzip.compress(b"unpacked " * 1000)))
        elif r.target == "/moved":
            conn.send(answer(302, "Location: /elsewhere", body=b"moved"))
        elif r.target == "/chunks":
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n" + b"3\r\nabc\r\n" * 1000 + b"0\r\nX-End: yes\r\n\r\n")
        elif r.target == "/cut":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return
        elif r.target == "/events":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for i in range(3):
                conn.send(b"data: %d\n\n" % i)
                time.sleep(0.3)
            return
        else:
            body = json.dumps({"line": r.line, "n": len(r.body), "sha": hashlib.sha256(r.body).hexdigest(), "conn": conn.number}).encode()
            conn.send(answer(200, f"Etag: \"{r.method}\"", body=b"" if r.method == "HEAD" else body))


def curl(gw, *argv, **how):
    return run("curl", "-sS", "--max-time", "30", "--noproxy", "*", *argv, **how)


@test("PH-02", "PH-03", "H1-06")
def curl_in_its_many_ways(lab):
    needs("curl")
    b = lab.backend(site)
    gw = lab.gateway("--base-domain=gw.test", f"--secure-access-keys={RING}", routes={"sb1": b, "sec": secure(b, TOKEN)})
    at = f"http://127.0.0.1:{gw.port}"
    base = at + P
    plain = json.loads(curl(gw, base + "/a%2Fb//c?x=%zz&y"))
    equal(plain["line"], "GET /a%2Fb//c?x=%zz&y HTTP/1.1", "request line at the backend")
    equal(json.loads(curl(gw, "--path-as-is", base + "/a/../b"))["line"], "GET /a/../b HTTP/1.1", "dot segments")
    big = os.urandom(3_000_000)
    for flags in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue"), ("-0",), ("-T", "-")):
        data = ("-X", "POST", "--data-binary", "@-") if flags != ("-T", "-") else ()
        seen = json.loads(curl(gw, *data, *flags, base + "/up", stdin=big))
        equal((seen["n"], seen["sha"]), (len(big), hashlib.sha256(big).hexdigest()), f"upload with {flags}")
    equal(gzip.decompress(curl(gw, base + "/gzip")), b"unpacked " * 1000, "a packed body stays packed")
    equal(curl(gw, "--compressed", base + "/gzip"), b"unpacked " * 1000, "a packed body")
    equal(curl(gw, base + "/chunks"), b"abc" * 1000, "a body in chunks")
    equal(curl(gw, base + "/moved", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"), f"302 {at}/elsewhere".encode(), "a redirect")
    check(curl(gw, "-I", base + "/x").startswith(b"HTTP/1.1 200 "), "HEAD")
    equal(run("curl", "-s", "--max-time", "10", base + "/cut", "-w", " %{errormsg}", good=False)[:5], b"half ", "a cut body is an error")
    lines = [json.loads(x) for x in curl(gw, base + "/1", base + "/2", base + "/3", "-w", "\n").splitlines()]
    equal(len(lines), 3, "three on one connection")
    equal(json.loads(curl(gw, "-H", "OpenSandbox-Ingress-To: sb1-3000", at + "/by-header"))["line"], "GET /by-header HTTP/1.1", "by header")
    equal(json.loads(curl(gw, "--resolve", f"sb1-3000.gw.test:{gw.port}:127.0.0.1", f"http://sb1-3000.gw.test:{gw.port}/h"))["line"],
          "GET /h HTTP/1.1", "by host")
    equal(json.loads(curl(gw, at + Proof("sec").path + "/signed"))["line"], "GET /signed HTTP/1.1", "signed")
    equal(curl(gw, at + "/sandboxes/sec/port/3000/", "-o", "/dev/null", "-w", "%{http_code}"), b"401", "without a proof")
    equal(curl(gw, base + "/events"), b"data: 0\n\ndata: 1\n\ndata: 2\n\n", "events")


@test("STR-01")
def curl_sees_events_as_they_come(lab):
    needs("curl")
    gw = lab.gateway(routes={"sb1": lab.backend(site)})
    p = subprocess.Popen(["curl", "-sSN", "--noproxy", "*", f"http://127.0.0.1:{gw.port}{P}/events"], stdout=subprocess.PIPE)
    times = []
    for line in p.stdout:
        if line.startswith(b"data: "):
            times.append(time.monotonic())
    equal(p.wait(10), 0, "exit of curl")
    gaps = [b - a for a, b in zip(times, times[1:])]
    check(len(gaps) == 2 and min(gaps) > 0.15, "gaps between events", gaps)


# ---- git over smart HTTP -------------------------------------------------------------------------------------------

BACKEND = "/usr/lib/git-core/git-http-backend"


def git_server(root):
    """A script: each request runs git's own CGI program."""
    def script(conn):
        while True:
            r = with_body(conn)
            conn.seen.clear()
            conn.send(cgi(root, r))
    return script


def cgi(root, r):
    path, _, query = r.target.partition("?")
    env = {"PATH": "/usr/bin:/bin", "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": r.method, "PATH_INFO": path,
           "QUERY_STRING": query, "CONTENT_TYPE": r.get("content-type", ""), "CONTENT_LENGTH": str(len(r.body)), "REMOTE_USER": "tester",
           "REMOTE_ADDR": "127.0.0.1", "HTTP_CONTENT_ENCODING": r.get("content-encoding", ""), "GIT_PROTOCOL": r.get("git-protocol", "")}
    done = subprocess.run([BACKEND], input=r.body, capture_output=True, env=env, check=False)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    status = next((line[8:] for line in lines if line.lower().startswith("status: ")), "200 OK")
    rest = [line for line in lines if not line.lower().startswith("status: ")]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 50000]), body[i:i + 50000]) for i in range(0, len(body), 50000))
    return "\r\n".join([f"HTTP/1.1 {status}", *rest, "Transfer-Encoding: chunked"]).encode() + b"\r\n\r\n" + framed + b"0\r\n\r\n"


@test("H1-06", limit=120)
def git_clones_and_pushes_over_smart_http(lab):
    needs("git")
    if not os.path.exists(BACKEND):
        raise Skipped("git-http-backend is not installed")
    root, work = os.path.join(lab.dir, "srv"), os.path.join(lab.dir, "work")
    os.makedirs(work)
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@gw.test", "-c", "init.defaultBranch=main", "-c", "http.proxy=")

    def git(*argv, folder=work):
        return run("git", *identity, *argv, folder=folder, env={"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}).decode()
    git("init", "--bare", "-q", os.path.join(root, "repo.git"))
    git("config", "http.receivepack", "true", folder=os.path.join(root, "repo.git"))
    git("init", "-q", ".")
    for i in range(20):
        with open(os.path.join(work, f"file{i}"), "wb") as f:
            f.write(os.urandom(150_000))
    git("add", ".")
    git("commit", "-qm", "first")
    b = lab.backend(git_server(root))
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={"sb1": b, "sec": secure(b, TOKEN)})
    at = f"http://127.0.0.1:{gw.port}"
    git("-c", "http.postBuffer=65536", "push", "-q", f"{at}{P}/repo.git", "main")
    check(any(r.get("transfer-encoding") for r in b.requests), "the push was not in chunks")
    head = git("rev-parse", "HEAD").strip()
    token = f"http.extraHeader=OpenSandbox-Secure-Access: {TOKEN}"
    for name, where, more in (("plain", P, ()), ("depth", P, ("--depth=1",)), ("token", "/sandboxes/sec/port/3000", ("-c", token)),
                              ("signed", Proof("sec").path, ())):
        git("clone", "-q", *more, f"{at}{where}/repo.git", name, folder=lab.dir)
        equal(git("rev-parse", "HEAD", folder=os.path.join(lab.dir, name)).strip(), head, f"commit of the clone, {name}")
        git("fsck", "--full", folder=os.path.join(lab.dir, name))
    clone = os.path.join(lab.dir, "plain")
    with open(os.path.join(clone, "large"), "wb") as f:
        f.write(os.urandom(8_000_000))
    git("add", ".", folder=clone)
    git("commit", "-qm", "second", folder=clone)
    git("push", "-q", "origin", "main", folder=clone)
    equal(git("rev-parse", "main", folder=os.path.join(root, "repo.git")), git("rev-parse", "HEAD", folder=clone), "commit that was pushed")
    git("pull", "-q", "--ff-only", f"{at}{P}/repo.git", "main")
    equal(git("rev-parse", "HEAD"), git("rev-parse", "HEAD", folder=clone), "commit that was pulled")


# ---- Node ----------------------------------------------------------------------------------------------------------

def node_modules():
    """The folder with the npm package ws, installed on the first use."""
    needs("node", "npm")
    modules = os.path.join(CACHE, "node_modules")
    if not os.path.isdir(os.path.join(modules, "ws")):
        os.makedirs(CACHE, exist_ok=True)
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", CACHE, "ws@8"], capture_output=True,
                              timeout=60, check=False)
        if done.returncode != 0:
            raise Skipped("npm cannot install the package ws: " + done.stderr.decode("utf-8", "replace").strip()[:200])
    return modules


@test("sn-cef4a458", "sn-0840eeae", limit=120)
def nodes_ws_with_compression(lab):
    modules = node_modules()
    peer = os.path.join(FOLDER, "ws_peer.js")
    server = subprocess.Popen(["node", peer, modules, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        gw = lab.gateway(routes={"sb1": {"address": "127.0.0.1"}})
        out = run("node", peer, modules, "talk", f"ws://127.0.0.1:{gw.port}/sandboxes/sb1/port/{port}/chat?x=1")
        closed = server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.kill()
        server.wait()
    seen = json.loads(out)
    headers = seen.pop("headers")
    sent = seen.pop("sent")
    equal(seen, {"protocol": "graphql-ws", "extensions": "permessage-deflate", "echo": "grüße", "big": True, "noise": True,
                 "pong": "pong from the backend", "clientPong": "from the client", "many": True, "close": [1008, "policy trip"]}, "what ws saw")
    check(sent < 100_000, "3 MiB of words went out in", sent, "bytes")
    equal((headers["host"], headers["x-forwarded-host"]), (f"127.0.0.1:{port}", f"127.0.0.1:{gw.port}"), "hosts at the backend")
    equal(closed, "closed 1008 policy trip", "what the backend saw of the close")


# ---- Chromium ------------------------------------------------------------------------------------------------------

PAGE = b"""<!doctype html><meta charset="utf-8"><title>page</title><link rel="icon" href="data:,"><script src="app.js"></script>"""
APP = b"""
const seen = {};
async function fetches() {
  const r = await fetch('api/echo?a=1', {method: 'POST', body: 'x'.repeat(200000), headers: {'X-Own': 'y'}});
  seen.fetch = [r.status, (await r.json()).n, r.headers.get('x-request-id') !== null];
  const parts = [], reader = (await fetch('api/stream')).body.getReader();
  for (let p; !(p = await reader.read()).done;) parts.push(performance.now());
  seen.streamed = parts.length >= 3 && parts[parts.length - 1] - parts[0] > 200;
  seen.missing = (await fetch('api/missing')).status;
  const many = await Promise.all([...Array(40).keys()].map(i => fetch('api/echo?i=' + i, {method: 'POST', body: 'b' + i}).then(r => r.json())));
  seen.many = many.every((m, i) => m.n === ('b' + i).length);
  seen.cached = (await (await fetch('api/gzip')).text()).length;
}
function events() {
  return new Promise((resolve, reject) => {
    const got = [], source = new EventSource('api/events');
    source.onmessage = (e) => { got.push(e.data); if (got.length === 3) { source.close(); seen.events = got; resolve(); } };
    source.onerror = () => got.length < 3 && reject(new Error('EventSource'));
  });
}
function socket() {
  return new Promise((resolve, reject) => {
    const url = new URL('ws', location.href); url.protocol = 'ws:';
    const ws = new WebSocket(url, ['chat']), big = 'y'.repeat(500000), got = [];
    ws.onopen = () => { ws.send('hello'); ws.send(big); };
    ws.onmessage = (e) => { got.push(e.data); if (got.length === 2) { seen.ws = [got[0], got[1] === big, ws.protocol]; ws.close(4001, 'time is up'); } };
    ws.onclose = (e) => { seen.close = [e.code, e.reason, e.wasClean]; resolve(); };
    ws.onerror = () => reject(new Error('WebSocket'));
  });
}
Promise.all([fetches(), events(), socket()]).catch(e => { seen.error = String(e); })
  .then(() => fetch('result', {method: 'POST', body: JSON.stringify(seen)}));
"""


def page_server(results, closes):
    """A script: the page, what it asks for, and where it says what it saw."""
    def script(conn):
        while True:
            while b"\r\n\r\n" not in conn.buf:
                conn.more(120)
            if b"upgrade: websocket" in conn.buf.lower():
                browser_socket(conn, closes)
                return
            r = conn.request()
            if not page_answer(conn, r, results):
                return
    return script


def browser_socket(conn, closes):
    upgraded(conn, "Sec-WebSocket-Protocol: chat")
    while True:
        f = read_frame(conn, 60)
        if f.opcode == CLOSE:
            closes.append(f.payload)
        conn.send(frame(f.opcode, f.payload, f.fin))
        if f.opcode == CLOSE:
            return


def page_answer(conn, r, results):
    """False: the connection is done."""
    path = r.target.partition("?")[0]
    if path == "/api/stream":
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            conn.send(b"5\r\npart \r\n")
            time.sleep(0.15)
        conn.send(b"0\r\n\r\n")
    elif path == "/api/events":
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n")
        for i in range(3):
            conn.send(b"data: event %d\n\n" % i)
            time.sleep(0.1)
        return False
    elif path == "/result":
        results.append(json.loads(r.body))
        conn.send(answer(200, body=b"thanks"))
    else:
        page = {"/": (200, "text/html", PAGE), "/app.js": (200, "text/javascript", APP),
                "/api/echo": (200, "application/json", json.dumps({"n": len(r.body)}).encode()),
                "/api/gzip": (200, "text/plain\r\nContent-Encoding: gzip", gzip.compress(b"z" * 100000))}
        status, kind, body = page.get(path, (404, "text/plain", b"none"))
        conn.send(answer(status, f"Content-Type: {kind}", body=body))
    return True


CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--no-default-browser-check",
            "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE *.gw.test",)


@test("WS-09", "SR-05", "sn-cef4a458", limit=180)
def chromium_loads_a_page_whose_scripts_fetch_listen_and_talk(lab):
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        raise Skipped("chromium is not installed")
    results, closes = [], []
    b = lab.backend(page_server(results, closes))
    gw = lab.gateway(f"--secure-access-keys={RING}", "--idle-timeout=60s", routes={"sb1": b, "sec": secure(b, TOKEN)})
    for i, path in enumerate((P + "/", Proof("sec").path + "/")):
        profile = os.path.join(lab.dir, f"profile{i}")
        with open(os.path.join(lab.dir, "chromium.log"), "ab") as log:
            p = subprocess.Popen([program, *CHROMIUM, f"--user-data-dir={profile}", f"http://127.0.0.1:{gw.port}{path}"], stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin", "HOME": lab.dir, "TMPDIR": lab.dir})
            try:
                wait_for(lambda n=i: len(results) > n, "the page's result", 60)
            except Failed as e:
                asked = [r.line for r in b.requests[-20:]]
                raise Failed(f"{e}; asked for so far: {asked}") from None
            finally:
                p.terminate()
                try:
                    p.wait(10)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()
        equal(results[i], {"fetch": [200, 200000, True], "streamed": True, "missing": 404, "many": True, "cached": 100000,
                           "events": ["event 0", "event 1", "event 2"], "ws": ["hello", True, "chat"], "close": [4001, "time is up", True]},
              f"what the page at {path} saw")
        equal(closes[i], closing(4001, "time is up"), "the close at the backend")
    check(not any("sandboxes" in r.line for r in b.requests), "the prefix reached the backend")


# ---- bodies larger than memory -------------------------------------------------------------------------------------

BLOCK = bytes(1 << 20)


class Peak(threading.Thread):
    """Samples the gateway's resident memory."""

    def __init__(self, gw):
        super().__init__(daemon=True)
        self.gw, self.base, self.top, self.stopped = gw, gw.rss(), 0, False
        self.start()

    def run(self):
        while not self.stopped:
            self.top = max(self.top, self.gw.rss())
            time.sleep(0.01)

    def end(self, lab, what):
        self.stopped = True
        self.join()
        grown = self.top - self.base
        print(f"        {what}: memory grew by {grown / 1024:.0f} KiB at the most")
        check(grown < (64 if lab.sanitizer else 3) * (1 << 20), "memory grew by", grown)


def send_zeros(sock, n, in_chunks):
    sock.settimeout(60)
    head, tail = (b"%x\r\n" % len(BLOCK), b"\r\n") if in_chunks else (b"", b"")
    for _ in range(n // len(BLOCK)):
        sock.sendall(head + BLOCK + tail if in_chunks else BLOCK)
    if in_chunks:
        sock.sendall(b"0\r\n\r\n")


def count_zeros(wire, n, in_chunks):
    """Reads a body of n zeros; chunk lines and all else that is not zero must be as they ought to be."""
    wire.sock.settimeout(60)
    got, data = 0, wire.buf
    wire.buf, wire.seen = b"", bytearray()
    while True:
        got += data.count(b"\0")
        if got >= n and (not in_chunks or data.endswith(b"0\r\n\r\n")):
            break
        check(in_chunks or data.count(b"\0") == len(data), "something else than zeros in the body")
        data = wire.sock.recv(1 << 20)
        check(data, "the body ended after", got, "of", n)
    equal(got, n, "bytes of the body")


def size_of(lab):
    return (2 << 30) if lab.long else (256 << 20)


def bulk(size):
    """A script.  GET /length or /chunked: zeros.  PUT: counts them."""
    def script(conn):
        while True:
            r = conn.head()
            in_chunks = r.target == "/chunked"
            if r.method == "GET":
                framing = "Transfer-Encoding: chunked" if in_chunks else f"Content-Length: {size}"
                conn.send(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n")
                send_zeros(conn.sock, size, in_chunks)
            else:
                equal(r.framing(False)[0], r.target[1:], "framing of the upload at the backend")
                count_zeros(conn, size, in_chunks)
                conn.send(answer(200, body=b"got it"))
    return script


@test("STR-04", "sn-657ed72d", limit=600)
def a_huge_download_and_upload_at_constant_memory(lab):
    size = size_of(lab)
    gw = lab.gateway(routes={"sb1": lab.backend(bulk(size))})
    for _ in range(4):
        equal(gw.client().ask("GET", "/status.ok").status, 200, "warm-up")
    for framing in ("length", "chunked"):
        peak, start = Peak(gw), time.monotonic()
        c = gw.client().send(request("GET", f"{P}/{framing}"))
        head = c.head()
        equal((head.status, head.framing(False)[0]), (200, framing), "answer")
        count_zeros(c, size, framing == "chunked")
        rate = size / (1 << 20) / (time.monotonic() - start)
        peak.end(lab, f"download of {size >> 20} MiB by {framing}, {rate:.0f} MiB/s")
        c.close()
        peak, start = Peak(gw), time.monotonic()
        field = "Transfer-Encoding: chunked" if framing == "chunked" else f"Content-Length: {size}"
        c = gw.client().send(request("PUT", f"{P}/{framing}", field))
        send_zeros(c.sock, size, framing == "chunked")
        equal(c.response("PUT").body, b"got it", "answer to the upload")
        rate = size / (1 << 20) / (time.monotonic() - start)
        peak.end(lab, f"upload of {size >> 20} MiB by {framing}, {rate:.0f} MiB/s")
        c.close()


@test("sn-657ed72d", limit=600)
def curl_downloads_and_uploads_a_huge_body(lab):
    needs("curl", "head", "sh")
    size = size_of(lab)
    gw = lab.gateway(routes={"sb1": lab.backend(bulk(size))})
    at = f"http://127.0.0.1:{gw.port}{P}"
    peak = Peak(gw)
    equal(run("curl", "-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{size_download}", at + "/length", within=500), str(size).encode(),
          "bytes that curl counted")
    out = run("sh", "-c", f"head -c {size} /dev/zero | curl -sS --noproxy '*' -T - {at}/chunked", within=500)
    equal(out, b"got it", "answer to the upload")
    peak.end(lab, f"curl, {size >> 20} MiB down and up")
