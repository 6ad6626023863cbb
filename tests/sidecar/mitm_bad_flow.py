"""Origins that do not prove who they are, or want proof from us, and parents in between: nothing of a request, and no
credential, reaches a peer that is not the bound host."""
import os
import socket
import ssl
import subprocess
import threading

from badcerts import Signer, context, pem, signs
from bench import check, equal, test
from vaulted import BOTH, EXPORT, GOOD, SECRET, Vaulted, authority_folder, binding, clean, injected, refused, vault
from webs import H1Client, Shared, Web, reflect

PARENT = "198.51.100.40"


def signer(w):
    return Signer.load(w.ca.file, os.path.join(w.dir, "ca.key"))


def bad_ones(w):
    """name: (server context, words that the refusal should hold)."""
    root = signer(w)
    def chain(*certs, key, **how):
        return context(w.dir, key, *certs, **how)
    def leaf(names=("api.test",), by=root, security=None, **how):
        cert, key = by.issue(list(names), **how)
        return chain(cert, key=key, security=security)
    middle, middle_key = root.issue([], ca=True, common="middle")
    below, below_key = Signer(middle, middle_key).issue(["api.test"])
    other, other_key = Signer().issue([], ca=True, common="another authority")
    noca, noca_key = root.issue(["noca.test"], common="no authority")
    under, under_key = Signer(noca, noca_key).issue(["api.test"])
    return {
        "expired": (leaf(days=(-20, -1)), ("expired",)),
        "not yet valid": (leaf(days=(5, 20)), ("valid",)),
        "another host": (leaf(["evil.test"]), ("host",)),
        "a name that only begins the same": (leaf(["api.test.evil.test", "xapi.test", "*.api.test"]), ("host",)),
        "the name in CN alone": (leaf([], common="api.test"), ("host",)),
        "a wildcard over a whole zone": (leaf(["*.test", "*"]), None),
        "self-signed": (leaf(by=Signer()), ("self-signed",)),
        "unknown authority": (leaf(by=Signer(other, other_key)), ("issuer",)),
        "no intermediate": (chain(below, key=below_key), ("issuer",)),
        "signed by no authority": (chain(under, noca, key=under_key), ()),
        "for clients alone": (leaf(usage="client"), ("server",)),
        **({"SHA-1": (leaf(digest="SHA1", security=0), ())} if signs("SHA1") else {}),
    }


@test("TLS-03", "23", "E12", limit=240)
def a_certificate_that_proves_nothing_gets_no_byte(lab):
    b = Vaulted(lab)
    b.api.stop()
    for what, (tls, words) in bad_ones(b.w).items():
        if words is None:
            continue            # a wildcard is one's own to trust; see below
        for speaks in (BOTH, ("http/1.1",)):
            tls.set_alpn_protocols(list(speaks))
            o = b.w.keep(Web(GOOD, 443, reflect, tls))
            for c in b.clients():
                a = c.ask("GET", "/v1/x", "Authorization: Bearer fake")
                refused(a, 502)
                check(all(w in a.text.lower() for w in words), what, a.text)
                check("<" not in a.text and a.text.count("\n") == 1, "one line:", a.text)
                a = c.ask("POST", "/v1/x", body=b"x" * 100)
                refused(a, 502)
            equal(o.asked, [], what)
            equal([bytes(x.seen) for x in o.conns if hasattr(x, "seen") and x.seen and not x.seen.startswith(b"PRI")], [], what)
            o.stop()
    b.unseen()
    equal([line for line in b.s.log() if line.get("decision") == "injected"], [], "said to be injected")


@test("TLS-03", limit=90)
def a_good_chain_is_taken_also_where_another_root_crosses_it(lab):
    b = Vaulted(lab)
    b.api.stop()
    root = signer(b.w)
    middle, middle_key = root.issue([], ca=True, common="middle")
    unknown, unknown_key = Signer().issue([], ca=True, common="unknown root")
    crossed, _ = Signer(unknown, unknown_key).issue([], ca=True, common="test authority", key=root.key)
    cert, key = Signer(middle, middle_key).issue(["api.test"])
    for chain in ((cert, middle), (cert, middle, crossed), (cert, middle, crossed, unknown), (cert, crossed, middle)):
        o = b.w.keep(Web(GOOD, 443, reflect, context(b.w.dir, key, *chain)))
        for c in b.clients():
            a = c.ask("GET", "/v1/x")
            equal(a.status, 200, f"chain of {len(chain)}: {a.text}")
        injected(b, web=o)
        o.close()


@test("TLS-03", "TLS-01", "23", limit=120)
def our_own_authority_proves_no_origin(lab):
    """Not even where it stands among the roots: a workload that had its key would own the bound hosts."""
    b = Vaulted(lab)
    b.api.stop()
    folder = authority_folder(b.w)
    ours = Signer.load(EXPORT, os.path.join(folder, "mitmproxy-ca.pem"))
    b.s.stop()
    with open(b.w.ca.file, "a", encoding="ascii") as f:
        f.write(pem(ours.cert).decode())
    os.makedirs(os.path.join(b.w.dir, "certs"), exist_ok=True)
    b.w.write("certs/ours.pem", pem(ours.cert).decode())
    subprocess.run(["openssl", "rehash", os.path.join(b.w.dir, "certs")], check=False, capture_output=True)
    b.s.begin()
    b.post(vault(binding(), k=SECRET))
    b.learn()
    middle, middle_key = ours.issue([], ca=True, common="below ours")
    for cert, key, rest in ((*ours.issue(["api.test"]), ()), (*Signer(middle, middle_key).issue(["api.test"]), (middle,))):
        for chain in ((cert, *rest), (cert, *rest, ours.cert)):
            o = b.w.keep(Web(GOOD, 443, reflect, context(b.w.dir, key, *chain)))
            for c in b.clients():
                refused(c.ask("GET", "/v1/x"), 502)
            equal(o.asked, [])
            o.stop()
    o = b.serve(GOOD, "api.test", reflect)
    equal(b.h1().ask("GET", "/v1/x").status, 200)
    injected(b, web=o)


@test("TLS-03", "3.4", limit=60)
def without_verification_there_is_no_vault(lab):
    b = Vaulted(lab, body=False, MITMPROXY_SSL_INSECURE="true")
    a = b.post(vault(binding(), k=SECRET), 412)
    equal(a.text, "credential vault rejects insecure upstream TLS mode\n")


# ---- origins that want a certificate of ours

@test("TLS-07", limit=120)
def an_origin_may_ask_for_a_client_certificate_but_not_insist(lab):
    b = Vaulted(lab)
    mine, mine_key = signer(b.w).issue([], usage="client", common="me")
    b.api.stop()
    b.web["other.test"].stop()
    for need, version in ((ssl.CERT_OPTIONAL, None), (ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_3), (ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2)):
        for alpn in (BOTH, ("http/1.1",)):
            tls, theirs = b.w.ca.server("api.test", alpn=alpn), b.w.ca.server("other.test", alpn=alpn)
            for t in (tls, theirs):
                t.verify_mode = need
                t.load_verify_locations(b.w.ca.file)
                if version:
                    t.minimum_version = t.maximum_version = version
            o, p = b.w.keep(Web(GOOD, 443, reflect, tls)), b.w.keep(Web("198.51.100.20", 443, reflect, theirs))
            for c in b.clients():
                a = c.ask("GET", "/v1/x")
                if need == ssl.CERT_OPTIONAL:
                    equal(a.status, 200, a.text)
                    injected(b, web=o)
                else:
                    refused(a, 502)
                    check("certificate of the client" in a.text and "ignore_hosts" in a.text, version, a.text)
            check(need == ssl.CERT_OPTIONAL or not o.asked, "a request at an origin that knows us not", o.asked)
            own = ssl.create_default_context(cafile=b.theirs)
            base = b.w.write("mine.pem", pem(mine).decode())
            context(b.w.dir, mine_key, mine)
            own.load_cert_chain(base, os.path.join(b.w.dir, f"chain-{mine.serial_number:x}.key"))
            a = b.h1("other.test", context=own).ask("GET", "/v1/x")
            equal(a.status, 200, "a relayed client with a certificate of its own")
            o.close(), p.close()


# ---- origins that are not there

@test("13", "8.2", limit=120)
def faults_of_the_origin_are_said_in_one_line(lab):
    b = Vaulted(lab, CONNECT_TIMEOUT="2")
    b.api.stop()
    for c in b.clients():
        a = c.ask("GET", "/v1/x")
        refused(a, 502)
        check(a.text.count("\n") == 1, a.text)
    def cuts(conn):
        conn.head()
        conn.rst()
    def nonsense(conn):
        conn.head()
        conn.send(b"\0\1\2 what is this\r\n\r\n")
    def quiet(conn):
        conn.head()
    for script in (cuts, nonsense, quiet):
        o = b.w.origin(GOOD, 443, script, b.w.ca.server("api.test", alpn=["http/1.1"]))
        for c in b.clients():
            refused(c.ask("POST", "/v1/x", body=b"x"), 502)
            a = c.ask("POST", "/v1/x", body=b"x")
            refused(a, 502)
            clean(a)
        o.stop()
    o = b.w.origin(GOOD, 443, lambda conn: conn.ending(30))     # never speaks TLS
    for c in (b.h1(),):
        a = c.ask("GET", "/v1/x")
        check(a.status in (502, 504), a.status)
    o.stop()


# ---- behind a parent

def parent(heads, tunnels=None):
    """A proxy that notes heads and connects to where the names really are."""
    where = {"api.test": GOOD, "other.test": "198.51.100.20", "evil.test": "198.51.100.66"}
    def script(conn):
        head = conn.head()
        heads.append(head)
        name, _, port = head.target.rpartition(":")
        far = socket.create_connection((where[name], int(port)), 10)
        conn.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        near = Shared(conn.sock) if hasattr(conn.sock, "selected_alpn_protocol") else conn.sock
        near.settimeout(600)
        def up():
            try:
                if conn.buf:
                    far.sendall(conn.buf)
                while (data := near.recv(65536)):
                    if tunnels is not None:
                        tunnels.append(data)
                    far.sendall(data)
                far.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        threading.Thread(target=up, daemon=True).start()
        try:
            while (data := far.recv(65536)):
                near.sendall(data)
        except OSError:
            pass
        far.close()
    return script


def behind(lab, tls=None, **how):
    """(world with the parent as its only way out, heads at the parent, the parent)."""
    heads, kept = [], {}
    def before(w):
        kept["parent"] = w.origin(PARENT, 8443, parent(heads), tls(w) if tls else None)
    b = Vaulted(lab, before=before, zone={"up.test": {"A": [PARENT]}}, UPSTREAM_PROXY=f"http{'s' if tls else ''}://up.test:8443",
                UPSTREAM_PROXY_AUTH="Basic cGFyZW50OnNlY3JldA==", **how)
    return b, heads, kept["parent"]


@test("TLS-04", "TLS-05", "15", limit=180)
def tls_inside_tls_has_two_names_and_two_secrets(lab):
    for tls in (None, lambda w: w.ca.server("up.test")):
        b, heads, up = behind(lab, tls, PROXY_ADDR="127.0.0.1:3128")
        b.w.recorder.forget()
        explicit = b.w.keep(H1Client(b.handshake(sock=b.tunnel("api.test:443"), alpn=("http/1.1",)), "api.test"))
        for c in (*b.clients(), explicit):
            for size in (0, 300000):
                a = c.ask("POST", "/v1/x", body=b"z" * size)
                equal((a.status, a.end), (200, "whole"), a.text[:200])
                clean(a)
                injected(b)
                equal(len(b.api.last.body), size)
                check(not b.api.last.has("proxy-authorization"), "the parent's credential reached the origin")
        a = b.h1("other.test", trust=b.theirs).ask("GET", "/v1/x")
        equal(a.status, 200)
        equal({h.line for h in heads}, {"CONNECT api.test:443 HTTP/1.1", "CONNECT other.test:443 HTTP/1.1"})
        equal({h.get("proxy-authorization") for h in heads}, {"Basic cGFyZW50OnNlY3JldA=="})
        for h in heads:
            clean(h.raw)
        if tls:
            equal(set(up.snis), {"up.test"})
        equal(set(b.api.snis), {"api.test"})
        b.w.recorder.nothing_left("a direct connection", dst=[GOOD, "198.51.100.20"])
        up.close()
        for c in (b.h1(), b.h2()):
            refused(c.ask("GET", "/v1/x"), 502)
        b.w.recorder.nothing_left("a direct connection", dst=[GOOD])
        text = b.s.stdout() + b.s.stderr()
        check("cGFyZW50" not in text and SECRET not in text, "a secret in the log")


@test("TLS-04", "15", limit=120)
def a_bad_certificate_of_either_layer_is_said(lab):
    b, heads, _ = behind(lab, lambda w: w.ca.server("not-up.test"))
    for c in b.clients():
        a = c.ask("GET", "/v1/x")
        refused(a, 502)
        check("proxy" in a.text or "parent" in a.text or "up.test" in a.text, "says which:", a.text)
    equal(heads, [])
    b.unseen()
    b, heads, _ = behind(lab, lambda w: w.ca.server("up.test"))
    b.api.stop()
    b.serve(GOOD, "evil.test", reflect)
    for c in b.clients():
        a = c.ask("GET", "/v1/x")
        refused(a, 502)
        check("proxy" not in a.text and "parent" not in a.text and "another host" in a.text, a.text)
    b.unseen()


@test("15", "E18", limit=60)
def the_parent_is_open_to_us_alone(lab):
    b, _, _ = behind(lab)
    equal(b.h1().ask("GET", "/v1/x").status, 200)
    check(not b.w.gets_out(PARENT, 8443), "the workload reaches the parent")


