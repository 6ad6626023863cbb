"""Rules and what they decide, in the running program: names by DNS, addresses by the kernel, the API in front of both."""
import json
import os
import shutil
import time

import dnswire
from bench import allow, check, closed, deny, equal, opened, test, wait_for
from sidecar import HEADER, TOKEN
from verdicts import Echo, address, blocked, denied, fails, host, in_force, is_denied, works, zone
from world import Load, refused

PORTS = {"tcp": [22, 80, 443, 853, 5432], "udp": [123, 443]}


def outside(lab, names=None, **how):
    """A world with a nameserver and echoes everywhere."""
    w = lab.world(**how)
    w.ns = w.nameserver(zone() if names is None else names)
    w.out = w.everywhere(**PORTS)
    return w


# ---- chapter 11 of the contract

@test("E11.1", "POL-08")
def a_policy_file_wins_over_the_environment(lab):
    w = outside(lab)
    path = w.write("policy.json", json.dumps(closed(allow("*.a.test"))))
    s = w.sidecar(MODE="dns", POLICY_FILE=path, RULES=opened())
    works(w, "x.a.test")
    denied(w, "ok.test")
    denied(w, "a.test")
    equal(s.policy(), closed(allow("*.a.test")))
    equal(w.ns.asked("ok.test"), [], "questions about a denied name")


@test("E11.2")
def deny_rules_of_an_open_policy_hold_for_names_and_ranges(lab):
    w = outside(lab)
    w.sidecar(RULES=opened(deny("*.a.test"), deny("10.0.0.0/8"), deny("2001:db8:66::/48")))
    works(w, "ok.test")
    works(w, "a.test")
    denied(w, "x.a.test")
    blocked(w, "10.1.0.1")
    blocked(w, "2001:db8:66::1")
    check(w.gets_out("203.0.113.9") and w.gets_out("2001:db8:67::1"), "other addresses work")
    for ip in ("198.51.100.10", "203.0.113.9", "2001:db8::10"):
        blocked(w, ip, 853)


@test("E11.3", "POL-07")
def a_patched_allow_comes_in_front_of_a_deny_wildcard(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(deny("*.a.test"), allow("ok.test")))
    fails(w, "x.a.test", 20)
    equal(s.patch([allow("x.a.test")])["status"], "ok")
    works(w, "x.a.test")
    denied(w, "y.a.test")
    equal([r["target"] for r in s.policy()["egress"]], ["x.a.test", "*.a.test", "ok.test"])


@test("E11.4", "LIFE-06")
def a_patched_deny_cuts_the_open_connection_and_no_other(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("*.a.test"), allow("ok.test")))
    gone = [Echo(w, ip) for ip in works(w, "x.a.test")]
    stay = [Echo(w, ip) for ip in works(w, "y.a.test") + works(w, "ok.test")]
    start = time.monotonic()
    s.patch([deny("x.a.test")])
    for e in gone:
        check(e.cut(max(0.1, 1.0 * lab.slow - (time.monotonic() - start))), "cut within a second:", e.ip)
    fails(w, "x.a.test", 20)
    for e in stay:
        check(e.lives(), "another host's connection is undisturbed:", e.ip)
    for ip in address(w, 21):
        check(w.gets_out(ip), "and its learned address stays open:", ip)


@test("E11.5")
def one_of_two_denied_hosts_is_deleted(lab):
    w = outside(lab)
    s = w.sidecar(RULES=opened(deny("x.a.test"), deny("y.a.test")))
    denied(w, "x.a.test")
    s.delete(["x.a.test"])
    works(w, "x.a.test")
    denied(w, "y.a.test")
    again = s.delete(["x.a.test"])
    equal((again["status"], again["reason"]), ("ok", "no matching targets found"))


@test("E11.6", "POL-12", "INT-18")
def rule_files_count_as_soon_as_they_change(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test")))
    works(w, "ok.test")
    fails(w, "b.test", 40)
    w.rule_file("deny", "# not this one\nok.test\r\n")
    w.rule_file("allow", "b.test\n")
    in_force(lambda: is_denied(w, "ok.test") and not is_denied(w, "b.test"), "the files are in force", lab)
    fails(w, "ok.test", 10)
    works(w, "b.test")
    equal(s.policy(), closed(allow("ok.test")), "the API shows the user's rules only")
    w.rule_file("deny", None)
    w.rule_file("allow", None)
    in_force(lambda: not is_denied(w, "ok.test") and is_denied(w, "b.test"), "the files are gone", lab)
    fails(w, "b.test", 40)


@test("E11.7")
def one_allowed_host_works_by_its_learned_address_alone(lab):
    w = outside(lab)
    w.sidecar(RULES=closed(allow("ok.test")))
    for ip in address(w, 10):
        blocked(w, ip)  # nobody has asked yet
    works(w, "ok.test")
    fails(w, "no.test", 66)
    fails(w, "other.test", 30)
    blocked(w, "10.0.0.1")


# ---- names

TARGETS = ["*.ok.test", "*", "a*.c.test", "**.c.test", ".c.test", "*.203.0.113.1", "http://c.test/", "c.test:443"]


@test("POL-06")
def a_wildcard_covers_whole_labels_below(lab):
    w = outside(lab, {"ok.test": host(1), "*.ok.test": host(2), "notok.test": host(3), "*.evil.test": host(4), "c.test": host(5),
                      "*.c.test": host(6)})
    s = w.sidecar(RULES=closed())
    told = s.put(closed(*[allow(t) for t in TARGETS]))
    for t in TARGETS[1:6]:
        check(t in told.get("reason", ""), "the reason names what can never match:", t, told)
    check("and 2 more" in told["reason"], "and counts the rest:", told)
    for name, good in (("a.ok.test", True), ("a.b.ok.test", True), ("A.OK.test.", True), ("ok.test", False), ("notok.test", False),
                       ("ok.test.evil.test", False), ("c.test", False), ("a.c.test", False), ("ab.c.test", False)):
        equal(not is_denied(w, name), good, name)
    told = s.put(closed(allow("*.com"), allow("*.co.uk")))
    check("*.com" in told["reason"] and "*.co.uk" in told["reason"], "a public suffix is accepted with a warning:", told)
    equal("reason" in s.put(closed(allow("ok.test"))), False, "no reason without a cause")
    works(w, "ok.test")
    denied(w, "a.ok.test")


@test("DNS-10")
def names_in_another_script_are_compared_as_a_labels(lab):
    w = outside(lab, {"xn--bcher-kva.test": host(1), "xn--bcher-9ya.test": host(2), "a.xn--p1ai.test": host(3)})
    for target in ("bücher.test", "XN--BCHER-KVA.test."):
        s = w.sidecar(RULES=closed(allow(target), allow("*.рф.test")))
        works(w, "xn--bcher-kva.test")
        denied(w, "xn--bcher-9ya.test")
        works(w, "a.xn--p1ai.test")
        equal(s.policy()["egress"][0]["target"], target, "spelled as it came")
        r = s.ask("PATCH", "/policy", [allow("\u0640\u200d.test")])
        check(r.status == 400 and r.text.startswith("invalid merged policy: "), r.status, r.text)
        told = s.patch([allow("x" * 64 + ".test")])
        check("x" * 64 in told["reason"], "a label of 64 bytes never matches:", told)
        s.stop()


NAMES = [
    ([deny("*.a.test"), allow("x.a.test")], {"x.a.test": False, "y.a.test": False}),
    ([allow("x.a.test"), deny("*.a.test")], {"x.a.test": True, "y.a.test": False}),
    ([allow("x.a.test"), deny("x.a.test")], {"x.a.test": True}),
    ([deny("X.A.test."), allow("x.a.test")], {"x.a.test": False}),
]


@test("POL-07")
def the_first_name_rule_that_matches_decides(lab):
    w = outside(lab)
    s = w.sidecar()
    for default in ("allow", "deny", None):
        for rules, verdicts in NAMES:
            s.put({"egress": rules, **({"defaultAction": default} if default else {})})
            for name, good in verdicts.items():
                equal(not is_denied(w, name), good, f"{rules} {name}")
                equal(s.check(name=name)["verdict"], "allow" if good else "deny", "and the check says so")
            equal(not is_denied(w, "b.test"), default == "allow", f"default {default}")
    equal(len(w.ns.asked("y.a.test")), 0, "questions about a name that was always denied")


# ---- addresses

V4, V6 = "198.51.100.77", "2001:db8:1::77"
RANGES = {  # rules: verdict on V4 and V6
    "narrow allow first": ([allow(V4), allow(V6 + "/128"), deny("198.51.100.0/24"), deny("2001:db8:1::/48")], True),
    "wide deny first": ([deny("198.51.100.0/24"), deny("2001:db8:1::/48"), allow(V4), allow(V6 + "/128")], False),
    "narrow deny first": ([deny(V4), deny(V6), allow("198.51.100.9/24"), allow("2001:db8:1::9/48")], False),
    "wide allow first": ([allow("198.51.100.0/24"), allow("2001:db8:1::/48"), deny(V4), deny(V6)], True),
    "everything": ([allow("0.0.0.0/0"), allow("::/0")], True),
    "nothing": ([deny("0.0.0.0/0"), deny("::/0")], False),
    "twice": ([deny(V4), deny(V6), allow(V4), allow(V6)], False),
}


@test("POL-07")
def the_first_address_rule_that_covers_decides_in_the_kernel_too(lab):
    w = outside(lab)
    s = w.sidecar()
    for default in (closed, opened):
        for what, (rules, good) in RANGES.items():
            s.put(default(*rules))
            for ip in (V4, V6):
                equal(s.check(address=ip, port=443)["verdict"], "allow" if good else "deny", f"check of {ip}: {what}")
                if good:
                    check(w.gets_out(ip), what, ip)
                else:
                    blocked(w, ip)
            equal(w.gets_out("203.0.113.5"), default is opened or what == "everything" if what != "nothing" else False, what)


@test("POL-07", "E6")
def the_layers_outrank_each_other_for_names_and_addresses_alike(lab):
    w = outside(lab)
    w.rule_file("deny", "198.51.100.71\n2001:db8:1::71\nno.test\n")
    w.rule_file("allow", "198.51.100.0/24\n2001:db8:1::/48\n*.test\n")
    s = w.sidecar(RULES=closed(deny("198.51.100.72"), allow("198.51.100.71"), allow("no.test"), deny("ok.test")))
    works(w, "ok.test")
    denied(w, "no.test")
    for ip in ("198.51.100.71", "2001:db8:1::71"):
        blocked(w, ip)
    for ip in ("198.51.100.72", "2001:db8:1::72"):
        check(w.gets_out(ip), "allow.always outranks the user's rule:", ip)
    blocked(w, "203.0.113.1")
    equal(s.check(name="no.test")["rule"].split(":")[0], "deny.always")
    equal(s.check(address="198.51.100.72")["rule"].split(":")[0], "allow.always")
    equal([r["target"] for r in s.policy()["egress"]], ["198.51.100.72", "198.51.100.71", "no.test", "ok.test"])


@test("POL-07", "DNS-12")
def a_users_deny_range_beats_a_learned_address_but_not_the_operators(lab):
    w = outside(lab, {"db.cluster.test": {"A": ["10.96.0.12"]}, "op.test": {"A": ["10.96.0.14"]}, "free.test": {"A": ["10.100.0.1"]}})
    w.rule_file("allow", "op.test\n")
    s = w.sidecar(RULES=closed(deny("10.96.0.0/16"), allow("*.test"), allow("*.cluster.test")))
    equal(w.resolve("db.cluster.test"), ["10.96.0.12"])
    blocked(w, "10.96.0.12")
    equal(w.resolve("op.test"), ["10.96.0.14"])
    check(w.gets_out("10.96.0.14"), "step 3 comes before step 4")
    equal(w.resolve("free.test"), ["10.100.0.1"])
    check(w.gets_out("10.100.0.1"), "a learned address that no range covers")
    s.put(closed(allow("db.cluster.test")))
    equal(w.resolve("db.cluster.test"), ["10.96.0.12"])
    check(w.gets_out("10.96.0.12"), "one rule is enough for a cluster service")
    blocked(w, "10.96.0.13")
    entry = wait_for(lambda: [e for e in s.decisions() if e.get("address") == "10.96.0.13"], "an event that names the address")[-1]
    equal((entry["kind"], entry["verdict"], entry.get("port")), ("packet", "deny", 443))


@test("POL-07")
def an_address_learned_for_several_names_is_judged_by_the_best(lab):
    w = outside(lab, {"one.test": host(50), "two.test": host(50)})
    s = w.sidecar(RULES=closed(allow("one.test"), allow("two.test")))
    works(w, "one.test")
    works(w, "two.test")
    lines = [Echo(w, ip) for ip in address(w, 50)]
    s.patch([deny("one.test")])
    for e in lines:
        check(e.lives(), "still allowed by the other name:", e.ip)
    for ip in address(w, 50):
        check(w.gets_out(ip), ip)
    s.patch([deny("two.test")])
    for e in lines:
        check(e.cut(2.0 * lab.slow), "no name is left:", e.ip)
    for ip in address(w, 50):
        blocked(w, ip)


# ---- starts

@test("POL-08", "INT-17")
def starting_with_nothing_denies(lab):
    w = outside(lab, v6=False)
    for rules in (None, "", "  ", "{}", "null", ' {"egress": []} ', '{"egress":null,"defaultAction":null}'):
        s = w.sidecar(RULES=rules)
        denied(w, "ok.test", ("A",))
        blocked(w, "198.51.100.10")
        told = s.good("GET")
        equal((told["mode"], told["policy"]), ("deny_all", closed()), str(rules))
        s.stop()
    s = w.sidecar(RULES='{"defaultAction":"allow","egress":[]}')
    works(w, "ok.test")
    equal(s.good("GET")["mode"], "allow_all")


RUBBISH = ["{", "[]", "1", '{"egress":[{"action":"maybe","target":"a.test"}]}', '{"egress":[{"action":"allow","target":" "}]}',
           '{"default_action":"allow"}', '{"egress":[],"egress":[]}', '{"defaultAction":"drop"}', "{} x",
           '{"egress":[{"action":"allow","target":"a.test","ports":[443]}]}']


@test("POL-08", "POL-04", "INT-17")
def starting_with_rubbish_ends_with_a_line_that_names_the_setting(lab):
    w = outside(lab, v6=False)
    for rules in RUBBISH:
        s = w.sidecar(RULES=rules, healthy=False)
        s.expect_exit = 2
        equal(s.exit(), 2, rules)
        check("OPENSANDBOX_EGRESS_RULES" in s.stderr() + s.stdout(), "the line names the setting:", s.stderr(), s.stdout())
        blocked(w, "203.0.113.1")  # and nothing is open afterwards
        check(len(s.stderr().splitlines()) <= 2, "one line:", s.stderr())


@test("POL-08")
def a_policy_file_survives_restarts_and_a_damaged_one_stops_the_start(lab):
    w = outside(lab, v6=False)
    path = os.path.join(w.dir, "policy.json")
    s = w.sidecar(POLICY_FILE=path, RULES=closed(allow("ok.test")))
    works(w, "ok.test")
    check(not os.path.exists(path), "not written before there is a change")
    s.patch([allow("b.test"), deny("ok.test")])
    equal((os.stat(path).st_mode & 0o777, json.load(open(path, encoding="utf-8"))),
          (0o600, closed(allow("b.test"), deny("ok.test"))), "mode and content")
    s.stop()
    s = w.sidecar(POLICY_FILE=path, RULES=opened())
    works(w, "b.test")
    denied(w, "ok.test")
    s.stop()
    whole = open(path, encoding="utf-8").read()
    for text in (whole[:len(whole) // 2], "x", whole + "}"):
        w.write("policy.json", text)
        s = w.sidecar(POLICY_FILE=path, RULES=opened(), healthy=False)
        s.expect_exit = 2
        equal(s.exit(), 2, text)
        check(path in s.stderr() + s.stdout(), "the line names the file:", s.stderr(), s.stdout())
        blocked(w, "203.0.113.1")
        equal(open(path, encoding="utf-8").read(), text, "and it is left as it was")
    for text in ("", " \n"):
        w.write("policy.json", text)
        s = w.sidecar(POLICY_FILE=path, RULES=closed(allow("ok.test")))
        works(w, "ok.test")
        s.stop()


@test("POL-15", "INT-19", "B2")
def a_mode_that_does_not_exist_is_never_taken_for_the_weaker_one(lab):
    w = outside(lab, v6=False)
    for mode in ("foo", "nft", "dns+nftt", "dns,nft", "proxy+dns", "+"):
        s = w.sidecar(MODE=mode, RULES=opened(), healthy=False)
        s.expect_exit = 2
        equal(s.exit(), 2, mode)
        check("OPENSANDBOX_EGRESS_MODE" in s.stderr() and mode in s.stderr(), s.stderr())
    for mode, shown in (("DNS", "dns"), (" nft + dns ", "dns+nft"), ("dns+", "dns"), ("", "dns")):
        s = w.sidecar(MODE=mode)
        equal(s.good("GET")["enforcementMode"], shown, mode)
        s.stop()


@test("POL-15", "E11.12", "INT-8", "E1")
def without_net_admin_nothing_pretends(lab):
    w = outside(lab, v6=False)
    for mode in ("dns", "dns+nft"):
        s = w.sidecar(MODE=mode, who="weak", RULES=closed(allow("ok.test")), healthy=False)
        wait_for(lambda s=s: s.health()[0] == 503, "/healthz 503")
        check(s.health()[1].startswith("not enforced: ") and len(s.health()[1]) > 16, "with the reason:", s.health())
        equal(s.good("GET")["policy"], closed(allow("ok.test")), "the API is up")
        check([line for line in s.log() if line["level"] == "error"], "an error line says so")
        check(w.gets_out("203.0.113.1"), "indeed nothing is enforced")
        s.stop()
        s = w.sidecar(MODE=mode, who="weak", RULES=closed(allow("ok.test")), ALLOW_UNENFORCED="yes")
        check([line for line in s.log() if line["level"] in ("warn", "error")], "a warning")
        equal(s.ask("GET", "/healthz").status, 200)
        equal(w.resolve("ok.test", server="127.0.0.1", port=15353), ["198.51.100.10"], "DNS runs")
        check(w.ask("no.test", server="127.0.0.1", port=15353).denied, "and judges")
        s.stop()


@test("POL-15", "E1", "INT-8")
def without_the_program_that_programs_nftables_nothing_pretends(lab):
    w = outside(lab, v6=False)
    folder = os.path.join(w.dir, "alone")
    os.makedirs(folder)
    shutil.copy(lab.program, folder)
    whole, lab.program = lab.program, os.path.join(folder, os.path.basename(lab.program))
    s = w.sidecar(RULES=closed(allow("ok.test")), healthy=False)
    wait_for(lambda: s.health()[0] == 503, "/healthz 503")
    check(s.health()[1].startswith("not enforced: ") and len(s.health()[1]) > 16, "with the reason:", s.health())
    r = s.ask("PATCH", "/policy", [allow("b.test")])
    check(r.status in (200, 500), r.status)
    time.sleep(1)
    equal(s.health()[0], 503)
    s.stop()
    lab.program = whole


@test("POL-15", "E5")
def a_learned_set_that_is_full_gives_servfail_and_not_an_address_that_fails(lab):
    w = outside(lab, {"*.many.test": {"A": lambda q: [f"203.0.113.{1 + int(q.name.split('.')[0][1:]) % 254}"]}}, v6=False)
    s = w.sidecar(RULES=closed(allow("*.many.test")), MAX_LEARNED="64")
    good = bad = 0
    for i in range(100):
        m = w.ask(f"n{i}.many.test")
        if m.rcode == dnswire.NOERROR:
            check(bad == 0 or i > 64, "an address after the limit")
            check(w.gets_out(m.addresses[0]), "what was answered works:", m)
            good += 1
        else:
            equal(m.rcode, dnswire.SERVFAIL)
            bad += 1
    check(32 <= good <= 64 and bad >= 36, "answered", good, "refused", bad)
    s.told(lambda line: line["level"] == "warn")
    equal(s.health()[0], 200)


# ---- families

@test("POL-11", "INT-14", "E17")
def verdicts_are_the_same_whatever_families_there_are(lab):
    for how in ({"v6": False}, {"v4": False}, {}, {"v6_off": True}):
        w = outside(lab, **how)
        for mode in ("dns", "dns+nft"):
            s = w.sidecar(MODE=mode, RULES=closed(allow("ok.test")))
            works(w, "ok.test")
            denied(w, "no.test")
            for server in w.servers:
                check(w.ask("no.test", server=server).denied, "redirected from", server)
            w.recorder.nothing_left("a question about a denied name", holds=b"\x02no\x04test")
            if mode == "dns+nft":
                for ip in address(w, 66):
                    blocked(w, ip)
            else:
                for ip in address(w, 66):
                    check(w.gets_out(ip), "mode dns holds names only:", ip)
            s.stop()
            for ip in address(w, 10):
                blocked(w, ip)  # deny-all stays
        w.sidecars.clear()


# ---- the operator's layers

@test("POL-12")
def the_operators_host_passes_whatever_the_user_says(lab):
    w = outside(lab, zone(telemetry_op_test=host(90)))
    w.rule_file("allow", "telemetry.op.test\n")
    s = w.sidecar(RULES=closed())
    works(w, "telemetry.op.test")
    for change in (lambda: s.put(closed(deny("telemetry.op.test"))), lambda: s.patch([deny("*.op.test")]),
                   lambda: s.delete(["telemetry.op.test", "*.op.test"]), lambda: s.put(None)):
        change()
        works(w, "telemetry.op.test")
    check("telemetry" not in json.dumps(s.good("GET")), "the API never lists it")
    line = [Echo(w, ip) for ip in works(w, "telemetry.op.test")]
    w.rule_file("deny", "telemetry.op.test\n")
    in_force(lambda: is_denied(w, "telemetry.op.test"), "deny.always outranks allow.always", lab)
    for e in line:
        check(e.cut(2.0 * lab.slow), "and cuts what is open:", e.ip)
    fails(w, "telemetry.op.test", 90)


@test("POL-12")
def a_bad_line_keeps_the_old_rules_and_is_logged(lab):
    w = outside(lab, v6=False)
    w.rule_file("allow", "b.test\n")
    s = w.sidecar(RULES=closed())
    works(w, "b.test")
    w.rule_file("allow", "ok.test\n" + "x" * 70000 + "\n")
    wait_for(lambda: s.logged(lambda line: "allow.always" in json.dumps(line) and line["level"] == "warn"), "a warning", 10 * lab.slow)
    works(w, "b.test")
    denied(w, "ok.test")
    w.rule_file("allow", "ok.test\n")
    in_force(lambda: not is_denied(w, "ok.test"), "a good file is taken", lab)
    denied(w, "b.test")


@test("POL-08")
def a_bad_rule_file_stops_the_start(lab):
    w = outside(lab, v6=False)
    for name, text in (("deny", "x" * 70000), ("log_skip", "10.0.0.0/8\n")):
        w.rule_file(name, text)
        s = w.sidecar(RULES=opened(), healthy=False)
        s.expect_exit = 2
        equal(s.exit(), 2, name)
        check(f"/var/egress/rules/{name}.always line 1" in s.stderr() + s.stdout(), s.stderr(), s.stdout())
        blocked(w, "203.0.113.1")
        w.rule_file(name, None)


# ---- the API as it runs

@test("INT-21", "INT-3", "POL-09", "E19")
def the_api_wants_its_token_from_everybody(lab):
    w = outside(lab, v6=False)
    s = w.sidecar(RULES=closed())
    for token in (None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper()):
        for remote in (False, True):
            for method, target in (("GET", "/policy"), ("PUT", "/policy"), ("PURGE", "/policy"), ("POST", "/policy/check"), ("GET", "/policy/log")):
                r = s.ask(method, target, b"{" if method == "PUT" else None, token=token, remote=remote)
                equal((r.status, r.body), (401, b"unauthorized\n"), f"{method} {target} with {token}")
            equal(s.ask("GET", "/healthz", token=token, remote=remote).status, 200, "/healthz needs none")
    equal(s.ask("GET", "/policy", remote=True).status, 200)
    equal(s.ask("GET", "/policy", None, f"{HEADER.lower()}: {TOKEN}", token=None).status, 200)
    equal(s.ask("GET", "/healthz").status, 200, "and the right one does no harm")
    s.stop()
    s = w.sidecar(TOKEN=None, RULES=closed())
    equal(s.ask("GET", "/policy", token=None).status, 200, "without a token loopback peers are served")
    check(s.ask("GET", "/policy", token=None, remote=True).status in (401, 403), "and nobody else")
    equal(s.ask("GET", "/healthz", token=None, remote=True).status, 200)
    for field in ("Origin: http://evil.test", "Sec-Fetch-Site: cross-site"):
        equal(s.ask("PUT", "/policy", opened(), field, token=None).status, 403, field)
    equal(s.ask("PUT", "/policy", opened(), token=None, host="rebound.test:18080").status, 403)
    equal(s.policy(), closed(), "nothing changed")


@test("INT-22", "INT-23", "INT-24", "INT-25", "INT-26", "E9")
def the_api_answers_as_its_clients_expect(lab):
    w = outside(lab, v6=False)
    s = w.sidecar(RULES=opened())
    reset = {"status": "ok", "mode": "deny_all", "reason": "policy reset to default deny-all"}
    whole = {"status": "ok", "mode": "deny_all", "enforcementMode": "dns+nft"}
    for method in ("POST", "PUT"):
        for body, wanted in ((None, reset), (b" \r\n", reset), (b"{}", whole), (b"{ }", whole), (b"null", whole)):
            s.put(opened())
            r = s.ask(method, "/policy", body)
            equal((r.status, r.json, r.get("content-type").split(";")[0]), (200, wanted, "application/json"), f"{method} {body}")
            equal(s.policy(), closed(), "an array, always")
    s.put(opened(allow("a.test")))
    equal(s.good("GET")["mode"], "enforcing")
    s.put(closed(allow("A.test"), deny("b.test"), allow("c.test"), deny("c.test")))
    equal([r["target"] for r in s.policy()["egress"]], ["A.test", "b.test", "c.test", "c.test"], "order and duplicates kept")
    s.patch([deny("C.TEST."), allow("new.test"), allow("c.test"), allow("b.test")])
    equal([(r["action"], r["target"]) for r in s.policy()["egress"]],
          [("deny", "C.TEST."), ("allow", "new.test"), ("allow", "b.test"), ("allow", "A.test")])
    equal("reason" in s.delete(["c.test", "", "unknown.test"]), False)
    equal([r["target"] for r in s.policy()["egress"]], ["new.test", "b.test", "A.test"])


BAD = [("PUT", b"{", 400, "invalid policy: "), ("PUT", b'{"egres":[]}', 400, "invalid policy: "),
       ("PUT", b'{"egress":[],"egress":[]}', 400, "invalid policy: "),
       ("PUT", b'{"egress":[{"action":"perhaps","target":"a.test"}]}', 400, 'invalid policy: '),
       ("PUT", b'{"egress":[{"action":"allow","target":""}]}', 400, "invalid policy: "),
       ("PUT", b'{"egress":[{"action":"allow","target":"a.test","methods":["GET"]}]}', 400, "invalid policy: "),
       ("PUT", b'{"egress":[{"action":"allow","target":"a.test","paths":["/*"]}]}', 400, "invalid policy: "),
       ("PATCH", b"", 400, "empty body"), ("PATCH", b"{}", 400, "invalid patch rules: "), ("PATCH", b"[1]", 400, "invalid patch rules: "),
       ("DELETE", b"", 400, "empty body"), ("DELETE", b"[]", 400, "invalid delete targets: empty array"),
       ("DELETE", b"{}", 400, "invalid delete targets: "), ("DELETE", b"[1]", 400, "invalid delete targets: "),
       ("PUT", b" " * 1048577, 413, ""), ("OPTIONS", None, 405, "method not allowed\n"), ("PURGE", None, 405, "method not allowed\n")]


@test("INT-27", "POL-04", "E8")
def what_is_wrong_is_refused_with_a_text_and_changes_nothing(lab):
    w = outside(lab, v6=False)
    s = w.sidecar(RULES=closed(allow("ok.test")), MAX_RULES="100")
    many = [allow(f"n{i}.test") for i in range(101)]
    rows = BAD + [("PUT", json.dumps(closed(*many)).encode(), 413, "egress rule total count 101 exceeds limit 100"),
                  ("PATCH", json.dumps(many[:100]).encode(), 413, "egress rule total count 101 exceeds limit 100")]
    for method, body, status, text in rows:
        r = s.ask(method, "/policy", body)
        equal(r.status, status, f"{method} {str(body)[:60]}")
        check(r.text.startswith(text) and r.text.endswith("\n"), "its text:", r.text)
        equal((r.get("content-type"), r.get("x-content-type-options")), ("text/plain; charset=utf-8", "nosniff"))
        if status == 405:
            equal(r.get("allow"), "GET, POST, PUT, PATCH, DELETE")
        equal(s.policy(), closed(allow("ok.test")), "nothing changed")
    works(w, "ok.test")
    equal(s.ask("GET", "/nothing", token=None).status, 404)


@test("INT-29", "E5")
def a_change_holds_when_its_answer_is_there(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed())
    for i in range(30):
        s.put(closed(allow("ok.test"), allow("203.0.113.7")))
        equal(is_denied(w, "ok.test"), False, f"round {i}")
        for ip in w.resolve("ok.test") + ["203.0.113.7"]:
            check(w.gets_out(ip), ip, i)
        s.put(closed(deny("ok.test"), deny("203.0.113.7")))
        w.recorder.forget()
        equal(is_denied(w, "ok.test"), True, f"round {i}")
        for ip in ("198.51.100.10", "203.0.113.7"):
            refused(lambda ip=ip: w.connect(ip, 443), ip)
        w.recorder.nothing_left("after the answer", dst={"198.51.100.10", "203.0.113.7"}, dport=443, match=lambda f: f.flags & 2)


@test("E5", "LIFE-06")
def a_change_acts_on_the_difference_only(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test"), allow("203.0.113.0/24")))
    lines = [Echo(w, ip) for ip in works(w, "ok.test") + ["203.0.113.9"]]
    for rules in ([allow("*.test"), allow("203.0.113.9")], [allow("*"), allow("ok.test"), allow("203.0.113.8/29")],
                  [allow("ok.test"), deny("no.test"), deny("203.0.113.200"), allow("203.0.113.0/24")]):
        s.put(closed(*rules))
        for e in lines:
            check(e.lives(), "still permitted, by another rule:", e.ip, rules)
        for ip in address(w, 10):
            check(w.gets_out(ip), "its learned address too:", ip)
    w.ns.forget()
    s.put(opened())
    s.put(closed(allow("ok.test"), allow("203.0.113.9")))
    for e in lines:
        check(e.lives(), "over an open policy and back:", e.ip)


@test("LIFE-06")
def flows_that_only_receive_and_udp_flows_are_cut_as_well(lab):
    w = outside(lab)
    from origins import pours
    for ip in ("198.51.100.10", "2001:db8::10"):
        w.origin(ip, 9000, pours())
    s = w.sidecar(RULES=closed(allow("ok.test"), allow("b.test")))
    for ip in works(w, "ok.test"):
        down = w.connect(ip, 9000)
        talk = w.socket(6 if ":" in ip else 4, 2)
        talk.settimeout(2)
        talk.connect((ip, 123))
        talk.send(b"x")
        equal(talk.recv(10), b"x", "the UDP flow is open")
        check(down.recv(1000), "the download runs")
        s.patch([deny("ok.test")])
        down.settimeout(1.0 * lab.slow)
        end, ended = time.monotonic() + 10, False
        try:
            while time.monotonic() < end and not ended:
                ended = not down.recv(1 << 20)
        except TimeoutError:
            pass
        except OSError:
            ended = True
        check(ended, "a download whose client is silent ends:", ip)
        w.recorder.forget()
        try:
            for _ in range(5):
                talk.send(b"y")
                time.sleep(0.05)
        except OSError:
            pass
        w.recorder.nothing_left("a datagram after the change", dst=ip, proto="udp", dport=123)
        s.patch([allow("ok.test")])
        works(w, "ok.test")


@test("POL-12", "INT-18")
def sighup_reads_the_files_again_and_a_bad_one_changes_nothing(lab):
    import signal
    w = outside(lab, v6=False)
    s = w.sidecar(RULES=closed(allow("ok.test")))
    w.rule_file("deny", "ok.test\n")
    s.term(signal.SIGHUP)
    in_force(lambda: is_denied(w, "ok.test"), "deny.always", lab, 3)
    w.rule_file("deny", "x" * 70000)
    s.term(signal.SIGHUP)
    wait_for(lambda: s.logged(lambda line: line["level"] == "warn" and "deny.always" in json.dumps(line)), "a warning", 10 * lab.slow)
    denied(w, "ok.test", ("A",))
    check(s.alive(), "it lives on")


@test("E11.14", limit=90)
def many_changes_and_queries_at_once_lose_nothing_and_open_nothing(lab):
    w = outside(lab)
    s = w.sidecar(RULES=closed(allow("ok.test"), deny("no.test")), DNS_MAX_RATE="0")
    w.recorder.forget()
    loads = [Load(lambda: w.ask("no.test").denied), Load(lambda: bool(w.resolve("ok.test", "AAAA"))),
             Load(lambda: w.gets_out("203.0.113.66", within=1), 0.01), Load(lambda: w.ask("x.gone.test").denied)]
    writers, each = 4, 25 if lab.sanitizer else 50

    def write(k):
        for i in range(each):
            s.patch([allow(f"w{k}-{i}.test")])
            if i % 2:
                s.delete([f"w{k}-{i - 1}.test"])
        return True
    threads = [Load(lambda k=k: write(k), 60) for k in range(writers)]
    wait_for(lambda: all(t.seen or t.fault for t in threads), "the writers end", 60)
    for t in threads:
        t.ending = True
        check(not t.fault, t.fault)
    answers = [[value for _, value in load.stop()] for load in loads]
    equal([set(answers[i]) for i in (0, 1, 2, 3)], [{True}, {True}, {False}, {True}], "what the workload saw throughout")
    w.recorder.nothing_left("to a denied address", dst="203.0.113.66")
    equal([len(w.ns.asked("no.test")), len(w.ns.asked("gone.test"))], [0, 0], "questions about denied names")
    want = {f"w{k}-{i}.test" for k in range(writers) for i in range(each) if i % 2 or i == each - 1 and each % 2}
    equal({r["target"] for r in s.policy()["egress"]} - {"ok.test", "no.test"}, want, "no update is lost")


@test("E11.14", limit=240)
def a_policy_of_4096_rules_replaced_ten_times_a_second_opens_nothing(lab):
    w = outside(lab)
    def policy(round_):
        rules = [deny("203.0.113.66"), deny("2001:db8:9::66"), allow("ok.test"), allow("203.0.113.9")]
        rules += [deny(f"10.{32 + round_ % 8}.{i >> 8}.{i & 255}") for i in range(2000)]
        rules += [allow(f"10.{32 + round_ % 8}.{(i >> 8) + 128}.{i & 255}") for i in range(2092)]
        return opened(*rules)
    bodies = [json.dumps(policy(i)) for i in range(8)]
    s = w.sidecar(RULES=opened())
    equal(s.ask("PUT", "/policy", bodies[0]).status, 200)
    lines = [Echo(w, ip) for ip in works(w, "ok.test")]
    w.recorder.forget()
    loads = [Load(lambda: w.gets_out("203.0.113.66", within=1), 0.005), Load(lambda: w.gets_out("2001:db8:9::66", within=1), 0.005)]
    good = Load(lambda: w.gets_out("203.0.113.9", within=20), 0.02)
    seconds, start, done, slowest = (60 if lab.long else 10), time.monotonic(), 0, 0.0
    while time.monotonic() - start < seconds:
        begun = time.monotonic()
        r = s.ask("PUT", "/policy", bodies[(done + 1) % 8])
        equal(r.status, 200, r.body[:200])
        done += 1
        slowest = max(slowest, time.monotonic() - begun)
        time.sleep(max(0, 0.1 - (time.monotonic() - begun)))
    for load in loads:
        equal({value for _, value in load.stop()}, {False}, "a denied address")
    equal({value for _, value in good.stop()}, {True}, "an allowed one")
    w.recorder.nothing_left("to a denied address", dst={"203.0.113.66", "2001:db8:9::66"})
    for e in lines:
        check(e.lives(), "an open connection:", e.ip)
    rate = done / (time.monotonic() - start)
    check(rate > 5 / lab.slow / 2, f"{done} changes, {rate:.1f} a second, the slowest {slowest:.2f} s")
