"""The authority: one that is mounted is used as it is, one that is not right ends the start, and the file that the sandbox waits
for is never seen in part."""
import os
import subprocess
import threading

from badcerts import Signer, modules, pem
from bench import check, equal, test, wait_for
from vaulted import EXPORT, RULES, SECRET, Vaulted, authority_folder, binding, clean, vault

KEYFILE = "mitmproxy-ca.pem"


def put(world, data, mode=0o600):
    folder = authority_folder(world)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, KEYFILE)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
    return path


def key_pem(key, form="PKCS8"):
    _, _, serialization, _ = modules()
    return key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), serialization.NoEncryption())


def rsa_key():
    from cryptography.hazmat.primitives.asymmetric import rsa
    return rsa.generate_private_key(65537, 2048)


@test("16", "23", "TLS-02", limit=180)
def a_mounted_authority_is_used_and_never_written(lab):
    for name, form, make in (("ec pkcs8", "PKCS8", None), ("ec sec1", "TraditionalOpenSSL", None), ("rsa pkcs8", "PKCS8", rsa_key), ("rsa pkcs1", "TraditionalOpenSSL", rsa_key)):
        cert, key = Signer().issue([], ca=True, common="mounted " + name, days=(-10, 300), key=make() if make else None)
        for data in (key_pem(key, form) + pem(cert), pem(cert) + key_pem(key, form)):
            kept = {}
            b = Vaulted(lab, before=lambda w: kept.update(path=put(w, data)))
            for c in b.clients():
                a = c.ask("GET", "/v1/x")
                equal((name, a.status), (name, 200))
                clean(a)
            with open(EXPORT, "rb") as f:
                equal(f.read().strip(), pem(cert).strip(), "the export")
            with open(kept["path"], "rb") as f:
                equal(f.read(), data, "the mounted file")
            check(sorted(os.listdir(authority_folder(b.w))) in ([KEYFILE], ["mitmproxy-ca-cert.pem", KEYFILE]), os.listdir(authority_folder(b.w)))
            if "rsa" in name:
                break


@test("16", "23", "B2", limit=120)
def an_authority_that_is_not_right_ends_the_start_with_one_line(lab):
    good, key = Signer().issue([], ca=True, common="right", days=(-10, 300))
    old, old_key = Signer().issue([], ca=True, common="old", days=(-20, -1))
    leaf, leaf_key = Signer().issue(["api.test"], common="no authority")
    _, other = Signer().issue([], ca=True, common="x")
    for what, data, mode in (("expired", key_pem(old_key) + pem(old), 0o600), ("another key", key_pem(other) + pem(good), 0o600), ("no authority", key_pem(leaf_key) + pem(leaf), 0o600),
                             ("group may read", key_pem(key) + pem(good), 0o640), ("all may read", key_pem(key) + pem(good), 0o604), ("no key", pem(good), 0o600),
                             ("no certificate", key_pem(key), 0o600), ("nonsense", b"-----BEGIN nothing", 0o600), ("empty", b"", 0o600)):
        w = lab.world(v6=False)
        w.nameserver({})
        put(w, data, mode)
        with open(EXPORT, "w", encoding="ascii") as f:
            f.write("stale")
        s = w.sidecar(MITMPROXY_TRANSPARENT="true", RULES=RULES, healthy=False)
        s.expect_exit = None
        check(s.exit(20) != 0, what, "started")
        text = s.stderr() + s.stdout()
        check("PRIVATE" not in text, what, text)
        faults = [line for line in text.splitlines() if "mitmproxy-ca" in line]
        check(len(faults) == 1, what, "lines:", text[-800:])
        check(not os.path.exists(EXPORT), what, ": an export stands there")


@test("TLS-09", "16", "19.1", "23", limit=120)
def the_export_is_never_seen_in_part(lab):
    w = lab.world(v6=False)
    w.nameserver({})
    seen, stop = set(), []
    def watch():
        while not stop:
            try:
                with open(EXPORT, "rb") as f:
                    seen.add(f.read())
                    seen.add(os.fstat(f.fileno()).st_mode & 0o777)
            except FileNotFoundError:
                seen.add(None)
    t = threading.Thread(target=watch, daemon=True)
    t.start()
    for _ in range(3):
        with open(EXPORT, "w", encoding="ascii") as f:
            f.write("stale")
        os.chmod(EXPORT, 0o644)
        s = w.sidecar(MITMPROXY_TRANSPARENT="true", RULES=RULES, healthy=False)
        wait_for(lambda: os.path.exists(EXPORT) and open(EXPORT, "rb").read(5) != b"stale", "the export", 20)
        s.wait_healthy()
        s.stop()
    stop.append(True)
    t.join()
    whole = {x for x in seen if isinstance(x, bytes)} - {b"stale", b""}
    check(len(whole) == 1 and next(iter(whole)).endswith(b"-----END CERTIFICATE-----\n"), "contents:", whole)
    check(None in seen and {x for x in seen if isinstance(x, int)} == {0o644}, "modes", {x for x in seen if isinstance(x, int)})


@test("16", limit=90)
def a_generated_key_may_be_rsa(lab):
    b = Vaulted(lab, MITM_CA_KEY="rsa2048", body=vault(binding(), k=SECRET))
    done = subprocess.run(["openssl", "x509", "-in", EXPORT, "-noout", "-text"], capture_output=True, text=True, check=True)
    check("rsaEncryption" in done.stdout and "2048 bit" in done.stdout and "CA:TRUE" in done.stdout, done.stdout)
    for c in b.clients():
        equal(c.ask("GET", "/v1/x").status, 200)
