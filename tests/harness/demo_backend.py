#!/usr/bin/env python3
"""What runs in a sandbox, for the demonstration and for real clients: a page whose scripts use fetch, an event stream and
a WebSocket by relative addresses, and the parts behind it.  Python's standard library only.

    demo_backend.py [--host A] [--port N]    prints 'listening on PORT' once it serves

    /            the page                        /events?n=5&ms=300  an event stream that ends
    /ws          WebSocket echo                  /big?n=BYTES        so many zero bytes
    /upload      counts and hashes a body        /health             ok
    /where?ms=0  the address that was dialled, so much later
    anything else is answered with the head that arrived
"""
import argparse
import base64
import hashlib
import http.server
import struct
import sys
import time
import urllib.parse

PAGE = """<!doctype html>
<meta charset="utf-8"><title>A page in a sandbox</title>
<h1>A page in a sandbox</h1>
<p>fetch: <b id="fetch">…</b></p>
<p>events: <b id="events"></b></p>
<p>WebSocket: <b id="socket">…</b></p>
<p id="all">waiting</p>
<script src="page.js"></script>
"""
SCRIPT = """
const at = id => document.getElementById(id), left = new Set(['fetch', 'events', 'socket']);
const done = id => { left.delete(id); if (!left.size) { at('all').textContent = 'all three work'; navigator.sendBeacon('done'); } };
fetch('health').then(r => r.text()).then(t => { at('fetch').textContent = t; done('fetch'); });
const events = new EventSource('events?n=4&ms=200');
events.onmessage = e => { at('events').textContent += e.data + ' '; if (e.data === 'event 3') { events.close(); done('events'); } };
const socket = new WebSocket(new URL('ws', location.href).href.replace(/^http/, 'ws'));
socket.onopen = () => socket.send('an echo');
socket.onmessage = e => { at('socket').textContent = e.data; done('socket'); socket.close(); };
"""
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PIECE = bytes(256 * 1024)


class Sandbox(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sandbox"
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, body, kind="text/plain; charset=utf-8"):
        body = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        """The request's body, piece by piece."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while n := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(n)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b"\n", b""):
                pass
            return
        left = int(self.headers.get("Content-Length", 0))
        while left > 0 and (piece := self.rfile.read(min(left, len(PIECE)))):
            left -= len(piece)
            yield piece

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        route = {"/": self.page, "/page.js": self.script, "/health": self.health, "/events": self.events,
                 "/ws": self.socket, "/big": self.big, "/upload": self.upload, "/where": self.where}.get(url.path, self.what_arrived)
        route(query)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def page(self, query):
        self.answer(PAGE, "text/html; charset=utf-8")

    def script(self, query):
        self.answer(SCRIPT, "text/javascript; charset=utf-8")

    def health(self, query):
        self.answer("ok")

    def where(self, query):
        time.sleep(int(query.get("ms", 0)) / 1000)
        self.answer(self.connection.getsockname()[0])

    def what_arrived(self, query):
        for _ in self.body():
            pass
        self.answer("in the sandbox arrived:\n%s\n%s" % (self.requestline, str(self.headers).rstrip() + "\n"))

    def events(self, query):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(int(query.get("n", 5))):
            if i:
                time.sleep(int(query.get("ms", 300)) / 1000)
            event = b"data: event %d\n\n" % i
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def big(self, query):
        left = int(query.get("n", 0))
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left > 0:
            self.connection.sendall(memoryview(PIECE)[:min(left, len(PIECE))])
            left -= len(PIECE)

    def upload(self, query):
        n = 0
        digest = hashlib.sha256()
        for piece in self.body():
            n += len(piece)
            digest.update(piece)
        self.answer("%d bytes, sha256 %s\n" % (n, digest.hexdigest()))

    def socket(self, query):
        """RFC 6455, unfragmented messages: text and binary come back, a ping gets its pong, close ends it."""
        self.close_connection = True
        key = self.headers.get("Sec-WebSocket-Key")
        if not key:
            self.send_error(426, "a WebSocket is served here")
            return
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode())
        self.end_headers()
        while len(head := self.rfile.read(2)) == 2:
            n = head[1] & 127
            if n >= 126:
                n = struct.unpack(">H" if n == 126 else ">Q", self.rfile.read(2 if n == 126 else 8))[0]
            mask = self.rfile.read(4)
            data = bytes(c ^ mask[i & 3] for i, c in enumerate(self.rfile.read(n)))
            first = head[0] & 0xF0 | (10 if head[0] & 15 == 9 else head[0] & 15)
            size = bytes([n]) if n < 126 else struct.pack(">BH", 126, n) if n < 65536 else struct.pack(">BQ", 127, n)
            self.wfile.write(bytes([first]) + size + data)
            if head[0] & 15 == 8:
                return


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A peer that left is nothing to speak of."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main():
    ap = argparse.ArgumentParser(description="What runs in a sandbox, for the demonstration.")
    ap.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    ap.add_argument("--port", type=int, default=0, help="0 takes any free one")
    args = ap.parse_args()
    server = Server((args.host, args.port), Sandbox)
    print("listening on %d" % server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
