#!/usr/bin/python3
"""DNS proxy probe: raw messages over UDP and TCP, with a scripted upstream that the probe serves.

    dns_probe.py --target HOST:PORT --upstream HOST:PORT [--zone probe.test] [--only TEXT] [--corpus DIR] [--json FILE]

The proxy must forward names under --zone to --upstream (UDP and TCP). --corpus: also send N raw packets of a fuzz
corpus; the proxy must stay alive. Needs python3-dnspython. Last line: 'N passed, N failed'.
"""
import argparse, hashlib, json, os, random, re, select, socket, struct, sys, threading, time
import dns.edns, dns.flags, dns.message, dns.name, dns.opcode, dns.rcode, dns.rdatatype, dns.rrset

Z, T, UP, CASES = "probe.test.", None, None, []


class Fail(Exception):
    pass


class Upstream:
    """answers by the first label of the name; keeps what it got"""

    def __init__(self, addr):
        self.seen, self.ports, self.ids = [], [], []
        self.u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.u.bind(addr)
        self.t = socket.socket()
        self.t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.t.bind(addr)
        self.t.listen(64)
        threading.Thread(target=self.udp, daemon=True).start()
        threading.Thread(target=self.tcp, daemon=True).start()

    def udp(self):
        while True:
            d, a = self.u.recvfrom(65535)
            self.ports.append(a[1])
            self.ids.append(d[:2])
            try:
                rs = self.answer(d, False)
            except Exception as e:
                self.seen.append(("bad", repr(e), d))
                continue
            for delay, r in rs:
                if delay:
                    threading.Timer(delay, lambda r=r, a=a: self.u.sendto(r, a)).start()
                else:
                    self.u.sendto(r, a)

    def tcp(self):
        while True:
            s, _ = self.t.accept()
            threading.Thread(target=self.tcp1, args=(s,), daemon=True).start()

    def tcp1(self, s):
        try:
            s.settimeout(10)
            while True:
                n = struct.unpack(">H", rd(s, 2))[0]
                for delay, r in self.answer(rd(s, n), True):
                    time.sleep(delay)
                    s.sendall(struct.pack(">H", len(r)) + r)
        except (OSError, struct.error, EOFError, dns.exception.DNSException):
            s.close()

    def answer(self, d, tcp):
        q = dns.message.from_wire(d)
        n, ty = q.question[0].name, q.question[0].rdtype
        lab = n.labels[0].decode("latin1").lower().split("-")[0]
        self.seen.append((n.to_text(), dns.rdatatype.to_text(ty), "tcp" if tcp else "udp"))
        r = dns.message.make_response(q, recursion_available=True)
        add = lambda t, *v: r.answer.append(dns.rrset.from_text(n, 60, "IN", t, *v))
        low = 0
        if lab == "nx":
            r.set_rcode(3); r.authority.append(dns.rrset.from_text(Z, 60, "IN", "SOA", "ns. h. 1 2 3 4 5"))
        elif lab == "servfail":
            r.set_rcode(2)
        elif lab == "refused":
            r.set_rcode(5)
        elif lab == "nodata":
            r.authority.append(dns.rrset.from_text(Z, 60, "IN", "SOA", "ns. h. 1 2 3 4 5"))
        elif lab == "drop":
            return []
        elif lab == "slow":
            low = 0.8; add("A", "192.0.2.9")
        elif lab == "big":
            add("TXT", *['"%s"' % (chr(97 + i) * 200) for i in range(15)])
        elif lab == "huge":
            add("TXT", *['"%s"' % (("%03d" % i) * 80) for i in range(220)])
        elif lab == "cname":
            add("CNAME", "a-target." + Z); r.answer.append(dns.rrset.from_text("a-target." + Z, 60, "IN", "A", "192.0.2.1"))
        elif lab == "wrongid":
            add("A", "192.0.2.66"); w = bytearray(r.to_wire(max_size=65535)); w[0] ^= 0x55
            return [(0, bytes(w))]
        elif lab == "wrongname":
            r2 = dns.message.make_response(dns.message.make_query("evil." + Z, ty)); r2.id = q.id
            r2.answer.append(dns.rrset.from_text("evil." + Z, 60, "IN", "A", "192.0.2.66"))
            return [(0, r2.to_wire())]
        elif lab == "garbage":
            return [(0, d[:2] + b"\x81\x80" + os.urandom(40))]
        elif lab == "tctrunc" and not tcp:
            r.flags |= dns.flags.TC
        elif lab == "dup":
            add("A", "192.0.2.8"); w = r.to_wire(max_size=65535)
            return [(0, w), (0, w), (0, w)]
        elif ty == dns.rdatatype.AAAA:
            add("AAAA", "2001:db8::1")
        elif ty == dns.rdatatype.MX:
            add("MX", "10 mail." + Z)
        elif ty == dns.rdatatype.SRV:
            add("SRV", "1 2 443 srv." + Z)
        elif ty == dns.rdatatype.CAA:
            add("CAA", '0 issue "ca.test"')
        elif ty == 65:
            add("HTTPS", '1 . alpn="h2" port="8443"')
        elif ty == 65280:
            add("TYPE65280", "\\# 4 01020304")
        elif ty == dns.rdatatype.TXT:
            add("TXT", '"hello world"')
        elif ty == dns.rdatatype.A:
            add("A", "192.0.2.%d" % (1 if lab == "a" else int(hashlib.sha1(n.to_text().lower().encode()).hexdigest()[:2], 16) % 250 + 1))
        if tcp:
            return [(low, r.to_wire(max_size=65535))]
        size = max(512, q.payload) if q.edns >= 0 else 512
        try:
            return [(low, r.to_wire(max_size=size))]
        except dns.exception.TooBig:
            t = dns.message.make_response(q, recursion_available=True); t.flags |= dns.flags.TC
            return [(low, t.to_wire())]


def rd(s, n):
    b = b""
    while len(b) < n:
        d = s.recv(n - len(b))
        if not d:
            raise EOFError
        b += d
    return b


def udp(wire, wait=3.0):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(wait)
    s.sendto(wire, T)
    try:
        return s.recvfrom(65535)[0]
    except (socket.timeout, ConnectionError):
        return None
    finally:
        s.close()


def tcp(wire, wait=4.0, raw=None):
    s = socket.create_connection(T, 3)
    s.settimeout(wait)
    s.sendall(raw if raw is not None else struct.pack(">H", len(wire)) + wire)
    try:
        return rd(s, struct.unpack(">H", rd(s, 2))[0])
    except (OSError, EOFError, struct.error):
        return None
    finally:
        s.close()


def name(first):
    return "%s-%x.%s" % (first, random.getrandbits(40), Z)       # a fresh name each time: caches do not matter


def ask(first, ty="A", over=udp, wait=3.0, n=None, **kw):
    q = dns.message.make_query(n or name(first), ty, **kw)
    w = over(q.to_wire(), wait)
    if w is None:
        raise Fail("no answer")
    r = dns.message.from_wire(w, ignore_trailing=False)
    if r.id != q.id or not r.flags & dns.flags.QR or (r.question and r.question[0].name.to_text() != q.question[0].name.to_text()):
        raise Fail("id, QR or question differ: %s" % r.to_text()[:200])
    return q, r


def want(r, *vals, rcode=0):
    got = sorted(x.to_text() for rr in r.answer for x in rr)
    if r.rcode() != rcode or got != sorted(vals):
        raise Fail("rcode %s answer %s" % (dns.rcode.to_text(r.rcode()), got))


def alive():
    want(ask("a")[1], "192.0.2.1")


def case(ref):
    def d(fn):
        CASES.append((fn.__name__.replace("_", "-"), ref, fn))
        return fn
    return d


for ty, v in (("A", "192.0.2.1"), ("AAAA", "2001:db8::1"), ("MX", "10 mail." + Z), ("TXT", '"hello world"'), ("SRV", "1 2 443 srv." + Z), ("CAA", '0 issue "ca.test"'),
              ("TYPE65", '1 . alpn="h2" port="8443"'), ("TYPE65280", "\\# 4 01020304")):
    CASES.append(("type-" + ty.lower(), "1035", lambda ty=ty, v=v: want(ask("a", ty)[1], v)))
    if ty in ("A", "TXT"):
        CASES.append(("type-%s-tcp" % ty.lower(), "7766", lambda ty=ty, v=v: want(ask("a", ty, tcp)[1], v)))

@case("1034")
def cname_chain(): want(ask("cname")[1], "a-target." + Z, "192.0.2.1")

for lab, rc in (("nx", 3), ("servfail", 2), ("nodata", 0)):
    CASES.append(("rcode-" + lab, "1035", lambda lab=lab, rc=rc: want(ask(lab, wait=8)[1], rcode=rc)))

@case("1035")
def rcode_refused():
    r = ask("refused", wait=8)[1]
    if r.rcode() not in (5, 2): raise Fail(dns.rcode.to_text(r.rcode()))


@case("0x20")
def letter_case_kept():
    n = "A-mIxEd%x.%s" % (random.getrandbits(32), Z)
    if dns.message.from_wire(udp(dns.message.make_query(n, "A").to_wire())).question[0].name.to_text() != n: raise Fail("letter case of the question changed")

@case("1035 4.1.1")
def flags_rd_ra():
    q, r = ask("a")
    if not r.flags & dns.flags.RD or not r.flags & dns.flags.RA: raise Fail(dns.flags.to_text(r.flags))

@case("6891 6.1.1")
def no_opt_without_edns():
    if ask("a", use_edns=False)[1].edns >= 0: raise Fail("OPT in the answer to a query without EDNS")


@case("6891 6.1.3")
def edns_version_1_badvers():
    q = dns.message.make_query(name("a"), "A"); q.use_edns(1); w = udp(q.to_wire())
    if not w or dns.message.from_wire(w).rcode() != 16: raise Fail("rcode %s" % (w and dns.rcode.to_text(dns.message.from_wire(w).rcode())))

@case("6891 6.1.2")
def unknown_edns_option(): want(ask("a", use_edns=0, options=[dns.edns.GenericOption(65001, b"abc")])[1], "192.0.2.1")

@case("1035 2.3.4")
def big_without_edns_truncated():
    q = dns.message.make_query(name("big"), "TXT", use_edns=False); w = udp(q.to_wire()); r = dns.message.from_wire(w)
    if len(w) > 512 or not r.flags & dns.flags.TC: raise Fail("%d octets, flags %s" % (len(w), dns.flags.to_text(r.flags)))


@case("7766")
def big_over_tcp():
    r = ask("big", "TXT", tcp)[1]
    if r.flags & dns.flags.TC or not r.answer or len(r.answer[0]) != 15: raise Fail("TC or cut")

@case("7766")
def huge_53k_over_tcp():
    r = ask("huge", "TXT", tcp, 6)[1]
    if r.flags & dns.flags.TC or not r.answer or len(r.answer[0]) != 220: raise Fail("TC or cut, rcode %d" % r.rcode())

@case("2181 9")
def upstream_tc_then_tcp():
    r = ask("tctrunc")[1]
    if not r.flags & dns.flags.TC and not r.answer: raise Fail("neither TC nor an answer")


@case("-")
def upstream_duplicates():
    n = name("dup"); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(dns.message.make_query(n, "A").to_wire(), T); k = 0
    try:
        while True: s.recvfrom(4096); k += 1
    except socket.timeout: pass
    if k != 1: raise Fail("%d answers" % k)

@case("5452 9.2")
def upstream_source_ports_vary():
    UP.ports.clear(); UP.ids.clear()
    for i in range(40): ask("a")
    if len(set(UP.ports)) < 8: raise Fail("%d source ports in %d queries" % (len(set(UP.ports)), len(UP.ports)))

@case("5452 4.3")
def upstream_ids_not_sequential():
    UP.ids.clear()
    for i in range(40):
        q = dns.message.make_query(name("a"), "A"); q.id = i + 1; udp(q.to_wire())
    v = [struct.unpack(">H", x)[0] for x in UP.ids]
    if sum(v[i + 1] - v[i] == 1 for i in range(len(v) - 1)) > 5: raise Fail("ids %s" % v[:10])

# ---- malformed and odd queries
def hdr(id=0x1234, flags=0x0100, qd=1, an=0, ns=0, ar=0): return struct.pack(">6H", id, flags, qd, an, ns, ar)
def qn(first="a"): return dns.name.from_text(name(first)).to_wire()
Q = lambda: qn() + struct.pack(">2H", 1, 1)

def refused(wire, ok=(1, 4, 5), silent=True, wait=1.5):
    w = udp(wire, wait)
    if w is None:
        if not silent: raise Fail("no answer")
    else:
        rc = w[3] & 15
        if rc not in ok: raise Fail("rcode %d (%s)" % (rc, w.hex()[:60]))
    alive()

def odd(tag, make, **kw):
    CASES.append(("odd-" + tag, "1035", lambda: refused(make(), **kw)))

odd("empty-datagram", lambda: b"")
odd("11-octets", lambda: hdr()[:11])
odd("header-only", lambda: hdr())
odd("qdcount-0", lambda: hdr(qd=0), ok=(0, 1, 4, 5))
odd("qdcount-2", lambda: hdr(qd=2) + Q() + Q())
odd("qdcount-65535", lambda: hdr(qd=65535) + Q())
odd("ancount-without-records", lambda: hdr(an=7) + Q())
odd("name-cut", lambda: hdr() + b"\x07exam")
odd("label-64", lambda: hdr() + b"\x40" + b"a" * 64 + b"\0\0\1\0\1")
odd("label-type-10", lambda: hdr() + b"\x80abc\0\0\1\0\1")
odd("name-256", lambda: hdr() + b"\x3f" + (b"a" * 63 + b"\x3f") * 3 + b"a" * 63 + b"\0\0\1\0\1")
odd("pointer-to-itself", lambda: hdr() + b"\xc0\x0c\0\1\0\1")
odd("pointer-forward", lambda: hdr() + b"\xc0\x40\0\1\0\1")
odd("pointer-loop", lambda: hdr() + b"\1a\xc0\x10\1b\xc0\x0c\0\1\0\1")
odd("no-type-class", lambda: hdr() + qn())
odd("opcode-status", lambda: hdr(flags=0x1100) + Q())
odd("opcode-update", lambda: hdr(flags=0x2900) + Q())
odd("opcode-15", lambda: hdr(flags=0x7900) + Q())
odd("class-none", lambda: hdr() + qn() + struct.pack(">2H", 1, 254), ok=(1, 2, 3, 4, 5))
odd("axfr-over-udp", lambda: hdr() + qn() + struct.pack(">2H", 252, 1), ok=(1, 4, 5))
odd("two-opts", lambda: hdr(ar=2) + Q() + b"\0\0\x29\4\xd0\0\0\0\0\0\0" * 2)
odd("opt-rdlen-beyond", lambda: hdr(ar=1) + Q() + b"\0\0\x29\4\xd0\0\0\0\0\xff\xff")


@case("-")
def odd_trailing_octets():
    w = udp(hdr() + Q() + b"trailing", 2)
    if w and w[3] & 15 not in (0, 1): raise Fail("rcode %d" % (w[3] & 15))
    alive()

@case("2181 11")
def name_any_octet():
    n = dns.name.Name([b"a-" + bytes([x for x in (0, 32, 46, 92, 255)]) + b"%x" % random.getrandbits(32)] + list(dns.name.from_text(Z).labels))
    q = dns.message.make_query(n, "A"); w = udp(q.to_wire())
    if not w: raise Fail("no answer")
    r = dns.message.from_wire(w)
    if r.question[0].name != n: raise Fail("name changed: %s" % r.question[0].name)

@case("1035 2.3.4")
def name_255_octets():
    lab = "b" * 63; n = ".".join(["a-%061x" % random.getrandbits(60), lab, lab]); n += "." + "c" * (255 - (len(n) + 2) - (len(Z) + 1)) + "." + Z
    if len(dns.name.from_text(n).to_wire()) != 255: raise Fail("zone name too long for this case")
    q = dns.message.make_query(n, "A"); w = udp(q.to_wire())
    if not w or not dns.message.from_wire(w).answer: raise Fail("no answer to a name of %d octets" % len(dns.name.from_text(n).to_wire()))

# ---- TCP

@case("7766 6.2.1.1")
def tcp_slow_one_does_not_block_the_next():
    s = socket.create_connection(T, 3); s.settimeout(4); a, b = dns.message.make_query(name("slow"), "A"), dns.message.make_query(name("a"), "A")
    for q in (a, b): s.sendall(struct.pack(">H", len(q.to_wire())) + q.to_wire())
    t = time.time(); r = dns.message.from_wire(rd(s, struct.unpack(">H", rd(s, 2))[0]))
    if r.id != b.id or time.time() - t > 0.6: raise Fail("answered in order only, after %.2f s" % (time.time() - t))

@case("7766 8")
def tcp_octet_by_octet():
    q = dns.message.make_query(name("a"), "A").to_wire(); s = socket.create_connection(T, 3); s.settimeout(4); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for x in struct.pack(">H", len(q)) + q: s.sendall(bytes([x])); time.sleep(0.004)
    rd(s, struct.unpack(">H", rd(s, 2))[0])

@case("-")
def tcp_zero_length(): tcp(None, 0.7, b"\0\0"); alive()


@case("-")
def tcp_connections_held_open():
    ss = [socket.create_connection(T, 3) for _ in range(100)]
    try: alive(); want(ask("a", over=tcp)[1], "192.0.2.1")
    finally: [s.close() for s in ss]

# ---- many at once
@case("-")
def at_once_300():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20); s.settimeout(2); qs = {}
    for i in range(300):
        q = dns.message.make_query(name("a"), "A"); q.id = i; qs[i] = q; s.sendto(q.to_wire(), T); time.sleep(0.0005)
    n = 0
    try:
        while n < 300:
            r = dns.message.from_wire(s.recv(4096))
            if r.question[0].name != qs[r.id].question[0].name: raise Fail("answers mixed up")
            n += 1
    except socket.timeout: raise Fail("%d of 300 answered" % n)

@case("-")
def same_id_from_40_clients():
    ss = []
    for i in range(40):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); q = dns.message.make_query(name("slow" if i % 4 == 0 else "q"), "A"); q.id = 7; s.sendto(q.to_wire(), T); ss.append((s, q))
    for s, q in ss:
        r = dns.message.from_wire(s.recv(4096))
        if r.question[0].name != q.question[0].name: raise Fail("one client's answer went to another")

# ---- last, since a resolver may hold a silent upstream for dead afterwards

@case("5452")
def wrong_id_not_believed():
    q = dns.message.make_query(name("wrongid"), "A"); w = udp(q.to_wire(), 6)
    if w and dns.message.from_wire(w).answer: raise Fail("an answer with a wrong id was passed on")

@case("5452")
def wrong_question_not_believed():
    q = dns.message.make_query(name("wrongname"), "A"); w = udp(q.to_wire(), 6)
    if w and dns.message.from_wire(w).answer: raise Fail("an answer to another question was passed on: %s" % dns.message.from_wire(w).answer)

@case("-")
def upstream_garbage():
    q = dns.message.make_query(name("garbage"), "A"); w = udp(q.to_wire(), 8)
    if w:
        r = dns.message.from_wire(w)
        if r.rcode() == 0 and r.answer: raise Fail("garbage passed on")
    alive()


def main():
    global Z, T, UP
    ap = argparse.ArgumentParser()
    ap.add_argument("--target", required=True)
    ap.add_argument("--upstream", required=True)
    ap.add_argument("--zone")
    ap.add_argument("--only")
    ap.add_argument("--corpus")
    ap.add_argument("--corpus-n", type=int, default=2000)
    ap.add_argument("--json")
    a = ap.parse_args()
    hp = lambda s: (s.rsplit(":", 1)[0], int(s.rsplit(":", 1)[1]))
    if a.zone:
        Z = a.zone.rstrip(".") + "."
    T, UP = hp(a.target), Upstream(hp(a.upstream))
    out, t0 = {}, time.time()
    if a.corpus:
        def corpus():
            fs = sorted((os.path.join(d, f) for d, _, x in os.walk(a.corpus) for f in x), key=lambda p: hashlib.sha1(p.encode()).digest())[:a.corpus_n]
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)
            for i, f in enumerate(fs):
                d = open(f, "rb").read()[:65000]
                try: s.sendto(d, T)
                except OSError: pass
                if i % 20 == 0: tcp(None, 0.02, struct.pack(">H", len(d)) + d)
                time.sleep(0.001)
                if i % 200 == 0: alive()
            alive()
        CASES.insert(len(CASES) - 4, ("fuzz-corpus", "-", corpus))
    try:
        alive()
    except Exception as e:
        print("VOID: a plain query is not answered, nothing was measured: %s" % e)
        print("0 passed, %d failed" % len(CASES))
        sys.exit(2)
    for n, ref, fn in CASES:
        if a.only and not re.search(a.only, n):
            continue
        try:
            fn()
            why = None
        except Fail as e:
            why = str(e) or "?"
        except Exception as e:
            why = "%s: %s" % (type(e).__name__, e)
        out[n] = {"ok": why is None, "ref": ref, "why": why}
        print("%s %-38s %-12s %s" % ("ok  " if why is None else "FAIL", n, ref, why or ""), flush=True)
    if a.json:
        json.dump(out, open(a.json, "w"), indent=1)
    p = sum(v["ok"] for v in out.values())
    print("%.0f s" % (time.time() - t0))
    print("%d passed, %d failed" % (p, len(out) - p))
    sys.exit(p != len(out))


if __name__ == "__main__":
    main()
