"""The program under test inside a World: started with an environment, asked through its API, watched, ended.

    s = w.sidecar(MODE="dns+nft", RULES=closed(allow("ok.test")))
    s.patch([deny("ok.test")])            # 200, or the test fails
    s.ask("POST", "/policy", b"...")      # a wire.Response, whatever it says
    s.kill_worker(); s.term(); equal(s.exit(), 0)

Names in capitals are variables, OPENSANDBOX_EGRESS_ in front of them; dicts and lists become JSON, None leaves one out.
Defaults: MODE dns+nft, TOKEN of this module, ADMIN_ADDR 127.0.0.1:18090.
"""
import contextlib
import json
import os
import signal
import subprocess
import time

from gateway import REPORT
from wire import PATIENCE, Client, Ended, Failed, Late, check, equal, request, wait_for

TOKEN = "s3cret-t0ken.of+a/test="
PREFIX = "OPENSANDBOX_EGRESS_"
ADMIN_PORT = 18090
HEADER = "OPENSANDBOX-EGRESS-AUTH"


def allow(target):
    """A rule."""
    return {"action": "allow", "target": target}


def deny(target):
    """A rule."""
    return {"action": "deny", "target": target}


def closed(*rules):
    """A policy that denies what its rules do not allow."""
    return {"defaultAction": "deny", "egress": list(rules)}


def opened(*rules):
    """A policy that allows what its rules do not deny."""
    return {"defaultAction": "allow", "egress": list(rules)}


class Sidecar:
    def __init__(self, world, supervised=False, who="sidecar", healthy=True, flags=(), env=None, supervisor_flags=(), **variables):
        """supervised: by sallyport-supervisor, with short back-offs.  who: of privileges.WHO.  healthy: wait until /healthz
        says 200; False: only started.  env: further variables by their full names."""
        self.world, self.lab = world, world.lab
        self.supervised, self.who, self.wants_health = supervised, who, healthy
        self.flags, self.supervisor_flags = list(flags), list(supervisor_flags)
        values = {"MODE": "dns+nft", "TOKEN": TOKEN, "ADMIN_ADDR": f"127.0.0.1:{ADMIN_PORT}", **variables}
        self.token = values["TOKEN"]
        self.env = {PREFIX + k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items() if v is not None}
        self.env.update({"XDG_STATE_HOME": world.state, **(env or {})})
        n = len(world.sidecars)
        self.out, self.err, self.events_file = (os.path.join(world.dir, f"{what}{n}") for what in ("stdout", "stderr", "events"))
        self.process, self.expect_exit, self.port = None, 0, 18080
        self.expect_crashes = False  # the test itself sends the worker signals that kill

    # -- process
    def begin(self):
        """Starts it, again too."""
        argv = [self.lab.program, *self.flags]
        if self.supervised:
            argv = [self.lab.beside("sallyport-supervisor"), "--event-log", self.events_file, "--backoff-min", "50ms",
                    "--backoff-max", "500ms", "--on-burst-exit=false", "--name", "egress", *self.supervisor_flags, "--", *argv]
        env = {"ASAN_OPTIONS": "exitcode=99:detect_leaks=1:detect_odr_violation=0", "UBSAN_OPTIONS": "print_stacktrace=1",
               "TSAN_OPTIONS": f"exitcode=66:second_deadlock_stack=1:suppressions={self.suppressions()}", "LSAN_OPTIONS": "exitcode=98", **self.env}
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.process = self.world.popen(argv, who=self.who, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        if self.wants_health:
            self.wait_healthy()
        return self

    def suppressions(self):
        """tests/tsan.supp, where everybody can read it."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tsan.supp"), encoding="utf-8") as f:
            return self.world.write("tsan.supp", f.read())

    def wait_healthy(self, within=30.0):
        def answer():
            check(self.alive(), f"exit {self.process.returncode} at start:", self.stderr()[-1500:], self.stdout()[-1500:])
            return self.health()[0] == 200
        wait_for(answer, f"/healthz 200, last {self.health()}", within, 0.02)

    def wait_unhealthy(self, within=30.0):
        """Until /healthz is answered with something else than 200; its text."""
        wait_for(lambda: self.health()[0] not in (0, 200), "/healthz other than 200", within, 0.02)
        return self.health()[1]

    def alive(self):
        return self.process.poll() is None

    def events(self):
        """The supervisor's, as objects."""
        with contextlib.suppress(FileNotFoundError), open(self.events_file, encoding="utf-8") as f:
            return [json.loads(line) for line in f.read().splitlines() if line]
        return []

    @property
    def pid(self):
        """Of what was started: the supervisor, or the worker itself."""
        return self.process.pid

    @property
    def worker(self):
        """The worker's pid; under a supervisor that of the last start."""
        if not self.supervised:
            return self.pid
        starts = [e for e in self.events() if e["event"] == "start"]
        check(starts, "the supervisor has started no worker")
        return starts[-1]["pid"]

    def starts(self):
        return len([e for e in self.events() if e["event"] == "start"])

    def kill_worker(self, wait=True):
        """SIGKILL; under a supervisor, waits for the next one to be healthy."""
        before = self.starts()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, signal.SIGKILL)
        if wait and self.supervised:
            wait_for(lambda: self.starts() > before, "the next worker")
            self.wait_healthy()

    def term(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def exit(self, within=15.0):
        """Waits for the end; the exit status."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired as e:
            raise Failed(f"still running after {within} s") from e

    def stop(self, status=0):
        """SIGTERM, and the exit status that must come."""
        self.term()
        equal(self.exit(), status, "exit status")

    # -- API
    def client(self, remote=False):
        return self.world.client(self.port, remote=remote)

    def ask(self, method, target, body=None, *fields, token=True, host="127.0.0.1:18080", remote=False):
        """One request on a connection of its own, as a loopback peer or from another machine.  body: bytes, text, or
        what becomes JSON.  token: True: ours, None: no header, or a text."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        shown = self.token if token is True else token
        c = self.client(remote)
        try:
            c.patience = 40
            c.send(request(method, target, *([f"{HEADER}: {shown}"] if shown else []), "Connection: close", *fields, body=body, host=host))
            return c.response(method)
        finally:
            c.close()

    def good(self, method, body=None, target="/policy"):
        r = self.ask(method, target, body)
        check(r.status == 200, method, target, "->", r.status, r.body[:300])
        return r.json

    def policy(self):
        """The user's policy as the API shows it."""
        return self.good("GET")["policy"]

    def put(self, policy):
        return self.good("PUT", policy)

    def patch(self, rules):
        return self.good("PATCH", rules)

    def delete(self, targets):
        return self.good("DELETE", targets)

    def check(self, **what):
        """POST /policy/check."""
        return self.good("POST", what, "/policy/check")

    def decisions(self, since=0):
        """Entries of /policy/log."""
        return self.good("GET", None, f"/policy/log?since={since}")["entries"]

    def health(self):
        """(status, text) of /healthz; status 0 if nothing answers."""
        try:
            c = self.client()
            try:
                r = c.ask("GET", "/healthz", "Connection: close", host="127.0.0.1:18080")
                return r.status, r.text.strip()
            finally:
                c.close()
        except (OSError, Ended, Late) as e:
            return 0, str(e)

    def admin(self, path):
        c = self.world.client(ADMIN_PORT)
        try:
            return c.ask("GET", path, "Connection: close", host="admin")
        finally:
            c.close()

    def metric(self, name, **labels):
        """Sum of the rows of that name which carry these labels; None if there is no such row."""
        rows = {}
        for line in self.admin("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                key, _, number = line.rpartition(" ")
                rows[key] = float(number)
        found = [v for k, v in rows.items() if k.partition("{")[0] == name and all(f'{n}="{v}"' in k for n, v in labels.items())]
        return sum(found) if found else None

    # -- what it says
    def stdout(self):
        with open(self.out, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stderr(self):
        with open(self.err, encoding="utf-8", errors="replace") as f:
            return f.read()

    def log(self):
        """All log lines so far as objects."""
        lines = []
        for line in self.stdout().splitlines():
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    lines.append(json.loads(line))
        return lines

    def logged(self, match):
        """Log lines for which match(line) holds; a text is looked for in msg."""
        wanted = match if callable(match) else lambda line: match in line.get("msg", "")
        return [line for line in self.log() if wanted(line)]

    def told(self, match, n=1, within=PATIENCE):
        """Waits for so many of them: a thread of its own writes the log, and what is said may be heard before it is read."""
        return wait_for(lambda: self.logged(match)[n - 1:] and self.logged(match), f"{n} log lines: {match}", within)

    def ruleset(self):
        """The rules in the namespace, as nft lists them."""
        return self.world.nft("list", "ruleset")

    # -- frozen and thawed
    def freeze(self, seconds):
        os.kill(self.worker, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.worker, signal.SIGCONT)

    # -- the end
    def finish(self):
        """Ends it and says what was wrong with it, or None."""
        faults = []
        if self.process is None:
            return None
        if self.alive():
            with contextlib.suppress(OSError):
                os.kill(self.worker, signal.SIGCONT)
            self.term()
            try:
                self.process.wait(25)
            except subprocess.TimeoutExpired:
                faults.append("does not end after SIGTERM")
                with contextlib.suppress(OSError):
                    os.kill(self.worker, signal.SIGKILL)
                self.process.kill()
                self.process.wait()
        if self.expect_exit is not None and self.process.returncode != self.expect_exit and not faults:
            faults.append(f"exit {self.process.returncode}, wanted {self.expect_exit}: {self.stderr()[-600:]}")
        for text in (self.stderr(), self.stdout()):
            m = REPORT.search(text)
            if m:
                faults.append("report: " + text[max(0, m.start() - 200):m.start() + 3500])
        crashes = [e for e in self.events() if e["event"] == "exit" and e.get("signal") not in (None, "killed", "terminated")]
        faults += [f"a worker ended: {e}" for e in crashes if not self.expect_crashes]
        return "; ".join(faults) or None


__all__ = ["ADMIN_PORT", "HEADER", "PATIENCE", "TOKEN", "Client", "Sidecar", "allow", "closed", "deny", "opened"]
