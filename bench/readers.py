"""readers.py — what bench/mitm.py compares: the origin, the sidecar with a vault, squid and mitmdump that add the same header."""
import os
import random
import shutil
import socket
import subprocess
import time

from sandbox import NAMESERVER, WORKLOAD, Sidecar, ask, run

HERE = os.path.dirname(os.path.abspath(__file__))
NAME, SECRET, KIB, MIB = "bench.test", "sk-" + "4f9KqZ7tWc2Lx8Rb" * 3, 1 << 10, 1 << 20
OTHERS = {"squid": 7100, "squid, at once": 7200, "mitmdump": 7300}  # where each listens
BUMP = {"squid": "ssl_bump peek hello\nssl_bump bump all", "squid, at once": "ssl_bump bump all"}


# ---- files

def write(path, text):
    with open(path, "w" if isinstance(text, str) else "wb") as f:
        f.write(text)
    return path


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def certificates(folder):
    """The authority that all three trust, which is also squid's own, and the origin's certificate."""
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-days", "2", "-subj", "/CN=bench authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", at("ca.key"), "-out", at("ca.pem"))
    openssl("req", "-new", *curve, "-subj", f"/CN={NAME}", "-keyout", at("leaf.key"), "-out", at("leaf.csr"))
    write(at("leaf.ext"), f"subjectAltName=DNS:{NAME},DNS:*.names.test\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", at("leaf.csr"), "-CA", at("ca.pem"), "-CAkey", at("ca.key"), "-CAcreateserial", "-days", "2",
            "-extfile", at("leaf.ext"), "-out", at("leaf.pem"))
    os.chmod(at("ca.key"), 0o644)  # squid reads it as somebody else


def words(n):
    """Text as answers of an API are made of: JSON with words, numbers and ids."""
    r = random.Random(5)
    known = ["".join(r.choice("etaoinshrdlucmfwypvbgkqjxz") for _ in range(r.randint(2, 9))) for _ in range(500)]
    out, length = [], 0
    while length < n:
        out.append(f'{{"id":"{r.getrandbits(64):016x}","index":{r.randrange(1000)},"text":"{" ".join(r.choices(known, k=12))}"}},\n')
        length += len(out[-1])
    return "".join(out)[:n].encode()


# ---- the origin

def start_origin(box, folder, build, http2):
    """nginx, which answers those alone that bring the credential; a tunnel is opened by bench-origin behind it."""
    os.makedirs(os.path.join(folder, "html"))
    for name, n in (("1k", KIB), ("10m", 10 * MIB)):
        write(os.path.join(folder, "html", name), words(n))
    upgrades = box.spawn("world", [os.path.join(build, "bench/bench-origin"), "--port", "8000"], stdout=subprocess.DEVNULL)
    common = f"ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/leaf.key; root {folder}/html; default_type text/plain;"
    only = f'if ($http_authorization != "Bearer {SECRET}") {{ return 401; }}'
    write(os.path.join(folder, "nginx.conf"), f"""
        user root; daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 8192; }}
        http {{
            access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 3600s;
            client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
            uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
            server {{ listen 443 ssl{' http2' if http2 else ''} backlog=4096; server_name {NAME}; {common} {only}
                location /ws {{ {only} proxy_pass http://127.0.0.1:8000; proxy_http_version 1.1; proxy_read_timeout 1h;
                    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}
            server {{ listen 443 ssl{' http2' if http2 else ''}; server_name *.names.test; {common} {only}
                keepalive_timeout 0; ssl_session_tickets off; ssl_session_cache off; }}
        }}
        """)
    serves = box.spawn("world", ["nginx", "-c", os.path.join(folder, "nginx.conf"), "-e", os.path.join(folder, "nginx.log")],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [upgrades, serves]


# ---- those that read

def tree(pid):
    """It and all below it."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        below = [int(p) for p in f.read().split()]
    return [pid, *(q for p in below for q in tree(p))]


def vault():
    return {"credentials": [{"name": "k", "source": {"type": "inline", "value": SECRET}}],
            "bindings": [{"name": "b", "match": {"hosts": [NAME, "*.names.test"], "methods": ["GET"], "paths": ["/*"]},
                          "auth": {"type": "bearer", "credential": "k"}}]}


class Ours:
    where = "box"

    def __init__(self, box, o, folder):
        rules = {"defaultAction": "deny", "egress": [{"action": "allow", "target": t} for t in (NAME, "*.names.test")]}
        self.box = box
        self.sidecar = Sidecar(box, o.build, RULES=rules, MITMPROXY_TRANSPARENT="on",
                               MITMPROXY_UPSTREAM_EXTRA_CA=os.path.join(folder, "ca.pem"))
        self.sidecar.start()
        self.post()
        ask(box.socket("box", socket.SOCK_DGRAM, (NAMESERVER, 53)), NAME)

    def post(self):
        s, last = self.sidecar.request("POST", vault(), "/credential-vault")
        with s:
            s.sendall(last)
            answer = s.recv(65536)
        if answer[9:12] != b"201":
            raise SystemExit(f"POST /credential-vault: {answer[:300]}")

    def turn(self):
        pass

    def pids(self):
        return self.sidecar.pids()

    def stop(self):
        self.sidecar.__exit__()


class Other:
    """A program in the twin, to which 443 is redirected when it is its turn."""
    where = "twin"

    def __init__(self, box, name, folder):
        self.box, self.name, self.port = box, name, OTHERS[name]
        argv, env = (self.mitmdump if name == "mitmdump" else self.squid)(folder)
        self.process = box.spawn("twin", argv, env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            if listens(box, "twin", self.port + (name != "mitmdump")):  # squid gives up a listener that is connected to directly
                return
            time.sleep(0.05)
        raise SystemExit(f"{name} does not listen")

    def squid(self, folder):
        short = f"squid{self.port}"
        log = write(os.path.join(folder, short + ".log"), "")
        run("chown", "proxy:proxy", log)
        with open(os.path.join(HERE, "peers/squid.conf"), encoding="ascii") as f:
            text = f.read()
        for key, value in (("PORT", self.port), ("PLAIN", self.port + 1), ("DIR", folder), ("NAME", short), ("SECRET", SECRET),
                           ("BUMP", BUMP[self.name]), ("NAMESERVER", NAMESERVER), ("LOG", "none")):
            text = text.replace(f"@{key}@", str(value))
        shutil.rmtree(os.path.join(folder, short + ".db"), ignore_errors=True)
        run("/usr/lib/squid/security_file_certgen", "-c", "-s", os.path.join(folder, short + ".db"), "-M", "4MB")
        run("chown", "-R", "proxy:proxy", os.path.join(folder, short + ".db"))
        return ["squid", "-N", "-f", write(os.path.join(folder, short + ".conf"), text)], None

    def mitmdump(self, folder):
        return (["mitmdump", "-q", "--mode", "transparent", "--listen-host", "127.0.0.1", "--listen-port", str(self.port),
                 "--set", "stream_large_bodies=1m", "--set", f"confdir={folder}/mitmproxy", "-s", f"{HERE}/peers/mitmproxy_header.py",
                 "--set", f"ssl_verify_upstream_trusted_ca={folder}/ca.pem"], {"BENCH_SECRET": SECRET, "HOME": folder})

    def turn(self):
        self.box.enter("twin")
        run("nft", "-f", "-", feed=f"""add table ip bench
            delete table ip bench
            table ip bench {{
                chain out {{
                    type nat hook output priority -100
                    meta skuid {WORKLOAD} tcp dport 443 redirect to :{self.port}
                }}
            }}
            """)
        self.box.enter("world")

    def pids(self):
        return tree(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait(15)


def listens(box, where, port):
    try:
        box.socket(where, to=("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def start(box, o, folder):
    """By name, those that are wanted."""
    started = {}
    for name in o.only:
        started[name] = Ours(box, o, folder) if name == "sidecar" else Other(box, name, folder)
    return started
