"""Clients that ask for one thing over and over, each on a connection that it keeps.  A GET whose connection dies before its answer is
whole is asked once more on a new connection, a moment later, as any client may; what fails then has failed, and so has whatever is
not 200.
"""
import collections
import threading
import time

from wire import Client, Ended, Failed, Late, wait_for

PATIENCE = 20.0
PAUSE = 0.1  # a process that is killed goes piece by piece: its connections may be gone while its listener still takes some


class Died(Exception):
    """The connection, before the answer was whole."""


class Load:
    running = []

    def __init__(self, port, target, clients=16):
        self.port, self.target = port, target
        self.lock = threading.Lock()
        self.asked = self.repeated = self.dialled = 0
        self.longest = 0.0  # from the first sending of a request to its answer
        self.by, self.failed = collections.Counter(), collections.Counter()
        self.sent = {}  # answer → when the last request was sent that got it
        self.start = time.monotonic()
        self.over = threading.Event()
        self.begun = [0.0] * clients  # when each sent the last one that it has an answer for
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(clients)]
        for t in self.threads:
            t.start()
        Load.running.append(self)

    # -- one client
    def dial(self):
        with self.lock:
            self.dialled += 1
        return Client(self.port, patience=PATIENCE)

    def exchange(self, conn):
        try:
            r = conn.ask("GET", self.target)
        except (Ended, OSError) as e:
            raise Died(f"{type(e).__name__}: {e}") from e
        if not r.whole:
            raise Died(f"the answer was cut: {r.end}")
        return r

    def one(self, conn):
        """One request, asked again once -> the connection that can be used again, or None."""
        first = time.monotonic()
        for again in (False, True):
            sent = time.monotonic()
            try:
                conn = conn or self.dial()
                r = self.exchange(conn)
            except (Died, OSError) as e:
                self.died(again and str(e))
                time.sleep(PAUSE)
            except (Failed, Late) as e:
                self.counts(first, failure=f"{type(e).__name__}: {e}")
                again = True
            else:
                self.counts(first, failure=r.status != 200 and f"{r.status} {r.text.strip()[:100]}", who=r.text, sent=sent)
                if r.get("connection", "").lower() != "close":
                    return conn
                again = True
            if conn:
                conn.close()
            conn = None
            if again:
                break
        return None

    def died(self, failure):
        with self.lock:
            if failure:
                self.asked += 1
                self.failed[failure] += 1
            else:
                self.repeated += 1

    def counts(self, first, failure, who=None, sent=0.0):
        with self.lock:
            self.asked += 1
            self.longest = max(self.longest, time.monotonic() - first)
            if failure:
                self.failed[failure] += 1
                return
            self.by[who] += 1
            self.sent[who] = max(sent, self.sent.get(who, 0.0))

    def client(self, n):
        conn = None
        while not self.over.is_set():
            begun = time.monotonic()
            conn = self.one(conn)
            self.begun[n] = begun
        if conn:
            conn.close()

    # -- all of them
    def until(self, more):
        """Goes on until so many more have been answered, or failed."""
        enough = self.asked + more
        wait_for(lambda: self.asked >= enough, f"{more} more requests", 60.0)

    def until_all(self, since):
        """Goes on until each client has the answer to something that it asked since then: nothing older is under way."""
        wait_for(lambda: min(self.begun) >= since, "each client gets an answer", 60.0)

    def last_elsewhere(self, who):
        """When the last request was sent that another than this answered."""
        with self.lock:
            return max((at for other, at in self.sent.items() if other != who), default=0.0)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join(2 * PATIENCE)
        self.took = time.monotonic() - self.start
        if self in Load.running:
            Load.running.remove(self)

    @staticmethod
    def stop_all():
        for load in list(Load.running):
            load.stop()

    def said(self):
        by = ", ".join(f"{n} by {who}" for who, n in sorted(self.by.items()))
        return (f"{len(self.threads)} clients, {self.asked} requests in {self.took:.1f} s ({by}), {self.dialled} connections, "
                f"{self.repeated} asked again, the longest took {1000 * self.longest:.0f} ms, {sum(self.failed.values())} failed")
