"""Hours of a workload behind the vault: every kind of request at once, origins that say the secret back at any place and in any
coding, and hands that change and break things meanwhile.  No client ever sees a secret, what is whole is right, no request that
could be said again is lost, and when it is quiet nothing is left."""
import contextlib
import hashlib
import os
import signal
import threading
import time

from bench import Skipped, allow, check, deny, equal, test, wait_for
from soaking import HELD, NONE, PATTERN, PLACE, POLICY, REPLAYED, ROADS, STARS, Soaking, fresh, pieces_of, text_of
from vaulted import BOTH, GOOD, binding, credential
from webs import H2Answer, Shared
from wire import Failed, Late, request
from world import Load


class Soak(Soaking):
    # -- what the workload does
    def path(self, kind, size=0, coding="identity", prefix="v1"):
        seed = self.random.randrange(1 << 30)
        return seed, f"/{prefix}/{kind}/{seed}/{size}/{coding}"

    def size(self):
        return self.random.choice((0, 1, 31, 500, 5000, 70000, 300000))

    def coding(self):
        return self.random.choice(self.coded)

    def some(self, what, run, most=6, **how):
        """A connection and a few requests on it.  A kept one may close between two; the first must be served."""
        opened = begun = time.monotonic()
        c, i, name = None, 0, how.setdefault("name", self.random.choice(("api.test", "other.test")))
        try:
            c = self.client(**how)
            for i in range(self.random.randrange(1, most)):
                begun = time.monotonic()
                good = run(c, begun)
                self.count(what, good)
                if not good or (c.version == "h2" and c.h2.goaway):
                    break
        except ROADS as e:
            self.count(what, False)
            where = f"{type(e).__name__} {e}, {'handshake' if c is None else c.version} {name} request {i}, {time.monotonic() - begun:.3f} s"
            if isinstance(e, (Late, TimeoutError)) and not self.windows.met("kill", begun):
                self.fault(what, "hangs: " + where)
            elif i == 0 and not (c and c.version == "h2" and c.h2.goaway):     # which says what may be said again elsewhere
                self.lost(what, where, name, opened, begun if c else opened)
        finally:
            if c:
                self.part(c)

    def gets(self):
        def one(c, begun):
            kind = "last" if self.random.random() < 0.15 else "get"
            size, coding = self.size(), "identity" if kind == "last" else self.coding()
            seed, path = self.path(kind, size, coding)
            return self.judge(f"{kind} {c.host} {c.version} {path}", c, c.ask("GET", path), text_of(seed, size), begun, coding)
        self.some("get", one)

    def parallel(self):
        """Many streams of one connection."""
        def one(c, begun):
            if c.version == "h1":   # the origin of the moment speaks nothing else
                return True
            asked = []
            for _ in range(self.random.randrange(2, 12)):
                size, coding = self.size(), self.coding()
                seed, path = self.path("get", size, coding)
                asked.append((c.open("GET", path), seed, size, coding, path))
            good = True
            for s, seed, size, coding, path in asked:
                if self.random.random() < 0.15:
                    s.reset()
                    continue
                good = self.judge(f"parallel {path}", c, H2Answer(s), text_of(seed, size), begun, coding) and good
            return good
        self.some("parallel", one, 3, name="api.test", version="h2")

    def uploads(self):
        def one(c, begun):
            size, coding = self.size(), self.coding()
            data = os.urandom(size)
            body = data if self.random.random() < 0.5 else pieces_of(self.random, data) or [b""]
            expect = ["Expect: 100-continue"] if self.random.random() < 0.1 and c.version == "h1" and size else []
            _, path = self.path("upload", 0, coding)
            a = c.ask("PUT", path, *expect, body=body)
            wanted = hashlib.sha256(data).hexdigest().encode() + STARS
            return self.judge(f"upload {c.host} {c.version} {size} {path}", c, a, wanted, begun, coding, size <= REPLAYED)
        self.some("upload", one)

    def helds(self):
        """The placeholder in a body, which is held until it is whole; longer ones pass as they are."""
        def one(c, begun):
            size = self.random.choice((20, 3000, 200000, 1500000))
            data = (PATTERN * 3)[:size // 2] + PLACE + (PATTERN * 3)[size // 2:size]
            _, path = self.path("held", prefix="held")
            a = c.ask("POST", path, "Content-Type: text/plain", body=data if self.random.random() < 0.5 else pieces_of(self.random, data))
            wanted = data if len(data) > HELD else data.replace(PLACE, STARS)
            return self.judge(f"held {c.host} {c.version} {size} {path}", c, a, wanted, begun, again=False)
        self.some("held", one, 3)

    def streams(self):
        def one(c, begun):
            wanted = b"".join(b"data: %d %s\n\n" % (i, STARS) for i in range(10))
            return self.judge(f"events {c.version}", c, c.ask("GET", self.path("events")[1], "Accept: text/event-stream"), wanted, begun)
        self.some("events", one, 2)

    def frames(self, c, threads):
        for _ in range(self.random.randrange(1, 8)):
            data = PATTERN[:self.random.choice((1, 100, 5000, 200000))]
            threads.append(threading.Thread(target=c.offer, args=(data,), daemon=True))
            threads[-1].start()
            if c.exact(len(data), 20) != data:
                self.fault("ws", "other bytes came back")

    def sockets(self):
        """A WebSocket: bytes both ways."""
        begun, c, threads = time.monotonic(), None, []
        try:
            c = self.client("other.test", "h1")
            c.sock = Shared(c.sock)
            c.send(request("GET", self.path("ws")[1], "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", host=c.host))
            a = c.head()
            if a.status == 101:
                self.frames(c, threads)
            self.count("ws", a.status == 101)
        except ROADS as e:
            self.count("ws", False)
            self.lost("ws", f"{type(e).__name__} {e}", "other.test", begun, begun)
        finally:
            if c:
                self.part(c, *threads)

    def relays(self):
        """A name that is not bound: its own certificate, its own bytes."""
        def one(c, begun):
            size = self.size()
            seed, path = self.path("get", size)
            a = c.ask("GET", path)
            if a.end != "whole":
                self.lost("relay", f"{a.status} {a.end}", c.host, c.opened, begun)
            elif (a.status, a.body) != (200, text_of(seed, size, NONE)):
                self.fault("relay", f"{a.status}, {len(a.body)} of {size} bytes")
            return a.end == "whole"
        self.some("relay", one, 2, name="evil.test", trust=self.theirs)

    def slow(self):
        """Reads a little and then a little more, and often goes away in the middle."""
        c = None
        with contextlib.suppress(*ROADS):
            c = self.client(window=65535)
            path = self.path("get", 900000, self.coding())[1]
            s = c.open("GET", path) if c.version == "h2" else c.send(request("GET", path, host=c.host))
            for _ in range(self.random.randrange(20)):
                self.clean("slow", s.take(within=20) if c.version == "h2" else s.more(20) or b"")
                time.sleep(0.02)
        self.count("slow", c is not None)
        if c:
            self.part(c)

    def begins(self, c):
        """A request of which not all is said, or a part of its answer heard."""
        kind = self.random.choice(("get", "cut", "none", "upload", "held"))
        path = self.path(kind, 70000, self.coding(), "held" if kind == "held" else "v1")[1]
        method, uploads = {"upload": ("PUT", True), "held": ("POST", True)}.get(kind, ("GET", False))
        some = PATTERN[:self.random.randrange(1, 60000)]
        if c.version == "h2":
            s = c.open(method, path, end=not uploads)
            if uploads:
                s.send(some)
            time.sleep(self.random.random() / 20)
            if self.random.random() < 0.5:
                s.reset()
                c.h2.ping(20)
            self.clean("abort", bytes(s.data))
            return
        c.send(request(method, path, *(["Content-Length: 70000"] if uploads else []), host=c.host))
        if uploads:
            c.send(some)
            time.sleep(self.random.random() / 20)
        elif self.random.random() < 0.6:
            c.more(5)

    def aborts(self):
        """Ends at any point: in the hello, behind it, in a head, in a body, in an answer."""
        how = self.random.randrange(7)
        with contextlib.suppress(*ROADS):
            if how < 2:
                with contextlib.closing(self.sock(self.random.choice(("api.test", "other.test")))) as raw:
                    hello = self.hello("api.test")
                    raw.sendall(hello if how else hello[:self.random.randrange(1, len(hello))])
                    time.sleep(self.random.random() / 30)
                return
            c = self.client()
            try:
                self.begins(c)
            finally:
                if c.version == "h1" and how % 2:
                    c.rst()
                else:
                    self.part(c)

    def mutes(self):
        """Waits for an origin's choice that does not come, and goes away before it is known, or not."""
        with contextlib.suppress(*ROADS), contextlib.closing((self.through if self.random.random() < 0.4 else self.sock)("mute.test")) as c:
            c.sendall(self.hello("mute.test"))
            c.settimeout(self.random.choice((0.01, 0.1, 1)))
            c.recv(1)

    def cuts(self):
        """An answer that breaks off never looks whole."""
        c, kind, coding = None, self.random.choice(("cut", "none")), self.coding()
        with contextlib.suppress(*ROADS):
            c = self.client()
            a = c.ask("GET", self.path(kind, 70000, coding)[1])
            self.clean(f"{kind} {coding}", a.raw + a.body)
            if a.status == 200 and a.end == "whole":
                self.fault(f"{kind} {c.version} {coding}", "looks whole")
        self.count("cut", c is not None)
        if c:
            self.part(c)

    # -- what befalls it
    def change(self, body):
        self.s.ask("PATCH", "/credential-vault", body)

    def rotate(self):
        self.secrets.append(fresh())
        self.change({"credentials": {"replace": [credential("k", self.secrets[-1])]}})

    def hasty(self):
        """While the sidecar ends."""
        with contextlib.suppress(*ROADS):
            self.rotate()

    def more_bindings(self):
        """Something that concerns nobody."""
        self.change({"bindings": {"add": [binding("x", hosts=["x.api.test"])]}})
        time.sleep(self.random.random() / 10)
        self.change({"bindings": {"delete": ["x"]}})

    def restore(self):
        """Drops the vault and makes it anew."""
        self.s.ask("DELETE", "/credential-vault")
        time.sleep(self.random.random() / 5)
        a = self.s.ask("POST", "/credential-vault", self.body())
        check(a.status == 201, "POST /credential-vault", a.status, a.body[:300])

    def vault_anew(self):
        with self.windows.broken("vault"):
            self.restore()

    def unbound(self):
        """A host is bound no more for a while."""
        with self.windows.broken("vault"):
            self.change({"bindings": {"replace": [binding(hosts=["api.test"])], "delete": ["f"]}})
            time.sleep(self.random.random() / 3)
            self.restore()

    def policy(self):
        n = self.random.randrange(20)
        self.s.ask(*self.random.choice((("PATCH", "/policy", [allow(f"y{n}.test")]), ("PATCH", "/policy", [deny(f"z{n}.test")]),
                                        ("PUT", "/policy", POLICY))))

    def policy_denies(self):
        with self.windows.broken("api.test"):
            self.w.rule_file("deny", "api.test\n")
            wait_for(lambda: self.w.ask("api.test").denied, "api.test is denied", 30, 0.1)
            self.w.rule_file("deny", None)
            wait_for(lambda: self.w.resolve("api.test") == [GOOD], "api.test is allowed again", 20, 0.1)

    def origin_anew(self):
        name = self.random.choice(("api.test", "other.test"))
        with self.windows.broken(name):
            self.again(name, BOTH if name == "api.test" and self.random.random() < 0.7 else ("http/1.1",))

    def hang_up(self):
        """Every connection of an origin is cut, idle ones too."""
        name = self.random.choice(("api.test", "other.test"))
        with self.windows.broken(name):
            self.web[name].hang_up()

    def reload(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.s.worker, signal.SIGHUP)

    def freeze(self):
        self.s.freeze(self.random.random() / 3)

    def kill(self):
        with self.windows.broken("kill", "vault"):
            self.s.kill_worker()
            self.learn()
            self.restore()

    def pages(self):
        for path in ("/metrics", "/debug/exchanges", "/debug/pools"):
            self.clean(path, self.s.admin(path).body)
        for path in ("/credential-vault", "/policy", "/policy/log?since=0"):
            self.clean(path, self.s.ask("GET", path).body)

    # -- all of it
    def guarded(self, run):
        def once():
            try:
                run()
            except Failed as e:
                self.fault(run.__name__, str(e))
            time.sleep(self.random.random() / 50)
        return once

    def loads(self):
        return [Load(self.guarded(run), 0.001) for run in (
            self.gets, self.gets, self.parallel, self.uploads, self.helds, self.streams, self.sockets, self.relays, self.slow, self.aborts,
            self.cuts, self.mutes)]

    def storm(self, seconds, kills):
        loads, end, starts = self.loads(), time.monotonic() + seconds, self.s.starts()
        blows = [self.rotate] * 4 + [self.more_bindings, self.vault_anew, self.unbound, self.policy, self.policy, self.policy_denies,
                                     self.origin_anew, self.hang_up, self.reload, self.freeze, self.pages, lambda: time.sleep(1)]
        while time.monotonic() < end:
            blow = self.kill if kills and self.random.random() < 0.04 else self.random.choice(blows)
            starts += blow == self.kill
            self.windows.tell(blow.__name__)
            blow()
            self.windows.tell("/" + blow.__name__)
            check(self.s.starts() == starts, "the worker has ended:", self.s.events()[-3:], self.s.stderr()[-3000:])
            check(len(self.wrong) < 20, "\n".join(self.wrong))
            self.trim()
            time.sleep(self.random.random() / 2)
        for load in loads:
            load.stop()
        check(not self.wrong, "\n".join(self.wrong))

    def calm(self):
        """Everything is as at first, and no request runs any more."""
        self.again("api.test"), self.again("other.test", ("http/1.1",))
        self.s.put(POLICY)
        self.restore()
        self.learn()
        self.learn("mute.test")
        wait_for(lambda: self.left() == 0, "no exchange, no connection is left", 60 * self.w.lab.slow, 0.2)
        self.trim()

    def left(self):
        return sum(self.s.metric(n) or 0 for n in ("sallyport_relay_connections", "sallyport_client_connections")) + sum(
            self.s.metric("sallyport_exchanges", state=state) or 0 for state in ("dial", "wait", "body", "tunnel"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.s.worker}/fd"))

    def memory(self):
        """KiB in use."""
        with open(f"/proc/{self.s.worker}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def soak(lab, rounds, seconds, kills):
    """kills: in so many of the first rounds the worker is killed now and then."""
    b = Soak(lab)
    b.calm()
    files, seen = b.descriptors(), [b.memory()]
    for n in range(rounds):
        b.storm(seconds, n < kills)
        b.calm()
        wait_for(lambda: b.descriptors() <= files + 40, f"descriptors back near {files}", 120, 0.5)
        seen.append(b.memory())
        equal(b.s.metric("sallyport_memory_held_bytes"), 0, "bytes that are held")
        if lab.long:
            print(f"soak {n}: {seen[-1]} KiB, {b.descriptors()} files, {b.counts}", flush=True)
    for what in ("get", "parallel", "upload", "held", "events", "ws", "relay"):
        check(b.counts.get(what, [0])[0], what, "never worked", b.counts)
    if not lab.sanitizer:
        steady = seen[kills + 1:]
        check(seen[-1] < 2 * seen[0] + (48 << 10), "memory, KiB:", seen)
        check(len(steady) < 6 or min(steady[-3:]) < max(steady[:3]) + (8 << 10), "memory grows, KiB:", seen)
    check(not any(s in b.s.stdout() + b.s.stderr() for s in b.secrets), "a secret in the log")
    b.s.stop()


@test("VLT-06", "STR-01", "LIFE-05", limit=180)
def a_short_soak_leaves_nothing_and_tells_nothing(lab):
    soak(lab, 1, 15, 0)


@test("VLT-06", "OPS-05", "7.3", limit=3600)
def a_long_soak_leaves_nothing_and_tells_nothing(lab):
    """--long; SALLYPORT_SOAK_ROUNDS: minutes of it."""
    if not lab.long:
        raise Skipped("minutes: --long")
    rounds = int(os.environ.get("SALLYPORT_SOAK_ROUNDS", "30"))
    soak(lab, rounds, 60, rounds // 3)


@test("LIFE-05", "7.2", "19.3", limit=300)
def the_end_in_the_middle_of_it_is_an_orderly_one(lab):
    """With handshakes, questions to origins, held bodies and filters in every state."""
    for i in range(12 if lab.long else 3):
        b = Soak(lab)
        begun = [b.sock("mute.test") for _ in range(10)] + [b.sock("api.test") for _ in range(10)]
        for n, c in enumerate(begun):
            c.sendall(b.hello("mute.test") if n < 10 else b.hello("api.test")[:100 * (n % 2)])
        loads = b.loads()
        time.sleep(0.5 + b.random.random() * 2)
        if i % 3:
            threading.Thread(target=b.reload if i % 3 == 1 else b.hasty, daemon=True).start()
        with b.windows.broken("kill"):
            b.s.term()
            equal(b.s.exit(30 * lab.slow), 0, "exit status")
            for load in loads:
                load.stop()
        e = [e for e in b.s.events() if e["event"] == "exit"]
        equal([(x["exit_code"], x.get("signal")) for x in e], [(0, None)], "the worker's end")
        equal(b.s.finish(), None)
        check(not [w for w in b.wrong if "secret" in w], b.wrong)
        for c in begun:
            c.close()
        b.w.sidecars.clear()


@test("7.2", "E14", limit=120)
def a_change_ends_no_tunnel_that_is_about_to_be_read(lab):
    b = Soak(lab)
    over = time.monotonic() + 5 * lab.slow
    done = []

    def opens():
        while time.monotonic() < over:
            with contextlib.closing(b.handshake("other.test", sock=b.through("other.test"), alpn=("http/1.1",))):
                done.append(1)
    loads = [Load(b.guarded(opens)) for _ in range(4)]
    while time.monotonic() < over:
        b.rotate()
    for load in loads:
        faults = [v for _, v in load.stop() if isinstance(v, Exception)]
        check(not faults, "ended by a change:", faults[:3])
    check(done, "none was opened")
    b.s.stop()
