"""HTTP/2 with two names in one request: `:authority` and `host` (contract egress-vault 8.2)."""
from bench import check, equal, test
from vaulted import MISMATCH, SECRET, Vaulted, injected, refused
from wire import Ended


@test("vault 8.2", "E12", limit=90)
def a_host_that_is_not_the_authority_is_told_so_and_reaches_nobody(lab):
    b = Vaulted(lab)
    c = b.h2()
    equal(c.ask("GET", "/v1/x", "host: api.test").status, 200)
    injected(b)
    asked = len(b.asked())
    for host, authority in (("other.test", "api.test"), ("api.test", "other.test"), ("api.test:80", "api.test")):
        refused(c.ask("GET", "/v1/x", f"host: {host}", host=authority), 421, MISMATCH)
    for fields in (("host: ",), ("host: a b",), ("host: api.test", "host: api.test")):
        try:
            a = c.ask("GET", "/v1/x", *fields)
            check(a.end != "whole" or a.status == 400, fields, a.status)
        except Ended:
            pass
    equal(len(b.asked()), asked, "nothing has gone out")
    b.unseen(SECRET, at=b.web["other.test"])
    equal(c.ask("GET", "/v1/x").status, 200, "the connection stays usable")
