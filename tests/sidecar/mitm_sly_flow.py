"""A workload that wants the secret for a peer of its own, by whatever stands between two layers: sessions that are taken to
another name, hellos with two names, clear text where TLS is bound, changes in the middle of a handshake, one version's text
in another version's fields."""
import contextlib
import ssl
import tempfile
import threading

from bench import check, equal, test, wait_for
from hello import client_hello, extension, message, records, server_name, vector
from mitm_flow import drive, greeting, is_ours
from vaulted import BOTH, EVIL, EXPORT, FREE, GOOD, MISMATCH, OTHER, SECRET, Vaulted, binding, clean, credential, injected, refused, vault
from webs import H1Client, H2Answer, Said, reflect
from wire import Ended, Late, Wire, request
from world import Load

CLEAR = SECRET.encode()


def context(version=None):
    c = ssl.create_default_context(cafile=EXPORT)
    c.set_alpn_protocols(["http/1.1"])
    if version:
        c.minimum_version = c.maximum_version = version
    return c


@test("VLT-01", "15", limit=90)
def a_session_is_good_for_its_own_name_alone(lab):
    b = Vaulted(lab, body=vault(binding(), binding("x", hosts=["x.api.test"], auth={"type": "bearer", "credential": "x"}), k=SECRET, x="OTHER-value-of-x"),
                zone={"x.api.test": {"A": [GOOD]}})
    b.learn("x.api.test")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        c = context(version)
        first = b.h1(context=c)
        equal(first.ask("GET", "/v1/x").status, 200)
        session = first.sock.session
        check(session, "a session")
        for name in ("x.api.test", "api.test"):
            sock = c.wrap_socket(b.w.connect(GOOD, 443), server_hostname=name, session=session)
            check(name == "api.test" or not sock.session_reused, "resumed under another name")
            mine = b.w.keep(H1Client(sock, name))
            for host in ("api.test", "x.api.test"):
                a = mine.ask("GET", "/v1/x", host=host)
                if host == name:
                    equal(a.status, 200)
                    injected(b, SECRET if name == "api.test" else "OTHER-value-of-x")
                else:
                    refused(a, 421, MISMATCH)
        raw = ssl.create_default_context(cafile=b.theirs)       # a session of ours is nothing to the origin, and the other way round
        raw.set_alpn_protocols(["http/1.1"])
        with contextlib.suppress(ssl.SSLError, ValueError):
            sock = raw.wrap_socket(b.w.connect(OTHER, 443), server_hostname="other.test", session=session)
            check(not sock.session_reused, "resumed elsewhere")


@test("TLS-01", "POL-01", "8.1", limit=90)
def a_hello_with_two_names_has_none(lab):
    b = Vaulted(lab)
    b.w.recorder.forget()
    two = [records(message(extra=server_name("api.test") + server_name("evil.test"))), records(message(extra=server_name("evil.test") + server_name("api.test"))),
           records(message(extra=server_name("api.test", "evil.test"))), records(message(extra=server_name("evil.test", "api.test"))),
           records(message("api.test", extra=extension(0, b""))), records(message("api.test", extra=extension(43, b"\x02\x03\x04"))),
           records(message(extra=extension(0, vector(2, b"\x01" + vector(2, b"api.test"))))), client_hello("api.test\0.evil.test"), client_hello("-" * 64 + ".test"),
           client_hello("api.test:443"), client_hello("*.api.test"), client_hello("\u00e4pi.test".encode()), client_hello("")]
    for data in two:
        for address in (GOOD, EVIL):
            c = b.w.keep(Wire(b.w.connect(address, 443)))
            c.offer(data)
            check(c.ending(12) in ("fin", "reset"), "still open:", data[60:])
            check(b"\x16\x03\x03" not in bytes(c.seen)[:3], "answered", data[60:])
    b.unseen()
    b.w.recorder.nothing_left("a connection", dst=[GOOD, EVIL], match=lambda f: f.dport == 443 and f.payload)


# ---- clear text where TLS is bound

@test("VLT-09", "9.4", "E18", limit=120)
def no_road_carries_an_https_credential_in_clear(lab):
    both = vault(binding(), binding("h", schemes=["http"], auth={"type": "bearer", "credential": "h"}), k=SECRET, h="HTTP-only-value")
    b = Vaulted(lab, PROXY_ADDR="127.0.0.1:3128", body=both)
    plain443 = b.w.keep(type(b.clear["api.test"])(GOOD, 8080, reflect))
    b.api.stop()
    o = b.w.keep(type(b.clear["api.test"])(GOOD, 443, reflect))         # speaks no TLS
    b.w.recorder.forget()
    c = b.w.client(3128)
    for target in ("http://api.test:443/v1/x", "http://api.test:8080/v1/x"):
        a = c.ask("GET", target, host=target.split("/")[2])
        equal((target, a.status, a.get("x-echo")), (target, 200, "-"))
    for target in ("https://api.test/v1/x", "ftp://api.test/v1/x", "wss://api.test/v1/x"):
        equal((target, b.w.client(3128).ask("GET", target, host="api.test").status), (target, 400))
    a = b.w.client(3128).ask("GET", "http://api.test/v1/x", host="api.test")
    equal(a.get("x-echo"), "[REDACTED]")
    equal(b.clear["api.test"].last.all("authorization"), ["Bearer HTTP-only-value"])
    for target, wanted in (("api.test:443", "-"), ("api.test:8080", "-"), ("api.test:80", "[REDACTED]")):
        t = b.w.keep(H1Client(b.tunnel(target), target))
        equal((target, t.ask("GET", "/v1/x").get("x-echo")), (target, wanted))
    t = b.w.keep(H1Client(b.w.connect(GOOD, 443), "api.test"))          # clear on the redirected port 443
    a = t.ask("GET", "/v1/x")
    check(a.get("x-echo") in ("-", None), a.raw)
    b.w.recorder.nothing_left("the https value in clear", holds=CLEAR)
    for w in (o, plain443):
        b.unseen("HTTP-only-value", SECRET, at=w)
    b.clear["api.test"].stop()
    p = b.serve(GOOD, "api.test", reflect, port=80)                     # TLS on port 80, and in a tunnel to it
    for sock in (None, b.tunnel("api.test:80")):
        with contextlib.suppress(OSError, Ended, Late):
            s = b.handshake("api.test", GOOD, ("http/1.1",), trust=None, port=80, sock=sock)
            b.w.keep(H1Client(s, "api.test")).ask("GET", "/v1/x")
    b.unseen("HTTP-only-value", SECRET, at=p)


# ---- changes in the middle of a beginning

@test("E14", "2", limit=120)
def a_host_that_becomes_bound_while_its_hello_comes_is_read(lab):
    b = Vaulted(lab, body=vault(k=SECRET), alpn=("http/1.1",))
    for cut in (1, 5, 60):
        c = context()
        came, goes, tls = greeting(c, "api.test")
        hello = goes.read()
        sock = b.w.connect(GOOD, 443)
        sock.settimeout(20)
        sock.sendall(hello[:cut])
        b.h1(trust=b.theirs).ask("GET", "/")        # by now the first piece has been looked at
        b.patch({"bindings": {"add": [binding()]}})
        sock.sendall(hello[cut:])
        drive(sock, came, goes, tls, tls.do_handshake)      # our authority is the only one it trusts
        drive(sock, came, goes, tls, lambda: tls.write(request("GET", "/v1/x", host="api.test")))
        text = b""
        while b"\r\n0\r\n" not in text:
            text += drive(sock, came, goes, tls, lambda: tls.read(65536))
        clean(text)
        injected(b)
        sock.close()
        b.unbind()


@test("E14", "2", limit=120)
def a_host_that_is_unbound_or_gone_while_the_origin_is_asked(lab):
    """The client offers h2, so that the origin is asked first; it takes its time."""
    b = Vaulted(lab)
    b.api.stop()
    hold = threading.Event()
    def slow(conn):
        hold.wait(20)
        conn.ending(1)
    o = b.w.origin(GOOD, 443, slow)
    for change in ("unbind", "delete", "patch"):
        hold.clear()
        done = []
        def go():
            try:
                done.append(b.handshake(alpn=BOTH, trust=None))
            except OSError as e:
                done.append(e)
        n = len(o.conns)
        t = threading.Thread(target=go, daemon=True)
        raw = b.w.connect(GOOD, 443)
        raw.close()
        t.start()
        wait_for(lambda: len(o.conns) > n, "the origin is asked", 20)
        if change == "unbind":
            b.unbind()
        elif change == "delete":
            equal(b.s.ask("DELETE", "/credential-vault").status, 204)
        else:
            b.replace("another-value-x")
        hold.set()
        t.join(30)
        check(done, "the handshake hangs after", change)
        if not isinstance(done[0], OSError):
            with contextlib.suppress(Ended, Late, OSError):
                c = b.w.keep(H1Client(done[0], "api.test"))
                if done[0].selected_alpn_protocol() != "h2":
                    c.ask("GET", "/v1/x")
        if change == "unbind":
            b.patch({"bindings": {"add": [binding()]}})
        elif change == "delete":
            b.post(vault(binding(), k=SECRET))
    equal(b.s.health()[0], 200)
    check(all(CLEAR not in bytes(x.seen) for x in o.conns if hasattr(x, "seen")), "in clear")


@test("E14", "E12", limit=180)
def under_binding_and_unbinding_no_connection_is_half_of_each(lab):
    """New connections all the time while a host becomes bound and unbound: each is either wholly its origin's or wholly ours,
    and after a change no old one lives on."""
    b = Vaulted(lab, body=vault(k=SECRET))

    with open(EXPORT, encoding="ascii") as f, open(b.theirs, encoding="ascii") as g:
        trust = tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False, dir=b.w.dir)
        trust.write(f.read() + g.read())
        trust.close()
    def once():
        try:
            sock = b.handshake(alpn=("http/1.1",), trust=trust.name)
            ours = is_ours(b, sock)
            c = H1Client(sock, "api.test")
            c.patience = 5
            a = c.ask("GET", "/v1/x", "Authorization: mine")
            c.close()
            return ours, a.status, a.get("x-echo")
        except (Ended, Late):
            return None
    loads = [Load(once), Load(once)]
    for _ in range(15):
        b.patch({"bindings": {"add": [binding()]}})
        a = b.h1().ask("GET", "/v1/x", "Authorization: mine")
        equal(a.get("x-echo"), "[REDACTED]", "right after it is bound")
        b.unbind()
        a = b.h1(trust=b.theirs).ask("GET", "/v1/x", "Authorization: mine")
        equal(a.get("x-echo"), "mine", "right after it is bound no more")
    seen = [v for load in loads for _, v in load.stop()]
    whole = [v for v in seen if isinstance(v, tuple)]
    odd = [v for v in whole if v not in ((True, 200, "[REDACTED]"), (True, 200, "mine"), (False, 200, "mine"))]
    equal(odd, [])
    check(len(whole) > 10, "connections", len(whole), seen[:5])


# ---- one version's text in another's fields

@test("POL-01", "15", limit=120)
def pseudo_fields_carry_no_second_request(lab):
    for alpn in (("http/1.1",), ("h2",)):
        b = Vaulted(lab, alpn=alpn)
        base = {":method": "GET", ":scheme": "https", ":authority": "api.test", ":path": "/v1/x"}
        for change in ({":path": "/v1/x HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /"}, {":path": "/v1/x HTTP/1.1"}, {":path": "v1/x"}, {":path": ""}, {":path": "*"},
                       {":path": "https://evil.test/v1/x"}, {":path": "//evil.test/v1/x"}, {":path": "/v1/x#frag"}, {":method": "GET /evil HTTP/1.1\r\nX:"},
                       {":method": "G ET"}, {":method": ""}, {":scheme": "http"}, {":scheme": "ftp"}, {":scheme": ""}, {":authority": "api.test\r\nX: 1"},
                       {":authority": "api.test "}, {":path": "/v1/\x7f"}, {":path": "/v1/\u00e9"}, {":path": "/v1/x\tHTTP/1.1"}):
            n = len(b.asked())
            c = b.h2()
            try:
                s = c.h2.open()
                s.head(list({**base, **change}.items()), end=True)
                a = H2Answer(s, 10)
                if a.status == 200:
                    q = b.api.last
                    check(q.authority == "api.test" and q.method == "GET" and " " not in q.target and "\r" not in q.target, change, q)
                    check(q.target in ("//evil.test/v1/x", "/v1/x", "/v1/x#frag", "/v1/\u00e9", "/v1/\u00c3\u00a9", "/v1/\x7f"), change, q)
                else:
                    check(a.status in (400, 421, 403), change, a.status)
                    equal(len(b.asked()), n, f"{change} at an origin")
            except Ended:
                equal(len(b.asked()), n, f"{change} at an origin")
        b.unseen(at=b.web["evil.test"])


@test("17", "VLT-11", limit=90)
def no_table_of_header_compression_learns_the_secret(lab):
    b = Vaulted(lab, alpn=("h2",), body=vault(binding(), binding("q", {"type": "passthrough", "substitutions": [
        {"credential": "q", "placeholder": "PH-9", "in": ["path", "query", "header"]}]}, paths=["/q/*"]), k=SECRET, q="value-in-a-path-77"))
    for c in b.clients():
        for _ in range(5):
            equal(c.ask("GET", "/v1/x").status, 200)
            injected(b)
            equal(c.ask("GET", "/q/PH-9?PH-9", "X-Some: PH-9").status, 200)
            equal(b.api.last.target, "/q/value-in-a-path-77?value-in-a-path-77")
    tables = [conn.h2.dec.header_table.dynamic_entries for conn in b.api.conns if hasattr(conn, "h2")]
    check(tables, "no connection of HTTP/2")
    for table in tables:
        check(SECRET not in repr(table) and "value-in-a-path" not in repr(table), table)


# ---- what one workload leaves for the next request

@test("9.4", "E12", limit=90)
def a_kept_connection_to_the_origin_is_no_way_around_the_name(lab):
    """Two bound names at one address with two certificates: no request of the one goes out on the connection of the other."""
    def names(q):
        return Said(200, "X-Conn: " + str(id(q.conn)), body=b"x")
    b = Vaulted(lab, handler=names, zone={"api2.test": {"A": [GOOD]}}, names=("api2.test",),
                rules={"defaultAction": "deny", "egress": [{"action": "allow", "target": t} for t in ("api.test", "api2.test", "other.test", "evil.test")]},
                body=vault(binding(), binding("two", {"type": "bearer", "credential": "m"}, hosts=["api2.test"]), k=SECRET, m="SECOND-value-api2"))
    b.learn("api2.test")
    seen = {}
    for _ in range(3):
        for name, value in (("api.test", SECRET), ("api2.test", "SECOND-value-api2")):
            for c in b.clients(name, address=GOOD):
                a = c.ask("GET", "/v1/x")
                equal(a.status, 200)
                injected(b, value)
                seen.setdefault(name, set()).add(a.get("x-conn"))
    check(not seen["api.test"] & seen["api2.test"], "one connection for two names", seen)
    check(len(seen["api.test"]) < 6, "connections are kept over clients", seen)


@test("8.1", "E12", limit=90)
def an_address_that_moves_is_followed_by_lease_not_by_name(lab):
    """The workload's own DNS answers count for nothing: a bound name dialled at an address that was leased to another name."""
    b = Vaulted(lab, zone={"mine.evil.test": {"A": [FREE]}}, rules={"defaultAction": "deny", "egress": [
        {"action": "allow", "target": t} for t in ("api.test", "evil.test", "*.evil.test", "other.test")]})
    b.learn("mine.evil.test")
    trap = b.w.keep(type(b.api)(FREE, 443, reflect, b.w.ca.server("api.test")))     # even with a certificate for the name
    for make in (b.h1, b.h2):
        try:
            a = make(address=FREE).ask("GET", "/v1/x")
            check(a.status in (421, 403, 502), a.status)
        except (OSError, Ended, Late):
            pass
    equal(trap.asked, [])
    n = len(trap.conns)
    b.patch({"credentials": {"add": [credential("z", "zzz-value")]}})
    equal(n, 0, "connections at somebody else's address")


