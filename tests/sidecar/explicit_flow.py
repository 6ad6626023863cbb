"""The explicit proxy, in mode proxy (the sidecar is nobody and has no privilege at all) and beside the kernel's rules: the same
decisions as everywhere, and an answer that says why."""
import socket
import time

from backend import echo
from bench import allow, check, closed, deny, equal, opened, test
from hello import client_hello
from origins import echoes, pours
from relayed import shut
from wire import Client, answer, request
from world import INSIDE

GOOD, OTHER, BAD, FREE = "198.51.100.10", "198.51.100.20", "198.51.100.11", "198.51.100.200"
GOOD6 = "2001:db8::10"
ZONE = {"ok.test": {"A": [GOOD]}, "ok6.test": {"AAAA": [GOOD6]}, "other.test": {"A": [OTHER]}, "no.test": {"A": [BAD]},
        "alias.test": {"CNAME": ["ok.test"]}}
RULES = closed(allow("ok.test"), allow("ok6.test"), allow("other.test"), allow("alias.test"), allow("gone.test"))
SPECIAL = {"meta": "169.254.169.254", "loop": "127.0.0.1", "zero": "0.0.0.0", "azure": "168.63.129.16", "multi": "224.0.0.1",
           "ali": "100.100.100.200", "oracle": "192.0.0.192", "link": "169.254.1.1"}
SPECIAL6 = {"loop6": "::1", "mapped": "::ffff:169.254.169.254", "link6": "fe80::1", "multi6": "ff02::1", "aws6": "fd00:ec2::254",
            "gcp6": "fd20:ce::254", "nat64": "64:ff9b::a9fe:a9fe", "zero6": "::"}


class Proxied:
    """w, s, ns and the proxy's port.  In mode proxy the sidecar is nobody; else it has the kernel as well."""

    def __init__(self, lab, mode="proxy", zone=None, port=3128, listen="127.0.0.1", **how):
        self.w, self.port = lab.world(), port
        self.ns = self.w.nameserver({**ZONE, **(zone or {})})
        self.s = self.w.sidecar(who="nobody" if mode == "proxy" else "sidecar",
                                **{"MODE": mode, "PROXY_ADDR": f"{listen}:{port}", "RULES": RULES,
                                   "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "3600", "DRAIN_TIMEOUT": "1", **how})

    @classmethod
    def of(cls, w, s, ns, port=3128):
        p = cls.__new__(cls)
        p.w, p.s, p.ns, p.port = w, s, ns, port
        return p

    def client(self, host="127.0.0.1", uid=65534):
        with self.w.inside(uid):
            return self.w.keep(Client(self.port, host))

    def connect(self, target, *fields, client=None, host=None):
        """CONNECT: (answer, the connection)."""
        c = client or self.client()
        return c.ask("CONNECT", target, *fields, host=target if host is None else host), c

    def tunnel(self, target):
        a, c = self.connect(target)
        equal(a.status, 200, f"CONNECT {target}: {a.body[:200]!r}")
        return c

    def get(self, target, host, client=None, method="GET", **how):
        return (client or self.client()).ask(method, target, host=host, **how)


def said(a, status, *words):
    """A refusal: its status, in one line of text that holds these words."""
    equal(a.status, status, f"status, with {a.body[:200]!r}")
    check((a.get("content-type") or "").startswith("text/plain") and a.text.count("\n") == 1, "not one line of text:", a.raw,
          a.body)
    check(all(word in a.text.lower() for word in words), words, "is not in", a.text)


def both(lab, **how):
    """The proxy with and without the kernel."""
    for mode in ("proxy", "dns+nft"):
        yield Proxied(lab, mode, **how)


# ---- what passes

@test("E18", "POL-13", limit=90)
def allowed_hosts_pass_by_connect_and_by_absolute_form(lab):
    for p in both(lab):
        p.w.origin(GOOD, 443, echoes), p.w.origin(GOOD6, 8443, echoes), p.w.origin(GOOD, 80, echo), p.w.origin(GOOD, 8080, echo)
        for target, data in (("ok.test:443", client_hello("ok.test")), ("OK.test:443", client_hello("ok.test")),
                             ("ok6.test:8443", client_hello("ok6.test")), ("alias.test:443", client_hello("alias.test"))):
            c = p.tunnel(target)
            c.send(data)
            equal(c.exact(len(data)), data, target)
            c.close()
        a = p.get("http://ok.test/x?y", "ok.test")
        equal((a.status, a.json["line"]), (200, "GET /x?y HTTP/1.1"))
        equal([[n.lower(), v] for n, v in a.json["fields"]], [["host", "ok.test"]])
        a = p.get("http://ok.test:8080/", "ok.test:8080", method="POST", body=b"abc" * 50000)
        equal((a.status, a.json["body"][:6]), (200, "abcabc"))
        equal(p.s.good("GET")["enforcementMode"], p.s.env["OPENSANDBOX_EGRESS_MODE"])


@test("E18")
def one_connection_carries_requests_to_many_hosts_each_judged(lab):
    for p in both(lab):
        p.w.origin(GOOD, 80, echo), p.w.origin(OTHER, 80, echo)
        c = p.client()
        for host, status in (("ok.test", 200), ("other.test", 200), ("no.test", 403), ("ok.test", 200), ("x.ok.test", 403),
                             ("other.test", 200)):
            equal(p.get(f"http://{host}/", host, client=c).status, status, host)
        said(p.connect("no.test:443", client=c)[0], 403, "no.test", "policy")
        equal(p.ns.asked("no.test"), [])


@test("E18")
def what_is_said_to_the_proxy_goes_no_further(lab):
    p = Proxied(lab)
    p.w.origin(GOOD, 80, echo)
    a = p.client().ask("GET", "http://ok.test/", "Proxy-Authorization: Basic eDp5", "Proxy-Connection: keep-alive",
                       "Connection: x-hop", "X-Hop: 1",
                       "X-Stays: 1", host="ok.test")
    names = {n.lower() for n, _ in a.json["fields"]}
    equal(names & {"proxy-authorization", "proxy-connection", "x-hop", "x-stays", "via", "x-forwarded-for", "forwarded"},
          {"x-stays"})


@test("E18", limit=60)
def a_server_behind_a_tunnel_may_speak_first(lab):
    p = Proxied(lab)
    def banner(conn):
        conn.send(b"SSH-2.0-server\r\n")
        echoes(conn)
    p.w.origin(GOOD, 22, banner)
    c = p.tunnel("ok.test:22")
    equal(c.exact(16, 10), b"SSH-2.0-server\r\n")
    c.send(b"SSH-2.0-client\r\n")
    equal(c.exact(16), b"SSH-2.0-client\r\n")


# ---- what does not

@test("POL-13", "POL-14", "E18", limit=90)
def a_denied_name_is_refused_the_same_by_every_way(lab):
    for p in both(lab):
        p.w.origin(GOOD, 80, echo)
        p.w.recorder.forget()
        texts = set()
        for _ in range(2):
            for uid in (65534, 0, 10042):
                a, _ = p.connect("no.test:443", client=p.client(uid=uid))
                said(a, 403, "no.test", "policy")
                texts.add(a.text)
        c = p.client()
        for piece in (b"CONNECT no.te", b"st:443 HTTP/1.1\r\nHo", b"st: no.test:443\r\n\r\n"):
            c.send(piece)
            time.sleep(0.05)
        a = c.response("CONNECT")
        said(a, 403, "no.test", "policy")
        texts.add(a.text)
        c = p.client()
        equal(p.get("http://ok.test/", "ok.test", client=c).status, 200)
        a, _ = p.connect("no.test:443", client=c)
        texts.add(a.text)
        equal(len(texts), 1, f"different refusals: {texts}")
        said(p.get("http://no.test/", "no.test"), 403, "no.test", "policy")
        check(p.get("http://no.test/", "ok.test").status in (400, 403, 421), "another name in Host")
        p.w.recorder.nothing_left("a question or packet for a refused name", holds=b"\x02no\x04test")
        p.w.recorder.nothing_left("a connection to it", dst=BAD)


@test("POL-01", "vault 8.1h", limit=90)
def another_name_inside_the_tunnel_closes_it(lab):
    for p in both(lab):
        o = p.w.origin(GOOD, 443, echoes)
        web = p.w.origin(GOOD, 80, echo)
        for name in ("no.test", "other.test", "x.ok.test"):
            c = p.tunnel("ok.test:443")
            c.offer(client_hello(name))
            seen = shut(c)
            check(client_hello(name) not in seen, name, "came back")
        check(all(b"\x16\x03\x01" not in bytes(x.seen) for x in o.conns), "bytes of a refused hello reached the origin")
        c = p.tunnel("ok.test:80")
        equal([c.ask("GET", "/", host=h).status for h in ("ok.test", "no.test")], [200, 421])
        equal([q.get("host") for q in web.requests], ["ok.test"])


@test("E18", "vault 8.1")
def a_tunnel_to_an_address_is_a_connection_to_it(lab):
    for p in both(lab, RULES=closed(allow("ok.test"), allow("198.51.100.20"), allow("2001:db8::10"))):
        p.w.origin(OTHER, 443, echoes), p.w.origin(GOOD6, 443, echoes)
        for target in (f"{OTHER}:443", f"[{GOOD6}]:443"):
            c = p.tunnel(target)
            c.send(client_hello())
            equal(c.exact(20), client_hello()[:20])
        c = p.tunnel(f"{OTHER}:443")
        c.offer(client_hello("no.test"))
        shut(c)
        for target in (f"{FREE}:443", f"{BAD}:80", "[2001:db8::99]:443"):
            said(p.connect(target)[0], 403, "policy", target.rsplit(":", 1)[0].strip("[]"))
        p.w.recorder.nothing_left("a connection", dst=[FREE, BAD, "2001:db8::99"])


NUMBERS = ("0251.0376.0251.0376:80", "0xA9FEA9FE:80", "127.000.000.001:80", "2852039166:80", "127.1:80", "0x7f.1:80",
           "127.0.0.1.:80", "010.0.0.1:80",
           "169.254.169:80", "1.2.3.4.5:80", "999.1.1.1:80", "x.0x1:80", "ok.test.1:80", "[fe80::1%25e0]:80", "[fe80::1%e0]:80",
           "[::1:80", "::1:80", "[127.0.0.1]:80",
           "[ok.test]:80", "ok.test", "ok.test:", "ok.test:0", "ok.test:65536", "ok.test:080x", "ok.test:-1", "user@ok.test:443",
           "u:p@ok.test:443", "ok..test:443", ".ok.test:443",
           "ok.test:443/x", "*:443", ":443", "ok test:443", "ok_\x7ftest:443", "%6fk.test:443", "http://ok.test:443")


@test("POL-02", limit=120)
def other_spellings_of_addresses_are_no_requests(lab):
    p = Proxied(lab, RULES=opened())
    p.w.recorder.forget()
    for target in NUMBERS:
        a, c = p.connect(target, host="x")
        equal((target, a.status), (target, 400))
        c.close()
    for target in ("0251.0376.0251.0376", "0xA9FEA9FE", "127.000.000.001", "2852039166", "127.0.0.1.", "user@ok.test",
                   "[fe80::1%25e0]", "ok.test:0"):
        a = p.get(f"http://{target}/", "x" if " " in target else target)
        equal((target, a.status), (target, 400))
    for target, host in (("/", "ok.test"), ("https://ok.test/", "ok.test"), ("ftp://ok.test/", "ok.test"), ("*", "ok.test"),
                         ("http://", "ok.test")):
        a = p.client().ask("OPTIONS" if target == "*" else "GET", target, host=host)
        equal((target, a.status), (target, 400))
    p.w.recorder.nothing_left("something", match=lambda f: f.proto != "icmp6" and f.dport != 53)


@test("POL-02", "DNS-06", limit=120)
def special_addresses_are_refused_by_literal_and_by_name(lab):
    zone = {f"{n}.test": {"A": [a]} for n, a in SPECIAL.items()}
    zone.update({f"{n}.test": {"AAAA": [a]} for n, a in SPECIAL6.items()})
    p = Proxied(lab, zone=zone, RULES=opened(deny("evil.test")))
    p.w.origin("169.254.169.254", 80, echo)
    p.w.recorder.forget()
    for address in list(SPECIAL.values()) + ["[" + a + "]"
                                             for a in SPECIAL6.values()] + ["[0:0:0:0:0:0:0:1]", "[::ffff:a9fe:a9fe]", "[::ffff:7f00:1]"]:
        said(p.connect(f"{address}:80")[0], 403, "policy")
        said(p.get(f"http://{address}/", address), 403, "policy")
    for name in [*SPECIAL, *SPECIAL6]:
        a, _ = p.connect(f"{name}.test:80")
        check(a.status in (403, 502) and f"{name}.test" in a.text, name, a.status, a.body)
        a = p.get(f"http://{name}.test/", f"{name}.test")
        check(a.status in (403, 502), name, a.status, a.body)
    a, _ = p.connect("ip6-localhost:18080")
    check(a.status in (403, 502), a.status)
    p.w.recorder.nothing_left("a connection", match=lambda f: f.dport == 80 or f.dst == "169.254.169.254")


@test("POL-02")
def a_rule_opens_exactly_its_special_addresses(lab):
    zone = {"meta.test": {"A": ["169.254.169.254"]}, "near.test": {"A": ["169.254.169.253"]}, "ten.test": {"A": ["10.7.1.1"]}}
    p = Proxied(lab, zone=zone, RULES=opened(allow("169.254.169.254/32"), allow("10.7.0.0/16")))
    for address in ("169.254.169.254", "10.7.1.1"):
        p.w.origin(address, 80, echo)
    for host in ("169.254.169.254", "10.7.1.1", "meta.test", "ten.test"):
        equal(p.get(f"http://{host}/", host).status, 200, host)
    for host in ("169.254.169.253", "near.test", "127.0.0.1", "100.100.100.200", "[::ffff:169.254.169.253]"):
        check(p.get(f"http://{host}/", host).status in (403, 502), host)
    said(p.connect("169.254.169.253:80")[0], 403, "policy")


@test("4.7", limit=90)
def our_own_listeners_are_never_dialled_at_any_local_address(lab):
    zone = {"self.test": {"A": [INSIDE[4]]}, "loop.test": {"A": ["127.0.0.1"]}}
    for mode, ports in (("proxy", (18080, 3128, 18090)), ("dns+nft", (18080, 3128, 18090, 15353, 18081))):
        p = Proxied(lab, mode, zone=zone, listen="0.0.0.0", MITMPROXY_TRANSPARENT="true" if mode != "proxy" else None,
                    RULES=opened(allow("127.0.0.0/8"), allow("::1"), allow("::"), allow("0.0.0.0/8"), allow("10.99.0.0/24"),
                                 allow("fd99::/64"), allow("::ffff:0:0/96")))
        with p.w.inside(0):
            own = p.w.keep(socket.create_server(("127.0.0.1", 9000)))
        for port in ports:
            for host in ("127.0.0.1", "127.0.0.2", "[::1]", "0.0.0.0", "[::]", INSIDE[4], f"[{INSIDE[6]}]", "[::ffff:127.0.0.1]",
                         "self.test", "loop.test"):
                a, c = p.connect(f"{host}:{port}")
                check(a.status in (403, 502) and a.status != 200, f"CONNECT {host}:{port}", a.status, a.body)
                c.close()
                a = p.get(f"http://{host}:{port}/healthz", f"{host}:{port}")
                check(a.status in (403, 502) and a.body.strip() != b"ok", f"GET {host}:{port}", a.status, a.body)
        p.tunnel("127.0.0.1:9000")
        own.close()


@test("4.7", "E18")
def others_than_the_namespaces_own_are_refused_unless_named(lab):
    for clients, status in ((None, 403), ("10.99.0.0/24,fd99::/64", 200), ("10.99.0.9", 403)):
        p = Proxied(lab, listen="0.0.0.0", PROXY_CLIENTS=clients)
        p.w.origin(GOOD, 80, echo)
        far = p.w.keep(Client(p.port, INSIDE[4]))
        equal(far.ask("GET", "http://ok.test/", host="ok.test").status, status, f"another machine with {clients}")
        if status == 403:
            for target in ("http://no.test/", "/", "http://ok.test/"):
                a = p.w.keep(Client(p.port, INSIDE[4])).ask("GET", target, host="ok.test")
                equal((target, a.status), (target, 403))
        equal(p.get("http://ok.test/", "ok.test", client=p.client(INSIDE[4])).status, 200, "by its own address")


# ---- faults of others

@test("E18", "13", limit=90)
def faults_behind_the_proxy_are_502_or_504_in_time(lab):
    p = Proxied(lab, CONNECT_TIMEOUT="2", DNS_UPSTREAM_TIMEOUT="1")
    for ask in (lambda h: p.connect(f"{h}:81")[0], lambda h: p.get(f"http://{h}:81/", f"{h}:81")):
        start = time.monotonic()
        said(ask("ok.test"), 502)
        said(ask("gone.test"), 502)
        check(time.monotonic() - start < 2.5, "a refused connection took", time.monotonic() - start)
    p.w.run("nft",
            "add table inet t; add chain inet t c { type filter hook input priority 0 ; }; add rule inet t c tcp dport 82 drop",
            place="outside", who="admin")
    start = time.monotonic()
    a, _ = p.connect("ok.test:82")
    check(a.status == 504 and time.monotonic() - start < 8, a.status, a.body, time.monotonic() - start)
    p.ns.silent = True
    a, _ = p.connect("other.test:443")
    check(a.status in (502, 504), a.status, a.body)


@test("E18", "LIFE-06", limit=60)
def a_change_cuts_tunnels_and_downloads_of_what_is_denied_now(lab):
    for p in both(lab):
        p.w.origin(GOOD, 443, echoes), p.w.origin(OTHER, 443, echoes)
        def endless(conn):
            conn.head()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
            pours()(conn)
        p.w.origin(GOOD, 80, endless)
        mine, others, load = p.tunnel("ok.test:443"), p.tunnel("other.test:443"), p.client()
        mine.send(client_hello("ok.test")).more()
        others.send(client_hello("other.test"))
        others.exact(len(client_hello("other.test")))
        load.send(request("GET", "http://ok.test/", host="ok.test"))
        load.more()
        p.s.patch([deny("ok.test")])
        shut(mine)
        shut(load)
        others.send(b"still")
        equal(others.exact(5), b"still")
        said(p.connect("ok.test:443")[0], 403, "ok.test", "policy")


# ---- through a parent proxy

def parent(seen):
    """A proxy that notes the heads it gets and plays the origin itself."""
    def script(conn):
        head = conn.head()
        seen.append(head)
        conn.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        conn.more()
        if conn.buf[:4] in (b"GET ", b"POST"):
            conn.answer(answer(200, body=b"through the parent"))
            return
        echoes_rest(conn)
    return script


def echoes_rest(conn):
    while True:
        data, conn.buf = conn.buf, b""
        conn.send(data)
        conn.more(3600)


@test("10.3", "vault 15", limit=90)
def everything_leaves_through_the_parent_proxy(lab):
    for tls in (False, True):
        w = lab.world()
        zone = {**ZONE, "proxy.test": {"A": ["198.51.100.40"]}}
        ns, seen = w.nameserver(zone), []
        o = w.origin("198.51.100.40", 3129, parent(seen), w.ca.server("proxy.test") if tls else None)
        s = w.sidecar(MODE="dns+nft", PROXY_ADDR="127.0.0.1:3128", RULES=RULES,
                      UPSTREAM_PROXY=f"http{'s' if tls else ''}://proxy.test:3129",
                      UPSTREAM_PROXY_AUTH="Basic c2VjcmV0", MITMPROXY_UPSTREAM_EXTRA_CA=w.ca.file,
                      DNS_UPSTREAM_PROBE_INTERVAL_SEC="3600")
        p = Proxied.of(w, s, ns)
        w.recorder.forget()
        c = p.tunnel("ok.test:443")
        c.send(client_hello("ok.test"))
        equal(c.exact(len(client_hello("ok.test"))), client_hello("ok.test"))
        equal(p.get("http://ok.test:8080/x", "ok.test:8080").body, b"through the parent")
        equal([(q.line, q.get("proxy-authorization")) for q in seen],
              [("CONNECT ok.test:443 HTTP/1.1", "Basic c2VjcmV0"), ("CONNECT ok.test:8080 HTTP/1.1", "Basic c2VjcmV0")])
        check(not any(isinstance(x, OSError) for x in o.conns), o.conns)
        said(p.connect("no.test:443")[0], 403, "no.test", "policy")
        equal(len(seen), 2, "heads at the parent")
        w.recorder.nothing_left("a direct connection", dst=[GOOD, BAD])
        check(not w.gets_out("198.51.100.40", 3129), "the workload reaches the parent itself")
        o.close()
        a, _ = p.connect("ok.test:443")
        equal(a.status, 502, "parent down")
        check("c2VjcmV0" not in s.stdout() + s.stderr(), "the parent's secret is logged")


@test("vault 15", limit=60)
def a_parent_with_a_bad_certificate_gets_nothing(lab):
    w = lab.world()
    w.nameserver({**ZONE, "proxy.test": {"A": ["198.51.100.40"]}})
    seen = []
    w.origin("198.51.100.40", 3129, parent(seen), w.ca.server("another.test"))
    w.sidecar(MODE="dns+nft", PROXY_ADDR="127.0.0.1:3128", RULES=RULES, UPSTREAM_PROXY="https://proxy.test:3129",
              UPSTREAM_PROXY_AUTH="Basic c2VjcmV0",
              MITMPROXY_UPSTREAM_EXTRA_CA=w.ca.file)
    with w.inside():
        c = w.keep(Client(3128))
    equal(c.ask("CONNECT", "ok.test:443", host="ok.test:443").status, 502)
    equal(seen, [])

