"""DNS as the workload finds it: what is refused is never asked, what is allowed opens exactly what was answered."""
import os
import socket
import struct
import time

import dnswire
from bench import allow, check, closed, deny, equal, opened, test, wait_for
from verdicts import blocked, denied, host, works, zone
from world import NS4, NS6, Load, refused

TYPES = ("A", "AAAA", "TXT", "MX", "NULL", "ANY", "HTTPS", "SRV", "PTR", "NS")


def begin(lab, names=None, rules=None, who=None, world=None, **how):
    """A world with a nameserver and echoes, and a sidecar that allows ok.test, unless told otherwise."""
    w = lab.world(**(world or {}))
    w.ns = w.nameserver(zone() if names is None else names)
    w.out = w.everywhere(tcp=[80, 443, 853], udp=[123, 443, 5353])
    how.setdefault("DNS_UPSTREAM_PROBE_INTERVAL_SEC", "3600")
    w.s = w.sidecar(RULES=rules or closed(allow("ok.test")), **how)
    return w


@test("DNS-01", "E3")
def a_denied_name_never_leaves_as_a_question(lab):
    for mode in ("dns", "dns+nft"):
        w = begin(lab, rules=closed(deny("no.ok.test"), allow("*.ok.test"), allow("ok.test")), MODE=mode)
        secret, long = "c2VjcmV0.evil.test", f"{'a' * 60}.{'b' * 60}.no.ok.test"
        for name in (secret, "evil.test", "no.ok.test"):
            denied(w, name, TYPES)
        check(not w.ask(long).denied, "what is below the denied name is not it")
        w.s.put(closed(deny("*.no.ok.test"), deny("no.ok.test"), allow("*.ok.test")))
        w.ns.forget()
        w.recorder.forget()
        denied(w, long, TYPES)
        equal(w.ns.asked(), [], "questions that reached the nameserver")
        w.recorder.nothing_left("DNS", dport=53)
        equal(w.s.metric("egress_policy_denied_total") >= 3 * 10 * 3, True, "they are counted")


@test("DNS-01")
def the_refusal_is_what_the_contract_says(lab):
    w = begin(lab)
    for rd in (True, False):
        for cd in (True, False):
            m = w.ask("EviL.tEST", "A", rd=rd, cd=cd, edns=4096)
            equal((m.rcode, m.aa, m.ra, m.rd, m.cd, m.name, m.answers), (dnswire.NXDOMAIN, False, False, rd, cd, "EviL.tEST", []))
            equal((m.authority[0].ttl, m.authority[0].name.lower(), m.ede), (1, "evil.test", [dnswire.EDE_BLOCKED]))
            equal(struct.unpack("!I", m.authority[0].data[-4:])[0], 1, "minimum")
            equal(w.ask("evil.test", rd=rd, cd=cd).edns, None, "no OPT without one")


@test("DNS-02")
def port_53_is_answered_by_us_whatever_the_address(lab):
    w = begin(lab)
    for server in ("192.0.2.53", "8.8.8.8", "127.0.0.53", "127.0.0.11", "10.99.0.1", NS6, "2001:db8:ff::1", "::1"):
        for tcp in (False, True):
            equal(w.resolve("ok.test", server=server, tcp=tcp), ["198.51.100.10"], f"{server} tcp {tcp}")
            check(w.ask("no.test", server=server, tcp=tcp).denied, "denied:", server, tcp)
    for port in (40053, 53535):
        check(w.ask("no.test", server="127.0.0.11", port=port).denied, "127.0.0.11 on port", port)
    w.recorder.nothing_left("a question to somebody else", dport=53, match=lambda f: f.dst not in w.servers)
    equal([q for q in w.ns.asked("test") if ":" in q.peer[0]], [], "the questions to the second server were taken too")
    w.recorder.nothing_left("a denied name", holds=b"\x02no\x04test")
    for ip in ("198.51.100.10", "2001:db8::10"):
        blocked(w, ip, 853)
        refused(lambda ip=ip: w.udp(ip, 853, within=0.5))
        w.recorder.nothing_left("DoT over UDP", dst=ip, dport=853)
    for ip, port in (("192.0.2.53", 5353), ("2001:db8:ff::1", 5355)):
        refused(lambda ip=ip, port=port: w.udp(ip, port, within=0.5))
        w.recorder.nothing_left("DNS on another port", dst=ip)


@test("DNS-02")
def the_doh_switch_beats_allow_rules(lab):
    w = begin(lab, rules=opened(allow("ok.test"), allow("198.51.100.0/24")), BLOCK_DOH_443="true")
    for ip in w.resolve("ok.test") + w.resolve("ok.test", "AAAA") + ["203.0.113.1"]:
        blocked(w, ip, 443)
        check(w.gets_out(ip, 80), "other ports pass:", ip)
    w.s.stop()
    w.sidecar(RULES=opened(allow("ok.test"), allow("0.0.0.0/0")), BLOCK_DOH_443="1", DOH_BLOCKLIST="198.51.100.10, 2001:db8:5::/48")
    blocked(w, "198.51.100.10", 443)
    blocked(w, "2001:db8:5::1", 443)
    check(w.gets_out("198.51.100.11", 443) and w.gets_out("2001:db8:6::1", 443), "others pass")


def getent(name):
    start = time.monotonic()
    try:
        return time.monotonic() - start, socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return time.monotonic() - start, None


@test("DNS-03", "DNS-04")
def the_c_library_learns_of_a_refusal_at_once(lab):
    w = begin(lab, rules=closed(allow("ok.test"), allow("four.test"), allow("lo.test")),
              names={**zone(), "four.test": {"A": ["198.51.100.44"]}, "lo.test": {"A": ["127.0.0.1"], "AAAA": ["::1"]}})
    w.write("resolv.conf", f"nameserver {NS4}\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n")
    seconds = min(w.workload(getent, "denied.test")[0] for _ in range(3))
    check(seconds < 0.1 * lab.slow, f"a refusal took {seconds:.3f} s")
    equal(w.workload(getent, "denied.test")[1], None)
    equal([q.name for q in w.ns.asked("denied.test") + w.ns.asked("cluster.local")], [], "questions upstream")
    seconds, found = w.workload(getent, "four.test")
    equal([f[4][0] for f in found], ["198.51.100.44"], "a name with one kind of address")
    equal(w.workload(getent, "lo.test")[1], None, "every address filtered")
    code, out, _ = w.run("getent", "ahosts", "ok.test")
    check(code == 0 and "198.51.100.10" in out and "2001:db8::10" in out, out)


@test("DNS-04")
def no_such_type_and_no_such_name_are_different_answers(lab):
    w = begin(lab, names={"ok.test": {"A": ["198.51.100.10"]}, "lo.test": {"A": ["127.0.0.1"]}}, rules=closed(allow("*.test")))
    equal(w.resolve("ok.test"), ["198.51.100.10"])
    for kind in ("AAAA", "HTTPS", "SRV", "TXT"):
        m = w.ask("ok.test", kind)
        equal((m.rcode, m.answers, [r.kind for r in m.authority]), (dnswire.NOERROR, [], ["SOA"]), kind)
    m = w.ask("lo.test")
    equal((m.rcode, m.answers), (dnswire.NOERROR, []), "all filtered")
    m = w.ask("gone.test")
    equal((m.rcode, m.denied, m.authority[0].ttl), (dnswire.NXDOMAIN, False, 60), "the upstream's own NXDOMAIN passes")


def svcb(*values):
    return [(1, "", list(values))]


@test("DNS-05", "POL-10")
def hints_in_https_records_open_nothing_and_are_filtered(lab):
    hints = socket.inet_aton("203.0.113.9") + socket.inet_aton("127.0.0.1")
    bad6 = socket.inet_pton(socket.AF_INET6, "::1")
    w = begin(lab, names={"ok.test": {"A": ["198.51.100.10"], "HTTPS": svcb((1, b"\x02h3\x02h2"), (4, hints), (5, b"config"), (6, bad6))},
                          "evil.test": {"HTTPS": [(1, "ok.test", [(4, socket.inet_aton("198.51.100.66"))])]}})
    check(w.ask("evil.test", "HTTPS").denied, "another name's record")
    m = w.ask("ok.test", "HTTPS")
    data = m.answers[0].data
    check(socket.inet_aton("203.0.113.9") in data and b"config" in data and b"h3" in data, "the record passes:", data)
    check(socket.inet_aton("127.0.0.1") not in data and bad6 not in data, "a bad hint does not:", data)
    blocked(w, "203.0.113.9")


ANSWERS = [("203.0.113.5", True), ("169.254.169.254", False), ("127.0.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False),
           ("10.0.0.1", True), ("100.100.100.200", False), ("168.63.129.16", False), ("192.0.0.192", False), ("::1", False),
           ("::", False), ("fe80::1", False), ("ff02::1", False), ("fd00:ec2::254", False), ("::ffff:127.0.0.1", False),
           ("64:ff9b::a9fe:a9fe", False), ("fd20:ce::254", False), ("2001:db8::5", True), ("fd00::1", True)]


@test("DNS-06", "E4")
def a_good_name_with_a_bad_address_opens_nothing(lab):
    def kind(ip):
        return "AAAA" if ":" in ip else "A"
    names = {f"n{i}.ok.test": {kind(ip): [ip, host(9)[kind(ip)][0]]} for i, (ip, _) in enumerate(ANSWERS)}
    w = begin(lab, names=names, rules=closed(allow("*.ok.test")))
    for i, (ip, good) in enumerate(ANSWERS):
        got = w.resolve(f"n{i}.ok.test", kind(ip))
        equal((ip in got, host(9)[kind(ip)][0] in got), (good, True), f"{ip}: {got}")
        if not good and not ip.startswith(("127.", "0.", "::", "f")) and ip != "224.0.0.1":
            blocked(w, ip)
        elif good:
            check(w.gets_out(ip), "what is answered works:", ip)
    w.s.put(closed(allow("*.ok.test"), allow("127.0.0.1/32"), allow("169.254.169.254")))
    for i in (1, 2):
        check(ANSWERS[i][0] in w.resolve(f"n{i}.ok.test"), "with a rule for it:", ANSWERS[i])
    w.s.stop()
    w.sidecar(RULES=closed(allow("*.ok.test")), PRIVATE_ANSWERS="deny")
    for i in (5, 18):
        check(ANSWERS[i][0] not in w.resolve(f"n{i}.ok.test", kind(ANSWERS[i][0])), "private answers denied:", ANSWERS[i])


@test("DNS-06")
def a_record_of_another_owner_opens_nothing(lab):
    w = begin(lab, rules=closed(allow("ok.test"), allow("c.test")), names={"ok.test": host(10)})
    def script(q):
        if q.kind != "A":
            return None
        if q.name.lower() == "c.test":  # the chain in the wrong order
            rows = [("y.test", "A", "203.0.113.12"), ("x.test", "CNAME", "y.test"), ("c.test", "CNAME", "x.test")]
        else:
            rows = [(None, "A", "203.0.113.11"), ("bank.test", "A", "203.0.113.13")]
        return [dnswire.reply(q.message, rows)]
    w.ns.script = script
    w.resolve("ok.test")
    check("203.0.113.12" in w.resolve("c.test"), "an alias opens what it points to")
    check(w.gets_out("203.0.113.11") and w.gets_out("203.0.113.12"), "both learned")
    blocked(w, "203.0.113.13")


@test("DNS-07", "E5", limit=150)
def leases_outlive_their_ttl_and_open_flows_their_lease(lab):
    turn = iter(range(1, 100000))
    w = begin(lab, names={"many.test": {"A": lambda q: [f"203.0.113.{1 + next(turn) % 250}"]}}, rules=closed(allow("many.test")),
              world={"v6": False}, DNS_CACHE_SIZE="0")
    w.ns.ttl = 1
    got = [w.resolve("many.test")[0] for _ in range(100)]
    time.sleep(3)
    equal([ip for ip in got if not w.gets_out(ip)], [], "addresses that no longer work three seconds later")
    leases = dict(w_leases(w))
    equal(len(set(got) - set(leases)), 0, "learned addresses in the kernel")
    check(all(50 <= seconds <= 61 for seconds in leases.values()), "TTL 1 makes leases of 61 s:", leases)
    w.ns.ttl = 9999
    ip = w.resolve("many.test")[0]
    check(350 <= dict(w_leases(w))[ip] <= 360, "and TTL 9999 360 s:", dict(w_leases(w))[ip])


def w_leases(w):
    """(address, seconds left) of the learned sets."""
    import json
    for row in json.loads(w.nft("-j", "list", "ruleset"))["nftables"]:
        for e in row.get("set", {}).get("elem", []):
            e = e.get("elem", e) if isinstance(e, dict) else {}
            if "expires" in e:
                yield e["val"], e["expires"]


@test("DNS-08")
def udp_and_tcp_are_one_service(lab):
    w = begin(lab, names={"ok.test": {**host(10), "TXT": ["t" * 3000]}})
    for server in ("127.0.0.1", "::1", NS4, NS6, "192.0.2.1"):
        cut = w.ask("ok.test", "TXT", server=server, edns=1232)
        check(cut.tc and len(cut.raw) <= 1232, "cut to the client's size:", cut)
        check(len(w.ask("ok.test", "TXT", server=server).raw) <= 512, "and to 512 without EDNS")
        full = w.ask("ok.test", "TXT", server=server, tcp=True)
        equal((full.tc, len(full.answers[0].text)), (False, 3000), server)
    check(w.ns.asked("ok.test", "TXT", tcp=True), "we ask over TCP when the answer was cut")


@test("DNS-08")
def questions_are_pipelined_and_may_come_in_pieces(lab):
    w = begin(lab)
    for server in (NS4, "::1"):
        two = b"".join(struct.pack("!H", len(q)) + q for q in (dnswire.query("ok.test", ident=1), dnswire.query("no.test", ident=2)))
        for pieces in ([two], [two[i:i + 1] for i in range(len(two))]):
            s = w.connect(server, 53)
            for piece in pieces:
                s.sendall(piece)
            data, got = b"", {}
            while len(got) < 2:
                data += s.recv(4096)
                while len(data) >= 2 and len(data) >= 2 + struct.unpack_from("!H", data)[0]:
                    n = struct.unpack_from("!H", data)[0]
                    m = dnswire.Message(data[2:2 + n])
                    got[m.id], data = m, data[2 + n:]
            equal((got[1].addresses, got[2].denied), (["198.51.100.10"], True))
            s.close()


@test("DNS-09")
def our_own_question_is_our_own(lab):
    w = begin(lab, rules=closed(allow("*.test")), names={"*.test": host(10)})
    cookie = struct.pack("!HH", 10, 8) + b"12345678"
    subnet = struct.pack("!HHHBB", 8, 7, 1, 24, 0) + b"\x0a\x01\x02"
    asked = [{}, {"edns": 4096}, {"edns": 4096, "do": True}, {"edns": 1232, "options": cookie + subnet}] * 8
    for i, how in enumerate(asked):
        m = w.ask(f"n{i}.test", ident=7, **how)
        equal((m.edns is None, m.addresses), ("edns" not in how, ["198.51.100.10"]))
        check(all(code not in (8, 10) for code, _ in m.options), "nothing invented:", m)
    seen = w.ns.asked("test")
    equal(len(seen), len(asked))
    for q in seen:
        equal((q.message.edns, [code for code, _ in q.message.options]), (1232, []), "what the upstream sees")
    ids, ports = {q.message.id for q in seen}, sorted({q.peer[1] for q in seen})
    check(len(ids) > 25, "random ids:", len(ids))
    check(len(ports) >= 8 and len({b - a for a, b in zip(ports, ports[1:])}) > 4, "ports that change and cannot be guessed:", ports)


@test("DNS-09")
def wrong_replies_are_ignored_and_waiting_goes_on(lab):
    w = begin(lab, names={"ok.test": host(10)})
    bad = [(None, "A", "203.0.113.66")]
    def script(q):
        if q.kind != "A" or not q.name:
            return None
        good = dnswire.reply(q.message, [(None, "A", "198.51.100.10")])
        question = dnswire.Message(q.raw)
        question.kind = "AAAA"
        return [dnswire.reply(q.message, bad, ident=q.message.id ^ 1), dnswire.reply(q.message, bad, name="other.test"), b"", b"\0" * 5,
                q.raw, dnswire.reply(question, bad), good]
    w.ns.script = script
    equal(w.resolve("ok.test"), ["198.51.100.10"])
    blocked(w, "203.0.113.66")


@test("E11.8", "DNS-11", limit=90)
def a_dead_upstream_costs_one_timeout_at_most(lab):
    w = lab.world(v6=False)
    w.nameserver(zone())
    w.everywhere(tcp=[443])
    s = w.sidecar(RULES=closed(allow("ok.test"), allow("b.test")), DNS_UPSTREAM=f"198.51.100.99,{NS4}", DNS_UPSTREAM_TIMEOUT="10")
    start = time.monotonic()
    equal(w.resolve("ok.test", within=12), ["198.51.100.10"])
    check(time.monotonic() - start < 8, "an answer in less than 8 s")
    wait_for(lambda: "upstream probe 198.51.100.99" in s.stdout(), "a probe line in the log", 15)


@test("E11.9", "DNS-11", limit=90)
def a_silent_upstream_is_taken_out(lab):
    w = lab.world(v6=False)
    good = w.nameserver({"*.ok.test": host(1)})
    dumb = w.nameserver({}, "198.51.100.99")
    dumb.silent = True
    w.sidecar(RULES=closed(allow("*.ok.test")), DNS_UPSTREAM=f"198.51.100.99,{NS4}", DNS_UPSTREAM_TIMEOUT="2",
              DNS_UPSTREAM_PROBE_INTERVAL_SEC="15")
    start = time.monotonic()
    equal(w.resolve("a.ok.test", within=12), ["198.51.100.1"])
    check(time.monotonic() - start < 4 * lab.slow, "the first one is not too late")
    time.sleep(max(0, 4 - (time.monotonic() - start)))
    for i in range(10):
        start = time.monotonic()
        equal(w.resolve(f"n{i}.ok.test", within=12), ["198.51.100.1"])
        check(time.monotonic() - start < 1 * lab.slow, "later ones do not pay for it:", time.monotonic() - start)
    check(len(good.asked("ok.test")) >= 11, "they went to the good one")


@test("DNS-11", limit=90)
def the_first_final_answer_in_list_order_decides(lab):
    w = lab.world(v6=False)
    bad, good = w.nameserver({}, "198.51.100.98"), w.nameserver({"ok.test": host(10)})
    w.sidecar(RULES=closed(allow("*.test"), allow("ok.test")), DNS_UPSTREAM=f"198.51.100.98,{NS4}", DNS_UPSTREAM_TIMEOUT="2", DNS_CACHE_SIZE="0")
    for code in (dnswire.SERVFAIL, dnswire.REFUSED, dnswire.NOTIMP, dnswire.FORMERR):
        bad.rcode = code
        equal(w.resolve("ok.test"), ["198.51.100.10"], f"after rcode {code}")
    bad.rcode = dnswire.NXDOMAIN
    equal(w.ask("ok.test").rcode, dnswire.NXDOMAIN, "NXDOMAIN of the first is final")
    bad.rcode = dnswire.NOERROR
    equal((w.ask("ok.test").rcode, w.resolve("ok.test")), (dnswire.NOERROR, []), "and an empty NOERROR")
    bad.rcode = good.rcode = dnswire.SERVFAIL
    start = time.monotonic()
    equal(w.ask("ok.test", within=15).rcode, dnswire.SERVFAIL, "all bad")
    bad.silent = good.silent = True
    equal(w.ask("new.test", within=15).rcode, dnswire.SERVFAIL, "all silent, yet an answer")
    check(time.monotonic() - start < 10, "within the budget")


@test("DNS-11")
def a_real_nameserver_as_upstream(lab):
    w = lab.world()
    w.unbound(["ok.test. 60 IN A 198.51.100.10", "ok.test. 60 IN AAAA 2001:db8::10", "ok.test. 60 IN TXT \"hello\""])
    w.everywhere(tcp=[443])
    w.sidecar(RULES=closed(allow("*.test"), allow("ok.test"), deny("no.test")))
    works(w, "ok.test")
    equal(w.ask("ok.test", "TXT").answers[0].text, "hello")
    m = w.ask("gone.test")
    equal((m.rcode, m.denied), (dnswire.NXDOMAIN, False))


@test("DNS-13", limit=90)
def two_sandboxes_share_nothing(lab):
    a = begin(lab, rules=opened(), names={"*.flood.test": host(77)}, world={"v6": False}, DNS_MAX_RATE="0")
    load = Load(lambda: a.ask(f"n{time.monotonic_ns()}.flood.test").addresses)
    b = begin(lab, world={"v6": False})
    works(b, "ok.test")
    denied(b, "n1.flood.test", ("A",))
    blocked(b, "198.51.100.77")
    check(a.gets_out("198.51.100.77"), "the other one may")
    seen = load.stop()
    odd = [value for _, value in seen if value != ["198.51.100.77"]]
    check(len(seen) > 20 and not odd, "the flood was answered", len(seen), len(odd), odd[:3])


@test("DNS-15", "E21")
def what_the_sandbox_writes_into_shared_files_counts_for_nothing(lab):
    w = lab.world(v6=False)
    ns, evil = w.nameserver(zone()), w.nameserver({"ok.test": {"A": ["198.51.100.66"]}, "no.test": host(66)}, "198.51.100.166")
    w.everywhere(tcp=[443])
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test"), allow("ok.cap.test")), DNS_CACHE_SIZE="0")
    w.workload(scribble, who="engine")
    for _ in range(2):
        equal(w.resolve("ok.test"), ["198.51.100.10"])
        check(w.ask("no.test").denied, "as before")
        s.kill_worker()
    equal(evil.asked(), [], "questions to the sandbox's nameserver")
    check(ns.asked("ok.test"), "the real one was asked")
    w.recorder.nothing_left("to the sandbox's nameserver", dst="198.51.100.166")


def scribble():
    with open("/etc/resolv.conf", "w", encoding="ascii") as f:
        f.write("nameserver 198.51.100.166\n")
    with open("/etc/hosts", "a", encoding="ascii") as f:
        f.write("198.51.100.66 ok.test\n198.51.100.66 no.test\n")


@test("DNS-15")
def a_socket_bound_to_the_device_gets_no_further(lab):
    w = begin(lab, world={"v6": False})
    for server in ("192.0.2.53", "127.0.0.1", "127.0.0.53", "127.0.0.11"):
        since = time.monotonic()
        try:
            m = w.workload(ask_on_device, server, who="engine")
            check(dnswire.Message(m).denied, "an answer under policy")
        except OSError:
            pass
        w.recorder.nothing_left("past the redirect", since=since, match=lambda f, server=server: f.dst == server)
    w.recorder.nothing_left("a denied name", holds=b"\x02no\x04test")


def ask_on_device(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"e0")
        s.settimeout(1)
        s.sendto(dnswire.query("no.test"), (server, 53))
        return s.recv(4096)


@test("DNS-02", "4.4")
def an_exempt_nameserver_is_reached_unfiltered_on_port_53_only(lab):
    w = lab.world(v6=False)
    w.nameserver(zone())
    free = w.nameserver({"no.test": host(66)}, "198.51.100.44")
    w.everywhere(tcp=[443, 853])
    s = w.sidecar(RULES=closed(allow("ok.test")), NAMESERVER_EXEMPT="198.51.100.44")
    equal(w.resolve("no.test", server="198.51.100.44"), ["198.51.100.66"])
    equal(w.resolve("no.test", server="198.51.100.44", tcp=True), ["198.51.100.66"])
    equal(len(free.asked("no.test")), 2)
    check(w.ask("no.test").denied, "others are redirected")
    for port in (443, 853):
        blocked(w, "198.51.100.44", port)
    blocked(w, "198.51.100.66")
    s.put(closed(deny("198.51.100.44")))
    refused(lambda: w.ask("no.test", server="198.51.100.44", within=0.5))


ODD = [(b"", None), (b"\x00\x01", None), (struct.pack("!HHHHHH", 5, 0x8000, 1, 0, 0, 0) + b"\0\0\1\0\1", None),
       (struct.pack("!HHHHHH", 5, 0x1000, 1, 0, 0, 0) + b"\0\0\1\0\1", dnswire.NOTIMP),
       (struct.pack("!HHHHHH", 5, 0, 2, 0, 0, 0) + b"\0\0\1\0\1" * 2, dnswire.FORMERR),
       (struct.pack("!HHHHHH", 5, 0, 0, 0, 0, 0), dnswire.FORMERR),
       (struct.pack("!HHHHHH", 5, 0, 1, 0, 0, 0) + b"\x3fx", dnswire.FORMERR),
       (struct.pack("!HHHHHH", 5, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", dnswire.FORMERR)]


@test("5.1")
def malformed_questions_get_their_code_or_silence(lab):
    w = begin(lab, world={"v6": False})
    for raw, code in ODD:
        s = w.socket(4, socket.SOCK_DGRAM)
        s.settimeout(0.5 if code is None else 5)
        s.connect((NS4, 53))
        s.send(raw)
        try:
            got = s.recv(4096)
        except TimeoutError:
            got = None
        equal(got[3] & 15 if got else None, code, raw.hex())
    for _ in range(200):
        s.send(os.urandom(40))
    equal(w.resolve("ok.test"), ["198.51.100.10"], "and life goes on")


@test("DNS-14", limit=120)
def a_restart_under_load_resolves_no_denied_name(lab):
    w = lab.world(v6=False)
    w.ns = w.nameserver({"ok.test": host(10), "*.ok.test": host(11)})
    w.everywhere(tcp=[443])
    s = w.sidecar(supervised=True, RULES=closed(allow("ok.test"), allow("*.ok.test")), DNS_UPSTREAM_PROBE_INTERVAL_SEC="3600")
    w.recorder.forget()
    loads = [Load(lambda: w.ask(f"n{time.monotonic_ns()}.evil.test", within=0.5), 0.005),
             Load(lambda: w.resolve(f"n{time.monotonic_ns()}.ok.test", within=0.5), 0.005),
             Load(lambda: w.gets_out("203.0.113.66", within=0.5), 0.01)]
    for _ in range(50 if lab.long else 8):
        s.kill_worker()
    answers = [load.stop() for load in loads]
    check(all(isinstance(m, OSError) or m.denied for _, m in answers[0]), "a denied name is denied or not answered")
    check(sum(1 for _, m in answers[0] if not isinstance(m, OSError)) > 5, "denied between the crashes")
    check(sum(1 for _, m in answers[1] if m == ["198.51.100.11"]) > 5, "and the allowed ones answered")
    equal({m for _, m in answers[2]}, {False})
    equal(w.ns.asked("evil.test"), [], "questions about denied names")
    w.recorder.nothing_left("a denied name", holds=b"\x04evil\x04test")
    w.recorder.nothing_left("to a denied address", dst="203.0.113.66")
    equal(w.resolve("ok.test"), ["198.51.100.10"])


@test("DNS-14", limit=120)
def a_stop_and_start_under_load_resolves_no_denied_name(lab):
    w = lab.world(v6=False)
    w.ns = w.nameserver({"*.ok.test": host(11)})
    w.everywhere(tcp=[443])
    s = w.sidecar(RULES=closed(allow("*.ok.test")), DNS_UPSTREAM_PROBE_INTERVAL_SEC="3600")
    w.recorder.forget()
    load = Load(lambda: w.ask(f"n{time.monotonic_ns()}.evil.test", within=0.5), 0.005)
    for _ in range(50 if lab.long else 5):
        s.stop()
        s.begin()
    check(all(isinstance(m, OSError) or m.denied for _, m in load.stop()), "denied, or no answer")
    equal(w.ns.asked("evil.test"), [], "questions about denied names")
    w.recorder.nothing_left("a denied name", holds=b"\x04evil\x04test")


@test("6.1")
def a_webhook_is_told_of_denied_names_from_outside_the_policy(lab):
    import json
    w = lab.world(v6=False)
    ns = w.nameserver({"hook.test": host(80)})
    hook = w.origin("198.51.100.80", 8080)
    w.sidecar(RULES=closed(), DENY_WEBHOOK="http://hook.test:8080/denied", SANDBOX_ID="0f7e-box")
    for name, kind in (("Evil.TEST", "A"), ("evil.test", "AAAA"), ("xn--bcher-kva.test", "TXT")):
        check(w.ask(name, kind).denied, name)
    wait_for(lambda: len(hook.requests) >= 3 and all(r.body for r in hook.requests), "three calls", 15 * lab.slow)
    bodies = sorted((json.loads(r.body) for r in hook.requests), key=lambda b: b["hostname"])
    equal([b["hostname"] for b in bodies], ["evil.test", "evil.test", "xn--bcher-kva.test"])
    equal({(b["source"], b["sandboxId"]) for b in bodies}, {("opensandbox-egress", "0f7e-box")})
    check(w.ask("hook.test").denied, "the workload may not")
    refused(lambda: w.connect("198.51.100.80", 8080))
    check(ns.asked("hook.test"), "we may")
