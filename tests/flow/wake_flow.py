"""Wakes through the real gateway: a sandbox that sleeps is resumed by the first authorised request, everybody who waits shares
one flight and its budget, nobody waits without a place, and a request whose route was stale goes once more, body and all.  The
ids sn-… are those of tests/vectors/ingress/scenarios.jsonl."""
import os
import re
import signal
import socket
import sys
import threading
import time

from fast import NS, PARKED, SHED, STALE, WAITED, ask, asks, fast, fastpath, knows, parked, to, waking
from fastpath_server import code, raw, route, silent, state
from fastpath_flow import answers, marked
from h2wire import H2
from lib import answer, check, equal, request, test, took, wait_for
from redis_server import Redis
from signed import scope
from ws import ECHO, handshake, opened, says_hello

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from kube_server import KubeServer  # noqa: E402

FLIGHTS = "ingress_wake_flights"
SAYS = "OpenSandbox Ingress: "
EXHAUSTED = SAYS + "wake sandbox: wake park budget exhausted\n"
FULL = SAYS + "wake sandbox: wake parking lot full\n"
PATIENT = "--wake-park-budget=60s"
MIB = 1 << 20


def paused(fp, *names, checkpoint="ckpt-1", ready=True, resume=None):
    """They sleep until they are resumed; ready: then they are there."""
    for name in names:
        sleeping = state("PAUSED", checkpoint=checkpoint)
        fp.state[NS, name] = lambda call, key=name: state("READY") if ready and fp.count("ResumeSandbox", key) else sleeping
        fp.resume[NS, name] = resume or state("RESUMING")


def asleep(fp, backend, *names, **how):
    """... and have no endpoint before that."""
    paused(fp, *names, **how)
    for name in names:
        good = route(backend.port)
        fp.resolve[NS, name] = lambda call, key=name: good if awake(fp, key) else code(9, "is paused")


def awake(fp, name):
    a = fp.state[NS, name]
    return (a(None) if callable(a) else a)["runtime"] == "READY"


def resumes(fp, name="sb1"):
    return [(c.request_id, c.checkpoint) for c in fp.asked("ResumeSandbox", name)]


def is_503(r, text=None):
    equal(r.status, 503, f"status, with {r.text!r}")
    equal(r.all("retry-after"), ["1"], "Retry-After")
    check(r.text, "an empty body")
    if text:
        equal(r.text, text, "answer")


# ---- the flight

@test("sn-c67cadcb", "wake-flight")
def a_paused_sandbox_is_resumed_once_and_answers(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb-1")
    gw = waking(lab, fp, PATIENT)
    equal(ask(gw, "sb-1", target="/x").json["line"], "GET /x HTTP/1.1", "request")
    (request_id, checkpoint), = resumes(fp, "sb-1")
    equal(checkpoint, "ckpt-1", "checkpoint")
    check(re.fullmatch("wake-tenant-a-sb-1-[0-9a-f]{16}-1-1", request_id), request_id)
    ask(gw, "sb-1")
    equal(len(resumes(fp, "sb-1")), 1, "resumes")
    equal(len(b.requests), 2, "backend requests")
    equal((gw.metric(FLIGHTS, outcome="triggered"), gw.metric(FLIGHTS, outcome="joined"), gw.metric(FLIGHTS, outcome="none")),
          (1, 0, 0), "flights")
    equal((gw.metric(PARKED), gw.metric(SHED), gw.metric(WAITED, outcome="served")), (0, 0, 1), "lot")


@test("wake-flight")
def what_is_up_already_is_only_resolved_again(lab):
    fp, b = fastpath(lab), lab.backend()
    fp.state[NS, "sb1"] = state("READY")
    fp.resolve[NS, "sb1"] = [code(14), route(b.port)]
    gw = waking(lab, fp)
    ask(gw)
    equal((fp.count("GetSandbox"), fp.count("ResumeSandbox"), fp.count("ResolveEndpoint")), (1, 0, 2), f"calls {fp.asked()}")
    equal((gw.metric(FLIGHTS, outcome="triggered"), gw.metric(FLIGHTS, outcome="none")), (0, 1), "flights")


@test("sn-c9c57cec", "wake-budget")
def the_budget_ends_a_wait_and_the_next_request_probes_anew(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, "--wake-park-budget=150ms")
    is_503(ask(gw, status=503), EXHAUSTED)
    before = len(resumes(fp))
    check(before <= 1, "resumes", before)  # none where even that took too long
    equal(gw.metric(WAITED, outcome="budget_exhausted"), 1, "waits")
    equal(gw.metric(PARKED), 0, "parked")
    fp.state[NS, "sb1"] = state("READY")
    ask(gw)
    equal(len(resumes(fp)), before, "resumes")


@test("sn-3424c20a", "wake-lot")
def a_full_lot_refuses_and_resumes_nothing(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", "sb2", ready=False)
    gw = waking(lab, fp, PATIENT, "--wake-park-max=1")
    first = asks(gw)
    parked(gw, 1)
    wait_for(lambda: len(resumes(fp)) == 1, "the resume")
    is_503(ask(gw, "sb2", status=503), FULL)
    is_503(ask(gw, "sb1", status=503), FULL)
    equal((len(resumes(fp)), fp.count("GetSandbox", "sb2"), fp.count("ResumeSandbox", "sb2")), (1, 0, 0), "calls")
    equal((gw.metric(SHED), gw.metric(PARKED)), (2, 1), "lot")
    fp.state[NS, "sb1"] = state("READY")
    equal(first.response().status, 200, "the one that was parked")
    equal(gw.metric(PARKED), 0, "parked")


@test("sn-b5750b60", "wake-flight")
def a_conflict_is_tried_again_with_the_fresh_checkpoint(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1")
    fp.state[NS, "sb1"] = lambda call: [state("PAUSED", checkpoint="ckpt-1"), state("PAUSED", checkpoint="ckpt-2"),
                                        state("READY")][len(resumes(fp))]
    fp.resume[NS, "sb1"] = [code(10), state("RESUMING")]
    gw = waking(lab, fp, PATIENT)
    ask(gw)
    (one, first), (two, second) = resumes(fp)
    equal((first, second), ("ckpt-1", "ckpt-2"), "checkpoints")
    check(one.endswith("-1-1") and two.endswith("-1-2") and one[:-1] == two[:-1], (one, two))


@test("sn-8e4b7baa", "wake-flight")
def a_precondition_without_a_checkpoint_is_probed_again(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1")
    fp.state[NS, "sb1"] = lambda call: [state("PAUSED"), state("PAUSED", checkpoint="ckpt-2"), state("READY")][len(resumes(fp))]
    fp.resume[NS, "sb1"] = [code(9), state("RESUMING")]
    gw = waking(lab, fp, PATIENT)
    ask(gw)
    equal([c for _, c in resumes(fp)], ["", "ckpt-2"], "checkpoints")


@test("wake-flight")
def a_precondition_with_a_checkpoint_means_that_it_runs_already(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", resume=code(9))
    gw = waking(lab, fp, PATIENT)
    ask(gw)
    equal(len(resumes(fp)), 1, "resumes")


@test("sn-cc12ae5c", "wake-flight")
def conflict_failed_probe_conflict_accepted(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1")
    probes = [state("PAUSED", checkpoint="c1"), code(14), state("PAUSED", checkpoint="c2"), state("READY")]
    fp.state[NS, "sb1"] = lambda call: probes.pop(0) if call and len(probes) > 1 else probes[0]
    fp.resume[NS, "sb1"] = [code(10), code(10), state("RESUMING")]
    gw = waking(lab, fp, PATIENT)
    ask(gw)
    equal([c for _, c in resumes(fp)], ["c1", "c1", "c2"], "checkpoints")
    equal(len({i for i, _ in resumes(fp)}), 3, "ids")


@test("sn-88d22e5d", "wake-ends")
def a_rejected_resume_is_final(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", resume=code(7, "no tenant-a here"), ready=False)
    gw = waking(lab, fp, PATIENT)
    r = ask(gw, status=502)
    equal(r.text, SAYS + "wake sandbox: FastPath permanently rejected the lifecycle request: PermissionDenied\n", "answer")
    check(not r.has("retry-after"), "Retry-After")
    equal((len(resumes(fp)), gw.metric(PARKED), gw.metric(WAITED, outcome="error")), (1, 0, 1), "calls, lot")
    gw.told(lambda line: "no tenant-a here" in str(line))


@test("wake-ends")
def states_and_codes_end_a_flight_as_the_contract_says(lab):
    fp, b = fastpath(lab), lab.backend()
    stopped = SAYS + "wake sandbox: sandbox not found: sandbox is stopped or expired\n"
    terminal = SAYS + "wake sandbox: sandbox not found: sandbox became terminal while resuming\n"
    rejected = SAYS + "wake sandbox: FastPath permanently rejected the lifecycle request: "
    not_ready = SAYS + "wake sandbox: sandbox not ready: sandbox runtime is "
    lost, gone = SAYS + "sandbox not ready: FastPath resolution temporarily unavailable\n", SAYS + "sandbox not found: sandbox not found\n"
    one, two = state("PAUSED", checkpoint="c"), state("PAUSED", checkpoint="d")
    ok = state("RESUMING")
    rows = [("stopped", [state("STOPPED")], None, 404, stopped, 0), ("stopping", [state("STOPPING")], None, 404, stopped, 0),
            ("failed", [state("FAILED")], None, 503, not_ready + "FAILED\n", 0),
            ("creating", [state("CREATING")], None, 503, not_ready + "CREATING\n", 0),
            ("draining", [state("READY", "DRAINING")], None, 503, not_ready + "READY\n", 0),
            ("missing", [code(5)], None, 404, gone, 0), ("lost", [code(14)], None, 503, lost, 0),
            ("unauthenticated", [code(16)], None, 502, rejected + "Unauthenticated\n", 0),
            ("garbage", [raw(b"\xff")], None, 502, rejected + "Internal\n", 0),
            ("went", [one, state("STOPPED")], ok, 404, terminal, 1), ("vanished", [one, code(5)], ok, 404, gone, 1),
            ("no-more", [one], code(5), 404, gone, 1), ("argument", [one], code(3), 502, rejected + "InvalidArgument\n", 1),
            ("turned", [one, state("FAILED")], code(10), 503, not_ready + "FAILED\n", 1),
            ("waits", [one, state("PENDING"), code(14), state("UNKNOWN"), state("READY")], ok, 200, None, 1),
            ("stubborn", [one, two, two, state("READY")], [code(10), code(14), code(9)], 200, None, 3)]
    for name, states, resume, _, _, _ in rows:
        fp.state[NS, name] = states
        if resume:
            fp.resume[NS, name] = resume
        fp.resolve[NS, name] = [code(14), route(b.port)]
    gw = waking(lab, fp, PATIENT)
    for name, _, _, status, text, count in rows:
        r = ask(gw, name, status=status)
        check(text is None or r.text == text, name, r.text)
        equal(r.has("retry-after"), status == 503, f"Retry-After of {name}")
        equal(len(resumes(fp, name)), count, f"resumes of {name}")
    equal(gw.metric(PARKED), 0, "parked")


@test("wake-ends")
def a_service_without_these_calls_rejects(lab):
    fp, b = fastpath(lab), lab.backend()
    fp.resolve[NS, "sb1"] = code(14)
    fp.state[NS, "sb1"] = code(12)
    gw = waking(lab, fp)
    equal(ask(gw, status=502).text, SAYS + "wake sandbox: FastPath permanently rejected the lifecycle request: Unimplemented\n", "")
    equal(len(b.requests), 0, "requests")


@test("sn-e05451fc", "wake-budget")
def joiners_share_what_is_left_of_the_budget(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, "--wake-park-budget=3s")
    ends = []

    def watch(c):
        is_503(c.response(), EXHAUSTED)
        ends.append(time.monotonic())
    first = asks(gw)
    parked(gw, 1)
    time.sleep(1)
    second = asks(gw)
    parked(gw, 2)
    threads = [threading.Thread(target=watch, args=(c,)) for c in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(abs(ends[0] - ends[1]) < 0.8, "they ended so far apart:", abs(ends[0] - ends[1]))
    equal(len(resumes(fp)), 1, "resumes")
    equal((gw.metric(FLIGHTS, outcome="joined"), gw.metric(WAITED, outcome="budget_exhausted")), (1, 2), "figures")


@test("wake-budget")
def a_fastpath_that_hangs_ends_with_the_budget(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    fp.resume[NS, "sb1"] = silent()
    gw = waking(lab, fp, "--wake-park-budget=2s", "--fastpath-wait-timeout-millis=60000", "--decide-timeout=500ms")
    seconds, r = took(lambda: ask(gw, status=503))
    is_503(r, EXHAUSTED)
    check(seconds > 1.9, "it ended before its budget", seconds)
    wait_for(lambda: fp.asked("ResumeSandbox")[0].whole is False, "the call to be given up")
    equal(gw.metric(PARKED), 0, "parked")


# ---- who wakes

@test("sn-1920d8c8", "wake-who")
def kubernetes_routes_never_wake(lab):
    kube, fp = KubeServer(lab.dir), fastpath(lab)
    lab.peers.append(kube)
    kube.put("sb1", None, ready=0)
    paused(fp, "sb1")
    gw = waking(lab, fp, PATIENT, provider="batchsandbox", env={"KUBECONFIG": kube.kubeconfig()})
    is_503(gw.client().ask("GET", "/", "OpenSandbox-Ingress-To: sb1-3000", "Connection: close"), SAYS + "sandbox not ready: sb1\n")
    equal((fp.count(), gw.metric(PARKED)), (0, 0), "calls, parked")


@test("wake-who")
def only_who_may_pass_wakes(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1")
    gw = waking(lab, fp, PATIENT, "--deny-ports=9999")
    for value, status in ((scope("sb1", secret=b"x"), 401), (scope("sb1", key="q"), 401), (scope("sb1")[:-1], 401), ("sb1-3000", 401),
                          (scope("sb1", 18080), 501), (scope("sb1", 9999), 403),
                          (scope("sb1", tag="opensandbox-fleets-route-v1"), 401)):
        r = gw.client().ask("GET", "/", f"OpenSandbox-Ingress-To: {value}", "Connection: close")
        equal(r.status, status, value)
    equal(fp.count(), 0, f"calls {fp.asked()}")
    ask(gw)


@test("wake-who")
def without_the_setting_nobody_wakes(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1")
    gw = fast(lab, fp)
    is_503(ask(gw, status=503))
    equal((fp.count("GetSandbox"), fp.count("ResumeSandbox")), (0, 0), "calls")


# ---- replay

def stale_once(lab, fp, *more):
    """A backend whose first answer is stale; the sandbox is paused."""
    b = lab.backend(answers(marked(403, "stale_route"), *(more or (answer(200, body=b"fine"),))))
    paused(fp, "sb1")
    knows(fp, b, "sb1")
    return b


@test("sn-7b237936", "wake-replay")
def a_stale_answer_is_swallowed_and_the_request_goes_again_whole(lab):
    fp = fastpath(lab)
    b = stale_once(lab, fp)
    gw = waking(lab, fp, PATIENT)
    r = ask(gw, method="POST", body=b"hello", target="/x?y")
    equal(r.text, "fine", "answer")
    equal([(q.line, q.body) for q in b.requests], [("POST /x?y HTTP/1.1", b"hello")] * 2, "backend requests")
    equal((len(resumes(fp)), fp.count("ResolveEndpoint")), (1, 2), "calls")


@test("sn-32693579", "wake-replay")
def what_is_too_long_is_not_sent_again(lab):
    fp = fastpath(lab)
    b = stale_once(lab, fp)
    gw = waking(lab, fp, PATIENT)
    is_503(ask(gw, method="POST", body=b"x" * (MIB + 1), status=503), STALE)
    equal((len(b.requests), len(resumes(fp)), fp.count("GetSandbox")), (1, 0, 0), "requests, calls")


@test("sn-9d09cd5c", "wake-replay", limit=90)
def bodies_that_go_again_and_bodies_that_do_not(lab):
    fp = fastpath(lab)
    gw = waking(lab, fp, PATIENT)
    chunked = "Transfer-Encoding: chunked"

    def chunks(n):
        return b"".join(b"%x\r\n%s\r\n" % (m, b"x" * m) for m in [65536] * (n // 65536) + [n % 65536] if m) + b"0\r\n\r\n"
    rows = [("none", "GET", (), None, b"", True), ("empty", "POST", ("Content-Length: 0",), b"", b"", True),
            ("mib", "POST", (), b"x" * MIB, b"x" * MIB, True), ("longer", "PUT", (), b"x" * (MIB + 1), b"x" * (MIB + 1), False),
            ("long-chunked", "PUT", (chunked,), chunks(MIB + 1), b"x" * (MIB + 1), False),
            ("chunked-mib", "PUT", (chunked,), chunks(MIB), b"x" * MIB, True), ("chunked", "PATCH", (chunked,), chunks(7), b"x" * 7, True)]
    for name, method, more, sent, seen, again in rows:
        b = lab.backend(answers(marked(403, "stale_route"), answer(200, body=b"fine")))
        paused(fp, name)
        knows(fp, b, name)
        r = gw.client(patience=30).ask(method, "/", to(name), "Connection: close", *more, body=sent)
        equal((r.status, len(resumes(fp, name))), (200, 1) if again else (503, 0), name)
        equal([q.body == seen for q in b.requests], [True] * (2 if again else 1), f"bodies of {name}")


@test("sn-9d09cd5c", "wake-replay")
def a_client_that_breaks_off_is_a_break_for_the_backend(lab):
    fp, seen = fastpath(lab), []

    def script(conn):
        conn.head()
        conn.exact(5)
        seen.append("hello")
        seen.append(conn.ending())
    b = lab.backend(script)
    paused(fp, "sb1")
    knows(fp, b, "sb1")
    gw = waking(lab, fp, PATIENT)
    c = gw.client().send(request("POST", "/", to(), "Content-Length: 100") + b"hello")
    wait_for(lambda: seen, "the first bytes")
    c.rst()
    wait_for(lambda: len(seen) == 2, "the break")
    equal((len(b.requests), fp.count("GetSandbox")), (1, 0), "requests, probes")


@test("wake-replay")
def a_slow_upload_is_not_held_up_by_what_is_kept(lab):
    fp, got = fastpath(lab), []

    def script(conn):
        conn.head()
        got.append(conn.exact(5))
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        conn.send(conn.exact(5))
    paused(fp, "sb1")
    knows(fp, lab.backend(script), "sb1")
    gw = waking(lab, fp, PATIENT)
    c = gw.client().send(request("POST", "/", to(), "Content-Length: 10") + b"first")
    wait_for(lambda: got, "the first bytes at the backend")
    c.send(b"again")
    equal(c.response().body, b"again", "body")


@test("wake-replay")
def a_body_that_still_comes_goes_again_with_what_came_before(lab):
    """The stale answer is there before the request is."""
    fp, again = fastpath(lab), []

    def script(conn):
        conn.head()
        if not again:
            again.append(1)
            conn.exact(5)
            conn.send(marked(403, "stale_route"))
            conn.ending()
            return
        again.append(conn.exact(10))
        conn.send(answer(200))
    paused(fp, "sb1")
    knows(fp, lab.backend(script), "sb1")
    gw = waking(lab, fp, PATIENT)
    c = gw.client().send(request("POST", "/", to(), "Content-Length: 10") + b"first")
    wait_for(lambda: len(resumes(fp)) == 1, "the resume")
    c.send(b"again")
    equal(c.response().status, 200, "status")
    equal(again[1], b"firstagain", "body")


@test("sn-df64701b", "wake-replay")
def the_second_answer_is_final(lab):
    fp = fastpath(lab)
    b = stale_once(lab, fp, marked(403, "stale_route"))
    good = route(b.port)
    gw = waking(lab, fp, PATIENT)
    is_503(ask(gw, status=503), STALE)
    equal((len(b.requests), len(resumes(fp))), (2, 1), "requests, resumes")
    fp.resolve[NS, "sb1"] = [good, code(9)]
    fp.state[NS, "sb1"] = [state("PAUSED", checkpoint="c"), state("READY")]
    is_503(ask(gw, status=503), SAYS + "sandbox not ready: FastPath resolution temporarily unavailable\n")
    equal((len(b.requests), len(resumes(fp))), (3, 2), "requests, resumes")


@test("wake-replay")
def a_route_that_went_stale_between_two_requests_of_a_connection(lab):
    fp = fastpath(lab)
    b = lab.backend(answers(answer(200, body=b"one"), marked(502, "route_unavailable"), answer(200, body=b"three")))
    paused(fp, "sb1")
    knows(fp, b, "sb1")
    gw = waking(lab, fp, PATIENT)
    c = gw.client()
    equal([c.ask("GET", "/", to()).text for _ in range(2)], ["one", "three"], "answers")


@test("sn-1c94d26e", "wake-websocket")
def a_handshake_waits_and_is_not_repeated(lab):
    fp, b = fastpath(lab), lab.backend(ECHO)
    asleep(fp, b, "sb1")
    gw = waking(lab, fp, PATIENT)
    says_hello(opened(gw, "/ws", to()))
    equal(len(resumes(fp)), 1, "resumes")
    stale = lab.backend(answers(marked(403, "stale_route")))
    paused(fp, "sb2")
    knows(fp, stale, "sb2")
    is_503(gw.client().send(handshake("/ws", to("sb2"))).response(), STALE)
    equal((len(stale.requests), fp.count("GetSandbox", "sb2"), fp.count("ResumeSandbox", "sb2")), (1, 0, 0), "requests, calls")


# ---- those who wait

@test("wake-waiting")
def a_crowd_is_woken_by_one_resume_and_one_look(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT, "--backend-idle-max=8")
    crowd = [asks(gw) for _ in range(200)]
    parked(gw, 200)
    wait_for(lambda: len(resumes(fp)) == 1, "the resume")
    looks = fp.count("ResolveEndpoint")
    check(looks <= 200, "calls", looks)
    fp.state[NS, "sb1"] = state("READY")
    equal({c.response().status for c in crowd}, {200}, "statuses")
    equal((len(resumes(fp)), fp.count("ResolveEndpoint") - looks), (1, 1), "resumes, looks after the wake")
    equal((gw.metric(PARKED), gw.metric(FLIGHTS, outcome="joined"), gw.metric(WAITED, outcome="served")), (0, 199, 200), "figures")


@test("wake-waiting", limit=120)
def a_great_crowd_costs_little_and_is_answered(lab):
    n = 3000 if lab.long else 1000
    fp, b = fastpath(lab), lab.backend(answers(answer(200)), backlog=4096)
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT, f"--wake-park-max={n}")
    crowd = [gw.client(patience=60) for _ in range(n)]
    for c in crowd:
        equal(c.ask("GET", "/status.ok").status, 200, "status of a page of our own")
    idle = gw.rss()
    for c in crowd:
        c.send(request("GET", "/", to()))
    wait_for(lambda: gw.metric(PARKED) == n, f"{n} parked", 30)
    each = (gw.rss() - idle) / n
    check(lab.sanitizer or each < 2400, "bytes for each that waits:", each)
    is_503(ask(gw, status=503), FULL)
    fp.state[NS, "sb1"] = state("READY")
    equal({c.response().status for c in crowd}, {200}, "statuses")
    equal((len(resumes(fp)), gw.metric(PARKED)), (1, 0), "resumes, parked")


@test("wake-waiting")
def who_leaves_gives_its_place_back_and_the_wake_goes_on(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT, "--wake-park-max=2")
    for leave in ("rst", "close"):
        for c in [asks(gw) for _ in range(2)]:
            parked_at_least(gw, 1)
            getattr(c, leave)()
        parked(gw, 0)
    equal(gw.metric(WAITED, outcome="canceled"), 4, "waits")
    c = asks(gw)
    parked(gw, 1)
    fp.state[NS, "sb1"] = state("READY")
    equal(c.response().status, 200, "status")
    equal(len(resumes(fp)), 1, "resumes")
    equal(len(b.requests), 1, "backend requests")


def parked_at_least(gw, n):
    wait_for(lambda: gw.metric(PARKED) >= n, f"{n} parked")


@test("wake-waiting")
def streams_of_one_connection_wait_and_leave_by_themselves(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    knows(fp, b, "sb2")
    gw = waking(lab, fp, PATIENT)
    h2 = H2(socket.create_connection(("127.0.0.1", gw.port)))
    lab.peers.append(h2)

    def opens(name):
        return h2.open([(":method", "GET"), (":scheme", "http"), (":authority", "gw.test"), (":path", "/"),
                        ("opensandbox-ingress-to", scope(name))], end=True)
    waiting = [opens("sb1") for _ in range(10)]
    parked(gw, 10)
    equal(dict(opens("sb2").next_head(0))[":status"], "200", "another sandbox")
    for s in waiting[:6]:
        s.reset()
    parked(gw, 4)
    gw.signal(signal.SIGHUP)
    fp.state[NS, "sb1"] = state("READY")
    equal({dict(s.next_head(0))[":status"] for s in waiting[6:]}, {"200"}, "statuses")
    equal((len(resumes(fp)), gw.metric(WAITED, outcome="canceled"), gw.metric(WAITED, outcome="served")), (1, 6, 4), "figures")


@test("wake-waiting")
def waiting_for_one_sandbox_holds_up_no_other(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    knows(fp, b, "sb2")
    gw = waking(lab, fp, PATIENT)
    c = gw.client().send(request("GET", "/", to()) + request("GET", "/", to("sb2")))
    parked(gw, 1)
    ask(gw, "sb2")
    equal(len(b.requests), 1, "a pipelined request went before its turn")
    fp.state[NS, "sb1"] = state("READY")
    equal([c.response().status for _ in range(2)], [200, 200], "statuses, in order")


@test("wake-waiting")
def a_drain_lets_who_waits_be_woken(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT)
    c = asks(gw)
    parked(gw, 1)
    wait_for(lambda: len(resumes(fp)) == 1, "the resume")
    gw.signal(signal.SIGTERM)
    time.sleep(0.3)
    fp.state[NS, "sb1"] = state("READY")
    equal(c.response().status, 200, "status")
    equal(gw.exit(20), 0, "exit")


@test("wake-waiting")
def a_drain_ends_who_is_never_woken(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", "sb2", ready=False)
    gw = waking(lab, fp, PATIENT, "--drain-timeout=1s")
    crowd = [asks(gw, name) for name in ("sb1", "sb2") for _ in range(20)]
    parked(gw, 40)
    gw.signal(signal.SIGTERM)
    for c in crowd:
        check(c.ending(20) != "late", "the client hangs")
    equal(gw.exit(20), 0, "exit")


@test("wake-waiting")
def a_second_signal_ends_it_with_the_flight_under_way(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    fp.resume[NS, "sb1"] = silent()
    gw = waking(lab, fp, PATIENT)
    gw.expect_exit = None
    crowd = [asks(gw) for _ in range(5)]
    parked(gw, 5)
    gw.signal(signal.SIGTERM)
    time.sleep(0.2)
    gw.signal(signal.SIGTERM)
    gw.expect_exit = gw.exit(20)
    check(gw.expect_exit in (0, 1, 2, 128 + signal.SIGTERM, -signal.SIGTERM), gw.expect_exit)
    for c in crowd:
        check(c.ending(20) != "late", "the client hangs")


@test("wake-waiting", limit=90)
def many_sandboxes_sleep_and_wake_at_once(lab):
    fp, b = fastpath(lab), lab.backend()
    names = [f"sb{i}" for i in range(60)]
    asleep(fp, b, *names)
    gw = waking(lab, fp, PATIENT)
    crowd = [asks(gw, name) for name in names for _ in range(3)]
    equal({c.response().status for c in crowd}, {200}, "statuses")
    for name in names:
        equal(len(resumes(fp, name)), 1, f"resumes of {name}")
    equal(gw.metric(PARKED), 0, "parked")


@test("wake-waiting", limit=90)
def fastpath_may_be_lost_while_requests_wait(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT)
    c = asks(gw)
    wait_for(lambda: len(resumes(fp)) == 1, "the resume")
    fp.drop()
    port = fp.port
    fp.stop()
    time.sleep(0.3)
    again = fastpath(lab, port=port)
    knows(again, b, "sb1")
    again.state[NS, "sb1"] = state("READY")
    equal(c.response().status, 200, "status")


@test("wake-waiting", limit=90)
def a_hail_of_clients_that_come_and_go(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", "sb2", "sb3", ready=False)
    gw = waking(lab, fp, "--wake-park-budget=300ms", "--wake-park-max=30")
    stop = time.monotonic() + 4

    def client(n):
        i = 0
        while time.monotonic() < stop:
            c, i = asks(gw, f"sb{(n + i) % 3 + 1}"), i + 1
            if i % 3 == 0:
                c.response()
            elif i % 3 == 1:
                c.rst()
            else:
                c.silent(0.05)
                c.close()
    threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
    for t in threads:
        t.start()
    for name in ("sb1", "sb2", "sb3"):
        time.sleep(1)
        fp.state[NS, name] = state("READY")
    for t in threads:
        t.join()
    parked(gw, 0)
    ask(gw)


# ---- what is written

@test("sn-7efefa30", "wake-activity")
def a_wake_is_one_activity_record(lab):
    redis, fp, b = Redis(lab), fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, PATIENT, "--activity-enabled", f"--activity-redis-dsn=redis://127.0.0.1:{redis.port}",
                "--activity-min-interval=0")
    left = [asks(gw) for _ in range(3)]
    parked(gw, 3)
    for c in left:  # nobody stays, so that what is written is the flight's
        c.rst()
    parked(gw, 0)
    time.sleep(0.3)
    equal((redis.ask("KEYS", "*"), evals(redis)), ([], 0), "records of requests that were never forwarded")
    fp.state[NS, "sb1"] = state("READY")
    wait_for(lambda: redis.ask("KEYS", "*"), "the record")
    equal(redis.ask("KEYS", "*"), ["opensandbox:activity:sb1"], "key")
    time.sleep(0.5)
    equal(evals(redis), 1, "writes")
    ask(gw)
    wait_for(lambda: evals(redis) == 2, "the request's own record")


def evals(redis):
    line = re.search(r"cmdstat_evalsha:calls=(\d+)", redis.ask("INFO", "commandstats"))
    return int(line[1]) if line else 0


@test("wake-activity")
def a_wake_that_fails_is_none(lab):
    redis, fp, b = Redis(lab), fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", resume=code(7), ready=False)
    fp.state[NS, "sb2"], fp.resolve[NS, "sb2"] = state("READY"), code(9)
    gw = waking(lab, fp, "--activity-enabled", f"--activity-redis-dsn=redis://127.0.0.1:{redis.port}")
    ask(gw, "sb1", status=502)
    ask(gw, "sb2", status=503)
    time.sleep(0.4)
    equal(redis.ask("KEYS", "*"), [], "keys")


@test("wake-use")
def a_page_that_waits_too_long_loads_itself_again(lab):
    fp, b = fastpath(lab), lab.backend()
    asleep(fp, b, "sb1", ready=False)
    gw = waking(lab, fp, "--wake-park-budget=100ms")
    r = ask(gw, "sb1", "Accept: text/html", status=503)
    check('<meta http-equiv="refresh" content="1">' in r.text, r.text)
    r = ask(gw, "sb1", "Accept: application/json", status=503)
    equal(r.json["error"]["code"], "sandbox_not_ready", "code")
    line = gw.access(2, sandbox_id="sb1")[-1]
    equal(line["status"], 503, "access line")
