"""Routes over REST in the running program: they count for traffic when they are answered, stand in the file whatever happens,
and live with people who edit that file by hand."""
import json
import os
import signal
import threading
import time

from lib import Ended, Late, check, entry, equal, request, says, secure, test, wait_for
from wire import Client

TOKEN = "canary-admin-token"


def token_file(lab, text=TOKEN):
    path = os.path.join(lab.dir, "admin-token")
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(text + "\n")
    os.rename(path + ".new", path)
    return path


def api(lab, *flags, **how):
    return lab.gateway(f"--admin-token-file={token_file(lab)}", *flags, **how)


def call(gw, method, path, *fields, body=None, token=TOKEN):
    c = Client(gw.admin_port)
    try:
        auth = [f"Authorization: Bearer {token}"] if token else []
        data = json.dumps(body).encode() if body is not None else None
        return c.ask(method, path, "Connection: close", *auth, *fields, body=data, host="admin")
    finally:
        c.close()


def ask(gw, sandbox="sb1"):
    """Who answers for a sandbox, or the status."""
    r = gw.client().ask("GET", f"/sandboxes/{sandbox}/port/3000/", "Connection: close")
    return r.text if r.status == 200 else r.status


def on_disk(gw):
    with open(gw.routes_file, encoding="utf-8") as f:
        return json.load(f)["sandboxes"]


@test("ROUTES-7.4")
def a_route_counts_on_every_worker_when_it_is_answered(lab):
    a, b = lab.backend(says("A")), lab.backend(says("B"))
    gw = api(lab, "--workers=4")
    for i in range(12):
        r = call(gw, "PUT", "/routes/sb1", body=entry((a, b)[i % 2]))
        equal(r.status, 200 if i else 201, "status")
        for _ in range(8):
            equal(ask(gw), "AB"[i % 2], f"who answers after change {i}")
    equal(call(gw, "DELETE", "/routes/sb1").status, 204, "status of DELETE")
    for _ in range(8):
        equal(ask(gw), 404, "after DELETE")
    equal(on_disk(gw), {}, "file")


@test("ROUTES-7.4")
def a_stream_lives_as_long_as_its_entry_says_the_same(lab):
    def ticks(conn):
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            conn.send(b"data: x\n\n")
            time.sleep(0.02)
    b = lab.backend(ticks)
    gw = api(lab, routes={"sb1": b})
    c = gw.client().send(request("GET", "/sandboxes/sb1/port/3000/"))
    c.until(b"data: x")
    equal(call(gw, "PUT", "/routes/sb1", body=entry(b)).status, 200, "the same entry")
    equal(call(gw, "PUT", "/routes/sb2", body=entry(b)).status, 201, "another one")
    for _ in range(20):
        c.buf = b""
        c.until(b"data: x")
    equal(call(gw, "PUT", "/routes/sb1", body=secure(b)).status, 200, "another token")
    check(c.ending(5) != "late", "the stream lives on under another token")
    b.faults.clear()


@test("ROUTES-7.4", "OPS-04")
def whoever_has_no_token_sees_and_changes_nothing(lab):
    b = lab.backend(says("A"))
    gw = lab.gateway(routes={"sb1": b})
    equal(call(gw, "GET", "/routes").status, 404, "without --admin-token-file")
    gw = api(lab, routes={"sb1": secure(b, "canary-sandbox-token")})
    for token in (None, "", "wrong", TOKEN + "x", TOKEN[:-1]):
        for method, path in (("GET", "/routes"), ("GET", "/routes/sb1"), ("PUT", "/routes/sb1"), ("DELETE", "/routes/sb1")):
            r = call(gw, method, path, body={} if method == "PUT" else None, token=token)
            equal((r.status, r.get("www-authenticate")), (401, 'Bearer realm="routes"'), f"{method} {path} with {token!r}")
    r = call(gw, "GET", "/routes")
    equal(json.loads(r.text), {"sandboxes": {"sb1": {**entry(b), "secureAccess": True}}}, "list")
    token_file(lab, "fresh-token")
    gw.signal(signal.SIGHUP)
    wait_for(lambda: call(gw, "GET", "/routes", token="fresh-token").status == 200, "the new token counts")
    equal(call(gw, "GET", "/routes").status, 401, "with the old token")
    token_file(lab, "")
    gw.signal(signal.SIGHUP)
    wait_for(lambda: gw.logged("admin-token-file: not usable, nothing changed"), "a bad file is logged")
    equal(call(gw, "GET", "/routes", token="fresh-token").status, 200, "after a bad file")
    out = gw.stdout() + gw.stderr() + gw.admin("/metrics").text + gw.admin("/debug/config").text
    check("canary" not in out and "fresh-token" not in out, "a token was shown")


@test("ROUTES-7.4")
def what_was_answered_stands_in_the_file_when_the_process_is_killed(lab):
    gw = api(lab)
    gw.expect_exit = -signal.SIGKILL
    done, stop = [], threading.Event()

    def puts(k):
        i = 0
        while not stop.is_set():
            try:
                if call(gw, "PUT", f"/routes/s{k}-{i}", body={"address": f"10.0.{k}.{i % 250}"}).status == 201:
                    done.append(f"s{k}-{i}")
            except (OSError, Ended, Late):
                return
            i += 1
    threads = [threading.Thread(target=puts, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    wait_for(lambda: len(done) > 40, "some changes", 40)
    gw.signal(signal.SIGKILL)
    gw.exit()
    stop.set()
    for t in threads:
        t.join()
    routes = on_disk(gw)
    check(all(i in routes for i in done), "answered and lost:", [i for i in done if i not in routes])
    again = lab.gateway(f"--admin-token-file={token_file(lab)}", start=False)
    again.routes_file = gw.routes_file
    again.start()
    equal(call(again, "GET", "/routes/" + done[-1]).status, 200, "after another start")


@test("ROUTES-7.4", "LIFE-01")
def the_file_may_be_edited_by_hand_meanwhile(lab):
    a, b = lab.backend(says("A")), lab.backend(says("B"))
    gw = api(lab, routes={"sb1": a})
    for i in range(10):
        by_hand = f"hand{i}"
        gw.routes = {**on_disk(gw), by_hand: entry(b)}
        gw.write_routes()
        equal(call(gw, "PUT", f"/routes/rest{i}", body=entry(a)).status, 201, "status")
        equal(ask(gw, by_hand), "B", "written by hand")
        equal(ask(gw, f"rest{i}"), "A", "put")
    equal(len(on_disk(gw)), 21, "entries in the file")
    gw.write_routes("{")
    r = call(gw, "PUT", "/routes/more", body=entry(a))
    equal((r.status, json.loads(r.text)["error"]["code"]), (500, "not_saved"), "over a bad file")
    equal(ask(gw, "sb1"), "A", "over a bad file")
    gw.write_routes()
    wait_for(lambda: call(gw, "PUT", "/routes/more", body=entry(a)).status == 201, "a good file again")


@test("ROUTES-7.4")
def without_a_file_routes_live_in_memory(lab):
    gw = api(lab, "--provider-type=static")
    check(gw.logged("routes live in memory only: --routes names no file"), "the log says so")
    equal(ask(gw), 404, "at the start")
    equal(call(gw, "PUT", "/routes/sb1", body=entry(lab.backend(says("A")))).status, 201, "status")
    equal(ask(gw), "A", "who answers")
    gw.signal(signal.SIGHUP)
    wait_for(lambda: gw.logged("reloaded"), "SIGHUP")
    equal(ask(gw), "A", "after SIGHUP")


@test("ROUTES-7.4")
def nobody_loses_an_update_to_somebody_else(lab):
    """Counters in an entry, raised by several clients that read, and write only what nobody has changed."""
    gw = api(lab)
    equal(call(gw, "PUT", "/routes/sb1", "If-None-Match: *", body={"address": "10.0.0.1", "ports": {"1": {}}}).status, 201, "first")
    equal(call(gw, "PUT", "/routes/sb1", "If-None-Match: *", body={"address": "10.0.0.1"}).status, 412, "second")
    faults = []

    def raises():
        for _ in range(8):
            while True:
                r = call(gw, "GET", "/routes/sb1")
                now = json.loads(r.text)
                now["ports"] = {str(int(next(iter(now["ports"]))) + 1): {}}
                status = call(gw, "PUT", "/routes/sb1", f"If-Match: {r.get('etag')}", body=now).status
                if status == 200:
                    break
                if status != 412:
                    faults.append(status)
                    return
    threads = [threading.Thread(target=raises) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(faults, [], "other answers")
    equal(on_disk(gw)["sb1"]["ports"], {"41": {}}, "sum")


@test("ROUTES-7.4")
def a_slow_body_has_a_deadline(lab):
    gw = api(lab)
    c = Client(gw.admin_port)
    c.send(f"PUT /routes/sb1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 30\r\n\r\n{{".encode())
    check(c.ending(30) != "late", "still open")
    c.close()
    equal(call(gw, "GET", "/routes/sb1").status, 404, "what was not whole")


@test("ROUTES-7.4", "OPS-03")
def a_stop_in_the_middle_of_changes_loses_none_that_was_answered(lab):
    for _ in range(3):
        gw, done, other, stop = api(lab, "--drain-timeout=1s"), [], [], threading.Event()

        def puts(k, gw=gw, done=done, other=other, stop=stop):
            i = 0
            while not stop.is_set():
                try:
                    status = call(gw, "PUT", f"/routes/s{k}-{i}", body={"address": "10.0.0.1"}).status
                except (OSError, Ended, Late):
                    return
                if status == 201:
                    done.append(f"s{k}-{i}")
                elif status != 503:
                    other.append(status)
                i += 1
        threads = [threading.Thread(target=puts, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        wait_for(lambda done=done: len(done) > 20, "some changes", 40)
        gw.signal(signal.SIGTERM)
        equal(gw.exit(15), 0, "exit status")
        stop.set()
        for t in threads:
            t.join()
        routes = on_disk(gw)
        equal(other, [], "other answers")
        check(all(i in routes for i in done), "answered and lost:", [i for i in done if i not in routes])
