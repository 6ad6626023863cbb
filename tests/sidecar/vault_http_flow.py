"""Requests that want the credential at the wrong place: names that disagree, paths that mean two things, framing that means two
things, redirects, and whatever else the workload can write on a connection that is read."""
import base64
import contextlib
import threading

from bench import check, equal, test, wait_for
from vaulted import (AMBIGUOUS, ENDPOINT, EVIL, FREE, GOOD, MISMATCH, OTHER, SECRET, Vaulted, binding, clean, filled, injected, refused,
                     vault)
from webs import H1Client, H2Answer, H2Client, Said, reflect
from wire import Ended, Late, chunked, request

WIDE = binding(paths=["/*"])


# ---- one name

SAME = ("api.test", "API.test", "api.test.", "api.test:443", "Api.Test.:443")
OTHERS = ("evil.test", "other.test", "api.test:8443", "api.test:80", "x.api.test", "api.test.evil.test", "xapi.test", GOOD, f"[{'::1'}]",
          "api.test.:8443", "apiXtest")
BROKEN = ("", " ", "api.test@evil.test", "evil.test@api.test", "api.test/evil.test", "api.test\\evil.test", "api.test?x", "api.test#x",
          "api.test%2eevil", "api.test,evil.test", "api.test:0", "api.test:0443", "api.test:65536", "api.test:", "api.test:443:443",
          "api..test", ".api.test", "api.test..", "api.test:44x3", "api.test evil.test", "ap\u00edi.test")


@test("VLT-01", "8.2", limit=180)
def every_authority_is_the_name_of_the_tls_or_refused(lab):
    b = Vaulted(lab)
    for version in ("h1", "h2"):
        for host in SAME:
            c = getattr(b, version)()
            equal((host, c.ask("GET", "/v1/x", host=host).status), (host, 200))
            injected(b)
        n = len(b.asked())
        c = getattr(b, version)()
        for host in OTHERS:
            refused(c.ask("GET", "/v1/x", "Authorization: fake", host=host), 421, MISMATCH)
        equal(c.ask("GET", "/v1/x").status, 200, "the connection stays usable")
        for host in BROKEN:
            c = getattr(b, version)()
            c.patience = 10
            try:
                a = c.ask("GET", "/v1/x", host=host.encode("utf-8").decode("latin-1") if version == "h1" else host)
            except (Ended, Late) as e:
                check(version == "h2" and "reset" in str(e), version, repr(host), e)
                continue
            check(a.status in (400, 421), version, repr(host), a.status)
        equal(len(b.asked()), n + 1, "requests that reached an origin")


@test("VLT-01", "8.2", limit=120)
def names_in_two_places_must_agree(lab):
    b = Vaulted(lab)
    for target, fields, status in (
            ("http://api.test/v1/x", ["Host: api.test"], 200), ("https://api.test/v1/x", ["Host: api.test"], 200),
            ("http://evil.test/v1/x", ["Host: api.test"], 421), ("https://api.test/v1/x", ["Host: evil.test"], 421),
            ("https://api.test:8443/v1/x", ["Host: api.test"], 421), ("https://u:p@api.test/v1/x", ["Host: api.test"], 400),
            ("/v1/x", [], 400), ("/v1/x", ["Host: api.test", "Host: api.test"], 400), ("/v1/x", ["Host: api.test", "Host: evil.test"], 400),
            ("/v1/x", ["Host: evil.test", "Host: api.test"], 400), ("//evil.test/v1/x", ["Host: api.test"], 200)):
        n, c = len(b.asked()), b.h1()
        c.send(request("GET", target, *fields, host=None))
        a = c.response()
        equal((target, fields, a.status), (target, fields, status))
        equal(len(b.asked()) - n, 1 if status == 200 else 0, f"{target} {fields} at an origin")
    for version, status in (("HTTP/1.0", 400), ("HTTP/1.9", 505), ("HTTP/3.0", 505), ("HTTP/2.0", 505)):
        c = b.h1()
        c.send(request("GET", "/v1/x", host=None if version == "HTTP/1.0" else "api.test", version=version))
        with contextlib.suppress(Ended):
            check(c.response().status in (status, 400), version)
    for authority, fields, status in (("api.test", ["host: api.test"], 200), ("api.test", ["host: evil.test"], 421), (False, ["host: api.test"], 200),
                                      (False, ["host: evil.test"], 421), (False, [], 400), ("evil.test", ["host: api.test"], 421),
                                      ("api.test", ["host: api.test", "host: api.test"], 400)):
        n, c = len(b.asked()), b.h2()
        try:
            s = c.open("GET", "/v1/x", *fields, host=authority)
            equal((authority, fields, H2Answer(s).status), (authority, fields, status))
        except Ended as e:     # malformed, as RFC 9113 section 8.3.1 lets us say
            check(status != 200 and str(e) == "reset 1", authority, fields, e)
        equal(len(b.asked()) - n, 1 if status == 200 else 0, f"{authority} {fields} at an origin")
    b.unseen(at=b.web["evil.test"])


@test("VLT-01", "E12", limit=120)
def the_bound_name_on_the_wrong_connection(lab):
    b = Vaulted(lab, body=vault(WIDE, k=SECRET), PROXY_ADDR="127.0.0.1:3128")
    b.w.recorder.forget()
    evil = b.h1("evil.test", trust=b.theirs)                                # (a)
    equal(evil.ask("GET", "/v1/x", host="api.test").get("x-echo"), "-")
    c = b.h2("evil.test", trust=b.theirs)
    equal(c.ask("GET", "/v1/x", host="api.test").get("x-echo"), "-")
    for address in (EVIL, FREE):                                           # (c)
        a = b.plain("api.test", address).ask("GET", "/v1/x")
        refused(a, 421)
    for c in b.clients():                                                  # (d)
        refused(c.ask("GET", "/v1/x", host="evil.test"), 421, MISMATCH)
    for c in (b.w.keep(H1Client(b.handshake(sock=b.tunnel("evil.test:443"), alpn=("http/1.1",)), "api.test")),):    # (f)
        for host in ("api.test", "evil.test"):
            refused(c.ask("GET", "/v1/x", host=host), 421, MISMATCH)
    for target in (f"{EVIL}:443", f"{FREE}:443"):                          # CONNECT to an address: dialling it
        with contextlib.suppress(OSError, Ended, Exception):
            c = b.w.keep(H1Client(b.handshake(sock=b.tunnel(target), alpn=("http/1.1",)), "api.test"))
            check(c.ask("GET", "/v1/x").status != 200, target, "was answered")
    b.unseen()
    b.w.recorder.nothing_left("a connection", dst=FREE)
    b.web["evil.test"].stop(), b.api.stop()                                # (b): the peer shows another name
    b.serve(GOOD, "evil.test", reflect)
    for c in b.clients():
        refused(c.ask("GET", "/v1/x"), 502)
    b.unseen()


@test("VLT-01", "E18", limit=120)
def the_explicit_proxy_judges_the_same(lab):
    for how in ({}, {"MITMPROXY_TRANSPARENT": None}):
        b = Vaulted(lab, PROXY_ADDR="127.0.0.1:3128", learn=False, **how)
        for alpn in (("http/1.1",), ("h2",)):
            sock = b.handshake(sock=b.tunnel("api.test:443"), alpn=alpn)
            c = b.w.keep((H2Client if alpn == ("h2",) else H1Client)(sock, "api.test"))
            a = c.ask("GET", "/v1/x", "Authorization: fake")
            equal(a.status, 200, a.text)
            clean(a)
            injected(b)
            refused(c.ask("GET", "/v1/x", host="evil.test"), 421, MISMATCH)
            refused(c.ask("GET", "/v1/../x"), 403, AMBIGUOUS)
        c = b.w.client(3128)
        a = c.ask("GET", "http://api.test/v1/x", host="api.test")
        equal(a.status, 200)
        equal(b.clear["api.test"].last.get("authorization"), None, "in clear")
        for target in ("evil.test:443", "other.test:443"):
            try:
                b.handshake("api.test", sock=b.tunnel(target), alpn=("http/1.1",))
            except OSError as e:
                check(False, "a bound name behind another CONNECT is to be intercepted and told 421:", e)


# ---- where it does not go

@test("VLT-02", limit=90)
def a_redirect_carries_nothing_over(lab):
    def handler(q):
        return Said(307, "Location: https://other.test/blob?Signature=1") if q.target == "/v1/x" else reflect(q)
    b = Vaulted(lab, handler=handler)
    for c, d in zip(b.clients(), b.clients("other.test", trust=b.theirs)):
        a = c.ask("GET", "/v1/x", "Authorization: Bearer fake")
        equal((a.status, a.get("location")), (307, "https://other.test/blob?Signature=1"))
        injected(b)
        d.ask("GET", "/blob?Signature=1", "Authorization: Bearer fake")
        equal(b.web["other.test"].last.all("authorization"), ["Bearer fake"])
    equal(len(b.api.asked), 2, "requests; nothing is followed or asked again")


@test("9.4", "VLT-05", limit=90)
def other_methods_paths_and_hosts_stay_as_they_are(lab):
    b = Vaulted(lab, body=vault(binding(hosts=["api.test", "*.api.test"]), k=SECRET), zone={"deep.x.api.test": {"A": [GOOD]}},
                names=("deep.x.api.test",))
    b.learn("deep.x.api.test")
    for c in b.clients():
        for method, target in (("HEAD", "/v1/x"), ("OPTIONS", "/v1/x"), ("DELETE", "/v1/x"), ("PATCH", "/v1/x"), ("GET", "/v2/x"),
                               ("GET", "/V1/x"), ("GET", "/v1"), ("GET", "/?/v1/x"), ("GET", "/v2/../v1/x"), ("GET", "/%76%31/x"),
                               ("GET", "//v1/x")):
            a = c.ask(method, target, "Authorization: Bearer fake")
            equal((method, target, a.status), (method, target, 200))
            equal((method, target, b.api.last.all("authorization")), (method, target, ["Bearer fake"]))
        b.unseen()
    for c in b.clients("deep.x.api.test"):
        equal(c.ask("GET", "/v1/x").status, 200)
        injected(b)


@test("VLT-08", limit=60)
def a_signed_request_is_changed_in_its_one_field_and_not_repeated(lab):
    b = Vaulted(lab, handler=lambda q: Said(403, "X-Why: signature", body=b"bad signature"))
    for c in b.clients():
        n = len(b.api.asked)
        a = c.ask("POST", "/v1/x", "X-Signature: hmac=abcdef", "X-Date: today", "Authorization: AWS4-HMAC-SHA256 fake", body=b"payload")
        equal((a.status, a.get("x-why"), a.body), (403, "signature", b"bad signature"))
        equal(len(b.api.asked), n + 1)
        injected(b)
        equal((b.api.last.get("x-signature"), b.api.last.get("x-date"), b.api.last.body), ("hmac=abcdef", "today", b"payload"))


@test("VLT-09", limit=120)
def clear_text_gets_it_only_where_it_is_bound_and_leased(lab):
    b = Vaulted(lab)
    a = b.plain().ask("GET", "/v1/x", "Authorization: fake")
    equal((a.status, a.get("x-echo")), (200, "fake"), "https is the default")
    b.w.recorder.nothing_left("the secret in clear", holds=SECRET.encode())
    b.patch({"bindings": {"replace": [binding(schemes=["http"])]}})
    wait_for(lambda: b.s.logged(lambda line: "http" in line.get("warning", "")), "a warning")
    c = b.plain()
    a = c.ask("GET", "/v1/x")
    equal((a.status, a.get("x-echo")), (200, "[REDACTED]"))
    clean(a)
    injected(b, web=b.clear["api.test"])
    equal(c.ask("GET", "/v1/x", host="other.test").status, 421, "leased to another name")
    equal(c.ask("GET", "/v1/x", host=GOOD).get("x-echo"), "-")
    for address in (OTHER, EVIL):
        refused(b.plain("api.test", address).ask("GET", "/v1/x"), 421, ENDPOINT if address != FREE else None)
    refused(b.plain("api.test", OTHER).ask("GET", "/v2/x"), 421)
    for host in ("api.test:8080", "api.test@evil.test"):
        check(c.ask("GET", "/v1/x", host=host).status in (400, 421), host)
        c = b.plain()
    for name in ("other.test", "evil.test"):
        b.unseen(at=b.clear[name])


# ---- paths

@test("10", "23", limit=120)
def a_path_that_means_two_things_is_refused(lab):
    host = "x.api.test"
    b = Vaulted(lab, zone={host: {"A": [GOOD]}}, body=vault(
        binding(hosts=[host]), binding("n", {"type": "apiKey", "name": "X-Key", "credential": "n"}, hosts=["*.api.test"],
                                       paths=["/v1/admin/*", "/pkg/*"]), k=SECRET, n="ANOTHER-secret"))
    b.learn(host)
    deep = lambda k: "/v1/%" + "25" * k + "2f"
    bad = ("/v1/../x", "/v1/..", "/v1/x/..", "/v1/%2e%2e/x", "/v1/.%2E/x", "/v1/%252e%252e/x", "/v1/..%2fx", "/v1/a%5cb", "/v1/a\\b", "/v1/%255C",
           "/v1/admin%2fx", "/v1/admin%252fx", deep(9))
    good = ("/v1/./x", "/v1//x", "/v1/x;p=1", "/v1/...", "/v1/..foo", "/v1/foo..", "/v1/a%2fb", "/v1/%c0%af", "/v1/x?a=../..", "/v1/%zz", deep(8))
    for c in b.clients(host, address=GOOD):
        for path in bad:
            n = len(b.api.asked)
            refused(c.ask("GET", path), 403, AMBIGUOUS)
            equal((path, len(b.api.asked)), (path, n))
            if c.version == "h1":
                equal(c.ask("GET", "/v1/x").status, 200, "the connection stays usable")
        for path in good:
            a = c.ask("GET", path)
            equal((path, a.status, b.api.last.target), (path, 200, path))
            injected(b)


# ---- refusals and bodies

@test("13", "23", limit=120)
def a_refusal_is_always_told_whatever_the_body(lab):
    b = Vaulted(lab)
    big = b"b" * (2 << 20)
    for path, status, host in (("/v1/../x", 403, "api.test"), ("/v1/x", 421, "evil.test")):
        n = len(b.asked())
        for how in ({"body": big}, {"body": [big[:100000]] * 20}, {"body": b"", }, {"body": b"x", "trailers": ["X-T: 1"]}):
            c = b.h1()
            try:
                refused(c.ask("POST", path, host=host, **how), status)
            except Ended as e:      # the reset of a connection whose body nobody reads may overtake the answer
                check(str(e) == "reset" and len(str(how)) > 1000, e, str(how)[:50])
        d = b.h2()
        keep = d.open("POST", "/v1/slow", end=False)
        for _ in range(3):
            s = d.open("POST", path, host=host, end=False)
            a = H2Answer(s)
            refused(a, status)
            with contextlib.suppress(Ended):
                s.send(b"x" * 100)
            check(s.over_within(5), "stream")
        keep.send(b"late", end=True)
        equal(H2Answer(keep).status, 200, "another stream")
        equal(b.api.last.body, b"late")
        equal(len(b.asked()), n + 1)
        c = b.h1()
        c.send(request("POST", path, "Expect: 100-continue", "Content-Length: 10", host=host))
        equal(c.head().status, status, "no 100 before a refusal")
        check(c.ending(5) in ("fin", "reset"), "closed, for the body was not read")
        c = b.h1()
        c.send(request("HEAD", path, host=host))
        a = c.response("HEAD")
        equal((a.status, c.silent(0.2) or not c.buf), (status if path != "/v1/../x" else 200, True))


@test("13", "23", limit=60)
def expect_is_answered_and_the_request_arrives_with_its_field(lab):
    b = Vaulted(lab)
    c = b.h1()
    c.send(request("POST", "/v1/x", "Expect: 100-continue", "Content-Length: 5", host="api.test"))
    equal(c.head().status, 100)
    c.send(b"hello")
    equal(c.response().status, 200)
    injected(b)
    equal(b.api.last.body, b"hello")
    s = b.h2().open("POST", "/v1/x", "expect: 100-continue", end=False)
    equal(dict(s.next_head(0)).get(":status"), "100")
    s.send(b"hello", end=True)
    equal(dict(s.next_head(1)).get(":status"), "200")


# ---- smuggling, and fields of the client

@test("15", "POL-01", limit=120)
def what_can_be_read_in_two_ways_goes_nowhere(lab):
    b = Vaulted(lab)
    inner = request("GET", "/v1/inner", host="api.test")
    base = b"POST /v1/x HTTP/1.1\r\nHost: api.test\r\n"
    for data in (base + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, base + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + inner,
                 base + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner, base + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
                 base + b"X: 1\r\n continued: 1\r\n\r\n", base + b"X: a\rb\r\n\r\n", base + b"X: a\nAuthorization: b\r\n\r\n", base + b"X\0Y: 1\r\n\r\n",
                 b"GET /v1/x HTTP/1.1\nHost: api.test\n\n", b"GET /v1/x\x20\x20HTTP/1.1\r\nHost: api.test\r\n\r\n", b"GET /v1/\x01 HTTP/1.1\r\nHost: api.test\r\n\r\n",
                 base + b"Content-Length: +5\r\n\r\nhello", base + b"Content-Length: 0x5\r\n\r\nhello", base + b"Content-Length: 5, 5\r\n\r\nhello",
                 base + b" Host: evil.test\r\n\r\n", base + b"Authorization\t: x\r\n\r\n"):
        n, c = len(b.asked()), b.h1()
        c.offer(data)
        with contextlib.suppress(Ended):
            check(c.response().status in (400, 501), data)
        check(c.ending(10) in ("fin", "reset"), "open after", data)
        equal(len(b.asked()), n, f"{data} reached an origin")
    for fields in ([("transfer-encoding", "chunked")], [("connection", "close")], [("Authorization", "x")], [("x", "a\r\nb: c")], [("x y", "1")],
                   [("content-length", "5"), ("content-length", "6")], [("te", "gzip")], [("upgrade", "h2c")], [("", "1")], [(":path", "/v1/other")],
                   [(":status", "200")], [("x", "a\0b")]):
        n, c = len(b.asked()), b.h2()
        head = [(":method", "GET"), (":scheme", "https"), (":authority", "api.test"), (":path", "/v1/x"), *fields]
        try:
            s = c.h2.open()
            s.head(head, end=True)
            check(H2Answer(s, 10).status == 400, fields)
        except Ended:
            pass
        equal(len(b.asked()), n, f"{fields} reached an origin")


@test("12", "VLT-06", limit=90)
def the_clients_own_fields_neither_double_nor_strip_ours(lab):
    b = Vaulted(lab)
    for fields in (["Authorization: a", "authorization: b", "AUTHORIZATION: c"], ["Connection: authorization", "Authorization: a"],
                   ["Connection: close, Authorization"], ["Connection: keep-alive, x-hop", "X-Hop: 1"], ["Proxy-Authorization: Basic eDp5"]):
        c = b.h1()
        equal((fields, c.ask("GET", "/v1/x", *fields).status), (fields, 200))
        injected(b)
        check(not b.api.last.has("x-hop"), "a field of one hop only")
    c = b.h2()
    equal(c.ask("GET", "/v1/x", "authorization: a", "authorization: b").status, 200)
    injected(b)
    for c in b.clients():
        a = c.ask("POST", "/v1/x", body=b"data", trailers=["Authorization: Bearer late", "X-Sum: 1"])
        equal(a.status, 200)
        injected(b)
        equal([(n.lower(), v) for n, v in b.api.last.trailers], [("x-sum", "1")])
    n = len(b.asked())
    for method in ("CONNECT",):
        c = b.h1()
        equal(c.ask(method, "evil.test:443", host="evil.test:443").status, 400)
        s = b.h2().h2.open([(":method", "CONNECT"), (":authority", "evil.test:443")])
        with contextlib.suppress(Ended):
            equal(H2Answer(s).status, 400)
    equal(len(b.asked()), n)


@test("15", limit=60)
def pipelined_requests_are_judged_one_by_one_and_answered_in_order(lab):
    b = Vaulted(lab)
    c = b.h1()
    c.send(b"".join(request("GET", p, host=h) for p, h in (("/v1/1", "api.test"), ("/v1/../2", "api.test"), ("/v2/3", "api.test"), ("/v1/4", "evil.test"),
                                                           ("/v1/5", "api.test"))))
    equal([c.response().status for _ in range(5)], [200, 403, 200, 421, 200])
    equal([(q.target, q.get("authorization") is not None) for q in b.api.asked], [("/v1/1", True), ("/v2/3", False), ("/v1/5", True)])


@test("23", "12", limit=120)
def every_kind_of_auth_is_rendered_exactly(lab):
    kinds = (({"type": "bearer", "credential": "k"}, {"authorization": "Bearer " + SECRET}), ({"type": "basic", "credential": "k"}, {"authorization": "Basic " + SECRET}),
             ({"type": "apiKey", "name": "x-API-key", "credential": "k"}, {"X-Api-Key": SECRET}),
             ({"type": "customHeaders", "headers": [{"name": "X-One", "credential": "k"}, {"name": "Cookie", "credential": "m"}]},
              {"X-One": SECRET, "Cookie": "m=SECOND-canary-55; \u00e9"}))
    b = Vaulted(lab, body=vault(k=SECRET, m="m=SECOND-canary-55; \u00e9"))
    for auth, wanted in kinds:
        b.patch({"bindings": {"add": [binding(auth=auth)]}})
        for c in b.clients():
            a = c.ask("GET", "/v1/x", *[f"{n}: mine" for n in wanted], "X-Stays: 1")
            equal(a.status, 200)
            for name, value in wanted.items():
                seen = [v.encode("latin-1").decode("utf-8") if b.api.last.version != "HTTP/2" else v for v in b.api.last.all(name)]
                equal(seen, [value], f"{auth['type']} {name}")
            equal(b.api.last.get("x-stays"), "1")
        b.unbind()
    text = b.s.ask("GET", "/credential-vault").text + b.s.stdout() + b.s.admin("/metrics").text
    check(SECRET not in text and "canary-55" not in text, "a value is shown")


# ---- substitution on the wire

@test("VLT-07", "11", limit=120)
def placeholders_are_filled_in_where_they_stand_however_they_come(lab):
    value = 'a"b+/%& \u00e9'
    b = Vaulted(lab, body=vault(filled("PH", "path", "query", "header", "body", paths=["/*"]), k=value))
    for c in b.clients():
        def ask(target="/x", *fields, kind="text/plain", **how):
            a = c.ask("POST", target, *fields, f"Content-Type: {kind}", **how)
            equal(a.status, 200, f"{target} {fields}: {a.body[:200]}")
            clean(a, secret=value)
            return b.api.last
        q = ask("/x/y;v=1/?a=PH&b=PHPH", "Cookie: t=PH", "X-One: PH", "X-One: 2PH", body=b"")
        coded = "a%22b%2B%2F%25%26%20%C3%A9"
        equal(q.target, f"/x/y;v=1/?a={coded}&b={coded}{coded}")
        check(all("PH" not in v for _, v in q.fields), q.fields)
        user = base64.b64encode(b"PH:x").decode()
        q = ask("/x", f"Authorization: basic {user.rstrip('=')}", body=b"")
        equal(q.get("authorization"), "basic " + base64.b64encode(f"{value}:x".encode()).decode())
        for kind, body, wanted in (("application/json", b'{"a":"PH","b":"\\u0050H"}', '{"a":"a\\"b+/%& \\u00e9","b":"\\u0050H"}'),
                                   ("application/x-www-form-urlencoded", b"k=a&j=PH", "k=a&j=a%22b%2B%2F%25%26+%C3%A9"),
                                   ("application/xml", b"<a>PH</a>", f"<a>{value}</a>"), ("multipart/form-data; boundary=x", b"--x PH", "--x PH"),
                                   ("text/plain", b"\xff PH", None)):
            for pieces in (body, [body[i:i + 1] for i in range(len(body))]):
                q = ask(kind=kind, body=pieces)
                equal((kind, q.body), (kind, wanted.encode() if wanted else body))
        q = ask("/x", "Content-Encoding: deflate", body=b"PH")
        equal(q.body, b"PH")
        long = b"x" * (1 << 20) + b"PH"
        equal(ask(body=long).body, long)
        equal(ask(body=[long[:700000], long[700000:]]).body, long)
        n = len(b.asked())
        refused(c.ask("POST", "/PH", body=b"x"), 403, "request path contains ambiguous substituted segments")
        equal(len(b.asked()), n)


@test("VLT-07", "11", limit=60)
def a_body_that_cannot_be_searched_is_refused_where_that_is_wanted(lab):
    b = Vaulted(lab, body=vault(filled("PH", "body"), k=SECRET), BODY_SUBSTITUTION_OVERSIZE="refuse", BODY_SUBSTITUTION_MAX="4096")
    for c in (b.h1, b.h2):
        for fields, body, status in ((["Content-Type: text/plain"], b"x" * 4096, 200), (["Content-Type: text/plain"], b"x" * 4097, 413),
                                     (["Content-Type: text/plain"], [b"x" * 3000] * 2, 413), (["Content-Type: multipart/mixed; boundary=a"], b"x", 413),
                                     (["Content-Type: text/plain", "Content-Encoding: gzip"], b"x", 413)):
            n = len(b.asked())
            try:
                equal((fields, c().ask("POST", "/v1/x", *fields, body=body).status), (fields, status))
            except Ended as e:
                check(status == 413 and str(e) == "reset", e)
            equal(len(b.asked()) - n, int(status == 200))


@test("12", "STR-04", limit=120)
def an_upload_of_any_size_gets_its_field_and_is_never_held(lab):
    got = threading.Event()
    def slow(q):
        s, n = getattr(q, "stream", None), 0
        got.set()
        if s:
            while (part := s.take(within=60)):
                n += len(part)
        else:
            r = q.conn.backend.requests[-1]
            n = len(q.conn.read_body(r, False).body)
        return Said(200, body=b"%d" % n)
    b = Vaulted(lab, handler=slow, eager=True)
    for c in b.clients():
        got.clear()
        if c.version == "h2":
            s = c.open("POST", "/v1/x", end=False)
            s.send(b"x" * 1000)
            check(got.wait(10), "the head waits for the body")
            s.send(b"x" * (8 << 20), end=True, patience=60)
            equal(H2Answer(s, 60).body, b"%d" % ((8 << 20) + 1000))
        else:
            c.send(request("POST", "/v1/x", "Transfer-Encoding: chunked", host="api.test") + chunked(b"x" * 1000, last=False))
            check(got.wait(10), "the head waits for the body")
            c.send(chunked(*[b"x" * (1 << 20)] * 8))
            equal(c.response().body, b"%d" % ((8 << 20) + 1000))
        injected(b)
