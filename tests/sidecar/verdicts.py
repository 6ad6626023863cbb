"""What a workload finds: does a name work, does an address, is it refused as it should be?  Each question is put to every
address family of the world."""
import time

import dnswire
from wire import check, equal, wait_for
from world import NS4, NS6, refused


def zone(**more):
    """Names with an address of each family: see host()."""
    names = {"ok.test": 10, "no.test": 66, "other.test": 30, "x.a.test": 20, "y.a.test": 21, "a.test": 22, "b.test": 40}
    out = {name: host(n) for name, n in names.items()}
    out.update({name.replace("_", "."): value for name, value in more.items()})
    return out


def host(*numbers):
    """198.51.100.n and 2001:db8::n, written with the same digits."""
    return {"A": [f"198.51.100.{n}" for n in numbers], "AAAA": [f"2001:db8::{n}" for n in numbers]}


def kinds(w):
    return [("A", 4)] * (4 in w.families) + [("AAAA", 6)] * (6 in w.families)


def address(w, n):
    """The addresses of host(n) that this world has."""
    return [host(n)[kind][0] for kind, _ in kinds(w)]


def works(w, name, port=443):
    """The name resolves, and every address it gives lets us in; the addresses."""
    got = []
    for kind, _ in kinds(w):
        m = w.ask(name, kind)
        check(m.rcode == dnswire.NOERROR and m.addresses, name, kind, "should resolve:", m)
        got += m.addresses
    for ip in got:
        check(w.gets_out(ip, port), name, "should be reached at", ip, port)
    return got


def denied(w, name, types=("A", "AAAA", "TXT")):
    """The name is refused by policy, for every type, over UDP and TCP, with and without EDNS."""
    for kind in types:
        for how in ({}, {"edns": 1232}, {"tcp": True}):
            m = w.ask(name, kind, **how)
            check(m.denied, name, kind, how, "should be denied:", m)


def is_denied(w, name, kind="A"):
    return w.ask(name, kind).denied


def blocked(w, ip, port=443, at_once=True):
    """A connection is refused, at once, and nothing of it left."""
    start = time.monotonic()
    since = start
    e = refused(lambda: w.connect(ip, port), f"{ip} port {port}")
    if at_once:
        check(not isinstance(e, TimeoutError), "refused in silence:", ip, port, e)
        check(time.monotonic() - start < 1.5 * w.lab.slow, "refused too slowly:", ip, port, e)
    # The reset by which an earlier connection there was cut may still be on its way.
    w.recorder.nothing_left(f"a packet to {ip} port {port}", dst=ip, dport=port, since=since, match=lambda f: not is_bare_reset(f))


def is_bare_reset(frame):
    return frame.proto == "tcp" and frame.flags & 0x06 == 0x04 and not frame.payload


def fails(w, name, n, port=443):
    """The name is denied, and the addresses of host(n), given by hand, are refused."""
    denied(w, name)
    for ip in address(w, n):
        blocked(w, ip, port)


class Echo:
    """An open connection of the workload to an echo outside."""

    def __init__(self, w, ip, port=443):
        self.ip, self.sock = ip, w.connect(ip, port)
        self.sock.settimeout(5)
        check(self.lives(), "a fresh connection to", ip, "echoes")

    def lives(self):
        """Does a byte still come back?"""
        try:
            self.sock.sendall(b"ping")
            return self.sock.recv(4) == b"ping"
        except OSError:
            return False

    def cut(self, within):
        """Does the kernel end it by itself, nothing being sent?"""
        self.sock.settimeout(within)
        try:
            return self.sock.recv(4) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


def in_force(question, what, lab, within=5.0):
    """A change that comes by itself (files): waits for it."""
    wait_for(question, what, within * lab.slow, 0.05)


__all__ = ["NS4", "NS6", "Echo", "address", "blocked", "denied", "equal", "fails", "host", "in_force", "is_denied", "kinds", "works",
           "zone"]
