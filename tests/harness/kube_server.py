"""The API server of a cluster as far as the gateway asks it, over TLS with tokens or client certificates: a store of objects,
lists in pages, watches with bookmarks, and whatever can go wrong with either.

Lists are cut from a state that is rendered once, and a watch is a position in one log of lines, so that a store of 100,000
objects and thousands of events a second are no burden.  `faults` are asked in order for each request: fault(server, request)
answers and returns True, or lets it by with False; one that returns None has answered and is taken out."""
import base64
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse

TOKEN = "kube-t0ken"
PAGE_SNAPSHOTS = 4


def certificate(folder, name):
    """A key and a certificate of its own for 127.0.0.1; the two paths."""
    cert, key = os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
    if not os.path.exists(cert):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7",
                        "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", key, "-out", cert],
                       check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return cert, key


def batchsandbox(name, ns, uid, version, ip, ready=1, token=None, annotations=None, filler=0):
    """An object as the cluster has it.  ip: None (no endpoints), one, or a list."""
    if annotations is None:
        annotations = {} if ip is None else {"sandbox.opensandbox.io/endpoints": json.dumps([ip] if isinstance(ip, str) else ip)}
        if token:
            annotations["opensandbox.io/secure-access-token"] = token
    meta = {"name": name, "namespace": ns, "uid": uid, "resourceVersion": str(version), "labels": {"opensandbox.io/id": name},
            "annotations": annotations}
    if annotations == {}:
        del meta["annotations"]
    spec = {"replicas": 1, "template": "x" * filler} if filler else {"replicas": 1}
    return json.dumps({"apiVersion": "sandbox.opensandbox.io/v1alpha1", "kind": "BatchSandbox", "metadata": meta, "spec": spec,
                       "status": {"replicas": 1, "ready": ready, "phase": "Succeed"}}, separators=(",", ":")).encode()


def agent_sandbox(name, ns, uid, version, fqdn, ready=True):
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": "R", "message": "m"}]
    return json.dumps({"metadata": {"name": name, "namespace": ns, "uid": uid, "resourceVersion": str(version)},
                       "status": {"serviceFQDN": fqdn, "conditions": conditions}}, separators=(",", ":")).encode()


class Request:
    """One request, and the ways to answer it."""

    def __init__(self, server, conn, method, target, fields):
        self.server, self.conn, self.method, self.fields = server, conn, method, fields
        url = urllib.parse.urlsplit(target)
        self.target, self.path = target, url.path
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self.watch = self.query.get("watch") in ("1", "true")

    def send(self, data):
        self.conn.sendall(data)

    def head(self, status, *lines, kind="application/json"):
        self.send("\r\n".join([f"HTTP/1.1 {status} Status", f"Content-Type: {kind}", *lines, "", ""]).encode())

    def answer(self, status, body, *lines):
        self.head(status, f"Content-Length: {len(body)}", *lines)
        self.send(body)

    def status(self, code, reason="", *lines):
        body = json.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"{reason} {code}"})
        self.answer(code, body.encode(), *lines)

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def reset(self):
        """RST, in the middle of whatever it was."""
        raw = self.conn.raw
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
        raise OSError("reset")

    def silent(self):
        """Says nothing until the other side or the server has had enough."""
        while not self.server.closed and self.conn.is_open():
            time.sleep(0.02)
        raise OSError("silent")


class Conn:
    """A connection of a client; TLS if there is a context."""

    def __init__(self, raw, context):
        self.raw = raw
        self.sock = raw
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.settimeout(60)
        if context:
            self.sock = context.wrap_socket(raw, server_side=True)
            self.raw = self.sock
        self.buf = b""

    def sendall(self, data):
        self.sock.sendall(data)

    def is_open(self):
        self.sock.settimeout(0.01)
        try:
            return self.sock.recv(1) != b""
        except (TimeoutError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        finally:
            try:
                self.sock.settimeout(60)
            except OSError:
                pass

    def request(self, server):
        while b"\r\n\r\n" not in self.buf:
            more = self.sock.recv(65536)
            if not more:
                return None
            self.buf += more
        head, _, self.buf = self.buf.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        return Request(server, self, method, target, fields)


class KubeServer:
    """tokens: those that are taken; None: none is asked for.  client_ca: file; only clients with such a certificate."""

    def __init__(self, folder, tls=True, tokens=(TOKEN,), client_ca=None, group="sandbox.opensandbox.io",
                 versions=("v1alpha1",), resource="batchsandboxes", bookmarks_s=1.0):
        self.folder, self.tls, self.tokens = folder, tls, set(tokens) if tokens is not None else None
        self.paths = [f"/apis/{group}/{v}/{resource}" for v in versions]
        self.bookmarks_s = bookmarks_s
        self.lock = threading.Condition()
        self.rv, self.oldest = 100, 100
        self.objects = {}   # (namespace, name) → (uid, bytes)
        self.log = []       # (version, line)
        self.snapshots = {}
        self.ready_pages = None
        self.seen = []
        self.faults = []
        self.live = set()   # connections
        self.generation = 0  # of watches: a new one ends those that are open
        self.ending = None
        self.frozen_at = 0.0  # watches from before that say nothing any more
        self.uids = 0
        self.closed = False
        self.context = None
        if tls:
            self.cert, self.key = certificate(folder, "kube.test")
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(self.cert, self.key)
            if client_ca:
                self.context.verify_mode = ssl.CERT_REQUIRED
                self.context.load_verify_locations(client_ca)
        self.port = 0
        self.listener = None
        self.up()

    # -- where it is
    def up(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def down(self):
        """Nobody listens, and all connections are cut."""
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self):
        for conn in list(self.live):
            try:
                conn.raw.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closed = True
        self.down()
        with self.lock:
            self.lock.notify_all()

    def kubeconfig(self, token=TOKEN, token_file=None, cert=None, key=None, ca=None, server=None):
        """Writes one; its path."""
        user = {}
        if token_file:
            user["tokenFile"] = token_file
        elif token:
            user["token"] = token
        if cert:
            user.update({"client-certificate": cert, "client-key": key})
        cluster = {"server": server or f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"}
        if self.tls:
            cluster["certificate-authority"] = ca or self.cert
        path = os.path.join(self.folder, f"kubeconfig-{self.port}")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                       "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}]}, f)
        os.rename(path + ".new", path)
        return path

    # -- what there is
    def render(self, name, ns, uid, version, ip, **how):
        return batchsandbox(name, ns, uid, version, ip, **how)

    def put(self, name, ip, ns="ns-1", uid=None, **how):
        """There now, or changed; returns its uid."""
        with self.lock:
            old = self.objects.get((ns, name))
            self.uids += 1
            uid = uid or (old[0] if old else f"00000000-0000-4000-8000-{self.uids:012d}")
            self.rv += 1
            text = self.render(name, ns, uid, self.rv, ip, **how)
            self.objects[ns, name] = (uid, text)
            self.say("MODIFIED" if old else "ADDED", text)
        return uid

    def remove(self, name, ns="ns-1"):
        with self.lock:
            uid, _ = self.objects.pop((ns, name))
            self.rv += 1
            self.say("DELETED", self.render(name, ns, uid, self.rv, None))
        return uid

    def say(self, kind, text):
        """An event to all watches, whatever the store says.  The lock is held, or the event is raw."""
        self.log.append((self.rv, b'{"type":"%s","object":%s}\n' % (kind.encode(), text)))
        with self.lock:
            self.lock.notify_all()

    def raw_event(self, kind, text):
        with self.lock:
            self.rv += 1
            self.say(kind, text)

    def fill(self, n, size=700, stem="fill"):
        """A store of n objects of that many bytes, served from ready-made pages; nothing else is in lists from then on."""
        plain = len(batchsandbox(f"{stem}-{0:06d}", "ns-1", "00000000-0000-4000-8000-000000000000", 100, "10.10.10.10"))
        with self.lock:
            texts = []
            for i in range(n):
                ip = f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"
                text = batchsandbox(f"{stem}-{i:06d}", "ns-1", f"00000000-0000-4000-8000-{i:012d}", 100, ip,
                                    filler=max(1, size - plain - 14))
                texts.append(text)
            self.ready_pages = [b",".join(texts[i:i + 500]) for i in range(0, n, 500)]

    def compact(self):
        """Versions so far are gone; open watches end without having heard of a newer one."""
        with self.lock:
            self.log = []
            self.rv += 1
            self.oldest = self.rv
            self.ending = "end"
            self.generation += 1
            self.lock.notify_all()

    def end_watches(self, how="end"):
        """how: end (a whole answer), fin, rst, half (in the middle of an event)."""
        with self.lock:
            self.ending = how
            self.generation += 1
            self.lock.notify_all()

    def freeze(self):
        """Open watches say nothing any more, and do not end either."""
        self.frozen_at = time.monotonic()

    # -- what is asked
    def asked(self, watch=None, since=0):
        return [r for r in self.seen[since:] if watch is None or r.watch == watch]

    # -- serving
    def accept(self, listener):
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(raw,), daemon=True).start()

    def serve(self, raw):
        conn = None
        try:
            conn = Conn(raw, self.context)
            self.live.add(conn)
            while (r := conn.request(self)) and not self.closed:
                self.seen.append(r)
                self.handle(r)
        except (OSError, ValueError):
            pass
        finally:
            self.live.discard(conn)
            (conn.raw if conn else raw).close()

    def handle(self, r):
        for fault in list(self.faults):
            done = fault(self, r)
            if done is None:
                self.faults.remove(fault)
            if done is not False:
                return
        if self.tokens is not None and r.fields.get("authorization") not in {f"Bearer {t}" for t in self.tokens}:
            r.status(401, "Unauthorized")
        elif r.method != "GET" or r.path not in self.paths:
            r.status(404, "NotFound")
        elif r.watch:
            self.watch(r)
        else:
            self.list(r)

    def pages(self, r):
        """(pages, version, key of the snapshot, number of the page)."""
        limit = int(r.query.get("limit", "0"))
        more = r.query.get("continue")
        if more:
            key, at = json.loads(base64.b64decode(more))
            return self.snapshots.get(key), key, at
        with self.lock:
            if self.ready_pages:
                pages = self.ready_pages
            else:
                texts = [text for _, text in self.objects.values()]
                pages = [b",".join(texts[i:i + (limit or len(texts))]) for i in range(0, len(texts), limit or len(texts))] or [b""]
            key = str(self.rv)
            self.snapshots[key] = (pages, self.rv)
            while len(self.snapshots) > PAGE_SNAPSHOTS:
                self.snapshots.pop(next(iter(self.snapshots)))
        return self.snapshots[key], key, 0

    def list(self, r):
        found, key, at = self.pages(r)
        if not found:
            r.status(410, "Expired")
            return
        pages, rv = found
        meta = {"resourceVersion": str(rv)}
        if at + 1 < len(pages):
            meta["continue"] = base64.b64encode(json.dumps([key, at + 1]).encode()).decode()
            meta["remainingItemCount"] = 1
        r.answer(200, b'{"kind":"List","apiVersion":"v1","metadata":%s,"items":[%s]}' % (json.dumps(meta).encode(), pages[at]))

    def watch(self, r):
        start = int(r.query.get("resourceVersion", "0"))
        if start < self.oldest:
            r.head(200, "Transfer-Encoding: chunked")
            r.chunk(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n')
            r.send(b"0\r\n\r\n")
            return
        r.head(200, "Transfer-Encoding: chunked")
        with self.lock:
            generation = self.generation
            at = next((i for i, (rv, _) in enumerate(self.log) if rv > start), len(self.log))
            log = self.log
        since = time.monotonic()
        mark = since + self.bookmarks_s
        end = time.monotonic() + int(r.query.get("timeoutSeconds", "300"))
        while not self.closed and generation == self.generation and time.monotonic() < end:
            with self.lock:
                if at == len(log) and generation == self.generation:
                    self.lock.wait(0.05)
                if log is not self.log or generation != self.generation:
                    break
                lines = [line for _, line in log[at:]]
                at += len(lines)
                rv = self.rv
            if since < self.frozen_at:
                time.sleep(0.1)
                continue
            if lines:
                r.chunk(b"".join(lines))
            if self.bookmarks_s and time.monotonic() > mark:
                mark = time.monotonic() + self.bookmarks_s
                r.chunk(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % rv)
        self.end_of_watch(r)

    def end_of_watch(self, r):
        if self.ending == "rst":
            r.reset()
        if self.ending == "half":
            r.chunk(b'{"type":"MODIFIED","object":{"metadata":{"na')
            r.send(b"40\r\n{")
        if self.ending in ("fin", "half"):
            raise OSError("fin")
        r.send(b"0\r\n\r\n")
