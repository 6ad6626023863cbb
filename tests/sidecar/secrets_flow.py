"""Where a secret may surface: everything the program says, leaves or keeps is searched for marked values, on every road a
request can take and after every kind of end (case VLT-11)."""
import base64
import contextlib
import gzip
import os
import re
import resource
import signal
import urllib.parse

from bench import check, equal, test, wait_for
from mitm_bad_flow import PARENT, parent
from vaulted import BOTH, Vaulted, binding, credential, vault
from webs import Said
from wire import Ended, Late, Skipped, chunked, request

# Values that stand nowhere else, one for each way in.
MARKS = {"k": "MARK-bearer-41ae9c7d55", "a": "MARK-apikey-93bb01d2f6", "h": "MARK-custom-5e77c0aa18", "p": "MARK-path-d0c3be6612",
         "q": "MARK-query \u00e9&-a71f00e9", "d": "MARK-\"body\"-08f3bb7c21", "t": "MARK-basic-placed-66aa10", "u": base64.b64encode(
             b"user:MARK-password-77d1e0").decode()}
TOKEN = "MARK-token-of-the-api-ee0192"
PARENTS = "MARK-of-the-parent-5512af"
PLACEHOLDERS = {"p": "PLACE-path-1", "q": "PLACE-query-1", "d": "PLACE-body-1", "t": "PLACE-basic-1"}


def needles(values):
    """All spellings of values that would give them away, as bytes."""
    out = set()
    for v in values:
        out |= {v, urllib.parse.quote(v, safe=""), urllib.parse.quote_plus(v), v.replace('"', '\\"'), v.encode("unicode-escape").decode()}
        for shift in range(3):      # base64 of it at each alignment, without the edges that depend on the neighbours
            coded = base64.b64encode(b"\0" * shift + v.encode()).decode()
            out.add(coded[4 if shift else 0:len(coded) // 4 * 4 - 4])
    if MARKS["u"] in values:
        out.add("MARK-password-77d1e0")
    return [n.encode() for n in out if len(n) >= 12]


def everything():
    """The body of a POST with all kinds of credentials."""
    all_kinds = [
        binding("bearer", {"type": "bearer", "credential": "k"}, paths=["/v1/*"]),
        binding("key", {"type": "apiKey", "name": "X-Key", "credential": "a"}, paths=["/key/*"]),
        binding("custom", {"type": "customHeaders", "headers": [{"name": "X-One", "credential": "h"}, {"name": "Cookie", "credential": "k"}]}, paths=["/custom/*"]),
        binding("basic", {"type": "basic", "credential": "u"}, paths=["/basic/*"]),
        binding("fill", {"type": "passthrough", "substitutions": [
            {"credential": n, "placeholder": PLACEHOLDERS[n], "in": [where]} for n, where in (("p", "path"), ("q", "query"), ("d", "body"), ("t", "header"))]},
                paths=["/fill/*"])]
    return vault(*all_kinds, **MARKS)


def says_all(q):
    """Everything that came goes back, in fields, body and trailers; /gzip coded, /bad in a coding nobody knows."""
    mine = [v for n, v in q.fields if n.lower() in ("authorization", "x-key", "x-one", "cookie")]
    text = " ".join([*mine, q.target, q.body.decode("utf-8", "replace")]).encode("latin-1", "replace")
    if "/cut" in q.target:
        return Said(200, body=[text[:len(text) // 2]], then="cut")
    if "/bad" in q.target:
        return Said(200, "Content-Encoding: rot13", body=text)
    more = [f"X-Echo-{i}: {v}" for i, v in enumerate(mine)] + [f"Location: {q.target}"]
    if "/gzip" in q.target:
        return Said(200, "Content-Encoding: gzip", *more, body=gzip.compress(text))
    return Said(200, *more, body=[text[i:i + 7] for i in range(0, len(text), 7)], trailers=[f"X-T: {v}" for v in mine[:1]],
                interim=[(103, [f"Link: <{q.target}>"])])


PATHS = ("/v1/x", "/v1/gzip", "/v1/bad", "/v1/cut", "/v1/../x", "/key/x", "/custom/x", "/basic/x", "/fill/PLACE-path-1?k=PLACE-query-1", "/none", "/v1/%2e%2e/x")


def drive(b):
    """Every road of a request, over both versions; the secrets are in use and come back."""
    basic = "Authorization: Basic " + base64.b64encode(b"me:PLACE-basic-1").decode()
    for make in (b.h1, b.h2):
        for path in PATHS:
            for how in ({}, {"body": b'{"a":"PLACE-body-1"}'}, {"body": [b'{"a":"PLACE-', b'body-1"}'], "trailers": ["X-T: 1"]}):
                with contextlib.suppress(Ended, Late):
                    a = make().ask("POST" if how else "GET", path, "Content-Type: application/json", *([basic] if "fill" in path else []), **how)
                    for n in needles(MARKS.values()):
                        check(n not in a.raw + a.body + repr(a.trailers).encode(), path, "shows", n)
        with contextlib.suppress(Ended, Late):
            make().ask("GET", "/v1/x", host="evil.test")
        c = make()
        if c.version == "h2":           # left in the middle
            s = c.open("POST", "/v1/x", end=False)
            s.send(b"half")
            s.reset()
            c.open("POST", "/fill/x", "content-type: application/json", end=False).send(b"PLACE-bo")
        else:
            c.send(request("POST", "/fill/x", "Content-Type: application/json", "Content-Length: 100", host="api.test") + b"PLACE-body-1")
        c.close()


def api(b):
    """Every kind of answer that the API gives; all of it."""
    said = []
    asks = [("GET", "/credential-vault", None), ("GET", "/credential-vault/credentials", None), ("GET", "/credential-vault/bindings", None),
            ("GET", "/credential-vault/credentials/k", None), ("GET", "/credential-vault/bindings/fill", None), ("GET", "/credential-vault/zz", None),
            ("POST", "/credential-vault", everything()), ("PATCH", "/credential-vault", {"expectedRevision": 999, **patch_of()}),
            ("PATCH", "/credential-vault", {"credentials": {"add": [credential("k", MARKS["k"])]}}),
            ("PATCH", "/credential-vault", {"credentials": {"add": [credential(MARKS["k"][:4], MARKS["k"] + "\n")]}}),
            ("PATCH", "/credential-vault", {"bindings": {"add": [binding("z", hosts=["nope.test"])]}, "credentials": {"replace": [credential("k", MARKS["k"])]}}),
            ("PATCH", "/credential-vault", '{"credentials":{"add":[{"name":"x","source":{"value":"' + MARKS["k"] + '"'),
            ("PATCH", "/credential-vault", '{"credentials":{"add":[{"name":"x","source":{"velue":"' + MARKS["k"] + '"}}]}}'),
            ("PATCH", "/credential-vault", '{"credentials":{"add":[{"name":"x","source":"' + MARKS["k"] + '"}]}}'),
            ("PATCH", "/credential-vault", '{"credentials":' + "[" * 100 + '"' + MARKS["k"] + '"'),
            ("PATCH", "/credential-vault", patch_of()), ("GET", "/policy", None), ("GET", "/policy/log?since=0", None), ("GET", "/healthz", None)]
    for method, target, body in asks:
        a = b.s.ask(method, target, body)
        said += [a.raw, a.body]
    a = b.s.ask("POST", "/credential-vault", everything(), token=TOKEN[:-1] + "x")
    equal(a.status, 401)
    said += [a.raw, a.body]
    c = b.s.client()        # a write that is broken off
    c.send(request("PATCH", "/credential-vault", f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}", "Content-Length: 5000", host="x") + b'{"credentials":{"add":[{"name":"x","source":{"value":"' + MARKS["a"].encode())
    c.close()
    c = b.s.client()
    c.send(request("PATCH", "/credential-vault", f"OPENSANDBOX-EGRESS-AUTH: {TOKEN}", "Transfer-Encoding: chunked", host="x")
           + chunked(*[bytes([x]) for x in b'{"credentials":{"replace":[{"name":"a","source":{"value":"' + MARKS["a"].encode() + b'"}}]}}']))
    a = c.response()
    equal(a.status, 200, a.body)
    said += [a.raw, a.body]
    for path in ("/metrics", "/healthz", "/readyz", "/debug", "/"):
        a = b.s.admin(path)
        said += [a.raw, a.body]
    return b"\n".join(said)


def patch_of():
    return {"credentials": {"replace": [credential("h", MARKS["h"])]}}


def files(folder):
    """Contents of all files below."""
    for where, _, names in os.walk(folder):
        for n in names:
            with contextlib.suppress(OSError), open(os.path.join(where, n), "rb") as f:
                yield os.path.join(where, n), f.read()


def mappings(pid):
    """(begin, end, is kept out of dumps, name) of what can be written or is ours alone."""
    out = []
    with open(f"/proc/{pid}/smaps", encoding="ascii") as f:
        for line in f:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+\s*(.*)$", line)
            if m:
                out.append([int(m[1], 16), int(m[2], 16), m[3], m[4], set()])
            elif line.startswith("VmFlags:"):
                out[-1][4] = set(line.split()[1:])
    return [(a, b, "dd" in flags, f"{name} {mode}") for a, b, mode, name, flags in out if "w" in mode and "s" not in mode[3]]


def memory(pid, dd=False):
    """(place, bytes) of the pages of a process that may be written; dd: also what is kept out of dumps."""
    found = 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for begin, end, hidden, name in mappings(pid):
            if (hidden and not dd) or end - begin > 1 << 30:
                continue
            at = begin
            while at < end:
                n = min(end - at, 1 << 24)
                try:
                    mem.seek(at)
                    data = mem.read(n)
                except OSError:
                    data = b""
                found += len(data)
                yield f"{at:x} {name}", data
                at += max(n, 1)
    check(found > 1 << 20, "no memory could be read")


def nowhere(pid, values, dd=False):
    """None of these in the memory of the process."""
    seen = []
    wanted = needles(values)
    for place, data in memory(pid, dd):
        for n in wanted:
            at = data.find(n)
            if at >= 0:
                seen.append(f"{n!r} at {place} +{at:x}: {data[max(0, at - 80):at + len(n) + 40]!r}")
    check(not seen, f"{len(seen)} places:", "\n  ".join(seen[:12]))


@contextlib.contextmanager
def cores_wanted():
    """Programs that are started in here may leave cores."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def full(lab, **how):
    folder = os.getcwd()
    os.chdir(lab.dir)       # a core would be left here
    try:
        with cores_wanted():
            return Vaulted(lab, body=everything(), handler=says_all, TOKEN=TOKEN, LOG_LEVEL="debug", SANDBOX_ID="sb", POLICY_FILE=os.path.join(lab.dir, "policy.json"),
                           env={"ASAN_OPTIONS": "exitcode=99:detect_leaks=0:handle_segv=0:disable_coredump=0"}, **how)
    finally:
        os.chdir(folder)


@test("VLT-11", "17", "20", "23", limit=240)
def nothing_that_is_said_or_left_holds_a_secret(lab):
    b = full(lab, supervised=True, PROXY_ADDR="127.0.0.1:3128", UPSTREAM_PROXY_AUTH=f"Basic {PARENTS}", UPSTREAM_PROXY="http://up.test:8443",
             zone={"up.test": {"A": [PARENT]}}, before=lambda w: w.origin(PARENT, 8443, parent([])))
    b.s.expect_crashes = True
    drive(b)
    said = api(b)
    b.api.stop()
    for c in b.clients():
        c.ask("GET", "/v1/down")
    for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGTERM):
        with open(f"/proc/{b.s.worker}/environ", "rb") as f:
            said += f.read()
        for pid in (b.s.worker, b.s.pid):
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                said += f.read()
        starts = b.s.starts()
        os.kill(b.s.worker, number)
        wait_for(lambda: b.s.starts() > starts, "the next worker", 30)
        b.s.wait_healthy()
        b.learn()
        for c in b.clients():
            c.ask("GET", "/v1/x")
        if number != signal.SIGTERM:
            b.post(everything())
    b.s.ask("DELETE", "/credential-vault")
    said += api_after(b)
    b.s.term()
    b.s.exit()
    wanted = needles([*MARKS.values(), TOKEN, PARENTS])
    inside = [*files(b.w.dir), *files(lab.dir), ("what it said", said)]
    cores = [n for n, _ in inside if os.path.basename(n).startswith("core")]
    equal(cores, [], "cores")
    for where, data in inside:
        for n in wanted:
            check(n not in data, n, "is in", where, data[max(0, data.find(n) - 200):data.find(n) + 60])
    text = b.s.stdout() + b.s.stderr()
    for word in (*PLACEHOLDERS.values(), "k=PLACE", "/fill/PLACE"):
        check(word not in text, "in the log:", word, text[max(0, text.find(word) - 300):text.find(word) + 100])


def api_after(b):
    out = b""
    for method, target in (("GET", "/credential-vault"), ("GET", "/policy"), ("DELETE", "/credential-vault")):
        a = b.s.ask(method, target)
        out += a.raw + a.body
    return out + b.s.admin("/metrics").body


@test("VLT-11", "17", limit=240)
def ordinary_memory_holds_no_secret(lab):
    """While they are in use only locked memory that no dump shows has them; after that nothing at all has."""
    if lab.sanitizer:
        raise Skipped("a sanitizer keeps what was freed")
    for alpn in (BOTH, ("h2",)):
        in_use_and_gone(full(lab, alpn=alpn))


def in_use_and_gone(b):
    values = list(MARKS.values())
    if not os.access(f"/proc/{b.s.worker}/mem", os.R_OK):
        raise Skipped("may not look into another process")
    nowhere(b.s.worker, values)
    drive(b)
    nowhere(b.s.worker, values)
    check(any(MARKS["k"].encode() in data for _, data in memory(b.s.worker, True)), "the search finds what there is")
    api(b)
    nowhere(b.s.worker, values)
    kept = b.clients()
    for c in kept:
        c.ask("GET", "/v1/x")
    equal(b.s.ask("PATCH", "/credential-vault", {"credentials": {"replace": [credential("k", "another-value-now")]}}).status, 200)
    for c in kept:
        c.ask("GET", "/v1/x")
    nowhere(b.s.worker, [MARKS["k"]], dd=True)
    equal(b.s.ask("DELETE", "/credential-vault").status, 204)
    for name in ("other.test", "evil.test"):
        b.h2(name, trust=b.theirs).ask("GET", "/")
    nowhere(b.s.worker, values, dd=True)


@test("VLT-11", "17", limit=120)
def what_clients_of_the_api_send_is_wiped(lab):
    """Their token stands where the settings have it, and nowhere else."""
    if lab.sanitizer:
        raise Skipped("a sanitizer keeps what was freed")
    b = full(lab)
    for method, target in (("GET", "/policy"), ("GET", "/credential-vault"), ("POST", "/credential-vault"), ("PUT", "/zz")):
        b.s.ask(method, target, None if method == "GET" else b"{")
    places = [place for place, data in memory(b.s.worker) for _ in range(data.count(TOKEN.encode()))]
    check(len(places) <= 1, places)


@test("VLT-11", "17", "23", limit=90)
def others_may_not_look_into_the_process(lab):
    """Not even those of the same user: in mode proxy that is the workload's own."""
    b = Vaulted(lab, MODE="proxy", MITMPROXY_TRANSPARENT=None, PROXY_ADDR="127.0.0.1:3128", learn=False, who="nobody", TOKEN=TOKEN)
    for pid in {b.s.pid, b.s.worker}:
        for name in ("mem", "environ", "maps", "fd/0", "root"):
            for who in () if lab.sanitizer else ("nobody", "root"):      # a sanitizer looks at itself as a debugger does
                code, out, _ = b.w.run("head", "-c", "10", f"/proc/{pid}/{name}", who=who)
                check(code != 0 and not out, who, "reads", name, out)
        with open(f"/proc/{pid}/environ", "rb") as f:
            check(TOKEN.encode() not in f.read(), "the token is in the environment")
        with open(f"/proc/{pid}/limits", encoding="ascii") as f:
            check(re.search(r"Max core file size\s+0\s+0", f.read()), "it may leave a core")


@test("VLT-11", "17", "23", limit=90)
def the_vaults_memory_is_locked_and_not_dumped(lab):
    b = full(lab)
    places = []
    for begin, end, hidden, name in mappings(b.s.worker):
        if end - begin > 1 << 30:
            continue
        with open(f"/proc/{b.s.worker}/mem", "rb", buffering=0) as mem, contextlib.suppress(OSError):
            mem.seek(begin)
            if MARKS["k"].encode() in mem.read(end - begin):
                places.append((begin, end, hidden, name))
    check(places, "no place holds the value: the search is wrong")
    if not lab.sanitizer:
        check(all(hidden for _, _, hidden, _ in places), "a place that a dump would show:", places)
    with open(f"/proc/{b.s.worker}/status", encoding="ascii") as f:
        locked = next(int(line.split()[1]) for line in f if line.startswith("VmLck"))
    warned = b.s.logged(lambda line: line["level"] == "warn" and "lock" in line.get("msg", ""))
    check(locked > 0 or warned or lab.sanitizer, "locked kB:", locked)
