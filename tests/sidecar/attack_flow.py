"""Ways out that take more than one step: a state that the kernel or the relay is brought into first, and what it opens then."""
import contextlib
import os
import resource
import socket
import struct
import time

from attempts import SO_BINDTODEVICE, SO_MARK, datagram, family, headed, made, option, question, raw_send, tried
from backend import echo
from bench import allow, check, closed, equal, test, wait_for
from bypass_flow import GOOD4, GOOD6, ZONE, start
from hello import client_hello
from origins import echoes
from relayed import shut
from sidecar import HEADER
from wire import Client
from world import INSIDE, NS4, NS6

FAR4, FAR6 = "198.51.100.66", "2001:db8::66"
OWN_PORT = 5001
OURS_BIT = 0x80000000


# ---- loopback

def by_lo(s):
    option(s, socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo\0")


def bound(ip, kind):
    """Always the same flow, whatever it goes through."""
    s = made(family(ip), kind)
    option(s, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((INSIDE[6 if ":" in ip else 4], OWN_PORT))
    s.settimeout(2.0)
    return s


def flow_answered_on_lo(ip):
    """A flow to far away that begins on lo and is `answered` there by a forgery; then its next packet, by the true way."""
    own = INSIDE[6 if ":" in ip else 4]
    with contextlib.suppress(OSError), bound(ip, socket.SOCK_DGRAM) as s:
        by_lo(s)
        s.sendto(b"first", (ip, 9999))
    with contextlib.suppress(OSError):
        raw_send(headed(ip, own, 17, datagram(ip, 9999, own, OWN_PORT, b"answer")), own)
    with contextlib.suppress(OSError), bound(ip, socket.SOCK_DGRAM) as s:
        s.sendto(b"sallyport", (ip, 9999))


def flow_begun_on_lo(ip, port, data):
    """A connection that begins on lo, where nothing is redirected, and goes on by the true way; what comes back."""
    with bound(ip, socket.SOCK_STREAM) as first:
        by_lo(first)
        first.setblocking(False)
        with contextlib.suppress(OSError):
            first.connect((ip, port))
    try:
        with bound(ip, socket.SOCK_STREAM) as s:
            s.connect((ip, port))
            s.sendall(data)
            return s.recv(256)
    except OSError:
        return b""


@test("POL-17")
def a_flow_that_began_on_loopback_does_not_go_on_elsewhere(lab):
    w = lab.world()
    for ip in (FAR4, FAR6):
        w.workload(flow_answered_on_lo, ip, who="raw")
    check(w.recorder.left(dst=FAR4, holds=b"sallyport"), "it cannot get out without a sidecar either")
    w.nameserver(ZONE)
    start(w)
    w.recorder.forget()
    for ip in (FAR4, FAR6):
        w.workload(flow_answered_on_lo, ip, who="raw")
    w.recorder.nothing_left("a flow that began on lo", dst=[FAR4, FAR6])


@test("POL-14", limit=60)
def a_flow_that_began_on_loopback_does_not_go_round_the_relay(lab):
    asks = b"GET / HTTP/1.1\r\nHost: no.test\r\n\r\n"
    for mode in ("dns", "dns+nft"):
        w = lab.world()
        w.nameserver(ZONE)
        w.origin(GOOD4, 80, echoes), w.origin(GOOD6, 80, echoes)
        start(w, MODE=mode, MITMPROXY_TRANSPARENT="on")
        w.recorder.forget()
        for who, ip in (("nobody", GOOD4), ("nobody", GOOD6), ("root", GOOD4)):
            seen = w.workload(flow_begun_on_lo, ip, 80, asks, who=who)
            check(not seen or seen.startswith(b"HTTP/1.1 4"), f"{who} to {ip} in {mode} got {seen}")
        w.recorder.nothing_left("a request that nobody judged", holds=b"no.test")


# ---- marks

def guesses(ip, seconds):
    """Packets with marks of the kind that ours is."""
    with made(family(ip), socket.SOCK_DGRAM) as s:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for mark in range(200):
                option(s, socket.SOL_SOCKET, SO_MARK, struct.pack("I", OURS_BIT | mark))
                with contextlib.suppress(OSError):
                    s.sendto(b"guess", (ip, 9999))
            time.sleep(0.01)


@test("POL-17", limit=60)
def while_marks_are_tried_none_is_ours(lab):
    """Else the right one would show: by what it opens, or by DNS that is not redirected."""
    w = lab.world(v6=False)
    n = w.nameserver(ZONE)
    w.sidecar(MODE="dns+nft", RULES=closed(allow("*.wild.test")), DNS_UPSTREAM_PROBE_INTERVAL_SEC="3600",
              DNS_MAX_DOMAIN_RATE="1000000", DNS_MAX_RATE="1000000")
    equal(w.resolve("a.wild.test"), ["198.51.100.12"])
    job = w.start(guesses, FAR4, 600.0, who="raw")
    names = (f"n{i}.wild.test" for i in range(1000000))

    def stopped():
        """Five in a row, since one may be lost."""
        n.forget()
        for _ in range(5):
            with contextlib.suppress(OSError):
                w.ask(next(names), within=0.5)
            if n.asked("wild.test"):
                return False
        return True
    wait_for(stopped, "our own questions to stop")
    w.recorder.nothing_left("a guess", dst=FAR4)
    job.stop()

    def resolves():
        with contextlib.suppress(OSError):
            return w.resolve(next(names), within=1.0) == ["198.51.100.12"]
    wait_for(resolves, "names to resolve again", 20)


# ---- permissions that end

@test("POL-07", limit=60)
def a_relayed_connection_ends_with_the_address_rule_that_let_it_through(lab):
    """Its name is allowed as well, but was never handed out for that address: a new connection would be refused."""
    w = lab.world()
    w.nameserver(ZONE)
    hello = client_hello("ok.test")
    w.origin(FAR4, 443, echoes), w.origin(FAR4, 80, echo), w.origin(GOOD4, 443, echoes)
    s = start(w, MITMPROXY_TRANSPARENT="on", PROXY_ADDR="127.0.0.1:3128", DRAIN_TIMEOUT="1",
              RULES=closed(allow("ok.test"), allow(FAR4)))
    with w.inside():
        tls, stays, tunnel, web = (w.keep(Client(port, ip)) for port, ip in ((443, FAR4), (443, GOOD4), (3128, "127.0.0.1"),
                                                                             (80, FAR4)))
    equal(tunnel.ask("CONNECT", f"{FAR4}:443", host=f"{FAR4}:443").status, 200)
    equal(web.ask("GET", "/", host="ok.test").status, 200)
    for c in (tls, stays, tunnel):
        c.send(hello)
        equal(c.exact(len(hello)), hello)
    s.delete([FAR4])
    for c in (tls, tunnel):
        c.offer(b"more")
        shut(c)
    equal(web.ask("GET", "/", host="ok.test").status, 421)
    stays.send(b"more")
    equal(stays.exact(4), b"more")


# ---- the parent proxy

@test("10.3", limit=60)
def the_parent_is_not_asked_for_itself(lab):
    """Not even where the policy allows its name: what is asked of it inside would be judged by nobody."""
    w = lab.world()
    w.nameserver({**ZONE, "proxy.test": {"A": ["198.51.100.40"]}})
    asked = []

    def parent(conn):
        asked.append(conn.head().line)
        conn.send(b"HTTP/1.1 200 yes\r\n\r\n")
        conn.more(20)
    w.origin("198.51.100.40", 3129, parent)
    start(w, MITMPROXY_TRANSPARENT="on", MITMPROXY_EXTRA_PORTS="3129", PROXY_ADDR="127.0.0.1:3128", DRAIN_TIMEOUT="1",
          UPSTREAM_PROXY="http://proxy.test:3129", RULES=closed(allow("*.test")))
    equal(w.resolve("proxy.test"), ["198.51.100.40"])
    with w.inside():
        for target in ("proxy.test:3129", "PROXY.test.:3129", "198.51.100.40:3129"):
            equal(w.keep(Client(3128)).ask("CONNECT", target, host=target).status, 403, target)
        equal(w.keep(Client(3128)).ask("GET", "http://proxy.test:3129/", host="proxy.test:3129").status, 403)
        direct = w.keep(Client(3129, "198.51.100.40"))
    direct.offer(client_hello("proxy.test"))
    check(client_hello("proxy.test") not in shut(direct), "a connection to the parent's own address")
    equal(asked, [])
    with w.inside():
        equal(w.keep(Client(3128)).ask("CONNECT", "ok.test:3129", host="ok.test:3129").status, 200)


# ---- what runs out

@test("B6", limit=120)
def who_uses_up_the_descriptors_locks_nobody_out(lab):
    w = lab.world()
    w.nameserver(ZONE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))  # of this test's process and all that it starts
    s = start(w, MITMPROXY_TRANSPARENT="on", PROXY_ADDR="127.0.0.1:3128", DRAIN_TIMEOUT="1")
    jobs = [w.start(tried, {"way": "many_connections", "ip": ip, "port": port, "count": 1000, "seconds": 60})
            for ip, port in 2 * ((GOOD4, 443), ("127.0.0.1", 3128), (GOOD4, 53), ("127.0.0.1", 18080))]
    folder = f"/proc/{s.pid}/fd"
    wait_for(lambda: len(os.listdir(folder)) > 100, "the connections to be there")
    c = w.client(remote=True)
    for _ in range(5):
        equal(c.ask("GET", "/policy", f"{HEADER}: {s.token}").status, 200)
        equal(w.resolve("ok.test"), [GOOD4])
        check(len(os.listdir(folder)) < 480, "hardly a descriptor is left")
        time.sleep(0.3)
    for job in jobs:
        job.stop()


def knocks(ip, seconds):
    """Connections to the API, over and over, each for a moment."""
    held, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        s = made(socket.AF_INET, socket.SOCK_STREAM)
        s.setblocking(False)
        s.connect_ex((ip, 18080))
        held.append(s)
        if len(held) > 200:
            held.pop(0).close()


@test("B6", limit=60)
def who_knocks_at_the_api_without_end_locks_no_one_from_elsewhere_out(lab):
    w = lab.world()
    w.nameserver(ZONE)
    s = start(w, API_MAX_CONNECTIONS="32")
    jobs = [w.start(knocks, ip, 40.0) for ip in ("127.0.0.1", INSIDE[4])]
    for _ in range(5):
        c = w.client(remote=True)
        time.sleep(0.3)  # a far one's request comes later than its SYN
        equal(c.ask("GET", "/policy", f"{HEADER}: {s.token}").status, 200)
        c.close()
    for job in jobs:
        check(job.running(), "nobody knocks any more")
        job.stop()


# ---- answers that nobody waits for

def asks_from(port, ip, name):
    """A question from this port; how it was answered."""
    with made(family(ip), socket.SOCK_DGRAM) as s:
        s.bind((INSIDE[6 if ":" in ip else 4], port))
        s.settimeout(2.0)
        s.connect((ip, 53))
        s.send(question(name))
        return s.recv(4096)[3] & 15


@test("DNS-01", "DNS-02", limit=60)
def a_late_answer_opens_no_way_to_the_nameserver(lab):
    """One that comes after conntrack has forgotten the question looks like a flow that was opened from outside."""
    for mode in ("dns", "dns+nft"):
        w = lab.world()
        n = w.nameserver(ZONE)
        start(w, MODE=mode)
        for port, own, ip in ((4010, INSIDE[4], NS4), (4011, INSIDE[6], NS6)):
            late = {"way": "raw_udp", "source": ip, "sport": 53, "ip": own, "port": port}
            equal(w.workload(tried, late, who="admin", place="outside")[0], "sent")
            n.forget()
            equal(w.workload(asks_from, port, ip, "secret.no.test"), 3, f"the answer in mode {mode}")
            equal(n.asked("no.test"), [], f"questions in mode {mode}")
