"""Real clients in the sandbox, as nobody: through redirected connections, past the kernel's rules alone, and through the explicit
proxy.  With an allowed host each does its work; with a refused one it fails at once, and says something a person understands."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from bench import Skipped, allow, check, closed, equal, test, wait_for
from wire import Client

SUITES = pathlib.Path(__file__).resolve().parent.parent / "suites" / "egress"
sys.path.insert(0, str(SUITES))
import matrix  # noqa: E402

GOOD, BAD, FREE = "198.51.100.10", "198.51.100.11", "198.51.100.200"
ZONE = {"ok.test": {"A": [GOOD], "AAAA": ["2001:db8::10"]}, "no.test": {"A": [BAD]}}
PROXY = "127.0.0.1:18082"
NODE_FETCH = "fetch('{url}/json').then(r => r.json()).then(j => console.log(j.ok), e => {{ console.error(e.cause || e); process.exit(1); }})"
PYTHON = "import urllib.request as u; print(u.urlopen('{url}/json').read())"
APT = ("-o Dir::Etc::sourcelist={home}/s.list -o Dir::Etc::sourceparts=- -o Dir::State={home}/st -o Dir::Cache={home}/ca -o Acquire::https::CAInfo={ca} "
       "-o APT::Sandbox::User= -o Acquire::Retries=0 -o Debug::NoLocking=1{apt_proxy}")
LOOKUP = r"resolv|not known|not found|NXDOMAIN|ENOTFOUND|UnknownHost|unresolved|UnresolvedAddress|NAME_NOT_RESOLVED"

# name: (program, shell command, what it says when it worked, what it says by the proxy when refused)
CLIENTS = {
    "curl": ("curl", "curl -sS {url}/json", '"ok":true', "403"),
    "curl, plain": ("curl", "curl -sSf {plain}/json", '"ok":true', "403"),
    "curl, HTTP/1.1": ("curl", "curl -sS --http1.1 {url}/json", '"ok":true', "403"),
    "wget": ("wget", "wget -q -t 1 --ca-certificate={ca} -O - {url}/json || {{ r=$?; wget -nv -t 1 -O - {url}/json; exit $r; }}",
             '"ok":true', "403|Forbidden"),
    "git": ("git", "rm -rf {home}/c && git clone -q {url}/git/r.git {home}/c && cat {home}/c/a", "hi", "403"),
    "apt": ("apt-get",
            "mkdir -p {home}/st/lists/partial {home}/ca/archives/partial && echo 'deb [trusted=yes] {url}/apt ./' > {home}/s.list && "
            "apt-get -o APT::Update::Error-Mode=any " + APT + " update && cd {home} && apt-get " + APT + " download matrix-deb && ls", "matrix-deb_1.0_all.deb", "403"),
    "npm": ("npm",
            "rm -rf {home}/np && mkdir {home}/np && cd {home}/np && npm init -y >/dev/null && npm install --no-audit --no-fund --registry={url}/npm/ --cafile={ca} "
            "--fetch-retries=0 matrix-pkg && node -p \"require('matrix-pkg')\"", "42", "403"),
    "pip": ("pip3",
            "pip3 install -q --no-input --disable-pip-version-check --retries 1 --no-cache-dir --target {home}/pt --index-url {url}/simple/ matrixpkg && ls {home}/pt",
            "matrixpkg.py", "403"),
    "python": ("/usr/bin/python3", "/usr/bin/python3 -c \"" + PYTHON + "\"", '"ok":true', "403"),
    "node": ("node", "node -e \"" + NODE_FETCH + "\"", "true", None),
    "java": ("java",
             "java -Djavax.net.ssl.trustStore={home}/ts.p12 -Djavax.net.ssl.trustStorePassword=changeit {java_proxy} {home}/Get.java {url}/json",
             '"ok":true', "403"),
}
JAVA = """public class Get {
    public static void main(String[] a) throws Exception {
        System.out.println(new String(new java.net.URL(a[0]).openStream().readAllBytes()));
    }
}
"""
SLOW = {"java": 4, "npm": 4, "pip": 3, "apt": 2}  # what they need to fail at all


class Clients:
    """The world: nginx in front of the suites' origin, which serves git, npm, pip and apt."""

    def __init__(self, lab, **how):
        self.w, self.lab = lab.world(), lab
        w = self.w
        w.nameserver(ZONE)
        self.files, self.home = os.path.join(w.dir, "files"), os.path.join(w.dir, "home")
        os.makedirs(self.files)
        os.makedirs(self.home)
        matrix.fill(self.files, "https://ok.test")
        os.chown(self.home, 65534, 65534)
        cert, key = w.ca.certificate("ok.test", "no.test")
        if not shutil.which("node"):
            raise Skipped("the program node is not installed")
        w.popen(["node", str(SUITES / "origin.js"), "21443", cert, key, self.files, "21480"], who="admin", place="outside",
                stdout=subprocess.DEVNULL)
        listens = "".join(f"listen {a}:80; listen {a}:443 ssl http2; " for a in (GOOD, BAD, "[2001:db8::10]"))
        w.nginx(f"server {{ {listens} ssl_certificate {cert}; ssl_certificate_key {key}; client_max_body_size 0; location / {{ "
                "proxy_pass http://127.0.0.1:21480; proxy_http_version 1.1; proxy_set_header Host $host; proxy_buffering off; } }")
        wait_for(self.ready, "the origin answers", 20)
        self.s = w.sidecar(**{"MODE": "dns+nft", "RULES": closed(allow("ok.test")), **how})

    @staticmethod
    def ready():
        try:
            c = Client(21480)
            return c.ask("GET", "/json").status == 200
        except OSError:
            return False

    def run(self, name, host, proxy):
        program, command, *_ = CLIENTS[name]
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            raise Skipped(f"the program {program} is not installed")
        ca = self.w.ca.file
        env = {"HOME": self.home, "SSL_CERT_FILE": ca, "CURL_CA_BUNDLE": ca, "NODE_EXTRA_CA_CERTS": ca, "GIT_SSL_CAINFO": ca,
               "PIP_CERT": ca,
               "GIT_TERMINAL_PROMPT": "0", "REQUESTS_CA_BUNDLE": ca}
        if proxy:
            env.update({k: "http://" + PROXY for k in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")})
        if name == "java":
            self.w.write("home/Get.java", JAVA)
            self.w.run("keytool", "-importcert", "-noprompt", "-alias", "p", "-file", ca, "-keystore", self.home + "/ts.p12",
                       "-storetype", "PKCS12",
                       "-storepass", "changeit")
        where, port = PROXY.split(":")
        values = {"url": f"https://{host}", "plain": f"http://{host}", "home": self.home, "ca": ca,
                  "java_proxy": f"-Dhttps.proxyHost={where} -Dhttps.proxyPort={port}" if proxy else "",
                  "apt_proxy": f" -o Acquire::https::Proxy=http://{PROXY}" if proxy else ""}
        start = time.monotonic()
        code, out, err = self.w.run("sh", "-c", command.format(**values), env=env, within=60)
        return code, out + err, time.monotonic() - start


def works_and_fails(lab, name, proxy, **how):
    """The client with both hosts; the refused one must not reach the origin, nor keep anybody waiting."""
    k = Clients(lab, **how)
    code, text, took = k.run(name, "ok.test", proxy)
    check(code == 0 and CLIENTS[name][2] in text, f"{name} with the allowed host: exit {code}: {text[-600:]}")
    k.w.recorder.forget()
    seen = []
    for _ in range(3):  # others may need the machine now and then
        code, text, took = k.run(name, "no.test", proxy)
        check(code != 0, f"{name} got to a refused host: {text[-300:]}")
        seen.append(took)
        if took < (1 + SLOW.get(name, 0)) * lab.slow:
            break
    else:
        check(False, f"{name} needed {min(seen):.1f} s at best to fail: {text[-300:]}")
    words = CLIENTS[name][3] if proxy else LOOKUP
    check(re.search(words, text, re.I), f"{name} says nothing a person understands: {text[-600:]}")
    k.w.recorder.nothing_left("to the refused host", dst=BAD)
    k.w.recorder.nothing_left("its name", holds=b"\x02no\x04test")


def each_client():
    for name, (*_, by_proxy) in CLIENTS.items():
        word = re.sub("[^a-z0-9]+", "_", name.lower())
        def relayed(lab, name=name):
            works_and_fails(lab, name, False, MITMPROXY_TRANSPARENT="true")
        def direct(lab, name=name):
            works_and_fails(lab, name, False)
        def proxied(lab, name=name):
            works_and_fails(lab, name, True, MODE="proxy", who="nobody")
        for run, how in ((relayed, "redirected"), (direct, "direct"),
                         *([(proxied, "by_the_explicit_proxy")] if by_proxy else [])):
            run.__name__ = f"{word}_{how}_works_or_fails_at_once"
            test("clients", "POL-13", limit=150)(run)


each_client()


@test("clients", "POL-03")
def addresses_in_a_url_fail_at_once(lab):
    for how, words in (({"MITMPROXY_TRANSPARENT": "true"}, r"\((7|35|52|56)\)|403"), ({}, r"\(7\)")):
        k = Clients(lab, **how)
        for url in (f"https://{FREE}/", f"http://{FREE}/", f"https://{BAD}/", "https://[2001:db8::200]/",
                    f"https://{FREE}:8443/"):
            start = time.monotonic()
            code, out, err = k.w.run("curl", "-sSfk", "--noproxy", "*", url)
            check(code != 0 and re.search(words, out + err), url, code, out, err)
            check(time.monotonic() - start < 2 * lab.slow, url, "took", time.monotonic() - start)
        k.w.recorder.nothing_left("a connection", dst=[FREE, BAD, "2001:db8::200"])


@test("clients", "E17")
def a_denied_certificate_name_is_not_reached_by_another_one(lab):
    """Connect to the allowed address, say the denied name: --connect-to is what a sandbox would try first."""
    k = Clients(lab, MITMPROXY_TRANSPARENT="true")
    equal(k.w.resolve("ok.test"), [GOOD])
    for url, target in (("https://no.test/json", "no.test:443:198.51.100.10:443"),
                        ("http://no.test/json", "no.test:80:198.51.100.10:80"),
                        ("https://ok.test/json", f"ok.test:443:{BAD}:443")):
        code, out, _ = k.w.run("curl", "-sSf", "--cacert", k.w.ca.file, "--connect-to", target, url)
        check(code != 0 and '"ok":true' not in out, url, target, out)
    code, out, _ = k.w.run("curl", "-sSf", "--cacert", k.w.ca.file, "-H", "Host: no.test", "https://ok.test/json")
    equal((code, '"ok":true' in out), (0, True), "a Host inside TLS that is passed on is not ours to see")
