"""A sandbox and the internet around it: two network namespaces of the test's own, joined by a pair of devices.

    inside   the sandbox: the sidecar and its workload.  10.99.0.2 and fd99::2 on device e0
    outside  the rest of the world, where the test itself stands: 10.99.0.1 and fd99::1 on device o0.  The addresses of OUTSIDE
             are all at home there, so nothing that leaves gets lost.  Nameservers, origins and the recorder live there.

Both go with the process that made them; there is nothing to remove.  The test's process has mounts of its own as well: its
/etc/resolv.conf, /etc/hosts, /var/egress/rules are files of the test, and the workload shares them with the sidecar as
the containers of a pod do.

    @test("POL-03")
    def raw_tcp_to_an_address_never_learned_is_refused(lab):
        w = lab.world()                                   # or lab.world(v6=False), (v4=False), (v6_off=True)
        w.nameserver({"ok.test": {"A": ["198.51.100.10"], "AAAA": ["2001:db8::10"]}})
        out = w.everywhere(tcp=[22, 443], udp=[123])
        s = w.sidecar(MODE="dns+nft", RULES=closed(allow("ok.test")))      # started and healthy: see sidecar.py
        w.recorder.forget()
        refused(lambda: w.connect("198.51.100.66", 22))
        w.recorder.nothing_left(dst="198.51.100.66")
        equal(w.resolve("ok.test"), ["198.51.100.10"])
        w.connect("198.51.100.10", 443).close()
        equal(w.workload(attempts.syn_by_raw_socket, "198.51.100.66", who="raw"), None)

connect(), ask(), resolve() and inside() work in the test's own process with sockets that are made inside and belong to
nobody; workload() and run() are processes of their own with exactly the capabilities that privileges.WHO gives them.
"""
import contextlib
import ctypes
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import traceback

import dnswire
import privileges
from nameserver import Nameserver, Unbound
from origins import Authority, Everywhere, Nginx, Origin, family
from privileges import LIBC, NOBODY
from recorder import Recorder
from wire import Client, Failed, Late, Skipped, check

INSIDE = {4: "10.99.0.2", 6: "fd99::2"}
OUTSIDE_END = {4: "10.99.0.1", 6: "fd99::1"}
NS4, NS6 = "198.51.100.53", "2001:db8::53"
OUTSIDE = {
    4: ("198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24", "198.18.0.0/15", "10.0.0.0/10", "10.96.0.0/15", "10.100.0.0/14",
        "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "8.8.8.8/32",
        "1.1.1.1/32"),
    6: ("2001:db8::/32", "fd00::/16", "fd20:ce::/32", "64:ff9b::/96", "2606:4700::/32"),
}
REFUSALS = (ConnectionRefusedError, PermissionError, TimeoutError)


def refused(run, what="the connection"):
    """run() must be refused, in whichever way; the error."""
    try:
        got = run()
    except OSError as e:
        return e
    with contextlib.suppress(AttributeError, OSError):
        got.close()
    raise Failed(f"{what} should have been refused")


class World:
    def __init__(self, lab, v4=True, v6=True, v6_off=False):
        """v4, v6: which addresses and routes there are.  v6_off: the inside has IPv6 switched off by sysctl, as Docker does."""
        if os.geteuid() != 0:
            raise Skipped("needs root for network namespaces")
        self.lab, self.dir = lab, tempfile.mkdtemp(prefix="world-", dir=lab.dir)
        os.chmod(self.dir, 0o755)
        self.families = tuple(n for n, on in ((4, v4), (6, v6 and not v6_off)) if on)
        self.things, self.sidecars, self.jobs = [], [], []
        self.mounts()
        try:
            self.inside_fd = self.new_namespace()
            self.outside_fd = self.new_namespace()
        except OSError as e:
            raise Skipped(f"no network namespaces: {e}") from None
        self.join(v6_off)
        self.recorder = Recorder("o0")
        self.things.append(self.recorder)
        self.ca_made = None

    # -- making it
    @staticmethod
    def new_namespace():
        privileges.must(LIBC.unshare(privileges.CLONE_NEWNET), "unshare")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def mounts(self):
        """Files of the test's own in place of the machine's; run.py has given this process its own mounts."""
        self.rules_dir = os.path.join(self.dir, "egress", "rules")
        os.makedirs(self.rules_dir)
        owned = {"egress": "/var/egress", "shared": "/opt/opensandbox", "authority": "/var/lib/mitmproxy",
                 "trusted": "/usr/local/share/ca-certificates", "certs": "/etc/ssl/certs"}
        for name, path in owned.items():
            os.makedirs(path, exist_ok=True)
            os.makedirs(os.path.join(self.dir, name), exist_ok=True)
        self.write("certs/ca-certificates.crt", "")
        self.state = os.path.join(self.dir, "state")  # of a sidecar without privileges
        os.makedirs(self.state)
        os.chmod(self.state, 0o777)
        self.servers = [a for n, a in ((4, NS4), (6, NS6)) if n in self.families]
        for name, text in (("resolv.conf", "".join(f"nameserver {s}\n" for s in self.servers) + "options timeout:1 attempts:1\n"),
                           ("hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n")):
            self.write(name, text)
            mount(os.path.join(self.dir, name), "/etc/" + name)
        for name, path in owned.items():
            mount(os.path.join(self.dir, name), path)

    def join(self, v6_off):
        """By ip, one process for each side."""
        lines = ["link set lo up", "link set o0 up"]
        for n in self.families:
            lines.append(f"addr add {OUTSIDE_END[n]}/{24 if n == 4 else 64} dev o0{' nodad' if n == 6 else ''}")
            lines += [f"route add local {net} dev lo" for net in OUTSIDE[n]]
        inner = ["link set lo up", f"link add e0 type veth peer name o0 netns /proc/{os.getpid()}/fd/{self.outside_fd}", "link set e0 up"]
        for n in self.families:
            inner.append(f"addr add {INSIDE[n]}/{24 if n == 4 else 64} dev e0{' nodad' if n == 6 else ''}")
            inner.append(f"route add default via {OUTSIDE_END[n]}")
        with self.inside(0):
            if v6_off:
                for which in ("all", "default"):
                    sysctl(f"net/ipv6/conf/{which}/disable_ipv6", 1)
            sysctl("net/ipv4/icmp_ratelimit", 0)
            sysctl("net/ipv4/ping_group_range", "0 2147483647")
            batch(inner)
        sysctl("net/ipv4/icmp_ratelimit", 0)
        sysctl("net/ipv6/ip_nonlocal_bind", 1)
        batch(lines)

    def write(self, name, text):
        """A file of this world; replaced as a whole if it is mounted nowhere.  Its path."""
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def rule_file(self, name, text):
        """/var/egress/rules/NAME.always, replaced by rename; text None: removed."""
        path = os.path.join(self.rules_dir, name + ".always")
        if text is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.rename(path + ".new", path)

    # -- the outside
    def nameserver(self, zone=None, address=None, port=53):
        """A scripted nameserver (see nameserver.Nameserver); without an address at those of /etc/resolv.conf."""
        return self.keep(Nameserver([address] if address else self.servers, zone, port))

    def unbound(self, lines):
        folder = tempfile.mkdtemp(prefix="unbound-", dir=self.dir)
        return self.keep(Unbound(folder, self.servers, lines))

    def everywhere(self, tcp=(), udp=()):
        """Servers on these ports at every outside address."""
        return self.keep(Everywhere(tcp, udp, self.families))

    def origin(self, address="198.51.100.10", port=80, script=None, tls=None):
        """A scripted server at one outside address."""
        return self.keep(Origin(address, port, script, tls))

    def nginx(self, servers):
        """Server blocks of nginx's configuration."""
        return self.keep(Nginx(tempfile.mkdtemp(prefix="nginx-", dir=self.dir), servers))

    @property
    def ca(self):
        """The authority that TLS origins of this world are certified by."""
        if not self.ca_made:
            self.ca_made = Authority(self.dir)
        return self.ca_made

    def keep(self, thing):
        self.things.append(thing)
        return thing

    # -- the sidecar
    def sidecar(self, **how):
        """Starts it; see sidecar.Sidecar."""
        from sidecar import Sidecar
        s = Sidecar(self, **how)
        self.sidecars.append(s)
        s.begin()
        return s

    # -- inside, by this process
    @contextlib.contextmanager
    def inside(self, uid=NOBODY):
        """The calling thread stands inside, and sockets it makes belong to uid."""
        privileges.enter(self.inside_fd)
        privileges.own_files(uid)
        try:
            yield
        finally:
            privileges.own_files(0)
            privileges.enter(self.outside_fd)

    def socket(self, number, kind, uid=NOBODY):
        with self.inside(uid):
            return self.hold(socket.socket(socket.AF_INET6 if number == 6 else socket.AF_INET, kind))

    def hold(self, sock):
        self.things.append(sock)
        return sock

    def connect(self, ip, port, within=3.0, uid=NOBODY, source=None):
        """A TCP connection of the workload; OSError as the workload would see it (TimeoutError: nothing came back)."""
        s = self.socket(6 if ":" in ip else 4, socket.SOCK_STREAM, uid)
        try:
            s.settimeout(within)
            if source:
                s.bind(source)
            s.connect((ip, port))
        except OSError:
            s.close()
            raise
        return s

    def udp(self, ip, port, data=b"ping", within=1.0, uid=NOBODY):
        """A datagram of the workload and its answer; OSError as it would see it."""
        s = self.socket(6 if ":" in ip else 4, socket.SOCK_DGRAM, uid)
        try:
            s.settimeout(within)
            s.connect((ip, port))
            s.send(data)
            return s.recv(65535)
        finally:
            s.close()

    def gets_out(self, ip, port=443, uid=NOBODY, within=3.0):
        """Can the workload connect there and get a byte back?  (An echo: see everywhere().)"""
        try:
            s = self.connect(ip, port, within, uid)
        except OSError:
            return False
        try:
            s.sendall(b"ping")
            return s.recv(4) == b"ping"
        except OSError:
            return False
        finally:
            s.close()

    def ask(self, name, kind="A", server=None, port=53, tcp=False, uid=NOBODY, within=5.0, **how):
        """One question of the workload: a dnswire.Message; TimeoutError if nothing comes.  how: see dnswire.query()."""
        how.setdefault("ident", int.from_bytes(os.urandom(2), "big"))
        server = server or self.servers[0]
        question = dnswire.query(name, kind, **how)
        number = 6 if ":" in server else 4
        s = self.socket(number, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM, uid)
        try:
            s.settimeout(within)
            s.connect((server, port))
            s.sendall(struct.pack("!H", len(question)) + question if tcp else question)
            m = dnswire.Message(read_message(s) if tcp else s.recv(65535))
        finally:
            s.close()
        check(m.id == how["ident"], "an answer with another id")
        return m

    def resolve(self, name, kind="A", **how):
        """The addresses (of the answer section) that the workload gets for a name."""
        return self.ask(name, kind, **how).addresses

    def client(self, port=18080, host="127.0.0.1", uid=NOBODY, remote=False):
        """An HTTP client inside (a wire.Client); remote: on another machine, asking host 10.99.0.2."""
        if remote:
            return self.keep(Client(port, INSIDE[4] if 4 in self.families else INSIDE[6]))
        with self.inside(uid):
            return self.keep(Client(port, host))

    # -- inside, as processes of their own
    def workload(self, run, *args, who="nobody", within=20.0, place="inside"):
        """run(*args) in a process of the sandbox (a fork of this one) as `who` of privileges.WHO, or as a bare uid; its value, or
        the OSError, Failed or Skipped it raised."""
        return Job(self, run, args, who, place).result(within)

    def start(self, run, *args, who="nobody", place="inside"):
        """The same in the background: a Job with result(within) and stop()."""
        job = Job(self, run, args, who, place)
        self.jobs.append(job)
        return job

    def run(self, *argv, who="nobody", within=30.0, place="inside", feed=None, env=None):
        """A command of the sandbox: (exit status, stdout, stderr) as texts; 124 if it was killed after `within`."""
        p = self.popen(argv, who, place, stdin=subprocess.PIPE if feed is not None else subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=env)
        try:
            out, err = p.communicate(feed, within)
            return p.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = p.communicate()
            return 124, out, err

    def popen(self, argv, who="nobody", place="inside", env=None, **how):
        """A process in a namespace as somebody; a group of its own."""
        base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
        namespace = self.inside_fd if place == "inside" else self.outside_fd

        def child():
            privileges.enter(namespace)
            privileges.become(who)
            privileges.die_with_parent()
        try:
            return subprocess.Popen(argv, preexec_fn=child, env={**base, **(env or {})}, start_new_session=True, **how)
        except FileNotFoundError:
            raise Skipped(f"the program {argv[0]} is not installed") from None

    def nft(self, *words, who="admin", good=True):
        """nft with these words inside, as somebody with NET_ADMIN; what it says."""
        code, out, err = self.run("nft", *words, who=who)
        check(code == 0 or not good, "nft", *words, ":", err)
        return out

    # -- the end
    def clear(self):
        """Ends everything; the faults found on the way."""
        faults = []
        for job in self.jobs:
            job.stop()
        for s in self.sidecars:
            fault = s.finish()
            if fault:
                faults.append(f"sidecar: {fault}")
        for thing in self.things:
            faults += [f"{type(thing).__name__}: {f}" for f in getattr(thing, "faults", [])]
            with contextlib.suppress(OSError):
                thing.close()
        return faults


class Job:
    """A function in a process of its own."""

    def __init__(self, world, run, args, who, place):
        self.out, hand = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.out)
            self.child(world, run, args, who, place, hand)
        os.close(hand)
        self.data, self.ended = b"", False

    @staticmethod
    def child(world, run, args, who, place, hand):
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                privileges.enter(world.inside_fd if place == "inside" else world.outside_fd)
                privileges.become(who)
                privileges.die_with_parent()
                said = ("value", run(*args))
            except (OSError, Failed, Skipped) as e:
                said = ("error", e)
            except Late as e:
                said = ("error", TimeoutError(str(e)))
            except BaseException:
                said = ("fault", traceback.format_exc())
            data = pickle.dumps(said)
            while data:
                data = data[os.write(hand, data):]
            code = 0
        finally:
            os._exit(code)

    def result(self, within=20.0):
        end = time.monotonic() + within
        while not self.ended:
            ready, _, _ = select.select([self.out], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.stop()
                raise Failed(f"the workload did not end within {within} s")
            piece = os.read(self.out, 65536)
            self.data += piece
            self.ended = not piece
        self.stop()
        check(self.data, "the workload's process died")
        kind, said = pickle.loads(self.data)
        if kind == "value":
            return said
        if kind == "error":
            raise said
        raise Failed("in the workload: " + said)

    def running(self):
        ready, _, _ = select.select([self.out], [], [], 0)
        return not ready

    def stop(self):
        """Kills it, if it still runs."""
        if not self.pid:
            return
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)
        self.pid = 0


class Load(threading.Thread):
    """Calls run() over and over in a thread until stopped; each result is kept in seen with its time, an OSError as a value."""

    def __init__(self, run, pause=0.0):
        super().__init__(daemon=True)
        self.call, self.pause, self.seen, self.ending, self.fault = run, pause, [], False, None
        self.start()

    def run(self):
        while not self.ending:
            try:
                value = self.call()
            except OSError as e:
                value = e
            except Exception:
                self.fault = traceback.format_exc()
                return
            self.seen.append((time.monotonic(), value))
            time.sleep(self.pause)

    def stop(self):
        """Ends it; what it saw."""
        self.ending = True
        self.join(20)
        check(not self.fault, "in a load:", self.fault)
        return self.seen


def read_message(s):
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack_from("!H", data)[0]:
        piece = s.recv(65535)
        if not piece:
            raise ConnectionResetError("the nameserver ended the connection")
        data += piece
    return data[2:2 + struct.unpack_from("!H", data)[0]]


def mount(source, target, kind=None, flags=4096, data=None):
    """A bind mount, or one of a kind."""
    raw = [s.encode() if s else None for s in (source, target, kind, data)]
    privileges.must(LIBC.mount(raw[0], raw[1], raw[2], ctypes.c_ulong(flags), raw[3]), f"mount {target}")


def sysctl(name, value):
    with open("/proc/sys/" + name, "w", encoding="ascii") as f:
        f.write(str(value))


def batch(lines):
    try:
        done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    except FileNotFoundError:
        raise Skipped("the program ip is not installed") from None
    if done.returncode:
        raise Skipped(f"ip: {done.stderr.strip()}")


__all__ = ["INSIDE", "NS4", "NS6", "OUTSIDE", "OUTSIDE_END", "Job", "Load", "World", "family", "mount", "refused", "sysctl"]
