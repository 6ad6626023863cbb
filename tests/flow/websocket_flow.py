"""Upgrades and tunnels: what the two ends of a WebSocket see of the gateway between them, which is nothing.  Long waits
are shortened by settings; with --long the same tests run with the real ones."""
import hashlib
import os
import resource
import threading
import time
import zlib

from lib import P, P2, Failed, Skipped, answer, check, equal, plays, request, secure, test, took, wait_for
from signed import RING, Proof
from ws import (BINARY, CLOSE, CONTINUE, ECHO, PING, PONG, TEXT, closing, echoes, ended, expect_frame, frame, handshake, masked,
                opened, read_frame, says_hello, serves, switch, upgraded)

TOKEN = "s3cret-t0ken"
HURRY = ("--head-timeout=1s", "--keep-alive-timeout=1s", "--connect-timeout=1s", "--response-timeout=1s", "--idle-timeout=1s",
         "--linger-timeout=1s", "--backend-idle-timeout=1s")


def keeper(kept, *more):
    """A script: switches and leaves the connection to the test, which finds it in `kept`."""
    def script(conn):
        upgraded(conn, *more)
        kept.append(conn)
        threading.Event().wait(900)
    return script


def pair(lab, *flags):
    """A gateway and both ends of one tunnel: (gateway, client, backend's connection)."""
    kept = []
    b = lab.backend(keeper(kept))
    gw = lab.gateway(*flags, routes={"sb1": b})
    c = opened(gw)
    wait_for(lambda: kept, "the backend's end of the tunnel")
    return gw, c, kept[0]


# ---- routes and the handshake -------------------------------------------------------------------------------------

@test("sn-5d0c3a6c")
def echo_by_header_route(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw, "/ws", "OpenSandbox-Ingress-To: sb1-3000")
    says_hello(c)
    equal(b.last.target, "/ws", "target")
    equal(b.last.all("host"), [b.address], "Host at the backend")
    check(not b.last.has("opensandbox-ingress-to"), "the routing header reached the backend")


@test("sn-c8bdbbf0")
def echo_by_path_routes(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(routes={"test-sandbox": {"address": "127.0.0.1"}})
    says_hello(opened(gw, f"/sandboxes/test-sandbox/port/{b.port}/ws"))
    equal(b.last.target, "/ws", "target by the main form")
    gw = lab.gateway("--mode=uri", routes={"test-sandbox": {"address": "127.0.0.1"}})
    says_hello(opened(gw, f"/test-sandbox/{b.port}/ws?a=1"))
    equal(b.last.target, "/ws?a=1", "target in uri mode")


@test("sn-0840eeae")
def sub_protocol_and_all_other_fields_are_between_the_ends(lab):
    b = lab.backend(serves(echoes, "Sec-WebSocket-Protocol: graphql-ws", "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2", "X-Own: y"))
    gw = lab.gateway(routes={"sb1": b})
    offer = ("Sec-WebSocket-Protocol: graphql-ws, graphql-transport-ws", "Origin: https://gw.test", "Cookie: x=1; y=2",
             "Authorization: Bearer app", "X-Request-Id: given-1")
    c = opened(gw, P + "/ws", *offer)
    equal(c.switch.all("sec-websocket-protocol"), ["graphql-ws"], "protocol the client is told")
    equal(c.switch.all("set-cookie"), ["a=1; Path=/", "b=2"], "cookies of the 101")
    equal(c.switch.get("x-own"), "y", "a field of the application")
    equal(c.switch.all("x-request-id"), ["given-1"], "request id on the 101")
    check(not c.switch.has("reverse-proxy-server-powerby"), "a powered-by line on the 101")
    for line in offer:
        name, _, value = line.partition(": ")
        equal(b.last.all(name), [value], f"{name} at the backend")
    for name in ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix"):
        equal(len(b.last.all(name)), 1, f"lines of {name} at the backend")
    says_hello(c)


@test("WS-05")
def origin_and_host_still_agree_at_the_application(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(routes={"sb1": b})
    keep = lab.gateway("--backend-host=preserve", routes={"sb1": b})
    for host in ("gw.test", "gw.test:8443", "GW.test"):
        for g, wanted in ((gw, b.address), (keep, host)):
            opened(g, P + "/ws", f"Origin: https://{host}", host=host)
            equal(b.last.all("origin"), [f"https://{host}"], "Origin")
            equal(b.last.all("x-forwarded-host"), [host], "X-Forwarded-Host")
            equal(b.last.all("host"), [wanted], "Host")


@test("WS-08")
def access_is_checked_on_an_upgrade_as_on_any_request(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(f"--secure-access-keys={RING}", routes={"sec": secure(b, TOKEN)})
    plain, good = "/sandboxes/sec/port/3000/ws", Proof("sec")
    token = f"OpenSandbox-Secure-Access: {TOKEN}"
    for target, more in ((good.path + "/ws?q", ()), (plain + "?q", (token,)), ("/ws?q", (f"OpenSandbox-Ingress-To: {good.label}",))):
        c = opened(gw, target, *more)
        says_hello(c)
        equal(b.last.target, "/ws?q", "target at the backend")
        head = b.last.raw.decode("latin-1")
        for canary in (TOKEN, good.sig, good.exp36, "opensandbox-"):
            check(canary.lower() not in head.lower(), canary, "reached the backend:", head)
    seen = len(b.conns)
    for target, more in ((plain, ()), (plain, ("OpenSandbox-Secure-Access: wrong",)), (plain, ("OpenSandbox-Secure-Access:",)),
                         (Proof("sec").forged().path + "/ws", ()), (Proof("sec", ttl=-5).path + "/ws", ()),
                         (good.path + "/ws", ("OpenSandbox-Secure-Access: wrong",))):
        c = gw.client().send(handshake(target, *more))
        r = c.response()
        equal(r.status, 401, f"status for {target} {more}")
        check(r.body.startswith(b"OpenSandbox Ingress: signature: "), "body", r.body)
        check(not r.has("location"), "a redirect")
    equal(len(b.conns), seen, "connections at the backend")


@test("WS-09")
def a_socket_at_the_site_root_is_refused_clearly_and_works_by_host(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway("--base-domain=gw.test", routes={"sb1": b})
    r = gw.client().send(handshake("/websockify")).response()
    equal(r.status, 400, "status at the root")
    check(r.body.startswith(b"OpenSandbox Ingress: missing header"), "body", r.body)
    check(not r.has("location") and not r.has("set-cookie"), "redirect or cookie at the root")
    equal(len(b.conns), 0, "backend connections")
    c = opened(gw, "/websockify", host="sb1-3000.gw.test")
    says_hello(c)
    equal(b.last.target, "/websockify", "target by host form")


@test("WS-09")
def pages_under_a_prefix_are_not_rewritten(lab):
    page = b'<a href="/x">x</a><script src="/app.js"></script><script>new WebSocket("ws://"+location.host+"/websockify")</script>'
    b = lab.backend(plays(answer(200, "Content-Type: text/html", "Location: /elsewhere", body=page)))
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().ask("GET", P + "/vnc/")
    equal((r.body, r.get("location")), (page, "/elsewhere"), "page and Location")


DETECT = (  # method, fields of the client, what the backend is to see of Upgrade, tunnelled
    ("GET", ("Connection: keep-alive, UpGrade", "Upgrade: WebSocket"), ["websocket"], True),
    ("GET", ("Connection: keep-alive", "Connection: x, Upgrade", "Upgrade: foo", "Upgrade: bar, websocket"), ["websocket"], True),
    ("GET", ("Connection: keep-alive", "Upgrade: websocket"), [], False),
    ("GET", ("Upgrade: websocket",), [], False),
    ("POST", ("Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0"), [], False),
    ("GET", ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"), [], False),
    ("GET", ("Connection: Upgrade", "Upgrade: spdy-like/3"), ["spdy-like/3"], True),
    ("POST", ("Connection: Upgrade", "Upgrade: tls-ish", "Content-Length: 0"), ["tls-ish"], True),
)


@test("WS-09", "WS-02")
def what_is_an_upgrade_and_what_is_none(lab):
    def script(conn):
        r = conn.head()
        kind = r.get("upgrade")
        if kind is None:
            conn.send(answer(200, "Connection: close", body=b"plain"))
            return
        conn.send(b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nover" % kind.encode())
        conn.send(conn.exact(5))
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    for method, more, upgrade, tunnel in DETECT:
        c = gw.client().send(request(method, P + "/ws", *more))
        r = c.response(method)
        equal(r.status, 101 if tunnel else 200, f"status for {method} {more}")
        equal(b.last.all("upgrade"), upgrade, f"Upgrade at the backend for {method} {more}")
        check(not b.last.has("http2-settings"), "HTTP2-Settings reached the backend")
        if tunnel:
            equal(c.exact(4), b"over", "bytes of the backend")
            equal(c.send(b"there").exact(5), b"there", "bytes there and back")
            c.close()


# ---- answers that are no switch -----------------------------------------------------------------------------------

@test("sn-dc8fbaaf")
def a_redirect_is_passed_on_and_not_followed(lab):
    other = lab.backend()
    b = lab.backend(plays(answer(302, f"Location: http://{other.address}/ws", body=b"moved"), "hold"))
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().send(handshake()).response()
    equal((r.status, r.all("location"), r.body), (302, [f"http://{other.address}/ws"], b"moved"), "refusal")
    time.sleep(0.2)
    equal(len(other.conns), 0, "connections at the other host")


@test("sn-02a55cea")
def a_refusal_arrives_whole(lab):
    body = os.urandom(5000)
    b = lab.backend(plays(answer(401, 'WWW-Authenticate: Basic realm="x"', body=body), "hold"))
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().send(handshake()).response()
    equal((r.status, r.get("www-authenticate"), len(r.body)), (401, 'Basic realm="x"', 5000), "refusal")
    equal(r.body, body, "body")


@test("sn-02a55cea")
def a_refusal_in_chunks_or_until_the_end_arrives_whole(lab):
    for data, wanted in ((b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", b"abcdefg"),
                         (b"HTTP/1.1 426 No\r\nConnection: close\r\n\r\nuntil the end", b"until the end")):
        gw = lab.gateway(routes={"sb1": lab.backend(plays(data))})
        r = gw.client().send(handshake()).response()
        equal((r.whole, r.body), (True, wanted), "refusal")


@test("WS-01", "sn-02a55cea")
def frames_sent_ahead_of_a_refusal_are_never_read_as_a_request(lab):
    smuggled = request("GET", P2 + "/smuggled")
    b, b2 = lab.backend(plays(answer(403, body=b"no"), "hold")), lab.backend()
    gw = lab.gateway(routes={"sb1": b, "sb2": b2})
    c = gw.client().send(handshake() + masked(BINARY, b"xx") + smuggled)
    r = c.response()
    equal((r.status, r.body), (403, b"no"), "refusal")
    check(ended(c, 10), "the connection did not end")
    equal(len(b2.requests), 0, "requests made of frames")


@test("sn-ca0ac665")
def nobody_listens(lab):
    b = lab.backend(ECHO)
    b.stop()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().send(handshake()).response()
    equal(r.status, 502, "status")
    equal(r.body, b"OpenSandbox Ingress: upstream connection failed\n", "body")


@test("sn-ca0ac665")
def a_handshake_that_is_never_answered_is_504(lab):
    b = lab.backend(lambda conn: conn.ending(60))
    gw = lab.gateway("--response-timeout=500ms", routes={"sb1": b})
    seconds, r = took(lambda: gw.client().send(handshake()).response())
    equal((r.status, bool(r.body)), (504, True), "answer")
    check(0.4 < seconds < 3, "took", seconds)


@test("sn-ca0ac665", limit=90)
def a_handshake_waits_45_seconds_and_no_longer(lab):
    if not lab.long:
        raise Skipped("takes 45 s: run with --long")
    b = lab.backend(lambda conn: conn.ending(80))
    gw = lab.gateway(routes={"sb1": b})
    seconds, r = took(lambda: gw.client(patience=60).send(handshake()).response())
    equal(r.status, 504, "status")
    check(44 < seconds < 48, "took", seconds)


@test("sn-ca0ac665")
def a_backend_that_dies_before_the_switch_is_502(lab):
    for script in (plays(b""), plays(b"", "rst"), plays(b"HTTP/1.1 101 Swi"), plays(b"garbage\r\n\r\n")):
        b = lab.backend(script)
        gw = lab.gateway(routes={"sb1": b})
        r = gw.client().send(handshake()).response()
        equal((r.status, bool(r.body)), (502, True), "answer")


@test("WS-03", limit=180)
def a_switch_to_something_else_is_502_and_leaves_nothing_behind(lab):
    heads = (b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nzzz", b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\n\r\n",
             b"HTTP/1.1 101 X\r\n\r\n", b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket, other\r\n\r\n")
    conns = []

    def script(conn):
        conns.append(conn)
        r = conn.head()
        conn.send(heads[int(r.target[1:]) % len(heads)])
        conn.ended_by_peer = conn.ending(20) != "late"
        conn.backend.requests.clear()
        conn.backend.conns.clear()
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    n = 10000 if lab.long else 2000
    faults = []

    def clients(first):
        try:
            for i in range(first, n, 4):
                c = gw.client().send(handshake(f"{P}/{i}"))
                r = c.response()
                equal((r.status, r.body), (502, b"OpenSandbox Ingress: upstream sent an invalid response\n"), f"answer {i}")
                check(ended(c), "the client's connection stayed open")
                c.close()
                lab.peers.clear()
        except Exception as e:
            faults.append(e)
    threads = [threading.Thread(target=clients, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    top = 0
    while any(t.is_alive() for t in threads):
        top = max(top, gw.fds())
        time.sleep(0.05)
    check(not faults, faults)
    check(top <= gw.base_fds + 40, "descriptors grew to", top, "from", gw.base_fds)
    gw.settle()
    wait_for(lambda: all(getattr(x, "ended_by_peer", False) for x in conns), "the end of all backend connections")
    equal(len(conns), n, "handshakes at the backend")


# ---- frames -------------------------------------------------------------------------------------------------------

@test("sn-d4176b9c")
def close_of_the_backend_reaches_the_client(lab):
    b = lab.backend(serves(lambda conn: (conn.send(frame(CLOSE, closing(1008, "policy trip"))), read_frame(conn))))
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw)
    expect_frame(c, CLOSE, closing(1008, "policy trip"))
    c.send(masked(CLOSE, closing(1008)))
    equal(c.ending(), "fin", "end after the close")


@test("sn-ac354afd")
def close_of_the_client_reaches_the_backend(lab):
    got = []
    b = lab.backend(serves(lambda conn: (got.append(read_frame(conn)), conn.send(frame(CLOSE, closing(4001))))))
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw)
    c.send(masked(CLOSE, closing(4001, "time is up")))
    expect_frame(c, CLOSE, closing(4001))
    equal(got[0].payload, closing(4001, "time is up"), "what the backend got")
    equal(c.ending(), "fin", "end")


@test("sn-fa9ba3e5")
def a_lost_connection_is_seen_on_the_other_side_within_5_s(lab):
    for leave, within in (("rst", 5), ("close", 5)):
        gw, c, bc = pair(lab)
        getattr(c, leave)()
        seconds, end = took(lambda: bc.ending(within))
        check(end != "late", f"client left by {leave}: not seen within {within} s")
        bc.close()
        gw.settle()
        gw, c, bc = pair(lab)
        getattr(bc, leave)()
        check(c.ending(within) != "late", f"backend left by {leave}: not seen within {within} s")
        c.close()


@test("WS-02")
def after_the_101_everything_passes_unchanged(lab):
    gw, c, bc = pair(lab)
    time.sleep(0.3)  # 101, then silence
    big = os.urandom(70000)
    frames = (frame(TEXT, "hi", mask=b"\0\0\0\0"), masked(TEXT, "grüße"), masked(BINARY, big), masked(PING, b"are you"),
              masked(PONG, b"unasked"), masked(CLOSE, closing(4001, "enough")))
    for f in frames:
        c.send(f)
        equal(bc.exact(len(f)), f, "bytes from client to backend")
    for f in (frame(TEXT, "hi"), frame(BINARY, big), frame(PING, b"p"), frame(PONG, b"q"), frame(CLOSE, closing(4001, "enough"))):
        bc.send(f)
        equal(c.exact(len(f)), f, "bytes from backend to client")
    check(c.silent(0.2) and bc.silent(0.2), "something was said that nobody sent")
    equal(frames[0], b"\x81\x82\0\0\0\0hi", "the frame of the card")


@test("sn-592bf27a")
def fragments_and_control_frames_stay_as_they_were_sent(lab):
    seen = []

    def talk(conn):
        for _ in range(4):
            seen.append(read_frame(conn))
            if seen[-1].opcode == PING:
                conn.send(frame(PONG, b"from the backend"))
        conn.ending(20)
    b = lab.backend(serves(talk))
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw)
    sent = [(TEXT, b"Hel", False), (PING, b"?", True), (CONTINUE, b"", False), (CONTINUE, b"lo", True)]
    for opcode, payload, fin in sent:
        c.send(masked(opcode, payload, fin))
    expect_frame(c, PONG, b"from the backend")
    wait_for(lambda: len(seen) == 4, "four frames")
    equal([(f.opcode, f.payload, f.fin) for f in seen], sent, "frames at the backend")
    check(c.silent(0.2), "a second pong")


@test("sn-cef4a458")
def compression_is_between_the_two_ends(lab):
    text = b"the same words again and again, " * 500

    def deflated(data):
        z = zlib.compressobj(wbits=-15)
        return (z.compress(data) + z.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def inflated(data):
        return zlib.decompressobj(wbits=-15).decompress(data + b"\0\0\xff\xff")

    def talk(conn):
        f = read_frame(conn)
        check(f.rsv1, "RSV1 was lost")
        conn.send(frame(TEXT, deflated(inflated(f.payload).upper()), rsv1=True))
        conn.ending(20)
    b = lab.backend(serves(talk, "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover"))
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw, P + "/ws", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
    equal(b.last.all("sec-websocket-extensions"), ["permessage-deflate; client_max_window_bits"], "what the backend was offered")
    equal(c.switch.all("sec-websocket-extensions"), ["permessage-deflate; server_no_context_takeover"], "what the client is told")
    small = deflated(text)
    check(len(small) < len(text) // 10, "the test's own compression")
    c.send(masked(TEXT, small, rsv1=True))
    f = read_frame(c)
    equal((f.rsv1, inflated(f.payload)), (True, text.upper()), "answer")


def pattern(n):
    block = hashlib.sha512(b"pattern").digest() * 1024
    return (block * (n // len(block) + 1))[:n]


def read_all(wire, n, pause=0.0):
    """Reads n bytes without keeping them; their digest."""
    h = hashlib.sha256()
    head, wire.buf = wire.buf[:n], wire.buf[n:]
    h.update(head)
    n -= len(head)
    wire.sock.settimeout(30)
    while n:
        data = wire.sock.recv(min(n, 1 << 18))
        if not data:
            raise Failed(f"the stream ended {n} bytes early")
        h.update(data)
        n -= len(data)
        if pause:
            time.sleep(pause)
    return h.hexdigest()


@test("sn-2210ee1a")
def a_message_of_70_mib_comes_back_whole(lab):
    n = 70 << 20

    def talk(conn):
        head = conn.exact(14)
        equal(head, b"\x82\xff" + n.to_bytes(8, "big") + bytes(4), "frame header at the backend")
        conn.send(b"\x82\x7f" + head[2:10])
        left = n
        while left:
            if not conn.buf:
                conn.sock.settimeout(30)
                conn.buf = conn.sock.recv(1 << 18)
            left -= len(conn.buf)
            conn.send(conn.buf)
            conn.buf = b""
        conn.ending(20)
    b = lab.backend(serves(talk))
    gw = lab.gateway(routes={"sb1": b})
    c = opened(gw)
    data = pattern(n)
    threading.Thread(target=lambda: c.offer(frame(BINARY, data, mask=bytes(4))), daemon=True).start()
    equal(c.exact(10), b"\x82\x7f" + n.to_bytes(8, "big"), "frame header at the client")
    equal(read_all(c, n), hashlib.sha256(data).hexdigest(), "digest of the message")


@test("WS-07", limit=120)
def one_message_larger_than_memory_is_passed_on_as_it_comes(lab):
    head = b"\x82\xff" + (2 << 30).to_bytes(8, "big") + b"mask"
    kept = []
    b = lab.backend(keeper(kept))
    gw = lab.gateway(routes={"sb1": b})
    tunnels = [opened(gw, patience=60) for _ in range(8)]
    wait_for(lambda: len(kept) == len(tunnels), "all tunnels at the backend")
    settled = gw.rss()
    n, faults = 12 << 20, []
    data = pattern(n)

    def send(wire):
        try:
            wire.send(head + data)
        except Exception as e:
            faults.append(e)
    for senders, readers in ((tunnels, kept), (kept, tunnels)):
        threads = [threading.Thread(target=send, args=(w,), daemon=True) for w in senders]
        for t in threads:
            t.start()
        time.sleep(1)  # nobody reads: whatever is going to pile up has
        held = gw.metric("sallyport_memory_held_bytes")
        grown = gw.rss() - settled
        check(held < 8 * 256 * 1024, "held in chunks", held)
        check(lab.sanitizer or grown < 8 * 256 * 1024, "memory grew by", grown)
        for w in readers:
            got = w.exact(len(head))
            equal(got, head, "frame header")
            equal(read_all(w, n, 0.0005), hashlib.sha256(data).hexdigest(), "digest of the stream")
        for t in threads:
            t.join()
    check(not faults, faults)
    for c in kept:
        c.close()


# ---- bytes around the switch --------------------------------------------------------------------------------------

@test("sn-0c521e82", "WS-01")
def bytes_right_behind_the_handshake_and_the_switch_arrive(lab):
    got = []

    def script(conn):
        conn.head()
        conn.send(switch() + frame(TEXT, "from the backend"))
        got.append(read_frame(conn))
        conn.ending(20)
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client().send(handshake() + masked(TEXT, "from the client"))
    equal(c.response().status, 101, "status")
    expect_frame(c, TEXT, "from the backend")
    wait_for(lambda: got, "the client's frame")
    equal(got[0].payload, b"from the client", "the client's frame")


@test("WS-01")
def bytes_that_come_with_the_handshake_in_pieces(lab):
    sent = b"".join(masked(TEXT, f"message {i} " + "x" * 50 * i) for i in range(11))
    half = len(sent) - 100
    got = []

    def script(conn):
        upgraded(conn)
        got.append(conn.exact(half))
        got.append(conn.exact(len(sent) - half))
        check(conn.silent(0.2), "bytes came twice")
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    head = handshake()
    c = gw.client().send(head[:-1])
    time.sleep(0.2)
    equal(len(b.conns), 0, "backend connections for half a handshake")
    c.send(head[-1:] + sent[:half])
    wait_for(lambda: len(got) == 1, "the first frames, before the rest is sent")
    c.send(sent[half:])
    equal(c.response().status, 101, "status")
    wait_for(lambda: len(got) == 2, "all frames")
    equal(b"".join(got), sent, "bytes at the backend")


@test("WS-01")
def a_switch_in_pieces_with_frames_behind(lab):
    frames = frame(TEXT, "one") + frame(BINARY, bytes(300)) + frame(TEXT, "x" * 100)
    cut = len(frames) - 60

    def script(conn):
        conn.head()
        head = switch()
        for part in (head[:20], head[20:70], head[70:] + frames[:cut], frames[cut:]):
            conn.send(part)
            time.sleep(0.05)
        conn.ending(20)
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    for _ in range(20):
        c = gw.client().send(handshake())
        equal(c.response().status, 101, "status")
        equal(c.exact(len(frames)), frames, "bytes behind the 101")
        check(c.silent(0.02), "bytes came twice")
        c.close()


@test("WS-01")
def interim_answers_pass_ahead_of_the_switch(lab):
    def script(conn):
        r = conn.head()
        conn.send(b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" + switch(key=r.get("sec-websocket-key")) + b"now")
        conn.ending(20)
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client().send(handshake())
    r = c.response()
    equal(([i.status for i in r.interim], r.status, c.exact(3)), ([103], 101, b"now"), "answers")


# ---- ends and deadlines of a tunnel -------------------------------------------------------------------------------

@test("sn-fa9ba3e5", "WS-10")
def a_side_that_ends_its_sending_leaves_the_other_direction_alive(lab):
    for first in ("client", "backend"):
        gw, c, bc = pair(lab)
        one, other = (c, bc) if first == "client" else (bc, c)
        one.send(b"last words").fin()
        equal(other.exact(10), b"last words", "before the end")
        equal(other.ending(), "fin", "the end of one direction")
        data = pattern(300000)
        threading.Thread(target=lambda w=other: w.offer(data).fin(), daemon=True).start()
        equal(read_all(one, len(data)), hashlib.sha256(data).hexdigest(), f"{first} ended first: the other direction")
        equal(one.ending(), "fin", "the end of the other")
        bc.close()


@test("OPS-01")
def a_half_ended_tunnel_has_a_deadline(lab):
    for first in ("client", "backend"):
        gw, c, bc = pair(lab, "--half-close-timeout=1s")
        one, other = (c, bc) if first == "client" else (bc, c)
        one.fin()
        equal(other.ending(), "fin", "the end of one direction")
        start = time.monotonic()
        for _ in range(4):  # bytes in the other direction keep it alive
            time.sleep(0.5)
            other.send(b"x")
        equal(one.exact(4), b"xxxx", "bytes of the other direction")
        check(ended(one, 4), "no end after the half-close timeout")
        seconds = time.monotonic() - start
        check(2.8 < seconds < 5, "ended after", seconds)
        line, = gw.access(1)
        equal((line["status"], line["state"], line["why"]), (101, "tunnel", "deadline"), "access line")
        bc.close()


@test("OPS-01", limit=150)
def tunnels_that_were_left_give_everything_back(lab):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n = min(5000 if lab.long else 300, (hard - 300) // 3)
    kept = []
    b = lab.backend(keeper(kept))
    gw = lab.gateway("--half-close-timeout=2s", routes={"sb1": b})
    base = None
    for who in ("clients", "backends"):
        tunnels = [opened(gw) for _ in range(n)]
        wait_for(lambda: len(kept) == n, "all tunnels at the backend", 30)
        leaving = tunnels if who == "clients" else kept
        time.sleep(1)
        for i, w in enumerate(leaving):
            if i % 2:
                w.fin()
            else:
                w.rst()
        gw.settle(20)
        wait_for(lambda: gw.metric("sallyport_memory_held_bytes") == 0, "no bytes held")
        for w in tunnels + kept:
            w.close()
        kept.clear()
        lab.peers.clear()
        base, before = gw.rss(), base
    check(lab.sanitizer or base < before + 4 * n * 1024, "memory", before, "then", base)


@test("sn-f34aeb2a", "WS-06")
def deadlines_of_requests_end_at_the_switch(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(*HURRY, routes={"sb1": b})
    quiet, slow = opened(gw), opened(gw)
    for i in range(5):
        time.sleep(0.9)
        slow.send(masked(TEXT, f"beat {i}"))
        expect_frame(slow, TEXT, f"beat {i}")
    says_hello(quiet)
    quiet.send(masked(PING, b"?"))
    expect_frame(quiet, PONG, b"?")


@test("sn-f34aeb2a", "WS-06", limit=700)
def idle_tunnels_live_with_default_settings(lab):
    if not lab.long:
        raise Skipped("takes 10 minutes: run with --long")
    b = lab.backend(ECHO)
    gw = lab.gateway(routes={"sb1": b})
    ten, two, beat = opened(gw), opened(gw), opened(gw)
    start = time.monotonic()
    while time.monotonic() < start + 600:
        time.sleep(50)
        says_hello(beat)
        if two and time.monotonic() > start + 130:
            two.send(masked(PING, b"?"))
            expect_frame(two, PONG, b"?")
            two = None
    says_hello(ten)


@test("WS-06")
def the_idle_limit_of_tunnels_is_a_setting_of_its_own(lab):
    gw, c, bc = pair(lab, "--tunnel-idle-timeout=1s")
    for _ in range(4):
        time.sleep(0.5)
        c.send(b"x")
        equal(bc.exact(1), b"x", "a byte keeps it alive")
    seconds, _ = took(lambda: ended(c, 5))
    check(0.8 < seconds < 3.5, "ended after", seconds)
    check(ended(bc, 2), "the backend's side did not end")
    line, = gw.access(1)
    equal((line["status"], line["state"], line["why"]), (101, "tunnel", "deadline"), "access line")
    bc.close()


# ---- many ---------------------------------------------------------------------------------------------------------

@test("WS-07")
def a_slow_reader_stops_its_own_tunnel_only(lab):
    gw, c, bc = pair(lab)
    slow = opened(gw, rcvbuf=4096)
    wait_for(lambda: len(bc.backend.conns) == 2, "the second tunnel")
    flood = bc.backend.conns[1]
    wait_for(lambda: flood.seen, "its handshake")
    threading.Thread(target=lambda: flood.offer(bytes(16 << 20)), daemon=True).start()
    time.sleep(0.3)
    for i in range(50):
        c.send(masked(TEXT, str(i)))
        seconds, _ = took(lambda i=i: expect_frame(bc, TEXT, str(i)))
        check(seconds < 0.5, "a message of the other tunnel took", seconds)
    held = gw.metric("sallyport_memory_held_bytes")
    check(held < 512 * 1024, "held", held)
    slow.rst()
    bc.close()
    flood.close()


@test("WS-02", "sn-5d0c3a6c", limit=90)
def many_tunnels_at_once_get_their_own_bytes(lab):
    b = lab.backend(ECHO)
    gw = lab.gateway(routes={"sb1": b})
    tunnels = [opened(gw) for _ in range(200)]
    for turn in range(3):
        for i, c in enumerate(tunnels):
            c.send(masked(TEXT, f"{turn} of {i} " + "x" * (i * 37 % 3000)))
        for i, c in enumerate(tunnels):
            expect_frame(c, TEXT, f"{turn} of {i} " + "x" * (i * 37 % 3000))
    equal(gw.metric("sallyport_exchanges", state="tunnel"), 200, "tunnels by the metric")
    for c in tunnels:
        c.send(masked(CLOSE, closing(1000)))
        expect_frame(c, CLOSE, closing(1000))
        equal(c.ending(), "fin", "end after the close")
        c.close()
    gw.access(200, status=101)


@test("WS-02")
def random_pieces_both_ways_arrive_once_and_in_order(lab):
    gw, c, bc = pair(lab)
    a, z = os.urandom(2 << 20), os.urandom(2 << 20)
    faults = []

    def pour(wire, data):
        at, step = 0, 1
        while at < len(data):
            wire.send(data[at:at + step])
            at += step
            step = step * 7 % 65521 + 1

    def take(wire, data):
        try:
            equal(read_all(wire, len(data)), hashlib.sha256(data).hexdigest(), "digest")
        except Exception as e:
            faults.append(e)
    threads = [threading.Thread(target=f, args=x) for f, x in ((pour, (c, a)), (pour, (bc, z)), (take, (bc, a)), (take, (c, z)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not faults, faults)
    bc.close()
