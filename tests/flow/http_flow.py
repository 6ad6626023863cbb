"""HTTP/1.1 through the gateway: scenarios of the kind http, and the cards H1-01 to H1-14."""
import random
import threading
import time

from lib import (P, P2, Ended, Failed, Late, Client, answer, check, chunked, equal, plays, request, says, secure, test, took,
                 wait_for)

SMUGGLED = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
BRAND = "OpenSandbox Ingress: "


def refused(gw, raw, *statuses):
    """The request is answered with one of these statuses and the connection ends; nothing else is said on it."""
    c = gw.client()
    c.offer(raw)
    r = c.response()
    check(r.status in statuses, f"status {r.status}, wanted one of {statuses}, for", raw[:200])
    check(r.body, "an empty body for", raw[:200])
    equal(r.get("connection"), "close", f"connection, for {raw[:80]}")
    check(c.ending() in ("fin", "reset"), "the connection stays open after", raw[:200])
    equal(c.buf, b"", "more than one answer")
    return r


# ---- scenarios: lookup

@test("sn-aae71a94")
def unknown_sandbox_by_header_is_404_and_named(lab):
    gw = lab.gateway()
    r = gw.client().ask("GET", "/", "OpenSandbox-Ingress-To: non-existent-8080")
    equal((r.status, r.body), (404, b"OpenSandbox Ingress: sandbox not found: non-existent\n"), "answer")


@test("sn-576b6756")
def unknown_sandbox_by_path_is_404(lab):
    gw = lab.gateway()
    r = gw.client().ask("GET", "/sandboxes/non-existent/port/80/hello")
    equal((r.status, r.text), (404, BRAND + "sandbox not found: non-existent\n"), "answer")


# ---- scenarios: bodies

def counts(into):
    """A script that counts the bytes of one request body, as they come and whatever the framing."""
    def script(conn):
        while True:
            r = conn.head()
            into.update(head=r, n=0)
            if r.has("transfer-encoding"):
                while (n := int(conn.until(b"\r\n"), 16)) > 0:
                    while n > 0:
                        if not conn.buf:
                            conn.more()
                        n -= len(conn.buf[:n]) if (k := len(conn.buf[:n])) else 0
                        conn.buf = conn.buf[k:]
                        into["n"] += k
                    conn.exact(2)
                conn.until(b"\r\n")
            else:
                left = int(r.get("content-length"))
                while into["n"] < left:
                    if not conn.buf:
                        conn.more()
                    into["n"] += len(conn.buf)
                    conn.buf = b""
            conn.send(answer(200, body=b"%d" % into["n"]))
    return script


@test("sn-657ed72d")
def large_upload_keeps_its_framing_and_is_not_spooled(lab):
    size, seen = 100 << 20, {"n": 0}
    b = lab.backend(counts(seen))
    gw = lab.gateway(routes={"sb1": b})
    piece = random.randbytes(1 << 20)
    for coding in ("length", "chunked"):
        seen.update(n=0, head=None)
        field = f"Content-Length: {size}" if coding == "length" else "Transfer-Encoding: chunked"
        c = gw.client().send(request("PUT", P + "/up", field))
        for i in range(size >> 20):
            c.send(piece if coding == "length" else b"100000\r\n" + piece + b"\r\n")
            if i == 2:
                wait_for(lambda: seen["n"] > 0, "first bytes at the backend before the last are sent")
        if coding == "chunked":
            c.send(b"0\r\n\r\n")
        r = c.response()
        equal((r.status, r.text), (200, str(size)), f"answer, {coding}")
        equal(seen["head"].has("transfer-encoding"), coding == "chunked", "coding at the backend")
        equal(seen["head"].get("content-length"), str(size) if coding == "length" else None, "length at the backend")
        c.close()


@test("sn-4df0f8de")
def body_is_asked_for_when_the_backend_asks(lab):
    def script(conn):
        conn.head()
        time.sleep(0.3)
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        equal(conn.exact(5), b"hello", "body")
        conn.send(answer(201, body=b"ok"))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client().send(request("PUT", P + "/up", "Expect: 100-continue", "Content-Length: 5"))
    wait, interim = took(c.head)
    equal(interim.status, 100, "interim status")
    check(0.28 < wait < 0.9, "100 came after", wait)
    r = c.send(b"hello").response()
    equal((r.status, len(r.interim)), (201, 0), "final answer, further interim ones")


@test("sn-465db3d2", "H1-05")
def interim_answers_reach_clients_that_know_them(lab):
    two = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n"
    gw = lab.gateway(routes={"sb1": lab.backend(plays(two + answer(200, body=b"ok")))})
    r = gw.client().ask("GET", P + "/")
    equal([(i.status, i.get("link")) for i in r.interim], [(103, "</a.css>"), (103, "</b.css>")], "interim heads")
    equal((r.status, r.body), (200, b"ok"), "final")
    r = gw.client().ask("GET", P + "/", version="HTTP/1.0")
    equal(([i.status for i in r.interim], r.status, r.body), ([], 200, b"ok"), "to a 1.0 client")
    gw.access(2, status=200)
    equal(gw.metric("ingress_http_request_count", http_status_code="200"), 2, "requests counted as 200")
    equal(gw.metric("ingress_http_request_count"), 2, "requests counted")


@test("H1-05")
def each_interim_answer_starts_the_wait_anew(lab):
    def script(conn):
        conn.request()
        for line in (b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n", answer(200, body=b"ok")):
            time.sleep(0.5)
            conn.send(line)
    gw = lab.gateway("--response-timeout=800ms", routes={"sb1": lab.backend(script)})
    r = gw.client().ask("GET", P + "/")
    equal(([i.status for i in r.interim], r.status, r.body), ([103, 102], 200, b"ok"), "heads in order")


@test("sn-f4c413b6")
def trailers_reach_the_client(lab):
    data = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello", trailers="X-Sum: 5d41\r\n")
    gw = lab.gateway(routes={"sb1": lab.backend(plays(data))})
    r = gw.client().ask("GET", P + "/", "TE: trailers", "Connection: TE")
    equal((r.body, list(r.trailers)), (b"hello", [("X-Sum", "5d41")]), "body and trailers")


@test("sn-f4c413b6")
def request_trailers_reach_the_backend(lab):
    b = lab.backend(plays(answer(200)))
    gw = lab.gateway(routes={"sb1": b})
    gw.client().send(request("POST", P + "/", "Transfer-Encoding: chunked", "Trailer: X-Sum", "TE: trailers", "Connection: TE")
                     + chunked(b"hello", trailers="X-Sum: 5d41\r\n")).response()
    equal((b.last.body, list(b.last.trailers), b.last.get("te")), (b"hello", [("X-Sum", "5d41")], "trailers"), "at the backend")


@test("sn-d749ef47", "sn-f7b5b2b5")
def body_and_its_description_are_not_touched(lab):
    packed = bytes.fromhex("1f8b0800000000000203cb48cdc9c9070086a6103605000000")
    data = {"/gzip": answer(200, "Content-Encoding: gzip", body=packed), "/html": answer(200, body=b"<html>")}

    def script(conn):
        while True:
            r = conn.request()
            conn.send(data[r.target])
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    r = c.ask("GET", P + "/gzip")
    equal((r.body, r.get("content-encoding"), r.get("content-length")), (packed, "gzip", str(len(packed))), "gzip answer")
    check(not b.last.has("accept-encoding"), "Accept-Encoding was made up:", b.last.raw)
    check(not b.last.has("user-agent"), "User-Agent was made up:", b.last.raw)
    r = c.ask("GET", P + "/html")
    equal((r.body, r.all("content-type"), r.has("server")), (b"<html>", [], False), "untyped answer")
    check(r.has("date"), "no Date in", r.raw)


@test("sn-465db3d2")
def every_1xx_answer_passes_without_hop_by_hop_fields(lab):
    first = b"HTTP/1.1 104 Upload Resumption\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=3\r\nX-End: 2\r\n\r\n"
    gw = lab.gateway(routes={"sb1": lab.backend(plays(first + answer(204)[:-21] + b"\r\n\r\n"))})
    r = gw.client().ask("GET", P + "/")
    equal([i.status for i in r.interim], [104], "interim")
    equal([n.lower() for n, _ in r.interim[0].fields], ["x-end"], "fields of the interim head")


# ---- scenarios: the backend in trouble

@test("sn-183292b4")
def backend_that_refuses_is_502_with_a_text(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    b.stop()
    r = gw.client().ask("GET", P + "/")
    equal((r.status, r.text), (502, BRAND + "upstream connection failed\n"), "answer")


@test("sn-ef27c5a2")
def backend_that_drops_packets_is_504(lab):
    gw = lab.gateway("--connect-timeout=1s", routes={"sb1": lab.deaf()})
    seconds, r = took(lambda: gw.client().ask("GET", P + "/"))
    equal((r.status, r.text), (504, BRAND + "upstream connection timed out\n"), "answer")
    check(0.9 < seconds < 2.0, "after", seconds)
    equal(gw.metric("ingress_upstream_connect_count", connect_result="timeout"), 1, "timeouts counted")


@test("sn-ef27c5a2", "sn-e92d9f88")
def connect_that_the_client_gives_up_is_counted_as_canceled(lab):
    gw = lab.gateway(routes={"sb1": lab.deaf()})
    c = gw.client().send(request("GET", P + "/"))
    time.sleep(0.1)
    c.close()
    gw.access(1, why="client-gone")
    equal(gw.metric("ingress_upstream_connect_count", connect_result="canceled"), 1, "canceled connects")
    equal(gw.metric("ingress_upstream_connect_count"), 1, "connects")
    equal(gw.logged("ingress: reverse proxy upstream error"), [], "backend faults logged")


@test("sn-b08e6fcd")
def body_with_length_that_breaks_off_cuts_the_client(lab):
    for then in ("rst", "close"):
        data = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50
        gw = lab.gateway(routes={"sb1": lab.backend(plays(data, then))})
        c = gw.client()
        r = c.ask("GET", P + "/")
        equal((r.status, r.body, r.whole), (200, b"x" * 50, False), f"answer, {then}")
        check(r.end in ("fin", "reset"), "not cut but", r.end)
        gw.access(1, status=200, why="origin-gone")


@test("sn-86a719b8", "STR-02")
def chunked_body_that_breaks_off_gets_no_last_chunk(lab):
    for then in ("rst", "close"):
        data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello", last=False)
        gw = lab.gateway(routes={"sb1": lab.backend(plays(data, then))})
        c = gw.client()
        r = c.ask("GET", P + "/")
        equal((r.status, r.body, r.whole), (200, b"hello", False), f"answer, {then}")
        check(r.end in ("fin", "reset"), "not cut but", r.end)
        check(b"0\r\n\r\n" not in bytes(c.seen), "a last chunk:", bytes(c.seen))
        check(b"OpenSandbox Ingress" not in bytes(c.seen), "text added:", bytes(c.seen))


@test("sn-86a719b8")
def body_until_eof_that_breaks_off_is_no_clean_end(lab):
    """To a 1.0 client only a reset tells a cut body from a whole one."""
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello", last=False)
    gw = lab.gateway(routes={"sb1": lab.backend(plays(data, "rst"))})
    c = gw.client().send(request("GET", P + "/", version="HTTP/1.0"))
    r = c.head()
    check(not r.has("transfer-encoding"), "chunked to a 1.0 client:", r.raw)
    equal(c.ending(), "reset", "ending")


@test("sn-183292b4", "H1-10")
def backend_that_dies_before_its_head_is_502(lab):
    for data in (b"", b"HTTP/1.1 200 OK\r\nContent-Le"):
        for then in ("close", "rst"):
            gw = lab.gateway(routes={"sb1": lab.backend(plays(data, then))})
            r = gw.client().ask("GET", P + "/")
            equal((r.status, r.text), (502, BRAND + "upstream closed the connection before answering\n"), f"{data} {then}")


@test("sn-183292b4")
def backend_that_answers_garbage_is_502(lab):
    for data in (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"HTTP/1.1 99 X\r\n\r\n", b"HTTP/2.0 200 OK\r\n\r\n",
                 b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nxx",
                 b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nFo o: 1\r\n\r\n",
                 b"HTTP/1.1 200 OK\r\nA: 1\r\n b\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
                 b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"):
        gw = lab.gateway(routes={"sb1": lab.backend(plays(data, "hold"))})
        r = gw.client().ask("GET", P + "/")
        equal((r.status, r.text), (502, BRAND + "upstream sent an invalid response\n"), repr(data))


def dies_when_reused(conn):
    """Answers one request and takes a second one without a word."""
    conn.answer(answer(200, body=b"fresh"))
    conn.request()
    conn.rst() if conn.number % 2 else conn.close()


@test("sn-f8a8c1ac", "H1-07")
def request_on_a_dead_pooled_connection_is_repeated_if_that_is_safe(lab):
    b = lab.backend(dies_when_reused)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    for method, body in (("GET", None), ("HEAD", None), ("PUT", b"data"), ("DELETE", None), ("OPTIONS", None), ("TRACE", None)):
        for fields in ((), ("Connection: close",)):
            c = gw.client()
            equal(c.ask("GET", P + "/warm").status, 200, "first request")
            before = len(b.requests)
            r = c.ask(method, P + "/again", *fields, body=body)
            equal(r.status, 200, f"{method} on a dead connection")
            equal([(q.method, q.body) for q in b.requests[before:]], [(method, body or b"")] * 2, "at the backend")
            c.close()
            b.hang_up()
    equal(gw.metric("sallyport_retries_total"), 12, "retries")


@test("sn-f8a8c1ac", "H1-07")
def post_that_was_written_is_not_repeated(lab):
    b = lab.backend(dies_when_reused)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    for method in ("POST", "PATCH", "BREW"):
        c = gw.client()
        equal(c.ask("GET", P + "/warm").status, 200, "first request")
        before = len(b.requests)
        r = c.ask(method, P + "/again", body=b"data")
        equal((r.status, r.text), (502, BRAND + "upstream closed the connection before answering\n"), method)
        equal(len(b.requests) - before, 1, "times at the backend")


@test("sn-f8a8c1ac", "H1-07")
def post_with_an_idempotency_key_is_repeated(lab):
    b = lab.backend(dies_when_reused)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    for name in ("Idempotency-Key", "X-Idempotency-Key"):
        c = gw.client()
        c.ask("GET", P + "/warm")
        equal(c.ask("POST", P + "/again", f"{name}: k1", body=b"data").status, 200, name)
        equal(b.last.body, b"data", "body of the second try")
        c.close()
        b.hang_up()


@test("sn-f8a8c1ac", "H1-07")
def body_that_is_sent_again_is_the_same_body(lab):
    """Up to 64 KiB are kept for a second try; a longer body is sent once, and 502 says so."""
    def script(conn):
        conn.answer(answer(200, body=b"fresh"))
        conn.head()
        if not conn.buf:
            conn.more()
        conn.rst()
    for coding in ("length", "chunked"):
        for size in (1, 30000, 65536, 300000):
            b = lab.backend(lambda conn: script(conn) if conn.number == 0 else conn.answer(answer(200, body=b"again")))
            gw = lab.gateway("--workers=1", routes={"sb1": b})
            body = random.randbytes(size)
            c = gw.client()
            c.ask("GET", P + "/warm")
            if coding == "length":
                c.send(request("PUT", P + "/x", f"Content-Length: {size}") + body)
            else:
                c.send(request("PUT", P + "/x", "Transfer-Encoding: chunked", "Trailer: X-T") + chunked(body[:size // 2 + 1], *([body[size // 2 + 1:]] if size > 1 else []), trailers="X-T: 1\r\n"))
            r = c.response()
            check(r.status == 200 or (r.status == 502 and size > 65536), f"{coding} {size}", r.status)
            if r.status == 200:
                equal((b.last.body == body, b.last.whole), (True, True), f"{coding}: the body of {size} bytes at the backend")
                equal(list(b.last.trailers), [("X-T", "1")] if coding == "chunked" else [], "trailers")
            else:
                equal([q.method for q in b.requests], ["GET", "PUT"], "a body that was not kept is not sent again")


@test("sn-f8a8c1ac")
def nothing_is_repeated_on_a_fresh_connection(lab):
    b = lab.backend(plays(b""))
    gw = lab.gateway(routes={"sb1": b})
    equal(gw.client().ask("GET", P + "/").status, 502, "status")
    equal(len(b.requests), 1, "times at the backend")


@test("sn-f8a8c1ac", "H1-07")
def nothing_is_repeated_once_an_answer_has_begun(lab):
    def script(conn):
        conn.answer(answer(200))
        conn.answer(b"HTTP/1.1 2")
    b = lab.backend(script)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    c = gw.client()
    c.ask("GET", P + "/")
    equal(c.ask("GET", P + "/").status, 502, "status")
    equal(len(b.requests), 2, "requests at the backend")


@test("sn-e92d9f88", "STR-03")
def client_that_leaves_ends_the_backend_side(lab):
    for leave in ("fin", "rst"):
        held = threading.Event()

        def script(conn):
            conn.request()
            held.set()
            conn.ended = conn.ending(5)
        b = lab.backend(script)
        gw = lab.gateway(routes={"sb1": b})
        c = gw.client().send(request("GET", P + "/"))
        held.wait(5)
        c.rst() if leave == "rst" else c.close()
        seconds, _ = took(lambda: wait_for(lambda: b.conns[0].ended in ("fin", "reset"), "the end of the backend connection"))
        check(seconds < 1, "after", seconds)
        gw.access(1, why="client-gone")
        equal(gw.metric("sallyport_exchanges_ended_total", why="origin-gone"), 0, "backend faults")
        equal(gw.logged("ingress: reverse proxy upstream error"), [], "backend faults logged")


@test("sn-eabaef5e")
def each_answer_belongs_to_its_own_request(lab):
    wires = {"/head": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "/304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
             "/204": b"HTTP/1.1 204 No Content\r\n\r\n", "/200": answer(200, body=b"last")}

    def script(conn):
        while True:
            conn.send(wires[conn.request().target])
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    r = c.ask("HEAD", P + "/head")
    equal((r.status, r.get("content-length"), r.body), (200, "10", b""), "HEAD")
    r = c.ask("GET", P + "/304")
    equal((r.status, r.body), (304, b""), "304")
    r = c.ask("GET", P + "/204")
    equal((r.status, r.body, r.has("content-length")), (204, b"", False), "204")
    r = c.ask("GET", P + "/200")
    equal((r.status, r.body), (200, b"last"), "200")
    equal(len(b.conns), 1, "backend connections")


# ---- scenarios: the client's faults

@test("sn-239e0abb", "H1-01")
def two_lengths_are_refused(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    head = f"POST {P}/x HTTP/1.1\r\nHost: gw.test\r\n".encode()
    for lengths in (b"Content-Length: 0\r\nContent-Length: 37\r\n", b"Content-Length: 0, 37\r\n", b"Content-Length: +5\r\n",
                    b"Content-Length: -1\r\n", b"Content-Length: 0x5\r\n", b"Content-Length: 5 5\r\n", b"Content-Length: \r\n",
                    b"Content-Length: 99999999999999999999\r\n", b"Content-Length : 0\r\n"):
        refused(gw, head + lengths + b"\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", 400)
    equal(len(b.conns), 0, "backend connections")


@test("sn-cf7a20b4", "H1-01")
def length_and_coding_in_one_request_are_refused(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    for version in ("1.1", "1.0"):
        for coding in ("chunked", "chunked,", "chunked ", "chunked, gzip", "gzip, chunked", "CHUNKED", "xchunked", "chunked\r\nTransfer-Encoding: chunked"):
            raw = f"POST {P}/x HTTP/{version}\r\nHost: gw.test\r\nContent-Length: 4\r\nTransfer-Encoding: {coding}\r\n\r\n".encode() + SMUGGLED
            refused(gw, raw, 400, 501)
    equal(len(b.conns), 0, "backend connections")


@test("H1-01")
def transfer_coding_that_is_not_just_chunked_is_refused(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    for coding, statuses in (("chunked, chunked", (400, 501)), ("chunked, gzip", (400, 501)), ("gzip", (400, 501)), ("gzip, chunked", (501,)),
                             ("xchunked", (400, 501)), ("identity", (400, 501)), ("chunked;a=b", (400, 501)), ("\x0bchunked", (400, 501)),
                             ("\"chunked\"", (400, 501)), ("", (400, 501))):
        raw = f"POST {P}/x HTTP/1.1\r\nHost: gw.test\r\nTransfer-Encoding: {coding}\r\n\r\n".encode() + SMUGGLED
        refused(gw, raw, *statuses)
    raw = f"POST {P}/x HTTP/1.0\r\nHost: gw.test\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + SMUGGLED
    refused(gw, raw, 400)
    equal(len(b.conns), 0, "backend connections")


@test("sn-9f38b85b", "sn-32eda428")
def request_without_or_with_two_hosts_is_refused(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    refused(gw, f"GET {P}/ HTTP/1.1\r\n\r\n".encode(), 400)
    refused(gw, f"GET {P}/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".encode(), 400)
    refused(gw, f"GET {P}/ HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n".encode(), 400)
    refused(gw, f"GET {P}/ HTTP/1.1\r\nHost: a b\r\n\r\n".encode(), 400)
    refused(gw, f"GET {P}/ HTTP/1.1\r\nHost: user@gw.test\r\n\r\n".encode(), 400)
    refused(gw, b"GET / HTTP/1.1\r\n\r\n", 400)
    equal(len(b.conns), 0, "backend connections")


@test("sn-9f38b85b")
def old_client_needs_no_host(lab):
    gw = lab.gateway(routes={"sb1": lab.backend()})
    c = gw.client()
    r = c.ask("GET", P + "/", version="HTTP/1.0", host=None)
    equal(r.status, 200, "status")
    equal(c.ending(), "fin", "ending")


@test("sn-9f38b85b")
def old_client_may_keep_its_connection(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(says("ok"))})
    c = gw.client()
    for _ in range(3):
        r = c.ask("GET", P + "/", "Connection: keep-alive", version="HTTP/1.0")
        equal((r.status, r.body, (r.get("connection") or "").lower()), (200, b"ok", "keep-alive"), "answer")
    r = c.ask("GET", P + "/", "Connection: close")
    equal((r.get("connection"), c.ending()), ("close", "fin"), "close that was asked for")


@test("H1-01")
def bare_cr_lf_and_folded_lines_are_refused(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    for head in (f"GET {P}/ HTTP/1.1\nHost: x\n\n", f"GET {P}/ HTTP/1.1\r\nHost: x\n\r\n", f"GET {P}/ HTTP/1.1\rHost: x\r\r",
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA: b\rc: d\r\n\r\n", f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", f"GET {P}/ HTTP/1.1\r\n Host: x\r\n\r\n",
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", f"GET {P}/ HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA b\r\n\r\n", f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
                 f"GET {P}/ HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n", f"GET  {P}/ HTTP/1.1\r\nHost: x\r\n\r\n",
                 f"GET {P}/ x HTTP/1.1\r\nHost: x\r\n\r\n", f"GET {P}/\tHTTP/1.1\r\nHost: x\r\n\r\n", f"G@T {P}/ HTTP/1.1\r\nHost: x\r\n\r\n",
                 f"GET {P}/\r\nHost: x\r\n\r\n", f"GET {P}/ HTTP/1.1 \r\nHost: x\r\n\r\n", f"GET {P}/ http/1.1\r\nHost: x\r\n\r\n"):
        refused(gw, head.encode("latin-1"), 400)
    equal(len(b.conns), 0, "backend connections")


@test("H1-08")
def other_versions_are_505(lab):
    gw = lab.gateway(routes={"sb1": lab.backend()})
    for version in ("HTTP/3.0", "HTTP/2.0", "HTTP/1.2", "HTTP/0.9"):
        refused(gw, f"GET {P}/ {version}\r\nHost: x\r\n\r\n".encode(), 505)


@test("sn-39bb2569")
def pipelined_requests_are_answered_in_order_each_by_its_own_sandbox(lab):
    gw = lab.gateway(routes={"sb1": lab.backend(says("one")), "sb2": lab.backend(says("two"))})
    c = gw.client().send(request("GET", P + "/a") + request("GET", P2 + "/b"))
    equal((c.response().body, c.response().body), (b"one", b"two"), "answers")
    c.send(b"".join(request("POST", (P, P2)[i % 2] + "/", body=b"x" * i) for i in range(40)))
    equal([c.response().body for _ in range(40)], [b"one", b"two"] * 20, "answers of a long pipeline")
    c.send(request("GET", P + "/a") + request("GET", "/nowhere") + request("GET", P2 + "/b"))
    equal([c.response().status for _ in range(3)], [200, 400, 200], "a refusal in the middle of a pipeline")


@test("sn-39bb2569")
def pipeline_ends_with_the_request_that_cannot_be_framed(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client().send(request("GET", P + "/a") + f"POST {P}/b HTTP/1.1\r\nHost: x\r\nContent-Length: z\r\n\r\n".encode() + request("GET", P + "/c"))
    equal([c.response().status for _ in range(2)], [200, 400], "answers")
    equal((c.ending() in ("fin", "reset"), c.buf), (True, b""), "what follows")
    equal(len(b.requests), 1, "requests at the backend")


# ---- H1

@test("H1-02")
def answer_with_length_and_coding_has_one_framing_and_its_connection_is_not_used_again(lab):
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"

    def script(conn):
        while True:
            conn.answer(data)
    b = lab.backend(script)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    c = gw.client()
    for i in range(2):
        r = c.ask("GET", P + "/x")
        check(r.status == 502 or (r.body == b"hello" and r.has("transfer-encoding")), "answer", r.raw)
    equal([len(b.conns), len(b.requests)], [2, 2], "backend connections and requests")


@test("H1-03")
def connection_options_do_not_take_our_own_fields(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().ask("GET", P + "/", "Connection: keep-alive", "Connection: x-forwarded-host ,X-Request-Id,\tx-hop,X-Forwarded-For", "X-Hop: 1",
                        "Proxy-Authenticate: Basic", "Proxy-Authorization: Basic eDp5", "Keep-Alive: timeout=5", "TE: deflate, trailers")
    equal(r.status, 200, "status")
    seen = b.last
    equal((seen.all("x-forwarded-host"), seen.all("x-forwarded-for")), (["gw.test"], ["127.0.0.1"]), "forwarding fields")
    equal(len(seen.all("x-request-id")), 1, "request ids")
    for name in ("x-hop", "proxy-authenticate", "proxy-authorization", "keep-alive"):
        check(not seen.has(name), name, "passed")
    check(seen.all("te") in ([], ["trailers"]), "TE", seen.all("te"))


@test("H1-04")
def connection_level_fields_of_an_answer_stay_here(lab):
    fields = "Connection: X-Int, keep-alive\r\nX-Int: a\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\nTrailer: X-T\r\nX-End: 1\r\n"
    for status in (200, 404, 500):
        data = f"HTTP/1.1 {status} X\r\n{fields}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(b"hello")
        gw = lab.gateway(routes={"sb1": lab.backend(plays(data))})
        r = gw.client().ask("GET", P + "/")
        equal((r.status, r.body, r.get("x-end")), (status, b"hello", "1"), "answer")
        for name in ("x-int", "keep-alive", "proxy-authenticate", "trailer"):
            check(not r.has(name), name, "passed with", status)


def refuses_unread(conn):
    """Answers at the head, reads no body."""
    conn.head()
    conn.send(answer(401, body=b"no"))
    conn.ending(5)


def asks_first(lab, script, body=b"x" * 300000):
    """Uploads with Expect and, like curl, sends the body when asked or after a second: (answer, asked after)."""
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    c = gw.client().send(request("PUT", P + "/up", "Expect: 100-continue", f"Content-Length: {len(body)}"))
    seconds, first = took(c.head)
    if first.status == 100:
        c.send(body)
        return c, c.response(), seconds
    c.read_body(first, False)
    return c, first, seconds


@test("H1-06")
def upload_that_asks_first_is_asked_by_the_backend(lab):
    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        conn.exact(300000)
        conn.send(answer(200, body=b"all"))
    _, r, seconds = asks_first(lab, script)
    equal((r.status, r.body, [i.status for i in r.interim]), (200, b"all", []), "answer")
    check(seconds < 0.5, "asked after", seconds)


@test("H1-06")
def upload_that_asks_first_goes_on_after_a_second(lab):
    def script(conn):
        r = conn.head()
        equal(r.get("expect"), "100-continue", "Expect at the backend")
        conn.exact(300000)
        conn.send(answer(200, body=b"all"))
    _, r, seconds = asks_first(lab, script)
    equal((r.status, r.body), (200, b"all"), "answer")
    check(0.8 < seconds < 1.5, "asked after", seconds)


@test("H1-06")
def upload_that_asks_first_may_be_refused_at_once(lab):
    c, r, seconds = asks_first(lab, refuses_unread)
    equal((r.status, r.body), (401, b"no"), "answer")
    check(seconds < 0.5, "after", seconds)
    equal(r.get("connection"), "close", "connection")
    equal(c.ending(), "fin", "ending")


@test("H1-06")
def expectation_is_not_passed_to_a_client_that_did_not_ask(lab):
    def script(conn):
        conn.head()
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        conn.exact(2)
        conn.send(answer(200, body=b"ok"))
    gw = lab.gateway(routes={"sb1": lab.backend(script)})
    r = gw.client().ask("PUT", P + "/", body=b"xy")
    equal((r.status, r.body), (200, b"ok"), "a 100 nobody asked for is not the final head")


@test("H1-07")
def connections_that_the_backend_closes_just_now_cost_no_request(lab):
    idle = 0.03

    def script(conn):
        conn.patience = 5
        while True:
            r = conn.request()
            conn.send(answer(200, body=r.get("x-n").encode()))
            conn.patience = idle
    b = lab.backend(script)
    gw = lab.gateway("--workers=1", routes={"sb1": b})
    c = gw.client()
    for i in range(60):
        method = ("GET", "PUT", "DELETE")[i % 3]
        time.sleep(idle + random.uniform(-0.004, 0.004))
        r = c.ask(method, P + "/", f"X-N: {i}", body=b"x" if method == "PUT" else None)
        equal((r.status, r.body), (200, b"%d" % i), method)
    posts = 0
    for i in range(100, 130):
        time.sleep(idle + random.uniform(-0.004, 0.004))
        r = c.ask("POST", P + "/", f"X-N: {i}", body=b"x")
        check(r.status in (200, 502), "POST", r.status)
        posts += 1
    seen = [q.get("x-n") for q in b.requests if q.method == "POST"]
    equal(len(seen), len(set(seen)), "POSTs at the backend, each once")


@test("H1-08")
def authority_of_an_absolute_target_replaces_host(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().ask("GET", f"http://other.test{P}/a?b", host="gw.test")
    equal((r.status, b.last.target, b.last.get("x-forwarded-host")), (200, "/a?b", "other.test"), "at the backend")
    equal(b.last.all("host"), [b.address], "Host")
    r = gw.client().ask("GET", "http://sb1-3000.gw.test", host="other.test")
    equal((r.status, b.last.target, b.last.get("x-forwarded-host")), (200, "/", "sb1-3000.gw.test"), "without a path")
    for target in ("http://", "http:///x", "http://user@gw.test/x", "http://gw.test:x/", "ftp://gw.test/"):
        r = gw.client().ask("GET", target)
        check(r.status == 400, target, r.status)


@test("H1-08")
def targets_that_are_no_path_are_not_routed(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client().ask("OPTIONS", "*")
    equal((r.status, r.body), (200, b""), "OPTIONS *")
    for mode in ("auto", "header", "uri"):
        other = lab.gateway(f"--mode={mode}", routes={"sb1": b})
        r = other.client().ask("CONNECT", "x:443", host="x:443")
        equal((r.status, r.text), (400, BRAND + "missing URI path\n"), f"CONNECT, {mode}")
        r = other.client().ask("CONNECT", "sb1-3000:443", "OpenSandbox-Ingress-To: sb1-3000", host="sb1-3000")
        equal(r.status, 400, f"CONNECT with a route, {mode}")
    refused(gw, b"GET foo HTTP/1.1\r\nHost: x\r\n\r\n", 400)
    refused(gw, b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400)
    equal(len(b.conns), 0, "backend connections")


@test("H1-08")
def trace_and_unknown_methods_are_the_applications(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    for method in ("TRACE", "PROPFIND", "M-SEARCH", "brew", "X!#$%&'*+-.^_`|~"):
        r = gw.client().ask(method, P + "/", "OpenSandbox-Secure-Access: s3cret", "OpenSandbox-Ingress-To: sb1-3000")
        equal((r.status, b.last.method), (200, method), "method")
        check(b"s3cret" not in b.last.raw and b"ngress-" not in b.last.raw, "our credentials at the backend", b.last.raw)


@test("H1-09")
def slow_heads_end_at_their_deadline_and_hurt_nobody(lab):
    """Scaled down: 300 connections, a byte each 200 ms, a head deadline of 1 s."""
    n = 300
    gw = lab.gateway("--head-timeout=1s", routes={"sb1": lab.backend(says("ok"))})
    gw.client().ask("GET", P + "/")
    before = gw.rss()
    slow = [gw.client() for _ in range(n)]
    start, worst = time.monotonic(), 0.0
    head = request("GET", P + "/")
    held = 0
    for i in range(5):
        for c in slow:
            c.offer(head[i:i + 1])
        seconds, r = took(lambda: gw.client().ask("GET", P + "/"))
        equal(r.status, 200, "a normal request meanwhile")
        worst = max(worst, seconds)
        held = max(held, gw.rss() - before)
        time.sleep(0.15)
    for c in slow:
        check(c.ending() in ("fin", "reset"), "a slow connection stays open")
        check(c.buf == b"" or c.buf.startswith(b"HTTP/1.1 408 "), "said", c.buf)
    seconds = time.monotonic() - start
    check(0.9 < seconds < 3, "closed after", seconds)
    check(worst < 0.1 * lab.slow, "a normal request took", worst)
    check(held < n * 16384 * lab.fat, "held per connection:", held // n)


@test("H1-11")
def no_client_reads_anothers_answer(lab):
    """Scaled down: 24 clients for 2.5 s, half of the exchanges broken off somewhere."""
    def script(conn):
        while True:
            r = conn.head()
            kind, me = r.get("x-kind"), r.get("x-n").encode()
            time.sleep(random.uniform(0, 0.01))
            if kind == "early":
                conn.send(answer(200, body=me))
            conn.read_body(r, r.framing(False)[0] == "eof")
            if kind == "early":
                continue
            if kind == "interim":
                conn.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            if r.method == "HEAD":
                conn.send(b"HTTP/1.1 200 OK\r\nX-N: %s\r\nContent-Length: 70\r\n\r\n" % me)
            elif kind == "304":
                conn.send(b"HTTP/1.1 304 Not Modified\r\nX-N: %s\r\nContent-Length: 70\r\n\r\n" % me)
            elif kind == "chunked":
                conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(me))
            else:
                conn.send(answer(200, f"X-N: {me.decode()}", body=me))
    b = lab.backend(script)
    b.script = script
    gw = lab.gateway(routes={"sb1": b})
    wrong, done, stop = [], [0], time.monotonic() + 2.5

    def one(c, n):
        kind = random.choice(["plain", "early", "interim", "304", "chunked", "head"])
        method = "HEAD" if kind == "head" else "POST" if kind in ("early", "plain") else "GET"
        raw = request(method, P + "/", f"X-N: {n}", f"X-Kind: {kind}", body=b"b" * 2000 if method == "POST" else None)
        if random.random() < 0.5:
            where = random.choice(["head", "body", "answer"])
            c.send(raw if where == "answer" else raw[:random.randrange(1, len(raw))])
            time.sleep(random.uniform(0, 0.01))
            c.rst() if random.random() < 0.5 else c.close()
            return False
        c.send(raw)
        r = c.response(method)
        seen = r.get("x-n") if r.status == 304 or method == "HEAD" else r.text
        if r.status != 502 and seen != n:
            wrong.append((n, kind, seen, r.raw))
        done[0] += 1
        return r.get("connection") != "close"

    def loop(k):
        c, i = Client(gw.port), 0
        while time.monotonic() < stop:
            i += 1
            try:
                keep = one(c, f"{k}.{i}")
            except (Ended, Late, Failed) as e:
                wrong.append((k, i, repr(e)))
                keep = False
            if not keep:
                c.close()
                c = Client(gw.port)
        c.close()
    threads = [threading.Thread(target=loop, args=(k,)) for k in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    b.faults = []
    equal(wrong[:3], [], "wrong answers")
    check(done[0] > 100, "only", done[0], "answers")


BAD_BODIES = {
    "a bare LF after the extension": b"5;\nhello\r\n0\r\n\r\n",
    "a bare LF after the data": b"5\r\nhello\n0\r\n\r\n",
    "a blank after the size": b"5 \r\nhello\r\n0\r\n\r\n",
    "a blank before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "a size that wraps": b"FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "17 digits": b"00000000000000005\r\nhello\r\n0\r\n\r\n",
    "no line end after the data": b"5\r\nhelloXX0\r\n\r\n",
    "an endless extension": b"5;" + b"a" * 70000 + b"\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a bare CR": b"5\rhello\r\n0\r\n\r\n",
    "a bare LF": b"5\nhello\n0\n\n",
    "a trailer that is no field": b"5\r\nhello\r\n0\r\nnonsense\r\n\r\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n",
}


@test("H1-12")
def request_with_a_doubtful_chunk_line_is_refused(lab):
    def script(conn):
        conn.request()
        conn.ending(5)
    b = lab.backend(script)
    gw = lab.gateway(routes={"sb1": b})
    for what, body in BAD_BODIES.items():
        c = gw.client()
        c.offer(request("POST", P + "/x", "Transfer-Encoding: chunked") + body + request("GET", "/smuggled"))
        r = c.response()
        equal(r.status, 400, what)
        check(c.ending() in ("fin", "reset") and c.buf == b"", "the connection goes on after", what)
    check(all(q.end != "whole" for q in b.requests), "a broken body was passed on as whole")
    check(not any(b"smuggled" in bytes(c.seen) for c in b.conns), "a smuggled request")


@test("H1-12")
def answer_with_a_doubtful_chunk_line_is_cut(lab):
    b = lab.backend(lambda conn: None)
    gw = lab.gateway(routes={"sb1": b})
    for what, body in BAD_BODIES.items():
        b.script = plays(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, "hold")
        c = gw.client()
        r = c.ask("GET", P + "/")
        check(r.status == 502 or not r.whole, what, "passed as", r.body)
        check(c.ending(5) in ("fin", "reset"), "the connection goes on after", what)


@test("H1-12")
def chunk_lines_are_written_anew(lab):
    b = lab.backend(plays(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"005;name=\"a;b\"\r\nhello\r\n3;x\r\n, y\r\n00000\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: h\r\nX-T: 1\r\n\r\n"))
    gw = lab.gateway(routes={"sb1": b})
    c = gw.client()
    r = c.send(request("POST", P + "/", "Transfer-Encoding: chunked", "TE: trailers")
               + b"5;ext=1\r\nhello\r\n0\r\nContent-Length: 5\r\nX-T: 1\r\nOpenSandbox-Secure-Access: t\r\n\r\n").response()
    equal((r.body, list(r.trailers)), (b"hello, y", [("X-T", "1")]), "answer and its trailers")
    check(b";" not in bytes(c.seen).partition(b"\r\n\r\n")[2], "an extension passed")
    equal((b.last.body, list(b.last.trailers)), (b"hello", [("X-T", "1")]), "request and its trailers")
    check(b"ext=1" not in bytes(b.conns[0].seen), "an extension passed to the backend")


@test("H1-13")
def preflight_is_an_ordinary_request(lab):
    fields = ("Origin: https://a.test", "Access-Control-Request-Method: PUT")
    b = lab.backend(plays(answer(204, "Access-Control-Allow-Origin: https://a.test", "Access-Control-Allow-Methods: PUT").replace(b"Content-Length: 0\r\n", b"")))
    gw = lab.gateway(routes={"sb1": b, "sb2": secure(b)})
    r = gw.client().ask("OPTIONS", P + "/api", *fields)
    equal((r.status, b.last.method, b.last.get("origin")), (204, "OPTIONS", "https://a.test"), "open sandbox")
    equal([v for n, v in r.fields if n.lower().startswith("access-control-")], ["https://a.test", "PUT"], "its fields")
    r = gw.client().ask("OPTIONS", P2 + "/api", *fields)
    equal(r.status, 401, "secure sandbox")
    check(not any(n.lower().startswith("access-control-") for n, _ in r.fields), "fields of our own:", r.raw)


@test("H1-14")
def ipv6_endpoints_are_dialled_and_named_in_brackets(lab):
    lab.alone()
    lab.ip("addr", "add", "2001:db8::7/128", "dev", "lo", "nodad")
    loop, wide = lab.backend(host="::1"), lab.backend(host="2001:db8::7")
    gw = lab.gateway(routes={"sb1": loop, "sb2": {"address": "2001:db8::7"}, "sb3": {"address": "[2001:db8::7]"}, "sb4": {"address": "fe80::1"}})
    r = gw.client().ask("GET", P + "/")
    equal((r.status, loop.last.get("host")), (200, loop.address), "loopback")
    for sb in ("sb2", "sb3"):
        r = gw.client().ask("GET", f"/sandboxes/{sb}/port/{wide.port}/")
        equal((r.status, wide.last.get("host")), (200, f"[2001:db8::7]:{wide.port}"), sb)
    r = gw.client().ask("GET", "/sandboxes/sb4/port/3000/")
    equal((r.status, r.text), (502, BRAND + "sandbox address is not allowed\n"), "link-local")


@test("H1-14")
def client_may_come_over_ipv6(lab):
    b = lab.backend()
    gw = lab.gateway(routes={"sb1": b})
    r = gw.client(host="::1").ask("GET", P + "/", host=f"[::1]:{gw.port}")
    equal((r.status, b.last.get("x-forwarded-for"), b.last.get("x-forwarded-host")), (200, "::1", f"[::1]:{gw.port}"), "at the backend")
