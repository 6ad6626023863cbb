"""The vault changes while it is used: what was answered with 2xx holds for the next request and no request sees two vaults;
and when it is lost, what was bound is refused."""
import os
import signal
import threading
import time

from bench import allow, check, closed, equal, test, wait_for
from vaulted import EXPORT, GOOD, SECRET, Vaulted, binding, clean, credential, injected, refused, vault
from webs import H2Answer, Said, reflect
from wire import Ended, Late, chunked, request
from world import Load

NEXT = "CANARY-rotated-2b"
GONE = "credential proxy unavailable"


# ---- connections that stay while the vault changes

@test("23", "E14", "VLT-11", limit=120)
def the_next_request_has_the_value_of_now_on_connections_that_stay(lab):
    b = Vaulted(lab, body=vault(binding(), binding("keeps", paths=["/keeps/*"]), k=SECRET))
    clients = b.clients()
    for c in clients:
        c.ask("GET", "/v1/x")
        injected(b)
    for i in range(20):
        b.replace(f"{NEXT}-{i}")
        for c in clients:
            a = c.ask("GET", "/v1/x")
            equal(a.status, 200)
            clean(a, secret=f"{NEXT}-{i}")
            injected(b, f"{NEXT}-{i}")
    b.unbind()
    for c in clients:
        equal(c.ask("GET", "/v1/x", "Authorization: mine").get("x-echo"), "mine")
        c.ask("GET", "/keeps/x")
        injected(b, f"{NEXT}-19")
    b.unbind("keeps")
    for c in clients:
        check(c.ending(10) in ("fin", "reset"), c.version, "connection of a host that is bound no more")
    a = b.h1(trust=b.theirs).ask("GET", "/v1/x")
    equal((a.status, a.get("x-echo")), (200, "-"))


@test("23", "21", limit=90)
def the_published_sequence_of_changes(lab):
    b = Vaulted(lab, body=vault())
    equal(b.s.ask("GET", "/credential-vault").json, {"revision": 1, "credentials": [], "bindings": []})
    steps = (
        ({"credentials": {"add": [credential("k", SECRET)]}, "bindings": {"add": [binding()]}}, {"/v1/x": SECRET}),
        ({"bindings": {"delete": ["b"]}}, {"/v1/x": None}),
        ({"credentials": {"replace": [credential("k", NEXT)]}, "bindings": {"add": [binding("c", paths=["/v2/*"])]}}, {"/v1/x": None, "/v2/x": NEXT}),
        ({"bindings": {"delete": ["c"]}}, {"/v1/x": None, "/v2/x": None}),
        ({"credentials": {"delete": ["k"]}}, {"/v2/x": None}))
    for i, (body, wanted) in enumerate(steps, 1):
        a = b.patch({"expectedRevision": i, **body})
        equal(a.json["revision"], i + 1)
        bound = any(v for v in wanted.values())
        for path, value in wanted.items():
            for c in b.clients(trust=EXPORT if bound else b.theirs):
                equal(c.ask("GET", path, "Authorization: mine").status, 200)
                equal((i, path, b.api.last.all("authorization")), (i, path, [f"Bearer {value}" if value else "mine"]))
    a = b.s.ask("PATCH", "/credential-vault", {"expectedRevision": 1})
    equal((a.status, a.text), (409, "expectedRevision 1 does not match current revision 6\n"))


@test("23", "2", limit=120)
def an_upload_ends_with_the_vault_it_began_with(lab):
    def handler(q):
        q.conn.patience = 60
        s = getattr(q, "stream", None)
        if s:
            q.body = s.read(60)
        elif q.method == "POST":
            q.body = q.conn.read_body(q.conn.backend.requests[-1], False).body
        return reflect(q)
    b = Vaulted(lab, body=vault(binding(), k=SECRET), handler=handler, eager=True)
    for c in b.clients():
        old = f"{SECRET}-{c.version}"
        b.replace(old)
        n = len(b.api.asked)
        if c.version == "h1":
            c.send(request("POST", "/v1/x", "Transfer-Encoding: chunked", host="api.test") + chunked(b"first", last=False))
        else:
            s = c.open("POST", "/v1/x", end=False)
            s.send(b"first")
        wait_for(lambda: len(b.api.asked) > n, "the head at the origin", 20)
        b.replace(NEXT)
        tail = f" {old} {NEXT} end".encode()
        if c.version == "h1":
            c.send(chunked(tail))
            a = c.response()
        else:
            s.send(tail, end=True)
            a = H2Answer(s)
        equal(a.status, 200)
        injected(b, old)
        clean(a, secret=old)
        check(NEXT in a.text, "the new value is not of that request's vault", a.text)
        c.ask("GET", "/v1/x")
        injected(b, NEXT)


@test("23", "2", "14", limit=120)
def an_answer_is_scrubbed_by_the_vault_of_its_request_to_its_end(lab):
    go = threading.Event()
    def pieces():
        yield b"one " + SECRET.encode()[:9]
        check(go.wait(30), "go")
        yield SECRET.encode()[9:] + b" two " + SECRET.encode()
    b = Vaulted(lab, handler=lambda q: Said(200, "Content-Type: text/plain", body=pieces(), trailers=[f"X-Late: {SECRET}"]))
    for how in ("replace", "delete"):
        for make in (b.h1, b.h2):
            c = make()
            go.clear()
            if c.version == "h1":
                c.send(request("GET", "/v1/x", host="api.test"))
                c.head()
                c.until(b"one ")
            else:
                s = c.open("GET", "/v1/x")
                s.next_head(0)
                equal(s.take(4)[:4], b"one ")
            if how == "replace":
                b.replace(NEXT)
            else:
                equal(b.s.ask("DELETE", "/credential-vault").status, 204)
            go.set()
            if c.version == "h1":
                c.until(b"\r\n\r\n")
                text = bytes(c.seen)
            else:
                text = s.read(20)
                text += repr(s.heads[1:]).encode()
                check(s.whole, "whole")
            clean(text)
            check(SECRET[:9].encode() not in text, "the beginning of the secret", text)
            check(b"*" * len(SECRET) in text and b"[REDACTED]" in text and b" two " in text, how, c.version, text)
            if how == "delete":
                b.post(vault(binding(), k=SECRET))
            else:
                b.replace(SECRET)


@test("2", "5.3", "VLT-11", limit=180)
def under_a_storm_of_changes_each_request_has_one_whole_value(lab):
    b = Vaulted(lab, body=vault(binding(auth={"type": "customHeaders", "headers": [{"name": "X-A", "credential": "k"}, {"name": "X-B", "credential": "k"}]}),
                                k="value-000000"))
    def client(make):
        kept = []
        def run():
            if not kept:
                kept.append(make())
            a = kept[0].ask("GET", "/v1/x")
            return a.status, a.body
        return run
    loads = [Load(client(b.h1)), Load(client(b.h2)), Load(client(b.h1))]
    i = 0
    while i < 150 or min(len(load.seen) for load in loads) <= 10:       # each change costs them their connections to the origin
        i += 1
        b.replace(f"value-{i:06}")
    for load in loads:
        seen = load.stop()
        check(len(seen) > 10 and all(isinstance(v, tuple) and v[0] == 200 and b"value-" not in v[1] for _, v in seen), [v for _, v in seen][:3])
    for q in b.api.asked:
        check(len(q.all("x-a")) == 1 and q.all("x-a") == q.all("x-b") and q.get("x-a").startswith("value-"), q)
    order = [q.get("x-a") for q in b.api.asked]
    check(len(set(order)) > 10, "changes seen")


@test("7", "POL-01", limit=90)
def the_policy_stands_above_the_vault(lab):
    b = Vaulted(lab)
    kept = b.clients()
    for c in kept:
        equal(c.ask("GET", "/v1/x").status, 200)
    a = b.s.ask("DELETE", "/policy", ["api.test"])
    equal(a.status, 400)
    check('credential vault policy validation: binding "b" host "api.test" is not allowed by egress policy' in a.text, a.text)
    a = b.s.ask("POST", "/policy", closed(allow("other.test")))
    equal(a.status, 400)
    a = b.s.ask("PATCH", "/credential-vault", {"bindings": {"add": [binding("z", hosts=["not-allowed.test"])]}})
    equal(a.status, 400)
    check('binding "z" host "not-allowed.test" is not allowed by egress policy' in a.text, a.text)
    n = len(b.api.asked)
    b.w.rule_file("deny", "api.test\n")
    wait_for(lambda: b.w.ask("api.test").denied, "the always file", 20)
    wait_for(lambda: b.s.logged(lambda line: line["level"] == "warn" and "api.test" in str(line) and "b" in str(line)), "a warning")
    for c in b.clients():
        refused(c.ask("GET", "/v1/x"), 403, "host denied by egress policy")
    equal(len(b.api.asked), n)
    for c in kept:
        try:
            check(c.ask("GET", "/v1/x").status == 403, "on a connection that was there")
        except (Ended, Late):
            pass
    equal(len(b.api.asked), n)


# ---- lost

@test("VLT-12", "E13", "13.1", limit=120)
def what_was_bound_is_refused_until_a_vault_is_there(lab):
    for end in (signal.SIGKILL, signal.SIGSEGV):
        b = Vaulted(lab, supervised=True, body=vault(binding(), binding("w", hosts=["*.api.test"]), k=SECRET), zone={"x.api.test": {"A": [GOOD]}},
                    PROXY_ADDR="127.0.0.1:3128", env={"ASAN_OPTIONS": "exitcode=99:detect_leaks=0:handle_segv=0"})
        b.s.expect_crashes = True
        for c in b.clients():
            equal(c.ask("GET", "/v1/x").status, 200)
        starts = b.s.starts()
        os.kill(b.s.worker, end)
        wait_for(lambda: b.s.starts() > starts, "the next worker", 20)
        b.s.wait_healthy()
        b.learn()
        b.learn("x.api.test")
        equal(b.s.ask("GET", "/credential-vault").status, 404)
        b.w.recorder.forget()
        n, conns = len(b.asked()), len(b.api.conns)
        for c in (*b.clients(), *b.clients("x.api.test")):
            for path in ("/v1/x", "/other"):
                refused(c.ask("POST", path, "Authorization: PLACEHOLDER-1", body=b"PLACEHOLDER-2"), 503, GONE)
        a = b.w.client(3128)
        equal(a.ask("CONNECT", "api.test:443", host="api.test:443").status, 200)
        a = b.plain().ask("GET", "/v1/x", "Authorization: PLACEHOLDER-1")
        check(a.status in (200, 503), a.status)
        if a.status == 503:
            equal(len(b.asked()), n)
        equal(b.h1("other.test", trust=b.theirs).ask("GET", "/").status, 200, "other hosts")
        equal(len(b.api.conns), conns, "connections at the origin that was bound")
        b.w.recorder.nothing_left("a connection", dst=GOOD, match=lambda f: f.dport == 443)
        if end == signal.SIGKILL:
            b.post(vault(binding(), k=NEXT))
            c = b.h1()
            equal(c.ask("GET", "/v1/x").status, 200)
            injected(b, NEXT)
            equal(b.h1("x.api.test", trust=b.theirs, address=GOOD).ask("GET", "/v1/x").status, 200, "no longer bound")
        else:
            equal(b.s.ask("DELETE", "/credential-vault").status, 404)
            equal(b.h1(trust=b.theirs).ask("GET", "/v1/x").get("x-echo"), "-")


@test("VLT-12", "13.1", limit=90)
def a_vault_that_was_deleted_or_never_there_is_not_lost(lab):
    b = Vaulted(lab, supervised=True, body=False)
    equal(b.s.ask("GET", "/credential-vault").status, 404)
    equal(b.h1(trust=b.theirs).ask("GET", "/v1/x").get("x-echo"), "-")
    for body in (None, vault(binding(), k=SECRET)):
        if body:
            b.post(body)
            equal(b.s.ask("DELETE", "/credential-vault").status, 204)
        b.s.kill_worker()
        b.learn()
        equal(b.h1(trust=b.theirs).ask("GET", "/v1/x").get("x-echo"), "-")
    b.post(vault(binding(), k=SECRET))
    b.unbind()
    b.s.kill_worker()
    b.learn()
    equal(b.h1(trust=b.theirs).ask("GET", "/v1/x").get("x-echo"), "-", "bound to nothing when it crashed")
    b = Vaulted(lab, supervised=True, VAULT_LOST="forward")
    b.s.kill_worker()
    b.learn()
    equal(b.h1(trust=b.theirs).ask("GET", "/v1/x", "Authorization: mine").get("x-echo"), "mine")


@test("VLT-12", "23", limit=240)
def requests_in_flight_at_a_crash_never_leave_without_their_credential(lab):
    """Over and over: whatever moment the worker dies in, no request reaches the bound host bare."""
    b = Vaulted(lab, supervised=True)
    def one(make):
        def run():
            try:
                return make().ask("GET", "/v1/x", "Authorization: PLACEHOLDER").status
            except (Ended, Late, OSError):
                return None
        return run
    loads = [Load(one(b.h1)), Load(one(b.h2))]
    for i in range(6):
        time.sleep(0.15 + 0.05 * i)
        b.s.kill_worker()
        b.learn()
        time.sleep(0.2)
        b.post(vault(binding(), k=SECRET))
    seen = [v for load in loads for _, v in load.stop()]
    check(200 in seen and set(seen) <= {200, 503, None} | {v for v in seen if isinstance(v, OSError)}, set(map(str, seen)))
    bare = [q for q in b.api.asked if q.get("authorization") != "Bearer " + SECRET]
    equal(bare, [])


@test("23", "13.1", limit=120)
def a_change_right_before_a_crash_is_known_after_it(lab):
    b = Vaulted(lab, supervised=True)
    for i in range(4):
        b.patch({"bindings": {"add": [binding(f"n{i}", hosts=["other.test"])]}})
        b.s.kill_worker()
        b.learn()
        for name in ("api.test", "other.test"):
            refused(b.h1(name).ask("GET", "/v1/x", "Authorization: mine"), 503, GONE)
        b.post(vault(binding(), k=SECRET))
    b.unseen("mine")


# ---- the API from elsewhere

@test("VLT-10", "3.5", limit=90)
def a_forged_field_is_no_tls(lab):
    for how, off, status in (({}, True, 201), ({"CREDENTIAL_VAULT_REQUIRE_TLS": "true"}, False, 426),
                             ({"CREDENTIAL_VAULT_REQUIRE_TLS": "true", "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS": "10.99.0.0/24"}, False, 201),
                             ({"CREDENTIAL_VAULT_REQUIRE_TLS": "true", "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS": "10.98.0.0/24"}, False, 426)):
        b = Vaulted(lab, body=False, learn=False, **how)
        fields = [] if off else ["X-Forwarded-Proto: HTTPS"]
        a = b.s.ask("POST", "/credential-vault", vault(binding(), k=SECRET), *fields, remote=True)
        equal((how, a.status), (how, status))
        if status == 426:
            equal(a.text, "credential vault writes require TLS or loopback transport\n")
            equal(b.s.ask("POST", "/credential-vault", vault(binding(), k=SECRET)).status, 201, "loopback")
        elif not off:
            a = b.s.ask("PATCH", "/credential-vault", {}, "X-Forwarded-Proto: http", remote=True)
            equal(a.status, 426)
        equal(b.s.ask("GET", "/credential-vault", remote=True).status, 200)
        equal(b.s.ask("GET", "/credential-vault", remote=True, token=None).status, 401)


@test("VLT-03", "VLT-04", "VLT-05", limit=90)
def what_the_api_refuses_changes_nothing_and_says_no_value(lab):
    b = Vaulted(lab)
    bad = [{"credentials": {"replace": [credential("k", v)]}} for v in ("a\r\nX-Evil: " + NEXT, NEXT + "\n", NEXT + "\0b", "")]
    bad += [{"bindings": {"add": [binding("n", {"type": "customHeaders", "headers": [{"name": n, "credential": "k"}]}, paths=["/n/*"])]}}
            for n in ("Transfer-Encoding", "connection", "HOST", "Content-Length", ":path", "X Y", "", "Trailer")]
    bad += [{"bindings": {"add": [binding("n", hosts=[h], paths=["/n/*"])]}}
            for h in ("api.test:443", "https://api.test", "10.0.0.1", "*.10.0.0.1", "localhost", "*", "*.test", "a_b.test", "api.test/x")]
    bad += [{"bindings": {"add": [binding("n", paths=[p])]}} for p in ("a/b", "")]
    bad += [{"bindings": {"add": [binding("n", paths=["/v1/x*"])]}}, {"bindings": {"add": [binding("n", paths=["/n"], schemes=["ftp"])]}},
            {"bindings": {"add": [binding("n", paths=["/n"], ports=[8443])]}}, {"Credentials": {}}, {"expectedRevision": 1.5}]
    for body in bad:
        a = b.s.ask("PATCH", "/credential-vault", body)
        equal((body, a.status), (body, 400))
        clean(a, secret=NEXT)
        check(a.body.endswith(b"\n") and len(a.body) > 3, a.body)
    equal(b.s.ask("GET", "/credential-vault").json["revision"], 1)
    b.h1().ask("GET", "/v1/x")
    injected(b)
    long, odd = "K" * 20000, "schl\u00fcssel-\u20ac"
    for value in (long, odd):
        b.replace(value)
        for c in b.clients():
            equal(c.ask("GET", "/v1/x").status, 200)
            got = b.api.last.get("authorization")
            equal(got if b.api.last.version == "HTTP/2" else got.encode("latin-1").decode("utf-8"), "Bearer " + value)


@test("3.2", "23", limit=60)
def the_workload_cannot_use_the_api_or_read_a_value(lab):
    b = Vaulted(lab)
    for method, target in (("GET", "/credential-vault"), ("DELETE", "/credential-vault"), ("GET", "/credential-vault/credentials/k"),
                           ("PATCH", "/credential-vault")):
        for token in (None, "", "x", b.s.token[:-1], b.s.token + "x"):
            a = b.s.ask(method, target, token=token)
            equal((method, target, a.status), (method, target, 401))
    for target in ("/credential-vault/_active", "/credential-vault/%5Factive"):
        for token in (None, True):
            equal(b.s.ask("GET", target, token=token).status, 403)
    for target in ("/credential-vault", "/credential-vault/credentials", "/credential-vault/credentials/k", "/credential-vault/bindings/b"):
        a = b.s.ask("GET", target)
        equal(a.status, 200)
        clean(a)


@test("19", "22", limit=90)
def a_thousand_bindings_and_each_finds_its_own(lab):
    names = [f"h{i}.api.test" for i in range(1000)]
    b = Vaulted(lab, body=vault(*[binding(f"b{i}", hosts=[n], auth={"type": "bearer", "credential": f"k{i}"}) for i, n in enumerate(names)],
                                **{f"k{i}": f"CANARY-{i:04}-value" for i in range(1000)}), zone={"h7.api.test": {"A": [GOOD]}, "h999.api.test": {"A": [GOOD]}})
    b.learn("h7.api.test", "h999.api.test")
    for i in (7, 999):
        for c in b.clients(f"h{i}.api.test"):
            a = c.ask("GET", "/v1/x")
            equal(a.status, 200)
            clean(a, secret="CANARY-")
            injected(b, f"CANARY-{i:04}-value")




@test("LIFE-05", "13.1", limit=60)
def after_an_orderly_end_of_the_worker_the_next_one_takes_connections(lab):
    b = Vaulted(lab, supervised=True, PROXY_ADDR="127.0.0.1:3128")
    for _ in range(2):
        starts = b.s.starts()
        os.kill(b.s.worker, signal.SIGTERM)
        wait_for(lambda: b.s.starts() > starts, "the next worker", 20)
        b.s.wait_healthy()
        b.learn()
        equal(b.h1("other.test", trust=b.theirs).ask("GET", "/").status, 200)
        refused(b.h1().ask("GET", "/v1/x"), 503, GONE)
        equal(b.w.client(3128).ask("GET", "http://other.test/", host="other.test").status, 200)


@test("20", limit=60)
def what_the_vault_does_is_counted(lab):
    b = Vaulted(lab)
    names = ("credential_proxy_requests_total", "credential_proxy_injections_total", "credential_proxy_denials_total", "credential_vault_mutations_total",
             "credential_vault_mutation_failures_total")
    before = {n: b.s.metric("opensandbox_" + n) or 0 for n in names}
    for c in b.clients():
        c.ask("GET", "/v1/x")
        c.ask("GET", "/v1/../x")
        c.ask("GET", "/none")
    b.patch({})
    b.patch({"expectedRevision": 77}, 409)
    def grown():
        return {n: (b.s.metric("opensandbox_" + n) or 0) - before[n] for n in names}
    wait_for(lambda: grown()[names[0]] >= 6, f"requests, {grown()}")
    seen = grown()
    equal((seen[names[1]], seen[names[2]], seen[names[3]]), (2, 2, 1), "injections, denials, mutations")
    equal(seen[names[4]], 1, "failures of mutations")
    check((b.s.metric("opensandbox_credential_proxy_request_duration_seconds_count") or 0) > 0, "durations")
    lines = b.s.told(lambda line: line.get("decision") in ("injected", "denied"), 4)
    check(all(line["target.host"] == "api.test" and line.get("binding", "b") == "b" for line in lines), lines)
