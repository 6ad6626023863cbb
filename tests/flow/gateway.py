"""The program under test as a process: its flags, its routes file, its log, its admin pages, its descriptors and memory, and
whether it ended as it should."""
import contextlib
import ctypes
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time

from backend import Backend
from wire import PATIENCE, Client, Ended, Failed, Late, check, wait_for

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion .* failed|LeakSanitizer: detected")


def free_port():
    """A port below the ephemeral range on which nobody listens now."""
    for _ in range(200):
        port = random.randint(10000, 32000)
        with contextlib.ExitStack() as stack:
            try:
                for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                    s = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                    if family == socket.AF_INET6:
                        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    s.bind((host, port))
            except OSError:
                continue
            return port
    raise Failed("no free port")


def entry(to):
    """An entry of the routes file: a Backend, or the members themselves.  Backend: port 3000 leads to it."""
    if isinstance(to, Backend):
        host = f"[{to.host}]" if ":" in to.host else to.host
        return {"address": host, "ports": {"3000": {"address": to.address}}}
    return to


def secure(to, token="s3cret-t0ken"):
    """The same, with a token that requests must show."""
    return {**entry(to), "secureAccessToken": token}


SUPPRESSIONS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tsan.supp")

class Gateway:
    """The program as a process: started with a routes file of its own, its log kept."""

    def __init__(self, lab, flags, routes, env, start, nofile):
        self.lab = lab
        self.dir = tempfile.mkdtemp(prefix="flow-", dir=lab.dir)
        self.routes_file = os.path.join(self.dir, "routes.json")
        self.routes = {k: entry(v) for k, v in (routes or {}).items()}
        self.write_routes()
        self.flags, self.env, self.nofile = list(flags), env, nofile
        self.out = os.path.join(self.dir, "stdout")
        self.err = os.path.join(self.dir, "stderr")
        self.process = None
        self.expect_exit = 0
        self.base_fds = None
        self.settles = True
        if start:
            self.start()

    # -- process
    def start(self):
        """On ports that the kernel chooses and the log names; where the log is silent, on free ones."""
        quiet = any(f.startswith("--log-level") and f.rpartition("=")[2] not in ("debug", "info") for f in self.flags)
        for _ in range(5):
            self.port, self.admin_port = (free_port(), free_port()) if quiet else (0, 0)
            self.spawn([f"--port={self.port}", f"--admin-addr=127.0.0.1:{self.admin_port}"])
            if self.until_ready(quiet):
                self.base_fds = self.fds()
                return
        raise Failed(f"the gateway does not start: {self.stderr()[-1500:]} {self.stdout()[-1500:]}")

    def spawn(self, extra=()):
        argv = [self.lab.program, *extra, *self.source()]
        if not any(f.startswith("--workers") for f in self.flags):
            argv.append(f"--workers={self.lab.workers}")
        argv += self.flags
        env = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "exitcode=99:detect_leaks=1",
               "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "exitcode=66:second_deadlock_stack=1:atexit_sleep_ms=50:suppressions=" + SUPPRESSIONS,
               "LSAN_OPTIONS": "exitcode=98", **(self.env or {})}
        nofile = self.nofile

        def child():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, preexec_fn=child)

    def source(self):
        """The flag with the routes file, unless the flags name another provider."""
        other = any(f.startswith("--provider-type") for f in self.flags)
        return [] if other else [f"--routes={self.routes_file}"]

    def says_ready(self):
        try:
            return self.admin("/readyz").status == 200 and self.alive()
        except (OSError, Ended, Late):
            return False

    def says_serving(self):
        line = next(iter(self.logged("serving")), None)
        if line:
            self.port, self.admin_port = (int(line[k].rpartition(":")[2]) for k in ("listen", "admin"))
        return bool(line)

    def until_ready(self, quiet):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if self.process.poll() is not None:
                if "in use" in self.stderr() + self.stdout():
                    return False
                raise Failed(f"exit {self.process.returncode} at start: {self.stderr()[-1500:]}{self.stdout()[-800:]}")
            if self.says_ready() if quiet else self.says_serving():
                return True
            time.sleep(0.01)
        return False

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def exit(self, within=PATIENCE):
        """Waits for the end; the exit status."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired as e:
            raise Failed(f"still running after {within} s") from e

    # -- routes
    def write_routes(self, text=None):
        """Replaces the file as a whole, by rename."""
        if text is None:
            text = json.dumps({"sandboxes": self.routes})
        with open(self.routes_file + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.rename(self.routes_file + ".new", self.routes_file)

    def reload(self, routes=None, text=None):
        """New routes and SIGHUP; returns when the log says that they were read or refused."""
        if routes is not None:
            self.routes = {k: entry(v) for k, v in routes.items()}
        before = len(self.logged(REREAD))
        self.write_routes(text)
        self.signal(signal.SIGHUP)
        wait_for(lambda: len(self.logged(REREAD)) > before, "a log line about the reloaded routes")

    # -- what it shows
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
        """Log lines for which match(line) holds; a text is compared with msg."""
        wanted = match if callable(match) else lambda line: line.get("msg") == match
        return [line for line in self.log() if wanted(line)]

    def told(self, match, n=1, within=PATIENCE):
        """Waits for so many of them: a thread of its own writes the log, and what is said may be heard before it is read."""
        return wait_for(lambda: self.logged(match)[n - 1:] and self.logged(match), f"{n} log lines: {match}", within)

    def access(self, n=1, within=PATIENCE, **members):
        """Waits for n access lines with these members; returns all that match."""
        def found():
            lines = [line for line in self.logged("ingress requested") if all(line.get(k) == v for k, v in members.items())]
            return lines if len(lines) >= n else None
        try:
            return wait_for(found, f"{n} access lines with {members}", within)
        except Failed as e:
            tail = [line for line in self.logged("ingress requested")][-3:]
            raise Failed(f"{e}; the last ones: {tail}") from None

    def admin(self, path):
        """GET on the admin listener."""
        c = Client(self.admin_port)
        try:
            return c.ask("GET", path, "Connection: close", host="admin")
        finally:
            c.close()

    def metrics(self):
        """name{labels} → number, as text has it; a name of which no row has been counted yet → 0."""
        out = {}
        for line in self.admin("/metrics").text.splitlines():
            if line.startswith("# TYPE "):
                out[line.split()[2]] = 0.0
            elif line and not line.startswith("#"):
                name, _, number = line.rpartition(" ")
                out[name] = float(number)
        return out

    def metric(self, name, **labels):
        """Sum of the rows of that name which carry these labels; a name that does not exist is a fault."""
        rows = {k: v for k, v in self.metrics().items() if k.partition("{")[0] == name}
        check(rows, "there is no metric", name)
        return sum(v for k, v in rows.items() if all(f'{label}="{wanted}"' in k for label, wanted in labels.items()))

    def fds(self):
        """Open descriptors, but for the spare one on /dev/null that each loop of libuv opens with its first stream."""
        return sum(n for name, n in self.open_files().items() if name != "/dev/null")

    def rss(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def limit_fds(self, n):
        """The soft limit of the running process; returns the old one."""
        old = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (n, old[1]))
        return old[0]

    def client(self, **how):
        c = Client(self.port, **how)
        self.lab.peers.append(c)
        return c

    # -- the end
    def settle(self, within=PATIENCE):
        """Waits until no client or backend holds a descriptor any more."""
        wait_for(lambda: not self.alive() or self.fds() <= self.base_fds,
                 f"descriptors back at {self.base_fds}, now {self.fds() if self.alive() else 0}", within)

    def finish(self):
        """Ends the process and says what was wrong with it, or None."""
        if self.process is None:
            return None
        faults = []
        if self.alive():
            if self.settles and self.base_fds is not None:
                try:
                    self.settle()
                except Failed as e:
                    faults.append(f"{e}, now {self.open_files()}")
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                faults.append("does not end after SIGTERM")
                self.process.kill()
                self.process.wait()
        if self.process.returncode != self.expect_exit and not faults:
            faults.append(f"exit {self.process.returncode}, wanted {self.expect_exit}")
        for text in (self.stderr(), self.stdout()):
            m = REPORT.search(text)
            if m:
                faults.append("report: " + text[max(0, m.start() - 200):m.start() + 3500])
        return "; ".join(faults) or None

    def open_files(self):
        names = []
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                names.append(os.readlink(f"/proc/{self.pid}/fd/{fd}").partition(":")[0])
        return {n: names.count(n) for n in sorted(set(names))}


def REREAD(line):
    return line.get("msg", "").startswith(("routes read", "--routes: not usable"))
