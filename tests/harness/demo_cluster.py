#!/usr/bin/env python3
"""The cluster's part of scripts/demo: two gateways behind haproxy that find sandboxes through a Kubernetes API and tell a Redis which are
in use.  Sandboxes come, move and go, replicas and the API server die, while clients (load.py) go on asking.
"""
import argparse
import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import balancer
import demo
from demo import PATIENCE, STATE, free_port, masked_frame, perform, read_answer, read_frame
from kube_server import TOKEN, KubeServer
from load import Load
from redis_server import RedisError, read, send
from wire import Ended, Failed, Late, wait_for

INTENTS, ACTIVITY = "opensandbox:renew:intent", "opensandbox:activity:"
OLD, NEW = "127.0.1.1", "127.0.1.2"


class Replica:
    """One of the gateways, and the next one on its ports."""

    def __init__(self, show, name, taken):
        self.show, self.name, self.lives, self.process = show, name, 0, None
        self.port = free_port(taken=taken)
        self.admin = free_port(taken={*taken, self.port})
        taken.update((self.port, self.admin))

    def argv(self):
        dsn = f"redis://127.0.0.1:{self.show.redis_port}/0"
        return [self.show.program, "--provider-type=batchsandbox", f"--port={self.port}", f"--admin-addr=127.0.0.1:{self.admin}",
                "--allow-target-cidr=127.0.0.0/8", "--renew-intent-enabled", f"--renew-intent-redis-dsn={dsn}", "--activity-enabled",
                f"--activity-redis-dsn={dsn}"]

    def start(self):
        self.lives += 1
        self.log = STATE / f"gateway-{self.name}-{self.lives}.log"
        self.process = self.show.processes.start(self.log.stem, self.argv(), KUBECONFIG=self.show.kubeconfig)

    def page(self, path):
        with socket.create_connection(("127.0.0.1", self.admin), PATIENCE) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.admin}\r\nConnection: close\r\n\r\n".encode())
            return read_answer(s.makefile("rb"), "GET")

    def is_ready(self):
        if self.process.poll() is not None:
            raise Failed(f"the gateway does not start: {self.log.read_text()[-800:]}")
        with contextlib.suppress(OSError):
            return self.page("/readyz").status == 200
        return False

    def metric(self, name):
        lines = [x for x in self.page("/metrics").text.splitlines() if x.partition(" ")[0].partition("{")[0] == name]
        return sum(float(x.rpartition(" ")[2]) for x in lines)


class Cluster(demo.Show):
    dir = STATE / "cluster"

    # -- the stage
    def start(self):
        if not balancer.program() or not shutil.which("redis-server"):
            raise Failed("haproxy and redis-server must be installed")
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir()
        self.backend_port = self.start_backend("old-address", "demo_backend.py", "--host", OLD)
        self.start_backend("new-address", "demo_backend.py", "--host", NEW, "--port", str(self.backend_port))
        self.kube = KubeServer(str(self.dir))
        self.kubeconfig = self.kube.kubeconfig()
        taken = {self.backend_port, self.kube.port}
        self.redis_port = free_port(taken=taken)
        taken.add(self.redis_port)
        self.processes.start("redis", ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--dir", str(self.dir), "--save", "",
                                       "--appendonly", "no"])
        wait_for(self.redis_answers, "redis-server")
        self.one, self.two = self.replicas = [Replica(self, name, taken) for name in ("one", "two")]
        self.port = free_port(28888, taken)
        for replica in self.replicas:
            replica.start()
        for replica in self.replicas:
            wait_for(replica.is_ready, "a gateway is ready", PATIENCE)
        self.start_haproxy()

    def start_haproxy(self):
        self.processes.start("haproxy", balancer.command(STATE / "haproxy.cfg", self.port, [x.port for x in self.replicas]))

        def serves():
            with contextlib.suppress(OSError):
                return self.status("/status.ok") == 200
        wait_for(serves, "haproxy passes a request on", PATIENCE)

    def redis(self, *words):
        with socket.create_connection(("127.0.0.1", self.redis_port), PATIENCE) as s:
            send(s, *words)
            return read(s.makefile("rb"))

    def redis_answers(self):
        with contextlib.suppress(OSError, RedisError):
            return self.redis("PING") == "PONG"
        return False

    def clear(self):
        """Ends what was started; a program may still need another until then."""
        for end in (self.processes.stop, lambda: self.kube.close(), lambda: shutil.rmtree(self.dir)):
            with contextlib.suppress(AttributeError, OSError):
                end()

    # -- what clients do
    def path(self, sandbox, rest):
        return f"/sandboxes/{sandbox}/port/{self.backend_port}{rest}"

    def status(self, target):
        return self.ask(target, show=False).status

    def until(self, sandbox, wanted, within=PATIENCE):
        """Asks, each time on a connection of its own, until the answer is this eight times in a row -> ms until the first of them"""
        start, row, first = time.monotonic(), 0, 0.0
        while row < 8:
            now = time.monotonic()
            if now - start > within:
                raise Failed(f"{sandbox}: not {wanted} within {within:.0f} s")
            r = self.ask(self.path(sandbox, "/where"), show=False)
            said = r.text if r.status == 200 else r.status
            if said != wanted:
                row = 0
                time.sleep(0.01)
                continue
            first = first if row else now - start
            row += 1
        return 1000 * first

    def load(self, sandbox):
        load = Load(self.port, self.path(sandbox, "/where?ms=10"))
        load.until(200)
        return load

    def nothing_failed(self, load, text):
        print(f"    {load.said()}")
        for reason, n in load.failed.most_common(4):
            print(f"    {n} times: {reason}")
        self.check(load.asked > 0 and not load.failed, text)

    def web_socket(self, sandbox):
        """An open one, which has echoed a message."""
        s = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        lines = [f"GET {self.path(sandbox, '/ws')} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        s.sendall("\r\n".join([*lines, "", ""]).encode())
        f = s.makefile("rb")
        self.print_request(lines)
        r = read_answer(f, "GET")
        self.print_answer(r, body=False)
        s.sendall(masked_frame(1, b"hello"))
        if r.status != 101 or read_frame(f) != (1, b"hello"):
            raise Failed("no WebSocket")
        print("    >> hello\n    << hello")
        return s, f

    # -- the scenes
    def found(self):
        self.title("1. A sandbox appears in the cluster")
        r = self.ask(self.path("demo", "/hello"))
        self.check(r.status == 404, "nobody has heard of it: 404")
        print("\n    (a BatchSandbox \"demo\" is made)")
        self.kube.put("demo", OLD)
        ms = self.until("demo", OLD)
        r = self.ask(self.path("demo", "/hello"))
        self.check(self.arrived(r, "GET /hello"), f"served by both replicas, first after {ms:.0f} ms")
        asked = [x for x in self.kube.asked() if x.path.endswith("/batchsandboxes") and x.fields.get("authorization") == f"Bearer {TOKEN}"]
        self.check(len(asked) == len(self.kube.seen) and {x.watch for x in asked} == {True, False},
                   "all that the API was asked: LIST and WATCH of batchsandboxes, with the token, over TLS")
        self.kube.put("asleep", None, ready=0)
        wait_for(lambda: self.status(self.path("asleep", "/")) == 503, "a paused one is 503")
        r = self.ask(self.path("asleep", "/"))
        self.check(r.status == 503 and r.get("retry-after") == "1", "one without a pod: 503, try again in a second")

    def renewed(self):
        self.title("2. Redis is told which sandboxes are in use")
        self.kube.put("busy", OLD)
        self.until("busy", OLD)
        for _ in range(40):
            self.status(self.path("busy", "/where"))

        def intents():
            return [x for x in self.redis("LRANGE", INTENTS, "0", "-1") if '"busy"' in x]
        wait_for(lambda: len(intents()) >= 2, "intents of both replicas")
        print(f"\n    > LRANGE {INTENTS} 0 -1")
        for x in intents():
            print(f"    | {x}")
        self.check(len(intents()) == 2, "more than 40 requests, one intent of each replica in its interval of 60 s")
        wait_for(lambda: self.redis("GET", ACTIVITY + "busy"), "an activity key")
        at, ttl = int(self.redis("GET", ACTIVITY + "busy")), self.redis("TTL", ACTIVITY + "busy")
        print(f"\n    > GET {ACTIVITY}busy\n    | {at}")
        self.check(abs(time.time() * 1000 - at) < 60000 and 1700 < ttl <= 1800, f"the time of its last use, kept for {ttl} s")

    def moves(self):
        self.title("3. A sandbox moves to another address under load, six times")
        self.kube.put("mover", NEW)
        self.until("mover", NEW)
        load = self.load("mover")
        late = 0.0
        for i in range(6):
            to = (OLD, NEW)[i % 2]
            at = time.monotonic()
            self.kube.put("mover", to)
            load.until(300)
            load.until_all(time.monotonic())
            late = max(late, load.last_elsewhere(to) - at)
        load.stop()
        self.nothing_failed(load, "no request failed, those that were under way at the old address were asked again by the gateway")
        self.check(load.repeated == 0, "nor did a client have to ask again")
        self.check(load.by[OLD] and load.by[NEW] and late < 2,
                   f"the old address got nothing any more {1000 * max(late, 0):.0f} ms after each move")

    def deleted(self):
        self.title("4. A sandbox is deleted")
        s, f = self.web_socket("demo")
        with s:
            print("\n    (the BatchSandbox \"demo\" is deleted)")
            at = time.monotonic()
            self.kube.remove("demo")
            with contextlib.suppress(ConnectionResetError, struct.error, ValueError):
                while f.read(1):
                    pass
            ended = 1000 * (time.monotonic() - at)
        self.check(True, f"its WebSocket has ended, {ended:.0f} ms later")
        ms = self.until("demo", 404)
        r = self.ask(self.path("demo", "/hello"))
        self.check(r.status == 404, f"404 from both replicas{', at once' if ms < 100 else ''}")

    def killed(self):
        self.title("5. A replica is killed under load: kill -9")
        load = self.load("mover")
        self.one.process.kill()
        self.one.process.wait()
        print("\n    (kill -9)")
        load.until(300)
        self.one.start()
        wait_for(self.one.is_ready, "the gateway is ready again", PATIENCE)
        print("    (started again)")
        wait_for(lambda: self.status(self.path("mover", "/where")) == 200 and self.shared(self.one), "it gets its share again", PATIENCE)
        load.until(100)
        load.stop()
        self.nothing_failed(load, "no request failed that could be repeated; the replica came back and has its share")
        self.check(load.repeated > 0, "the clients had to ask again where the killed one was about to answer")

    def shared(self, replica):
        return replica.metric("ingress_http_request_count") > 0

    def drained(self):
        self.title("6. A replica is drained under load: SIGTERM")
        load = self.load("mover")
        self.two.process.send_signal(signal.SIGTERM)
        print("\n    (SIGTERM)")
        status = self.two.process.wait(PATIENCE * 4)
        load.until(100)
        load.stop()
        self.nothing_failed(load, f"no request failed that could be repeated; exit status {status}")
        self.check(status == 0, "it finished what it had, and left")
        self.two.start()
        wait_for(self.two.is_ready, "the gateway is ready again", PATIENCE)

    def api_away(self):
        self.title("7. The API server goes away and comes back with another list")
        self.kube.put("leaver", OLD)
        self.until("leaver", OLD)
        load = self.load("mover")
        self.kube.down()
        print("\n    (nobody listens, all connections are cut)")
        load.until(400)
        ready = [replica.page("/readyz").status for replica in self.replicas]
        self.check(ready == [200, 200] and self.status(self.path("leaver", "/where")) == 200, "both replicas are ready and serve what they know")
        self.kube.remove("leaver")
        self.kube.put("newcomer", NEW)
        self.kube.compact()
        self.kube.up()
        print("    (it is back; \"leaver\" is gone, \"newcomer\" is new, and what happened meanwhile is not told)")
        self.until("newcomer", NEW, 40)
        self.until("leaver", 404, 40)
        self.check(True, "the list is read anew: the one is served, the other is 404")
        load.stop()
        self.nothing_failed(load, "no request failed meanwhile")

    def pages(self):
        self.title("8. What operators look at, of each replica")
        wanted = ("ingress_kube_", "ingress_renew_", "ingress_activity_")
        text = self.one.page("/metrics").text
        lines = [x for x in text.splitlines() if x.startswith(wanted)]
        print("\n    > GET /metrics\n" + "\n".join("    | " + x for x in lines[:24]))
        self.check(all(any(x.startswith(w) for x in lines) for w in wanted), "what is known of the cluster and how old it is; what Redis took")

    def end(self):
        self.title("9. The end")
        for replica in self.replicas:
            replica.process.send_signal(signal.SIGTERM)
        status = [replica.process.wait(PATIENCE * 4) for replica in self.replicas]
        self.check(status == [0, 0], "SIGTERM: exit status 0, twice")
        said = "".join(x.read_text(errors="replace") for x in STATE.glob("gateway-*.log"))
        self.check(TOKEN not in said, "no log holds the token")

    def run(self, keep=False):
        self.title("Starting two gateways, haproxy, Redis, a Kubernetes API and two sandboxes")
        for old in STATE.glob("gateway-*.log"):
            old.unlink()
        scenes = [self.found, self.renewed, self.moves, self.deleted, self.killed, self.drained, self.api_away, self.pages, self.end]
        try:
            self.start()
            print("    KUBECONFIG=… " + " \\\n        ".join(self.one.argv()))
            self.check(True, f"haproxy on 127.0.0.1:{self.port}, in front of {self.one.port} and {self.two.port}")
            for scene in scenes:
                self.play(scene)
        except (OSError, RuntimeError, Failed) as e:
            self.check(False, f"gateways and what is around them start: {e}")
        finally:
            self.clear()

    def play(self, scene):
        try:
            scene()
        except (OSError, ValueError, KeyError, RedisError, Ended, Failed, Late, subprocess.SubprocessError) as e:
            self.check(False, f"{type(e).__name__}: {e}")
        finally:
            Load.stop_all()


def main():
    ap = argparse.ArgumentParser(description="Shows two gateways on a cluster.")
    ap.add_argument("--gateway", required=True, help="the program sallyport-ingress")
    return perform(Cluster, ap.parse_args().gateway)


if __name__ == "__main__":
    sys.exit(main())
