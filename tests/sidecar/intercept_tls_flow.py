"""TLS that is read, towards all kinds of clients and origins: versions, families, ways, and certificates that prove nothing."""
import os
import random
import socket
import ssl
import struct
import subprocess
import time

from bench import check, equal, test
from bound import EXPORT, GOOD, SECRET, ZONE, Bound, bearer, clean, reflect, servers, vault


def h2_alone(w):
    """nghttpd at api.test, which speaks nothing but HTTP/2; its folder has one file."""
    cert, key = w.ca.certificate("api.test")
    folder = os.path.join(w.dir, "pages", "v1")
    os.makedirs(folder)
    with open(os.path.join(folder, "x"), "w", encoding="ascii") as f:
        f.write("a page of " + SECRET + "\n")
    w.popen(["nghttpd", "-a", GOOD, "-d", os.path.dirname(folder), "443", key, cert], who="admin", place="outside",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@test("TLS-05", "E16", limit=120)
def all_versions_of_clients_and_origins_work_together(lab):
    for how in ({"h2": True}, {"h2": False}, {"prepare": h2_alone}):
        b = Bound(lab, **how)
        for words in (("--http1.1",), ("--http2",)):
            if "prepare" in how and "--http1.1" in words:
                continue  # would not work without us either: nothing is in common
            head, body = b.curl("https://api.test/v1/x", *words)
            check(" 200" in head.splitlines()[0] and "*" * len(SECRET) in body, how, words, head, body)
            clean(head, body)
        code, out, err = b.w.run("nghttp", "-v", "https://api.test/v1/x")
        check(code == 0 and ":status: 200" in out and "*" * len(SECRET) in out, how, out[-2000:], err)
        clean(out)


@test("E17", limit=90)
def both_families_are_read(lab):
    b = Bound(lab)
    for number in ("-4", "-6"):
        head, body = b.curl("https://api.test/v1/x", number)
        check("x-echo: [redacted]" in head, head, body)


@test("E11", limit=90)
def with_scope_all_every_host_is_read_and_only_bound_ones_get_a_credential(lab):
    b = Bound(lab, MITM_SCOPE="all")
    head, body = b.curl("https://other.test/v1/x", "-H", "Authorization: mine")
    check("[mine]" in body and "x-echo: mine" in head and "alt-svc" not in head, head, body)
    head, body = b.curl("https://api.test/v1/x")
    check("x-echo: [redacted]" in head, head)


@test("vault 15", limit=90)
def what_is_passed_by_configuration_is_not_read(lab):
    def passes(w):
        folder = os.path.join(w.dir, "authority", ".mitmproxy")
        os.makedirs(folder)
        with open(os.path.join(folder, "config.yaml"), "w", encoding="ascii") as f:
            f.write("ignore_hosts:\n  - '^other\\.test:443$'\n")
        servers(w, True)
    b = Bound(lab, prepare=passes, MITM_SCOPE="all")
    head, _ = b.curl("https://other.test/v1/x", ours=False)
    check("alt-svc" in head, head)
    head, _ = b.curl("https://evil.test/v1/x")
    check("alt-svc" not in head, head)


@test("B2", "vault 18.3", limit=90)
def what_cannot_be_read_at_the_start_ends_it_with_one_line(lab):
    for name, text, mode, words in (("config.yaml", "stream_large_bodies: lots\n", 0o644, "config.yaml"),
                                    ("mitmproxy-ca.pem", "no key\n", 0o600, "mitmproxy-ca.pem"),
                                    ("mitmproxy-ca.pem", "no key\n", 0o644, "group or others")):
        w = lab.world()
        folder = os.path.join(w.dir, "authority", ".mitmproxy")
        os.makedirs(folder)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)
        w.nameserver(ZONE)
        s = w.sidecar(MODE="dns+nft", MITMPROXY_TRANSPARENT="true", healthy=False)
        s.expect_exit = s.exit()
        check(s.expect_exit in (1, 2), s.expect_exit)
        equal(len(s.stderr().strip().splitlines()), 1, s.stderr())
        check(words in s.stderr(), s.stderr())


@test("TLS-03", limit=90)
def a_certificate_of_our_own_authority_proves_nobody(lab):
    def ours(w):
        folder = os.path.join(w.dir, "authority", ".mitmproxy")
        os.makedirs(folder)
        with open(os.path.join(folder, "mitmproxy-ca.pem"), "w", encoding="ascii") as f:
            os.chmod(f.name, 0o600)
            for name in ("ca.key", "ca.pem"):
                with open(os.path.join(w.dir, name), encoding="ascii") as part:
                    f.write(part.read())
        origins.append(w.origin(GOOD, 443, reflect, w.ca.server("api.test", alpn=["http/1.1"])))
    origins = []
    b = Bound(lab, prepare=ours)
    head, body = b.curl("https://api.test/v1/x", "-4")  # the origin has that address only
    check(" 502" in head.splitlines()[0] and "certificate" in body and "own" in body, head, body)
    equal(origins[0].requests, [])


@test("vault 15", "TLS-07", limit=90)
def through_a_parent_the_name_is_asked_for_and_tls_goes_inside(lab):
    seen, inner = [], []

    def parent(w):
        context = w.ca.server("api.test", alpn=["http/1.1"])

        def script(conn):
            seen.append(conn.head())
            conn.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            conn.sock = context.wrap_socket(conn.sock, server_side=True)
            inner.append(conn)
            reflect(conn)
        w.origin("198.51.100.40", 3129, script)
        w.nameserver({**ZONE, "proxy.test": {"A": ["198.51.100.40"]}}, address="198.51.100.54")
    b = Bound(lab, prepare=parent, UPSTREAM_PROXY="http://198.51.100.40:3129", UPSTREAM_PROXY_AUTH="Basic c2VjcmV0")
    b.learn()
    c = b.tls()
    r = c.ask("GET", "/v1/x", host="api.test")
    equal((r.status, r.get("x-echo")), (200, "[REDACTED]"))
    equal([(q.line, q.get("proxy-authorization"), q.has("authorization")) for q in seen],
          [("CONNECT api.test:443 HTTP/1.1", "Basic c2VjcmV0", False)])
    q = inner[0].backend.requests[-1]
    equal((q.get("authorization"), q.has("proxy-authorization")), ("Bearer " + SECRET, False))


@test("TLS-05", "19.5", limit=90)
def whoever_does_not_go_on_is_waited_for_no_longer_than_stated(lab):
    b = Bound(lab, prepare=lambda w: w.origin(GOOD, 443, lambda conn: time.sleep(3600)), FIRST_BYTES_TIMEOUT="2", CONNECT_TIMEOUT="2")
    b.learn()
    head, body = b.curl("https://api.test/v1/x", "-4")
    check(head.startswith("http/2 504") and body.startswith("no connection in time"), head, body)
    sock = b.w.connect(GOOD, 443)
    sock.settimeout(20)
    answers, says = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(answers, says, server_hostname="api.test").do_handshake()
    except ssl.SSLWantReadError:
        sock.sendall(says.read())
    check(sock.recv(65536)[:1] == b"\x16", "no ServerHello came")
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass


@test("TLS-05", "CHAOS", limit=120)
def clients_that_leave_at_any_moment_do_no_harm(lab):
    def slow(conn):
        time.sleep(0.05)
        reflect(conn)
    b = Bound(lab, script=slow, FIRST_BYTES_TIMEOUT="1", CONNECT_TIMEOUT="2", DRAIN_TIMEOUT="2")
    b.learn()
    context = ssl.create_default_context(cafile=EXPORT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    state = random.Random(7)
    for i in range(150):
        sock = b.w.connect(GOOD, 443)
        sock.settimeout(state.choice([0.001, 0.01, 0.03, 0.1, 0.3]))
        try:
            tls = context.wrap_socket(sock, server_hostname="api.test", do_handshake_on_connect=False)
            tls.do_handshake()
            tls.sendall(b"GET /v1/chunks HTTP/1.1\r\nHost: api.test\r\n\r\n")
            tls.recv(state.choice([1, 100, 1000]))
            sock = tls
        except OSError:
            sock = tls
        if state.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        if i % 15 == 7:
            equal(b.s.ask("DELETE", "/credential-vault").status, 204)
            b.post(vault(bearer(), k=SECRET))
    b.origin.stop()
    for _ in range(5):
        b.w.connect(GOOD, 443).close()
    b.s.stop()
