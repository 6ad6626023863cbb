"""The TLS listener and the PROXY protocol: which certificate, who is let in, sessions that resume, files that change while
connections live, and what comes before the first request.  The client is Python's ssl module with every check it can do."""
import base64
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

from gateway import free_port
from lib import P, Client, Ended, Failed, Late, Skipped, check, equal, request, says, test, took, wait_for

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n"


# ---- certificates, made by the openssl program

def openssl(*argv):
    try:
        done = subprocess.run(["openssl", *argv], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Skipped("the program openssl is not installed") from None
    check(done.returncode == 0, "openssl", argv[0], done.stderr.decode())


class Pair:
    """A certificate for these names with its key, in two files; signed by `by` or by itself."""

    def __init__(self, folder, stem, *names, days=30, by=None, rsa=False):
        self.crt, self.key = os.path.join(folder, f"{stem}.crt"), os.path.join(folder, f"{stem}.key")
        kind = ("rsa:2048",) if rsa else ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
        argv = ["-newkey", *kind, "-nodes", "-keyout", self.key, "-subj", f"/CN={names[0]}"]
        if not by:
            openssl("req", "-x509", *argv, "-out", self.crt, "-days", str(days), "-addext",
                    "subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
            return
        openssl("req", *argv, "-new", "-out", self.crt + ".csr")
        openssl("x509", "-req", "-in", self.crt + ".csr", "-CA", by.crt, "-CAkey", by.key, "-CAcreateserial", "-days", str(days),
                "-out", self.crt)

    @property
    def der(self):
        with open(self.crt, encoding="ascii") as f:
            return ssl.PEM_cert_to_DER_cert(f.read())

    def replace(self, other):
        """Puts the other's files in the place of these, key last."""
        for mine, theirs in ((self.crt, other.crt), (self.key, other.key)):
            with open(theirs, "rb") as f:
                text = f.read()
            with open(mine + ".new", "wb") as f:
                f.write(text)
            os.rename(mine + ".new", mine)


class Old(Pair):
    """old.test, which ended in 2002; the program makes no such thing, so it is that of the unit tests."""

    def __init__(self, folder):
        self.crt, self.key = os.path.join(folder, "old.crt"), os.path.join(folder, "old.key")
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness", "pems.h"), encoding="utf-8") as f:
            text = f.read()
        for name, path in (("CRT", self.crt), ("KEY", self.key)):
            lines = re.search(rf"#define PEM_OLD_{name} *\\\n((?: *\".*\n)+)", text)[1]
            write(path, "".join(line + "\n" for line in re.findall(r'"(.*)\\n"', lines)))


def write(path, data):
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


# ---- a client

class Tls(Client):
    """A client of the TLS port.  The server's certificate is not verified but compared: .der."""

    def __init__(self, port, name="one.test", alpn=None, context=None, session=None, first=b"", handshake=True):
        super().__init__(port)
        if first:
            self.send(first)
        self.context = context or client_context(alpn)
        self.sock = self.context.wrap_socket(self.sock, server_hostname=name, do_handshake_on_connect=False,
                                             suppress_ragged_eofs=False, session=session)
        if handshake:
            self.shake()

    def shake(self):
        self.sock.settimeout(self.patience)
        try:
            self.sock.do_handshake()
        except ssl.SSLError as e:
            raise Ended(f"alert {e.reason}") from e
        except ConnectionError as e:
            raise Ended("reset") from e
        return self

    @property
    def der(self):
        return self.sock.getpeercert(True)

    def more(self, timeout=None):
        try:
            super().more(timeout)
        except ssl.SSLEOFError as e:
            raise Ended("cut") from e
        except ssl.SSLZeroReturnError as e:
            raise Ended("fin") from e
        except ssl.SSLError as e:
            raise Ended("cut" if e.reason == "UNEXPECTED_EOF_WHILE_READING" else f"alert {e.reason}") from e


def client_context(alpn=None, version=None):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    c.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if alpn:
        c.set_alpn_protocols(list(alpn))
    if version:
        c.minimum_version = c.maximum_version = version
    return c


def gateway(lab, *flags, routes=None, **how):
    """A gateway with a TLS port: gw.tls_port, and gw.tls(...) connects to it."""
    port = free_port()
    gw = lab.gateway(f"--tls-port={port}", *flags, routes=routes if routes is not None else {"sb1": lab.backend(says("ok"))}, **how)
    gw.tls_port = port

    def tls(*args, **kw):
        c = Tls(port, *args, **kw)
        lab.peers.append(c)
        return c
    gw.tls = tls
    return gw


def with_pair(lab, pair, *flags, **how):
    return gateway(lab, f"--tls-cert={pair.crt}", f"--tls-key={pair.key}", *flags, **how)


def ends(connect):
    """Text of how a connection ends that should not come up: in the handshake or with the first answer."""
    try:
        c = connect()
        c.send(request("GET", P + "/"))
        c.response()
    except (Ended, Late) as e:
        return str(e)
    raise Failed("the client was served")


def faults(gw):
    return gw.metric("sallyport_reload_faults_total")


def reloads(gw, act, good=True):
    """act(), then the log line of a reload."""
    msg = "reloaded" if good else "reload refused, nothing changed"
    before = len(gw.logged(msg))
    act()
    wait_for(lambda: len(gw.logged(msg)) > before, f"the log line {msg!r}")


# ---- versions, protocols, fields

@test("TLS")
def alpn_is_h2_before_h1_and_a_stranger_is_refused(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"))
    for offered, chosen in ((None, None), (["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2"), (["h2"], "h2"), (["x", "http/1.1"], "http/1.1")):
        c = gw.tls(alpn=offered)
        equal(c.sock.selected_alpn_protocol(), chosen, f"protocol of {offered}")
        if chosen == "h2":
            c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            equal(c.exact(9)[3], 4, "type of the first frame")
        else:
            equal(c.ask("GET", P + "/").body, b"ok", "answer")
    ending = ends(lambda: gw.tls(alpn=["spdy/3"]))
    check(ending.startswith("alert"), "another protocol:", ending)


@test("TLS")
def versions_below_1_2_are_refused(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        c = gw.tls(context=client_context(version=version))
        equal(c.sock.version(), str(version.name).replace("_", "."), "version")
        equal(c.ask("GET", P + "/").body, b"ok", "answer")
    old = client_context(version=ssl.TLSVersion.TLSv1_1)
    old.set_ciphers("ALL:@SECLEVEL=0")
    ends(lambda: gw.tls(context=old))


@test("TLS")
def scheme_and_port_are_told_to_the_sandbox(lab):
    b = lab.backend(says("ok"))
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), routes={"sb1": b})
    for c, proto, port in ((gw.tls(), "https", gw.tls_port), (gw.client(), "http", gw.port)):
        equal(c.ask("GET", P + "/", "X-Forwarded-Proto: lie").status, 200, "status")
        equal((b.last.all("x-forwarded-proto"), b.last.all("x-forwarded-port")), ([proto], [str(port)]), "fields")


@test("TLS")
def wrong_speech_on_either_port_is_cheaply_ended(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"))
    c = Client(gw.tls_port)
    lab.peers.append(c)
    c.send(request("GET", P + "/"))
    check(c.ending() in ("fin", "reset"), "still open")
    check(b"HTTP/" not in c.buf, "an answer in the clear on the TLS port:", c.buf)
    c = gw.client().send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    check(c.ending() in ("fin", "reset"), "still open")
    check(c.buf.startswith(b"HTTP/1.1 400 "), "answer", c.buf[:60])
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no client left")


# ---- which certificate

@test("TLS")
def certificate_is_chosen_by_name(lab):
    os.mkdir(os.path.join(lab.dir, "more"))
    os.mkdir(os.path.join(lab.dir, "more", "sub"))
    first = Pair(lab.dir, "first", "first.test", rsa=True)
    second = Pair(lab.dir, "second", "second.test", "*.wild.test")
    third = Pair(os.path.join(lab.dir, "more"), "third", "third.test", "deep.wild.test")
    fourth = Pair(os.path.join(lab.dir, "more", "sub"), "tls", "fourth.test")
    gw = gateway(lab, f"--tls-cert={first.crt},{second.crt}", f"--tls-key={first.key},{second.key}", f"--tls-cert-dir={lab.dir}/more")
    for name, pair in (("first.test", first), ("second.test", second), ("SECOND.test", second), ("a.wild.test", second),
                       ("deep.wild.test", third), ("third.test", third), ("fourth.test", fourth), ("a.b.wild.test", first),
                       ("wild.test", first), ("nobody.test", first), (None, first), ("127.0.0.1", first)):
        c = gw.tls(name)
        check(c.der == pair.der, name, "was answered by another certificate")
        equal(c.ask("GET", P + "/").body, b"ok", "answer")


@test("TLS")
def only_clients_of_the_authority_are_served(lab):
    ca, other = Pair(lab.dir, "ca", "Our authority"), Pair(lab.dir, "other", "Another")
    good, bad = Pair(lab.dir, "good", "good", by=ca), Pair(lab.dir, "bad", "bad", by=other)
    one = Pair(lab.dir, "one", "one.test")
    gw = with_pair(lab, one, f"--tls-client-ca={ca.crt}")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        ends(lambda v=version: gw.tls(context=client_context(version=v)))
        for pair, served in ((good, True), (bad, False)):
            context = client_context(version=version)
            context.load_cert_chain(pair.crt, pair.key)
            if served:
                equal(gw.tls(context=context).ask("GET", P + "/").body, b"ok", "answer")
            else:
                ends(lambda c=context: gw.tls(context=c))
    equal(gw.client().ask("GET", P + "/").status, 200, "the other port asks for none")


# ---- files that change

@test("TLS")
def sighup_brings_a_new_certificate_and_keeps_connections(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while True:
            conn.more(60)
            data, conn.buf = conn.buf, b""
            conn.send(data)
    old, new = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "two", "one.test")
    gw = with_pair(lab, old, routes={"sb1": lab.backend(says("ok")), "sb2": lab.backend(script)})
    before = old.der
    kept = gw.tls()
    equal(kept.ask("GET", P + "/").body, b"ok", "before")
    tunnel = gw.tls().send(request("GET", "/sandboxes/sb2/port/3000/", "Connection: Upgrade", "Upgrade: websocket"))
    equal(tunnel.head().status, 101, "tunnel")
    shaking = gw.tls(handshake=False)
    old.replace(new)
    reloads(gw, lambda: gw.signal(signal.SIGHUP))
    check(gw.tls().der == new.der, "the old certificate is still shown")
    check(shaking.shake().der == before, "a connection changed its configuration on the way")
    equal(kept.ask("GET", P + "/").body, b"ok", "the connection of before")
    tunnel.send(b"ping")
    equal(tunnel.exact(4), b"ping", "the tunnel of before")


@test("TLS")
def bad_files_change_nothing_and_are_named(lab):
    one, other = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "other", "one.test")
    before = one.der
    gw = with_pair(lab, one)
    with open(one.key, "rb") as f:
        key = f.read()
    with open(other.key, "rb") as f:
        stranger = f.read()
    for path, text in ((one.key, b"hush-hush"), (one.key, stranger), (one.crt, b""), (one.crt, b"-----BEGIN CERTIFICATE-----\nhush\n")):
        with open(path, "rb") as f:
            good = f.read()
        seen = faults(gw)
        write(path, text)
        reloads(gw, lambda: gw.signal(signal.SIGHUP), good=False)
        check(faults(gw) > seen, "the fault was not counted")
        check(gw.tls().der == before, "another certificate is shown")
        line = gw.logged("reload refused, nothing changed")[-1]["error"]
        check(line.startswith("tls-cert: ") and one.crt in line, "fault", line)
        write(path, good)
    secret = key.decode().splitlines()[1]
    check("hush" not in gw.stdout() and secret not in gw.stdout(), "the log shows a part of a key")
    wait_for(lambda: gw.logged("reloaded"), "the good files are taken again", 6)


@test("TLS")
def changed_files_are_seen_without_a_signal(lab):
    folder = os.path.join(lab.dir, "more")
    os.mkdir(folder)
    one, new = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "new", "one.test")
    gw = with_pair(lab, one, f"--tls-cert-dir={folder}", routes={"sb1": lab.backend(says("ok"))})
    kept = gw.tls()
    equal(kept.ask("GET", P + "/").body, b"ok", "before")
    one.replace(new)
    wait_for(lambda: gw.tls().der == new.der, "the new certificate", 6, 0.2)
    made = Pair(lab.dir, "two", "two.test")
    for end, path in (("key", made.key), ("crt", made.crt)):
        os.rename(path, os.path.join(folder, f"two.{end}"))
    made.crt = os.path.join(folder, "two.crt")
    wait_for(lambda: gw.tls("two.test").der == made.der, "the pair that was laid into the folder", 6, 0.2)
    again = Pair(lab.dir, "again", "two.test")
    made.key = os.path.join(folder, "two.key")
    made.replace(again)
    wait_for(lambda: gw.tls("two.test").der == again.der, "the pair that was replaced in the folder", 6, 0.2)
    os.unlink(made.crt)
    os.unlink(made.key)
    wait_for(lambda: gw.tls("two.test").der == new.der, "the default, for the pair that is gone", 6, 0.2)
    equal(kept.ask("GET", P + "/").body, b"ok", "the connection of before")


@test("TLS")
def a_mounted_secret_turns_as_a_whole(lab):
    """As the kubelet does it: a new folder, then the link is turned by rename."""
    mount = os.path.join(lab.dir, "mount")
    os.mkdir(mount)

    def turn(name, tag):
        fresh = os.path.join(mount, f"..{tag}")
        os.mkdir(fresh)
        made = Pair(lab.dir, tag, name)
        os.rename(made.crt, os.path.join(fresh, "tls.crt"))
        os.rename(made.key, os.path.join(fresh, "tls.key"))
        os.symlink(f"..{tag}", os.path.join(mount, "..data_tmp"))
        os.rename(os.path.join(mount, "..data_tmp"), os.path.join(mount, "..data"))
        made.crt = os.path.join(fresh, "tls.crt")
        return made
    first = turn("one.test", "2026_1")
    for name in ("tls.crt", "tls.key"):
        os.symlink(f"..data/{name}", os.path.join(mount, name))
    gw = gateway(lab, f"--tls-cert-dir={mount}")
    check(gw.tls().der == first.der, "first certificate")
    second = turn("one.test", "2026_2")
    wait_for(lambda: gw.tls().der == second.der, "the certificate of the turned mount", 6, 0.2)
    equal(faults(gw), 0, "faults on the way")


@test("TLS", limit=120)
def reload_under_load_refuses_nobody(lab):
    one, two = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "two", "one.test")
    known = {one.der, two.der}
    gw = with_pair(lab, one)
    stop, wrong, done = threading.Event(), [], []

    def load():
        while not stop.is_set():
            try:
                c = Tls(gw.tls_port)
                if c.der not in known or c.ask("GET", P + "/").body != b"ok":
                    wrong.append("another certificate or answer")
                c.close()
                done.append(1)
            except (Ended, Late, OSError) as e:
                wrong.append(repr(e))
    threads = [threading.Thread(target=load, daemon=True) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(8):
        one.replace(two)
        reloads(gw, lambda: gw.signal(signal.SIGHUP))
    stop.set()
    for t in threads:
        t.join(20)
    equal(wrong[:3], [], "faults")
    check(len(done) > 20, "only", len(done), "connections")


# ---- the end of a certificate, starts that fail

@test("TLS")
def end_of_a_certificate_is_a_gauge_and_a_warning(lab):
    long, soon_over = (Pair(lab.dir, stem, f"{stem}.test", days=days) for stem, days in (("long", 400), ("soon", 5)))
    over = Old(lab.dir)
    gw = gateway(lab, f"--tls-cert={long.crt},{soon_over.crt},{over.crt}", f"--tls-key={long.key},{soon_over.key},{over.key}")
    rows = gw.metrics()
    left = {name: rows[f'ingress_tls_certificate_left_seconds{{name="{name}.test"}}'] for name in ("long", "soon", "old")}
    check(399 * 86400 < left["long"] <= 400 * 86400 and 4 * 86400 < left["soon"] <= 5 * 86400 and left["old"] < -700000000, "gauge", left)
    equal([line["name"] for line in gw.logged("a certificate ends soon")], ["soon.test"], "warned of")
    equal([line["name"] for line in gw.logged("a certificate is past its end")], ["old.test"], "warned of")
    reloads(gw, lambda: gw.signal(signal.SIGHUP))
    equal(len(gw.told("a certificate ends soon", 2)), 2, "warnings after a reload")


@test("TLS")
def broken_pairs_stop_a_start_and_fail_a_check(lab):
    one, other = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "other", "other.test")
    blank, folder = write(os.path.join(lab.dir, "blank"), ""), os.path.join(lab.dir, "more")
    os.mkdir(folder)
    routes = write(os.path.join(lab.dir, "r.json"), '{"sandboxes":{}}')
    good = (f"--tls-cert={one.crt}", f"--tls-key={one.key}")
    for flags, start in (((f"--tls-cert={one.crt}", f"--tls-key={other.key}"), f"tls-cert: {one.crt}: "), ((f"--tls-cert={blank}", f"--tls-key={one.key}"), f"tls-cert: {blank}: "),
                         ((*good, f"--tls-client-ca={blank}"), "tls-client-ca: "), ((*good, f"--tls-ticket-keys-file={blank}"), f"tls-ticket-keys-file: {blank}: "),
                         ((f"--tls-cert-dir={folder}",), f"tls-cert-dir: {folder}: ")):
        for check_only in (("--check",), ()):
            status, out, err = lab.run(f"--routes={routes}", "--port=0", "--admin-addr=127.0.0.1:0", f"--tls-port={free_port()}", *flags, *check_only)
            line = err.strip().splitlines()[-1]
            equal((status, "serving" in out), (2, False), f"exit of {flags}")
            check(line.startswith("sallyport-ingress: " + start), "fault", line, "wanted", start)
    status, out, err = lab.run(f"--routes={routes}", "--tls-port=8443", *good, "--check")
    equal((status, err), (0, ""), "a check of good files")


@test("TLS")
def the_gateway_does_not_dial_its_own_tls_port(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), "--allow-target-cidr=127.0.0.0/8", routes={})
    gw.reload({"sb1": {"address": "127.0.0.1"}})
    for port in (gw.tls_port, gw.port):
        r = gw.client().ask("GET", f"/sandboxes/sb1/port/{port}/")
        equal((r.status, b"not allowed" in r.body), (502, True), f"answer for port {port}")


# ---- sessions that resume

def session_of(gw, context):
    """Connects and takes a ticket home."""
    c = gw.tls(context=context)
    equal(c.ask("GET", P + "/").body, b"ok", "answer")
    check(not c.sock.session_reused, "nothing was there to resume")
    session = c.sock.session
    c.close()
    return session


def resumes(gw, context, session):
    c = gw.tls(context=context, session=session)
    equal(c.ask("GET", P + "/").body, b"ok", "answer")
    return c.sock.session_reused


def keys(*made):
    return "".join(base64.b64encode(k).decode() + "\n" for k in made)


VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@test("TLS")
def sessions_resume_over_a_reload(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"))
    for version in VERSIONS:
        context = client_context(version=version)
        session = session_of(gw, context)
        check(resumes(gw, context, session), "does not resume", version)
        reloads(gw, lambda: gw.signal(signal.SIGHUP))
        check(resumes(gw, context, session_of(gw, context)), "does not resume after a reload", version)
        context = client_context(version=version)
        session = session_of(gw, context)
        reloads(gw, lambda: gw.signal(signal.SIGHUP))
        check(resumes(gw, context, session), "does not resume over a reload", version)


@test("TLS")
def replicas_with_one_key_file_resume_each_others_sessions(lab):
    one = Pair(lab.dir, "one", "one.test")
    old, new = os.urandom(80), os.urandom(80)
    first, second, third = (write(os.path.join(lab.dir, f"keys{i}"), text) for i, text in enumerate((keys(old), keys(new, old), keys(os.urandom(48)))))
    a, b, c = (with_pair(lab, one, f"--tls-ticket-keys-file={path}") for path in (first, second, third))
    for version in VERSIONS:
        for to, wanted in ((b, True), (c, False)):
            context = client_context(version=version)
            session = session_of(a, context)
            equal(resumes(to, context, session), wanted, f"resumed, {version}")
        context = client_context(version=version)
        session = session_of(b, context)  # made with the new key, which a does not know yet
        equal(resumes(a, context, session), False, "resumed with an unknown key")
    before = a.metric("sallyport_config_revision")
    write(first, keys(new, old))
    wait_for(lambda: a.metric("sallyport_config_revision") > before, "the new key file", 6)
    context = client_context(version=VERSIONS[1])
    check(resumes(a, context, session_of(b, context)), "does not resume with the key that came")
    write(first, "hush")
    wait_for(lambda: faults(a) > 0, "a bad key file is counted", 6)
    context = client_context(version=VERSIONS[1])
    check(resumes(a, context, session_of(b, context)), "a bad key file took the keys away")
    check("hush" not in a.stdout(), "the log shows a part of the key file")


@test("TLS")
def a_ticket_does_not_open_another_name_or_the_demand_for_a_certificate(lab):
    one, two = Pair(lab.dir, "one", "one.test"), Pair(lab.dir, "two", "two.test")
    file = write(os.path.join(lab.dir, "keys"), keys(os.urandom(80)))
    flags = (f"--tls-cert={one.crt},{two.crt}", f"--tls-key={one.key},{two.key}", f"--tls-ticket-keys-file={file}")
    gw, strict = gateway(lab, *flags), gateway(lab, *flags, f"--tls-client-ca={one.crt}")
    for version in VERSIONS:
        context = client_context(version=version)
        session = session_of(gw, context)
        c = gw.tls("two.test", context=context, session=session)
        equal((c.ask("GET", P + "/").body, c.sock.session_reused, c.der == two.der), (b"ok", False, True), "another name")
        context = client_context(version=version)
        session = session_of(gw, context)
        ends(lambda x=context, s=session: strict.tls(context=x, session=s))


# ---- deadlines, limits, drain

@test("TLS", "H1-09")
def a_handshake_has_a_deadline(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), "--head-timeout=600ms", "--keep-alive-timeout=5s", "--proxy-protocol",
                   "--trusted-proxies=127.0.0.2")
    for said in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        c = Client(gw.tls_port)
        lab.peers.append(c)
        c.send(said)
        seconds, ending = took(lambda conn=c: conn.ending(4))
        check(ending in ("fin", "reset") and c.buf == b"", "ending", ending, c.buf)
        check(0.5 <= seconds <= 1.5 * lab.slow, "after", seconds)
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no client left")


@test("TLS")
def a_drain_does_not_wait_for_handshakes(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), "--drain-timeout=20s")
    gw.tls(handshake=False)
    idle = gw.tls()
    equal(idle.ask("GET", P + "/").status, 200, "status")
    gw.signal(signal.SIGTERM)
    seconds, status = took(lambda: gw.exit(15))
    equal(status, 0, "exit")
    check(seconds < 8, "took", seconds)
    equal(idle.ending(), "fin", "the idle connection's end")


@test("TLS", "OPS-09")
def over_the_connection_limit_the_refusal_comes_inside_tls(lab):
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), "--max-connections=2")
    held = [gw.tls() for _ in range(2)]
    for c in held:
        equal(c.ask("GET", P + "/").status, 200, "status")
    r = gw.tls().ask("GET", P + "/")
    equal((r.status, r.get("retry-after")), (503, "1"), "answer")


# ---- what is not whole never looks whole

@test("TLS", "H1-03")
def an_answer_that_breaks_off_is_cut_without_a_farewell(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), routes={"sb1": lab.backend(script)})
    c = gw.tls().send(request("GET", P + "/"))
    ending = c.ending()
    check(ending in ("cut", "reset"), "the end looks clean:", ending)
    check(c.buf.endswith(b"half"), "body", c.buf)


@test("TLS")
def an_answer_until_the_end_is_ended_by_a_farewell(lab):
    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhole")
    gw = with_pair(lab, Pair(lab.dir, "one", "one.test"), routes={"sb1": lab.backend(script)})
    c = gw.tls().send(request("GET", P + "/", version="HTTP/1.0"))
    equal(c.ending(), "fin", "ending")
    check(c.buf.endswith(b"whole"), "body", c.buf)


# ---- the PROXY protocol

def v2(command, family=0, addresses=b"", more=b""):
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(addresses) + len(more)) + addresses + more


V4 = bytes([192, 0, 2, 1, 198, 51, 100, 7]) + struct.pack(">HH", 56324, 443)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, "::1") + struct.pack(">HH", 1, 2)
HEADERS = ((LINE, "192.0.2.1"), (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "2001:db8::1"), (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
           (v2(0x21, 0x11, V4), "192.0.2.1"), (v2(0x21, 0x11, V4, b"\x04\0\x03abc" + bytes(500)), "192.0.2.1"), (v2(0x21, 0x21, V6), "2001:db8::1"),
           (v2(0x20), "127.0.0.1"), (v2(0x21, 0x31, bytes(216)), "127.0.0.1"))


def proxied(lab, *flags, trusted="127.0.0.1", **how):
    return with_pair(lab, Pair(lab.dir, "one", "one.test"), "--proxy-protocol", f"--trusted-proxies={trusted}", *flags, **how)


@test("PROXY")
def the_source_of_the_header_is_the_client_on_both_ports(lab):
    b = lab.backend(says("ok"))
    gw = proxied(lab, routes={"sb1": b})
    for first, source in HEADERS:
        plain = gw.client().send(first)
        for c in (plain, gw.tls(first=first)):
            r = c.ask("GET", P + "/", "X-Forwarded-For: 203.0.113.9")
            equal(r.body, b"ok", "answer")
            wanted = ["203.0.113.9, 127.0.0.1"] if source == "127.0.0.1" else [source]  # without a source the socket's, which is trusted
            equal(b.last.all("x-forwarded-for"), wanted, f"after {first[:20]}")
            equal(c.ask("GET", P + "/").status, 200, "the second request of the connection")
    gw.access(4, client="192.0.2.1")


@test("PROXY")
def the_address_of_the_header_decides_whether_fields_count(lab):
    b = lab.backend(says("ok"))
    gw = proxied(lab, trusted="127.0.0.1,192.0.2.0/24", routes={"sb1": b})
    for source, wanted in (("192.0.2.1", ["203.0.113.9, 192.0.2.1"]), ("192.1.2.1", ["192.1.2.1"])):
        c = gw.client().send(f"PROXY TCP4 {source} 10.0.0.1 1 2\r\n")
        equal(c.ask("GET", P + "/", "X-Forwarded-For: 203.0.113.9").status, 200, "status")
        equal(b.last.all("x-forwarded-for"), wanted, "fields")


@test("PROXY")
def a_header_in_pieces_and_a_request_right_behind_it_are_read(lab):
    b = lab.backend(says("ok"))
    gw = proxied(lab, routes={"sb1": b})
    c = gw.client()
    for i in range(0, len(LINE), 3):
        c.send(LINE[i:i + 3])
        time.sleep(0.005)
    equal(c.ask("GET", P + "/").body, b"ok", "answer")
    c = gw.client().send(v2(0x21, 0x11, V4) + request("GET", P + "/"))
    equal(c.response().body, b"ok", "answer")
    equal(b.last.get("x-forwarded-for"), "192.0.2.1", "source")
    c = gw.client().send(LINE + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    equal(c.exact(9)[3], 4, "type of the first frame after the header")


@test("PROXY")
def a_broken_or_missing_header_closes_without_a_word(lab):
    gw = proxied(lab, "--head-timeout=20s")
    bad = (request("GET", P + "/"), b"PROXY TCP4 192.0.2.1 198.51.100.7 056324 443\r\n", b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2\n",
           b"PROXY UNKNOWN" + b"x" * 200, v2(0x31, 0x11, V4), v2(0x21, 0x11, V4[:8]), SIGNATURE + b"\x21\x11\xff\xff", b"\x16\x03\x01\x02\x00")
    for said in bad:
        for port in (gw.port, gw.tls_port):
            c = Client(port)
            lab.peers.append(c)
            c.offer(said)
            check(c.ending() in ("fin", "reset"), "still open after", said[:30])
            equal(c.buf, b"", "an answer")
    c = Client(gw.port)
    lab.peers.append(c)
    c.send(b"PROXY TCP4").fin()
    check(c.ending() in ("fin", "reset"), "half a header and its end hold the connection")
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no client left")


@test("PROXY")
def a_header_of_anybody_else_is_a_broken_request(lab):
    b = lab.backend(says("ok"))
    gw = proxied(lab, trusted="10.0.0.0/8", routes={"sb1": b})
    for first in (LINE, v2(0x21, 0x11, V4)):
        c = gw.client().offer(first + request("GET", P + "/"))
        check(c.ending() in ("fin", "reset"), "still open")
        check(c.buf.startswith(b"HTTP/1.1 400 ") or c.buf == b"", "answer", c.buf[:60])
    equal(b.requests, [], "requests that went on")
    equal(gw.client().ask("GET", P + "/").body, b"ok", "without a header")
    off = with_pair(lab, Pair(lab.dir, "off", "one.test"), "--trusted-proxies=127.0.0.1", routes={"sb1": b})
    c = off.client().offer(LINE + request("GET", P + "/"))
    check(c.ending() in ("fin", "reset"), "still open although the protocol is off")
    equal(off.tls().ask("GET", P + "/").body, b"ok", "TLS from a trusted proxy, the protocol off")


@test("PROXY")
def a_refused_request_is_logged_under_the_address_of_the_header(lab):
    gw = proxied(lab)
    gw.client().send(LINE).ask("GET", "/sandboxes/nobody/port/80/")
    line = gw.access(1, client="192.0.2.1")[0]
    equal(line["status"], 404, "status")


@test("PROXY")
def proxy_protocol_without_trusted_proxies_does_not_start(lab):
    status, _, err = lab.run("--routes=/nowhere", "--proxy-protocol", "--check")
    equal(status, 2, "exit")
    check("proxy-protocol: needs trusted-proxies" in err, "fault", err)


# ---- the limits of HTTP/2 are settings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def get(stream, path):
    """HEADERS of GET http://gw path, END_STREAM: indexed fields and literals, nothing compressed."""
    block = b"\x82\x86" + b"".join(bytes([index, len(text)]) + text for index, text in ((0x01, b"gw"), (0x04, path.encode())))
    return frame(1, 5, stream, block)


def frames(c):
    """Frames as they come: (type, flags, stream, payload)."""
    while True:
        head = c.exact(9)
        yield head[3], head[4], struct.unpack(">I", head[5:])[0], c.exact(int.from_bytes(head[:3], "big"))


def goaway_after(c):
    """Error code of the GOAWAY that is not the notice of a graceful end."""
    for kind, _, _, payload in frames(c):
        if kind == 7:
            return struct.unpack(">I", payload[4:8])[0]
    return None


def pings(c, n):
    """Reads until so many PINGs were answered."""
    for kind, flags, _, _ in frames(c):
        n -= kind == 6 and flags == 1
        if n == 0:
            return


@test("H2-02", "H2-03")
def limits_of_http2_are_settings(lab):
    def hangs(conn):
        conn.request()
        conn.ending(30)
    calm = 11
    gw = lab.gateway("--h2-max-streams=7", "--h2-max-resets=5", "--h2-max-control-frames=9", routes={"sb1": lab.backend(hangs)})
    c = gw.client().send(PREFACE + frame(4))
    kind, _, _, payload = next(frames(c))
    settings = dict(struct.unpack(">HI", payload[i:i + 6]) for i in range(0, len(payload), 6))
    equal((kind, settings.get(3)), (4, 7), "SETTINGS_MAX_CONCURRENT_STREAMS")
    for i in range(4):
        c.offer(frame(6, 0, 0, bytes(8)))
    pings(c, 4)
    c.offer(b"".join(frame(6, 0, 0, bytes(8)) for _ in range(40)))
    equal(goaway_after(c), calm, "after many pings")
    c = gw.client().send(PREFACE + frame(4))
    c.offer(b"".join(get(1 + 2 * i, P + "/") + frame(3, 0, 1 + 2 * i, struct.pack(">I", 8)) for i in range(20)))
    equal(goaway_after(c), calm, "after many resets")
    loose = lab.gateway("--h2-max-resets=50", "--h2-max-control-frames=100", routes={"sb1": lab.backend(hangs)})
    c = loose.client().send(PREFACE + frame(4))
    c.send(b"".join(get(1 + 2 * i, P + "/") + frame(3, 0, 1 + 2 * i, struct.pack(">I", 8)) for i in range(20)))
    c.send(b"".join(frame(6, 0, 0, bytes([i]) * 8) for i in range(40)))
    pings(c, 40)
