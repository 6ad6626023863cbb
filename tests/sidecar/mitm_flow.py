"""Interception as the two ends see it: whose certificate, which protocol, which hosts, and that nothing of it depends on how
the bytes arrive."""
import datetime
import os
import ssl
import subprocess
import time

from bench import allow, check, closed, deny, equal, test, wait_for
from hello import ACCESS_DENIED, alert, client_hello, extension, vector
from origins import echoes
from vaulted import (ADDRESSES, BOTH, EXPORT, FREE, GOOD, GOOD6, OTHER, SECRET, Vaulted, binding, clean, every, injected,
                     refused, vault)
from webs import H1Client, Said, reflect
from wire import Skipped, Wire, request

KEY_SHARE = 51


def is_ours(b, sock):
    """Is the certificate that this connection shows one of our authority's?"""
    try:
        from cryptography import x509
    except ImportError:
        raise Skipped("python3-cryptography is not installed") from None
    with open(EXPORT, "rb") as f:
        ca = x509.load_pem_x509_certificate(f.read())
    leaf = x509.load_der_x509_certificate(sock.getpeercert(True))
    return leaf.issuer == ca.subject


# ---- both versions, all pairs

@test("E16", "23", "VLT-01", limit=120)
def every_pair_of_protocols_carries_the_credential(lab):
    pairs = set()
    for b, c in every(lab):
        for path in ("/v1/x", "/v1/y?q=1"):
            a = c.ask("POST", path, "Authorization: Bearer fake", "X-Mine: 1", body=b"abc" * 1000)
            equal((a.status, a.end), (200, "whole"), path)
            clean(a)
            injected(b)
            q = b.api.last
            equal((q.method, q.target, q.authority, q.body, q.get("x-mine")), ("POST", path, "api.test", b"abc" * 1000, "1"))
            check(not {n.lower() for n, _ in q.fields} & {"via", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip"},
                  "a field of ours:", q)
            equal([v for n, v in a.trailers if n.lower() == "x-late"], ["[REDACTED]"])
        pairs.add((c.version, b.api.last.version))
        equal(c.ask("GET", "/v2/x", "Authorization: Bearer fake").get("x-echo"), "Bearer fake")
    equal(pairs, {(c, o) for c in ("h1", "h2") for o in ("HTTP/1.1", "HTTP/2")}, "pairs seen")


@test("TLS-11", "E16", limit=120)
def the_client_gets_what_the_origin_speaks_out_of_its_list(lab):
    for speaks, table in ((("http/1.1",), {BOTH: "http/1.1", ("h2",): "h2", ("http/1.1",): "http/1.1", (): None,
                                           ("http/1.1", "h2"): "http/1.1"}),
                          (BOTH, {BOTH: "h2", ("h2",): "h2", ("http/1.1",): "http/1.1", (): None, ("foo", "http/1.1"): "http/1.1"}),
                          (("h2",), {BOTH: "h2", ("h2",): "h2", ("http/1.1",): "http/1.1", (): None})):
        b = Vaulted(lab, alpn=speaks)
        for offers, chosen in table.items():
            sock = b.handshake(alpn=offers)
            equal(sock.selected_alpn_protocol(), chosen, f"origin {speaks}, client {offers}")
            if chosen != "h2":
                a = b.w.keep(H1Client(sock, "api.test")).ask("GET", "/v1/x")
                equal(a.status, 200, f"origin {speaks}, client {offers}")
                injected(b)
        for offers in (("acme-tls/1",), ("foo", "bar")):
            try:
                b.handshake(alpn=offers)
                check(False, offers, "was answered")
            except ssl.SSLError as e:
                check("no application protocol" in str(e).lower(), e)
        for offers in (BOTH, speaks):
            sock = b.handshake("other.test", alpn=offers, trust=b.theirs)
            check(sock.selected_alpn_protocol() in (*speaks, None), "relayed:", sock.selected_alpn_protocol())


# ---- how the bytes arrive

def greeting(context, name):
    """(BIO in, BIO out, the TLS object) with its ClientHello written."""
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(came, goes, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return came, goes, tls


def drive(sock, came, goes, tls, run):
    """Runs a call of the TLS object until it is through, over the socket."""
    while True:
        try:
            value = run()
            sock.sendall(goes.read())
            return value
        except ssl.SSLWantReadError:
            sock.sendall(goes.read())
            data = sock.recv(65536)
            check(data, "the connection ended")
            came.write(data)


def spoken(sock, first, pause, context, name, cut):
    """A request over TLS whose hello goes out in pieces (bytes at which it is cut); cut(hello) may frame it anew."""
    came, goes, tls = greeting(context, name)
    hello = cut(goes.read())
    sock.settimeout(20)
    for part in first(hello):
        sock.sendall(part)
        time.sleep(pause)
    drive(sock, came, goes, tls, tls.do_handshake)
    drive(sock, came, goes, tls, lambda: tls.write(request("GET", "/v1/x", host=name)))
    text = b""
    while b"\r\n0\r\n" not in text:
        text += drive(sock, came, goes, tls, lambda: tls.read(65536))
    return text


def reframed(most):
    def cut(hello):
        body, at = hello[5:], 0
        check(len(body) == int.from_bytes(hello[3:5], "big"), "one record")
        out = b""
        while at < len(body):
            part = body[at:at + most]
            out += b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
            at += len(part)
        return out
    return cut


@test("TLS-01", limit=180)
def a_hello_is_a_stream_however_it_is_cut(lab):
    b = Vaulted(lab, alpn=("http/1.1",))
    def context():
        c = ssl.create_default_context(cafile=EXPORT)
        c.set_alpn_protocols([f"x-protocol-that-nobody-knows-{i:04}" for i in range(60)] + ["http/1.1"])   # 1.9 kB and more
        return c
    def at(*places):
        return lambda data: [data[i:j] for i, j in zip((0, *places), (*places, len(data)))]
    cuts = [at(n) for n in (1, 5, 6, 43, 44, 200, 1460)] + [at(), at(1, 2, 3, 4, 5, 6), lambda d: [bytes([x]) for x in d[:300]] + [d[300:]]]
    for first in cuts:
        text = spoken(b.w.connect(GOOD, 443), first, 0.002, context(), "api.test", lambda h: h)
        check(text.startswith(b"HTTP/1.1 200"), text[:200])
        clean(text)
    for most in (1, 3, 40, 700):
        text = spoken(b.w.connect(GOOD, 443), at(), 0, context(), "api.test", reframed(most))
        check(text.startswith(b"HTTP/1.1 200"), most, text[:200])
    injected(b)


@test("TLS-01", "TLS-08", limit=120)
def what_is_no_hello_or_never_one_is_ended(lab):
    b = Vaulted(lab, FIRST_BYTES_TIMEOUT="2")
    whole = client_hello("api.test", padding=4000)
    for data in (whole[:-1], whole[:6], b"\x16", b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\xff\xff" + b"a" * 100,
                 client_hello("api.test.."), client_hello("a b.test"), client_hello(b"api\x00.test")):
        c = b.w.keep(Wire(b.w.connect(GOOD, 443)))
        c.offer(data)
        check(c.ending(12) in ("fin", "reset"), "still open:", data[:20])
    b.w.recorder.nothing_left("something", match=lambda f: f.dport == 443)


@test("TLS-08", limit=120)
def what_speaks_no_tls_on_443_gets_no_credential(lab):
    b = Vaulted(lab, FIRST_BYTES_TIMEOUT="2", body=vault(binding(), binding("c", schemes=["http"]), k=SECRET))
    old = b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"     # a hello of SSL 2
    for data in (b"SSH-2.0-x\r\n", old, request("GET", "/v1/x", host="api.test"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        c = b.w.keep(Wire(b.w.connect(GOOD, 443)))
        c.offer(data)
        c.ending(6)
        clean(bytes(c.seen))
    b.unseen()
    c = b.w.keep(Wire(b.w.connect(GOOD, 80)))
    c.offer(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    c.ending(6)
    b.w.recorder.nothing_left("the secret in clear", holds=SECRET.encode())


@test("TLS-08", limit=60)
def tls_on_port_80_is_never_credentialed(lab):
    b = Vaulted(lab, body=vault(binding(schemes=["http", "https"]), k=SECRET))
    b.clear["api.test"].stop()
    o = b.serve(GOOD, "api.test", reflect, port=80)
    sock = b.handshake("api.test", GOOD, ("http/1.1",), trust=None, port=80)
    check(not is_ours(b, sock), "read on port 80")
    equal(b.w.keep(H1Client(sock, "api.test")).ask("GET", "/v1/x").get("x-echo"), "-")
    b.unseen(at=o)


# ---- leaves

@test("TLS-02", limit=120)
def leaves_pass_the_strictest_reader(lab):
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID
    except ImportError:
        raise Skipped("python3-cryptography is not installed") from None
    long = ".".join(["a" * 60] * 3) + ".api.test"
    b = Vaulted(lab, body=vault(binding(hosts=["api.test", "*.api.test"]), k=SECRET), names=(long,), zone={long: {"A": [GOOD]}, "x.api.test": {"A": [GOOD]}})
    b.learn(long, "x.api.test")
    with open(EXPORT, "rb") as f:
        ca = x509.load_pem_x509_certificate(f.read())
    check(ca.extensions.get_extension_for_oid(ExtensionOID.BASIC_CONSTRAINTS).critical, "basic constraints")
    check(ca.extensions.get_extension_for_oid(ExtensionOID.KEY_USAGE).critical, "key usage")
    ca_id = ca.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_KEY_IDENTIFIER).value.digest
    serials = set()
    for name in ("api.test", "x.api.test", long):
        strict = ssl.create_default_context(cafile=EXPORT)
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        sock = b.handshake(name, GOOD, ("http/1.1",), context=strict)
        der = sock.getpeercert(True)
        leaf = x509.load_der_x509_certificate(der)
        pem = b.w.write(f"leaf-{len(serials)}.pem", leaf.public_bytes(serialization.Encoding.PEM).decode())
        done = subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", EXPORT, pem], capture_output=True,
                              text=True, check=False)
        equal(done.returncode, 0, f"openssl verify: {done.stdout}{done.stderr}")
        found = leaf.extensions.get_extension_for_oid
        equal([n.value for n in found(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value], [name], "names")
        equal(list(found(ExtensionOID.EXTENDED_KEY_USAGE).value), [ExtendedKeyUsageOID.SERVER_AUTH])
        equal(found(ExtensionOID.AUTHORITY_KEY_IDENTIFIER).value.key_identifier, ca_id)
        check(leaf.serial_number > 0 and leaf.serial_number not in serials, "serial")
        serials.add(leaf.serial_number)
        now = time.time()
        begins, ends = ((t - datetime.datetime(1970, 1, 1)).total_seconds() for t in (leaf.not_valid_before, leaf.not_valid_after))
        check(now - 2 * 86400 < begins <= now - 86400 + 3600 and ends - begins < 398 * 86400, begins, ends)
        check(all(len(a.value) <= 64 for a in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), leaf.subject)
        check(leaf.public_key().public_numbers() != ca.public_key().public_numbers(), "the authority's own key")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            only = ssl.create_default_context(cafile=EXPORT)
            only.minimum_version = only.maximum_version = version
            equal(b.h1(name, GOOD, context=only).ask("GET", "/v1/x").status, 200, f"{name} {version}")


@test("TLS-09", "19.1", limit=60)
def the_export_is_whole_before_anything_is_intercepted(lab):
    def stale(w):
        for name, text in (("mitmproxy-ca-cert.pem", "old"), ("other", "mine")):
            with open(os.path.join("/opt/opensandbox", name), "w", encoding="ascii") as f:
                f.write(text)
    b = Vaulted(lab, before=stale)
    equal(os.stat(EXPORT).st_mode & 0o7777, 0o644)
    with open(EXPORT, encoding="ascii") as f:
        text = f.read()
    check("BEGIN CERTIFICATE" in text and "PRIVATE" not in text, text[:60])
    with open("/opt/opensandbox/other", encoding="ascii") as f:
        equal(f.read(), "mine")
    equal(sorted(os.listdir("/opt/opensandbox")), ["mitmproxy-ca-cert.pem", "other"])
    equal(os.stat(os.path.join(b.w.dir, "authority", ".mitmproxy", "mitmproxy-ca.pem")).st_mode & 0o77, 0, "the key's mode")
    b.s.stop()
    before = text
    b.s.begin()
    with open(EXPORT, encoding="ascii") as f:
        equal(f.read(), before, "after another start")


# ---- which hosts

@test("TLS-06", "E11", "E14", limit=120)
def only_bound_hosts_are_looked_into(lab):
    def config(w):
        os.makedirs(os.path.join(w.dir, "authority", ".mitmproxy"), exist_ok=True)
        w.write("authority/.mitmproxy/config.yaml", "ignore_hosts:\n  - '^evil\\.test'  # kept closed\n")
    b = Vaulted(lab, before=config)
    check(is_ours(b, b.handshake("api.test")), "api.test is bound")
    for name in ("other.test", "evil.test"):
        check(not is_ours(b, b.handshake(name, trust=b.theirs)), name, "is not bound")
    a = b.s.ask("PATCH", "/credential-vault", {"bindings": {"add": [binding("c", hosts=["evil.test"])]}})
    equal(a.status, 400)
    check('binding "c" host "evil.test" matches mitmproxy ignore_hosts' in a.text, a.text)
    kept = b.h1("other.test", trust=b.theirs)
    equal(kept.ask("GET", "/v1/x").get("x-echo"), "-")
    b.patch({"bindings": {"add": [binding("d", hosts=["other.test"])]}})
    check(kept.ending(10) in ("fin", "reset"), "the relayed connection to what is bound now")
    ours = b.h1("other.test")
    equal(ours.ask("GET", "/v1/x").get("x-echo"), "[REDACTED]")
    injected(b, web=b.web["other.test"])
    b.unbind("d")
    ours.ending(10)
    check(not is_ours(b, b.handshake("other.test", trust=b.theirs)), "not bound any more")


@test("TLS-06", "E11", limit=90)
def scope_all_reads_every_host_and_credentials_only_the_bound(lab):
    b = Vaulted(lab, MITM_SCOPE="all")
    for name in ADDRESSES:
        check(is_ours(b, b.handshake(name)), name)
    for c in b.clients("other.test"):
        a = c.ask("GET", "/v1/x", "Authorization: Bearer fake")
        equal((a.status, a.get("x-echo")), (200, "Bearer fake"))
        refused(c.ask("GET", "/v1/x", host="api.test"), 421, "request authority does not match")
    b.unseen()


@test("VLT-01", "8.1", limit=90)
def without_a_name_tls_is_relayed_and_bare(lab):
    b = Vaulted(lab)
    for name in (None, GOOD):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        sock = c.wrap_socket(b.w.connect(GOOD, 443), server_hostname=name)
        check(not is_ours(b, sock), "ours without a name", name)
        a = b.w.keep(H1Client(sock, "api.test")).ask("GET", "/v1/x", "Authorization: fake")
        equal(a.get("x-echo"), "fake")
    b.unseen()
    for data in (client_hello(), client_hello(FREE)):
        c = b.w.keep(Wire(b.w.connect(FREE, 443)))
        c.offer(data)
        check(c.ending(10) in ("fin", "reset"), "an address nobody has learned")
    b.w.recorder.nothing_left("a connection", dst=FREE)


@test("8.1", limit=60)
def an_encrypted_hello_counts_by_its_outer_name(lab):
    b = Vaulted(lab)
    b.web["other.test"].stop()
    o = b.w.origin(OTHER, 443, echoes)
    share = extension(KEY_SHARE, vector(2, b"\0\x1d" + vector(2, b"\x09" + bytes(31))))
    c = b.w.keep(Wire(b.w.connect(GOOD, 443)))
    c.send(client_hello("api.test", ech=True, extra=share))
    equal(c.exact(6, 10)[5:], b"\x02", "ServerHello: we answer as the server")
    c = b.w.keep(Wire(b.w.connect(OTHER, 443)))
    data = client_hello("other.test", ech=True)
    c.send(data)
    equal(c.exact(len(data), 10), data, "relayed")
    equal(len(o.conns), 1)


@test("8.1", "POL-01", limit=90)
def a_denied_name_is_closed_or_if_bound_told_403(lab):
    b = Vaulted(lab)
    n = len(b.api.conns)
    b.w.rule_file("deny", "api.test\n")
    wait_for(lambda: b.w.ask("api.test").denied, "the rule holds", 20)
    for c in b.clients():
        refused(c.ask("GET", "/v1/x"), 403, "host denied by egress policy")
    equal(len(b.api.conns), n, "connections at the origin")
    c = b.w.keep(Wire(b.w.connect(GOOD, 443)))
    c.send(client_hello("no.test"))
    c.ending(10)
    equal(alert(bytes(c.seen)), ACCESS_DENIED)


@test("23", "E17", limit=90)
def ipv6_is_intercepted_like_ipv4(lab):
    b = Vaulted(lab, families={"v6": True})
    six = b.serve(GOOD6, "api.test", reflect)
    for c in b.clients(address=GOOD6):
        a = c.ask("GET", "/v1/x")
        equal(a.status, 200)
        clean(a)
        injected(b, web=six)
    equal(b.api.asked, [])


@test("VLT-01", "8.1", limit=60)
def an_address_that_nobody_gave_out_for_the_name_is_not_dialled(lab):
    b = Vaulted(lab)
    b.w.recorder.forget()
    try:
        for c in (b.h1(address=FREE), b.h1(address=OTHER)):
            c.ask("GET", "/v1/x")
        check(False, "a bound name at an address of somebody else was answered")
    except Exception as e:
        check(not isinstance(e, AssertionError) and "was answered" not in str(e), e)
    b.unseen()
    b.w.recorder.nothing_left("a connection", dst=FREE)


@test("8.1", "9.4", limit=60)
def other_ports_are_relayed_and_never_credentialed(lab):
    b = Vaulted(lab, MITMPROXY_EXTRA_PORTS="8443", body=vault(binding(paths=["/*"]), k=SECRET))
    o = b.serve(GOOD, "api.test", reflect, port=8443)
    sock = b.handshake("api.test", alpn=("http/1.1",), trust=b.theirs, port=8443)
    check(not is_ours(b, sock), "port 8443 is read")
    b.w.keep(H1Client(sock, "api.test")).ask("GET", "/v1/x")
    b.unseen(at=o)


@test("TLS-12", "23", limit=90)
def a_websocket_gets_the_credential_in_its_handshake_alone(lab):
    frames = b"\x81\x05hello" + SECRET.encode()
    def script(q):
        q.conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Echo: "
                    + q.get("authorization", "-").encode() + b"\r\n\r\n" + frames)
        while True:
            q.conn.more(60)
            data, q.conn.buf = q.conn.buf, b""
            q.conn.send(data)
    for alpn in (BOTH, ("http/1.1",)):
        b = Vaulted(lab, handler=script, alpn=alpn)
        c = b.h1()
        c.send(request("GET", "/v1/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                       "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", host="api.test"))
        a = c.head()
        equal((a.status, a.get("x-echo")), (101, "[REDACTED]"))
        injected(b)
        equal(c.exact(len(frames)), frames, "frames pass as they are")
        for data in (b"\x81\x85abcdhello", b"x" * 200000):
            c.send(data)
            equal(c.exact(len(data), 20), data)


@test("23", "STR-01", limit=90)
def a_bidirectional_call_with_trailers_goes_through(lab):
    def call(q):
        s = q.stream
        s.head([(":status", "200"), ("content-type", "application/grpc")])
        while (part := s.take(within=30)):
            s.send(b"re:" + part)
        s.head([("grpc-status", "0"), ("grpc-message", q.get("authorization", "-"))], end=True)
    b = Vaulted(lab, handler=call, eager=True)
    c = b.h2()
    s = c.open("POST", "/v1/call", "Content-Type: application/grpc", "TE: trailers", end=False)
    for i in range(20):
        s.send(b"message %d" % i)
        want = b"re:message %d" % i
        got = b""
        while len(got) < len(want):
            got += s.take(within=20)
        equal(got, want)
    s.send(b"", end=True)
    equal(s.read(20), b"")
    equal(dict(s.heads[-1]), {"grpc-status": "0", "grpc-message": "[REDACTED]"})
    injected(b)
    equal(b.api.last.get("te"), "trailers")


@test("14.4", "E17", limit=60)
def hints_to_other_roads_are_taken_out(lab):
    b = Vaulted(lab, handler=lambda q: Said(200, 'Alt-Svc: h3=":443"; ma=86400', "Alt-Svc: clear", "X-Stays: 1", body=b"x"))
    for c in b.clients():
        a = c.ask("GET", "/anything")
        equal((a.all("alt-svc"), a.get("x-stays")), ([], "1"))
    a = b.h1("other.test", trust=b.theirs).ask("GET", "/")
    equal(len(a.all("alt-svc")), 2)


@test("8.2", "RULES", limit=60)
def rules_of_the_policy_hold_inside_the_tunnel_too(lab):
    b = Vaulted(lab, rules=closed(allow("api.test"), allow("other.test")), MITM_SCOPE="all", learn=False)
    b.learn("api.test", "other.test")
    c = b.h1()
    equal(c.ask("GET", "/v1/x").status, 200)
    b.s.patch([deny("other.test")])
    refused(c.ask("GET", "/v1/x", host="other.test"), 421)
    equal(c.ask("GET", "/v1/x").status, 200, "the connection stays usable")


@test("15", "E10", "E11", limit=90)
def no_user_of_the_sandbox_is_left_out(lab):
    b = Vaulted(lab)
    for uid in (0, 10042, 1000, 65534):
        sock = b.handshake(sock=b.w.connect(GOOD, 443, uid=uid), alpn=("http/1.1",))
        equal(b.w.keep(H1Client(sock, "api.test")).ask("GET", "/v1/x").status, 200, f"uid {uid}")
        injected(b)
    for ip in ("127.0.0.1", "::1") if 6 in b.w.families else ("127.0.0.1",):
        with b.w.inside():
            try:
                c = b.w.keep(Wire(b.w.connect(ip, 18081)))
            except OSError:
                continue
        c.offer(client_hello("api.test"))
        check(c.ending(15) in ("fin", "reset"), "the listener itself is no way in")
        check(b"\x16\x03\x03" != bytes(c.seen)[:3], "it answers as api.test")


@test("14.4", "E17", limit=90)
def udp_443_to_what_is_bound_is_dropped_from_the_change_on(lab):
    b = Vaulted(lab)
    b.w.everywhere(udp=[443])
    def passes(ip):
        try:
            return b.w.udp(ip, 443, b"quic?") == b"quic?"
        except OSError:
            return False
    wait_for(lambda: passes(OTHER), "what is allowed and not bound", 10)
    check(not passes(GOOD), "UDP to the bound host")
    b.patch({"bindings": {"add": [binding("o", hosts=["other.test"])]}})
    check(not passes(OTHER), "UDP to a host that is bound now")
    b.w.recorder.forget()
    passes(OTHER), passes(GOOD)
    b.w.recorder.nothing_left("a datagram", proto="udp", dport=443)
    b.unbind("o")
    wait_for(lambda: passes(OTHER), "bound no more", 10)
