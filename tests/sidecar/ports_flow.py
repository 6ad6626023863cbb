"""Ports that the workload and the sidecar use one after the other.  Conntrack keeps a flow for a while after it was reset by us,
and who begins one between the same ports is sent where that one went."""
import contextlib

from bench import check, equal, test
from vaulted import GOOD, Vaulted
from webs import Said
from world import sysctl

BROKEN = b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff" + b"z" * 300000     # reset, since most of it is not read


@test("8.1", "VLT-01", limit=120)
def a_dial_that_is_redirected_to_ourselves_goes_on_from_another_port(lab):
    b = Vaulted(lab, alpn=("http/1.1",), handler=lambda q: Said(200, body=b"x", then="close"))
    with b.w.inside(0):
        sysctl("net/ipv4/ip_local_port_range", "40000 40255")
    def loops():
        return b.s.metric("sallyport_relay_connections_total", result="loop") or 0
    for i in range(600):            # how many are reset, and which ports come up, is the kernel's choice
        if i >= 30 and i % 10 == 0 and loops():
            break
        for _ in range(4):
            with contextlib.closing(b.w.connect(GOOD, 443)) as c, contextlib.suppress(ConnectionResetError, BrokenPipeError):
                c.sendall(BROKEN)
                c.recv(1)
        with contextlib.closing(b.h1()) as c:
            a = c.ask("GET", "/v1/x")
            equal((a.status, a.body), (200, b"x"))
    check(not b.s.logged("client does not trust"), "we shook hands with ourselves")
    check(loops(), "no dial came back to us")
