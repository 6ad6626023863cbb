"""Limits per sandbox, counted once whatever the number of workers, and what is shown of single sandboxes."""
import json
import threading
import time

from lib import P, P2, check, equal, request, says, test, wait_for
from ws import ECHO, opened


def hangs(conn):
    """Takes a request and never answers."""
    conn.request()
    conn.ending(60)


def rows(gw):
    return {r["id"]: r for r in json.loads(gw.admin("/debug/sandboxes").text)["sandboxes"]}


def running(gw, sandbox="sb1"):
    return rows(gw).get(sandbox, {"running": 0})["running"]


@test("LIMIT-6.3")
def so_many_requests_run_at_once_and_not_one_more(lab):
    gw = lab.gateway("--max-connections-per-sandbox=3", "--workers=4", routes={"sb1": lab.backend(hangs), "sb2": lab.backend(says("ok"))})
    clients = [gw.client() for _ in range(24)]
    for c in clients:
        c.send(request("GET", P + "/"))
    wait_for(lambda: rows(gw).get("sb1", {}).get("refused") == 21, "21 are refused")
    equal(running(gw), 3, "requests in progress")
    equal(gw.client().ask("GET", P2 + "/").status, 200, "another sandbox")
    r = gw.client().ask("GET", P + "/")
    equal((r.status, r.get("retry-after")), (503, "1"), "one more")
    check("too many connections to this sandbox" in r.text, r.text)
    for c in clients:
        c.close()
    wait_for(lambda: running(gw) == 0, "all places are free")
    equal(gw.metric("ingress_sandbox_refused", sandbox="sb1"), 22, "refused by the metric")


@test("LIMIT-6.3")
def a_tunnel_has_a_place_as_long_as_it_stands(lab):
    gw = lab.gateway("--max-connections-per-sandbox=1", routes={"sb1": lab.backend(ECHO)})
    tunnel = opened(gw)
    equal(gw.client().ask("GET", P + "/").status, 503, "beside a tunnel")
    equal(running(gw), 1, "in progress")
    tunnel.close()
    wait_for(lambda: running(gw) == 0, "its place is free")


@test("LIMIT-6.3")
def a_place_comes_back_whatever_the_end(lab):
    def fails(conn):
        r = conn.request()
        if r.target == "/cut":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        elif r.target == "/bad":
            conn.send(b"nonsense\r\n\r\n")
        elif r.target == "/slow":
            conn.ending(60)
    dead = {"address": "127.0.0.1", "ports": {"3000": {"address": "127.0.0.1:1"}}}
    gw = lab.gateway("--max-connections-per-sandbox=1", "--response-timeout=300ms", routes={"sb1": lab.backend(fails), "sb2": dead})
    for target, base in (("/cut", P), ("/bad", P), ("/eof", P), ("/slow", P), ("/x", P2)):
        for _ in range(4):
            c = gw.client().send(request("GET", base + target, "Connection: close"))
            c.ending(10)
            check(b" 503 " not in c.seen[:20], target, c.seen[:60])
            wait_for(lambda: running(gw) == running(gw, "sb2") == 0, f"a place after {target}")
    for _ in range(4):
        c = gw.client().send(request("GET", P + "/slow"))
        wait_for(lambda: running(gw) == 1, "it runs")
        c.close()
        wait_for(lambda: running(gw) == 0, "a place after a client that left")
    r = rows(gw)["sb1"]
    equal((r["requests"], r["refused"]), (20, 0), "requests, refused")


@test("LIMIT-6.3")
def so_many_requests_a_second(lab):
    gw = lab.gateway("--rate-limit-per-sandbox=5", "--workers=4", routes={"sb1": lab.backend(says("ok")), "sb2": lab.backend(says("ok"))})
    start, seen = time.monotonic(), []
    for _ in range(40):
        r = gw.client().ask("GET", P + "/", "Connection: close")
        seen.append(r.status)
        if r.status != 200:
            equal((r.status, r.get("retry-after")), (429, "1"), "refusal")
            check("too many requests for this sandbox" in r.text, r.text)
    seconds = time.monotonic() - start
    equal(seen[:5], [200] * 5, "the burst")
    check(seen.count(200) <= 5 + 5 * seconds + 1, seen.count(200), "passed in", seconds, "s")
    if seconds < 3:
        check(429 in seen, "none was refused in", seconds, "s")
    equal(gw.client().ask("GET", P2 + "/").status, 200, "another sandbox")
    wait_for(lambda: gw.client().ask("GET", P + "/", "Connection: close").status == 200, "later", 5)


@test("LIMIT-6.3", "OPS-05")
def the_busiest_sandboxes_are_shown_and_never_more_than_ten(lab):
    b = lab.backend(says("hello"))
    gw = lab.gateway(routes={f"s{i:02}": b for i in range(15)})
    threads = []
    for i in range(15):
        def asks(n=i):
            c = gw.client()
            for _ in range(n + 1):
                equal(c.ask("POST", f"/sandboxes/s{n:02}/port/3000/", body=b"abc").status, 200, "status")
        threads.append(threading.Thread(target=asks))
        threads[-1].start()
    for t in threads:
        t.join()
    wait_for(lambda: sum(r["requests"] - r["running"] for r in rows(gw).values()) == 120, "all are counted")
    page = json.loads(gw.admin("/debug/sandboxes").text)
    equal([r["id"] for r in page["sandboxes"]], [f"s{i:02}" for i in reversed(range(15))], "order")
    top = page["sandboxes"][0]
    equal((top["requests"], top["failed"], top["bytes_in"], top["bytes_out"]), (15, 0, 45, 75), "sums of s14")
    found = {k.partition('"')[2].rstrip('"}') for k in gw.metrics() if k.startswith("ingress_sandbox_requests{")}
    equal(found, {f"s{i:02}" for i in range(5, 15)}, "labels")
    equal(gw.metric("ingress_sandbox_bytes_out", sandbox="s10"), 55, "bytes by the metric")
