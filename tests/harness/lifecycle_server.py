"""A lifecycle server that plays a script: sandboxes with a state and endpoints, in the form of OpenSandbox's API, and faults on
demand.  It keeps every request it got."""
import json
import socket
import threading
import time
import urllib.parse


class Sandbox:
    """What the server says of one: its state, and endpoint and headers by port.  A port that is not named has no address."""

    def __init__(self, state="Running", ports=None, headers=None, expires=None):
        self.state, self.expires = state, expires
        self.ports = {int(k): v for k, v in (ports or {}).items()}
        self.headers = headers or {}


class Asked:
    """A request as it came."""

    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.method, self.target, _ = lines[0].split(" ", 2)
        self.fields = [tuple(x.strip() for x in line.split(":", 1)) for line in lines[1:] if line]
        self.at = time.monotonic()

    def get(self, name):
        return next((v for k, v in self.fields if k.lower() == name.lower()), None)


class LifecycleServer:
    """sandboxes: id → Sandbox.  trouble: a status for every call, "silent", "cut", "junk", "long", or a function of the request
    that gives one of them or None.  delay: seconds before each answer."""

    KEY = "lifecycle-k3y"

    def __init__(self, sandboxes=None, base="", tls=None):
        self.sandboxes = dict(sandboxes or {})
        self.base, self.tls = base, tls
        self.asked, self.conns = [], []
        self.trouble, self.delay = None, 0.0
        self.key = self.KEY
        self.busy = self.most = 0
        self.lock = threading.Lock()
        self.port = 0
        self.start()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{self.base}"

    def start(self):
        """Listens, again on the same port after stop()."""
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def stop(self):
        """Nobody listens, and all connections end."""
        for s in (self.listener, *self.conns):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        self.conns.clear()

    close = stop

    def count(self, part=""):
        """Calls so far whose target holds this text."""
        return sum(part in a.target for a in list(self.asked))

    # -- answers
    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.conns.append(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
                self.conns.append(sock)
            buf = b""
            while True:
                while b"\r\n\r\n" not in buf:
                    more = sock.recv(65536)
                    if not more:
                        return
                    buf += more
                head, _, buf = buf.partition(b"\r\n\r\n")
                if not self.one(sock, Asked(head)):
                    return
        except OSError:
            return
        finally:
            sock.close()

    def one(self, sock, asked):
        with self.lock:
            self.asked.append(asked)
            self.busy += 1
            self.most = max(self.most, self.busy)
        time.sleep(self.delay)
        trouble = self.trouble(asked) if callable(self.trouble) else self.trouble
        if trouble == "silent":
            time.sleep(600)
        data = self.broken(trouble) if trouble else self.reply(*self.answer(asked), asked)
        with self.lock:
            self.busy -= 1  # before anybody can have the answer
        sock.sendall(data)
        return trouble is None

    @staticmethod
    def reply(status, body, asked, *more):
        text = json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(text)}", *more]
        if asked.get("X-Request-ID"):
            lines.append(f"X-Request-ID: {asked.get('X-Request-ID')}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + text

    @staticmethod
    def broken(trouble):
        if trouble == "cut":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":"
        if trouble == "junk":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nxyz"
        if trouble == "long":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\nConnection: close\r\n\r\n" + b" " * 70000
        body = b'{"code":"KUBERNETES::API_ERROR","message":"no"}'
        head = f"HTTP/1.1 {trouble} X\r\nLocation: /elsewhere\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def answer(self, asked):
        if asked.get("OPEN-SANDBOX-API-KEY") != self.key:
            return 401, {"code": "INVALID_API_KEY", "message": "no"}
        parts = asked.target.removeprefix(self.base).split("/")
        if parts[:3] != ["", "v1", "sandboxes"] or len(parts) not in (4, 6):
            return 404, {"code": "NOT_FOUND", "message": "no such route"}
        name = urllib.parse.unquote(parts[3])
        sandbox = self.sandboxes.get(name)
        if sandbox is None or sandbox.state is None:
            return 404, {"code": "DOCKER::SANDBOX_NOT_FOUND", "message": "unknown"}
        if len(parts) == 4:
            return 200, self.state(name, sandbox)
        endpoint = sandbox.ports.get(int(parts[5]))
        if endpoint is None:
            return 404, {"code": "KUBERNETES::POD_IP_NOT_AVAILABLE", "message": "not yet"}
        return 200, {"endpoint": endpoint, "headers": sandbox.headers} if sandbox.headers else {"endpoint": endpoint}

    @staticmethod
    def state(name, sandbox):
        body = {"id": name, "status": {"state": sandbox.state, "reason": "r", "message": "m"},
                "createdAt": "2026-01-01T00:00:00Z", "entrypoint": ["sleep"], "metadata": {"a": "b"}}
        if sandbox.expires is not None:
            body["expiresAt"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(sandbox.expires))
        return body
