"""A world with a vault: names whose requests get a credential (api.test), servers for all names that say back what they got,
and clients of both versions of HTTP inside.  `every()` puts a test to each pair of protocols."""
import os
import ssl

from bench import allow, check, closed, equal
from webs import H1Client, H2Client, Web

GOOD, OTHER, EVIL, FREE = "198.51.100.10", "198.51.100.20", "198.51.100.66", "198.51.100.200"
GOOD6 = "2001:db8::10"
ADDRESSES = {"api.test": GOOD, "other.test": OTHER, "evil.test": EVIL}
ZONE = {name: {"A": [address], **({"AAAA": [GOOD6]} if name == "api.test" else {})} for name, address in ADDRESSES.items()}
RULES = closed(allow("api.test"), allow("*.api.test"), allow("other.test"), allow("evil.test"))
SECRET = "CANARY-7f3a91-secret"
EXPORT = "/opt/opensandbox/mitmproxy-ca-cert.pem"
AUTHORITY = "/var/lib/mitmproxy/.mitmproxy"
BOTH = ("h2", "http/1.1")
MISMATCH = "request authority does not match the intercepted destination"
ENDPOINT = "request endpoint identity does not match credential binding"
AMBIGUOUS = "request path contains ambiguous segments"


def vault(*bindings, **values):
    """The body of a POST: credentials by name, and bindings."""
    return {"credentials": [credential(n, v) for n, v in values.items()], "bindings": list(bindings)}


def credential(name, value):
    return {"name": name, "source": {"type": "inline", "value": value}}


def binding(name="b", auth=None, hosts=("api.test",), paths=("/v1/*",), methods=("GET", "POST", "PUT"), **match):
    return {"name": name, "match": {"hosts": list(hosts), "methods": list(methods), "paths": list(paths), **match},
            "auth": auth or {"type": "bearer", "credential": "k"}}


def filled(placeholder, *surfaces, credential="k", auth=None, **match):
    """A binding that replaces a placeholder."""
    return binding(auth={**(auth or {"type": "passthrough"}), "substitutions": [
        {"credential": credential, "placeholder": placeholder, "in": list(surfaces)}]}, **match)


class Vaulted:
    """w, ns, s and web: the TLS servers by name; clear: those on port 80.  body: of the first POST (None: bearer for
    api.test/v1/*; False: no vault).  handler: see webs.Web.  alpn: what the servers speak.  tls: contexts by name."""

    def __init__(self, lab, body=None, handler=None, alpn=BOTH, tls=None, families=None, learn=True, eager=False, rules=None, zone=None,
                 names=(), before=None, **how):
        self.w = lab.world(**(families or {"v6": False}))
        self.ns = self.w.nameserver({**ZONE, **(zone or {})})
        self.web = {n: self.serve(a, n, handler, alpn, (tls or {}).get(n), eager, more=names) for n, a in ADDRESSES.items()}
        self.clear = {n: self.w.keep(Web(a, 80, handler)) for n, a in ADDRESSES.items()}
        if before:
            before(self.w)
        self.s = self.w.sidecar(**{"MODE": "dns+nft", "MITMPROXY_TRANSPARENT": "true", "RULES": rules or RULES,
                                   "MITMPROXY_UPSTREAM_EXTRA_CA": self.w.ca.file, "DNS_UPSTREAM_PROBE_INTERVAL_SEC": "3600",
                                   "DRAIN_TIMEOUT": "1", **how})
        if body is not False:
            self.post(vault(binding(), k=SECRET) if body is None else body)
        if learn:
            self.learn()

    def serve(self, address, name, handler=None, alpn=BOTH, tls=None, eager=False, port=443, more=()):
        return self.w.keep(Web(address, port, handler, tls or self.w.ca.server(name, "*." + name, *more, alpn=alpn), eager=eager,
                               h2_only=tuple(alpn) == ("h2",)))

    api = property(lambda self: self.web["api.test"])

    def learn(self, *names):
        """Lets the workload ask for these names, so that their addresses are leased."""
        for n in names or ADDRESSES:
            self.w.resolve(n)
        if 6 in self.w.families and not names:
            self.w.resolve("api.test", "AAAA")

    # -- the vault
    def post(self, body, status=201):
        a = self.s.ask("POST", "/credential-vault", body)
        equal(a.status, status, f"POST /credential-vault: {a.body[:300]!r}")
        return a

    def patch(self, body, status=200):
        a = self.s.ask("PATCH", "/credential-vault", body)
        equal(a.status, status, f"PATCH /credential-vault: {a.body[:300]!r}")
        return a

    def replace(self, value, name="k"):
        return self.patch({"credentials": {"replace": [credential(name, value)]}})

    def unbind(self, name="b"):
        return self.patch({"bindings": {"delete": [name]}})

    # -- the workload
    def handshake(self, name="api.test", address=None, alpn=BOTH, sock=None, trust=EXPORT, port=443, context=None):
        """TLS of the workload, redirected; trust: a file, or None: whatever comes."""
        context = context or ssl.create_default_context(cafile=trust)
        if trust is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(list(alpn))
        sock = sock or self.w.connect(address or ADDRESSES.get(name, GOOD), port)
        sock.settimeout(20)
        return context.wrap_socket(sock, server_hostname=name)

    def h1(self, name="api.test", address=None, alpn=("http/1.1",), **how):
        return self.w.keep(H1Client(self.handshake(name, address, alpn, **how), name))

    def h2(self, name="api.test", address=None, window=1 << 20, **how):
        return self.w.keep(H2Client(self.handshake(name, address, ("h2",), **how), name, window))

    def plain(self, name="api.test", address=None):
        """HTTP/1.1 on port 80."""
        return self.w.keep(H1Client(self.w.connect(address or ADDRESSES[name], 80), name))

    def clients(self, name="api.test", **how):
        """One of each version."""
        return [self.h1(name, **how), self.h2(name, **how)]

    @property
    def theirs(self):
        """The file of the authority of the servers outside."""
        return self.w.ca.file

    def tunnel(self, target, port=3128):
        """CONNECT through the explicit proxy; the socket behind it."""
        c = self.w.client(port)
        a = c.ask("CONNECT", target, host=target)
        equal(a.status, 200, f"CONNECT {target}: {a.body[:200]!r}")
        return c.sock

    def asked(self):
        """All requests that any server got."""
        return [q for w in (*self.web.values(), *self.clear.values()) for q in w.asked]

    def unseen(self, *secrets, at=None):
        """No server has got one of these in any form that tells."""
        for q in at.asked if at else self.asked():
            for s in secrets or (SECRET,):
                check(s not in repr(q) and s.encode() not in q.body and s not in repr(q.trailers), "the secret is in", q)


def every(lab, **how):
    """(world, client) for both versions of the client against origins that speak both, HTTP/1.1 alone and HTTP/2 alone; each
    version comes first once, since connections to the origin are kept over clients."""
    for alpn in (BOTH, ("http/1.1",), ("h2",)):
        for first in (0, 1):
            b = Vaulted(lab, alpn=alpn, **how)
            makes = [b.h1, b.h2]
            for make in makes if first == 0 else reversed(makes):
                yield b, make()


def clean(*things, secret=SECRET):
    """None of these texts, bytes or answers holds the secret."""
    for t in things:
        if hasattr(t, "status"):
            clean(t.raw, t.body, repr(t.trailers), *[i.raw for i in t.interim if i is not t], secret=secret)
            continue
        text = t.decode("latin-1") if isinstance(t, (bytes, bytearray)) else t
        at = text.lower().find(secret.lower())
        check(at < 0, "the secret came back:", text[max(0, at - 60):at + 80])


def refused(a, status, text=None):
    """A refusal as the contract has it: one line of plain text."""
    equal((a.status, a.end), (status, "whole"), f"status, with {a.body[:200]!r}")
    if text is not None:
        check(a.text.startswith(text) and a.text.endswith("\n") and a.text.count("\n") == 1, "the text:", a.body)
        check((a.get("content-type") or "").startswith("text/plain"), "content-type", a.get("content-type"))


def injected(b, value=SECRET, name="authorization", scheme="Bearer ", web=None):
    """The last request at the origin carries exactly this, once."""
    equal((web or b.api).last.all(name), [scheme + value], f"{name} at the origin")


def authority_folder(world):
    return os.path.join(world.dir, "authority", ".mitmproxy")
