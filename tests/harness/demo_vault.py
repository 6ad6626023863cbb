"""The vault's part of scripts/demo: a sandbox that holds fake keys, and an origin that sees the real ones, over HTTP/1.1 and HTTP/2
and by git.  demo_sidecar.py calls it, inside its namespaces.
"""
import base64
import json
import os
import subprocess
import time

KEY, PASSWORD = "sk-real-7d1c93e0a4b5", "real-password-58f2c6"
API, GIT = "198.51.100.10", "198.51.100.20"
TRUST = "/opt/opensandbox/mitmproxy-ca-cert.pem"

SERVERS = """
log_format seen '$server_protocol $request_method $request_uri [$http_authorization]';
server { listen %(api)s:443 ssl http2; server_name api.test; ssl_certificate %(api_cert)s; ssl_certificate_key %(api_key)s;
    access_log {dir}/seen seen; default_type text/plain; gzip on; gzip_min_length 1; gzip_types text/plain;
    add_header X-You-Sent "$http_authorization";
    location / { return 200 "$server_protocol: your key is $http_authorization\\n"; } }
server { listen %(git)s:443 ssl http2; server_name git.test; ssl_certificate %(git_cert)s; ssl_certificate_key %(git_key)s;
    access_log {dir}/seen seen; root %(repos)s; add_header WWW-Authenticate 'Basic realm="private"' always;
    if ($http_authorization != "%(basic)s") { return 401 "who are you?\\n"; } }
"""

VAULT = {
    "credentials": [{"name": "model", "source": {"type": "inline", "value": KEY}}, {"name": "git", "source": {"type": "inline", "value": PASSWORD}}],
    "bindings": [
        {"name": "model", "match": {"hosts": ["api.test"], "methods": ["GET", "POST"], "paths": ["/v1/*"]}, "auth": {"type": "bearer", "credential": "model"}},
        {"name": "git", "match": {"hosts": ["git.test"]}, "auth": {"type": "passthrough", "substitutions": [
            {"credential": "git", "placeholder": "__password__", "in": ["header"]}]}}]}


class Vault:
    def __init__(self, show, lab):
        self.show, self.lab = show, lab

    def run(self):
        self.stage()
        self.create()
        self.injected()
        self.elsewhere()
        self.git()
        self.lost()
        self.s.term()
        self.show.check(self.s.exit() == 0, "SIGTERM: exit status 0")

    # -- what stands around it
    def stage(self):
        from sidecar import allow, closed
        w = self.w = self.lab.world(v6=False)
        self.show.title("The vault: a sandbox that holds fake keys")
        w.nameserver({"api.test": {"A": [API]}, "git.test": {"A": [GIT]}})
        repos = os.path.join(w.dir, "repos")
        self.repository(repos)
        (api_cert, api_key), (git_cert, git_key) = w.ca.certificate("api.test"), w.ca.certificate("git.test")
        self.basic = "Basic " + base64.b64encode(f"agent:{PASSWORD}".encode()).decode()
        self.nginx = w.nginx(SERVERS % {"api": API, "git": GIT, "api_cert": api_cert, "api_key": api_key, "git_cert": git_cert, "git_key": git_key,
                                        "repos": repos, "basic": self.basic})
        self.s = w.sidecar(supervised=True, MITMPROXY_TRANSPARENT="true", MITMPROXY_UPSTREAM_EXTRA_CA=w.ca.file,
                           RULES=closed(allow("api.test"), allow("git.test")))
        print("    OPENSANDBOX_EGRESS_MODE=dns+nft OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true OPENSANDBOX_EGRESS_TOKEN=… sallyport-supervisor -- sallyport-egress\n"
              f"    in the sandbox: CURL_CA_BUNDLE={TRUST}")
        self.show.check(os.path.exists(TRUST), "the certificate that the sandbox is to trust is there before anything is intercepted")

    @staticmethod
    def repository(folder):
        """A private one, as plain files."""
        text = ("mkdir -p $1/work && cd $1/work && git init -q -b main && echo 'a private file' > file && git add file && "
                "git -c user.name=d -c user.email=d@test commit -q -m first && git clone -q --bare . ../private.git && "
                "git -C ../private.git update-server-info && rm -rf $1/work && chmod -R a+rX $1")
        subprocess.run(["sh", "-c", text, "sh", folder], check=True, stdin=subprocess.DEVNULL)

    def create(self):
        print("\n    > POST /credential-vault")
        self.show.said(json.dumps(VAULT["bindings"][0]), ">")
        self.show.said(json.dumps(VAULT["bindings"][1]), ">")
        r = self.s.ask("POST", "/credential-vault", VAULT)
        self.show.said(f"{r.status} {r.text}", "<")
        self.show.check(r.status == 201 and KEY not in r.text and PASSWORD not in r.text, "two credentials and where they belong; no answer gives them back")

    # -- what the workload does, and what the origin sees
    def curl(self, *words):
        """curl of the workload -> (all that it shows, what the origin saw)."""
        argv = ["curl", "-sS", "-i", "--compressed", *words]
        print("\n    $ " + " ".join(f'"{x}"' if " " in x else x for x in argv), flush=True)
        before = len(self.seen())
        _, out, err = self.w.run(*argv, "-m", "10", env={"CURL_CA_BUNDLE": TRUST})
        seen = self.seen()[before:]
        until = time.monotonic() + 5
        while "x-you-sent" in out.lower() and not seen and time.monotonic() < until:  # the origin writes it down after its answer
            time.sleep(0.02)
            seen = self.seen()[before:]
        head, _, body = out.replace("\r\n", "\n").partition("\n\n")
        self.show.said("\n".join([x for x in head.splitlines() if x.lower().startswith(("http/", "x-you"))] + [body, err]))
        for line in seen:
            print(f"    origin saw: {line}")
        return out + err, "\n".join(seen)

    def seen(self):
        with open(os.path.join(self.nginx.dir, "seen"), encoding="utf-8") as f:
            return f.read().splitlines()

    def injected(self):
        self.show.title("A fake key inside, the real one at the origin, and nothing of it comes back")
        for flag, version in (("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")):
            out, seen = self.curl(flag, "-H", "Authorization: Bearer sk-fake", "https://api.test/v1/models")
            self.show.check(f"Bearer {KEY}" in seen, f"{flag[2:]}: the origin got the real key in place of the fake one")
            self.show.check(f"{version}: your key is ***" in out and "[REDACTED]" in out and KEY not in out,
                            "it says it back in a field and in a gzip body: masked in both")

    def elsewhere(self):
        self.show.title("For that path at that host, and nowhere else")
        out, seen = self.curl("--path-as-is", "-H", "Authorization: Bearer sk-fake", "https://api.test/v1/%2e%2e/admin")
        self.show.check(" 403" in out and not seen, "a path that two readers could understand differently: refused, the origin sees nothing")
        out, seen = self.curl("-H", "Authorization: Bearer sk-fake", "https://api.test/admin")
        self.show.check("sk-fake" in seen and KEY not in seen, "another path: what the sandbox sent, and no credential")
        out, seen = self.curl("-H", "Host: git.test", "https://api.test/v1/models")
        self.show.check(" 421" in out and not seen, "a Host that is not the name of the connection: refused")

    def git(self):
        self.show.title("git clone of a private repository, with a fake password")
        for password, good in (("__password__", True), ("guess", False)):
            to = os.path.join(self.w.state, password)
            argv = ["git", "clone", "-q", f"https://agent:{password}@git.test/private.git", to]
            print("\n    $ " + " ".join(argv), flush=True)
            before = len(self.seen())
            code, out, err = self.w.run(*argv, env={"GIT_SSL_CAINFO": TRUST, "GIT_TERMINAL_PROMPT": "0"})
            for line in self.seen()[before:][:4]:
                print(f"    origin saw: {line}")
            self.show.said(out + err)
            file = os.path.join(to, "file")
            if good:
                self.show.check(code == 0 and os.path.exists(file) and self.basic in "".join(self.seen()), "cloned: the origin got the real password, inside of Basic")
            else:
                self.show.check(code != 0 and not os.path.exists(file), "another password stays what it is")

    def lost(self):
        self.show.title("The vault lives in memory, and is lost with its process")
        self.s.kill_worker()
        out, seen = self.curl("-H", "Authorization: Bearer sk-fake", "https://api.test/v1/models")
        self.show.check(" 503" in out and not seen, "kill -9 of the worker: what was bound is refused, never sent without its credential")
        r = self.s.ask("POST", "/credential-vault", VAULT)
        print("\n    > POST /credential-vault")
        self.show.said(str(r.status), "<")
        _, seen = self.curl("-H", "Authorization: Bearer sk-fake", "https://api.test/v1/models")
        self.show.check(f"Bearer {KEY}" in seen, "until it is created again")
        said = self.s.stdout() + self.s.stderr() + self.s.admin("/metrics").text
        self.show.check(KEY not in said and PASSWORD not in said, "neither log nor metrics hold a secret")
