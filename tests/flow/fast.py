"""Fast Sandbox for the flow tests: the gateway in front of a scripted FastPath, and clients that come with f1. tokens."""
from fastpath_server import FastPath, route
from lib import equal, request, wait_for
from signed import RING, scope

LOOPBACK = "--allow-target-cidr=127.0.0.0/8"
NS = "tenant-a"
PARKED, SHED, WAITED = "ingress_park_active", "ingress_park_shed", "ingress_park_wait_duration_count"
UNAVAILABLE = "OpenSandbox Ingress: sandbox not ready: FastPath resolution temporarily unavailable\n"
STALE = "OpenSandbox Ingress: sandbox not ready: route is stale\n"


def fastpath(lab, **how):
    fp = FastPath(**how)
    lab.peers.append(Ending(fp))
    return fp


class Ending:
    """What a Lab closes."""

    def __init__(self, fp):
        self.close = fp.stop


def fast(lab, fp, *flags, provider="fast-sandbox", **how):
    """A gateway that asks fp."""
    return lab.gateway(f"--provider-type={provider}", f"--fastpath-endpoint={fp.endpoint}", f"--secure-access-keys={RING}",
                       LOOPBACK, *flags, **how)


def waking(lab, fp, *flags, **how):
    """One that wakes, in little steps."""
    return fast(lab, fp, "--wake-enabled", "--wake-retry-interval=20ms", *flags, **how)


def knows(fp, backend, *names, ns=NS, **how):
    """Endpoints of these sandboxes lead to the backend."""
    for name in names:
        fp.resolve[ns, name] = route(backend.port, **how)


def to(sandbox="sb1", port=3000, **how):
    """The field that routes."""
    return f"OpenSandbox-Ingress-To: {scope(sandbox, port, **how)}"


def ask(gw, sandbox="sb1", *fields, target="/", method="GET", body=None, port=3000, status=200, patience=20):
    """One request on a connection of its own."""
    r = gw.client(patience=patience).ask(method, target, to(sandbox, port), "Connection: close", *fields, body=body)
    equal(r.status, status, f"status, with {r.text[:200]!r}")
    return r


def asks(gw, sandbox="sb1", *fields, target="/", method="GET", body=None, port=3000, patience=20):
    """One that is sent and not waited for: the client."""
    return gw.client(patience=patience).send(request(method, target, to(sandbox, port), "Connection: close", *fields, body=body))


def parked(gw, n):
    wait_for(lambda: gw.metric(PARKED) == n, f"{n} parked, there are {gw.metric(PARKED)}")
