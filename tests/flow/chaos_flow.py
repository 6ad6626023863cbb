"""Everything at once, at random: clients and backends that break off, lie, stall and shout, while routes change and the
gateway is frozen now and then.  Nothing is asked of the answers but that what is whole is right; asked is that the gateway
lives, gives everything back, and ends well."""
import os
import random
import signal
import threading
import time

from lib import P, P2, Client, Ended, Failed, Late, answer, check, chunked, entry, equal, request, test, wait_for

SHORT = tuple(f"--{name}-timeout={ms}ms" for name, ms in (("head", 400), ("keep-alive", 600), ("connect", 300), ("response", 400), ("idle", 400), ("tunnel-idle", 500),
                                                          ("half-close", 300), ("linger", 200), ("backend-idle", 300)))
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def maybe(p):
    return random.random() < p


def right(me):
    """An answer in which whoever reads it whole finds `me`."""
    big = me * (1 + random.choice((1, 10, 60000 // len(me), 400000 // len(me))))
    return random.choice((
        answer(200, body=me), answer(200, body=big), answer(404, "X-A: b", body=me), b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(me, big, trailers="X-T: 1\r\n"),
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * random.randrange(1, 40) + answer(200, body=me), b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, body=me)))


def last(me):
    """What can only be the last that is said on a connection."""
    whole = right(me)
    return random.choice((
        b"", whole[:random.randrange(len(whole))], whole + b"x", whole * 2, os.urandom(40), UPGRADED, b"HTTP/1.0 200 OK\r\n\r\n" + me * 500,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70000 + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(me) + me))


def send_in_pieces(conn, data):
    step = max(1, len(data) // random.choice((1, 1, 1, 5)))
    for i in range(0, len(data), step):
        conn.send(data[i:i + step])
        if step < len(data):
            time.sleep(0.01)


def echo_tunnel(conn):
    conn.send(UPGRADED)
    for _ in range(random.randrange(20)):
        if not conn.buf:
            conn.more(0.5)
        data, conn.buf = conn.buf, b""
        conn.send(data)


def sandbox(conn):
    while not maybe(0.05):
        r = conn.head()
        me = r.get("x-n", "?").encode()
        early = maybe(0.1)
        if early:
            send_in_pieces(conn, right(me))
        if maybe(0.9):
            conn.patience = random.choice((0.1, 1))
            conn.read_body(r, r.framing(False)[0] == "eof")
        else:
            early = early or send_in_pieces(conn, last(me)) is None
        if early and r.whole and not conn.buf and maybe(0.5):
            continue
        if early or (r.has("upgrade") and maybe(0.7)):
            if not early:
                echo_tunnel(conn)
            break
        if maybe(0.25):
            send_in_pieces(conn, last(me))
            time.sleep(random.choice((0, 0.05, 0.6)))
            break
        send_in_pieces(conn, right(me))
        if maybe(0.1):
            time.sleep(random.choice((0.05, 0.6)))
    if maybe(0.5):
        conn.rst()


def asks(n):
    """(bytes of a request, method), well-formed for the most part."""
    target = random.choice((P, P2)) + "/x"
    fields = [f"X-N: {n}"]
    if maybe(0.1):
        fields.append("Connection: close")
    method = random.choice(("GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))
    size = random.choice((0, 1, 1000, 70000, 300000))
    kind = random.random()
    if kind < 0.1:
        return request("GET", target, *fields, "Connection: Upgrade", "Upgrade: websocket") + b"early" * random.randrange(2), "GET"
    if kind < 0.2:
        return request(method, target, *fields, "Transfer-Encoding: chunked") + chunked(b"x" * (size + 1), trailers="X-T: 1\r\n"), method
    if kind < 0.3:
        return request(method, target, *fields, "Expect: 100-continue", body=b"x" * size), method
    if kind < 0.6:
        return request(method, target, *fields, body=b"x" * size), method
    if kind < 0.65:
        return os.urandom(50) + b"\r\n\r\n", "GET"
    if kind < 0.7:
        return request("GET", "/status.ok"), "GET"
    return request(method, target, *fields), method


def visit(gw, n, wrong):
    """One connection: some requests, cut somewhere or not."""
    c = Client(gw.port, patience=1.5, rcvbuf=random.choice((0, 0, 4096)))
    try:
        for i in range(random.choice((1, 1, 3, 10))):
            raw, method = asks(f"{n}.{i}")
            if maybe(0.15):
                raw = raw[:random.randrange(1, len(raw))]
            pipelined = maybe(0.1)
            if pipelined:
                raw += asks(f"{n}.{i}p")[0]
            c.sock.settimeout(1)
            c.sock.sendall(raw)
            if maybe(0.1):
                time.sleep(random.choice((0.01, 0.5)))
            if maybe(0.1):
                break
            if maybe(0.05):
                c.fin()
            r = c.response(method)
            own = f"{n}.{i}".encode()
            if r.status == 200 and r.whole and method != "HEAD" and r.body != b"OK" and own not in r.body:
                wrong.append((raw[:120], r.raw, r.body[:60]))
            if pipelined or raw.endswith(b"early") or r.status == 101 or r.get("connection") == "close" or not r.whole:
                c.offer(b"bytes")
                break
    except (Ended, Late, OSError):
        pass
    finally:
        if maybe(0.5):
            c.rst()
        else:
            c.close()


def run_chaos(lab, seconds):
    b = lab.backend(sandbox)
    gw = lab.gateway(*SHORT, "--max-connections=200", "--max-memory=32MiB", "--max-head-bytes=64KiB", "--drain-timeout=2s", routes={"sb1": b, "sb2": b})
    end, wrong, broken = time.monotonic() + seconds, [], []

    def loop(k):
        i = 0
        while time.monotonic() < end:
            i += 1
            try:
                visit(gw, f"<{k}.{i}>", wrong)
            except Failed as e:
                broken.append(str(e))
            except Exception as e:
                broken.append(repr(e))
    threads = [threading.Thread(target=loop, args=(k,), daemon=True) for k in range(16)]
    for t in threads:
        t.start()
    turn = 0
    while time.monotonic() < end:
        time.sleep(0.25)
        turn += 1
        gw.write_routes() if turn % 3 else gw.write_routes("{\"sandboxes\":")
        gw.routes["sb2"] = {**entry(b), "expiresAt": f"20{30 + turn % 50}-01-01T00:00:00Z"}  # runs on
        if turn % 2:
            gw.routes["sb2"]["ports"][str(4000 + turn)] = {}  # another endpoint: it has moved
        gw.signal(signal.SIGHUP)
        if turn % 5 == 0:
            gw.signal(signal.SIGSTOP)
            time.sleep(0.15)
            gw.signal(signal.SIGCONT)
        check(gw.alive(), "the gateway is gone")
    for t in threads:
        t.join(10)
    b.faults = []
    check(not wrong, "wrong answers:", wrong[:3])
    check(not broken, "broken answers:", broken[:3])
    wait_for(lambda: gw.metric("sallyport_client_connections") == 0, "no client connection left", 5)
    for state in ("head", "dial", "wait", "body", "tunnel", "closing"):
        equal(gw.metric("sallyport_exchanges", state=state), 0, f"exchanges in {state}")
    wait_for(lambda: gw.metric("sallyport_backend_connections") == 0, "no backend connection left", 5)
    equal(gw.metric("sallyport_memory_held_bytes"), 0, "memory held")
    done = gw.metric("sallyport_exchanges_ended_total")
    check(done > 20 * seconds, "only", done, "exchanges")
    equal(gw.client().ask("GET", "/status.ok").body, b"OK", "afterwards")


@test("H1-11", "OPS-01", limit=200)
def nothing_is_lost_or_kept_in_chaos(lab):
    run_chaos(lab, 60 if lab.long else 4)
