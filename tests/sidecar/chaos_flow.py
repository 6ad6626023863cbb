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
from verdicts import address, blocked
from wire import Client, Ended, Failed, Late, Wire, answer, request
from world import Load, mount

PROXY = 3128
SILENT = "198.51.100.99"  # takes connections and says nothing
NEVER = "203.0.113.66"    # no policy allows it


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
        self.half.send(b"POST /policy HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: " + self.s.token.encode() + b"\r\nContent-Length: 100\r\n\r\n{")
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
    w.nameserver({})
    w.everywhere(tcp=[443])
    s = w.sidecar(RULES=closed(allow("203.0.113.9")), DRAIN_TIMEOUT="0")
    open(flag, "w", encoding="ascii").close()
    w.nft("delete", "table", "inet", "opensandbox")
    s.wait_unhealthy()

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
