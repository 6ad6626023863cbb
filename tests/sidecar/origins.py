"""The servers of the outside.  `Everywhere` listens at every address that is at home there, so that whatever gets out is heard;
`Origin` plays a script at one address."""
import contextlib
import os
import selectors
import socket
import ssl
import struct
import subprocess
import threading
import time

from backend import BackendConn
from wire import Ended, Late, Skipped, answer, wait_for

IP_RECVORIGDSTADDR, IPV6_RECVPKTINFO = 20, 49
BODY = b"hello from outside\n"


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def plain(address):
    """::ffff:192.0.2.1 → 192.0.2.1"""
    return address[7:] if address.startswith("::ffff:") else address


class Heard:
    """A TCP connection or a UDP peer that came in: proto, dst, dport, src, sport, data (all bytes so far), open."""

    def __init__(self, proto, dst, dport, src, sport):
        self.proto, self.dst, self.dport, self.src, self.sport = proto, plain(dst), dport, plain(src), sport
        self.at, self.data, self.open = time.monotonic(), b"", True

    def __repr__(self):
        return f"{self.proto} {self.src}:{self.sport} -> {self.dst}:{self.dport} {self.data[:60]!r}"


class Everywhere:
    """Echoes on these TCP and UDP ports at every outside address, both families.  What begins with an HTTP method is answered
    with 200, the rest comes back as it is.  heard: every connection and UDP peer so far."""

    def __init__(self, tcp=(), udp=(), families=(4, 6)):
        self.heard, self.conns = [], {}
        self.select = selectors.DefaultSelector()
        self.socks, self.stopping = [], False
        for number in families:
            for port in tcp:
                s = self.bound(number, socket.SOCK_STREAM, port)
                s.listen(4096)
                self.select.register(s, selectors.EVENT_READ, (self.accept, s))
            for port in udp:
                s = self.bound(number, socket.SOCK_DGRAM, port)
                self.select.register(s, selectors.EVENT_READ, (self.datagram, s))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def bound(self, number, kind, port):
        v6 = number == 6
        s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if v6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_DGRAM:
            s.setsockopt(socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP, IPV6_RECVPKTINFO if v6 else 8, 1)
        s.setblocking(False)
        s.bind(("::" if v6 else "0.0.0.0", port))
        self.socks.append(s)
        return s

    def serve(self):
        while not self.stopping:
            for key, _ in self.select.select(0.5):
                run, sock = key.data
                with contextlib.suppress(OSError):
                    run(sock)

    def accept(self, listener):
        conn, peer = listener.accept()
        conn.setblocking(False)
        to = conn.getsockname()
        h = Heard("tcp", to[0], to[1], peer[0], peer[1])
        self.heard.append(h)
        self.conns[conn] = h
        self.select.register(conn, selectors.EVENT_READ, (self.read, conn))

    def read(self, conn):
        h = self.conns[conn]
        try:
            data = conn.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            h.open = False
            self.select.unregister(conn)
            del self.conns[conn]
            conn.close()
            return
        h.data += data
        http = h.data.split(b" ", 1)[0] in (b"GET", b"HEAD", b"POST", b"OPTIONS")
        if not http:
            conn.send(data)
        elif data.endswith(b"\r\n\r\n"):
            conn.send(answer(200, "Content-Type: text/plain", body=BODY))

    def datagram(self, sock):
        data, extra, _, peer = sock.recvmsg(65536, 256)
        dst, source = "", []
        for level, kind, raw in extra:
            if level == socket.IPPROTO_IP and kind == 8:
                dst = socket.inet_ntoa(raw[8:12])
                source = [(level, kind, struct.pack("=I4s4s", 0, raw[8:12], raw[8:12]))]
            elif level == socket.IPPROTO_IPV6 and kind == 50:
                dst = socket.inet_ntop(socket.AF_INET6, raw[:16])
                source = [(level, kind, raw[:16] + struct.pack("=I", 0))]
        h = Heard("udp", dst, sock.getsockname()[1], peer[0], peer[1])
        h.data = data
        self.heard.append(h)
        sock.sendmsg([data], source, 0, peer)

    def got(self, dst=None, dport=None, proto=None):
        """What was heard so far and fits."""
        return [h for h in list(self.heard) if (dst is None or h.dst == dst) and (dport is None or h.dport == dport)
                and (proto is None or h.proto == proto)]

    def forget(self):
        self.heard.clear()

    def close(self):
        self.stopping = True
        self.thread.join(2)
        for s in self.socks + list(self.conns):
            s.close()


class Origin:
    """Listens at one outside address and port; runs script(conn) in a thread for each connection, conn being a BackendConn of
    the flow tests (head(), request(), answer(bytes), send, exact, until, ending …) and `conn.peer_sni` the TLS name.  Without a
    script each request is answered 200 with BODY.  tls: an ssl.SSLContext of the server's side.  requests, conns, faults."""

    def __init__(self, address, port, script=None, tls=None):
        self.address, self.port, self.script, self.tls = address, port, script or serves(BODY), tls
        self.requests, self.conns, self.faults, self.snis = [], [], [], []
        self.listener = socket.socket(family(address), socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, port))
        self.listener.listen(4096)
        if tls:
            tls.sni_callback = lambda sock, name, _: self.snis.append(name)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        if self.tls:
            try:
                sock.settimeout(20)
                sock = self.tls.wrap_socket(sock, server_side=True)
            except OSError as e:
                self.conns.append(e)
                return
        conn = BackendConn(sock, self, len(self.conns))
        self.conns.append(conn)
        try:
            self.script(conn)
        except (Ended, Late, OSError, ssl.SSLError) as e:
            conn.ended = str(e)
        except Exception as e:  # what a script finds wrong is the test's to report
            self.faults.append(e)
        finally:
            conn.close()

    def stop(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def close(self):
        self.stop()
        for c in list(self.conns):
            if isinstance(c, BackendConn):
                with contextlib.suppress(OSError):
                    c.sock.shutdown(socket.SHUT_RDWR)


def serves(body):
    """A script: every request is answered 200 with this body."""
    def script(conn):
        while True:
            conn.answer(answer(200, "Content-Type: text/plain", body=body))
    return script


def echoes(conn):
    """A script: every byte comes back."""
    while True:
        conn.more(3600)
        data, conn.buf = conn.buf, b""
        conn.send(data)


def pours(piece=b"x" * 65536, pause=0.02):
    """A script: bytes come all the time, whatever is asked, until the peer is gone."""
    def script(conn):
        while True:
            conn.send(piece)
            time.sleep(pause)
    return script


class Authority:
    """A certificate authority of the test's own, good enough for the strict check that Python does from 3.13 on."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.file = os.path.join(folder, "ca.pem")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                     "/CN=test authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                     "-keyout", os.path.join(folder, "ca.key"), "-out", self.file)

    @staticmethod
    def openssl(*words):
        try:
            subprocess.run(["openssl", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Skipped("the program openssl is not installed") from None

    def certificate(self, *names):
        """(certificate file, key file) for these names and addresses."""
        self.count += 1
        base = os.path.join(self.folder, f"leaf{self.count}")
        kinds = ",".join(("IP:" if n.replace(".", "").isdigit() or ":" in n else "DNS:") + n for n in names)
        with open(base + ".ext", "w", encoding="ascii") as f:
            f.write(f"subjectAltName={kinds}\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n")
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf",
                     "-keyout", base + ".key", "-out", base + ".csr")
        self.openssl("x509", "-req", "-in", base + ".csr", "-CA", self.file, "-CAkey", os.path.join(self.folder, "ca.key"),
                     "-CAcreateserial", "-days", "20", "-extfile", base + ".ext", "-out", base + ".pem")
        return base + ".pem", base + ".key"

    def server(self, *names, alpn=()):
        """An SSLContext for an Origin."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate(*names))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def client(self, alpn=()):
        """An SSLContext that trusts this authority alone."""
        context = ssl.create_default_context(cafile=self.file)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


class Nginx:
    """nginx in the foreground with these server blocks; `{dir}` in them is a folder of its own, whose `html` it serves."""

    def __init__(self, folder, servers):
        self.dir = folder
        os.makedirs(os.path.join(folder, "html"), exist_ok=True)
        with open(os.path.join(folder, "html", "index.html"), "wb") as f:
            f.write(BODY)
        text = "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error; events { worker_connections 4096; }\n"
        text += "http { access_log {dir}/access; root {dir}/html; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; "
        text += "fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; include /etc/nginx/mime.types;\n"
        text = (text + servers + "\n}\n").replace("{dir}", folder)
        with open(os.path.join(folder, "nginx.conf"), "w", encoding="ascii") as f:
            f.write("user root; " + text)
        try:
            self.process = subprocess.Popen(["nginx", "-p", folder, "-c", os.path.join(folder, "nginx.conf")],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Skipped("the program nginx is not installed") from None
        wait_for(lambda: os.path.exists(os.path.join(folder, "pid")) or self.process.poll() is not None, "nginx runs")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
