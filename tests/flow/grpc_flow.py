"""gRPC needs HTTP/2 to the backend and its trailers; which requests go so, and what settings and routes change about it."""
import struct

from lib import Ended, check, equal, test
from pairs import PAIRS, Call2, Pair, Setup, certificate, h2c, serves1, serves2

H2P = Pair("h2", False, "h2")


def message(data):
    return b"\0" + struct.pack(">I", len(data)) + data


def greeter(part):
    """Answers each call as a gRPC server would, others with the version they came in."""
    if not (part.get("content-type") or "").lower().startswith("application/grpc"):
        part.body()
        part.answer(200, body=part.version.encode())
        return
    seen.append((part.version, part.get("te")))
    body = part.body()
    if part.target.endswith("/Fail"):
        part.stream.head([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5"), ("grpc-message", "no such thing")], end=True)
        return
    part.answer(200, "Content-Type: application/grpc", body=body, trailers=["grpc-status: 0", "x-trail: yes"], how="chunked")


seen = []


class Lane:
    """A gateway before one backend that speaks both versions."""

    def __init__(self, lab, *flags, protocol=None, script=None):
        seen.clear()
        self.lab = lab
        self.b = lab.backend(script or serves2(greeter))
        self.b.h2 = []
        route = {"address": self.b.host, "ports": {"3000": {"address": self.b.address, **({"protocol": protocol} if protocol else {})}}}
        self.gw = lab.gateway(*flags, routes={"sb1": route})

    path = staticmethod(lambda pair, rest: "/sandboxes/sb1/port/3000" + rest)
    conn2, keep, rcvbuf = Setup.conn2, Setup.keep, 0

    def call(self, rest="/t.Echo/Say", kind="application/grpc", data=b"hello", **how):
        c = Call2(self, H2P, "POST", self.path(H2P, rest), ["TE: trailers", f"Content-Type: {kind}"], "chunked", **how)
        try:
            c.data(message(data)).end()
        except Ended:       # an answer may be there before the end
            pass
        return c.finish()

    def plain(self):
        return self.gw.client().ask("GET", self.path(None, "/"), "Connection: close")


@test("GRPC")
def call_goes_in_http_2_and_its_trailers_come_back(lab):
    lane = Lane(lab)
    for kind in ("application/grpc", "application/grpc+proto", "Application/GRPC; charset=x", "application/grpc+json;a=b"):
        a = lane.call(kind=kind)
        equal((a.status, a.body, a.whole), (200, message(b"hello"), True), f"{kind}: answer")
        equal((dict(a.trailers).get("grpc-status"), dict(a.trailers).get("x-trail")), ("0", "yes"), f"{kind}: trailers")
        equal(seen.pop(), ("h2", "trailers"), f"{kind}: at the backend")


@test("GRPC")
def what_only_looks_like_it_goes_in_http_1(lab):
    lane = Lane(lab)
    equal(lane.plain().body, b"h1", "a plain request")
    for kind in ("application/grpc-web", "application/grpcx", "text/plain", "x/application/grpc"):
        Call2(lane, H2P, "POST", lane.path(H2P, "/"), [f"Content-Type: {kind}"], None).finish()
        line = lane.b.requests[-1] if lane.b.requests else None
        check(line is not None and lane.b.h2 == [], f"{kind}: not in HTTP/1.1")


@test("GRPC")
def trailers_only_answer_passes(lab):
    a = Lane(lab).call("/t.Echo/Fail")
    equal((a.status, a.body, a.whole), (200, b"", True), "answer")
    equal((a.get("grpc-status"), a.get("grpc-message")), ("5", "no such thing"), "status in the head")


@test("GRPC")
def big_messages_pass(lab):
    lane = Lane(lab)
    data = bytes(range(256)) * 16384
    a = lane.call(data=data)
    equal((a.body == message(data), dict(a.trailers).get("grpc-status")), (True, "0"), "4 MiB there and back")


@test("GRPC", "H2-08")
def backend_that_speaks_only_http_1_is_502(lab):
    def only_1(conn):
        conn.more()
        if conn.buf.startswith(b"PRI"):
            conn.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            conn.ending(2)
            return
        serves1(greeter)(conn)
    lane = Lane(lab, script=only_1)
    a = lane.call()
    equal((a.status, a.whole), (502, True), "status")
    equal(lane.plain().status, 200, "a plain request to the same backend")


@test("GRPC")
def setting_and_route_say_what_is_spoken(lab):
    for flag, protocol, plain, grpc in (("auto", None, b"h1", "h2"), ("h1", None, b"h1", "h1"), ("h2c", None, b"h2", "h2"),
                                        ("h2c", "h1", b"h1", "h1"), ("h1", "h2c", b"h2", "h2"), ("h1", "auto", b"h1", "h2")):
        lane = Lane(lab, f"--backend-protocol={flag}", protocol=protocol)
        equal(lane.plain().body, plain, f"{flag}, route {protocol}: a plain request")
        a = lane.call()
        equal((a.status, seen.pop()[0]), (200, grpc), f"{flag}, route {protocol}: a call")


@test("GRPC")
def calls_share_a_connection_apart_from_plain_requests(lab):
    lane = Lane(lab, "--workers=1")
    conn = lane.conn2(H2P)
    for _ in range(5):
        equal(lane.call(conn=conn).status, 200, "status")
        equal(lane.plain().body, b"h1", "a plain request")
    equal(len(lane.b.h2), 1, "HTTP/2 connections")


@test("GRPC")
def call_to_nobody_is_an_answer(lab):
    lane = Lane(lab)
    lane.b.stop()
    a = lane.call()
    equal((a.status, a.whole), (502, True), "status")
