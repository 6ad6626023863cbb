"""The sandbox's side: a listener that plays a script on each connection and keeps what it got."""
import contextlib
import json
import socket
import threading
import time

from wire import Ended, Late, Request, Wire, answer, check


class BackendConn(Wire):
    """A connection that the gateway has made."""

    def __init__(self, sock, backend, number):
        super().__init__(sock)
        self.backend, self.number = backend, number
        self.ended = None

    def head(self):
        """The next request head, its body unread."""
        r = Request(self.until(b"\r\n\r\n"))
        self.backend.requests.append(r)
        return r

    def request(self):
        """The next request with its body."""
        r = self.head()
        kind, _ = r.framing(False)
        return self.read_body(r, kind == "eof")

    def answer(self, data):
        """Reads one request whole, then writes these bytes."""
        r = self.request()
        self.send(data)
        return r


class Backend:
    """Listens on loopback and runs script(conn) in a thread for each connection; the connection is closed when the
    script returns.  Without a script each request is answered with a JSON text of what was received."""

    def __init__(self, script=None, host="127.0.0.1", backlog=512, rcvbuf=0):
        self.script = script or echo
        self.requests = []
        self.conns = []
        self.faults = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if rcvbuf:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.listener.bind((host, 0))
        self.listener.listen(backlog)
        self.host = host
        self.port = self.listener.getsockname()[1]
        self.stopping = False
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            conn = BackendConn(sock, self, len(self.conns))
            self.conns.append(conn)
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            self.script(conn)
        except (Ended, Late, OSError) as e:
            conn.ended = str(e)
        except Exception as e:  # what a script finds wrong is the test's to report
            self.faults.append(e)
        finally:
            conn.close()

    @property
    def last(self):
        check(self.requests, "the backend got no request")
        return self.requests[-1]

    def stop(self):
        """Nobody listens any more; running connections stay."""
        self.stopping = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def hang_up(self):
        """Ends all its connections, whatever their scripts do."""
        for c in list(self.conns):
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.stop()
        self.hang_up()


def echo(conn):
    """Answers every request with what it was, as JSON."""
    while True:
        r = conn.request()
        text = json.dumps({"line": r.line, "fields": r.fields, "body": r.body.decode("latin-1"), "conn": conn.number}).encode()
        body = b"" if r.method == "HEAD" else text
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + body)


def says(text):
    """A script: every request is answered 200 with this body."""
    data = text.encode()

    def script(conn):
        while True:
            conn.answer(answer(200, body=data))
    return script


def plays(data, then="close"):
    """A script: reads one request, writes these bytes, then closes ('close'), resets ('rst') or waits ('hold')."""
    def script(conn):
        conn.answer(data)
        if then == "rst":
            time.sleep(0.05)
            conn.rst()
        elif then == "hold":
            conn.ending(60)
    return script
