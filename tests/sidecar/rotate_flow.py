"""Another authority, put in place while the sidecar runs: what is new shows the new one, what runs goes on."""
import os
import signal
import ssl

from bench import check, equal, test, wait_for
from origins import Authority
from vaulted import EXPORT, Vaulted, authority_folder, injected, refused

REPLACED, STAYS = "another interception authority is in force", "the interception authority stays as it was"


def read(*path):
    with open(os.path.join(*path), encoding="ascii") as f:
        return f.read()


def whole(folder):
    """Key and certificate, as the authority's file has them."""
    return read(folder, "ca.key") + read(folder, "ca.pem")


def another(b, name="another"):
    folder = os.path.join(b.w.dir, name)
    os.mkdir(folder)
    Authority(folder)
    return folder


def put(b, text, mode=0o600):
    """By rename, as operators do it; then SIGHUP."""
    path = os.path.join(authority_folder(b.w), "mitmproxy-ca.pem")
    with open(path + ".new", "w", encoding="ascii") as f:
        os.chmod(f.name, mode)
        f.write(text)
    os.rename(path + ".new", path)
    b.s.term(signal.SIGHUP)


def replace(b, folder):
    before = len(b.s.logged(REPLACED))
    put(b, whole(folder))
    wait_for(lambda: len(b.s.logged(REPLACED)) == before + 1, "the new authority is in force", 20)
    equal(read(EXPORT), read(folder, "ca.pem"), "the export")


@test("TLS-09", "vault 16", limit=120)
def another_authority_is_exported_and_signs_from_then_on(lab):
    b = Vaulted(lab)
    running, old = b.clients(), read(EXPORT)
    for c in running:
        equal(c.ask("GET", "/v1/x").status, 200)
    replace(b, another(b))
    for c in running + b.clients():
        equal(c.ask("GET", "/v1/x").status, 200)
        injected(b)
    try:
        b.handshake(context=ssl.create_default_context(cadata=old))
        check(False, "the old authority still signs")
    except ssl.SSLCertVerificationError:
        pass
    b.s.term(signal.SIGHUP)
    for c in running + b.clients():
        equal(c.ask("GET", "/v1/x").status, 200)
    equal(len(b.s.logged(REPLACED)), 1, "the same file again is no change")


@test("TLS-03", "vault 16", limit=120)
def no_authority_that_was_ours_proves_anybody(lab):
    b = Vaulted(lab)
    replace(b, b.w.dir)
    for _ in range(2):
        for c in b.clients():
            a = c.ask("GET", "/v1/x")
            refused(a, 502)
            check("our own authority" in a.text, a.text)
        if len(b.s.logged(REPLACED)) == 1:
            replace(b, another(b))
    equal(b.asked(), [])


@test("TLS-09", "vault 16", limit=90)
def a_file_that_cannot_be_an_authority_changes_nothing(lab):
    b = Vaulted(lab)
    old, good = read(EXPORT), whole(another(b))
    for n, (text, mode) in enumerate((("no key\n", 0o600), (good, 0o644), ("", 0o600)), 1):
        put(b, text, mode)
        wait_for(lambda n=n: len(b.s.logged(STAYS)) == n, "one line", 20)
        equal(read(EXPORT), old)
        for c in b.clients():
            equal(c.ask("GET", "/v1/x").status, 200)
            injected(b)
    equal(b.s.logged(REPLACED), [])
