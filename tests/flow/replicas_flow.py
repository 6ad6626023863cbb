"""Replicas of the gateway behind haproxy, on one cluster: what clients see when one of them dies or leaves, and when a sandbox moves
under all of them.  Clients keep their connections and ask once more where one has died (harness/load.py)."""
import contextlib
import os
import signal
import subprocess
import sys
import time

from gateway import LIBC, PR_SET_PDEATHSIG, free_port
from lib import Ended, Late, Skipped, answer, check, equal, test, wait_for
from wire import Client

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import balancer  # noqa: E402
from kube_server import KubeServer  # noqa: E402
from load import Load  # noqa: E402


def pod(conn):
    while conn.request():
        time.sleep(0.01)
        conn.send(answer(200, body=conn.sock.getsockname()[0].encode()))


class Haproxy:
    def __init__(self, lab, gateways):
        if not balancer.program():
            raise Skipped("the program haproxy is not installed")
        self.port = free_port()
        argv = balancer.command(os.path.join(lab.dir, "haproxy.cfg"), self.port, [gw.port for gw in gateways])
        with open(os.path.join(lab.dir, "haproxy.log"), "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        lab.peers.append(self)

    def close(self):
        self.process.kill()
        self.process.wait()


class Replicas:
    """So many, a sandbox sb1 at 127.0.0.2, and a load on it by 16 clients."""

    def __init__(self, lab, n):
        self.kube = KubeServer(lab.dir)
        lab.peers.append(self.kube)
        self.target = f"/sandboxes/sb1/port/{lab.backend(pod, host='0.0.0.0').port}/"
        self.kube.put("sb1", "127.0.0.2")
        self.gateways = [lab.gateway("--provider-type=batchsandbox", "--allow-target-cidr=127.0.0.0/8", env={"KUBECONFIG": self.kube.kubeconfig()})
                         for _ in range(n)]
        self.haproxy = Haproxy(lab, self.gateways)
        for gw in self.gateways:
            wait_for(lambda port=gw.port: self.served(port), "each serves", 20)
        wait_for(lambda: self.served(self.haproxy.port), "haproxy serves", 20)
        self.load = Load(self.haproxy.port, self.target)
        self.load.until(200)

    def served(self, port):
        with contextlib.suppress(OSError, Ended, Late):
            c = Client(port)
            try:
                return c.ask("GET", self.target, "Connection: close").status == 200
            finally:
                c.close()

    def end(self):
        self.load.until(200)
        self.load.stop()
        equal(dict(self.load.failed), {}, "failed: " + self.load.said())


@test("replicas", limit=180)
def of_three_replicas_one_is_killed_and_one_drained_and_nothing_fails_that_could_be_repeated(lab):
    r = Replicas(lab, 3)
    killed, drained, left = r.gateways
    killed.expect_exit = -signal.SIGKILL
    killed.signal(signal.SIGKILL)
    r.load.until(300)
    drained.signal(signal.SIGTERM)
    equal(drained.exit(40), 0, "exit status")
    r.end()
    check(left.metric("ingress_http_request_count") > 0, "the one that is left was asked")


@test("replicas", limit=180)
def a_sandbox_that_moves_under_load_behind_two_replicas_fails_no_request(lab):
    r = Replicas(lab, 2)
    for i in range(20):
        r.kube.put("sb1", ("127.0.0.3", "127.0.0.2")[i % 2])
        r.load.until(60)
        r.load.until_all(time.monotonic())  # a request is repeated once, not for each move
    r.end()
    check(len(r.load.by) == 2, "both addresses answered:", r.load.said())
    equal(r.load.repeated, 0, "no client had to ask again")
