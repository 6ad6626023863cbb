"""Redirected connections that are not read as HTTP: TLS by the name in its first message, all else by its address.  What passes
arrives untouched; what does not is closed before a packet of it leaves."""
import hashlib
import resource
import socket
import threading
import time

from bench import allow, check, closed, deny, equal, opened, test, wait_for
from hello import ACCESS_DENIED, alert, client_hello, extension, message, records, server_name, vector
from origins import echoes
from relayed import BAD, FREE, FREE6, GOOD, GOOD6, OTHER, OTHER6, Relayed, got, passes, shut
from wire import Wire

PIECES = (1 << 20, 1, 7, 100)


def closed_without_a_packet(r, data, address=GOOD, says_why=False, within=5, port=443, pieces=1 << 20):
    """Sends it; the connection must end with nothing gone towards the address."""
    r.w.recorder.forget()
    c = r.client(address, port)
    for i in range(0, len(data), pieces):
        c.offer(data[i:i + pieces])
    seen = shut(c, within)
    r.w.recorder.nothing_left("a connection that had to be refused", dst=address)
    if says_why:
        equal(alert(seen), ACCESS_DENIED, f"the alert in {seen[:20]!r}")
    return seen


# ---- TLS by name

@test("POL-01", "relay", limit=120)
def an_allowed_name_passes_byte_for_byte_however_it_is_cut(lab):
    r = Relayed(lab)
    hellos = {"plain": client_hello("ok.test", alpn=("h2", "http/1.1")), "large": client_hello("ok.test", padding=9000),
              "many records": client_hello("ok.test", most=50), "records of a byte": client_hello("ok.test", most=1),
              "upper case": client_hello("OK.test")}
    for address in (GOOD, GOOD6):
        o = r.origin(address)
        for name, data in hellos.items():
            for n in PIECES:
                if n < 100 and len(data) > 4000:
                    continue
                c = r.client(address)
                for i in range(0, len(data), n):
                    c.send(data[i:i + n])
                equal(c.exact(len(data)), data, f"{name} in pieces of {n}")
                equal(got(o, len(data), len(o.conns) - 1), data, f"{name} in pieces of {n}, at the origin")
                passes(c, b"\x17\x03\x03\0\x05later")
                c.close()


@test("POL-01", "POL-13", "POL-14", limit=90)
def a_denied_name_is_closed_with_an_alert_whatever_it_is_sent_to(lab):
    r = Relayed(lab)
    o = r.origins(443, echoes, GOOD, BAD, GOOD6)
    for data in (client_hello("no.test"), client_hello("No.Test"), client_hello("no.test", most=3),
                 client_hello("no.test", ech=True),
                 client_hello("sub.ok.test"), client_hello("ok.test.evil.test"), client_hello("test")):
        for address in (GOOD, BAD, GOOD6, FREE):
            closed_without_a_packet(r, data, address, says_why=True)
    closed_without_a_packet(r, client_hello("no.test"), GOOD, says_why=True, pieces=1)
    equal([len(x.conns) for x in o], [0, 0, 0])
    def logged():
        return [e
                for e in r.s.decisions() if e.get("name") == "no.test" and e["kind"] == "connection" and e["verdict"] == "deny" and e.get("rule")]
    wait_for(logged, "the refusal of no.test in the log")
    equal(r.ns.asked("no.test"), [], "questions for a name that was only refused")


BAD_HELLOS = {
    "a zero byte in its name": client_hello(b"ok.test\0"), "an empty label": client_hello("ok..test"),
    "a blank": client_hello("ok .test"),
    "a label too long": client_hello("a" * 64 + ".ok.test"), "UTF-8": client_hello("ök.test".encode()),
    "a name too long": client_hello(".".join(["a" * 60] * 5)), "a slash": client_hello("ok.test/x"),
    "two names": records(message(extra=server_name("ok.test", "no.test"))),
    "server_name twice": records(message("ok.test", extra=server_name("no.test"))),
    "an extension cut short": records(message("ok.test", extra=b"\0\x15\xff\xff")),
    "an empty list of names": records(message(extra=extension(0, b"\0\0"))),
    "bytes behind it in its record": b"\x16\x03\x01" + vector(2, message("ok.test") + b"\x01\0\0\x02xx"),
    "another record between its pieces": records(message("ok.test"))[:60] + b"\x15\x03\x01\0\x02\x01\0" + records(message("ok.test"))[60:],
    "another message first": b"\x16\x03\x01" + vector(2, b"\x02" + message("ok.test")[1:]),
}


@test("relay", "vault 8.1a", limit=90)
def a_hello_that_means_two_things_is_closed(lab):
    r = Relayed(lab)
    o = r.origin()
    for name, data in BAD_HELLOS.items():
        try:
            closed_without_a_packet(r, data)
        except Exception as e:
            e.args = (f"{name}: {e}",)
            raise
    equal(len(o.conns), 0)


@test("relay", "vault 8.1b")
def without_a_name_or_with_an_address_for_one_the_address_decides(lab):
    r = Relayed(lab, RULES=closed(allow("ok.test"), allow("198.51.100.30"), deny("198.51.100.31"), allow("198.51.100.24/29")),
                learn=False)
    closed_without_a_packet(r, client_hello())
    equal(r.w.resolve("ok.test"), [GOOD])
    r.origin()
    passes(r.client(), client_hello())
    passes(r.client(), client_hello(GOOD))
    r.origin("198.51.100.30")
    passes(r.client("198.51.100.30"), client_hello())
    passes(r.client("198.51.100.30"), client_hello("198.51.100.30"))
    for address in (FREE, FREE6, "198.51.100.31", OTHER6):
        closed_without_a_packet(r, client_hello(), address)
        closed_without_a_packet(r, client_hello("198.51.100.30"), address)


@test("relay", "vault 8.1g")
def with_encrypted_hello_the_outer_name_decides(lab):
    r = Relayed(lab)
    r.origin()
    passes(r.client(), client_hello("ok.test", ech=True))
    closed_without_a_packet(r, client_hello("no.test", ech=True), says_why=True)


# ---- the address

@test("POL-16", limit=90)
def an_allowed_name_does_not_open_an_address_that_was_not_given_for_it(lab):
    r = Relayed(lab)
    o = r.origins(443, echoes, FREE, OTHER, FREE6)
    for name, address in (("ok.test", FREE), ("ok.test", OTHER), ("other.test", GOOD), ("ok.test", FREE6), ("ok.test", OTHER6),
                          ("ok.test", BAD)):
        closed_without_a_packet(r, client_hello(name), address)
    equal([len(x.conns) for x in o], [0, 0, 0])
    for i in range(100, 140):
        c = r.client(f"198.51.100.{i}")
        c.offer(client_hello("ok.test"))
        shut(c)
    r.w.recorder.nothing_left("a message in the choice of an address",
                              match=lambda f: f.dst.startswith("198.51.100.1") and f.dst not in (GOOD,))


@test("POL-16")
def before_a_name_was_resolved_its_address_is_closed(lab):
    r = Relayed(lab, learn=False)
    r.origin()
    closed_without_a_packet(r, client_hello("ok.test"))
    r.learn()
    passes(r.client(), client_hello("ok.test"))


@test("POL-07", "POL-16")
def address_rules_go_before_leases(lab):
    r = Relayed(lab, RULES=closed(deny("198.51.100.8/29"), allow("ok.test"), allow("other.test"), allow("198.51.100.20")))
    r.origins(443, echoes, GOOD6, OTHER)
    closed_without_a_packet(r, client_hello("ok.test"))
    passes(r.client(GOOD6), client_hello("ok.test"))
    passes(r.client(OTHER), client_hello("ok.test"))  # a rule covers it
    r.w.rule_file("deny", "198.51.100.20\n")
    wait_for(lambda: r.s.check(address=OTHER)["verdict"] == "deny", "the rule file in force")
    closed_without_a_packet(r, client_hello("other.test"), OTHER)


@test("POL-16", "E4")
def under_default_allow_only_what_a_rule_denies_is_closed(lab):
    r = Relayed(lab, learn=False, RULES=opened(deny("no.test"), deny("198.51.100.11")))
    r.origins(443, echoes, GOOD, FREE, BAD)
    passes(r.client(), client_hello("ok.test"))
    passes(r.client(FREE), client_hello("never.asked.test"))
    closed_without_a_packet(r, client_hello("no.test"), says_why=True)
    closed_without_a_packet(r, client_hello("ok.test"), BAD)


# ---- neither TLS nor HTTP

@test("relay", "vault 8.1", limit=90)
def a_server_that_speaks_first_is_heard_where_the_address_is_allowed(lab):
    r = Relayed(lab, MITMPROXY_EXTRA_PORTS="25,2222")
    def banner(conn):
        conn.send(b"220 hello\r\n")
        echoes(conn)
    for port in (25, 443, 80):
        o = r.origin(GOOD, port, banner)
        start = time.monotonic()
        c = r.client(GOOD, port)
        equal(c.exact(11, 10), b"220 hello\r\n", f"banner on port {port}")
        check(time.monotonic() - start < 6, "it took long")
        passes(c, b"EHLO ok.test\r\n")
        c.close()
        o.close()
    r.w.recorder.forget()
    cs = [r.client(address, port) for address in (FREE, FREE6) for port in (25, 443)]
    for c in cs:
        equal(shut(c, 8), b"", "bytes before the end")
    r.untouched(FREE, FREE6)


@test("relay")
def other_protocols_pass_by_address_alone(lab):
    r = Relayed(lab, MITMPROXY_EXTRA_PORTS="2222")
    r.origins(443, echoes, GOOD)
    r.origins(2222, echoes, GOOD, OTHER6)
    for data in (b"SSH-2.0-x\r\n", b"\0\0\0\x08\x04\xd2\x16/", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0",
                 b"\xff" * 300):
        for address, port in ((GOOD, 443), (GOOD, 2222), (OTHER6, 2222)):
            passes(r.client(address, port), data)
        closed_without_a_packet(r, data, FREE)
        closed_without_a_packet(r, data, FREE6, port=2222)


@test("relay")
def who_never_finishes_a_hello_is_closed_in_time(lab):
    r = Relayed(lab, FIRST_BYTES_TIMEOUT="2")
    r.origin()
    closed_without_a_packet(r, client_hello("ok.test")[:-1], within=12)
    closed_without_a_packet(r, b"\x16\x03", within=12)


@test("relay", "loop")
def a_connection_straight_to_our_port_is_closed(lab):
    r = Relayed(lab)
    for address in ("127.0.0.1", "::1"):
        for data in (client_hello("ok.test"), b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", b"SSH-2.0-x\r\n", b""):
            c = r.client(address, 18081)
            c.offer(data)
            shut(c, 8)
    equal(r.s.health()[0], 200)


# ---- as a pipe

@test("relay", "E17")
def whoever_connects_is_judged_the_same(lab):
    r = Relayed(lab)
    r.origin()
    for uid in (0, 10042, 65534, 1):
        c = r.client(uid=uid)
        passes(c, client_hello("ok.test"))
        c = r.client(uid=uid)
        c.offer(client_hello("no.test"))
        equal(alert(shut(c)), ACCESS_DENIED)


@test("relay", "splice", limit=120)
def a_large_download_and_upload_arrive_whole(lab):
    size, piece = 64 << 20, bytes(range(256)) * 256
    sums = {}
    def script(conn):
        conn.exact(len(client_hello("ok.test")))
        left, sum_in = size, hashlib.sha256()
        sender = threading.Thread(target=lambda: [conn.send(piece) for _ in range(size // len(piece))])
        sender.start()
        while left:
            if not conn.buf:
                conn.more(30)
            sum_in.update(conn.buf)
            left -= len(conn.buf)
            conn.buf = b""
            del conn.seen[:]
        sender.join()
        sums["up"] = sum_in.hexdigest()
        conn.send(b"done")
    r = Relayed(lab)
    r.origin(script=script)
    c = r.client()
    c.send(client_hello("ok.test"))
    sender = threading.Thread(target=lambda: [c.send(piece) for _ in range(size // len(piece))])
    sender.start()
    want, sum_in, left = hashlib.sha256(piece * (size // len(piece))).hexdigest(), hashlib.sha256(), size
    while left:
        if not c.buf:
            c.more(30)
        part, c.buf = c.buf[:left], c.buf[left:]
        sum_in.update(part)
        left -= len(part)
        del c.seen[:]
    equal(c.exact(4, 60), b"done")
    sender.join()
    equal((sum_in.hexdigest(), sums["up"]), (want, want), "sums down and up")


@test("relay")
def each_direction_ends_by_itself(lab):
    data, other = client_hello("ok.test"), client_hello("other.test")
    def after_fin(conn):
        conn.exact(len(data))
        equal(conn.ending(10), "fin")
        conn.send(b"answer after your end")
    def early_fin(conn):
        conn.exact(len(other))
        conn.send(b"bye")
        conn.fin()
        equal(conn.exact(5, 10), b"later")
        conn.ending(10)
    r = Relayed(lab)
    r.origin(GOOD, script=after_fin)
    r.origin(OTHER, script=early_fin)
    c = r.client()
    c.send(data).fin()
    equal((c.ending(10), bytes(c.seen)), ("fin", b"answer after your end"))
    c = r.client(OTHER)
    c.send(other)
    equal((c.ending(10), bytes(c.seen)), ("fin", b"bye"))
    c.send(b"later")


@test("relay")
def an_origin_that_is_not_there_ends_the_connection_at_once(lab):
    r = Relayed(lab)
    c = r.client()
    start = time.monotonic()
    c.offer(client_hello("ok.test"))
    shut(c, 10)
    check(time.monotonic() - start < 3, "it took", time.monotonic() - start)


@test("relay", "B6", limit=150)
def two_thousand_connections_are_carried_at_once(lab):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    r = Relayed(lab)
    r.w.everywhere(tcp=[443])
    data, socks = client_hello("ok.test"), []
    with r.w.inside():
        for i in range(2000):
            s = r.w.hold(socket.socket(socket.AF_INET6 if i % 2 else socket.AF_INET, socket.SOCK_STREAM))
            s.settimeout(30)
            s.connect((GOOD6 if i % 2 else GOOD, 443))
            s.sendall(data)
            socks.append(Wire(s, 30))
    for c in socks:
        equal(c.exact(len(data)), data, "what came back")
    for c in socks:
        passes(c, b"again")
    equal(r.s.health()[0], 200)
    equal(r.w.resolve("ok.test"), [GOOD])


@test("relay", "4.6")
def in_mode_dns_redirected_connections_are_judged_too(lab):
    r = Relayed(lab, MODE="dns")
    r.origins(443, echoes, GOOD, FREE)
    passes(r.client(), client_hello("ok.test"))
    closed_without_a_packet(r, client_hello("no.test"), says_why=True)
    closed_without_a_packet(r, client_hello("ok.test"), FREE)


@test("relay", "POL-11")
def one_family_alone_works(lab):
    for how, address in (({"v6": False}, GOOD), ({"v4": False}, GOOD6), ({"v6_off": True}, GOOD)):
        r = Relayed(lab, families=how)
        r.origin(address)
        passes(r.client(address), client_hello("ok.test"))
        closed_without_a_packet(r, client_hello("no.test"), address, says_why=True)

