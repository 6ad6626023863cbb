"""Start, crash, change and end: closed is the state of rest, and what was decided last is what holds."""
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

from bench import allow, check, closed, deny, equal, opened, test, wait_for
from verdicts import Echo, address, blocked, denied, fails, host, is_denied, works, zone
from world import INSIDE, Load, mount, refused

OUR_TABLE = "table inet opensandbox"


def outside(lab, names=None, **how):
    w = lab.world(**how)
    w.ns = w.nameserver(zone() if names is None else names)
    w.out = w.everywhere(tcp=[22, 80, 443, 853], udp=[123, 443])
    return w


def connects(w, ip, port=443):
    """A load: does it get out?"""
    return Load(lambda: w.gets_out(ip, port, within=0.5), 0.002)


def sees(load):
    return {value for _, value in load.stop()}


# ---- start

@test("LIFE-05", "E2", limit=90)
def nothing_leaves_between_the_first_rule_and_health(lab):
    w = outside(lab)
    for mode in ("dns", "dns+nft"):
        for _ in range(5):
            w.nft("flush", "ruleset")
            check(w.gets_out("203.0.113.66"), "without rules it gets out")
            loads = [connects(w, "203.0.113.66"), connects(w, "2001:db8:7::66")]
            s = w.sidecar(MODE=mode, RULES=closed(allow("ok.test")), healthy=False)
            wait_for(lambda: OUR_TABLE in s.ruleset(), "our table", 20)
            w.recorder.forget()
            first = time.monotonic()
            s.wait_healthy()
            if mode == "dns+nft":
                w.recorder.nothing_left("before it is healthy", dst={"203.0.113.66", "2001:db8:7::66"},
                                        match=lambda f: f.flags & 2, since=first)
                seen = [load.stop() for load in loads]
                for one in seen:
                    last = [at for at, value in one if value is True]
                    check(not last or max(last) < first + 0.5, "something got out after the rules were in")
            else:
                for load in loads:
                    load.stop()
            denied(w, "no.test", ("A",))
            s.stop()


@test("INT-1", "INT-2", "INT-5", "INT-6")
def three_variables_are_enough_and_it_is_healthy_soon(lab):
    w = outside(lab, v6=False)
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        s = w.sidecar(RULES='{"defaultAction": "deny", "egress": [{"action": "allow", "target": "ok.test"}]}', ADMIN_ADDR=None)
        seconds.append(time.monotonic() - start)
        works(w, "ok.test")
        equal(s.ask("GET", "/healthz", remote=True).status, 200, "on all interfaces")
        start = time.monotonic()
        s.health()
        check(time.monotonic() - start < 1, "within a second")
        s.stop()
    check(min(seconds) < 1 * lab.slow, "healthy after", seconds)


@test("INT-15")
def empty_variables_are_unset_and_unknown_ones_no_obstacle(lab):
    import re
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "egress", "settings.c")
    with open(source, encoding="utf-8") as f:
        names = re.findall(r'^    (?:TEXT|CHOICE|ROW|BOOL|INT|WAIT|BYTES|SECRET)\("([A-Z0-9_]+)"', f.read(), re.M)
    check(len(names) > 60, "names found")
    w = outside(lab, v6=False)
    s = w.sidecar(**{**{n: "" for n in names}, "SOME_DAY": "x"}, env={"OPENSANDBOX_LOG_OUTPUT": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""})
    equal(s.good("GET")["enforcementMode"], "dns")
    check([line for line in s.log() if "SOME_DAY" in json.dumps(line)] or "SOME_DAY" in s.stderr(), "one warning")
    denied(w, "ok.test", ("A",))


@test("INT-10", "7.1")
def stale_rules_of_an_earlier_run_are_no_obstacle(lab):
    w = outside(lab)
    for i in range(10):
        s = w.sidecar(RULES=closed(allow("ok.test" if i % 2 else "b.test")))
        works(w, "ok.test" if i % 2 else "b.test")
        denied(w, "b.test" if i % 2 else "ok.test", ("A",))
        os.kill(s.pid, signal.SIGKILL)
        s.exit()
        s.expect_exit = -signal.SIGKILL
        for ip in address(w, 66):
            blocked(w, ip)
        equal(s.ruleset().count(OUR_TABLE + " {"), 1, "tables do not pile up")


@test("POL-09", "OPS-06")
def a_taken_port_stops_the_start(lab):
    for host_, port, kind in (("0.0.0.0", 18080, socket.SOCK_STREAM), ("127.0.0.1", 15353, socket.SOCK_STREAM),
                              ("127.0.0.1", 15353, socket.SOCK_DGRAM)):
        w = outside(lab, v6=False)
        taken = w.socket(4, kind)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind((host_, port))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        s = w.sidecar(RULES=opened(), healthy=False)
        s.expect_exit = None
        check(s.exit() != 0, "does not start")
        check(str(port) in s.stderr() + s.stdout(), "the line names the port:", s.stderr(), s.stdout())
        blocked(w, "203.0.113.66")  # deny-all is in already
        w.sidecars.clear()


# ---- crash

@test("E11.10", "LIFE-05", "INT-7", "INT-20", limit=120)
def killing_the_worker_under_load_opens_nothing(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test"), allow("203.0.113.9")))
    open_ = [Echo(w, ip) for ip in works(w, "ok.test")]
    s.patch([deny("203.0.113.9"), allow("b.test")])
    w.recorder.forget()
    loads = [connects(w, ip) for ip in ("203.0.113.66", "203.0.113.9", "2001:db8:7::66")]
    loads.append(Load(lambda: w.ask("no.test", within=0.5).denied, 0.005))
    for _ in range(6):
        s.kill_worker()
        check(OUR_TABLE in s.ruleset(), "rules are in place")
    for load in loads[:3]:
        equal(sees(load), {False})
    check(all(value is True or isinstance(value, OSError) for _, value in loads[3].stop()), "denied, or no answer")
    w.recorder.nothing_left("to a denied address", dst={"203.0.113.66", "203.0.113.9", "2001:db8:7::66"})
    equal(w.ns.asked("no.test"), [])
    equal(s.policy(), closed(deny("203.0.113.9"), allow("b.test"), allow("ok.test")), "the patched policy outlives the worker")
    for e in open_:
        check(e.lives(), "an open, permitted flow lives on:", e.ip)
    works(w, "b.test")
    check(len([e for e in s.events() if e["event"] == "exit" and e.get("signal") == "killed"]) >= 6, "the supervisor tells")


@test("LIFE-05", "INT-7", limit=60)
def while_the_worker_is_down_everything_fails_closed(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, supervisor_flags=["--backoff-min", "6s", "--backoff-max", "8s"], RULES=closed(allow("ok.test")))
    ips = works(w, "ok.test")
    started = s.starts()
    s.kill_worker(wait=False)
    wait_for(lambda: [e for e in s.events() if e["event"] == "backoff"], "the back-off")
    refused(lambda: w.ask("ok.test", within=0.3), "a question")
    for ip in address(w, 66):
        blocked(w, ip)
    for ip in ips:
        check(w.gets_out(ip), "a learned address stays open:", ip)
    for number, where in ((4, ("0.0.0.0", 18080)), (4, ("127.0.0.1", 18080)), (4, ("10.99.0.2", 18080))):
        thief = w.socket(number, socket.SOCK_STREAM, uid=0)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        refused(lambda t=thief, a=where: (t.bind(a), t.listen()), "taking our port")
    for port in (15353,):
        thief = w.socket(4, socket.SOCK_DGRAM, uid=0)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        refused(lambda t=thief, p=port: t.bind(("127.0.0.1", p)), "taking the DNS port")
    equal(s.starts(), started, "all of it while it was down")
    s.wait_healthy()
    works(w, "ok.test")


@test("LIFE-05")
def a_learned_address_is_managed_by_the_next_worker(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test"), allow("b.test")))
    lines = [Echo(w, ip) for ip in works(w, "ok.test")]
    others = [Echo(w, ip) for ip in works(w, "b.test")]
    s.kill_worker()
    for e in lines + others:
        check(e.lives(), "over the crash:", e.ip)
    s.patch([deny("ok.test")])
    for e in lines:
        check(e.cut(2 * lab.slow), "the successor knows whose it was:", e.ip)
        blocked(w, e.ip)
    for e in others:
        check(e.lives() and w.gets_out(e.ip), "the other stays:", e.ip)


@test("LIFE-05")
def a_policy_that_was_narrowed_does_not_come_back_wide(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, RULES=opened())
    works(w, "ok.test")
    s.put(closed(allow("b.test")))
    for _ in range(3):
        s.kill_worker()
        equal(s.policy(), closed(allow("b.test")))
        fails(w, "ok.test", 10)
        works(w, "b.test")
    s.put(None)
    s.kill_worker()
    equal(s.policy(), closed())


@test("LIFE-05")
def killing_the_supervisor_leaves_it_closed(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test")))
    works(w, "ok.test")
    worker = s.worker
    s.process.kill()
    s.exit()
    s.expect_exit = -signal.SIGKILL
    for ip in address(w, 66):
        blocked(w, ip)
    os.kill(worker, signal.SIGKILL)
    time.sleep(0.2)
    for ip in address(w, 66):
        blocked(w, ip)
    refused(lambda: w.ask("no.test", within=0.3), "a question")
    equal(w.ns.asked("no.test"), [])


# ---- end

@test("E11.11", "LIFE-05", "INT-9", "E2", limit=90)
def after_sigterm_nothing_leaves(lab):
    for mode in ("dns", "dns+nft"):
        w = outside(lab)
        s = w.sidecar(MODE=mode, RULES=opened(allow("ok.test")))
        works(w, "ok.test")
        line = [Echo(w, ip) for ip in address(w, 10)]
        load = connects(w, "203.0.113.66")
        wait_for(lambda load=load: any(value is True for _, value in load.seen), "the load gets out")
        start = time.monotonic()
        s.stop()
        check(time.monotonic() - start < 9 * lab.slow, "exit 0 in time")
        w.recorder.forget()
        time.sleep(0.3)
        load.stop()
        w.recorder.nothing_left("a fresh connection after the end", dst="203.0.113.66", match=lambda f: f.flags & 2 and not f.flags & 16)
        for ip in ("203.0.113.66", *address(w, 10)):
            blocked(w, ip)
        refused(lambda w=w: w.ask("ok.test", within=0.3), "a question")
        for e in line:
            check(not e.lives() or mode == "dns", "an open flow is closed too:", e.ip)
        w.sidecars.clear()


@test("E11.11", "INT-9")
def on_exit_remove_takes_all_rules_away(lab):
    for mode in ("dns", "dns+nft"):
        w = outside(lab)
        s = w.sidecar(MODE=mode, RULES=closed(), ON_EXIT="remove")
        denied(w, "ok.test", ("A",))
        s.stop()
        equal(w.nft("list", "ruleset").strip(), "", "rules")
        for ip in ("203.0.113.66", "2001:db8:7::66"):
            check(w.gets_out(ip), "everything gets out:", ip)
        equal(w.resolve("ok.test"), ["198.51.100.10"])
        w.sidecars.clear()


@test("INT-9", "7.4")
def the_supervisor_ends_with_zero_and_leaves_deny_all(lab):
    w = outside(lab)
    s = w.sidecar(supervised=True, RULES=opened())
    check(w.gets_out("203.0.113.66"), "open")
    s.stop()
    equal([e["event"] for e in s.events()][-1] in ("shutdown", "exit"), True, str(s.events()[-3:]))
    for ip in ("203.0.113.66", "2001:db8:7::66"):
        blocked(w, ip)


# ---- frozen

@test("INT-11", "7.2", limit=240)
def frozen_and_thawed_it_goes_on(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test")))
    works(w, "ok.test")
    os.kill(s.worker, signal.SIGSTOP)
    w.recorder.forget()
    time.sleep(60 if lab.long else 4)
    refused(lambda: w.ask("no.test", within=0.3), "a question")
    for ip in address(w, 66):
        blocked(w, ip)
    os.kill(s.worker, signal.SIGCONT)
    wait_for(lambda: s.health()[0] == 200, "healthy again", 10 * lab.slow)
    works(w, "ok.test")
    denied(w, "no.test", ("A",))
    s.patch([allow("b.test")])
    works(w, "b.test")
    equal(w.ns.asked("no.test"), [])


# ---- a change that is cut short

def small_disk(w, kilobytes):
    folder = os.path.join(w.dir, "disk")
    os.makedirs(folder, exist_ok=True)
    mount("tmpfs", folder, "tmpfs", 0, f"size={kilobytes}k,mode=755")
    return folder


def fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError:
        os.close(fd)


@test("2.7", "OPS-06")
def a_full_disk_refuses_the_change_and_nothing_else(lab):
    w = outside(lab)
    folder = small_disk(w, 256)
    path = os.path.join(folder, "policy.json")
    s = w.sidecar(POLICY_FILE=path, RULES=closed(allow("ok.test")))
    s.patch([allow("203.0.113.9")])
    kept = open(path, "rb").read()
    fill(os.path.join(folder, "ballast"))
    for _ in range(3):
        r = s.ask("PUT", "/policy", opened(*[deny(f"10.9.{i >> 8}.{i & 255}") for i in range(3000)]))
        equal(r.status, 500)
        check(r.text.startswith("failed to persist policy: "), r.text)
        equal(open(path, "rb").read(), kept, "the file")
        equal(s.policy()["defaultAction"], "deny")
        works(w, "ok.test")
        check(w.gets_out("203.0.113.9"), "the kernel's rules are those of before")
        blocked(w, "203.0.113.66")
    equal(sorted(os.listdir(folder)), ["ballast", "policy.json"], "nothing is left behind")
    os.unlink(os.path.join(folder, "ballast"))
    s.put(closed(allow("b.test")))
    equal(json.loads(open(path, "rb").read()), closed(allow("b.test")))
    fails(w, "ok.test", 10)


@test("2.7", "OPS-06")
def a_policy_file_that_cannot_be_written_refuses_the_change(lab):
    w = outside(lab, v6=False)
    s = w.sidecar(POLICY_FILE="/nowhere/at/all/policy.json", RULES=closed(allow("ok.test")))
    r = s.ask("PATCH", "/policy", [allow("b.test")])
    check(r.status == 500 and r.text.startswith("failed to persist policy: "), r.status, r.text)
    equal(s.policy(), closed(allow("ok.test")))
    denied(w, "b.test", ("A",))


@test("2.7", "change", limit=200)
def sigkill_at_any_step_of_a_change_leaves_the_old_or_the_new(lab):
    w = outside(lab)
    path = os.path.join(w.dir, "policy.json")
    one = closed(allow("ok.test"), allow("203.0.113.10"), *[deny(f"10.1.{i >> 8}.{i & 255}") for i in range(1500)])
    two = closed(allow("b.test"), allow("203.0.113.20"), *[deny(f"10.2.{i >> 8}.{i & 255}") for i in range(1500)])
    s = w.sidecar(supervised=True, POLICY_FILE=path, RULES=one)
    begun = time.monotonic()
    s.put(two)
    whole = time.monotonic() - begun
    s.put(one)
    w.recorder.forget()
    never = connects(w, "203.0.113.66")
    rounds, unfinished = (100 if lab.long else 15), 0
    for i in range(rounds):
        want, answered = (two, one)[i % 2], []

        def change(body=want, answered=answered):
            try:
                answered.append(s.ask("PUT", "/policy", body).status)
            except Exception:  # the connection ends with the worker
                answered.append(0)
        t = threading.Thread(target=change, daemon=True)
        t.start()
        time.sleep(random.random() * whole * 1.2)
        s.kill_worker()
        t.join(20)
        now = s.policy()
        check(now in (one, two), "a policy that is neither:", len(now["egress"]))
        check(answered != [200] or now == want, "answered 200, but the change is not in force")
        unfinished += now != want
        equal(json.loads(open(path, "rb").read()), now, "the file says the same")
        first = now == one
        for name, ip, good in (("ok.test", "203.0.113.10", first), ("b.test", "203.0.113.20", not first)):
            equal((not is_denied(w, name), w.gets_out(ip, within=1)), (good, good), f"round {i}: {name} and {ip} under {now['egress'][0]}")
    check(not lab.long or 0 < unfinished < rounds, "some came before the end, some after:", unfinished)
    equal(sees(never), {False})
    w.recorder.nothing_left("to an address that neither allows", dst="203.0.113.66")


# ---- other hands

@test("LIFE-07", limit=90)
def a_table_that_somebody_deletes_or_changes_is_put_back(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test"), allow("203.0.113.9")))
    line = [Echo(w, ip) for ip in works(w, "ok.test")]
    for harm in ("delete table inet opensandbox", "flush ruleset", "flush table inet opensandbox", "delete table netdev opensandbox",
                 "add rule inet opensandbox egress accept", "insert rule inet opensandbox egress ip daddr 203.0.113.66 accept",
                 "add element inet opensandbox user4 { 203.0.113.66 : accept }", "flush map inet opensandbox user4",
                 "add element inet opensandbox learned4 { 203.0.113.66 timeout 300s }"):
        before = w.run("nft", "-s", "list", "table", "inet", "opensandbox", who="admin")[1]
        told = len(s.logged("somebody else changed our rules"))
        w.nft(*harm.split(" "))
        wait_for(lambda: rules(w) == shape(before), f"our rules after: {harm}", 20 * lab.slow, 0.02)
        wait_for(lambda: not w.gets_out("203.0.113.66", within=0.5), f"closed again after: {harm}", 20 * lab.slow)
        wait_for(lambda: s.health()[0] == 200, "healthy", 40 * lab.slow)
        fails(w, "no.test", 66)
        blocked(w, "203.0.113.66")
        check(w.gets_out("203.0.113.9"), "the policy is in it after:", harm)
        works(w, "ok.test")
        wait_for(lambda: told or s.logged("somebody else changed our rules"), "a line that says so")
    for e in line:
        check(e.lives(), "flows live on:", e.ip)
    s.patch([deny("203.0.113.9")])
    blocked(w, "203.0.113.9")


def rules(w):
    return shape(w.run("nft", "-s", "list", "table", "inet", "opensandbox", who="admin")[1])


def shape(text):
    """A listing without what learning changes: elements of learned sets and random marks."""
    import re
    return re.sub(r"mark (!= |set )?0x[0-9a-f]{8}", "mark", re.sub(r"(set (?:learned|bound)[^}]*?)\s*elements = {[^}]*}", r"\1", text))


@test("LIFE-07", "2.8", limit=120)
def rules_that_cannot_be_put_back_make_it_unhealthy(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test")))
    thief = w.popen(["nft", "-i"], "admin", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    thief.stdin.write(b"delete table inet opensandbox; add table inet opensandbox { flags owner; }\n")
    thief.stdin.flush()
    wait_for(lambda: s.health()[0] == 503, "/healthz 503", 40 * lab.slow)
    check(s.health()[1].startswith("not enforced: ") and len(s.health()[1]) > 20, s.health())
    s.told(lambda line: line["level"] == "error")
    r = s.ask("PATCH", "/policy", [allow("b.test")])
    equal(r.status, 500)
    check(r.text.startswith("failed to apply nftables policy: "), r.text)
    equal(s.policy(), closed(allow("ok.test")))
    thief.kill()
    thief.wait()
    wait_for(lambda: s.health()[0] == 200, "healthy again", 60 * lab.slow)
    fails(w, "no.test", 66)
    works(w, "ok.test")


@test("LIFE-07")
def foreign_redirects_do_not_win(lab):
    foreign = """table ip nat {
 chain output { type nat hook output priority -100; policy accept;
  udp dport 53 dnat to 198.51.100.166:53
  tcp dport 53 dnat to 198.51.100.166:53
  ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:40001
 } }
table ip6 nat { chain output { type nat hook output priority -100; policy accept; udp dport 53 dnat to [2001:db8::166]:53 } }
"""
    for before in (True, False):
        w = outside(lab)
        evil = w.nameserver({"no.test": host(66), "ok.test": host(66)}, "198.51.100.166")
        if before:
            w.run("nft", "-f", "-", who="admin", feed=foreign)
        s = w.sidecar(RULES=closed(allow("ok.test")), healthy=False)
        wait_for(lambda s=s: s.health()[0] == 200 or not s.alive(), "up or down", 30)
        if not s.alive():
            check(before and "output" in s.stderr() + s.stdout(), "a line names the chain:", s.stderr(), s.stdout())
            s.expect_exit = None
            continue
        if not before:
            w.run("nft", "-f", "-", who="admin", feed=foreign)
        for server in (*w.servers, "127.0.0.11"):
            check(w.ask("no.test", server=server).denied, "ours win:", server)
            equal(w.resolve("ok.test", server=server), ["198.51.100.10"], server)
        equal(evil.asked(), [], "questions that somebody else's rule took")
        check(not [q for q in w.ns.asked("ok.test") if q.peer[0] not in (INSIDE[4], INSIDE[6])], "our own do not loop")
        s.stop()
        w.sidecars.clear()


@test("LIFE-07", "E11.13", "E10")
def a_workload_with_a_mark_or_our_uid_is_still_filtered(lab):
    w = outside(lab)
    w.sidecar(RULES=closed(allow("ok.test")))
    for who in ("raw", "engine", "all"):
        for mark in (1, 2, 0x10, 0xffffffff):
            equal(w.workload(marked, "203.0.113.66", mark, who=who), False, f"mark {mark} as {who}")
    for uid in (10042, 1, 0):
        check(not w.gets_out("203.0.113.66", uid=uid), "uid", uid)
        check(w.ask("no.test", uid=uid).denied, "uid", uid)
    w.recorder.nothing_left("with a mark", dst="203.0.113.66")


def marked(ip, mark):
    with socket.socket() as s:
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark.to_bytes(4, "little"))
        except PermissionError:
            return False
        s.settimeout(1)
        try:
            s.connect((ip, 443))
        except OSError:
            return False
        return True


@test("4.2")
def inbound_connections_are_answered_whatever_the_policy(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(deny("0.0.0.0/0"), deny("::/0")))
    equal(s.ask("GET", "/policy", remote=True).status, 200)
    job = w.start(serve_inbound, who="root")
    for number, ip in INSIDE.items():
        wait_for(lambda ip=ip: try_inbound(ip), f"an inbound connection over IPv{number}", 5)
    job.stop()
    local = w.start(serve_inbound, who="root")
    wait_for(lambda: w.gets_out("127.0.0.1", 8080) or w.gets_out("::1", 8080), "local services work")
    local.stop()


def serve_inbound():
    with socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True) as s:
        while True:
            c, _ = s.accept()
            with c:
                c.sendall(c.recv(100))


def try_inbound(ip):
    try:
        with socket.create_connection((ip, 8080), 1) as c:
            c.sendall(b"ping")
            return c.recv(4) == b"ping"
    except OSError:
        return False


@test("LIFE-05", "4.5", limit=90)
def a_new_start_in_a_used_namespace_is_as_good_as_the_first(lab):
    """What the kernel remembers of a predecessor's own questions must not be held against its successor."""
    w = lab.world()
    w.nameserver({"*.ok.test": {"A": ["198.51.100.10"], "AAAA": ["2001:db8::10"]}})
    for turn, mode in enumerate(("dns", "dns+nft", "dns", "dns+nft")):
        s = w.sidecar(MODE=mode, RULES=closed(allow("*.ok.test")))
        for i in range(60):
            equal(w.resolve(f"n{turn}-{i}.ok.test"), ["198.51.100.10"], f"question {i} in mode {mode}, start {turn}")
        s.stop()
