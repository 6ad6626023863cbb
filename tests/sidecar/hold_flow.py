"""What the sidecar holds inside the sandbox's namespace, where the sandbox can reach it: its API, its ports, its process, its
tables.  Each is tried by the sandbox, as nobody and as root."""
import json
import os
import signal
import time

import attempts
from bench import allow, check, closed, deny, equal, test, wait_for
from sidecar import HEADER, TOKEN
from wire import request
from world import INSIDE, NS4, Load

GOOD = "198.51.100.10"
ZONE = {"ok.test": {"A": [GOOD], "AAAA": ["2001:db8::10"]}, "no.test": {"A": ["198.51.100.11"]}}
OPEN = json.dumps({"defaultAction": "allow"}).encode()


def begin(lab, **how):
    """A world, its nameserver, and a sidecar that allows ok.test."""
    w = lab.world()
    return w, w.nameserver(ZONE), w.sidecar(**{"MODE": "dns+nft", "RULES": closed(allow("ok.test")), **how})


# ---- the API

WRITES = (("POST", OPEN), ("PUT", OPEN), ("PATCH", b'[{"action":"allow","target":"no.test"}]'), ("DELETE", b'["ok.test"]'),
          ("POST", b""))
TRICKS = (
    (), (f"{HEADER}: ",), (f"{HEADER}: {TOKEN[:-1]}",), (f"{HEADER}: {TOKEN}x",), (f"{HEADER}: {TOKEN.upper()}",),
    (f"{HEADER}: Bearer {TOKEN}",),
    (f"Authorization: Bearer {TOKEN}",), (f"X-{HEADER}: {TOKEN}",), (f"{HEADER.replace('-', '_')}: {TOKEN}",),
    ("X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1"), (f"{HEADER}: \x00{TOKEN}",),
)


@test("POL-09", "E19")
def with_a_token_set_the_sandbox_changes_nothing(lab):
    w, _, s = begin(lab)
    before = s.policy()
    for address in ("127.0.0.1", "::1", "127.0.0.2", INSIDE[4], INSIDE[6]):
        for method, body in WRITES:
            c = w.client(host=address)
            r = c.ask(method, "/policy", "Connection: close", body=body, host="localhost:18080")
            equal(r.status, 401, f"{method} to {address}")
            c.close()
    for fields in TRICKS:
        c = w.client()
        c.offer(request("POST", "/policy", *fields, "Connection: close", body=OPEN, host="127.0.0.1"))
        status = c.response().status
        check(status in (400, 401), fields, status)
        c.close()
    for target in ("/policy/check", "/policy/log", "/policy"):
        equal(s.ask("GET", target, token=None).status, 401, target)
    equal(s.policy(), before, "policy")
    equal(w.resolve("no.test"), [])


@test("E19", "B6", limit=90)
def guessing_the_token_holds_up_nobody_who_has_it(lab):
    w, _, s = begin(lab)
    def guess():
        c = w.client()
        c.offer(request("POST", "/policy", f"{HEADER}: {os.urandom(8).hex()}", "Connection: close", body=OPEN, host="127.0.0.1"))
        status = c.response().status
        c.close()
        return status
    guessers = [Load(guess) for _ in range(16)]
    took = []
    for _ in range(10):
        start = time.monotonic()
        s.patch([deny("other.test")])
        took.append(time.monotonic() - start)
        time.sleep(0.1)
    seen = [v for g in guessers for _, v in g.stop()]
    check(seen and set(seen) == {401}, "answers to guesses:", set(seen))
    check(min(took) < 0.5 * lab.slow, "changes took", took)


@test("E19")
def without_a_token_only_loopback_is_served_and_no_web_page(lab):
    w, _, s = begin(lab, TOKEN=None)
    equal(s.ask("GET", "/policy", token=None).status, 200)
    for address in (INSIDE[4], INSIDE[6]):
        c = w.client(host=address)
        check(c.ask("POST", "/policy", "Connection: close", body=OPEN, host="localhost").status in (401, 403), address)
        c.close()
    check(s.ask("POST", "/policy", OPEN, token=None, remote=True).status in (401, 403), "another machine changes the policy")
    equal(s.ask("GET", "/healthz", token=None, remote=True).status, 200)
    for fields, host in ((("Origin: http://evil.test",), "127.0.0.1"), (("Sec-Fetch-Site: cross-site",), "127.0.0.1"),
                         ((), "evil.test"),
                         ((), "evil.test:18080"), ((), "127.0.0.1.evil.test"), (("Origin: null",), "localhost")):
        equal(s.ask("POST", "/policy", OPEN, *fields, token=None, host=host).status, 403, f"{fields} {host}")
    equal(s.policy()["defaultAction"], "deny")


# ---- its ports

PORTS = [(ip, 18080, False) for ip in ("0.0.0.0", "127.0.0.1", INSIDE[4], "::", "::1")]
PORTS += [(ip, port, datagram) for ip in ("127.0.0.1", "::1", "0.0.0.0", "::") for port,
          datagram in ((15353, True), (15353, False), (18081, False))]
SEIZE = [{"way": "seize", "ip": ip, "port": port, "datagram": datagram} for ip, port, datagram in PORTS]


def nobody_takes(w, when):
    for who in ("nobody", "root", "engine", 10042):
        for row, (outcome, detail, _) in zip(SEIZE, w.workload(attempts.tried_all, SEIZE, who=who)):
            equal((outcome, detail), ("answered", "EADDRINUSE"), f"{when}: {who} takes {row['ip']} {row['port']}")


@test("POL-09")
def nobody_gets_a_share_of_our_ports_not_even_while_the_worker_is_dead(lab):
    w = lab.world()
    w.nameserver(ZONE)
    check(all(outcome == "reached" for outcome, *_ in w.workload(attempts.tried_all, SEIZE)), "the ports cannot be had anyway")
    s = w.sidecar(MODE="dns+nft", MITMPROXY_TRANSPARENT="true", RULES=closed(allow("ok.test")), supervised=True,
                  supervisor_flags=("--backoff-min", "4s", "--backoff-max", "4s", "--backoff-jitter", "0"))
    nobody_takes(w, "alive")
    dead, starts = s.worker, s.starts()
    os.kill(dead, signal.SIGKILL)
    wait_for(lambda: any(e["event"] == "exit" and e["pid"] == dead for e in s.events()), "the worker's end")
    nobody_takes(w, "dead")
    equal(s.starts(), starts, "starts while we tried")
    c = w.client()
    c.patience = 30
    c.send(request("GET", "/policy", f"{HEADER}: {TOKEN}", "Connection: close", host="127.0.0.1"))
    equal(c.response().status, 200, "who asks meanwhile waits for the next worker")


@test("POL-09")
def a_port_that_somebody_has_stops_the_start(lab):
    for row in ({"ip": "127.0.0.1", "port": 15353, "datagram": True}, {"ip": "0.0.0.0", "port": 18080}):
        w = lab.world()
        w.nameserver(ZONE)
        w.everywhere(tcp=[443])
        job = w.start(hold, row, who="root")
        time.sleep(0.3)
        s = w.sidecar(RULES=closed(), healthy=False)
        s.expect_exit = None
        check(s.exit(30) != 0, "it runs beside the thief")
        job.stop()
        check(not w.gets_out(GOOD), "the failed start leaves everything open")


def hold(row):
    import socket
    kind = socket.SOCK_DGRAM if row.get("datagram") else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind((row["ip"], row["port"]))
        if kind == socket.SOCK_STREAM:
            s.listen()
        time.sleep(60)


# ---- its process

@test("POL-09")
def another_uid_can_neither_end_it_nor_read_it(lab):
    w, _, s = begin(lab, supervised=True)
    for pid in (s.pid, s.worker):
        rows = [{"way": "kill", "pid": pid, "signal": int(n)} for n in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP,
                                                                        signal.SIGHUP)]
        rows += [{"way": "look", "path": f"/proc/{pid}/{name}"} for name in ("environ", "mem", "maps", "syscall", "fd/0",
                                                                             "root/etc/passwd")]
        for who in ("nobody", 10042):
            for row, (outcome, detail, _) in zip(rows, w.workload(attempts.tried_all, rows, who=who)):
                check(outcome == "answered" and detail in ("EPERM", "EACCES"), who, row, outcome, detail)
        for name in ("cmdline", "status", "comm"):
            _, detail, _ = w.workload(attempts.tried, {"way": "look", "path": f"/proc/{pid}/{name}"})
            check(TOKEN.encode().hex() not in detail, "the token stands in", name)
    equal(s.health()[0], 200)


# ---- its tables

@test("DNS-01", limit=120)
def ten_thousand_denied_names_leave_nothing_and_hold_up_nobody(lab):
    w, ns, s = begin(lab)
    job = w.start(attempts.tried, {"way": "many_names", "ip": "192.0.2.53", "name": "evil.test", "count": 10000, "seconds": 60})
    load = Load(lambda: w.resolve("ok.test", within=3), 0.05)
    _, codes, _ = job.result(90)
    seen = load.stop()
    codes = json.loads(codes)
    check(codes.get("3", 0) >= 9000 and set(codes) == {"3"}, codes)
    equal([q.name for q in ns.asked("evil.test")], [])
    good = [v for _, v in seen if v == [GOOD]]
    check(len(good) >= 0.9 * len(seen) > 0, "others were held up:", len(good), "of", len(seen))
    equal(s.health()[0], 200)


@test("DNS-07", limit=120)
def a_full_table_of_learned_addresses_opens_and_breaks_nothing(lab):
    w = lab.world()
    count = iter(range(1, 1 << 20))
    w.nameserver({"ok.test": {"A": [GOOD]},
                  "*.wild.test": {"A": lambda q: [f"10.{(n := next(count)) >> 16}.{n >> 8 & 255}.{n & 255}"]}})
    w.everywhere(tcp=[443])
    s = w.sidecar(MODE="dns+nft", RULES=closed(allow("ok.test"), allow("*.wild.test")), MAX_LEARNED="64")
    equal(w.resolve("ok.test"), [GOOD])
    c = w.connect(GOOD, 443)
    _, codes, _ = w.workload(attempts.tried, {"way": "many_names", "ip": "192.0.2.53", "name": "wild.test", "count": 500,
                                              "seconds": 60}, within=90)
    codes = json.loads(codes)
    check(codes.get("2", 0) > 300 and 0 < codes.get("0", 0) < 70, "answers by code:", codes)
    c.sendall(b"still")
    equal(c.recv(5), b"still")
    check(w.gets_out(GOOD), "its address was pushed out")
    check(not w.gets_out("10.0.1.200"), "an address that was not learned is open")
    equal(s.health()[0], 200)


@test("DNS-07", limit=180)
def ten_thousand_allowed_names_are_served_or_refused(lab):
    w = lab.world()
    count = iter(range(1, 1 << 20))
    w.nameserver({"ok.test": {"A": [GOOD]},
                  "*.wild.test": {"A": lambda q: [f"10.{(n := next(count)) >> 16}.{n >> 8 & 255}.{n & 255}"]}})
    w.everywhere(tcp=[443])
    s = w.sidecar(MODE="dns+nft", RULES=closed(allow("ok.test"), allow("*.wild.test")))
    _, codes, _ = w.workload(attempts.tried, {"way": "many_names", "ip": "192.0.2.53", "name": "wild.test", "count": 10000,
                                              "seconds": 100}, within=150)
    codes = json.loads(codes)
    check(codes.get("0", 0) > 1000 and set(codes) <= {"0", "2", "5"}, codes)
    equal(wait_for(lambda: w.resolve("ok.test"), "ok.test again"), [GOOD])
    check(w.gets_out(GOOD), "an allowed host is out of reach")
    equal(s.health()[0], 200)


@test("B6", limit=120)
def ten_thousand_connections_to_us_lock_nobody_out(lab):
    w, _, s = begin(lab)
    for ip, port in (("127.0.0.1", 18080), ("127.0.0.1", 15353), ("::1", 18080)):
        job = w.start(attempts.tried, {"way": "many_connections", "ip": ip, "port": port, "count": 10000, "seconds": 60})
        time.sleep(1)
        for _ in range(5):
            equal(s.patch([deny("other.test")])["status"], "ok")
            equal(w.resolve("ok.test"), [GOOD])
            time.sleep(0.2)
        equal(s.health()[0], 200, f"health with 10,000 connections to port {port}")
        job.stop()
    w.workload(attempts.tried, {"way": "dns_tcp", "ip": "192.0.2.53", "name": "ok.test"})
    wait_for(lambda: w.ask("ok.test", tcp=True).addresses == [GOOD], "DNS over TCP again")


@test("DNS-01", "4.4", limit=120)
def no_question_is_refused_because_its_port_was_ours_before(lab):
    """The kernel remembers our flows to the nameserver for half a minute, and gives their ports to others meanwhile."""
    w = lab.world()
    w.nameserver({"*.wild.test": {"A": [GOOD]}})
    w.sidecar(MODE="dns+nft", RULES=closed(allow("*.wild.test")), DNS_MAX_RATE="0")
    w.workload(attempts.tried, {"way": "many_names", "ip": NS4, "name": "wild.test", "count": 4000, "seconds": 60}, within=90)
    lost = []
    for i in range(300):
        try:
            w.resolve(f"y{i}.wild.test", within=3)
        except OSError as e:
            lost.append(repr(e))
    check(not lost, f"{len(lost)} of 300 questions had no answer, the first: {lost[:1]}")
