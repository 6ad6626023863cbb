"""A world with hosts that a vault binds, origins that say back what they got, and the sidecar between them."""
import gzip
import os
import ssl

from bench import allow, check, closed, equal
from wire import Client, answer

GOOD, OTHER, EVIL = "198.51.100.10", "198.51.100.20", "198.51.100.66"
GOOD6 = "2001:db8::10"
ZONE = {"api.test": {"A": [GOOD], "AAAA": [GOOD6]}, "other.test": {"A": [OTHER]}, "evil.test": {"A": [EVIL]}}
RULES = closed(allow("api.test"), allow("other.test"), allow("evil.test"))
SECRET = "CANARY-7f3a91-secret"
EXPORT = "/opt/opensandbox/mitmproxy-ca-cert.pem"


def vault(*bindings, **values):
    """The body of a POST: credentials by name, and bindings."""
    return {"credentials": [{"name": n, "source": {"type": "inline", "value": v}} for n, v in values.items()],
            "bindings": list(bindings)}


def bearer(name="b", hosts=("api.test",), paths=("/v1/*",), credential="k", **match):
    return {"name": name, "match": {"hosts": list(hosts), "methods": ["GET", "POST"], "paths": list(paths), **match},
            "auth": {"type": "bearer", "credential": credential}}


class Speaker(Client):
    """A client of HTTP/1.1 on a socket that is there."""

    def __init__(self, sock):
        super(Client, self).__init__(sock)


def reflect(conn):
    """A script: each request comes back in a field, in the body and in a trailer; /gzip codes it, /odd in a way nobody knows."""
    while True:
        r = conn.request()
        said = (r.get("authorization") or "-").encode()
        body = b"<" + said + b"|" + (r.body or b"") + b"|" + r.target.encode() + b">"
        fields = ["X-Echo: " + said.decode(), "Content-Type: text/plain"]
        if "/gzip" in r.target:
            body, fields = gzip.compress(body * 3), [*fields, "Content-Encoding: gzip"]
        if "/odd" in r.target:
            fields.append("Content-Encoding: rot13")
        if "/chunks" in r.target:
            conn.send(("HTTP/1.1 200 OK\r\n" + "\r\n".join(fields) + "\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n").encode())
            for i in range(0, len(body), 5):
                piece = body[i:i + 5]
                conn.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            conn.send(b"0\r\nX-Late: " + said + b"\r\n\r\n")
        else:
            conn.send(answer(200, *fields, body=body))


def servers(w, h2):
    """nginx for all three names, in HTTP/2 too if h2, that says back what it got."""
    text = ""
    for name, address in (("api.test", GOOD), ("other.test", OTHER), ("evil.test", EVIL)):
        cert, key = w.ca.certificate(name)
        also = f"listen [{GOOD6}]:443 ssl{' http2' if h2 else ''}; " if name == "api.test" else ""
        text += f"""server {{ listen {address}:443 ssl{' http2' if h2 else ''}; listen {address}:80; {also}server_name {name};
            ssl_certificate {cert}; ssl_certificate_key {key};
            add_header X-Echo "$http_authorization"; add_header Alt-Svc 'h3=":443"';
            location / {{ default_type text/plain; return 200 "{name} $server_protocol [$http_authorization] $request_uri\\n"; }}
            }}\n"""
    w.nginx(text)


class Bound:
    """A world with TLS origins behind nginx (h2 and h1) that say back what they got, or script(conn) for each connection to
    api.test; and the sidecar with a vault."""

    def __init__(self, lab, body=None, h2=True, script=None, names=("api.test",), prepare=None, **how):
        """prepare(world): what serves, in place of all that."""
        self.w = lab.world()
        self.ns = self.w.nameserver(ZONE)
        self.w.ca
        if prepare:
            prepare(self.w)
        elif script:
            self.origin = self.w.origin(GOOD, 443, script, self.w.ca.server(*names, alpn=["http/1.1"]))
            self.clear = self.w.origin(GOOD, 80, script)
        else:
            servers(self.w, h2)
        ca = os.path.join(self.w.dir, "ca.pem")
        how.setdefault("MITMPROXY_TRANSPARENT", "true")
        own = how.get("MODE") == "proxy"
        self.export = os.path.join(self.w.state, "sallyport", "mitmproxy-ca-cert.pem") if own else EXPORT
        self.s = self.w.sidecar(**{"MODE": "dns+nft", "RULES": RULES, "MITMPROXY_UPSTREAM_EXTRA_CA": ca,
                                   "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "3600", "DRAIN_TIMEOUT": "1", "LOG_LEVEL": "debug", **how})
        self.post(vault(bearer(), k=SECRET) if body is None else body)

    def post(self, body, status=201):
        a = self.s.ask("POST", "/credential-vault", body)
        equal(a.status, status, f"POST /credential-vault: {a.body[:300]!r}")

    def tls(self, name="api.test", address=GOOD, alpn=("http/1.1",), sock=None, trust=EXPORT):
        """A TLS connection of the workload, redirected; HTTP/1.1 on it."""
        context = ssl.create_default_context(cafile=trust)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        sock = sock or self.w.connect(address, 443)
        sock.settimeout(20)
        return self.w.keep(Speaker(context.wrap_socket(sock, server_hostname=name)))

    def learn(self, *names):
        for n in names or ZONE:
            self.w.resolve(n)

    def curl(self, url, *words, ours=True, good=True):
        """(headers, body) of curl; ours: it trusts our authority and no other."""
        trust = self.export if ours else os.path.join(self.w.dir, "ca.pem")
        code, out, err = self.w.run("curl", "-sS", "-i", "--max-time", "20", "--cacert", trust, *words, url)
        if not good:
            return code, out, err
        equal(code, 0, f"curl {url}: {err}")
        head, _, body = out.replace("\r\n", "\n").rpartition("\n\n")
        return head.lower(), body


def clean(*texts):
    for t in texts:
        check(SECRET.lower() not in t.lower(), "the secret came back:", t)
