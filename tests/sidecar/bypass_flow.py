"""The ways out of a sandbox in mode dns+nft, each tried twice: without a sidecar, where it must get out (an attempt that never
could proves nothing), and with one, where nothing may.  What is refused is answered at once, unless nobody could answer."""
import contextlib
import fcntl
import json
import socket
import struct

import attempts
from bench import allow, check, closed, equal, test, wait_for
from world import INSIDE, NS4, NS6, refused

USERS = ("nobody", "root", "raw", 10042)
ROOTS = ("raw", "engine")
ONE = ("nobody",)
GOOD4, GOOD6 = "198.51.100.10", "2001:db8::10"
ZONE = {"ok.test": {"A": [GOOD4], "AAAA": [GOOD6]}, "no.test": {"A": ["198.51.100.11"]}, "*.wild.test": {"A": ["198.51.100.12"]}}
LIMIT_S = 0.9


class Row:
    """One attempt, and who tries it.  mute: nobody can answer it; deaf: it stays inside by nature, so that it is not expected
    to get out of an open world.  Without an `ip` each try has an address of its own; its payload is its own in any case."""

    def __init__(self, name, way, who=USERS, mute=False, deaf=False, v6=False, **args):
        self.name, self.who, self.mute, self.deaf, self.v6 = name, who, mute, deaf, v6
        self.args = {"way": way, "port": 9999, **args}


class Try:
    """A row as one of those who try."""

    def __init__(self, row, who, n):
        self.name, self.who, self.row, self.token = f"{row.name} ({who})", who, row, f"sally{n:04d}port"
        self.own = None if "ip" in row.args else f"2001:db8:7::{n:x}" if row.v6 else f"192.168.{n // 250}.{n % 250 + 1}"
        self.args = {"payload": self.token, "ip": self.own, "station": station(), **row.args}
        self.outcome, self.detail, self.took, self.left = None, None, 0, []

    def fits(self, f):
        return self.token.encode() in f.raw or (self.own and f.dst == self.own)

    def __str__(self):
        return f"{self.name}: {self.outcome} {self.detail} after {self.took:.2f} s"


def v4(**args):
    return {"source": INSIDE[4], **args}


def v6(**args):
    return {"source": INSIDE[6], "v6": True, **args}


PLAIN = [
    *[Row(f"tcp to port {port}", "tcp", USERS if port == 22 else ONE, port=port)
      for port in (22, 25, 80, 443, 5432, 8080, 18080)],
    *[Row(f"tcp to port {port}, IPv6", "tcp", ONE, v6=True, port=port) for port in (22, 443, 5432)],
    *[Row(f"udp to port {port}", "udp", USERS if port == 123 else ONE, port=port) for port in (123, 443, 5353, 5355, 9999)],
    *[Row(f"udp to port {port}, IPv6", "udp", ONE, v6=True, port=port) for port in (123, 443)],
    Row("tcp with data in its SYN", "tcp", ONE, fast=True, mute=True),
    Row("multipath TCP", "tcp", ONE, protocol=262),
    Row("udplite", "udp", ONE, protocol=136),
    Row("an IPv4 address written as IPv6", "tcp", ONE, ip="::ffff:203.0.113.251", port=9001, deaf=True),
    Row("ping", "ping"), Row("ping, IPv6", "ping", v6=True),
    Row("udp, broadcast", "udp", ONE, ip="255.255.255.255"),
    Row("udp, multicast", "udp", ONE, ip="239.1.2.3"),
    Row("udp, multicast of the link, IPv6", "udp", ONE, ip="ff02::1%e0"),
    Row("DNS over TLS to an allowed address", "tcp", ip=GOOD4, port=853),
    Row("DNS over TLS to an allowed address, IPv6", "tcp", ONE, ip=GOOD6, port=853),
    Row("DNS over QUIC to an allowed address", "udp", ONE, ip=GOOD4, port=853),
    Row("DNS over QUIC to an allowed address, IPv6", "udp", ONE, ip=GOOD6, port=853),
    Row("segment routing header", "udp", ONE, ip=GOOD6, port=9002, segments="2001:db8::77"),
    Row("by a device", "udp", ONE, device="e0"),
    Row("by a device, tcp", "tcp", ONE, device="e0"),
    Row("to loopback by a device", "udp", ONE, ip="127.0.0.1", port=9003, device="e0"),
    Row("to our DNS by a device", "udp", ONE, ip="127.0.0.1", port=15353, device="e0"),
    Row("to loopback by a datagram's device", "udp_from_device", ONE, ip="127.0.0.1", port=9004, through="e0"),
    Row("by a datagram's device", "udp_from_device", ONE, through="e0"),
    Row("DNS by a device", "udp", ONE, ip="192.0.2.53", port=53, device="e0", mute=True),
    Row("DNS by a datagram's device", "udp_from_device", ONE, ip="192.0.2.53", port=53, through="e0", mute=True),
]
RAW = [
    Row("mark 1", "tcp", ROOTS, port=22, mark=1),
    Row("all bits of the mark", "udp", ROOTS, mark=0xffffffff),
    *[Row(f"udp with the mark {1 << bit:#x}", "udp", ("raw",), mark=1 << bit) for bit in range(1, 32, 6)],
    Row("source route, loose", "udp", ROOTS, ip=GOOD4, port=9005, option=131, hop="10.99.0.1"),
    Row("source route, strict", "udp", ROOTS, ip=GOOD4, port=9006, option=137, hop="10.99.0.1"),
    *[Row(f"routing header {kind}", "raw_routing_header", ("raw",), mute=True, number=kind, source=INSIDE[6],
          ip=GOOD6) for kind in (0, 2, 4)],
    *[Row(f"raw: {name}", "raw_protocol", ("raw",), mute=True, number=number, **v4())
      for name, number in (("SCTP", 132), ("GRE", 47), ("ESP", 50), ("IPv6 in IPv4", 41), ("an unknown protocol", 253))],
    *[Row(f"raw: {name}, IPv6", "raw_protocol", ("raw",), mute=True, number=number, **v6()) for name,
      number in (("SCTP", 132), ("GRE", 47))],
    Row("raw: udp", "raw_udp", ROOTS, mute=True, **v4()), Row("raw: udp, IPv6", "raw_udp", ROOTS, mute=True, **v6()),
    Row("raw: udp with a mark", "raw_udp", ("raw",), mute=True, mark=1, **v4()),
    Row("raw: udp with a foreign source", "raw_udp", ("raw",), mute=True, source="198.51.100.99"),
    Row("raw: udp with loopback as source", "raw_udp", ("raw",), mute=True, ip=GOOD4, port=9007, source="127.0.0.1", deaf=True),
    Row("raw: from port 18080, as if it were an answer of ours", "raw_udp", ("raw",), mute=True, sport=18080, **v4()),
    *[Row(f"raw: segment with flags {flags:#x}", "raw_tcp", ("raw",), mute=True, flags=flags, port=port, **v4())
      for flags, port in ((2, 22), (16, 22), (4, 22), (0x12, 22), (0, 443), (4, 53))],
    Row("raw: answer to nobody from port 18080", "raw_tcp", ("raw",), mute=True, flags=0x12, sport=18080, **v4()),
    Row("raw: fragments", "raw_fragments", ("raw",), mute=True, **v4()),
    Row("raw: fragments to port 53 of an allowed address", "raw_fragments", ("raw",), mute=True, ip=GOOD4, port=53,
        source=INSIDE[4]),
    Row("raw: fragments to port 853 of an allowed address", "raw_fragments", ("raw",), mute=True, ip=GOOD4, port=853,
        source=INSIDE[4]),
    *[Row(f"raw: port {port} of an allowed address behind header {number}", "raw_extension", ("raw",), mute=True, ip=GOOD6,
          port=port,
          number=number, source=INSIDE[6]) for number in (44, 60) for port in (853, 53)],
    *[Row(f"raw: behind header {number}", "raw_extension", ("raw",), mute=True, number=number, **v6()) for number in (0, 44, 60)],
    *[Row(f"neighbour discovery {kind} with a payload", "neighbour", ("raw",), mute=True, number=kind, v6=True)
      for kind in (135, 136)],
    Row("router solicitation with a payload", "neighbour", ("raw",), mute=True, number=133, ip="ff02::2"),
    Row("a flow from outside, forged over lo", "forged_inbound", ("raw",), mute=True, **v4()),
    Row("the same from the gateway", "forged_inbound", ("raw",), mute=True, ip="10.99.0.1", source=INSIDE[4]),
    Row("the same from the nameserver", "forged_inbound", ("raw",), mute=True, ip=NS4, port=53, source=INSIDE[4]),
]
FRAMES = [
    Row(f"frame{' ' + text if text else ''}{', IPv6' if six else ''}", "frame", ROOTS, mute=True, through="e0", **flags,
        **(v6() if six else v4()))
    for text, flags in (("", {}), ("past the queue", {"bypass": True}), ("written whole", {"whole": True}),
                        ("with a mark", {"mark": 1}),
                        ("past the queue, with a mark", {"bypass": True, "mark": 0xffffffff}))
    for six in (False, True)
] + [
    Row("frame to an allowed address", "frame", ("raw",), mute=True, ip=GOOD4, port=9008, through="e0", source=INSIDE[4]),
    Row("frame to the nameserver", "frame", ("raw",), mute=True, ip=NS4, port=53, through="e0", source=INSIDE[4]),
    Row("frame of ARP with a payload", "frame", ("raw",), mute=True, arp=True, through="e0", **v4()),
    Row("frame of ARP past the queue", "frame", ("raw",), mute=True, arp=True, bypass=True, through="e0", **v4()),
    *[Row(f"AF_XDP, queue {queue}", "xdp", ("raw",), mute=True, through="e0", queue=queue, **v4()) for queue in (0, 1, 2)],
]


def station():
    """The outer device's own address, without which a frame is nobody's."""
    with socket.socket() as s:
        return fcntl.ioctl(s, 0x8927, struct.pack("256s", b"o0"))[18:24].hex()


def walk(w, rows):
    """Runs them: the tries, and the frames that left and are none of theirs."""
    tries = [Try(row, who, n) for n, (row, who) in enumerate((row, who) for row in rows for who in row.who)]
    w.recorder.forget()
    for who in {t.who for t in tries}:
        mine = [t for t in tries if t.who == who]
        for t, said in zip(mine, w.workload(attempts.tried_all, [t.args for t in mine], who=who, within=200)):
            t.outcome, t.detail, t.took = said
    others = []
    for f in w.recorder.left(kernel=True):
        t = next((t for t in tries if t.fits(f)), None)
        if t:
            t.left.append(f)
        elif not f.of_kernel:
            others.append(f)
    return tries, others


def gets_out(w, rows):
    """Without a sidecar each must; those that this machine cannot try are let go."""
    tries, _ = walk(w, rows)
    faults = [str(t) for t in tries if not t.left and t.outcome != "unable" and not t.row.deaf]
    check(not faults, "cannot get out at all:", "; ".join(faults))


def of_ours(f):
    """What the sidecar itself may send: questions to its nameserver, which are not the attempts'."""
    return f.dst in (NS4, NS6) and f.dport == 53 and b"sally" not in f.raw


def stays_in(w, rows):
    tries, others = walk(w, rows)
    faults = [f"GOT OUT {t}: {len(t.left)} frames, {t.left[0]}" for t in tries if t.left]
    faults += [str(t) for t in tries
               if not t.row.mute and t.outcome != "unable" and (t.outcome != "answered" or t.took > LIMIT_S)]
    faults += [f"a frame of nobody's left: {f}" for f in others if not of_ours(f)]
    check(not faults, "; ".join(faults))


def start(w, **how):
    """A sidecar that allows ok.test, whose addresses are learned."""
    how = {"MODE": "dns+nft", "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "3600", "RULES": closed(allow("ok.test")), **how}
    s = w.sidecar(**how)
    for kind, address in (("A", GOOD4), ("AAAA", GOOD6)):
        equal(w.resolve("ok.test", kind), [address], kind)
    return s


def both(lab, rows):
    w = lab.world()
    w.everywhere(tcp=[22, 25, 80, 443, 853, 5432, 8080, 9999, 18080], udp=[123, 443, 853, 5353, 5355, 9999])
    gets_out(w, rows)
    w.nameserver(ZONE)
    s = start(w)
    before = s.policy()
    stays_in(w, rows)
    equal(s.policy(), before, "policy")
    check(w.gets_out(GOOD4, 443), "the allowed host is out of reach")
    check(w.gets_out(GOOD6, 443), "the allowed host is out of reach by IPv6")


@test("POL-03", "POL-10", "DNS-02", "DNS-15", limit=240)
def plain_sockets_reach_nothing_that_is_not_allowed(lab):
    both(lab, PLAIN)


@test("POL-17", limit=240)
def raw_sockets_and_marks_reach_nothing_that_is_not_allowed(lab):
    both(lab, RAW)


@test("POL-17", limit=240)
def frames_past_the_output_hook_do_not_leave(lab):
    both(lab, FRAMES)


# AF_XDP passes no hook: what holds it is a socket of ours, which ends with the last of our processes.
HELD_BY_RULES = PLAIN + RAW + [row for row in FRAMES if row.args["way"] != "xdp"]


def after(lab, end):
    """The same when the sidecar is no more; the allowed host is closed too."""
    w = lab.world()
    w.everywhere(tcp=[22, 25, 80, 443, 853, 5432, 8080, 9999, 18080], udp=[123, 443, 853, 5353, 5355, 9999])
    w.nameserver(ZONE)
    s = start(w)
    end(s)
    tries, others = walk(w, HELD_BY_RULES)
    faults = [f"GOT OUT {t}: {len(t.left)} frames, {t.left[0]}" for t in tries if t.left]
    check(not faults and not others, "; ".join(faults), others)
    return w


@test("E2", "POL-17", limit=240)
def after_sigterm_nothing_gets_out(lab):
    w = after(lab, lambda s: s.stop())
    check(not w.gets_out(GOOD4, 443) and not w.gets_out(GOOD6, 443), "the allowed host is open")


@test("7.3", "POL-17", limit=240)
def after_a_crash_nothing_gets_out(lab):
    def crash(s):
        s.expect_exit = None
        s.kill_worker()
        s.exit()
    after(lab, crash)


@test("POL-17", "POL-09", limit=120)
def while_the_worker_is_dead_its_supervisor_keeps_frames_in(lab):
    w = lab.world()
    w.nameserver(ZONE)
    s = start(w, supervised=True, supervisor_flags=("--backoff-min", "5s", "--backoff-max", "5s", "--backoff-jitter", "0"))
    dead, starts = s.worker, s.starts()
    s.kill_worker(wait=False)
    wait_for(lambda: any(e["event"] == "exit" and e["pid"] == dead for e in s.events()), "the worker's end")
    stays_in(w, FRAMES)
    equal(s.starts(), starts, "starts meanwhile")


@test("POL-10")
def quic_to_an_allowed_host_that_is_not_opened_follows_the_rules(lab):
    w = lab.world()
    w.nameserver(ZONE)
    w.everywhere(udp=[443, 4433])
    start(w, MITMPROXY_TRANSPARENT="true")
    equal([w.udp(ip, port) for ip in (GOOD4, GOOD6) for port in (443, 4433)], [b"ping"] * 4)
    for ip in ("198.51.100.66", "2001:db8::66"):
        refused(lambda ip=ip: w.udp(ip, 443))


@test("POL-03")
def what_was_refused_is_in_the_log_with_address_and_port(lab):
    w = lab.world()
    w.nameserver(ZONE)
    s = start(w)
    tried = [("198.51.100.77", 22, "tcp"), ("2001:db8::77", 5432, "tcp"), ("198.51.100.78", 123, "udp")]
    for ip, port, proto in tried:
        w.workload(attempts.tried, {"way": proto, "ip": ip, "port": port})
    def logged():
        seen = {(e.get("address"), e.get("port"),
                 e.get("proto")) for e in s.decisions() if e["verdict"] == "deny" and e["kind"] == "packet"}
        return seen >= set(tried)
    wait_for(logged, f"the refusals of {tried} in the log; it holds {s.decisions()}")


# ---- DNS

QUERIES = [("another server", "dns", {"ip": "192.0.2.53"}), ("another server by TCP", "dns_tcp", {"ip": "192.0.2.53"}),
           ("another server, IPv6", "dns", {"ip": "2001:db8::99"}),
           ("another server by TCP, IPv6", "dns_tcp", {"ip": "2001:db8::99"}),
           ("the true server", "dns", {"ip": NS4}), ("an allowed address", "dns", {"ip": GOOD4}),
           ("loopback", "dns", {"ip": "127.0.0.1"}), ("loopback, IPv6", "dns", {"ip": "::1"}),
           ("loopback by TCP", "dns_tcp", {"ip": "127.0.0.53"}), ("as ANY", "dns", {"ip": NS4, "kind": 255}),
           ("as TXT", "dns", {"ip": NS4, "kind": 16}), ("as NULL", "dns", {"ip": NS4, "kind": 10}),
           ("our port", "dns", {"ip": "127.0.0.1", "port": 15353}),
           ("our port by TCP, IPv6", "dns_tcp", {"ip": "::1", "port": 15353})]


@test("DNS-01", "DNS-02")
def names_do_not_leave_whoever_is_asked(lab):
    w = lab.world()
    n, other, six = w.nameserver(ZONE), w.nameserver(ZONE, "192.0.2.53"), w.nameserver(ZONE, "2001:db8::99")
    rows = [{"way": way, "name": f"c2VjcmV0-{i}.no.test", **args} for i, (_, way, args) in enumerate(QUERIES)]
    w.workload(attempts.tried_all, rows)
    check(n.asked("no.test") and other.asked("no.test") and six.asked("no.test"), "no name leaves even without a sidecar")
    start(w)
    for ns in (n, other, six):
        ns.forget()
    w.recorder.forget()
    for who in USERS:
        for (name, *_), (outcome, detail, took) in zip(QUERIES, w.workload(attempts.tried_all, rows, who=who)):
            check(outcome == "reached" and detail.startswith("rcode 3") and took < LIMIT_S, name, who, outcome, detail, took)
    w.recorder.nothing_left("a denied name", holds=b"c2VjcmV0")
    w.recorder.nothing_left("a question to another server", dst=["192.0.2.53", "2001:db8::99", GOOD4], dport=53)
    equal([ns.asked("no.test") for ns in (n, other, six)], [[], [], []], "questions")


@test("DNS-15")
def the_engines_resolver_answers_under_policy_on_every_port(lab):
    w = lab.world()
    w.nameserver(ZONE)
    with w.inside(0):
        engine = w.nameserver({"*.test": {"A": ["198.51.100.13"]}}, "127.0.0.11", 41234)
    rows = [{"way": way, "ip": "127.0.0.11", "port": port, "name": "no.test"} for way in ("dns", "dns_tcp")
            for port in (41234, 53, 40000)]
    said = w.workload(attempts.tried_all, rows)
    check(said[0][1].startswith("rcode 0") and engine.asked("no.test"), "the engine's resolver does not answer without a sidecar",
          said)
    start(w)
    engine.forget()
    for who in USERS:
        for row, (outcome, detail, _) in zip(rows, w.workload(attempts.tried_all, rows, who=who)):
            check(outcome == "reached" and detail.startswith("rcode 3"), row, who, outcome, detail)
    equal(engine.asked(), [], "questions to the engine's resolver")


@test("POL-17", "DNS-09")
def forged_replies_poison_nothing(lab):
    w = lab.world()
    rows = [{"way": "forged_reply", "ip": ip, "port": 53, "source": source} for ip,
            source in ((NS4, INSIDE[4]), (NS6, INSIDE[6]))]
    equal([x[0] for x in w.workload(attempts.tried_all, rows, who="raw")], ["reached"] * 2, "forged replies without a sidecar")
    n = w.nameserver(ZONE)
    start(w, RULES=closed(allow("ok.test"), allow("*.wild.test")))
    check("reached" not in [x[0] for x in w.workload(attempts.tried_all, rows, who="raw")], "a forged reply was delivered")
    n.delay = 0.4
    for i in range(4):
        name = f"x{i}.wild.test"
        job = w.start(attempts.tried, {"way": "forged_replies", "ip": NS4, "source": INSIDE[4], "name": name,
                                       "address": "198.51.100.66", "ids": 65536}, who="raw")
        equal(w.resolve(name), ["198.51.100.12"], name)
        job.stop()
    n.delay = 0
    check(not w.gets_out("198.51.100.66", 443), "the forged address was learned")


def asks_from_our_ports(lab, mode):
    w = lab.world()
    rows = [{"way": "used_ports", "ip": NS4, "name": "sally1.no.test"}, {"way": "used_ports", "ip": NS6, "name": "sally2.no.test"},
            {"way": "raw_used_ports", "ip": NS4, "name": "sally3.no.test", "source": INSIDE[4]},
            {"way": "raw_used_ports", "ip": NS6, "name": "sally4.no.test", "source": INSIDE[6]}]
    n = w.nameserver(ZONE)
    start(w, MODE=mode, RULES=closed(allow("ok.test"), allow("*.wild.test")))
    for i in range(600):  # flows to the nameserver, of which some are over for us and none for the kernel
        with contextlib.suppress(OSError):
            w.resolve(f"x{i}.wild.test")
    asked = {q.peer[1] for q in n.asked("wild.test")}
    check(len(asked) > 20, "the sidecar asks from few ports:", len(asked))
    w.recorder.forget()
    for who in ("nobody", "root", "raw"):
        for row in rows if who == "raw" else rows[:2]:
            w.workload(attempts.tried_all, [{**row, "ports": (port, port + 1)} for port in asked], who=who)
    w.recorder.nothing_left("a question of somebody else", holds=b"sally")
    equal([q.name for q in n.asked("no.test")], [])


@test("POL-17", "DNS-01", limit=120)
def ports_that_we_have_asked_from_let_nobody_else_ask(lab):
    """An open flow is not looked at again: whoever has its ports could send on it."""
    asks_from_our_ports(lab, "dns+nft")


@test("DNS-01", "4.4", limit=120)
def ports_that_we_have_asked_from_let_nobody_else_ask_in_mode_dns_either(lab):
    asks_from_our_ports(lab, "dns")


@test("POL-17")
def errors_about_open_connections_carry_nothing_out(lab):
    w = lab.world()
    w.everywhere(tcp=[443])
    rows = [{"way": "icmp_error", "about": GOOD4, "ip": ip, "source": INSIDE[4],
             "payload": "sallyport"} for ip in ("198.51.100.66", "10.99.0.1")]
    w.workload(attempts.tried_all, rows, who="raw")
    check(len(w.recorder.left(proto="icmp", holds=b"sallyport")) >= 2, "they cannot get out at all")
    w.nameserver(ZONE)
    start(w)
    w.recorder.forget()
    w.workload(attempts.tried_all, rows, who="raw")
    w.recorder.nothing_left("an error with a payload", dst=["198.51.100.66", "10.99.0.1"], holds=b"sallyport")


@test("POL-17")
def our_mark_cannot_be_read_off_a_packet(lab):
    w = lab.world()
    w.nameserver(ZONE)
    marked = {"way": "read_marks", "ip": NS4, "name": "wild.test", "seconds": 0.5, "mark": 0x1234}
    said = w.workload(attempts.tried, marked, who="raw")
    check(said[0] == "unable" or 0x1234 in json.loads(said[1])["marks"], "a mark cannot be read without a sidecar either:", said)
    start(w, RULES=closed(allow("ok.test"), allow("*.wild.test")))
    for who in ROOTS:
        outcome, detail, _ = w.workload(attempts.tried, {"way": "read_marks", "ip": NS4, "name": "wild.test", "seconds": 1.0},
                                        who=who)
        check(json.loads(detail)["frames"] > 5, "nothing was seen at all:", outcome, detail)
        check(outcome == "answered", who, "read a mark:", detail)


@test("DNS-06")
def a_name_that_turns_to_loopback_or_metadata_opens_nothing(lab):
    w = lab.world()
    turns = iter(["203.0.113.5", "169.254.169.254", "127.0.0.1", "0.0.0.0", "224.0.0.1", "168.63.129.16", "100.100.100.200"])
    n = w.nameserver({"ok.test": {"A": lambda q: [next(turns)]}})
    n.ttl = 0
    w.everywhere(tcp=[80])
    w.sidecar(MODE="dns+nft", RULES=closed(allow("ok.test")), DNS_CACHE_SIZE="0")
    equal(w.resolve("ok.test"), ["203.0.113.5"])
    for _ in range(6):
        equal(w.resolve("ok.test"), [])
    for address in ("169.254.169.254", "168.63.129.16", "100.100.100.200"):
        check(not w.gets_out(address, 80), address, "is open")
    check(w.gets_out("203.0.113.5", 80), "the good address is closed")


# ---- DoH, and what was open before

@test("DNS-02", "POL-10")
def the_doh_switch_beats_allow_rules(lab):
    for more, closed in (({}, True), ({"DOH_BLOCKLIST": f"{GOOD4},2001:db8::/64"}, True),
                         ({"DOH_BLOCKLIST": "198.51.100.200"}, False)):
        w = lab.world()
        w.nameserver(ZONE)
        w.everywhere(tcp=[443, 8443])
        start(w, BLOCK_DOH_443="on", **more)
        equal((w.gets_out(GOOD4, 443), w.gets_out(GOOD6, 443)), (not closed, not closed), f"443 with {more}")
        check(w.gets_out(GOOD4, 8443) and w.gets_out(GOOD6, 8443), "other ports are closed as well")


@test("LIFE-06")
def a_connection_that_was_open_before_the_sidecar_is_not_let_on(lab):
    w = lab.world()
    w.nameserver(ZONE)
    w.everywhere(tcp=[9999])
    c = w.connect("198.51.100.66", 9999)
    c.sendall(b"before")
    equal(c.recv(6), b"before")
    start(w)
    w.recorder.forget()
    try:
        c.sendall(b"behind")
        seen = c.recv(6)
    except OSError as e:
        seen = e
    check(seen != b"behind", "it goes on")
    w.recorder.nothing_left("its bytes", holds=b"behind")


@test("POL-03")
def mode_dns_holds_names_and_not_addresses(lab):
    """What the README says that plain dns cannot hold: literal addresses.  Names and ports 53 it holds."""
    w = lab.world()
    n, other = w.nameserver(ZONE), w.nameserver(ZONE, "192.0.2.53")
    w.everywhere(tcp=[443, 853], udp=[443])
    start(w, MODE="dns")
    n.forget()
    w.recorder.forget()
    for who in USERS:
        for name, way, args in QUERIES:
            outcome, detail, _ = w.workload(attempts.tried, {"way": way, "name": "secret.no.test", **args}, who=who)
            check(outcome == "reached" and detail.startswith("rcode 3"), name, who, outcome, detail)
    w.workload(attempts.tried, {"way": "udp", "ip": "192.0.2.53", "port": 53, "device": "e0", "payload": "sallyport"})
    w.recorder.nothing_left("a question by a device", holds=b"sallyport")
    equal((n.asked("no.test"), other.asked()), ([], []), "questions")  # the probe asks for the root
    check(w.gets_out("198.51.100.66", 443) and w.gets_out("2001:db8::66", 443) and w.gets_out("198.51.100.66", 853),
          "addresses are held: say so in the README")
