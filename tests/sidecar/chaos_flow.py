"""Everything at once: the relay, the explicit proxy, names, the API and other hands; and the end in the middle of it.  Whatever
comes together, nothing is left over, nothing gets out, and SIGTERM ends it with 0."""
import contextlib
import json
import os
import random
import shutil
import signal
import threading
import time

from backend import echo
from bench import allow, check, closed, deny, equal, test, wait_for
from hello import client_hello
from origins import echoes
from relayed import BAD, FREE, GOOD, OTHER, Relayed, passes
from sidecar import HEADER
from verdicts import blocked
from wire import Client, Ended, Failed, Late, Wire, answer, request
from world import Load, mount, refused

PROXY = 3128
SILENT = "198.51.100.99"  # takes connections and says nothing
NEVER = "203.0.113.66"    # no policy allows it
SPARES = 2 * 16 + 2 * 32  # descriptors that are kept: sockets for questions of each upstream, pipes


def holds(conn):
    """A script: reads and never answers."""
    conn.more(3600)
    time.sleep(3600)


# ---- the end

class Busy(Relayed):
    """A sidecar with everything under way: tunnels that run, connections that are being looked at, questions nobody answers, a
    webhook nobody answers, an API request of which half has come, one that keeps alive."""

    def __init__(self, lab, **how):
        super().__init__(lab, learn=False, PROXY_ADDR=f"127.0.0.1:{PROXY}", DENY_WEBHOOK=f"http://{SILENT}/told", **how)
        self.learn()
        self.hook = self.origin(SILENT, 80, holds)
        self.relayed, self.web = self.origin(GOOD, 443), self.origin(OTHER, 80, echo)
        self.lines = [self.tunnel() for _ in range(3)]
        self.asked = self.connect("ok.test:443")
        passes(self.asked, b"\x16\x03" + client_hello("ok.test")[2:])
        self.kept = self.proxied()
        equal(self.kept.ask("GET", "http://other.test/", host="other.test").status, 200)
        check(self.w.ask("no.test").denied, "no.test is denied")
        wait_for(lambda: self.hook.conns, "the webhook is called")
        self.half = self.s.client()
        self.half.send(request("POST", "/policy", f"{HEADER}: {self.s.token}", "Content-Length: 100", host="x", body=b"") + b"{")
        self.alive = self.s.client()
        equal(self.alive.ask("GET", "/healthz", host="x").status, 200)
        self.ns.silent = True
        self.waits = self.proxied()
        self.waits.send(request("CONNECT", "late.ok.test:443", host="late.ok.test:443"))
        self.looked = [self.begun() for _ in range(20)]

    def proxied(self):
        with self.w.inside():
            return self.w.keep(Client(PROXY, "127.0.0.1"))

    def connect(self, target):
        c = self.proxied()
        equal(c.ask("CONNECT", target, host=target).status, 200, target)
        return c

    def tunnel(self):
        c = self.client(GOOD)
        passes(c, client_hello("ok.test"))
        return c

    def begun(self):
        c = self.client(GOOD)
        c.send(client_hello("ok.test")[:40])
        return c

    def go_on(self, seconds):
        """What had begun goes on, and more begins, while the sidecar ends."""
        end, n = time.monotonic() + seconds, 0
        while time.monotonic() < end and self.s.alive():
            with contextlib.suppress(OSError, Ended, Late, Failed):
                if self.looked:
                    self.looked.pop().send(client_hello("ok.test")[40:])
                with self.w.inside():
                    c = Wire(self.w.connect(GOOD, 443, within=0.2))
                c.send(client_hello("ok.test"))
                self.lines.append(c)
            n += 1
            time.sleep(0.005)
        return n

    def ends(self, within):
        begun = time.monotonic()
        self.s.term()
        self.go_on(within)
        equal(self.s.exit(within + 10), 0, "exit status")
        took = time.monotonic() - begun
        blocked(self.w, GOOD, at_once=False)
        return took


@test("LIFE-05", "7.2", limit=120)
def the_end_in_the_middle_of_everything_is_an_orderly_one(lab):
    for seconds in ("0", "1", "3"):
        b = Busy(lab, RULES=closed(allow("ok.test"), allow("*.ok.test"), allow("other.test")), DRAIN_TIMEOUT=seconds)
        took = b.ends(float(seconds) + 3)
        check(took < (float(seconds) + 4) * lab.slow, "ended after", took)
        equal(b.s.finish(), None, f"with {seconds} s for it")


@test("7.2", limit=120)
def a_connection_that_is_told_after_the_last_one_ended_ends_in_time(lab):
    r = Relayed(lab, DENY_WEBHOOK=f"http://{SILENT}/told", DRAIN_TIMEOUT="2")
    hook, web = r.origin(SILENT, 80, holds), r.origin(GOOD, 80, echo)
    r.origin(GOOD, 443)
    check(r.w.ask("no.test").denied, "no.test is denied")
    wait_for(lambda: hook.conns, "the webhook is called, and holds the end up")
    looked = [r.client(GOOD, (443, 80)[i % 2]) for i in range(40)]
    for c in looked[::2]:
        c.send(client_hello("ok.test")[:40])
    for c in looked[1::2]:
        c.send(b"GET / HT")
    time.sleep(0.1)
    r.s.term()
    for i, c in enumerate(looked):
        time.sleep(0.003)
        with contextlib.suppress(OSError, Ended):
            c.send((client_hello("ok.test")[40:], b"TP/1.1\r\nHost: ok.test\r\n\r\n")[i % 2])
    equal(r.s.exit(2 + 10 * lab.slow), 0, "exit status")
    check(web.requests, "some of them were still served")
    blocked(r.w, GOOD, at_once=False)


@test("7.2", "7.3", limit=120)
def a_change_that_the_supervisor_holds_up_ends_before_the_worker(lab):
    r = Relayed(lab, supervised=True, DRAIN_TIMEOUT="0")
    r.origin(GOOD, 443)
    looked = [r.client(GOOD) for _ in range(20)]
    for c in looked:
        c.send(client_hello("ok.test")[:40])
    time.sleep(0.1)
    answers, worker = [], r.s.worker
    os.kill(r.s.pid, signal.SIGSTOP)

    def change():
        with contextlib.suppress(OSError, Ended, Late):
            answers.append(r.s.ask("PUT", "/policy", closed(allow("ok.test"), deny("b.test"))).status)
    t = threading.Thread(target=change, daemon=True)
    t.start()
    time.sleep(0.2)
    os.kill(worker, signal.SIGTERM)
    for c in looked:
        time.sleep(0.004)
        with contextlib.suppress(OSError):
            c.send(client_hello("ok.test")[40:])
    time.sleep(3 * lab.slow)
    os.kill(r.s.pid, signal.SIGCONT)
    t.join(20)
    wait_for(lambda: [e for e in r.s.events() if e["event"] == "exit"], "the worker's end", 20 * lab.slow)
    e = [e for e in r.s.events() if e["event"] == "exit"][0]
    equal((e["pid"], e["exit_code"], e.get("signal")), (worker, 0, None), str(e))


@test("7.2", "2.7", limit=200)
def sigterm_at_any_step_of_a_change_lets_it_end(lab):
    w = lab.world(v6=False)
    w.nameserver({})
    w.everywhere(tcp=[443])
    path = os.path.join(w.dir, "policy.json")
    one, two = (closed(allow(f"203.0.113.{n}0"), *[deny(f"10.{n}.{i >> 8}.{i & 255}") for i in range(1500)]) for n in (1, 2))
    whole = 0.0
    for i in range(60 if lab.long else 12):
        want, answers = (two, one)[i % 2], []
        s = w.sidecar(POLICY_FILE=path, RULES=one, DRAIN_TIMEOUT=("5", "0")[i // 2 % 2])
        begun = time.monotonic()
        if i < 2:
            s.put(want)
            whole = max(whole, time.monotonic() - begun)

        def change(s=s, want=want, answers=answers):
            with contextlib.suppress(OSError, Ended, Late):
                answers.append(s.ask("PUT", "/policy", want).status)
        t = threading.Thread(target=change, daemon=True)
        t.start()
        time.sleep(random.random() * whole * 1.2)
        s.term()
        equal(s.exit(15 * lab.slow), 0, "exit status")
        equal(s.finish(), None)
        t.join(20)
        w.sidecars.clear()
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
        check(kept in (one, two), "a file that is neither")
        check(answers != [200] or kept == want, "answered 200, but it is not kept")
        blocked(w, NEVER)
        blocked(w, "203.0.113.10")


@test("7.3", "LIFE-05", limit=120)
def what_the_supervisor_was_slow_to_take_outlives_the_worker_too(lab):
    w = lab.world(v6=False)
    w.nameserver({"ok.test": {"A": [GOOD]}, "no.test": {"A": [BAD]}})
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test"), allow("no.test"), allow("203.0.113.0/24")))
    os.kill(s.pid, signal.SIGSTOP)
    for policy in (closed(allow("x.test")), closed(allow("y.test")), closed(allow("ok.test"))):
        s.put(policy)
    os.kill(s.pid, signal.SIGCONT)
    s.kill_worker()
    equal(s.policy(), closed(allow("ok.test")))
    check(w.ask("no.test").denied and w.ask("ok.test").addresses, "names")
    blocked(w, NEVER)


def slow_rules(lab, w):
    """From now on the program that puts rules into the kernel does not come back, while the file is there whose path this is."""
    real, flag, script = (os.path.join(w.dir, name) for name in ("rules", "stuck", "script"))
    shutil.copy(lab.beside("sallyport-egress-rules"), real)
    w.write("script", f'#!/bin/sh\n[ "$1" = apply ] && [ -e {flag} ] && exec /bin/sleep 60\nexec {real} "$@"\n')
    os.chmod(script, 0o755)
    mount(script, lab.beside("sallyport-egress-rules"))
    return flag


@test("7.2", "2.7", limit=150)
def a_change_that_the_kernel_holds_up_goes_with_the_process(lab):
    w = lab.world(v6=False)
    flag = slow_rules(lab, w)
    w.ns = w.nameserver({"no.test": {"A": [BAD]}})
    w.everywhere(tcp=[443])
    s = w.sidecar(RULES=closed(allow("203.0.113.9")), DRAIN_TIMEOUT="0")
    open(flag, "w", encoding="ascii").close()
    w.nft("delete", "table", "inet", "opensandbox")
    s.wait_unhealthy()
    blocked(w, NEVER, at_once=False)  # the other table holds
    refused(lambda: w.ask("no.test", within=0.5), "a question past us")
    equal(w.ns.asked("no.test"), [])

    def change():
        with contextlib.suppress(OSError, Ended, Late):
            s.ask("PUT", "/policy", closed(allow("203.0.113.10")))
    threading.Thread(target=change, daemon=True).start()
    time.sleep(0.3)
    s.term()
    s.expect_exit = s.exit(60)
    equal(s.expect_exit, 1, "exit status")
    check(s.logged("a change did not end"), "a line that says why")
    blocked(w, NEVER)


@test("7.2", "LIFE-05", limit=120)
def signals_during_the_start_wait_for_its_end(lab):
    w = lab.world(v6=False)
    w.nameserver({})
    w.everywhere(tcp=[443])
    for i in range(12):
        s = w.sidecar(RULES=closed(), healthy=False)
        wait_for(s.stdout, "the banner", 20)
        time.sleep(random.random() * 0.15 * lab.slow)
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM) if i % 4 else (signal.SIGHUP,):
            s.term(number)
        if i % 4 == 0:
            s.wait_healthy()
            s.term()
        equal(s.exit(15 * lab.slow), 0, "exit status")
        equal(s.finish(), None)
        blocked(w, NEVER)


@test("7.2")
def a_second_sigterm_ends_it_at_once_and_leaves_the_rules(lab):
    r = Relayed(lab, DRAIN_TIMEOUT="30")
    r.origin(GOOD, 443)
    c = r.client(GOOD)
    passes(c, client_hello("ok.test"))
    r.s.term()
    wait_for(lambda: r.s.logged("draining"), "it drains")
    passes(c, b"still there")
    r.s.term()
    r.s.expect_exit = r.s.exit(10)
    equal(r.s.expect_exit, 1, "exit status")
    blocked(r.w, NEVER, at_once=False)


# ---- everything at once

NARROW, WIDE = closed(allow("ok.test"), allow("*.ok.test")), closed(allow("ok.test"), allow("*.ok.test"), allow("other.test"))


class Chaos(Relayed):
    """Loads that ask all the time, and hands that break things at random."""

    def __init__(self, lab):
        super().__init__(lab, supervised=True, PROXY_ADDR=f"127.0.0.1:{PROXY}", RULES=WIDE, DRAIN_TIMEOUT="3",
                         DNS_UPSTREAM_TIMEOUT="2", DENY_WEBHOOK=f"http://{SILENT}/told")
        self.lab, self.random = lab, random.Random()
        self.ns.zone["*.ok.test"] = {"A": [GOOD], "AAAA": []}
        self.hook = self.origin(SILENT, 80, lambda c: c.answer(answer(200, body=b"")))
        self.stands = {}
        for place in ((GOOD, 443, echoes), (GOOD, 80, echo), (OTHER, 443, echoes), (OTHER, 80, echo)):
            self.stands[place] = self.w.origin(*place)
        self.count = 0

    # -- what the workload does; each is a piece of work that may fail
    def relay(self):
        name, ip = self.random.choice((("ok.test", GOOD), ("other.test", OTHER)))
        with contextlib.closing(Wire(self.w.connect(ip, 443, within=2))) as c:
            c.patience = 2
            c.send(client_hello(name) + b"x" * self.random.randrange(20000))
            c.exact(100)
        return name

    def half(self):
        with contextlib.closing(Wire(self.w.connect(GOOD, self.random.choice((80, 443)), within=2))) as c:
            c.send(self.random.choice((client_hello("ok.test")[:50], b"GET / HTT", b"\0\1\2", b"")))
            time.sleep(self.random.random() / 2)

    def web(self):
        with contextlib.closing(Wire(self.w.connect(GOOD, 80, within=2))) as c:
            c.patience = 2
            for _ in range(2):
                c.send(request("GET", "/", host="ok.test"))
                c.until(b"\r\n\r\n")

    def proxied(self):
        with self.w.inside():
            c = Client(PROXY, "127.0.0.1")
        with contextlib.closing(c):
            c.patience = 3
            self.count += 1
            if self.count % 2:
                return c.ask("GET", f"http://n{self.count}.ok.test/", host=f"n{self.count}.ok.test").status
            if c.ask("CONNECT", "other.test:443", host="other.test:443").status == 200:
                c.send(client_hello("other.test"))
                c.exact(50)
            return 0

    def names(self):
        self.count += 1
        for name in (f"n{self.count % 500}.ok.test", "no.test", "other.test"):
            m = self.w.ask(name, self.random.choice(("A", "AAAA")), tcp=self.random.random() < 0.2, within=1)
            if name == "no.test" and not m.denied:
                raise AssertionError(f"no.test is not denied: {m}")

    def api(self):
        r = self.s.ask(*self.random.choice((("PUT", "/policy", NARROW), ("PUT", "/policy", WIDE), ("GET", "/policy"),
                                            ("PATCH", "/policy", [allow(f"x{self.random.randrange(50)}.test")]),
                                            ("GET", "/policy/log?since=0"), ("POST", "/policy/check", {"name": "ok.test"}))))
        return r.status

    def pages(self):
        return self.s.admin(self.random.choice(("/metrics", "/readyz", "/debug/exchanges", "/debug/pools", "/debug/config"))).status

    def never(self):
        return self.w.gets_out(self.random.choice((NEVER, FREE)), self.random.choice((443, 80, 22)), within=0.3)

    # -- what befalls it
    def origin_dies(self):
        place = self.random.choice(list(self.stands))
        self.stands[place].close()
        time.sleep(self.random.random())
        with contextlib.suppress(OSError):
            self.stands[place] = self.w.origin(*place)

    def upstream_stalls(self):
        how = self.random.choice(("silent", "delay", "rcode"))
        before = getattr(self.ns, how)
        setattr(self.ns, how, {"silent": True, "delay": 0.7, "rcode": 2}[how])
        time.sleep(self.random.random() * 2)
        setattr(self.ns, how, before)

    def table_goes(self):
        """One of the two, each of which keeps it closed; both at once are nothing to be held against us."""
        there = self.w.nft("list", "tables")
        if all(kind in there for kind in ("inet opensandbox", "netdev opensandbox")):
            self.w.nft("delete", "table", self.random.choice(("inet", "netdev")), "opensandbox", good=False)

    def reload(self):
        self.w.rule_file(self.random.choice(("allow", "deny", "log_skip")), self.random.choice(("", "z.test\n", "y.test\n", None)))
        for _ in range(self.random.randrange(1, 40)):
            os.kill(self.s.worker, signal.SIGHUP)

    def freezes(self):
        self.s.freeze(self.random.random())

    def supervisor_freezes(self):
        os.kill(self.s.pid, signal.SIGSTOP)
        time.sleep(self.random.random() * 1.5)
        os.kill(self.s.pid, signal.SIGCONT)

    # -- all of it
    def attempt(self, run):
        def once():
            try:
                return run()
            except (OSError, Ended, Late, Failed) as e:
                return e
        return once

    def loads(self):
        return {run: Load(self.attempt(run), 0.01) for run in (self.relay, self.half, self.web, self.proxied, self.names, self.api,
                                                               self.pages, self.never)}

    def storm(self, seconds):
        loads = self.loads()
        blows = [self.origin_dies, self.upstream_stalls, self.table_goes, self.reload, self.freezes, self.supervisor_freezes]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.choice(blows)()
            check(self.s.starts() == 1, "the worker has ended:", self.s.events()[-3:], self.s.stderr()[-2000:])
            time.sleep(self.random.random() / 2)
        return {run.__name__: [value for _, value in load.stop()] for run, load in loads.items()}

    def calm(self):
        self.ns.silent, self.ns.delay, self.ns.rcode = False, 0.0, None
        for name in ("allow", "deny", "log_skip"):
            self.w.rule_file(name, None)
        for place, o in self.stands.items():
            o.close()
            self.stands[place] = self.w.origin(*place)
        self.s.put(WIDE)
        wait_for(lambda: self.s.health()[0] == 200, "healthy", 30 * self.lab.slow, 0.1)

    def descriptors(self):
        """(of TCP, all)"""
        proc, tcp = f"/proc/{self.s.worker}", set()
        for name in ("tcp", "tcp6"):
            with open(f"{proc}/net/{name}", encoding="ascii") as f:
                tcp |= {f"socket:[{line.split()[9]}]" for line in f.read().splitlines()[1:]}
        links = []
        for fd in os.listdir(proc + "/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"{proc}/fd/{fd}"))
        return len([link for link in links if link in tcp]), len(links)

    def memory(self):
        """KiB in use."""
        with open(f"/proc/{self.s.worker}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def once_round(c):
    """Everything works, and what was never allowed does not."""
    wait_for(lambda: c.w.ask("ok.test").addresses == [GOOD] and c.w.ask("other.test").addresses == [OTHER], "names", 20)
    for run in (c.relay, c.web):
        run()
    equal(c.proxied() in (0, 200), True, "the explicit proxy")
    check(c.w.ask("no.test").denied, "no.test is denied")
    blocked(c.w, NEVER, 22, at_once=False)


@test("OPS-05", "LIFE-07", "INT-11", limit=420)
def after_a_storm_nothing_is_left_of_it(lab):
    c = Chaos(lab)
    once_round(c)
    (tcp, descriptors), memory = c.descriptors(), c.memory()
    c.w.recorder.forget()
    for _ in range(12 if lab.long else 1):
        seen = c.storm(20)
        for name in ("relay", "web", "names", "api", "pages"):
            check([v for v in seen[name] if not isinstance(v, Exception)], name, "never worked:", seen[name][-3:])
        check(True not in seen["never"], "something got out")
        c.w.recorder.nothing_left("a packet to where nobody may go", dst=[NEVER, FREE, BAD])
        c.w.recorder.forget()
        c.calm()
        once_round(c)
    wait_for(lambda: c.descriptors()[0] <= tcp + 4, f"connections back near {tcp}", 120, 0.5)
    wait_for(lambda: c.descriptors()[1] <= descriptors + SPARES, f"descriptors back near {descriptors}", 60, 0.5)
    if not lab.sanitizer:
        check(c.memory() < 2 * memory + (32 << 10), "memory, KiB:", memory, "then", c.memory())
    wait_for(lambda: (c.s.metric("sallyport_relay_connections"), c.s.metric("sallyport_dns_waiting")) == (0, 0), "all are gone", 60, 0.5)
    equal(c.s.starts(), 1, "starts")
    c.s.stop()


@test("LIFE-05", "7.2", "E2", limit=240)
def the_end_comes_in_the_middle_of_a_storm(lab):
    for i in range(20 if lab.long else 4):
        c = Chaos(lab)
        once_round(c)
        loads = c.loads()
        for blow in c.random.sample([c.table_goes, c.reload, c.upstream_stalls, c.origin_dies, c.reload], 3):
            blow()
        time.sleep(c.random.random() / 4)
        (c.table_goes, c.reload, lambda: None)[i % 3]()
        c.s.term()
        equal(c.s.exit(25 * lab.slow), 0, "exit status")
        e = [e for e in c.s.events() if e["event"] == "exit"]
        equal([(x["exit_code"], x.get("signal")) for x in e], [(0, None)], "the worker's end")
        for load in loads.values():
            load.stop()
        equal(c.s.finish(), None)
        c.w.recorder.forget()
        c.w.sidecars.clear()
        check(not c.w.gets_out(NEVER, 22, within=0.5) and not c.w.gets_out(GOOD, 443, within=0.5), "it is closed")
        c.w.recorder.nothing_left("a packet after the end", dst=[NEVER, GOOD, OTHER])
