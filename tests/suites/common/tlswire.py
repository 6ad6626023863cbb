"""TLS over a plain socket with both directions ended apart, as the protocol has it.

Python's own SSLSocket.shutdown() drops TLS and lets the ciphertext through, and its unwrap() cannot read on; here a
half-close is a close_notify, reading goes on after it, and an end without one can be told from a clean one.
"""
import contextlib, select, socket, ssl, struct, threading, time


def context(alpn=(), ca=None, cert=None):
    """A client's context; without ca nothing is verified"""
    c = ssl.create_default_context(cafile=ca) if ca else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not ca:
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    c.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)     # Python sets it: an end would always be a clean one
    if alpn:
        c.set_alpn_protocols(list(alpn))
    if cert:
        c.load_cert_chain(*cert)
    return c


class TlsSocket:
    """What the tests use of a socket; one thread may read while another writes.  strict: an end without close_notify is a
    ConnectionResetError, not an end"""

    def __init__(self, sock, ctx, name=None, strict=False, server=False, session=None, timeout=10):
        self.sock, self.strict, self.timeout, self.lock, self.order = sock, strict, timeout, threading.RLock(), threading.Lock()
        self.cut = self.ended = self.shut = self.gone = False
        self.early = b""
        self.inp, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.obj = ctx.wrap_bio(self.inp, self.out, server_side=server, server_hostname=name, session=session)
        sock.setblocking(False)
        self.handshake()

    def flush(self, seconds=60):
        """All ciphertext there is, in the order in which it was made"""
        with self.order:
            with self.lock:
                data = memoryview(self.out.read())
            end = time.monotonic() + seconds
            while data:
                try:
                    data = data[self.sock.send(data):]
                except BlockingIOError:
                    self.ready(select.POLLOUT, end)

    def ready(self, what, end):
        p = select.poll()
        p.register(self.sock, what)
        left = None if end is None else end - time.monotonic()
        if not p.poll(None if left is None else max(0, left * 1000)):
            raise TimeoutError("timed out")

    def fill(self, end):
        """More ciphertext; False at the end of it"""
        while True:
            try:
                data = self.sock.recv(262144)
                break
            except BlockingIOError:
                self.ready(select.POLLIN, end)
        with self.lock:
            if data:
                self.inp.write(data)
            else:
                self.inp.write_eof()
        return bool(data)

    def handshake(self):
        end = time.monotonic() + (self.timeout or 10)
        while True:
            try:
                self.obj.do_handshake()
                return self.flush()
            except ssl.SSLWantReadError:
                self.flush()
                if not self.fill(end):
                    raise ConnectionResetError("closed in the handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.flush()
                raise

    # -- as a socket has them
    def settimeout(self, seconds):
        self.timeout = seconds

    def setsockopt(self, *a):
        self.gone = self.gone or a[:2] == (socket.SOL_SOCKET, socket.SO_LINGER) and a[2] == struct.pack("ii", 1, 0)
        self.sock.setsockopt(*a)

    def fileno(self):
        return self.sock.fileno()

    def getsockname(self):
        return self.sock.getsockname()

    def sendall(self, data):
        view = memoryview(data)
        for at in range(0, len(view), 1 << 18):
            with self.lock:
                self.obj.write(view[at:at + (1 << 18)])
            self.flush()

    send = sendall

    def plain(self, n):
        with self.lock:
            try:
                return self.obj.read(n)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                self.cut = True
                return b""
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLError as e:
                raise ConnectionResetError(str(e)) from e

    def recv(self, n):
        end = None if self.timeout is None else time.monotonic() + self.timeout
        if self.early:
            data, self.early = self.early[:n], self.early[n:]
            return data
        while not self.ended:
            data = self.plain(n)
            if data:
                return data
            if data is None:
                self.flush()
                self.fill(end)
            else:
                self.ended = True
        if self.cut and self.strict:
            raise ConnectionResetError("end without close_notify")
        return b""

    def notify(self, seconds=60):
        """close_notify, once"""
        if self.shut:
            return
        self.shut = True
        while self.inp.pending and (data := self.plain(1 << 16)):   # unwrap() would stumble over it
            self.early += data
        with self.lock, contextlib.suppress(ssl.SSLError, ValueError):
            self.obj.unwrap()
        with contextlib.suppress(OSError):
            self.flush(seconds)

    def shutdown(self, how):
        if how != socket.SHUT_RD:
            self.notify()
        self.sock.shutdown(how)

    def close(self):
        """close_notify and FIN; after SO_LINGER 0 just the reset"""
        if not self.gone:
            self.notify(0.2)
        self.sock.close()

    # -- what TLS says
    def selected_alpn_protocol(self):
        return self.obj.selected_alpn_protocol()

    def getpeercert(self, binary_form=False):
        return self.obj.getpeercert(binary_form)

    def version(self):
        return self.obj.version()
