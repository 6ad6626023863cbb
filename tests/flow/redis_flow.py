"""Renew intents and activity with a real Redis: what is written, and that whatever becomes of Redis no request is delayed
or fails.  The ids sn-… are those of tests/vectors/ingress/scenarios.jsonl."""
import json
import os
import threading
import time

from lib import P, P2, check, equal, secure, test, wait_for
from redis_server import Redis, Relay
from ws import handshake, switch

LIST = "opensandbox:renew:intent"
WRITTEN, DROPPED = "ingress_renew_intents_written", "ingress_renew_intents_dropped"


def renewing(lab, dsn, *flags, routes=None, **how):
    return lab.gateway("--renew-intent-enabled", f"--renew-intent-redis-dsn={dsn}", *flags,
                       routes=routes or {"sb1": lab.backend(), "sb2": lab.backend()}, **how)


def dsn_of(redis):
    return f"redis://127.0.0.1:{redis.port}"


def asks(gw, path=P + "/", *fields, status=200):
    r = gw.client().ask("GET", path, "Connection: close", *fields)
    equal(r.status, status, "status")
    return r


def intents(redis, n, within=8):
    """Waits for n of them."""
    found = wait_for(lambda: (got := redis.list()) and len(got) >= n and got, f"{n} intents, there are {redis.list()}", within)
    equal(len(found), n, f"intents {found}")
    return [json.loads(text) for text in found]


def stays(redis, n):
    time.sleep(0.4)
    equal(len(redis.list()), n, "intents")


# ---- when

@test("sn-a943babb", "sn-644e2637")
def one_intent_per_interval_and_none_for_skip(lab):
    redis = Redis(lab)
    gw = renewing(lab, dsn_of(redis))
    r = asks(gw, P + "/", "OpenSandbox-Access-Renew: skip")
    check("access-renew" not in r.text.lower(), "the field reached the backend")
    stays(redis, 0)
    before = time.time()
    asks(gw, P + "/x%20y?token=1", "OpenSandbox-Access-Renew: later")
    asks(gw, P + "/")
    one, = intents(redis, 1)
    equal(list(one), ["sandbox_id", "observed_at", "port", "request_uri"], "keys")
    equal((one["sandbox_id"], one["port"], one["request_uri"]), ("sb1", 3000, "/x y"), "intent")
    check(one["observed_at"].endswith("Z"), one)
    seen = time.strptime(one["observed_at"][:19], "%Y-%m-%dT%H:%M:%S")
    check(abs(time.mktime(seen) - time.timezone - before) < 30, one)
    stays(redis, 1)
    asks(gw, P2 + "/")
    equal(intents(redis, 2)[1]["sandbox_id"], "sb2", "sandbox")
    equal(gw.metric(WRITTEN), 2, WRITTEN)


@test("sn-32ea8247", "sn-9b819ac4")
def refused_requests_publish_nothing_and_failing_backends_do(lab):
    redis = Redis(lab)
    gone = {"address": "127.0.0.1", "ports": {"3000": {"address": "127.0.0.1:9"}}}
    gw = renewing(lab, dsn_of(redis), routes={"sb1": gone, "safe": secure(lab.backend())})
    asks(gw, "/sandboxes/safe/port/3000/", status=401)
    asks(gw, "/sandboxes/nobody/port/3000/", status=404)
    stays(redis, 0)
    asks(gw, P + "/", status=502)
    equal(intents(redis, 1)[0]["sandbox_id"], "sb1", "sandbox")


@test("sn-cf88a378")
def activity_is_written_for_skipped_ones_too(lab):
    redis = Redis(lab)
    gw = lab.gateway("--activity-enabled", f"--activity-redis-dsn={dsn_of(redis)}", "--activity-ttl-seconds=77",
                     routes={"sb1": lab.backend(), "sb2": lab.backend()})
    before = int(time.time() * 1000)
    asks(gw, P + "/")
    asks(gw, P2 + "/", "OpenSandbox-Access-Renew: skip")
    for name in ("sb1", "sb2"):
        value = wait_for(lambda: redis.ask("GET", f"opensandbox:activity:{name}"), name)
        check(before - 2000 <= int(value) <= time.time() * 1000 + 2000, value)
        check(0 < redis.ask("TTL", f"opensandbox:activity:{name}") <= 77, "life")
    equal(redis.ask("LLEN", LIST), 0, "intents")


@test("sn-0173947d", "sn-2f887195")
def a_script_that_was_lost_is_loaded_again(lab):
    redis = Redis(lab)
    b = lab.backend()
    gw = lab.gateway("--activity-enabled", f"--activity-redis-dsn={dsn_of(redis)}", routes={f"s{i}": b for i in range(150)})
    c = gw.client()
    asks(gw, "/sandboxes/s0/port/3000/")
    wait_for(lambda: redis.ask("GET", "opensandbox:activity:s0"), "the first one")
    redis.ask("SCRIPT", "FLUSH")
    for i in range(150):
        equal(c.ask("GET", f"/sandboxes/s{i}/port/3000/").status, 200, "status")
    wait_for(lambda: redis.ask("DBSIZE") == 150, "150 keys")
    equal(gw.metric("ingress_activity_writes_dropped"), 0, "dropped")


@test("RENEW-10.3")
def a_websocket_counts_as_a_request(lab):
    redis = Redis(lab)
    gw = renewing(lab, dsn_of(redis), routes={"sb1": lab.backend(lambda c: c.answer(switch()))})
    c = gw.client()
    c.send(handshake())
    equal(c.response().status, 101, "status")
    equal(intents(redis, 1)[0]["request_uri"], "/ws", "intent")


@test("RENEW-10.3")
def a_cap_keeps_the_newest(lab):
    redis = Redis(lab)
    b = lab.backend()
    gw = renewing(lab, dsn_of(redis), "--renew-intent-queue-max-len=3", "--renew-intent-queue-key=mine",
                  routes={f"s{i}": b for i in range(6)})
    for i in range(6):
        asks(gw, f"/sandboxes/s{i}/port/3000/")
        wait_for(lambda: gw.metric(WRITTEN) == i + 1, f"{i + 1} written")
    equal([json.loads(t)["sandbox_id"] for t in redis.list("mine")], ["s3", "s4", "s5"], "list")


@test("RENEW-10.3")
def workers_count_once_together(lab):
    redis = Redis(lab)
    gw = renewing(lab, dsn_of(redis), "--workers=4")
    for _ in range(24):
        asks(gw)
    intents(redis, 1)
    stays(redis, 1)


@test("OPS-03")
def what_is_queued_leaves_before_the_end(lab):
    redis = Redis(lab)
    b = lab.backend()
    gw = renewing(lab, dsn_of(redis), "--activity-enabled", f"--activity-redis-dsn={dsn_of(redis)}",
                  routes={f"s{i}": b for i in range(40)})
    c = gw.client()
    for i in range(40):
        equal(c.ask("GET", f"/sandboxes/s{i}/port/3000/").status, 200, "status")
    c.close()
    gw.signal(15)
    equal(gw.exit(15), 0, "exit")
    equal(redis.ask("LLEN", LIST), 40, "intents")
    equal(len(redis.ask("KEYS", "opensandbox:activity:*")), 40, "times")


# ---- how it is reached

@test("DSN-10.4")
def a_user_of_the_access_list_and_a_database_by_number(lab):
    redis = Redis(lab, "user default on nopass +@all ~*", "user gw on >s3cr:et ~opensandbox:* +lpush +ltrim +select")
    gw = renewing(lab, f"redis://gw:s3cr%3Aet@127.0.0.1:{redis.port}/5?client_name=edge&protocol=3")
    asks(gw)
    wait_for(lambda: gw.metric(WRITTEN) == 1, "an intent")
    equal(redis.list(), [], "database 0")
    equal(redis.ask("INFO", "keyspace").count("db5:keys=1"), 1, "database 5")
    for text in (gw.stdout(), gw.stderr(), gw.admin("/metrics").text):
        check("s3cr" not in text, "the password is shown")


@test("DSN-10.4")
def a_wrong_password_is_told_without_it(lab):
    redis = Redis(lab, "requirepass right")
    gw = renewing(lab, f"redis://:wr0ng@127.0.0.1:{redis.port}")
    asks(gw)
    line = wait_for(lambda: gw.logged("redis: not connected"), "a line about it")[0]
    equal(line["error"], "AUTH refused: WRONGPASS", "error")
    check("wr0ng" not in gw.stdout() + gw.stderr(), "the password is shown")
    wait_for(lambda: gw.metric(DROPPED, reason="redis_fault") == 1, "the loss", 15)
    line, = gw.told("renewintent: redis publish failed")
    equal((line["sandbox_id"], line["queue_key"], line["namespace"]), ("sb1", LIST, ""), "line")


@test("DSN-10.4")
def over_a_unix_socket(lab):
    redis = Redis(lab, "requirepass s3cret", socket_only=True)
    gw = renewing(lab, f"unix://:s3cret@{redis.path}?db=0")
    asks(gw)
    intents(redis, 1)


def authority(lab, name):
    """A certificate for 127.0.0.1 and the authority behind it: (authority, certificate, key) as files."""
    ca, cert, key = (os.path.join(lab.dir, name + end) for end in (".ca", ".crt", ".key"))
    config = os.path.join(lab.dir, name + ".cnf")
    with open(config, "w", encoding="ascii") as f:
        f.write("[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=x\n[ca]\nbasicConstraints=critical,CA:TRUE\n"
                "[leaf]\nsubjectAltName=IP:127.0.0.1\n")
    lab.command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-config", config, "-extensions",
                "ca", "-keyout", ca + ".key", "-out", ca)
    lab.command("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-config", config, "-keyout", key, "-out", cert + ".csr")
    lab.command("openssl", "x509", "-req", "-in", cert + ".csr", "-CA", ca, "-CAkey", ca + ".key", "-CAcreateserial", "-days",
                "2", "-extfile", config, "-extensions", "leaf", "-out", cert)
    return ca, cert, key


@test("DSN-10.4")
def rediss_checks_the_server(lab):
    ca, cert, key = authority(lab, "redis")
    redis = Redis(lab, "requirepass s3cret", f"tls-cert-file {cert}", f"tls-key-file {key}", f"tls-ca-cert-file {ca}",
                  "tls-auth-clients no")
    port = redis.port + 1
    redis.ask("CONFIG", "SET", "tls-port", str(port))
    dsn = f"rediss://:s3cret@127.0.0.1:{port}"
    trusts = renewing(lab, dsn, env={"SSL_CERT_FILE": ca})
    asks(trusts)
    intents(redis, 1)
    doubts = renewing(lab, dsn, env={"SSL_CERT_FILE": "/dev/null"})
    asks(doubts)
    line = wait_for(lambda: doubts.logged("redis: not connected"), "a line about it")[0]
    check("certificate" in line["error"], line)
    check("s3cret" not in doubts.stdout(), "the password is shown")
    careless = renewing(lab, dsn + "?skip_verify=true", env={"SSL_CERT_FILE": "/dev/null"})
    asks(careless)
    intents(redis, 2)


# ---- what may become of it

class Traffic:
    """Requests without a pause; each must be answered well and soon."""

    def __init__(self, gw, n=12):
        self.gw, self.n, self.stop, self.faults, self.done, self.worst = gw, n, False, [], 0, 0.0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(2)]
        for t in self.threads:
            t.start()

    def run(self):
        try:
            c = self.gw.client()
            while not self.stop:
                for i in range(self.n):
                    start = time.monotonic()
                    equal(c.ask("GET", f"/sandboxes/s{i}/port/3000/").status, 200, "status")
                    self.worst = max(self.worst, time.monotonic() - start)
                    self.done += 1
            c.close()
        except Exception as e:  # noqa: BLE001
            self.faults.append(e)

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join(20)
        check(not self.faults, self.faults)
        check(self.done > 20, "requests", self.done)
        check(self.worst < 4, "a request waited for Redis:", self.worst)


def busy(lab, dsn, *flags):
    b = lab.backend()
    gw = renewing(lab, dsn, "--renew-intent-min-interval=1", *flags, routes={f"s{i}": b for i in range(12)})
    return gw, Traffic(gw)


def written_more(gw, within=20):
    before = gw.metric(WRITTEN)
    wait_for(lambda: gw.metric(WRITTEN) > before, "intents are written again", within)


@test("RENEW-10.3", limit=90)
def down_at_the_start_and_there_later(lab):
    redis = Redis(lab)
    redis.stop()
    gw, traffic = busy(lab, dsn_of(redis))
    wait_for(lambda: gw.metric(DROPPED, reason="redis_fault") > 0, "losses", 20)
    equal(gw.metric("ingress_renew_redis_connected"), 0, "connected")
    redis.start()
    written_more(gw)
    traffic.end()
    equal(gw.metric("ingress_renew_redis_connected"), 1, "connected")
    check(len(gw.logged("renewintent: redis publish failed")) <= 2, "a line for each loss")
    equal(len(gw.logged("redis: not connected")), 1, "lines")


@test("RENEW-10.3", limit=90)
def dies_and_comes_back(lab):
    redis = Redis(lab)
    gw, traffic = busy(lab, dsn_of(redis))
    for _ in range(2):
        written_more(gw)
        redis.stop()
        wait_for(lambda: gw.metric("ingress_renew_redis_connected") == 0, "the loss of the connection")
        time.sleep(0.5)
        redis.start()
    written_more(gw)
    traffic.end()


@test("RENEW-10.3", limit=90)
def stalls_and_goes_on(lab):
    redis = Redis(lab)
    relay = Relay(lab, redis.port)
    gw, traffic = busy(lab, f"redis://127.0.0.1:{relay.port}", "--activity-enabled", "--activity-min-interval=1s",
                       f"--activity-redis-dsn=redis://127.0.0.1:{relay.port}")
    written_more(gw)
    relay.stalled = True
    wait_for(lambda: gw.metric(DROPPED, reason="redis_fault") > 0, "losses", 30)
    wait_for(lambda: gw.metric("ingress_activity_writes_dropped") > 0, "losses", 30)
    relay.stalled = False
    written_more(gw)
    traffic.end()


@test("RENEW-10.3", limit=90)
def full_memory_loses_intents_and_nothing_else(lab):
    redis = Redis(lab, "maxmemory 1kb", "maxmemory-policy noeviction")
    gw, traffic = busy(lab, dsn_of(redis))
    wait_for(lambda: gw.metric(DROPPED, reason="redis_fault") > 0, "losses", 20)
    line = wait_for(lambda: gw.logged("renewintent: redis publish failed"), "a line about it")[0]
    equal(line["error"], "OOM", "error")
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    written_more(gw)
    equal(gw.metric("ingress_renew_redis_connected"), 1, "connected")
    traffic.end()


@test("RENEW-10.3", limit=90)
def a_replica_that_takes_the_masters_place(lab):
    """The name leads to a server that is no master any more, and then to the new one."""
    old, new = Redis(lab), Redis(lab)
    relay = Relay(lab, old.port)
    gw, traffic = busy(lab, f"redis://127.0.0.1:{relay.port}")
    written_more(gw)
    old.ask("REPLICAOF", "127.0.0.1", str(new.port))
    wait_for(lambda: gw.metric(DROPPED, reason="redis_fault") > 0, "losses", 20)
    gw.told(lambda line: line.get("msg") == "renewintent: redis publish failed" and line["error"] == "READONLY")
    relay.to = new.port  # nobody cuts the old connections
    written_more(gw)
    check(new.ask("LLEN", LIST) > 0, "the new one has none")
    traffic.end()


@test("RENEW-10.3", limit=90)
def a_connection_that_is_cut_costs_nothing(lab):
    redis = Redis(lab)
    relay = Relay(lab, redis.port)
    gw, traffic = busy(lab, f"redis://127.0.0.1:{relay.port}")
    for _ in range(5):
        written_more(gw)
        relay.cut()
    written_more(gw)
    traffic.end()
    equal(gw.metric(DROPPED), 0, DROPPED)
    check(relay.accepted >= 6, "connections", relay.accepted)


@test("RENEW-10.3", "OPS-03")
def a_stop_does_not_wait_long_for_a_dead_redis(lab):
    redis = Redis(lab)
    gw = renewing(lab, dsn_of(redis), "--drain-timeout=20s")
    wait_for(lambda: gw.metric("ingress_renew_redis_connected") == 1, "the connection")
    redis.freeze()
    asks(gw)
    start = time.monotonic()
    gw.signal(15)
    equal(gw.exit(25), 0, "exit")
    check(time.monotonic() - start < 18, "it waited for the drain's end")
    redis.thaw()
