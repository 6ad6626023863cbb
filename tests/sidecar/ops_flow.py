"""Stopping, starting wrongly, and what is never written anywhere."""
import errno
import json
import os
import signal
import socket
import time

from bench import Skipped, allow, check, closed, deny, equal, test, wait_for
from sidecar import HEADER, TOKEN
from verdicts import blocked, denied, host, works, zone
from wire import request
from world import mount


def begin(lab, **how):
    w = lab.world(v6=False)
    w.ns = w.nameserver(zone())
    w.out = w.everywhere(tcp=[80, 443])
    w.s = w.sidecar(**{"RULES": closed(allow("ok.test")), **how})
    return w


@test("OPS-03", "B4", limit=60)
def a_stop_turns_health_first_and_lets_requests_end(lab):
    w = begin(lab)
    s = w.s
    idle, busy = s.client(), s.client()
    equal(idle.ask("GET", "/healthz", host="127.0.0.1").status, 200)
    body = json.dumps(closed(allow("b.test"))).encode()
    head = request("PUT", "/policy", f"{HEADER}: {TOKEN}", f"Content-Length: {len(body)}", host="127.0.0.1:18080", body=b"")
    busy.send(head + body[:5])
    time.sleep(0.3)
    s.term()
    wait_for(lambda: s.health()[0] != 200, "/healthz turns", 5)
    time.sleep(0.5)
    busy.send(body[5:])
    r = busy.response("PUT")
    equal(r.status, 200, "an active request completes")
    check((r.get("connection") or "").lower() == "close", "and says that it was the last:", r.fields)
    check(idle.ending(9) != "late", "an idle connection is closed")
    equal(s.exit(9 * lab.slow), 0)
    blocked(w, "203.0.113.1")


@test("OPS-03", "B4", limit=60)
def a_stop_has_an_end_and_a_second_signal_is_at_once(lab):
    w = begin(lab, DRAIN_TIMEOUT="3")
    c = w.s.client()
    c.send(request("PUT", "/policy", f"{HEADER}: {TOKEN}", "Content-Length: 100", host="127.0.0.1:18080", body=b""))
    time.sleep(0.2)
    start = time.monotonic()
    w.s.stop()
    check(2 < time.monotonic() - start < 9 * lab.slow, "the drain ends what does not:", time.monotonic() - start)
    w.s.begin()
    c = w.s.client()
    c.send(request("PUT", "/policy", f"{HEADER}: {TOKEN}", "Content-Length: 100", host="127.0.0.1:18080", body=b""))
    time.sleep(0.2)
    start = time.monotonic()
    w.s.term()
    time.sleep(0.2)
    w.s.term(signal.SIGINT)
    w.s.expect_exit = w.s.exit(10)
    check(time.monotonic() - start < 2 * lab.slow, "the second signal ends it")
    blocked(w, "203.0.113.1")


CANARIES = ["CANARY1auth", "CANARY2cookie", "CANARY3query", "CANARY4referer", "CANARY5rule", "CANARY6token", "CANARY7proxy"]


@test("OPS-04", "B5", limit=60)
def secrets_and_bodies_are_in_no_log_metric_or_error(lab):
    token = "CANARY0-the-token"
    for level in ("debug", "info", "error"):
        w = begin(lab, TOKEN=token, LOG_LEVEL=level, UPSTREAM_PROXY_AUTH=None)
        s, seen = w.s, b""
        fields = ["Authorization: Bearer CANARY1auth", "Cookie: a=CANARY2cookie", "Referer: http://x/CANARY4referer",
                  "Proxy-Authorization: Basic CANARY7proxy"]
        for method, target in (("GET", "/policy"), ("PUT", "/policy"), ("PATCH", "/policy"), ("DELETE", "/policy"), ("PURGE", "/policy"),
                               ("GET", "/CANARY3query"), ("POST", "/policy/check"), ("GET", "/policy/log")):
            for shown in (token, "CANARY6token", None):
                for body in (b'{"CANARY5rule":1}', b'["CANARY5rule\x01"]', b"CANARY5rule"):
                    r = s.ask(method, target + "?CANARY3query=1", body, *fields, token=shown)
                    seen += r.raw + (r.body if r.status >= 400 and b"CANARY5rule" not in body else b"")
        c = s.client()
        c.offer(b"GET /CANARY3query HTTP/1.1\r\nHost: \x01\r\n" + f"{HEADER}: {token}\r\n\r\n".encode())
        c.ending(3)
        metrics = s.admin("/metrics").body + s.admin("/debug").body
        with open(f"/proc/{s.worker}/cmdline", "rb") as f:
            cmdline = f.read()
        s.stop()
        for what, data in (("log", (s.stdout() + s.stderr()).encode()), ("metrics", metrics), ("answers", seen), ("arguments", cmdline)):
            for canary in ["CANARY0", *CANARIES]:
                if canary == "CANARY5rule" and what == "answers":
                    continue
                check(canary.encode() not in data, canary, "in", what, "at level", level)
        w.sidecars.clear()


@test("OPS-04", "6.2")
def the_log_has_one_line_for_an_event_whatever_it_holds(lab):
    w = begin(lab, SANDBOX_ID="box-1", METRICS_EXTRA_ATTRS="team=a=b,,tier=x")
    w.ask('a"b\\c\n{}.evil.test')
    w.ask("x.evil.test")
    w.s.patch([allow("b.test")])
    works(w, "b.test")
    w.s.ask("PUT", "/policy", b"{")
    for said in ("egress outbound", "egress policy update failed"):  # the last ones, in whatever order
        w.s.told(said)
    lines = [line for line in w.s.stdout().splitlines() if line.strip()]
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    first = next(i for i, line in enumerate(lines) if line.startswith("{"))
    check(first < 12 and len(objects) == len(lines) - first, "a banner, then JSON lines:", [line for line in lines if not line.startswith("{")])
    for o in objects:
        check(o.get("logger") == "opensandbox.egress" and o.get("ts") and o.get("level") and "msg" in o, o)
        equal((o.get("sandbox_id"), o.get("team"), o.get("tier")), ("box-1", "a=b", "x"), str(o))
    events = [o["opensandbox.event"] for o in objects if "opensandbox.event" in o]
    for event in ("egress.loaded", "egress.updated", "egress.update_failed", "egress.outbound"):
        check(event in events, event, events)
    updated = [o for o in objects if o.get("opensandbox.event") == "egress.updated"][0]
    equal((updated["rules"], updated["egress.default"], updated["level"]), ([allow("b.test")], "deny", "info"))
    check([o for o in objects if o["msg"].startswith("[dns] denied by policy") and o["level"] == "warn"], "denied names are told")


@test("6.2", "3.6")
def log_skip_silences_success_lines_only(lab):
    w = lab.world(v6=False)
    w.nameserver(zone())
    w.rule_file("log_skip", "*.a.test\n")
    s = w.sidecar(RULES=closed(allow("*.test"), allow("ok.test"), allow("*.a.test")))
    for name in ("x.a.test", "ok.test"):
        equal(len(w.resolve(name)), 1)
    equal({line["target.host"] for line in s.told("egress outbound")}, {"ok.test"})


WRONG = [("MODE", "dns+foo"), ("HTTP_ADDR", "18080"), ("HTTP_ADDR", ":0"), ("HTTP_ADDR", ":70000"), ("MAX_RULES", "-1"), ("MAX_RULES", "many"),
         ("LOG_LEVEL", "loud"), ("DENY_WEBHOOK", "ftp://x"), ("METRICS_EXTRA_ATTRS", "novalue"), ("NAMESERVER_EXEMPT", "one.test"),
         ("DNS_UPSTREAM", "one.test"), ("DNS_UPSTREAM", " , "), ("DNS_UPSTREAM", "1.1.1.1:0"), ("DNS_UPSTREAM_TIMEOUT", "0"),
         ("BLOCK_DOH_443", "perhaps"), ("DOH_BLOCKLIST", "x"), ("MITMPROXY_TRANSPARENT", "2"), ("MITMPROXY_EXTRA_PORTS", "80"),
         ("MITMPROXY_EXTRA_PORTS", "8080,,8081"), ("REDIRECT_BACKEND", "ebpf"), ("PROFILE", "fast-sandbox"), ("ON_EXIT", "open"),
         ("PRIVATE_ANSWERS", "no way"), ("MITM_SCOPE", "some"), ("PROXY_ADDR", "x"), ("PROXY_CLIENTS", "10.0.0.0/40"),
         ("ADMIN_ADDR", "x"), ("DRAIN_TIMEOUT", "soon"), ("ALLOW_UNENFORCED", "hm"), ("MITMPROXY_SCRIPT", "/x.py")]


def plain(w, *flags, **variables):
    """The program, run to its end: (status, stdout, stderr)."""
    env = {"OPENSANDBOX_EGRESS_" + k: v for k, v in variables.items()}
    return w.run(w.lab.program, *flags, who="sidecar", env=env, within=20)


@test("OPS-06", "B2", "INT-16", limit=90)
def a_wrong_value_is_one_line_and_status_two(lab):
    w = lab.world(v6=False)
    for name, value in WRONG:
        code, out, err = plain(w, **{name: value})
        equal(code, 2, f"{name}={value}: {err}{out}")
        lines = [line for line in err.splitlines() if line]
        check(len(lines) == 1 and "OPENSANDBOX_EGRESS_" + name in err, f"{name}={value}: one line with the name:", err)
        closed_now = "opensandbox" in w.nft("list", "tables")
        check(closed_now, f"{name}={value}: a sandbox whose sidecar cannot start must not be open")
        w.nft("flush", "ruleset")
        equal(plain(w, "--check", **{name: value})[0], 2, f"--check with {name}={value}")
        equal(w.nft("list", "tables"), "", "--check touches nothing")


@test("OPS-06", "1.4", "B5")
def check_and_print_config_start_nothing_and_mask_secrets(lab):
    w = lab.world(v6=False)
    good = {"TOKEN": "CANARY-token", "RULES": '{"defaultAction":"allow"}', "UPSTREAM_PROXY_AUTH": "", "MODE": "dns+nft"}
    code, out, err = plain(w, "--check", **good)
    equal((code, "CANARY" in out + err), (0, False), err)
    code, out, err = plain(w, "--print-config", **good)
    equal((code, "CANARY" in out + err, "dns+nft" in out), (0, False, True), out + err)
    for flag in ("--help", "--version"):
        equal(plain(w, flag)[0], 0, flag)
    equal(plain(w, "--nonsense")[0], 2)
    equal(w.nft("list", "ruleset").strip(), "", "rules")
    for value in ("1", "TRUE", "yes", "Y", "on"):
        equal(plain(w, "--check", ALLOW_UNENFORCED=value, MITMPROXY_SSL_INSECURE=value)[0], 0, value)


@test("OPS-06")
def a_read_only_file_system_is_no_obstacle(lab):
    w = lab.world(v6=False)
    w.nameserver(zone())
    w.everywhere(tcp=[443])
    out = os.path.join(w.dir, "rw")
    os.makedirs(out)
    s = w.sidecar(RULES=closed(allow("ok.test")), healthy=False)
    s.wait_healthy()
    s.stop()
    mount(w.dir, w.dir)
    mount(None, "/", flags=32 | 1 | 4096)  # remount read-only, bind
    try:
        code, _, err = w.run("touch", "/here", who="admin")
        if code == 0:
            raise Skipped("the root file system stays writable")
        s.begin()
        s.wait_healthy()
        works(w, "ok.test")
        denied(w, "no.test", ("A",))
        s.stop()
    finally:
        mount(None, "/", flags=32 | 4096)


@test("OPS-09", limit=60)
def noise_is_counted_and_not_shouted(lab):
    w = begin(lab)
    s = w.s
    end, n = time.monotonic() + 3, 0
    while time.monotonic() < end:
        c = s.client()
        c.offer(os.urandom(64))
        c.rst()
        try:
            w.udp("192.0.2.53", 53, os.urandom(30), within=0.001)
        except OSError:
            pass
        n += 1
    start = time.monotonic()
    equal(s.health()[0], 200)
    check(time.monotonic() - start < 1 * lab.slow, "normal requests keep their time")
    works(w, "ok.test")
    check(len(s.log()) < 60 + n // 10, "lines:", len(s.log()), "for", n, "pieces of noise")


def peeks(pids, secret):
    """What of these processes shows the secret."""
    found = []
    for pid in pids:
        for name in ("environ", "cmdline", "comm", "status", "maps", "mem", "root", "cwd"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    if secret in f.read(1 << 20):
                        found.append((pid, name))
            except OSError:
                pass
        for fd in range(64):
            try:
                os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
                found.append((pid, fd))
            except OSError as e:
                if e.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT):
                    found.append((pid, fd, str(e)))
    return found


@test("POL-09", "B5")
def the_token_is_in_nothing_that_the_sandbox_can_read(lab):
    w = begin(lab, supervised=True)
    pids = [w.s.pid, w.s.worker]
    for who in ("nobody", "root", "engine", 10042):
        equal(w.workload(peeks, pids, TOKEN.encode(), who=who), [], f"what {who} can read")


@test("OPS-05", limit=90)
def what_clients_leave_behind_is_given_back(lab):
    w = begin(lab, RULES=closed(allow("*.ok.test"), allow("ok.test")), DNS_CACHE_SIZE="100")
    w.ns.zone["*.ok.test"] = host(10)
    s = w.s
    s.ask("GET", "/policy")
    w.resolve("ok.test")
    base = count_fds(s.worker)
    held = []
    for i in range(200):
        c = s.client()
        c.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"\r\n" if i % 2 else b""))
        d = w.connect("192.0.2.53", 53)
        d.send(b"\0\x20half")
        held += [c.sock, d]
        w.resolve(f"n{i}.ok.test", tcp=i % 2 == 0)
    check(count_fds(s.worker) > base + 100, "they were open")
    for i, sock in enumerate(held):
        if i % 3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    wait_for(lambda: count_fds(s.worker) <= base + 18, f"descriptors back at {base} and the sockets for questions", 15 * lab.slow)
    works(w, "ok.test")


def count_fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@test("2.1", "B6")
def a_slow_sender_holds_nobody_up(lab):
    w = begin(lab)
    slow = [w.s.client() for _ in range(20)]
    for c in slow:
        c.send(request("PUT", "/policy", f"{HEADER}: {TOKEN}", "Content-Length: 1000", host="127.0.0.1:18080", body=b"") + b"{")
    start = time.monotonic()
    w.s.patch([allow("b.test")])
    check(time.monotonic() - start < 2 * lab.slow, "a writer waits for nobody's body")
    works(w, "b.test")
    for c in slow:
        c.rst()
    equal([r["target"] for r in w.s.policy()["egress"]], ["b.test", "ok.test"])


@test("2.10")
def decisions_can_be_read_and_checked(lab):
    w = begin(lab, RULES=closed(deny("no.ok.test"), allow("*.ok.test"), deny("203.0.113.0/24")))
    s = w.s
    w.ns.zone["x.ok.test"] = host(10)
    denied(w, "no.ok.test", ("A",))
    works(w, "x.ok.test")
    blocked(w, "203.0.113.7")
    entries = wait_for(lambda: len(found := s.decisions()) >= 3 and any(e.get("address") == "203.0.113.7" for e in found) and found, "three entries")
    names = {(e.get("name"), e["verdict"]) for e in entries if e["kind"] == "dns"}
    check({("no.ok.test", "deny"), ("x.ok.test", "allow")} <= names, names)
    packet = [e for e in entries if e.get("address") == "203.0.113.7"][-1]
    equal((packet["kind"], packet["port"], packet["proto"], packet["verdict"]), ("packet", 443, "tcp", "deny"))
    for what, verdict, rule in (({"name": "no.ok.test"}, "deny", "user:0"), ({"name": "b.ok.test"}, "allow", "user:1"),
                                ({"name": "other.test"}, "deny", "default"), ({"address": "203.0.113.7"}, "deny", "user:2"),
                                ({"address": "198.51.100.10", "port": 443}, "allow", "learned"), ({"address": "192.0.2.1"}, "deny", "default"),
                                ({"address": "198.51.100.10", "port": 853}, "deny", "port853")):
        told = s.check(**what)
        equal((told["verdict"], told["rule"]), (verdict, rule), str(what))
    equal(s.ask("POST", "/policy/check", b"{}").status, 400)
