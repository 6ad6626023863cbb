"""Hosts that a binding names: their TLS is read, requests get a credential, answers lose it; all others stay as they are."""
import gzip
import os
import ssl

from bench import check, equal, test, wait_for
from bound import GOOD, OTHER, SECRET, Bound, Speaker, bearer, clean, reflect, vault


@test("VLT-01", "VLT-06", "TLS-02", limit=90)
def a_bound_host_gets_its_credential_over_both_versions(lab):
    b = Bound(lab)
    for words, line in ((("--http1.1",), "http/1.1 200"), (("--http2",), "http/2 200")):
        head, body = b.curl("https://api.test/v1/x", *words, "-H", "Authorization: Bearer fake")
        check(head.startswith(line), head)
        version = "HTTP/1.1" if "1.1" in line else "HTTP/2.0"
        equal(body, f"api.test {version} [Bearer {'*' * len(SECRET)}] /v1/x\n".replace("Bearer *", "*" * 7 + "*"))
        check("x-echo: [redacted]" in head, head)
        check("alt-svc" not in head, head)
        clean(head, body)
    head, body = b.curl("https://api.test/v2/x", "-H", "Authorization: Bearer fake")
    check("[Bearer fake]" in body, body)


@test("VLT-01", "TLS-04", limit=90)
def other_hosts_keep_their_own_certificate(lab):
    b = Bound(lab)
    head, body = b.curl("https://other.test/v1/x", "-H", "Authorization: Bearer fake", ours=False)
    check("[Bearer fake]" in body and "alt-svc" in head, head, body)


@test("E18", "VLT-01", limit=90)
def the_explicit_proxy_does_the_same(lab):
    for how in ({}, {"MITMPROXY_TRANSPARENT": None}, {"MODE": "proxy", "MITMPROXY_TRANSPARENT": None, "who": "nobody"}):
        b = Bound(lab, PROXY_ADDR="127.0.0.1:3128", **how)
        for words in (("--http1.1",), ("--http2",)):
            head, body = b.curl("https://api.test/v1/x", *words, "-x", "http://127.0.0.1:3128")
            check("x-echo: [redacted]" in head, head)
            clean(head, body)
            head, body = b.curl("https://other.test/v1/x", *words, "-x", "http://127.0.0.1:3128", ours=False)
            check("alt-svc" in head, head)


@test("VLT-01", limit=90)
def names_that_disagree_get_421_and_nothing_leaves(lab):
    b = Bound(lab)
    for words in (("--http1.1",), ("--http2",)):
        head, body = b.curl("https://api.test/v1/x", *words, "-H", "Host: other.test")
        check(" 421" in head.splitlines()[0], head)
        check(body.startswith("request authority does not match the intercepted destination"), body)
    head, body = b.curl("https://api.test/v1/../x", "--path-as-is")
    check(" 403" in head.splitlines()[0] and body.startswith("request path contains ambiguous segments"), head, body)


@test("E14", limit=90)
def a_vault_that_goes_takes_its_credential_with_it(lab):
    b = Bound(lab)
    head, _ = b.curl("https://api.test/v1/x")
    check("x-echo" in head, head)
    equal(b.s.ask("DELETE", "/credential-vault").status, 204)
    head, body = b.curl("https://api.test/v1/x", ours=False)
    check("[]" in body, body)


@test("VLT-06", limit=90)
def what_the_origin_says_back_is_masked_in_fields_bodies_and_trailers(lab):
    b = Bound(lab, script=reflect)
    b.learn()
    c = b.tls()
    for path in ("/v1/plain", "/v1/chunks", "/v1/gzip"):
        r = c.ask("GET", path, "Accept-Encoding: gzip, deflate", host="api.test")
        equal(r.status, 200, path)
        text = gzip.decompress(r.body).decode() if "gzip" in path else r.body.decode()
        clean(text, r.raw.decode())
        check("*" * len(SECRET) in text and r.get("x-echo") == "[REDACTED]", text, r.raw)
    equal(b.origin.requests[-1].get("accept-encoding"), "gzip")
    equal(b.origin.requests[-1].get("authorization"), "Bearer " + SECRET)
    r = c.ask("GET", "/v1/up", "Connection: upgrade", "Upgrade: h2", host="api.test")
    equal((r.status, r.get("x-echo"), b.origin.requests[-1].has("upgrade")), (200, "[REDACTED]", False))
    c = b.tls()
    r = c.ask("GET", "/v1/odd", host="api.test")
    equal((r.status, r.text), (502, "response encoding cannot be scrubbed: api.test\n"))


@test("VLT-07", limit=90)
def placeholders_are_filled_in_where_the_binding_says(lab):
    body = vault({"name": "b", "match": {"hosts": ["api.test"]}, "auth": {"type": "passthrough", "substitutions": [
        {"credential": "k", "placeholder": "PH-1", "in": ["path", "query", "header", "body"]}]}}, k='a"b+/%&')
    b = Bound(lab, body=body, script=reflect)
    b.learn()
    c = b.tls()
    c.ask("POST", "/x?q=PH-1", "X-K: PH-1", "Content-Type: application/json", "Authorization: Basic UEgtMTp4", body=b'{"k":"PH-1"}',
          host="api.test")
    r = b.origin.requests[-1]
    equal((r.target, r.get("x-k"), r.body), ("/x?q=a%22b%2B%2F%25%26", 'a"b+/%&', b'{"k":"a\\"b+/%&"}'))
    equal(r.get("authorization"), "Basic YSJiKy8lJjp4")
    long = b"x" * (1 << 20) + b"PH-1"
    c.ask("POST", "/long", "Content-Type: text/plain", body=long, host="api.test")
    equal(b.origin.requests[-1].body, long)
    a = c.ask("GET", "/PH-1", host="api.test")
    equal((a.status, a.text), (403, "request path contains ambiguous substituted segments\n"))


@test("TLS-02", "TLS-03", limit=120)
def an_origin_that_does_not_prove_itself_gets_no_byte(lab):
    b = Bound(lab, script=reflect, names=("other.test",))
    b.learn()
    a = b.tls().ask("GET", "/v1/x", host="api.test")
    equal(a.status, 502, a.text)
    check("certificate" in a.text, a.text)
    b.origin.stop()
    r = b.tls().ask("GET", "/v1/x", host="api.test")
    equal(r.status, 502, r.text)
    equal(b.origin.requests, [])


@test("TLS-05", limit=90)
def the_client_is_offered_what_the_origin_speaks(lab):
    b = Bound(lab, script=reflect)
    b.learn()
    equal(b.tls(alpn=("h2", "http/1.1")).sock.selected_alpn_protocol(), "http/1.1")
    equal(b.tls(alpn=("h2",)).sock.selected_alpn_protocol(), "h2")
    equal(b.tls(alpn=()).sock.selected_alpn_protocol(), None)
    try:
        b.tls(alpn=("acme-tls/1",))
        check(False, "a foreign protocol was taken")
    except ssl.SSLError as e:
        check("no application protocol" in str(e).lower(), e)
    b.origin.stop()
    equal(b.tls(alpn=("h2", "http/1.1")).sock.selected_alpn_protocol(), "http/1.1")


@test("VLT-01", "E12", limit=90)
def a_tunnel_for_one_name_and_tls_for_another(lab):
    b = Bound(lab, PROXY_ADDR="127.0.0.1:3128")
    b.learn()

    def tunnel(target):
        c = b.w.client(3128)
        equal(c.ask("CONNECT", target, host=target).status, 200)
        return c.sock
    c = b.tls("api.test", sock=tunnel("evil.test:443"))
    r = c.ask("GET", "/v1/x", host="api.test")
    equal((r.status, r.text), (421, "request authority does not match the intercepted destination: api.test\n"))
    c = b.tls("api.test", sock=tunnel("api.test:443"))
    equal(c.ask("CONNECT", "api.test:443", host="api.test:443").status, 400)
    try:
        b.tls("other.test", sock=tunnel("evil.test:443"))
        check(False, "the tunnel carries other TLS")
    except OSError:
        pass


@test("E14", "E12", limit=90)
def hosts_become_bound_and_unbound_while_connections_run(lab):
    b = Bound(lab, body=vault(), script=reflect)
    b.learn()
    ca = os.path.join(b.w.dir, "ca.pem")
    passed = b.tls(trust=ca)
    equal(passed.ask("GET", "/v1/x", host="api.test").get("x-echo"), "-")
    add = {"expectedRevision": 1, "credentials": {"add": [{"name": "k", "source": {"type": "inline", "value": SECRET}}]},
           "bindings": {"add": [bearer()]}}
    equal(b.s.ask("PATCH", "/credential-vault", add).status, 200)
    passed.ending(10)
    read = b.tls()
    equal(read.ask("GET", "/v1/x", host="api.test").get("x-echo"), "[REDACTED]")
    equal(b.s.ask("PATCH", "/credential-vault", {"expectedRevision": 2, "bindings": {"delete": ["b"]}}).status, 200)
    read.ending(10)
    equal(b.tls(trust=ca).ask("GET", "/v1/x", host="api.test").get("x-echo"), "-")


@test("VLT-12", "E13", limit=90)
def after_a_crash_bound_hosts_are_refused_until_there_is_a_vault(lab):
    b = Bound(lab, script=reflect, supervised=True)
    b.learn()
    equal(b.tls().ask("GET", "/v1/x", host="api.test").status, 200)
    b.s.kill_worker()
    b.learn()
    n = len(b.origin.conns)
    r = b.tls().ask("GET", "/v1/x", "Authorization: fake", host="api.test")
    equal((r.status, r.text), (503, "credential proxy unavailable: api.test\n"))
    equal(len(b.origin.conns), n, "connections at the origin")
    b.post(vault(bearer(), k=SECRET))
    equal(b.tls().ask("GET", "/v1/x", host="api.test").get("x-echo"), "[REDACTED]")


@test("VLT-09", limit=90)
def plain_http_gets_a_credential_only_where_it_is_bound(lab):
    b = Bound(lab, body=vault(bearer(schemes=["http"]), k=SECRET), script=reflect)
    b.learn()
    c = b.w.keep(Speaker(b.w.connect(GOOD, 80)))
    equal(c.ask("GET", "/v1/x", host="api.test").get("x-echo"), "[REDACTED]")
    c = b.w.keep(Speaker(b.w.connect(OTHER, 80)))
    r = c.ask("GET", "/v1/x", host="api.test")
    equal((r.status, r.text), (421, "request endpoint identity does not match credential binding: api.test\n"))


@test("VLT-11", limit=90)
def lines_name_the_binding_and_no_value(lab):
    b = Bound(lab, script=reflect)
    b.learn()
    c = b.tls()
    c.ask("GET", "/v1/secret-path?secret-query", host="api.test")
    c.ask("GET", "/v1/../x", host="api.test")
    wait_for(lambda: all(x in b.s.stdout() for x in ("credential withheld", '"decision":"injected"')), "the lines")
    out = b.s.stdout()
    check('"decision":"injected"' in out and '"binding":"b"' in out and '"path_pattern":"/v1/*"' in out, out[-3000:])
    for word in (SECRET, "secret-path", "secret-query"):
        check(word not in out + b.s.stderr(), word)
    for _ in range(2):
        code, _, err = b.curl("https://api.test/v1/x", ours=False, good=False)
        check(code != 0 and "certificate" in err, code, err)
    wait_for(lambda: "does not trust the interception authority" in b.s.stdout(), "the line")
    equal(b.s.stdout().count("does not trust the interception authority"), 1)
