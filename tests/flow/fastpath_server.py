"""FastPath for tests: gRPC over HTTP/2 by prior knowledge, by hand, answers by script, everything that was asked kept.

    fp = FastPath()                                   # fp.endpoint is what --fastpath-endpoint wants
    fp.resolve["team-red", "sb1"] = route(backend.port)
    fp.state["team-red", "sb1"] = [state("PAUSED", checkpoint="c1"), state("READY")]
    fp.resume["team-red", "sb1"] = code(9, "is running", delay=0.5)
    ...
    fp.count("ResolveEndpoint", "sb1"); fp.calls[-1].port; fp.stop()

A script is one answer, which stays, or a list: each call takes one and the last one stays.  An answer may be a function of
the call.  Who has no script gets NotFound.
"""
import contextlib
import socket
import struct
import threading
import time

from h2wire import GOAWAY, H2, INTERNAL, SETTINGS, frame, settings, u32

SERVICE = "/fastpath.v2.FastPathService/"
RUNTIME = ("UNSPECIFIED UNKNOWN PENDING CREATING READY STOPPING STOPPED FAILED UNAVAILABLE PAUSING PAUSED RESUMING").split()
PLANE = "UNSPECIFIED UNKNOWN PENDING PUBLISHING READY DRAINING FAILED UNAVAILABLE".split()
CREDENTIAL = "X-Fast-Sandbox-Route-Credential"
MAX_STREAMS = 3


# -- protobuf: what these messages need
def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n) if n else b""


def text(field, value):
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def fields(data):
    """{field: last value}; numbers and bytes."""
    out, at = {}, 0

    def take():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(data):
        tag = take()
        if tag & 7 == 0:
            out[tag >> 3] = take()
        elif tag & 7 == 2:
            n = take()
            out[tag >> 3] = data[at:at + n]
            at += n
        else:
            raise ValueError(f"wire type {tag & 7}")
    return out


# -- answers
def route(to, path="", credential="credential-1", expires_in=600, headers=None, scheme="http", **more):
    """to: a port of loopback, "host:port", or a whole URL.  expires_in: s from the moment of the answer."""
    if isinstance(to, int):
        to = f"127.0.0.1:{to}"
    url = to if "://" in to else f"{scheme}://{to}{path}"
    return {"url": url, "headers": headers if headers is not None else [(CREDENTIAL, credential)], "expires_in": expires_in, **more}


def state(runtime, plane="READY", checkpoint="", **more):
    return {"runtime": runtime, "plane": plane, "checkpoint": checkpoint, **more}


def code(n, message="as the script says", **more):
    return {"code": n, "message": message, **more}


def raw(message, **more):
    """These bytes as the message."""
    return {"raw": message, **more}


def silent():
    """No answer at all."""
    return {"silent": True}


def bytes_of(body, **more):
    """These bytes as the body, in place of a prefix and a message."""
    return {"body": body, **more}


def reset():
    """The stream is reset."""
    return {"reset": True}


def goaway():
    """GOAWAY that counts this call as not taken, then the connection ends."""
    return {"goaway": True}


class Call:
    """What was asked."""

    def __init__(self, rpc, head, data):
        self.rpc, self.head, self.data, self.at = rpc, dict(head), data, time.monotonic()
        self.message = data[5:]
        f = fields(self.message)
        self.request_id = f.get(1, b"").decode() if rpc == "ResumeSandbox" else ""
        named = fields(fields(f.get(2 if rpc == "ResumeSandbox" else 1, b"")).get(2, b""))
        self.namespace, self.sandbox = named.get(1, b"").decode(), named.get(2, b"").decode()
        self.checkpoint = f.get(4, b"").decode() if rpc == "ResumeSandbox" else ""
        self.port = fields(f.get(2, b"")).get(2, 0) if rpc == "ResolveEndpoint" else 0
        self.access_mode = f.get(3, 0) if rpc == "ResolveEndpoint" else 0
        self.whole = None   # set when the answer has gone; False: the gateway gave it up

    def __repr__(self):
        return f"{self.rpc} {self.namespace}/{self.sandbox}:{self.port} {self.request_id} {self.checkpoint}".rstrip()


def message_of(call, a):
    """The protobuf message of a good answer."""
    if "raw" in a:
        return a["raw"]
    if call.rpc == "ResolveEndpoint":
        out = text(1, "uid-" + call.sandbox) + text(3, a["url"])
        for name, value in a["headers"]:
            out += text(4, text(1, name) + text(2, value))
        return out + number(5, a.get("generation", 1)) + number(6, int(time.time()) + a["expires_in"] if a["expires_in"] is not None else 0)
    info = text(1, text(1, "uid-" + call.sandbox) + text(2, call.sandbox) + text(3, call.namespace))
    info += text(3, number(1, RUNTIME.index(a["runtime"]))) + text(4, number(1, PLANE.index(a["plane"])))
    info += number(7, a["runtime"] == "READY" and a["plane"] == "READY")
    if a["checkpoint"]:
        info += text(9, text(1, a["checkpoint"]))
    return text(1, info) + number(2, 1)


class FastPath:
    def __init__(self, host="127.0.0.1", port=0, max_streams=0, mute=False):
        self.resolve, self.state, self.resume = {}, {}, {}
        self.calls, self.faults, self.conns = [], [], []
        self.lock = threading.Lock()
        self.max_streams = max_streams
        self.mute = mute        # connections are taken, and nothing is said
        self.listener = socket.create_server((host, port))
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"{host}:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        def start(stream):
            threading.Thread(target=self.run, args=(stream,), daemon=True).start()
        h2 = H2(sock, server=True, begin=False, on_stream=start)
        self.conns.append(h2)
        if self.mute:
            return
        h2.offer(frame(SETTINGS, 0, 0, settings({MAX_STREAMS: self.max_streams} if self.max_streams else {})))
        h2.run()

    # -- one call
    def run(self, stream):
        try:
            head = stream.next_head(0)
            rpc = dict(head)[":path"].removeprefix(SERVICE)
            call = Call(rpc, head, stream.read())
            answer = self.answer_to(call)
            self.say(stream, call, answer)
        except Exception as e:  # the test looks at them
            if type(e).__name__ not in ("Ended", "Late"):
                self.faults.append(e)

    def answer_to(self, call):
        scripts = {"ResolveEndpoint": self.resolve, "GetSandbox": self.state, "ResumeSandbox": self.resume}.get(call.rpc)
        with self.lock:
            self.calls.append(call)
            if scripts is None:
                return code(12, "no such call")
            answer = scripts.get((call.namespace, call.sandbox), code(5, "no such sandbox"))
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer(call) if callable(answer) else answer

    def say(self, stream, call, a):
        if a.get("hold"):
            a["hold"].wait(60)
        if a.get("delay"):
            time.sleep(a["delay"])
        if a.get("silent"):
            call.whole = not stream.over_within(60)
            return
        try:
            self.say_now(stream, call, a)
            call.whole = True
        except Exception:
            call.whole = False
            raise

    @staticmethod
    def say_now(stream, call, a):
        start = [(":status", "200"), ("content-type", a.get("type", "application/grpc"))]
        if a.get("http"):
            stream.head([(":status", str(a["http"])), ("content-type", "text/plain")], end=True)
        elif a.get("reset"):
            stream.reset(INTERNAL)
        elif a.get("goaway"):
            stream.conn.f(GOAWAY, 0, 0, u32(0) + u32(0))
            stream.conn.close()
        elif "body" in a:
            stream.head(start).send(a["body"])
            stream.head([("grpc-status", "0")], end=True)
        elif "code" in a:
            stream.head([*start, ("grpc-status", str(a["code"])), ("grpc-message", a["message"])], end=True)
        else:
            message = message_of(call, a)
            stream.head(start)
            stream.send(bytes([0]) + struct.pack(">I", len(message)) + message)
            stream.head([("grpc-status", "0"), ("grpc-message", "")], end=True)

    # -- what a test asks
    def asked(self, rpc=None, sandbox=None):
        with self.lock:
            return [c for c in self.calls if rpc in (None, c.rpc) and sandbox in (None, c.sandbox)]

    def count(self, rpc=None, sandbox=None):
        return len(self.asked(rpc, sandbox))

    def drop(self):
        """All connections end; who dials again is served."""
        for h2 in self.conns:
            h2.close()

    def stop(self):
        """Nobody listens any more, all connections end."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.drop()
