"""Secure access, signatures and keys, and what of them may be seen where: at the backend, in answers, in the log.  Signatures
are made by tests/flow/signed.py from the contract's text, or by the program's own `sign`."""
import json
import os
import signal
import threading
import time

from lib import P, Backend, answer, check, entry, equal, plays, request, secure, short, test, wait_for
from signed import RING, SECRET, Proof, ring
from ws import ECHO, TEXT, expect_frame, handshake, masked, mixed, opened, says_hello

TOKEN = "s3cret-t0ken"
SEC = "/sandboxes/sec/port/3000"
RIGHT = f"OpenSandbox-Secure-Access: {TOKEN}"
SIGNATURE = "OpenSandbox Ingress: signature: "
DENIED = {
    "required": (401, SIGNATURE + "signature required for this sandbox\n"),
    "mismatch": (401, SIGNATURE + "secure access header mismatch\n"),
    "expired": (401, SIGNATURE + "access expired\n"),
    "unknown": (401, SIGNATURE + "unauthorized: unknown signed_key_id\n"),
    "forged": (401, SIGNATURE + "unauthorized: signature mismatch\n"),
    "no keys": (503, SIGNATURE + "ingress verifier not configured\n"),
    "too many": (429, SIGNATURE + "too many failed signatures\n"),
}


def denied(r, how, what=""):
    status, text = DENIED[how]
    equal((r.status, r.text), (status, text), f"answer {what}")
    check(not r.has("location") and not r.has("set-cookie"), "a redirect or a cookie", r.raw)


def forwarded(r, what=""):
    """The JSON text of the echoing backend."""
    equal(r.status, 200, f"status {what}, body {short(r.body)}")
    return r.json


def target(r):
    return forwarded(r)["line"].split(" ")[1]


def key_file(gw_or_lab, text, name="keys"):
    path = os.path.join(gw_or_lab.dir, name)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)
    return path


def hup(gw):
    """SIGHUP, and the line that says what came of the settings' files."""
    def lines():
        return gw.logged(lambda line: line.get("msg", "").startswith(("reloaded", "reload refused")))
    before = len(lines())
    gw.signal(signal.SIGHUP)
    line = wait_for(lambda: lines()[before:], "a log line about the reload")[0]
    time.sleep(0.05)  # every worker takes it in a turn of its own
    return line


def guarded(lab, *flags, script=None, keys=True):
    """A gateway with an open and a secure sandbox on one backend."""
    b = lab.backend(script)
    more = (f"--secure-access-keys={RING}",) if keys else ()
    return b, lab.gateway(*more, *flags, routes={"open": b, "sec": secure(b, TOKEN)})


# ---- the order, and what the backend is told -----------------------------------------------------------------------

@test("sn-699f6828", "PH-12")
def the_sandbox_is_looked_up_before_access(lab):
    b = lab.backend()
    states = ("Pending", "Allocated", "Paused", "Resuming", "Failed")
    routes = {s: {**secure(b, TOKEN), "state": s} for s in states}
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={**routes, "gone": {**secure(b, TOKEN), "state": "Terminated"}})
    for s in states:
        for more in ((), (RIGHT,), ("OpenSandbox-Secure-Access: x",)):
            r = gw.client().ask("GET", f"/sandboxes/{s}/port/3000/", *more)
            equal((r.status, r.get("retry-after"), r.text), (503, "1", f"OpenSandbox Ingress: sandbox not ready: {s}\n"), "answer")
    r = gw.client().ask("GET", "/sandboxes/gone/port/3000/")
    equal((r.status, r.text), (404, "OpenSandbox Ingress: sandbox not found: gone\n"), "terminated")
    equal(len(b.conns), 0, "backend connections")


@test("sn-56f4fc4d", "SR-06")
def a_signed_link_does_not_reach_the_backend_or_the_log(lab):
    b, gw = guarded(lab)
    proof = Proof("sec")
    equal(target(gw.client().ask("GET", proof.path + "/p?q")), "/p?q", "target at the backend")
    check(proof.sig not in b.last.raw.decode() and proof.exp36 not in b.last.raw.decode(), "at the backend:", b.last.raw)
    line, = gw.access(1, status=200)
    check(proof.sig not in gw.stdout(), "a log line holds the signature:", line)
    check(line["uri"].startswith(SEC + "/") and "?" not in line["uri"], "uri of the access line", line["uri"])


@test("sn-0b9c7798", "PH-07")
def the_token_does_not_reach_the_backend_or_the_log(lab):
    b, gw = guarded(lab, "--log-level=debug", script=mixed)
    for sandbox in ("sec", "open"):
        path = f"/sandboxes/{sandbox}/port/3000/x"
        forwarded(gw.client().ask("GET", path, RIGHT))
        says_hello(opened(gw, path, RIGHT))
    denied(gw.client().ask("GET", SEC + "/", "OpenSandbox-Secure-Access: wr0ng-value"), "mismatch")
    gw.access(2, status=200)
    for c in b.conns:
        head = bytes(c.seen).lower()
        check(TOKEN.encode() not in head and b"secure-access" not in head, "at the backend:", head)
    for text in (gw.stdout(), gw.stderr(), gw.admin("/metrics").text, gw.admin("/debug/config").text, gw.admin("/debug/exchanges").text):
        check(TOKEN not in text and "wr0ng-value" not in text, "the value was written:", short(text))


@test("sn-55e798fd", "PH-07")
def the_applications_own_credentials_pass(lab):
    b, gw = guarded(lab)
    sent = ("Authorization: Bearer app-token", "Cookie: a=1; b=2", "Cookie: c=3", "Proxy-Authenticate-Like: y")
    forwarded(gw.client().ask("GET", SEC + "/", RIGHT, *sent))
    equal(b.last.all("authorization"), ["Bearer app-token"], "Authorization")
    equal(b.last.all("cookie"), ["a=1; b=2", "c=3"], "Cookie")


@test("sn-07a4a809", "PH-11")
def the_ports_of_the_sdk_are_ordinary_ones(lab):
    execd, egress = lab.backend(), lab.backend()
    gw = lab.gateway(routes={"sb": {"address": "127.0.0.1", "ports": {"44772": {"address": execd.address}, "18080": {"address": egress.address}}}})
    forwarded(gw.client().ask("GET", "/x", "OpenSandbox-Ingress-To: sb-44772"))
    forwarded(gw.client().ask("GET", "/policy", "OpenSandbox-Ingress-To: sb-18080", "OPENSANDBOX-EGRESS-AUTH: t0ken"))
    equal((len(execd.requests), egress.last.all("opensandbox-egress-auth")), (1, ["t0ken"]), "execd requests, egress field")


@test("PH-07", "SR-06")
def our_credentials_stop_at_the_gateway(lab):
    b, gw = guarded(lab, script=mixed)
    ours = ("oPENsANDBOX-sECURE-aCCESS: {t}", "OPENSANDBOX-SECURE-ACCESS: second-canary", "opensandbox-ingress-to: {r}",
            "OpenSandbox-Ingress-To: x-canary", "OPEN-SANDBOX-INGRESS: y-canary", "open-sandbox-ingress: z-canary",
            "OPEN-SANDBOX-API-KEY: key-canary", "open-sandbox-api-key: key-canary2", "OpenSandbox-Access-Renew: skip")
    theirs = ("Cookie: a=1; b=2", "Authorization: Bearer app", "cOOKIE: c=3")
    for sandbox in ("sec", "open"):
        fields = [f.format(t=TOKEN, r=f"{sandbox}-3000") for f in ours] + list(theirs)
        forwarded(gw.client().ask("GET", "/page", *fields))
        says_hello(opened(gw, "/page", *fields))
        for r in b.requests[-2:]:
            text = r.raw.decode().lower()
            for canary in ("canary", TOKEN, "ingress-to", "open-sandbox", "opensandbox"):
                check(canary not in text, canary, "at the backend:", text)
            equal((r.all("cookie"), r.all("authorization")), (["a=1; b=2", "c=3"], ["Bearer app"]), "the application's own")
    allowed = lab.gateway("--forward-api-key", routes={"sb1": b})
    forwarded(allowed.client().ask("GET", P + "/", "OPEN-SANDBOX-API-KEY: mine"))
    equal(b.last.all("open-sandbox-api-key"), ["mine"], "with --forward-api-key")


# ---- signatures ----------------------------------------------------------------------------------------------------

def until(unix_s):
    time.sleep(max(0, unix_s - time.time()))


@test("SR-01")
def expiry_is_enforced_to_the_second(lab):
    def stream(conn):
        while True:
            while b"\r\n\r\n" not in conn.buf:
                conn.more(30)
            if b"upgrade:" in conn.buf.lower():
                ECHO(conn)
                return
            r = conn.request()
            if r.target != "/events":
                conn.send(answer(200, body=b"yes"))
                continue
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(100):
                conn.send(b"9\r\ndata: %02d\n\r\n" % i)
                time.sleep(0.1)
    _, gw = guarded(lab, script=stream)
    now = int(time.time()) + 1
    until(now)
    proof = Proof("sec", exp=now + 2)
    until(now + 1)
    equal(gw.client().ask("GET", proof.path + "/").status, 200, "a second before")
    tunnel = opened(gw, proof.path + "/ws")
    events = gw.client().send(request("GET", proof.path + "/events"))
    equal(events.head().status, 200, "event stream")
    for at in (0.02, 0.5, 0.9):
        until(now + 2 + at)
        equal(gw.client().ask("GET", proof.path + "/").status, 200, f"{at} s into the second of the expiry")
    until(now + 3.02)
    denied(gw.client().ask("GET", proof.path + "/"), "expired", "a second after")
    denied(gw.client().ask("GET", Proof("sec", exp=now).forged().path + "/"), "expired", "expired and forged")
    denied(gw.client().ask("GET", Proof("sec", exp=now).unknown().path + "/"), "expired", "expired, key unknown")
    says_hello(tunnel)
    events.buf = b""
    check(b"data: " in events.until(b"\n\r\n"), "the event stream goes on")


@test("SR-02", "sn-4700efb3", "sn-742c43f6")
def keys_rotate_by_reload_and_a_bad_file_changes_nothing(lab):
    old, new = b"old key of the test", b"new key of the test"
    path = key_file(lab, ring(a=old, b=new))
    slow = threading.Event()

    def script(conn):
        r = conn.request()
        if r.target == "/slow":
            slow.wait(20)
        conn.send(answer(200, body=b"done"))
    b = lab.backend(script)
    gw = lab.gateway(f"--secure-access-keys-file={path}", routes={"sec": secure(b, TOKEN)})
    by_old, by_new = Proof("sec", secret=old, key="a"), Proof("sec", secret=new, key="b")

    def statuses():
        return [gw.client().ask("GET", p.path + "/").status for p in (by_old, by_new)]
    equal(statuses(), [200, 200], "both keys")
    running = gw.client().send(request("GET", by_old.path + "/slow"))
    wait_for(lambda: b.requests and b.last.target == "/slow", "the slow request")

    key_file(lab, ring(b=new) + "\n")
    equal(hup(gw)["msg"], "reloaded", "log line")
    equal(statuses(), [401, 200], "only the new key")
    denied(gw.client().ask("GET", by_old.path + "/"), "unknown")
    slow.set()
    equal(running.response().body, b"done", "a request that was in progress")

    key_file(lab, ring(a=old, b=new))
    hup(gw)
    equal(statuses(), [200, 200], "both again")
    bad = ("K=AAEC", ring(a=old) + ",K=AAEC", "ab=AAEC", "a=AAE", "a=A*EC", "a", "a=", ",,=AAEC", "a=" + "x" * 70000)
    for text in bad:
        key_file(lab, text)
        line = hup(gw)
        equal((line["level"], line["msg"]), ("error", "reload refused, nothing changed"), f"log line for {text[:20]}")
        check("secure-access-keys" in line["error"], "the setting is not named:", line)
        equal(statuses(), [200, 200], f"after a file with {text[:20]!r}")
    os.unlink(path)
    equal(hup(gw)["level"], "error", "level for a file that is gone")
    equal(statuses(), [200, 200], "after the file went")
    for secret in [t.partition("=")[2] for t in ring(a=old, b=new).split(",")] + ["AAEC", "A*EC", "old key of", "new key of"]:
        check(secret not in gw.stdout() + gw.stderr(), "a value was logged:", secret)
    equal(gw.metric("sallyport_reload_faults_total"), len(bad) + 1, "reload faults by the metric")


@test("SR-02")
def of_a_key_given_twice_the_last_counts(lab):
    text = ring(a=b"first") + "," + ring(a=b"second")
    gw = lab.gateway(f"--secure-access-keys={text}", routes={"sec": secure(lab.backend(), TOKEN)})
    denied(gw.client().ask("GET", Proof("sec", secret=b"first").path + "/"), "forged")
    forwarded(gw.client().ask("GET", Proof("sec", secret=b"second").path + "/"))
    warned = gw.told(lambda line: line["level"] == "warn" and "twice" in line["msg"])
    equal([w["key_ids"] for w in warned], ["a"], "warning")


@test("SR-02", "OPS-06")
def a_broken_key_list_at_the_start_is_exit_2_without_its_value(lab):
    routes = key_file(lab, json.dumps({"sandboxes": {}}), "routes")
    for value in ("ab=c2VjcmV0", "a=c2VjcmV", "a=c2Vj*mV0", "A=c2VjcmV0", "c2VjcmV0", "a=", "=c2VjcmV0", "a=c2VjcmV0,b"):
        path = key_file(lab, value)
        for flag, env, name in ((f"--secure-access-keys={value}", {}, "secure-access-keys"),
                                (f"--secure-access-keys-file={path}", {}, "secure-access-keys-file"),
                                ("--port=0", {"OPENSANDBOX_SECURE_ACCESS_KEYS": value}, "OPENSANDBOX_SECURE_ACCESS_KEYS")):
            for action in ((), ("--check",)):
                code, out, err = lab.run(flag, f"--routes={routes}", "--admin-addr=127.0.0.1:0", *action, env=env)
                equal(code, 2, f"exit for {flag} {env}: {err}")
                last = err.splitlines()[-1]
                check(name in last, name, "is not named:", last)
                for part in ("c2Vj", "VjcmV"):
                    check(part not in out + err, "the value is shown:", err)


@test("SR-02")
def keys_come_from_flag_else_file_else_variable(lab):
    flag, file, variable = (Proof("sec", secret=s) for s in (b"of the flag", b"of the file", b"of the variable"))
    path = key_file(lab, ring(a=b"of the file") + "\n")
    blank = key_file(lab, " \n", "blank")
    env = {"OPENSANDBOX_SECURE_ACCESS_KEYS": ring(a=b"of the variable")}
    routes = {"sec": secure(lab.backend(), TOKEN)}
    given = f"--secure-access-keys={ring(a=b'of the flag')}"
    for flags, right in (((given, f"--secure-access-keys-file={path}"), flag), ((f"--secure-access-keys-file={path}",), file),
                         (("--secure-access-keys= ", f"--secure-access-keys-file={path}"), file), ((), variable),
                         ((f"--secure-access-keys-file={blank}",), variable)):
        gw = lab.gateway(*flags, routes=routes, env=env)
        seen = [gw.client().ask("GET", p.path + "/").status for p in (flag, file, variable)]
        equal(seen, [200 if p is right else 401 for p in (flag, file, variable)], f"statuses with {flags}")


CREDENTIALS = (  # name, access header, what a secure sandbox says: signed with keys, signed without keys, unsigned
    ("none", None, 200, 503, 401),
    ("right", RIGHT, 200, 200, 200),
    ("wrong", "OpenSandbox-Secure-Access: wrong", 401, 401, 401),
    ("empty", "OpenSandbox-Secure-Access:", 401, 401, 401),
    ("nearly", RIGHT + "x", 401, 401, 401),
)


def ways(sandbox, proof):
    """Every route form, unsigned or with a proof: mode, name, target, Host, fields, and the target at the backend if the sandbox is
    open."""
    label = proof.label if proof else f"{sandbox}-3000"
    path = proof.path if proof else f"/sandboxes/{sandbox}/port/3000"
    uri = proof.uri if proof else f"/{sandbox}/3000"
    tail = f"/{proof.exp36}/{proof.sig}" if proof else ""
    return (("auto", "header", "/x?y", "gw", (f"OpenSandbox-Ingress-To: {label}",), "/x?y"),
            ("auto", "old header", "/x?y", "gw", (f"OPEN-SANDBOX-INGRESS: {label}",), "/x?y"),
            ("auto", "host", "/x?y", f"{label}.gw.test", (), "/x?y"),
            ("auto", "path", path + "/x?y", "gw.test", (), tail + "/x?y"),
            ("uri", "path", path + "/x?y", "gw.test", (), tail + "/x?y"),
            ("uri", "short path", uri + "/x?y", "gw.test", (), tail + "/x?y"))


@test("SR-03", limit=90)
def every_combination_of_access_and_route_form(lab):
    b = lab.backend()
    routes = {"open": b, "sec": secure(b, TOKEN)}
    cells = 0
    for keys in (True, False):
        more = (f"--secure-access-keys={RING}",) if keys else ()
        gws = {m: lab.gateway(f"--mode={m}", "--base-domain=gw.test", *more, routes=routes) for m in ("auto", "uri")}
        for sandbox in ("open", "sec"):
            for proof in (None, Proof(sandbox)):
                for mode, form, path, host, fields, plain in ways(sandbox, proof):
                    for name, field, with_keys, without_keys, unsigned in CREDENTIALS:
                        what = f"{sandbox}, {mode} {form}, {'signed' if proof else 'unsigned'}, header {name}, keys {keys}"
                        r = gws[mode].client().ask("GET", path, *fields, *((field,) if field else ()), host=host)
                        wanted = 200 if sandbox == "open" else unsigned if not proof else with_keys if keys else without_keys
                        equal(r.status, wanted, what)
                        if r.status == 200:
                            equal(target(r), plain if sandbox == "open" else "/x?y", f"target: {what}")
                        cells += 1
    equal(cells, 2 * 2 * 2 * 6 * 5, "cells of the matrix")


@test("SR-03")
def near_misses_of_a_signature_are_none(lab):
    _, gw = guarded(lab)
    p = Proof("sec")
    sig, exp = p.sig, p.exp36
    for tail in (f"/{exp}/{sig.upper()}/x", f"/0{exp}/{sig}/x", f"/{exp}/{sig}0/x", f"/{exp}/x", f"/{sig}/x", f"/{exp}/{sig[:-1]}/x"):
        denied(gw.client().ask("GET", SEC + tail), "required", tail)
        equal(target(gw.client().ask("GET", "/sandboxes/open/port/3000" + tail)), tail, "on an open sandbox")
    equal(target(gw.client().ask("GET", p.path)), "/", "nothing behind the signature")
    equal(target(gw.client().ask("GET", p.path + "?q")), "/?q", "only a query behind the signature")
    r = gw.client().ask("GET", p.path + "/../x")
    equal((r.status, r.text), (400, "OpenSandbox Ingress: invalid ingress route: path leaves the route prefix\n"), "climbing, signed")
    path = f"/sandboxes/open/port/3000/{exp}/{sig}/../x"
    equal(target(gw.client().ask("GET", path)), f"/{exp}/{sig}/../x", "the same on an open sandbox")


@test("SR-04")
def route_and_proof_come_from_one_place(lab):
    b, other = lab.backend(), lab.backend()
    ports = {"3000": {"address": b.address}, "4000": {"address": other.address}}
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={"sec": secure({"address": "127.0.0.1", "ports": ports}, TOKEN)})
    here, there = Proof("sec"), Proof("sec", 4000)
    for name in ("OpenSandbox-Ingress-To", "OPEN-SANDBOX-INGRESS"):
        r = gw.client().ask("GET", there.path + "/x?y", f"{name}: {here.label}")
        equal(target(r), there.path + "/x?y", "the whole path belongs to the application")
        denied(gw.client().ask("GET", here.path + "/x", f"{name}: {Proof('sec').forged().label}"), "forged", "good path, bad header")
        denied(gw.client().ask("GET", here.path + "/x", f"{name}: sec-3000"), "required", "good path, unsigned header")
    denied(gw.client().ask("GET", "/x", "OpenSandbox-Ingress-To: sec-3000", host=f"{here.label}.gw.test"), "required", "good Host")
    denied(gw.client().ask("GET", "/x", f"OpenSandbox-Ingress-To: {Proof('sec').forged().label}",
                           f"OPEN-SANDBOX-INGRESS: {here.label}"), "forged", "good second header")
    equal(len(other.requests), 0, "requests at the other port")


@test("SR-05")
def what_a_page_under_a_signed_route_loads(lab):
    _, gw = guarded(lab, script=mixed)
    p = Proof("sec")
    equal(target(gw.client().ask("GET", p.path + "/")), "/", "the page")
    equal(target(gw.client().ask("GET", p.path + "/app.js")), "/app.js", "a relative script")
    says_hello(opened(gw, p.path + "/socket"))
    for path in ("/app.js", "/socket"):
        r = gw.client().ask("GET", path, f"Referer: http://gw.test{p.path}/", "Cookie: x=1")
        equal(r.status, 400, f"status of {path}")
        check(not r.has("location") and not r.has("set-cookie") and p.sig not in r.text, "answer", r.raw)
    label = lab.gateway(f"--secure-access-keys={RING}", "--base-domain=gw.test", routes=gw.routes)
    host = f"{p.label}.gw.test"
    equal([target(label.client().ask("GET", x, host=host)) for x in ("/", "/app.js")], ["/", "/app.js"], "by the label form")
    says_hello(opened(label, "/socket", host=host))


def outputs(gw):
    """Everything the gateway shows of itself, by name."""
    out = {"stdout": gw.stdout(), "stderr": gw.stderr()}
    for page in ("/healthz", "/readyz", "/metrics", "/debug/config", "/debug/exchanges", "/debug/pools"):
        out[page] = gw.admin(page).text
    with open(f"/proc/{gw.pid}/cmdline", "rb") as f:
        out["ps"] = f.read().decode("latin-1")
    return out


@test("SR-06", "OPS-04", "sn-56f4fc4d")
def no_output_holds_a_signature_a_token_or_a_key(lab):
    b = lab.backend(mixed)
    routes = {"open": b, "sec": secure(b, TOKEN)}
    canaries = {TOKEN, RING[2:], SECRET.decode(), "wr0ng-t0ken"}
    bodies = []
    gws = {m: lab.gateway(f"--mode={m}", "--base-domain=gw.test", "--log-level=debug", f"--secure-access-keys={RING}", routes=routes)
           for m in ("auto", "uri")}
    for sandbox in ("sec", "open", "nobody"):
        for proof in (Proof(sandbox), Proof(sandbox).forged(), Proof(sandbox).unknown(), Proof(sandbox, ttl=-10)):
            canaries.add(proof.sig)
            for mode, _, path, host, fields, _ in ways(sandbox, proof):
                for more in ((), (RIGHT,), ("OpenSandbox-Secure-Access: wr0ng-t0ken",)):
                    more += (f"Referer: http://gw.test{proof.path}/", "Accept: application/json")
                    r = gws[mode].client().ask("GET", path, *fields, *more, host=host)
                    if r.status != 200:
                        bodies.append(r.text)
    good = Proof("sec")
    canaries.add(good.sig)
    bad_routes = [("auto", "/", (f"OpenSandbox-Ingress-To: sec-{port}-{good.exp36}-{good.sig}",)) for port in ("0", "99999", "08", "")]
    bad_routes += [("auto", "/", (f"OpenSandbox-Ingress-To: {good.sig}",)), ("auto", "/", (f"OpenSandbox-Ingress-To: sec-{good.sig}",)),
                   ("auto", good.path + "/../x", ()), ("auto", f"/sandboxes/sec/port/{good.exp36}/{good.sig}/", ()),
                   ("uri", f"/{good.exp36}/{good.sig}", ()), ("uri", f"/sec/x/{good.exp36}/{good.sig}", ())]
    for mode, path, fields in bad_routes:
        r = gws[mode].client().ask("GET", path, *fields)
        equal(r.status, 400, f"status for {path} {fields}")
        bodies.append(r.text)
    idle = opened(gws["auto"], good.path + "/ws")
    says_hello(idle)
    for gw in gws.values():
        for where, text in outputs(gw).items():
            for canary in canaries:
                check(canary not in text, f"{canary!r} is in {where}:", short(text[max(0, text.find(canary) - 200):][:400]))
    for text in bodies:
        for canary in canaries:
            check(canary not in text, f"{canary!r} is in an answer:", text)
    seen = [r for r in b.requests if "/sandboxes/sec/" in r.get("referer", "")]
    for r in seen:  # Referer is the client's own; X-Forwarded-Host is its Host byte for byte (8.2)
        head = [f for f in r.fields if f[0].lower() not in ("referer", "x-forwarded-host")]
        for canary in canaries:
            check(canary not in r.line + repr(head), f"{canary!r} reached the backend:", r.raw)
    check(len(seen) > 10, "requests at the backend", len(seen))


@test("SR-06")
def too_many_failures_are_429_counted_once_for_all_workers(lab):
    b = lab.backend()
    gw = lab.gateway("--workers=2", f"--secure-access-keys={RING}", routes={"sec": secure(b, TOKEN), "sec2": secure(b, TOKEN)})
    conns = [gw.client() for _ in range(24)]
    rows = wait_for(lambda: {k: v for k, v in gw.metrics().items() if k.startswith("sallyport_client_connections{")}, "gauges")
    equal(sum(1 for v in rows.values() if v > 0), 2, f"workers with connections {rows}")
    for i in range(100):
        proof = Proof("sec")
        denied(conns[i % 24].ask("GET", (proof.forged() if i % 2 else proof.unknown()).path + "/"), "forged" if i % 2 else "unknown", i)
        if i % 10 == 0:  # these count for nothing
            denied(conns[i % 24].ask("GET", Proof("sec", ttl=-9).path + "/"), "expired")
            denied(conns[i % 24].ask("GET", SEC + "/"), "required")
            denied(conns[i % 24].ask("GET", SEC + "/", "OpenSandbox-Secure-Access: x"), "mismatch")
            forwarded(conns[i % 24].ask("GET", Proof("sec").path + "/"))
    for c in conns:
        denied(c.ask("GET", Proof("sec").path + "/"), "too many", "a good signature at either worker")
        denied(c.ask("GET", Proof("sec").forged().path + "/"), "too many", "a forged one")
        denied(c.ask("GET", "/", f"OpenSandbox-Ingress-To: {Proof('sec', ttl=-9).label}"), "too many", "an expired one")
    forwarded(conns[0].ask("GET", SEC + "/", RIGHT))
    denied(conns[1].ask("GET", SEC + "/"), "required", "without a signature")
    forwarded(conns[2].ask("GET", Proof("sec2").path + "/"), "another sandbox")
    equal(gw.metric("ingress_signature_failures"), 100, "failures by the metric")
    lines = gw.told("ingress: failed signatures")
    check(lines[0]["sandbox_id"] == "sec" and lines[0]["client"] == "127.0.0.1" and len(lines) < 20, "log lines", lines)
    free = lab.gateway("--signature-failure-limit=0", f"--secure-access-keys={RING}", routes=gw.routes)
    c = free.client()
    for i in range(150):
        denied(c.ask("GET", Proof("sec").forged().path + "/"), "forged", i)


@test("SR-06")
def a_429_has_no_side_effects_and_the_minute_passes(lab):
    gw = lab.gateway("--signature-failure-limit=1", f"--secure-access-keys={RING}", routes={"sec": secure(lab.backend(), TOKEN)})
    denied(gw.client().ask("GET", Proof("sec").forged().path + "/"), "forged")
    r = gw.client().send(handshake(Proof("sec").path + "/ws")).response()
    denied(r, "too many", "an upgrade")
    r = gw.client().ask("GET", Proof("sec").path + "/", "Accept: application/json")
    equal((r.status, r.json["error"]["code"]), (429, "signature_failures"), "as JSON")


# ---- routing fields and Hosts --------------------------------------------------------------------------------------

@test("PH-09")
def routing_headers_in_all_their_states(lab):
    b1, b2 = lab.backend(), lab.backend()
    routes = {"sb1": {"address": "127.0.0.1", "ports": {"3000": {"address": b1.address}}}, "sb2": b2}
    gw, uri = lab.gateway(routes=routes), lab.gateway("--mode=uri", routes=routes)
    to, old, path = "OpenSandbox-Ingress-To: ", "OPEN-SANDBOX-INGRESS: ", "/sandboxes/sb2/port/3000/x"
    rows = (((), b2), ((to,), b2), ((to, old), b2), ((to + "  ",), b2), ((to + "sb1-3000",), b1), ((to + " sb1-3000 ",), b1),
            ((to, old + "sb1-3000"), b1), ((old + "sb1-3000",), b1), ((to + "sb1-3000", old + "sb2-3000"), b1), ((to + "sb1",), 400),
            ((to + "nobody-3000",), 404), ((to + "sb1-0",), 400), ((to + "sb1-70000",), 400), ((to + "sb1-03000",), 400),
            ((to + "sb1-3000, sb2-3000",), 404), ((to + "a, b",), 400), ((to + "sb1-3000x",), 400), ((to + "-3000",), 400),
            ((to, to + "sb1-3000"), b2), ((to + "sb2-3000", to + "sb1-3000"), b2), ((to + "https://sb1-3000.any.test",), b1),
            ((to + "SB1-3000",), 404), ((to + "sb1-3000-",), 400), ((to + "f1.x",), 401))
    for fields, wanted in rows:
        seen = len(b1.requests), len(b2.requests)
        r = gw.client().ask("GET", path, *fields)
        if isinstance(wanted, Backend):
            forwarded(r, fields)
            equal((len(b1.requests) - seen[0], len(b2.requests) - seen[1]), (int(wanted is b1), int(wanted is b2)), f"who got {fields}")
        else:
            equal(r.status, wanted, f"status for {fields}: {r.text}")
            equal((len(b1.requests), len(b2.requests)), seen, f"requests at the backends after {fields}")
        check(not wanted.last.has("opensandbox-ingress-to") if isinstance(wanted, Backend) else True, "the field reached the backend")
        forwarded(uri.client().ask("GET", path, *fields), f"uri mode, {fields}")
        check("ingress" not in b2.last.raw.decode().lower().split("\r\n", 1)[1], "in uri mode:", b2.last.raw)
    for mode in ("headers", "AUTO", "", "host"):
        code, _, err = lab.run(f"--mode={mode}", f"--routes={gw.routes_file}")
        check(code == 2 and "mode" in err.splitlines()[-1], f"--mode={mode}: exit {code}", err)


@test("PH-10")
def labels_with_hyphens_case_dots_and_ports(lab):
    b, other = lab.backend(), lab.backend()
    gw = lab.gateway("--base-domain=gw.test", routes={"my-sand-box": b, "sb1": b, "other": other})
    for host in ("my-sand-box-3000.gw.test", "sb1-3000.GW.TEST", "sb1-3000.gw.test:8080", "sb1-3000.gw.test.", "sb1-3000.Gw.tEst.:80"):
        r = gw.client().ask("GET", "/sandboxes/other/port/3000/x?y", host=host)
        equal(target(r), "/sandboxes/other/port/3000/x?y", f"target for {host}")
        equal(b.last.get("x-forwarded-host"), host, "X-Forwarded-Host")
        check(not b.last.has("x-forwarded-prefix"), "a prefix for a host route")
    equal(gw.client().ask("GET", "/", host="SB1-3000.gw.test").status, 404, "an id in other case")
    for host in ("a.sb1-3000.gw.test", "www.gw.test", "sb1-0.gw.test", "-3000.gw.test", ".gw.test"):
        equal(gw.client().ask("GET", "/sandboxes/other/port/3000/", host=host).status, 400, f"status for {host}")
    for host in ("sb1-3000.gw.test.evil.test", "sb1-3000.xgw.test", "[::1]:8080", "sb1-3000", "gw.test", "127.0.0.1"):
        equal(target(gw.client().ask("GET", "/sandboxes/other/port/3000/x", host=host)), "/x", f"by path with Host {host}")
        r = gw.client().ask("GET", "/x", host=host)
        equal((r.status, r.text), (400, "OpenSandbox Ingress: missing header 'Opensandbox-Ingress-To' or 'Host'\n"), f"nothing, {host}")
    free = lab.gateway(routes={"my-sand-box": b, "sb1": b})
    for host in ("sb1-3000.any.test", "sb1-3000", "my-sand-box-3000.x:99"):
        equal(target(free.client().ask("GET", "/x", host=host)), "/x", f"without a domain, {host}")


# ---- ports and other sandboxes -------------------------------------------------------------------------------------

def sidecar(conn):
    """The API of a sidecar as far as the gateway can tell."""
    while True:
        r = conn.request()
        if r.target.startswith("/credential-vault/_active"):
            conn.send(answer(403, body=b"never"))
        elif r.get("opensandbox-egress-auth") != "right":
            conn.send(answer(401, body=b"token"))
        else:
            conn.send(answer(200, body=r.body or b"policy"))


@test("PH-11")
def the_sidecars_api_through_the_gateway(lab):
    b = lab.backend(sidecar)
    routes = {"sb1": {"address": "127.0.0.1", "ports": {"18080": {"address": b.address}}}}
    for flags, denied_here in (((), False), (("--deny-ports=18080",), True), (("--deny-ports=1-1023,18000-19000,44772",), True)):
        auto, uri = (lab.gateway(f"--mode={m}", "--base-domain=gw.test", *flags, routes=routes) for m in ("auto", "uri"))
        for gw, prefix, host, fields in ((auto, "/sandboxes/sb1/port/18080", "gw.test", ()), (uri, "/sb1/18080", "gw.test", ()),
                                         (auto, "", "sb1-18080.gw.test", ()), (auto, "", "gw.test", ("OpenSandbox-Ingress-To: sb1-18080",)),
                                         (auto, "", "gw.test", ("OPEN-SANDBOX-INGRESS: sb1-18080",))):
            for method, path, token, wanted in (("GET", "/policy", None, 401), ("GET", "/policy", "right", 200), ("POST", "/policy", "right", 200),
                                                ("POST", "/credential-vault", "wrong", 401), ("GET", "/credential-vault/_active", "right", 403)):
                more = fields + ((f"OPENSANDBOX-EGRESS-AUTH: {token}",) if token else ())
                seen = len(b.requests)
                r = gw.client().ask(method, prefix + path, *more, host=host, body=b"{}" if method == "POST" else None)
                if denied_here:
                    equal((r.status, r.text), (403, "OpenSandbox Ingress: port 18080 is closed on this gateway\n"), "answer")
                    equal(len(b.requests), seen, "requests at the sidecar")
                else:
                    equal(r.status, wanted, f"{method} {path} {token}")
                    equal(b.last.all("opensandbox-egress-auth"), [token] if token else [], "token at the sidecar")
            if denied_here:
                r = gw.client().send(handshake(prefix + "/ws", *fields, host=host)).response()
                equal(r.status, 403, "status of an upgrade")
    gw = lab.gateway("--deny-ports=18080", routes=routes)
    r = gw.client().ask("GET", "/sandboxes/nobody/port/18080/", "Accept: application/json")
    equal((r.status, r.json["error"]["code"]), (403, "port_denied"), "closed before any lookup")


@test("PH-12")
def a_proof_is_bound_to_one_sandbox_and_one_port(lab):
    b = lab.backend()
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={"sb1": secure(b, TOKEN), "sb2": secure(b, "another-t0ken"), "Sb1": secure(b, "x")})
    denied(gw.client().ask("GET", "/sandboxes/sb2/port/3000/", RIGHT), "mismatch")
    p = Proof("sb1")
    for sandbox, port in (("sb2", 3000), ("sb1", 3001), ("Sb1", 3000)):
        denied(gw.client().ask("GET", f"/sandboxes/{sandbox}/port/{port}/{p.exp36}/{p.sig}/"), "forged", f"{sandbox} {port}")
        denied(gw.client().ask("GET", "/", f"OpenSandbox-Ingress-To: {sandbox}-{port}-{p.exp36}-{p.sig}"), "forged", f"{sandbox} {port}")
    later = Proof("sb1", ttl=9999)
    denied(gw.client().ask("GET", f"/sandboxes/sb1/port/3000/{later.exp36}/{p.sig}/"), "forged", "another expiry")
    equal(len(b.requests), 0, "requests at the backend")
    for i in range(20):
        r = gw.client().ask("GET", f"/sandboxes/sb{i + 100}/port/3000/")
        equal((r.status, r.text), (404, f"OpenSandbox Ingress: sandbox not found: sb{i + 100}\n"), "a guessed id")


@test("PH-12")
def answers_tell_no_more_than_the_contract(lab):
    b = lab.backend(plays(b""))
    dead = lab.backend()
    dead.stop()
    gw = lab.gateway(routes={"sec": secure(b, TOKEN), "paused": {**entry(b), "state": "Paused"}, "dead": dead, "sb1": b})
    bodies = [gw.client().ask("GET", f"/sandboxes/{s}/port/3000/", "Accept: " + a).text
              for s in ("sec", "paused", "dead", "nobody", "sb1") for a in ("text/plain", "application/json", "text/html")]
    for text in bodies:
        for word in ("127.0.0.1", str(b.port), str(dead.port), "namespace", "replica", "Paused", "opensandbox.io"):
            check(word not in text, word, "is in an answer:", text)
    check(all(bodies), "an empty body")


# ---- the verb sign -------------------------------------------------------------------------------------------------

def signed_forms(lab, *argv):
    code, out, err = lab.run("sign", *argv)
    equal((code, err), (0, ""), f"exit and stderr of sign {argv}")
    lines = out.splitlines()
    equal(len(lines), 4, f"lines of {out!r}")
    check(lines[0].startswith("OpenSandbox-Ingress-To: ") and lines[1].startswith("Host: "), "forms", lines)
    return lines[0], lines[1][6:], lines[2], lines[3]


@test("SR-03", "SR-01")
def what_sign_prints_is_a_route_in_every_form(lab):
    b = lab.backend(mixed)
    routes = {"my-Sand_box": secure(b, TOKEN)}
    alone, rings = key_file(lab, f"  {RING[2:]}\n", "alone"), key_file(lab, ring(z=b"other", a=SECRET), "rings")
    flags = (f"--secure-access-keys={RING}", "--base-domain=gw.test")
    auto, uri = (lab.gateway(f"--mode={m}", *flags, routes=routes) for m in ("auto", "uri"))
    times = (("--ttl=10m",), ("--ttl", "1m30s"), (f"--expires={int(time.time()) + 60}",), ("--expires=2100-01-01T00:00:00Z",),
             ("-expires", "2100-01-01T01:00:00.5+01:00"))
    for file in (alone, rings):
        for when in times:
            header, host, path, short_path = signed_forms(lab, "--key-id=a", f"--secret-file={file}", "--id=my-Sand_box", "--port=3000",
                                                          "--base-domain=gw.test", *when)
            equal(target(auto.client().ask("GET", "/x?y", header)), "/x?y", "header form")
            equal(target(auto.client().ask("GET", "/x?y", host=host)), "/x?y", "Host form")
            equal(target(auto.client().ask("GET", path + "x?y")), "/x?y", "main path form")
            equal(target(uri.client().ask("GET", path + "x?y")), "/x?y", "main path form in uri mode")
            equal(target(uri.client().ask("GET", short_path + "x?y")), "/x?y", "short path form")
            says_hello(opened(auto, path + "ws"))
    header, host, path, _ = signed_forms(lab, "--key-id=a", f"--secret-file={alone}", "--id=my-sandbox", "--port=8080", "--expires=2000000000")
    equal((header, host, path), ("OpenSandbox-Ingress-To: my-sandbox-8080-x2qxvk-5528a7c9a", "my-sandbox-8080-x2qxvk-5528a7c9a",
                                 "/sandboxes/my-sandbox/port/8080/x2qxvk/5528a7c9a/"), "the known answer")
    _, _, path, _ = signed_forms(lab, "--key-id=a", f"--secret-file={alone}", "--id=my-Sand_box", "--port=3000", "--expires=1")
    denied(auto.client().ask("GET", path), "expired", "a route of 1970")


@test("SR-02", "OPS-06")
def sign_refuses_with_one_line_and_shows_no_key(lab):
    alone, broken = key_file(lab, RING[2:], "alone"), key_file(lab, "c2VjcmV0*", "broken")
    good = {"key-id": "a", "secret-file": alone, "id": "sb", "port": "3000", "ttl": "1m"}
    for change in ({"key-id": "ab"}, {"key-id": ""}, {"key-id": "A"}, {"secret-file": "/nonexistent/x"}, {"secret-file": broken}, {"id": ""},
                   {"id": "a/b"}, {"port": "0"}, {"port": "65536"}, {"ttl": "1"}, {"ttl": "-5s"}, {"ttl": None}, {"expires": "5"},
                   {"unknown": "x"}, {"secret-file": lab.dir}, {"ttl": None, "expires": "tomorrow"}):
        flags = [f"--{k}={v}" for k, v in {**good, **change}.items() if v is not None]
        code, out, err = lab.run("sign", *flags)
        equal((code, out), (2, ""), f"exit and stdout for {change}: {err}")
        equal(len(err.splitlines()), 1, f"lines of {err!r}")
        check("c2Vj" not in err and RING[2:] not in err, "a key is shown:", err)
    code, out, _ = lab.run("sign", "--help")
    check(code == 0 and "--secret-file" in out, "sign --help", code, out)


@test("sn-4700efb3")
def access_of_running_exchanges_is_not_judged_again(lab):
    """A token that changes is a changed sandbox: its exchanges end (I6), those of others live on."""
    b = lab.backend(ECHO)
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={"sec": secure(b, TOKEN), "sb1": b})
    changed, kept = opened(gw, SEC + "/ws", RIGHT), opened(gw, P + "/ws")
    hup(gw)
    for c in (changed, kept):
        says_hello(c)
    gw.reload(routes={"sec": secure(b, "another"), "sb1": b})
    check(changed.ending(3) != "late", "a tunnel under the old token lives on")
    kept.send(masked(TEXT, "still"))
    expect_frame(kept, TEXT, "still")
    denied(gw.client().ask("GET", SEC + "/", RIGHT), "mismatch")
