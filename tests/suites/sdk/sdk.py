#!/usr/bin/python3
"""Sends the published JavaScript SDK at a sidecar, straight and through three gateways: all in namespaces of their own.

    sdk.py --gateway PATH --sidecar PATH --node-modules DIR [--logs DIR] [--groups LIST]

The sidecar redirects DNS and web traffic of the network namespace it is in, so everything stands in one that ends with the run
and has only loopback; the sandboxes are 127.0.0.2 there.  Two gateways (header and URI form) find them through the suite's Kubernetes
API and send renew intents to its Redis, one asks its lifecycle server.  What a program did wrong counts as a failed check.  Last
line: 'N passed, N failed, N skipped'.
"""
import argparse, json, os, re, shutil, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from run import Program  # noqa: E402

INSIDE = "SALLYPORT_SDK_INSIDE"
POD, TOKEN, API_KEY = "127.0.0.2", "egress-token-0123456789abcdef", "suite-key"     # as kit.mjs has them
KEYS = "a=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
HEADER, URI, ASKING = "127.0.0.1:28888", "127.0.0.1:28898", "127.0.0.1:28908"
POLICY = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "packages.example.org"}]}


def enter():
    """Starts this script anew, inside"""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    argv = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    os.execvpe("unshare", argv, {**os.environ, INSIDE: "1"})


def furnish():
    """Loopback, and folders of the sidecar's that are nobody else's: what it exports, its authority, the namespace's trust"""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for folder in ("/var/egress", "/opt/opensandbox", "/var/lib/mitmproxy", "/usr/local/share/ca-certificates", "/etc/ssl/certs"):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)


class Part(Program):
    """A program under test; the suite itself waits until it serves"""

    def __init__(self, logs, name, argv, env=()):
        self.dir, self.name, self.log = tempfile.mkdtemp(prefix="sallyport-sdk-"), name, "%s/sdk-%s.log" % (logs, name)
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=open(self.log, "wb"), stderr=subprocess.STDOUT,
                                        env={**os.environ, **dict(env)})


def programs(a, folder):
    with open(folder + "/api-key", "w") as f:
        f.write(API_KEY + "\n")
    common = [a.gateway, "--allow-target-cidr=127.0.0.0/8", "--secure-access-keys=" + KEYS, "--workers=2"]
    cluster = [*common, "--namespace=opensandbox", "--provider-type=batchsandbox", "--renew-intent-enabled", "--renew-intent-min-interval=2",
               "--renew-intent-redis-dsn=redis://127.0.0.1:16379/0"]
    kube = [("KUBECONFIG", HERE + "/kubeconfig.yaml")]
    sidecar = {"HTTP_ADDR": POD + ":18080", "TOKEN": TOKEN, "MODE": "dns+nft", "MITMPROXY_TRANSPARENT": "true",
               "RULES": json.dumps(POLICY)}
    return [Part(a.logs, "gateway", [*cluster, "--mode=header", "--port=28888"], kube),
            Part(a.logs, "gateway-uri", [*cluster, "--mode=uri", "--port=28898", "--admin-addr=127.0.0.1:28899"], kube),
            Part(a.logs, "gateway-lifecycle", [*common, "--provider-type=lifecycle", "--lifecycle-url=http://127.0.0.1:16080",
                                               "--lifecycle-api-key-file=" + folder + "/api-key", "--port=28908",
                                               "--admin-addr=127.0.0.1:28909"]),
            Part(a.logs, "sidecar", [a.sidecar], [("OPENSANDBOX_EGRESS_" + k, v) for k, v in sidecar.items()])]


def drive(a, folder):
    """Runs the suite -> (its last line's numbers, its status)"""
    for name in os.listdir(HERE):
        if name.endswith(".mjs"):
            shutil.copy(os.path.join(HERE, name), folder)
    os.symlink(os.path.abspath(a.node_modules), folder + "/node_modules")   # node looks for packages beside the script
    argv = ["node", folder + "/run.mjs", "--ingress", HEADER, "--ingress-uri", URI, "--ingress-lifecycle", ASKING,
            "--egress", POD + ":18080", "--renew", "--groups", a.groups]
    last = ""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as suite:
        for line in suite.stdout:
            if re.match(r"\d+ passed, ", line):
                last = line
            else:
                print(line, end="", flush=True)
    return [int(n) for n in re.findall(r"\d+", last)] or [0, 1, 0], suite.returncode


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--gateway", required=True)
    ap.add_argument("--sidecar", required=True)
    ap.add_argument("--node-modules", default=HERE + "/node_modules")
    ap.add_argument("--logs", default=tempfile.gettempdir())
    ap.add_argument("--groups", default="", help="a comma list; all of them unless given")
    a = ap.parse_args()
    if not os.environ.get(INSIDE):
        enter()
    furnish()
    with tempfile.TemporaryDirectory(prefix="sallyport-sdk-") as folder:
        running = programs(a, folder)
        try:
            counts, status = drive(a, folder)
        finally:
            faults = [(part.name, part.stop()) for part in running]
    for name, fault in faults:
        if fault:
            print("FAIL [%s] %s" % (name, fault))
            counts[1] += 1
    if status and not counts[1]:
        print("FAIL [suite] node ended with status %d" % status)
        counts[1] += 1
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    sys.exit(counts[1] > 0)


if __name__ == "__main__":
    main()
