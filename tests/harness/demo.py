#!/usr/bin/env python3
"""The demonstration behind scripts/demo: starts the gateway and what it leads to, shows requests with their answers and
says of each whether it is what it should be.  Raw sockets and frames, so that what is printed is what went over the wire.
"""
import argparse
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/flow"), str(ROOT / "tests/suites/common")]
import tlswire  # noqa: E402
from h2wire import H2  # noqa: E402
from wire import Ended, Failed, Late  # noqa: E402

BESIDE = pathlib.Path("build") / "demo"  # as seen from ROOT, where everything is started
STATE = ROOT / BESIDE
PIDS = STATE / "pids.json"
DOMAIN = "gw.test"
PATIENCE = 10.0


# ---- processes ----------------------------------------------------------------------------------------------------

def born(pid):
    """When a process was started, in ticks since boot: with its number, who it is.  None: it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def wait_gone(pid, start, seconds):
    end = time.monotonic() + seconds
    while born(pid) == start:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def stop_kept():
    """Ends what an earlier run left; returns how many processes.  Only such as are still the ones we started."""
    try:
        kept = json.loads(PIDS.read_text())
    except (OSError, ValueError):
        return 0
    n = 0
    for name, pid, start in kept:
        if born(pid) != start:
            continue
        n += 1
        os.kill(pid, signal.SIGTERM)
        if not wait_gone(pid, start, 35 if name.startswith("gateway") else 5):
            os.kill(pid, signal.SIGKILL)
    PIDS.unlink(missing_ok=True)
    return n


class Processes:
    def __init__(self):
        self.all = []

    def start(self, name, argv, **env):
        with open(STATE / f"{name}.log", "wb") as log:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 cwd=ROOT, env={**os.environ, **env}, start_new_session=True)
        self.all.append((name, p, born(p.pid)))
        PIDS.write_text(json.dumps([(n, q.pid, s) for n, q, s in self.all]))
        return p

    def stop(self):
        for _, p, _ in reversed(self.all):
            if p.poll() is None:
                p.terminate()
            try:
                p.wait(35)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        PIDS.unlink(missing_ok=True)


def port_is_free(port):
    """On all addresses of both families, as the gateway would take it."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as s:
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, port))
                s.listen()
            except OSError:
                return False
    return True


def free_port(wanted=None, taken=()):
    if wanted and wanted not in taken and port_is_free(wanted):
        return wanted
    while True:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        if port not in taken and port_is_free(port):
            return port


# ---- the client -----------------------------------------------------------------------------------------------------

class Answer:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.status = int(lines[0].split()[1])
        self.fields = [(n, v.strip()) for n, _, v in (x.partition(":") for x in lines[1:])]
        self.body = b""

    def get(self, name):
        return next((v for n, v in self.fields if n.lower() == name.lower()), None)

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")


def read_answer(f, method, piece=None):
    """Reads one answer from a buffered stream; piece(bytes) is told each part of a chunked body as it comes."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = f.readline()
        if not line:
            raise ConnectionError("the connection ended without an answer")
        head += line
    r = Answer(head[:-4])
    if method == "HEAD" or r.status in (101, 204, 304):
        return r
    if (r.get("transfer-encoding") or "").lower() == "chunked":
        while n := int(f.readline(), 16):
            data = f.read(n)
            f.readline()
            r.body += data
            if piece:
                piece(data)
        f.readline()
    else:
        length = r.get("content-length")
        r.body = f.read() if length is None else f.read(int(length))
    return r


def masked_frame(op, data):
    """A client's WebSocket frame, shorter than 64 KiB."""
    key = secrets.token_bytes(4)
    size = struct.pack(">B", 0x80 | len(data)) if len(data) < 126 else struct.pack(">BH", 0x80 | 126, len(data))
    return bytes([0x80 | op]) + size + key + bytes(c ^ key[i & 3] for i, c in enumerate(data))


class Tunnel:
    """A stream of HTTP/2 read like a file."""

    def __init__(self, stream):
        self.stream = stream

    def read(self, n):
        return self.stream.take(n, n)


def read_frame(f):
    op, size = f.read(2)
    if size == 126:
        size, = struct.unpack(">H", f.read(2))
    return op & 15, f.read(size)


# ---- what is shown ----------------------------------------------------------------------------------------------------

SHOWN = ("content-type", "location", "retry-after", "www-authenticate", "upgrade")


class Show:
    def __init__(self, gateway):
        self.program = gateway
        self.processes = Processes()
        self.passed = self.failed = 0

    # -- output
    def title(self, text):
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)

    def check(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"  {'ok  ' if good else 'FAIL'}  {text}", flush=True)
        return good

    def print_request(self, lines):
        print("\n" + "\n".join("    > " + x for x in lines))

    def print_answer(self, r, body=True):
        print("    < " + r.line)
        for name, value in r.fields:
            if name.lower() in SHOWN:
                print(f"    < {name}: {value}")
        if body:
            for line in r.text.rstrip("\n").split("\n"):
                print("    | " + (line if len(line) < 150 else line[:150] + " …"))
        sys.stdout.flush()

    # -- requests
    def ask(self, target, *fields, host=None, method="GET", show=True, piece=None):
        host = host or f"127.0.0.1:{self.port}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *fields]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as s:
            s.sendall(("\r\n".join([*lines, "Connection: close", "", ""])).encode())
            if show:
                self.print_request(lines)
            r = read_answer(s.makefile("rb"), method, piece)
        if show and not piece:
            self.print_answer(r)
        return r

    def h2(self, tls=False):
        """An HTTP/2 connection to the gateway; TLS believes only the certificate of this run."""
        s = socket.create_connection(("127.0.0.1", self.tls_port if tls else self.port), PATIENCE)
        if tls:
            s = tlswire.TlsSocket(s, tlswire.context(["h2", "http/1.1"], ca=str(STATE / "tls.pem")), DOMAIN, strict=True)
            print(f"\n    {s.version()}, certificate of {DOMAIN} verified, ALPN chose {s.selected_alpn_protocol()}")
        conn = H2(s)
        conn.until(lambda: conn.peer, "SETTINGS")
        return conn

    def print_head(self, mark, pairs):
        print("\n".join(f"    {mark} {n}: {v}" for n, v in pairs if mark == ">" or n[0] == ":" or n in SHOWN or mark == "<<"))

    def ask_h2(self, conn, pairs, body=b"", show=True):
        """One exchange → its stream, head, body, trailers as pairs."""
        stream = conn.open(pairs, end=not body)
        if show:
            print()
            self.print_head(">", pairs)
        if body:
            stream.send(body, end=True)
        head = stream.next_head(0)
        got = stream.read()
        trailers = stream.heads[1] if len(stream.heads) > 1 else []
        if show:
            self.print_head("<", head)
        return stream, dict(head), got, dict(trailers)

    def arrived(self, r, line):
        """Did this request line arrive in the sandbox?"""
        return r.status == 200 and f"\n{line} HTTP/1.1\n" in r.text

    def sign(self, *how):
        argv = [ROOT / self.program, "sign", "--key-id=k", f"--secret-file={STATE / 'keys'}", "--id=safe", "--port=3000",
                f"--base-domain={DOMAIN}", *how]
        out = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
        header, host, path = out.splitlines()[:3]
        return {"header": header, "host": host.partition(": ")[2] or host, "path": path.rstrip("/"), "text": out}

    # -- the stage
    def write_routes(self, text=None):
        new = STATE / "routes.json.new"
        new.write_text(text if text is not None else json.dumps({"sandboxes": self.routes}, indent=2) + "\n")
        new.rename(STATE / "routes.json")

    def start(self):
        (STATE / "keys").touch(mode=0o600)
        (STATE / "keys").write_text("k=" + base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
        self.token = secrets.token_urlsafe(12)
        self.backend_port = self.start_backend("sandbox", "demo_backend.py")
        grpc_port = self.start_backend("grpc-sandbox", "demo_grpc.py")
        self.make_certificate()
        to = {"address": "127.0.0.1", "ports": {"3000": {"address": f"127.0.0.1:{self.backend_port}"},
                                                "50051": {"address": f"127.0.0.1:{grpc_port}"}}}
        self.routes = {"open": to, "safe": {**to, "secureAccessToken": self.token}, "asleep": {**to, "state": "Paused"}}
        self.write_routes()
        for attempt in range(3):
            if self.start_gateway():
                return True
        print((STATE / "gateway.log").read_text()[-2000:])
        return False

    def start_backend(self, name, script, *how):
        p = self.processes.start(name, [sys.executable, str(ROOT / "tests/harness" / script), *how])
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and p.poll() is None:
            text = (STATE / f"{name}.log").read_text()
            if text.startswith("listening on ") and text.endswith("\n"):
                return int(text.split()[2])
            time.sleep(0.02)
        raise RuntimeError(f"the demonstration's {name} did not start, see build/demo/{name}.log")

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                        "-subj", f"/CN={DOMAIN}", "-addext", f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN},DNS:localhost",
                        "-keyout", str(STATE / "tls.key"), "-out", str(STATE / "tls.pem")],
                       check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)

    def start_gateway(self):
        self.port = free_port(28888)
        self.admin = free_port(28889, {self.port})
        self.tls_port = free_port(28443, {self.port, self.admin})
        argv = [self.program, f"--routes={BESIDE / 'routes.json'}", f"--secure-access-keys-file={BESIDE / 'keys'}",
                f"--base-domain={DOMAIN}", f"--port={self.port}", f"--tls-port={self.tls_port}", f"--tls-cert={BESIDE / 'tls.pem'}",
                f"--tls-key={BESIDE / 'tls.key'}", f"--admin-addr=127.0.0.1:{self.admin}"]
        self.gateway = self.processes.start("gateway", argv)
        self.command = argv
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.gateway.poll() is None:
            with contextlib.suppress(OSError):
                if self.ask("/status.ok", show=False).status == 200:
                    return True
            time.sleep(0.02)
        return False

    # -- the scenes
    def routes_by_path_header_and_host(self):
        self.title("1. Three ways to name a sandbox and its port")
        r = self.ask("/sandboxes/open/port/3000/files/a%2Fb?page=2")
        self.check(self.arrived(r, "GET /files/a%2Fb?page=2") and "X-Forwarded-Prefix: /sandboxes/open/port/3000" in r.text,
                   "by path: the sandbox gets the rest, byte for byte, and is told the prefix")
        r = self.ask("/files?page=2", "OpenSandbox-Ingress-To: open-3000")
        self.check(self.arrived(r, "GET /files?page=2") and "ingress-to" not in r.text.lower(),
                   "by header: the path is the sandbox's, the header stays here")
        r = self.ask("/files?page=2", host=f"open-3000.{DOMAIN}")
        self.check(self.arrived(r, "GET /files?page=2"), "by Host: one site for each sandbox, the best form for browsers")

    def access(self):
        self.title("2. A sandbox that demands a credential")
        r = self.ask("/sandboxes/safe/port/3000/report")
        self.check(r.status == 401, "without one: 401")
        r = self.ask("/sandboxes/safe/port/3000/report", f"OpenSandbox-Secure-Access: {self.token}")
        self.check(self.arrived(r, "GET /report") and self.token not in r.text, "with its token: served, and the token stays here")

    def signed(self):
        self.title("3. Signed routes: a link that opens it until its time is over")
        good = self.sign("--ttl=1h")
        print("\n    $ sallyport-ingress sign --key-id=k --secret-file=… --id=safe --port=3000 --ttl=1h --base-domain=" + DOMAIN)
        print("    " + good["text"].rstrip().replace("\n", "\n    "))
        r = self.ask(good["path"] + "/report")
        self.check(self.arrived(r, "GET /report") and good["path"].rsplit("/", 1)[1] not in r.text,
                   "valid, by path: served, and the signature stays here")
        r = self.ask("/report", host=good["host"])
        self.check(self.arrived(r, "GET /report"), "valid, by Host")
        r = self.ask("/report", good["header"])
        self.check(self.arrived(r, "GET /report"), "valid, by header")
        route, _, signature = good["path"].rpartition("/")
        forged = route + "/" + ("0" if signature[0] != "0" else "1") + signature[1:]
        r = self.ask(forged + "/report")
        self.check(r.status == 401 and "mismatch" in r.text, "tampered with: 401")
        old = self.sign(f"--expires={int(time.time()) - 1}")
        r = self.ask(old["path"] + "/report")
        self.check(r.status == 401 and "expired" in r.text, "expired: 401")

    def event_stream(self):
        self.title("4. An event stream, event by event")
        times = []
        start = time.monotonic()

        def piece(data):
            times.append(time.monotonic() - start)
            print(f"    | {times[-1]:6.3f} s  {data.decode().strip()}", flush=True)

        r = self.ask("/sandboxes/open/port/3000/events?n=5&ms=300", "Accept: text/event-stream", piece=piece)
        gaps = [b - a for a, b in zip(times, times[1:])]
        self.check(r.status == 200 and len(times) == 5 and times[0] < 1 and min(gaps) > 0.05,
                   "each event came when it was sent, 0.3 s after the one before")

    def web_socket(self):
        self.title("5. A WebSocket")
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = ["GET /sandboxes/open/port/3000/ws HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as s:
            s.sendall(("\r\n".join([*lines, "", ""])).encode())
            f = s.makefile("rb")
            self.print_request(lines)
            r = read_answer(f, "GET")
            self.print_answer(r, body=False)
            proof = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            good = r.status == 101 and r.get("sec-websocket-accept") == proof
            for text in (b"hello, sandbox", b"x" * 20000) if good else ():
                s.sendall(masked_frame(1, text))
                op, data = read_frame(f)
                shown = [d.decode() if len(d) < 50 else f"{len(d)} bytes" for d in (text, data)]
                print(f"    >> {shown[0]}\n    << {shown[1]}")
                good = good and op == 1 and data == text
            if good:
                s.sendall(masked_frame(8, struct.pack(">H", 1000)))
                op, data = read_frame(f)
                print(f"    >> close 1000\n    << close {struct.unpack('>H', data[:2])[0]}")
                good = op == 8 and data[:2] == struct.pack(">H", 1000) and f.read(1) == b""
        self.check(good, "messages came back as they were, and the close code with them")

    def http2_over_tls(self):
        self.title("6. HTTP/2 over TLS")
        conn = self.h2(tls=True)
        try:
            host = f"open-3000.{DOMAIN}"
            pairs = [(":method", "GET"), (":scheme", "https"), (":path", "/files?page=2"), (":authority", host), ("cookie", "a=1"), ("cookie", "b=2")]
            _, head, body, _ = self.ask_h2(conn, pairs)
            text = body.decode()
            print("    | " + text.rstrip().replace("\n", "\n    | "))
            self.check(head[":status"] == "200" and "\nGET /files?page=2 HTTP/1.1\n" in text and "X-Forwarded-Proto: https" in text
                       and "cookie: a=1; b=2" in text.lower(), "the sandbox, which speaks HTTP/1.1, gets it as that, the cookie's crumbs joined")
        finally:
            conn.close()

    def http2_in_cleartext(self):
        self.title("7. HTTP/2 in cleartext on the same port as HTTP/1.1 (h2c, by prior knowledge): 20 at once on one connection")
        conn = self.h2()
        try:
            pairs = [(":method", "GET"), (":scheme", "http"), (":path", "/sandboxes/open/port/3000/events?n=3&ms=200"), (":authority", f"127.0.0.1:{self.port}")]
            print()
            self.print_head(">", pairs)
            start = time.monotonic()
            streams = [conn.open(pairs, end=True) for _ in range(20)]
            bodies = {s.read() for s in streams}
            took = time.monotonic() - start
            self.print_head("<", streams[0].next_head(0))
            for body in bodies:
                print("    | " + body.decode().strip().replace("\n\n", "\n    | "))
            self.check(len(bodies) == 1 and b"event 2" in bodies.pop() and all(s.whole for s in streams) and took < 5,
                       f"20 event streams side by side, each of 0.4 s, were through after {took:.1f} s")
        finally:
            conn.close()

    def grpc(self):
        self.title("8. A gRPC call, over TLS: HTTP/2 to the sandbox as well, and its trailers come back")
        conn = self.h2(tls=True)
        try:
            message = b"hello, gRPC"
            pairs = [(":method", "POST"), (":scheme", "https"), (":path", "/demo.Echo/Say"), (":authority", f"open-50051.{DOMAIN}"),
                     ("content-type", "application/grpc"), ("te", "trailers")]
            stream, head, body, trailers = self.ask_h2(conn, pairs, b"\0" + struct.pack(">I", len(message)) + message)
            print(f"    | message of {len(body) - 5} bytes: {body[5:].decode()}")
            self.print_head("<<", trailers.items())
            self.check(head[":status"] == "200" and body[5:] == message and trailers.get("grpc-status") == "0" and stream.whole,
                       "the message, then grpc-status in trailers (<<)")
        finally:
            conn.close()

    def web_socket_over_http2(self):
        self.title("9. A WebSocket over HTTP/2 (RFC 8441), to a sandbox that knows only HTTP/1.1")
        conn = self.h2(tls=True)
        try:
            self.check(conn.peer.get(8) == 1, "the gateway announces SETTINGS_ENABLE_CONNECT_PROTOCOL")
            pairs = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/ws"), (":authority", f"open-3000.{DOMAIN}"),
                     ("sec-websocket-version", "13")]
            print()
            self.print_head(">", pairs)
            stream = conn.open(pairs)
            head = stream.next_head(0)
            self.print_head("<", head)
            good = dict(head)[":status"] == "200"
            for text in (b"hello over HTTP/2", b"y" * 20000) if good else ():
                stream.send(masked_frame(1, text))
                op, data = read_frame(Tunnel(stream))
                shown = [d.decode() if len(d) < 50 else f"{len(d)} bytes" for d in (text, data)]
                print(f"    >> {shown[0]}\n    << {shown[1]}")
                good = good and op == 1 and data == text
            if good:
                stream.send(masked_frame(8, struct.pack(">H", 1000)))
                op, data = read_frame(Tunnel(stream))
                print(f"    >> close 1000\n    << close {struct.unpack('>H', data[:2])[0]}")
                good = op == 8 and stream.take() == b""
            self.check(good, "messages came back as they were, through one stream of the connection")
        finally:
            conn.close()

    def errors(self):
        self.title("10. Answers of the gateway itself, as text or as the client prefers")
        r = self.ask("/sandboxes/nobody/port/3000/")
        self.check(r.status == 404 and r.text.startswith("OpenSandbox Ingress: "), "unknown sandbox: 404, text")
        r = self.ask("/sandboxes/nobody/port/3000/", "Accept: application/json")
        self.check(r.status == 404 and json.loads(r.text)["error"]["code"] == "sandbox_not_found", "the same as JSON")
        r = self.ask("/sandboxes/asleep/port/3000/")
        self.check(r.status == 503 and r.get("retry-after") == "1", "a paused sandbox: 503, try again in a second")
        r = self.ask("/sandboxes/asleep/port/3000/", "Accept: application/json")
        self.check(r.status == 503 and json.loads(r.text)["error"]["code"] == "sandbox_not_ready", "the same as JSON")
        r = self.ask("/sandboxes/safe/port/3000/", "Accept: application/json")
        self.check(r.status == 401 and json.loads(r.text)["error"]["code"] == "signature_required", "no credential: 401, JSON")
        r = self.ask("/sandboxes/open/port/3000/../../../safe/port/3000/")
        self.check(r.status == 400, "a path that would climb out of its route: 400")
        r = self.ask(f"/sandboxes/open/port/{free_port()}/")
        self.check(r.status == 502, "nobody listens in the sandbox: 502")

    def reload(self):
        self.title("11. The route file is edited, the gateway goes on")
        path = "/sandboxes/new/port/3000/hello"
        r = self.ask(path)
        self.check(r.status == 404, "a sandbox that is not in the file yet")
        self.routes["new"] = self.routes["open"]
        self.write_routes()
        print("\n    (routes.json gets an entry \"new\")")
        start = time.monotonic()
        while time.monotonic() - start < 5 and self.ask(path, show=False).status == 404:
            time.sleep(0.1)
        took = time.monotonic() - start
        r = self.ask(path)
        self.check(self.arrived(r, "GET /hello") and took < 3, f"served {took:.1f} s after the edit, without a restart")
        self.write_routes('{"sandboxes":{\n  "open":{"address":"127.0.0.1", "colour":"red"}}}\n')
        print("\n    (routes.json gets a member that does not exist)")
        start = time.monotonic()
        complaint = None
        while time.monotonic() - start < 5 and not complaint:
            time.sleep(0.1)
            complaint = next((x for x in (STATE / "gateway.log").read_text().splitlines() if "colour" in x), None)
        print(f"    {complaint}")
        r = self.ask(path, show=False)
        self.check(complaint and r.status == 200, "a bad file changes nothing; the log says which line and column")
        self.write_routes()

    def admin_pages(self):
        self.title("12. What operators look at: the admin listener")
        with socket.create_connection(("127.0.0.1", self.admin), PATIENCE) as s:
            lines = ["GET /metrics HTTP/1.1", f"Host: 127.0.0.1:{self.admin}"]
            s.sendall(("\r\n".join([*lines, "Connection: close", "", ""])).encode())
            r = read_answer(s.makefile("rb"), "GET")
        self.print_request(lines)
        print("    < " + r.line)
        wanted = [x for x in r.text.splitlines() if "request_count" in x and not x.startswith("#")]
        print("\n".join("    | " + x for x in wanted[:6]))
        self.check(r.status == 200 and wanted, "requests by method and status, for Prometheus")

    def drain(self):
        self.title("13. SIGTERM: what runs is finished, nothing new begins")
        lines = ["GET /sandboxes/open/port/3000/events?n=4&ms=300 HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as s:
            s.sendall(("\r\n".join([*lines, "", ""])).encode())
            self.print_request(lines)
            seen = []

            def piece(data):
                seen.append(data)
                print(f"    | {data.decode().strip()}", flush=True)
                if len(seen) == 1:
                    self.gateway.send_signal(signal.SIGTERM)
                    print("    (SIGTERM)")

            r = read_answer(s.makefile("rb"), "GET", piece)
        self.check(r.status == 200 and len(seen) == 4, "the stream that ran came to its own end")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            refused = False
        except OSError:
            refused = True
        self.check(refused, "a new connection is refused")
        try:
            status = self.gateway.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = "still running"
        self.check(status == 0, f"exit status {status}")

    def say_what_to_try(self):
        link = self.sign("--ttl=1h")
        base = f"http://127.0.0.1:{self.port}"
        self.title("Running; try")
        print(f"""
    curl -i  '{base}/sandboxes/open/port/3000/anything?x=1'
    curl -i  {base}/anything -H 'OpenSandbox-Ingress-To: open-3000'
    curl -i  {base}/anything -H 'Host: open-3000.{DOMAIN}'
    curl -N  {base}/sandboxes/open/port/3000/events
    curl -i  {base}/sandboxes/safe/port/3000/anything -H 'OpenSandbox-Secure-Access: {self.token}'
    curl -i  {base}{link['path']}/anything          (signed, for one hour)
    curl -i  --http2-prior-knowledge '{base}/sandboxes/open/port/3000/anything'
    curl -i  --cacert build/demo/tls.pem 'https://localhost:{self.tls_port}/sandboxes/open/port/3000/anything'
    curl -s  http://127.0.0.1:{self.admin}/metrics          also /readyz /debug/config /debug/exchanges /debug/pools

    in a browser:  {base}/sandboxes/open/port/3000/
    routes:        build/demo/routes.json    edit it: the gateway sees it within two seconds
    log:           build/demo/gateway.log
    gateway:       {' '.join(self.command)}

    scripts/demo --stop     ends them ({', '.join(f'{n} {p.pid}' for n, p, _ in self.processes.all)})
""")

    def run(self, keep):
        self.title("Starting")
        try:
            good = self.start()
        except (OSError, RuntimeError) as e:
            good = False
            print(f"    {e}")
        if not good:
            self.check(False, "gateway and sandbox start")
            return
        print("    " + " \\\n        ".join(self.command))
        self.check(True, f"serving on port {self.port}; admin pages on 127.0.0.1:{self.admin}")
        scenes = [self.routes_by_path_header_and_host, self.access, self.signed, self.event_stream, self.web_socket,
                  self.http2_over_tls, self.http2_in_cleartext, self.grpc, self.web_socket_over_http2, self.errors, self.reload, self.admin_pages]
        for scene in scenes if keep else [*scenes, self.drain]:
            try:
                scene()
            except (OSError, ValueError, KeyError, subprocess.SubprocessError, Ended, Failed, Late) as e:
                self.check(False, f"{type(e).__name__}: {e}")
        if keep:
            self.say_what_to_try()


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(number, _):
    """Asked to end: once is enough, what was started is stopped on the way out."""
    for n in ENDINGS:
        signal.signal(n, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    ap = argparse.ArgumentParser(description="Shows the gateway at work.")
    ap.add_argument("--gateway", help="the program sallyport-ingress")
    ap.add_argument("--keep", action="store_true", help="leave everything running")
    ap.add_argument("--stop", action="store_true", help="end what --keep left running")
    args = ap.parse_args()
    return perform(Show, args.gateway, args.keep, args.stop)


def perform(kind, gateway, keep=False, stop=False):
    """Runs a show of this kind, the only one in this folder -> the exit status.  What it starts ends with it unless it is kept."""
    STATE.mkdir(parents=True, exist_ok=True)
    lock = open(STATE / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another run of the demonstration is under way in this folder", file=sys.stderr)
        return 1
    n = stop_kept()
    if stop:
        print(f"ended {n} processes" if n else "nothing was running")
        return 0
    if n:
        print("ended what an earlier run had left running")
    for number in ENDINGS:
        signal.signal(number, on_ending)
    show = kind(os.path.relpath(gateway, ROOT))
    kept = False
    try:
        show.run(keep)
        kept = keep and show.failed == 0
    finally:
        if not kept:
            show.processes.stop()
    print(f"{show.passed} passed, {show.failed} failed")
    return 1 if show.failed else 0


if __name__ == "__main__":
    sys.exit(main())
