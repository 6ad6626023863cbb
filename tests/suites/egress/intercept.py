#!/usr/bin/python3
"""Real clients and bad certificates through the sidecar's interception, with a vault: in namespaces of their own, as root.

    intercept.py transparent|explicit|badtls --sidecar PATH --node-modules DIR [--logs DIR] [--gib N] [--only TEXT]

The workload stands in one network namespace with the sidecar, the origin in another, on ports 443 and 80 of the name origin.test
(../../sidecar/world.py makes both).  Clients trust the sidecar's authority and no other.  The vault has two credentials: one goes
into a field of every request to the origin, which must see it each time and gives it back wherever it can; no client may see it.
The other is the password that the fake one stands for.

transparent, explicit: matrix.py, by redirected connections and through the explicit proxy of a sidecar without privileges.
badtls: the origins of badtls.py, each at its own address, by both ways, with the hosts bound and with all hosts intercepted.
What has no name is relayed untouched, so that the client sees the origin's certificate and judges it.
"""
import argparse, base64, os, re, shutil, socket, ssl, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, HERE + "/../../sidecar", HERE + "/../../flow", HERE + "/../common"]
sys.dont_write_bytecode = True
import badtls, matrix  # noqa: E402
from privileges import die_with_parent  # noqa: E402

INSIDE = "SALLYPORT_INTERCEPT_INSIDE"
KEY, PASSWORD, FAKE = "CANARY-key-5f1e0c77d2", "CANARY-password-90ab31", "__fake_password__"
ADDRESS, ADDRESS6, PROXY = "198.51.100.10", "2001:db8::10", "127.0.0.1:18082"
VERBS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


def enter():
    """Runs this script anew, with processes and mounts of its own, and clears up behind it: its folders are mounted in there"""
    folder = tempfile.mkdtemp(prefix="sallyport-intercept-")
    try:
        os.chmod(folder, 0o755)
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
        return subprocess.run(argv, env={**os.environ, INSIDE: folder}, check=False, preexec_fn=die_with_parent).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vault(host, schemes):
    """Each request gets the key in a field; a placeholder, inside Basic too, becomes the password"""
    secrets = {"key": KEY, "password": PASSWORD}
    return {"credentials": [{"name": n, "source": {"type": "inline", "value": v}} for n, v in secrets.items()],
            "bindings": [{"name": "all", "match": {"schemes": schemes, "hosts": [host], "methods": VERBS},
                          "auth": {"type": "apiKey", "name": "X-Matrix-Key", "credential": "key",
                                   "substitutions": [{"credential": "password", "placeholder": FAKE, "in": ["header"]}]}}]}


def start(w, explicit, ca, **how):
    """The sidecar, and where it leaves its authority's certificate"""
    from sidecar import allow, closed
    rules = closed(*(allow(t) for t in ("origin.test", "badtls.test", "*.badtls.test", "203.0.113.0/24")))
    own = {"MODE": "proxy", "PROXY_ADDR": PROXY, "DNS_UPSTREAM": w.servers[0], "who": "nobody"}
    way = own if explicit else {"MODE": "dns+nft", "MITMPROXY_TRANSPARENT": "true"}
    s = w.sidecar(**{"RULES": rules, "MITMPROXY_UPSTREAM_EXTRA_CA": ca, "DNS_MAX_RATE": "0", **way, **how})
    return s, os.path.join(w.state, "sallyport") + "/mitmproxy-ca-cert.pem" if explicit else "/opt/opensandbox/mitmproxy-ca-cert.pem"


def create(s, host, schemes=("https",)):
    r = s.ask("POST", "/credential-vault", vault(host, list(schemes)))
    if r.status != 201:
        sys.exit("POST /credential-vault: %d %s" % (r.status, r.text))


def clients(lab, a):
    """matrix.py as root of the sandbox -> (passed, failed, skipped)"""
    w, explicit = lab.world(), a.what == "explicit"
    w.recorder.close()      # it would keep every packet
    w.nameserver({"origin.test": {"A": [ADDRESS], "AAAA": [ADDRESS6]}})
    work, pems = w.dir + "/work", w.dir + "/origin"
    os.makedirs(work)
    matrix.make_ca(pems)
    matrix.fill(work, "https://origin.test")
    matrix.image(work)
    private = "Basic " + base64.b64encode(("user:" + PASSWORD).encode()).decode()
    origin = w.popen(["node", HERE + "/origin.js", "443", pems + "/origin.pem", pems + "/origin.key", work, "80"], who="admin", place="outside",
                     env={"ORIGIN_HOST": "::", "ORIGIN_PRIVATE": private}, stdout=subprocess.PIPE)
    try:
        origin.stdout.readline()
        s, ca = start(w, explicit, pems + "/ca.pem")
        create(s, "origin.test", ("https", "http"))
        way = ["--proxy", PROXY] if explicit else ["--transparent"]
        argv = [sys.executable, HERE + "/matrix.py", *way, "--ca", ca, "--origin-dir", pems, "--origin-port", "443", "--plain-port", "80", "--no-hosts",
                "--node-modules", os.path.abspath(a.node_modules), "--work", work, "--expect-header", "x-matrix-key: " + KEY,
                "--secret", KEY, "--secret", PASSWORD, "--secret", private[6:], "--fake-password", FAKE, "--gib", str(a.gib), "--prefix", a.what + "/"]
        argv += ["--only", a.only] if a.only else []
        argv += [] if lab.sanitizer else ["--pid", str(s.pid)]      # whose memory says nothing
        counts = said(w.popen(argv, who="engine", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"))
        leaks(s, counts)
        return counts
    finally:
        origin.kill()


def said(process):
    """Passes its lines on -> its counts"""
    counts = [0, 1, 0]
    for line in process.stdout:
        last = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped$", line)
        if last:
            counts = [int(n) for n in last.groups()]
        else:
            print(line, end="", flush=True)
    process.wait()
    return counts


def verdict(counts, good, name, text=""):
    counts[0 if good else 1] += 1
    print("%s %-44s %s" % ("ok  " if good else "FAIL", name, text), flush=True)


def leaks(s, counts):
    """The log, the metrics and the API hold no secret, and no placeholder"""
    for where, text in (("log", s.stdout() + s.stderr()), ("metrics", s.admin("/metrics").text), ("api", s.ask("GET", "/credential-vault").text)):
        verdict(counts, not [x for x in (KEY, PASSWORD, FAKE) if x in text], "no-secret-in-" + where)


def bad_certificates(lab, a):
    """Each case by both ways, with the hosts bound, and with every host intercepted -> (passed, failed, skipped)"""
    counts, d = [0, 0, 0], lab.dir + "/badtls"
    root = badtls.authority(d)
    os.chmod(d, 0o755)
    os.chmod(d + "/root.pem", 0o644)
    for explicit in (False, True):
        for scope in ("bound", "all"):
            w = lab.world(v6=False)
            cases = list(badtls.table(root, lambda i: "203.0.113.%d" % (10 + i)))
            w.nameserver({host: {"A": ["203.0.113.%d" % (10 + i)]} for i, (_, _, host, _, _) in enumerate(cases) if not host[0].isdigit()})
            s, _ = start(w, explicit, d + "/root.pem", MITM_SCOPE=scope)
            if scope == "bound":
                r = vault("*.badtls.test", ["https"])
                r["bindings"][0]["match"]["hosts"].append("badtls.test")
                if s.ask("POST", "/credential-vault", r).status != 201:
                    sys.exit("no vault")
            for i, case in enumerate(cases):
                name = "%s-%s/%s" % ("explicit" if explicit else "transparent", scope, case[0])
                if (a.only and not re.search(a.only, name)) or (scope == "bound" and case[2][0].isdigit()):
                    continue        # an address is never bound
                one(w, counts, d, name, case, "203.0.113.%d" % (10 + i), explicit, scope == "bound")
            s.stop()
    return counts


def one(w, counts, d, name, case, address, explicit, bound):
    tag, wanted, host, chain, version = case
    o = badtls.Origin(443, d, tag, [c for c, _ in chain], chain[0][1], version, address)
    if host[0].isdigit():
        with w.inside():
            seen = certificate(address, explicit)
        o.ls.close()
        return verdict(counts, seen == ssl.PEM_cert_to_DER_cert(badtls.pem(chain[0][0]).decode()), name, "the client sees the origin's certificate")
    if not explicit:
        w.resolve(host)
    with w.inside():
        answer = badtls.get(("127.0.0.1", 18082) if explicit else None, host, 443, address)
    o.ls.close()
    injected = KEY.encode() in o.said
    good = (o.hits > 0) == wanted and (wanted or "ORIGIN BODY" not in answer) and injected == (wanted and bound)
    verdict(counts, good, name, "client got: %s%s%s" % (answer, "; the origin got the request" * (o.hits > 0), "; with the key" * injected))


def certificate(address, explicit):
    """What a client is shown that names no host"""
    s = socket.create_connection(("127.0.0.1", 18082) if explicit else (address, 443), 20)
    if explicit and badtls.connect(s, address, 443):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(s) as t:
        return t.getpeercert(True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=["transparent", "explicit", "badtls"])
    ap.add_argument("--sidecar", required=True)
    ap.add_argument("--node-modules", default=HERE + "/node_modules")
    ap.add_argument("--logs", default=tempfile.gettempdir())
    ap.add_argument("--gib", type=float, default=0)
    ap.add_argument("--only")
    a = ap.parse_args()
    if os.geteuid() != 0:
        print("skip: needs root for network namespaces\n0 passed, 0 failed, 1 skipped")
        return
    if not os.environ.get(INSIDE):
        sys.exit(enter())
    from bench import Lab
    lab = Lab(os.path.abspath(a.sidecar), os.environ[INSIDE])
    try:
        counts = bad_certificates(lab, a) if a.what == "badtls" else clients(lab, a)
    finally:
        faults = lab.clear()
        with open("%s/%s-sidecar.log" % (a.logs, a.what), "w") as f:
            f.writelines(s.stdout() + s.stderr() for w in lab.worlds for s in w.sidecars)
    for fault in faults:
        verdict(counts, False, "sidecar", fault)
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    sys.exit(counts[1] > 0)


if __name__ == "__main__":
    main()
