"""The admin listener while the gateway comes and goes."""
import contextlib
import signal
import socket
import threading
import time

from lib import equal, test

PAGES = b"".join(b"GET " + page + b" HTTP/1.1\r\nHost: admin\r\n\r\n" for page in (b"/metrics", b"/debug/exchanges", b"/debug/pools"))


def reads_pages(port, stop):
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as s:
            s.settimeout(2)
            while not stop.is_set():
                s.sendall(4 * PAGES)
                if not s.recv(65536):
                    break


@test("OPS-03")
def pages_that_ask_all_workers_do_not_outlive_them(lab):
    """Scrapers keep asking while the workers stop: a question must not reach one that is gone."""
    for i in range(6):
        gw, stop = lab.gateway("--workers=4"), threading.Event()
        readers = [threading.Thread(target=reads_pages, args=(gw.admin_port, stop)) for _ in range(4)]
        for r in readers:
            r.start()
        time.sleep(0.1 + 0.02 * i)
        gw.signal(signal.SIGTERM)
        try:
            equal(gw.exit(10), 0, "exit status")
        finally:
            stop.set()
            for r in readers:
                r.join()
