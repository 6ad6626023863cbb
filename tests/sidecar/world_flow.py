"""The world without a sidecar: everything gets out and is seen.  What the other flows say of a packet that does not leave is worth
something only because of this."""
import os
import socket
import time

from bench import check, equal, test
from origins import BODY
from world import INSIDE, refused
import dnswire


@test("world")
def without_a_sidecar_everything_gets_out_and_is_seen(lab):
    w = lab.world()
    out = w.everywhere(tcp=[22, 80, 443, 853], udp=[53, 123, 443])
    for ip in ("198.51.100.66", "10.1.2.3", "169.254.169.254", "2001:db8::66", "fd00:ec2::254"):
        for port in (22, 80, 443, 853):
            check(w.gets_out(ip, port), ip, port)
            equal(len(out.got(ip, port, "tcp")), 1, "connections that arrived")
        equal(w.udp(ip, 123), b"ping", "echo")
        equal(out.got(ip, 123, "udp")[0].dst, ip)
        check(w.recorder.left(ip, "tcp", 22) and w.recorder.left(ip, "udp", 123), "the recorder has seen it")
    check(not w.recorder.left("198.51.100.67"), "nothing went there")


@test("world")
def the_nameserver_answers_and_counts(lab):
    w = lab.world()
    ns = w.nameserver({"ok.test": {"A": ["198.51.100.10"], "AAAA": ["2001:db8::10"], "TXT": ["x" * 3000]},
                       "a.test": {"CNAME": ["ok.test"]}})
    equal(w.resolve("ok.test"), ["198.51.100.10"])
    equal(w.resolve("ok.test", "AAAA", server="2001:db8::53"), ["2001:db8::10"])
    equal(w.resolve("a.test"), ["198.51.100.10"])
    check(w.ask("ok.test", "TXT").tc, "3 kB over UDP are cut")
    equal(len(w.ask("ok.test", "TXT", tcp=True).answers[0].text), 3000)
    equal(w.ask("no.test").rcode, dnswire.NXDOMAIN)
    m = w.ask("ok.test", "MX")
    equal((m.rcode, m.answers, m.authority[0].kind), (dnswire.NOERROR, [], "SOA"))
    equal((len(ns.asked("no.test")), len(ns.asked("ok.test", tcp=True)), len(ns.asked())), (1, 1, 7))
    ns.silent = True
    check(isinstance(refused(lambda: w.ask("ok.test", within=0.3)), TimeoutError), "silence")


@test("world")
def unbound_answers_its_zone(lab):
    w = lab.world()
    w.unbound(["ok.test. 60 IN A 198.51.100.10"])
    equal(w.resolve("ok.test"), ["198.51.100.10"])
    equal(w.ask("no.test", server="2001:db8::53").rcode, dnswire.NXDOMAIN)


def who_am_i():
    with open("/proc/self/status", encoding="ascii") as f:
        rows = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
    return os.getuid(), int(rows["CapEff"], 16), int(rows["CapBnd"], 16)


@test("world")
def the_workload_is_who_it_is_said_to_be(lab):
    w = lab.world()
    raw, admin = 1 << 13, 1 << 12
    equal(w.workload(who_am_i), (65534, 0, 0))
    equal(w.workload(who_am_i, who=10042), (10042, 0, 0))
    equal(w.workload(who_am_i, who="raw"), (0, raw, raw))
    for who, has_raw, has_admin in (("root", 0, 0), ("engine", 1, 0), ("all", 1, 0), ("sidecar", 1, 1), ("admin", 1, 1)):
        _, effective, bounding = w.workload(who_am_i, who=who)
        equal((effective & raw > 0, effective & admin > 0, bounding), (bool(has_raw), bool(has_admin), effective), who)
    code, out, _ = w.run("sh", "-c", "id -u; cat /proc/net/dev", who="root")
    check(code == 0 and out.startswith("0\n") and "e0:" in out, out)
    equal(w.run("sleep", "30", within=0.3)[0], 124)


@test("world")
def origins_play_their_scripts(lab):
    w = lab.world()
    w.origin()
    w.origin("198.51.100.10", 443, tls=w.ca.server("ok.test", "198.51.100.10"))
    code, out, err = w.run("curl", "-sS", "http://198.51.100.10/", who="root")
    equal((code, out.encode()), (0, BODY), err)
    code, out, err = w.run("curl", "-sS", "--cacert", w.ca.file, "https://198.51.100.10/")
    equal((code, out.encode()), (0, BODY), err)
    w.nginx("server { listen 198.51.100.20:80; }")
    equal(w.run("curl", "-sS", "http://198.51.100.20/")[1].encode(), BODY)


@test("world")
def a_world_may_lack_a_family(lab):
    for how, four, six in (({"v6": False}, True, False), ({"v4": False}, False, True), ({"v6_off": True}, True, False)):
        w = lab.world(**how)
        w.everywhere(tcp=[443])
        equal((w.gets_out("198.51.100.66"), w.gets_out("2001:db8::66")), (four, six), str(how))
        equal(len(w.servers), 1)


def listener():
    with socket.create_server(("", 8080), reuse_port=False) as s:
        c, _ = s.accept()
        c.sendall(b"inbound")
        c.close()


@test("world")
def the_outside_reaches_in(lab):
    w = lab.world()
    job = w.start(listener, who="root")
    time.sleep(0.2)
    with socket.create_connection((INSIDE[4], 8080), 3) as c:
        equal(c.recv(7), b"inbound")
    job.result()
