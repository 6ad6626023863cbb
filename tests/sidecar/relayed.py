"""A world whose ports 80 and 443 are redirected to the sidecar, for the flows of the relay: three names, each with an address of
its own in both families, of which the policy allows two."""
import contextlib

from bench import allow, closed, equal, wait_for
from origins import echoes
from wire import Wire

GOOD, OTHER, BAD, FREE = "198.51.100.10", "198.51.100.20", "198.51.100.11", "198.51.100.200"
GOOD6, OTHER6, BAD6, FREE6 = "2001:db8::10", "2001:db8::20", "2001:db8::11", "2001:db8::200"
ZONE = {"ok.test": {"A": [GOOD], "AAAA": [GOOD6]}, "other.test": {"A": [OTHER], "AAAA": [OTHER6]},
        "no.test": {"A": [BAD], "AAAA": [BAD6]}}
RULES = closed(allow("ok.test"), allow("other.test"))


class Relayed:
    """w, s (the sidecar), ns; names are resolved, so that their addresses are learned."""

    def __init__(self, lab, learn=True, families=None, **how):
        self.w = lab.world(**(families or {}))
        self.ns = self.w.nameserver(ZONE)
        self.s = self.w.sidecar(**{"MODE": "dns+nft", "MITMPROXY_TRANSPARENT": "true", "RULES": RULES,
                                   "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "3600", "DRAIN_TIMEOUT": "1", **how})
        if learn:
            self.learn()

    def learn(self):
        for name, four, six in (("ok.test", GOOD, GOOD6), ("other.test", OTHER, OTHER6)):
            for number, kind, address in ((4, "A", four), (6, "AAAA", six)):
                if number in self.w.families:
                    equal(self.w.resolve(name, kind), [address], name)

    def origin(self, address=GOOD, port=443, script=echoes):
        return self.w.origin(address, port, script)

    def origins(self, port, script, *addresses):
        return [self.w.origin(a, port, script) for a in addresses]

    def client(self, address=GOOD, port=443, uid=65534):
        """A connection of the workload, redirected; there is one to us in any case."""
        return self.w.keep(Wire(self.w.connect(address, port, uid=uid)))

    def untouched(self, *addresses):
        """Nothing has left towards these."""
        self.w.recorder.nothing_left("a connection to a refused address", dst=list(addresses))


def passes(c, data, script=b""):
    """Sends it to an echo; all of it must come back."""
    c.send(data)
    equal(c.exact(len(data)), data, "what came back")


def got(origin, n, number=0):
    """The first n bytes that the origin's connection has received."""
    wait_for(lambda: len(origin.conns) > number and len(origin.conns[number].seen) >= n, f"{n} bytes at the origin")
    return bytes(origin.conns[number].seen[:n])


def shut(c, within=5):
    """The connection must end; what came before that."""
    ending = c.ending(within)
    with contextlib.suppress(OSError):
        c.sock.close()
    if ending not in ("fin", "reset"):
        from wire import Failed
        raise Failed(f"still open after {within} s")
    return bytes(c.seen)
