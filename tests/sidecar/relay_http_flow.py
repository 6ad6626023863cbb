"""Redirected connections that are HTTP: every request is judged by itself, by its Host and by the address it goes to.  And what
a change of the policy does to connections that are open."""
import base64
import threading
import time

from bench import allow, check, deny, equal, test, wait_for
from backend import echo
from hello import client_hello
from origins import echoes, pours
from relayed import BAD, FREE, FREE6, GOOD, GOOD6, OTHER, Relayed, passes, shut
from wire import Client, answer, request

MISMATCH = "request authority does not match the intercepted destination"
DENIED = "host denied by egress policy"


def http(r, address=GOOD, port=80):
    """An HTTP client of the workload, to an outside address."""
    with r.w.inside():
        return r.w.keep(Client(port, address))


def told(r, status, body=None):
    equal(r.status, status, f"status, with {r.body[:200]!r}")
    if body:
        check(r.text.startswith(body), "text:", r.text)
    if status != 200:
        check((r.get("content-type") or "").startswith("text/plain"), "type:", r.get("content-type"))
        equal(r.text.count("\n"), 1, f"lines of {r.text!r}")


# (what, bytes of the request, status, text)
REQUESTS = (
    ("the allowed host", request("GET", "/a", host="ok.test"), 200, None),
    ("in another case, with a final dot", request("GET", "/a", host="OK.Test."), 200, None),
    ("with the port", request("GET", "/a", host="ok.test:80"), 200, None),
    ("with a body", request("POST", "/a", host="ok.test", body=b"x" * 70000), 200, None),
    ("as absolute form", request("GET", "http://ok.test/a", host="ok.test"), 200, None),
    ("a denied host", request("GET", "/a", host="no.test"), 403, DENIED),
    ("a denied host with a body", request("POST", "/a", host="no.test", body=b"x" * 70000), 403, DENIED),
    ("a name below", request("GET", "/a", host="x.ok.test"), 403, DENIED),
    ("another allowed host, whose address this is not", request("GET", "/a", host="other.test"), 421, MISMATCH),
    ("another port", request("GET", "/a", host="ok.test:8443"), 421, MISMATCH),
    ("a target that is not the Host", request("GET", "http://ok.test/a", host="no.test"), 421, None),
    ("a target that is denied", request("GET", "http://no.test/a", host="ok.test"), 421, None),
    ("another address", request("GET", "/a", host=FREE), 421, MISMATCH),
)
BAD_REQUESTS = {
    "a name in brackets": request("GET", "/a", host="[ok.test]"), "no Host": request("GET", "/a", host=None),
    "two Hosts": request("GET", "/a", "Host: ok.test", host="ok.test"),
    "two different ones": request("GET", "/a", "Host: no.test", host="ok.test"),
    "a list": request("GET", "/a", host="ok.test, no.test"), "a user part": request("GET", "/a", host="x@ok.test"),
    "an empty Host": request("GET", "/a", host=""), "an empty port": request("GET", "/a", host="ok.test:"),
    "port 080": request("GET", "/a", host="ok.test:080"), "port 99999": request("GET", "/a", host="ok.test:99999"),
    "an empty label": request("GET", "/a", host="ok..test"), "a percent sign": request("GET", "/a", host="ok%2etest"),
    "a tunnel": request("CONNECT", "ok.test:443", host="ok.test:443"),
}
TWO_WAYS_TO_READ = {
    "both framings": request("POST", "/a", "Transfer-Encoding: chunked", "Content-Length: 4", host="ok.test") + b"0\r\n\r\n",
    "two lengths": request("POST", "/a", "Content-Length: 4", "Content-Length: 5", host="ok.test") + b"xxxxx",
    "a folded field": b"GET /a HTTP/1.1\r\nHost: ok.test\r\nX: a\r\n b\r\n\r\n",
    "a bare line feed": b"GET /a HTTP/1.1\nHost: ok.test\n\n",
    "a blank before the colon": b"GET /a HTTP/1.1\r\nHost : ok.test\r\n\r\n",
}


@test("POL-01", "POL-14", "vault 8.2", limit=90)
def each_request_on_a_connection_is_judged_by_itself(lab):
    r = Relayed(lab)
    for address in (GOOD, GOOD6):
        o, bad = r.w.origin(address, 80, echo), r.w.origin(BAD if address == GOOD else "2001:db8::11", 80, echo)
        c, passed = http(r, address), 0
        for name, data, status, text in REQUESTS * 2:
            if address == GOOD6 and name == "another address":
                continue
            try:
                c.offer(data)
                a = c.response()
                told(a, status, text)
                passed += status == 200
                if a.get("connection", "").lower() == "close":
                    c = http(r, address)
            except Exception as e:
                e.args = (f"{name}: {e}",)
                raise
        equal(len(o.requests), passed, "requests at the origin")
        equal((len(bad.conns), [q.get("host") for q in o.requests if not q.get("host").lower().startswith("ok.test")]), (0, []),
              "hosts seen")
    equal(r.ns.asked("no.test"), [])
    r.untouched(FREE, BAD)


@test("POL-01", "vault 8.2", limit=90)
def what_is_no_clean_request_is_answered_400_and_goes_nowhere(lab):
    r = Relayed(lab)
    o = r.w.origin(GOOD, 80, echo)
    for name, data in {**BAD_REQUESTS, **TWO_WAYS_TO_READ}.items():
        c = http(r)
        c.offer(data)
        equal((name, c.response().status), (name, 400))
        if name in TWO_WAYS_TO_READ:
            check(c.ending(8) != "late", name, "leaves the connection open")
    equal(o.requests, [])


@test("POL-16")
def a_host_does_not_open_an_address_that_was_not_given_for_it(lab):
    r = Relayed(lab)
    o = [r.w.origin(a, 80, echo) for a in (FREE, FREE6)]
    for address in (FREE, FREE6):
        told(http(r, address).ask("GET", "/", host="ok.test"), 421, MISMATCH)
        told(http(r, address).ask("GET", "/", host=f"[{address}]" if ":" in address else address), 403, DENIED)
    equal([len(x.conns) for x in o], [0, 0])
    r.untouched(FREE, FREE6)


@test("relay")
def nothing_is_added_to_a_request_or_its_answer(lab):
    """Order and case of fields stay; those that frame a message are the proxy's own."""
    r = Relayed(lab)
    sent = ["Host: ok.test", "User-Agent: me", "x-z: 1", "Accept: */*", "X-Forwarded-For: 1.2.3.4", "Via: x", "Cookie: a=b", "COOKIE: c"]
    reply = ["X-b: 2", "x-A: 1", "Server: s", "Set-Cookie: a", "set-cookie: b"]
    o = r.w.origin(GOOD, 80, lambda conn: conn.answer(answer(200, *reply, body=b"ok")))
    c = http(r)
    c.send(("GET /a?b=%2F../ HTTP/1.1\r\n" + "\r\n".join(sent) + "\r\n\r\n").encode())
    a = c.response()
    equal(o.requests[0].line, "GET /a?b=%2F../ HTTP/1.1")
    equal([f"{n}: {v}" for n, v in o.requests[0].fields][1:], sent[1:], "fields of the request")
    equal([f"{n}: {v}" for n, v in a.fields if n.lower() not in ("content-length", "connection")], reply, "fields of the answer")


@test("relay", limit=90)
def a_websocket_passes_both_ways(lab):
    r = Relayed(lab)
    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
        echoes(conn)
    r.w.origin(GOOD, 80, script)
    c = websocket(r)
    equal(c.exact(5), b"hello")
    passes(c, b"\x81\x85abcd" + b"12345")
    passes(c, b"y" * 300000)


def websocket(r, address=GOOD, host="ok.test"):
    c = http(r, address)
    c.send(request("GET", "/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                   "Sec-WebSocket-Key: " + base64.b64encode(b"k" * 16).decode(), host=host))
    equal(c.head().status, 101)
    return c


@test("relay")
def an_expected_100_and_a_refusal_before_a_body(lab):
    r = Relayed(lab)
    r.w.origin(GOOD, 80, echo)
    c = http(r)
    c.send(request("POST", "/", "Expect: 100-continue", "Content-Length: 5", host="no.test"))
    a = c.head()
    equal(a.status, 403, "no 100 for a denied host")


@test("relay")
def an_origin_that_fails_is_told_as_a_status(lab):
    r = Relayed(lab, CONNECT_TIMEOUT="2")
    a = http(r).ask("GET", "/", host="ok.test")
    check(a.status == 502 and a.text.count("\n") == 1, a.status, a.body)
    r.w.origin(OTHER, 80, lambda conn: conn.request())
    a = http(r, OTHER).ask("GET", "/", host="other.test")
    check(a.status == 502, a.status, a.body)


@test("relay", "vault 8.2")
def http_1_0_without_a_host_goes_by_its_address(lab):
    r = Relayed(lab, RULES={"defaultAction": "deny", "egress": [allow("ok.test"), allow("other.test"), allow("198.51.100.30")]})
    r.w.origin("198.51.100.30", 80, echo)
    told(http(r, "198.51.100.30").ask("GET", "/", host=None, version="HTTP/1.0"), 200)
    told(http(r, "198.51.100.30").ask("GET", "/", host="198.51.100.30"), 200)
    told(http(r, FREE).ask("GET", "/", host=None, version="HTTP/1.0"), 403, DENIED)


# ---- changes of the policy (LIFE-06)

class Open:
    """One connection of each kind to both allowed hosts, all of them running."""

    def __init__(self, r):
        self.r = r
        for address in (GOOD, OTHER):
            r.w.origin(address, 443, self.tls)
            r.w.origin(address, 80, self.plain)
        self.all = {name: self.make(address, name) for name, address in (("ok.test", GOOD), ("other.test", OTHER))}
        time.sleep(0.3)

    @staticmethod
    def tls(conn):
        conn.more()
        if b"pour" in conn.buf:
            return pours()(conn)
        data, conn.buf = conn.buf, b""
        conn.send(data)
        return echoes(conn)

    @staticmethod
    def plain(conn):
        q = conn.head()
        if q.has("upgrade"):
            conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
            return echoes(conn)
        if q.target == "/pour":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
            return pours()(conn)
        conn.send(answer(200, body=b"first"))
        conn.answer(answer(200, body=b"second"))
        return None

    def make(self, address, name):
        r, out = self.r, {}
        out["tunnel"] = r.client(address)
        passes(out["tunnel"], client_hello(name))
        out["idle websocket"] = websocket(r, address, name)
        out["download by TLS"] = r.client(address)
        out["download by TLS"].send(client_hello(name) + b"pour")
        out["download by HTTP"] = http(r, address)
        out["download by HTTP"].send(request("GET", "/pour", host=name))
        out["keep-alive"] = http(r, address)
        equal(out["keep-alive"].ask("GET", "/", host=name).body, b"first")
        for kind in ("download by TLS", "download by HTTP"):
            out[kind].more()
        return out

    def ended(self, name, within):
        """Each must end so soon; a kept-alive one ends or refuses."""
        ends, end = {}, time.monotonic() + within
        def watch(kind, c):
            while time.monotonic() < end:
                c.buf = b""
                if c.ending(max(0.01, end - time.monotonic())) != "late":
                    ends[kind] = time.monotonic()
                    return
        threads = [threading.Thread(target=watch, args=x) for x in self.all[name].items() if x[0] != "keep-alive"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sorted(ends)

    def runs(self, name):
        """Every one goes on."""
        c = self.all[name]
        passes(c["tunnel"], b"again")
        passes(c["idle websocket"], b"again")
        for kind in ("download by TLS", "download by HTTP"):
            del c[kind].seen[:]
            c[kind].buf = b""
            for _ in range(40):
                c[kind].more()
                c[kind].buf = b""


KINDS = ["download by HTTP", "download by TLS", "idle websocket", "tunnel"]


def cut_by(lab, change, back):
    r = Relayed(lab)
    o = Open(r)
    r.s.patch([allow("unrelated.test"), deny("nothing.test")])
    o.runs("ok.test")
    o.runs("other.test")
    change(r)
    equal(o.ended("ok.test", 5), KINDS, "what ended within 5 s")
    told(o.all["ok.test"]["keep-alive"].offer(request("GET", "/", host="ok.test")).response(), 403, DENIED)
    o.runs("other.test")
    equal(o.all["other.test"]["keep-alive"].ask("GET", "/", host="other.test").status, 200)
    back(r)


@test("LIFE-06", "E5", limit=90)
def a_name_that_is_denied_loses_its_connections_at_once_and_others_nothing(lab):
    cut_by(lab, lambda r: r.s.patch([deny("ok.test")]), lambda r: r.s.delete(["ok.test"]))


@test("LIFE-06", "E5", limit=90)
def a_name_that_is_deleted_loses_its_connections_at_once(lab):
    cut_by(lab, lambda r: r.s.delete(["ok.test"]), lambda r: r.s.patch([allow("ok.test")]))


@test("LIFE-06", "E5", limit=90)
def a_range_that_is_denied_cuts_what_goes_there(lab):
    r = Relayed(lab)
    o = Open(r)
    r.s.patch([deny("198.51.100.8/29")])
    equal(o.ended("ok.test", 5), KINDS)
    o.runs("other.test")


@test("LIFE-06", "E5", limit=90)
def the_rule_that_carries_a_connection_may_change(lab):
    r = Relayed(lab)
    o = Open(r)
    r.s.put({"defaultAction": "deny", "egress": [allow("*.test")]})
    o.runs("ok.test")
    r.s.put({"defaultAction": "allow", "egress": []})
    o.runs("ok.test")
    o.runs("other.test")
    r.s.put({"defaultAction": "deny", "egress": []})
    equal((o.ended("ok.test", 5), o.ended("other.test", 5)), (KINDS, KINDS))


@test("LIFE-06")
def after_the_answer_nothing_new_passes(lab):
    r = Relayed(lab)
    r.w.origin(GOOD, 443, echoes)
    r.w.origin(GOOD, 80, echo)
    for _ in range(10):
        r.s.patch([deny("ok.test")])
        told(http(r).ask("GET", "/", host="ok.test"), 403, DENIED)
        c = r.client()
        c.offer(client_hello("ok.test"))
        check(client_hello("ok.test") not in shut(c), "a connection passed after its name was denied")
        r.s.patch([allow("ok.test")])
        wait_for(lambda: r.w.resolve("ok.test") == [GOOD], "ok.test again")
        passes(r.client(), client_hello("ok.test"))
        told(http(r).ask("GET", "/", host="ok.test"), 200)


