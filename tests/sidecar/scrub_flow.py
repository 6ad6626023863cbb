"""Origins that say the secret back: in every place, spelling and coding, cut at every byte; none of it reaches the client, and
what is no secret arrives as it was."""
import base64
import gzip
import json
import os
import threading
import time
import urllib.parse
import zlib

from bench import check, equal, test
from vaulted import BOTH, SECRET, Vaulted, binding, clean, filled, injected, refused, vault
from webs import Said
from wire import Ended, Late, request

STARS = b"*" * len(SECRET)
ODD = 'CANARY "q\\u"+/%<&> \u00e9\u2028-end'      # a value that each spelling writes in another way


def coders():
    """name: (compress, decompress); br and zstd where Python has them."""
    out = {"identity": (lambda d: d, lambda d: d), "gzip": (gzip.compress, gzip.decompress), "x-gzip": (gzip.compress, gzip.decompress)}
    try:
        import brotli
        out["br"] = (brotli.compress, brotli.decompress)
    except ImportError:
        pass
    try:
        import zstandard
        out["zstd"] = (lambda d: zstandard.ZstdCompressor().compress(d), lambda d: zstandard.ZstdDecompressor().decompressobj().decompress(d))
    except ImportError:
        pass
    return out


def cut(data, at):
    return [data[:at], data[at:]]


def several(data, n):
    return [data[i:i + n] for i in range(0, len(data), n)]


def waiting(pieces, pause=0.003):
    """Pieces with pauses, so that each is a packet, a record and a read of its own."""
    for p in pieces:
        yield p
        time.sleep(pause)


class Script:
    """A handler that plays what the test puts in: said, or said(q)."""

    def __init__(self):
        self.said = Said(200)

    def __call__(self, q):
        return self.said(q) if callable(self.said) else self.said


def world(lab, **how):
    script = Script()
    return Vaulted(lab, handler=script, **how), script


def fields(coding, *more):
    return [*([] if coding == "identity" else [f"Content-Encoding: {coding}"]), "Content-Type: text/plain", *more]


# ---- fields

@test("VLT-06", "14.2", limit=90)
def no_field_trailer_or_interim_head_says_it(lab):
    for alpn in (BOTH, ("http/1.1",)):
        b, script = world(lab, alpn=alpn, body=vault(binding(), filled("PH-77", "header", name="f", paths=["/f/*"]), k=SECRET))
        script.said = Said(200, f"X-One: a{SECRET}b{SECRET}c", f"Set-Cookie: a=1; {SECRET}", "Set-Cookie: b=2", f"Set-Cookie: c={SECRET.upper()}",
                           f"Set-Cookie: d={SECRET}", f"WWW-Authenticate: Bearer {SECRET}", "X-Holder: PH-77", f"Location: /?{SECRET}",
                           f"X-Fake: {SECRET[:-1]}", "ETag: \"x\"", interim=[(103, [f"Link: <{SECRET}>"])], trailers=[f"X-Late: <{SECRET}>", "X-Sum: 1"],
                           body=[b"x"], reason=f"OK {SECRET}")
        for c in b.clients():
            a = c.ask("GET", "/v1/x")
            equal(a.status, 200)
            clean(*[v for _, v in a.fields if SECRET.upper() not in v], repr(a.trailers))
            equal(a.get("x-one"), "a[REDACTED]b[REDACTED]c")
            equal(a.all("set-cookie"), ["a=1; [REDACTED]", "b=2", f"c={SECRET.upper()}", "d=[REDACTED]"])
            equal((a.get("x-holder"), a.get("www-authenticate"), a.get("location")), ("[REDACTED]", "[REDACTED]", "/?[REDACTED]"))
            equal((a.get("x-fake"), a.get("etag")), (SECRET[:-1], '"x"'))
            equal(sorted((n.lower(), v) for n, v in a.trailers), [("x-late", "<[REDACTED]>"), ("x-sum", "1")])
            if c.version == "h1":
                check(SECRET not in getattr(a, "reason", ""), "the reason phrase", a.reason)
                equal([(i.status, i.get("link")) for i in a.interim], [(103, "<[REDACTED]>")])


@test("VLT-06", "14.1", limit=120)
def every_spelling_of_a_value_is_known(lab):
    basic = base64.b64encode(b"user:the-pass-word").decode()
    b, script = world(lab, body=vault(binding(), binding("o", {"type": "apiKey", "name": "X-Key", "credential": "o"}, paths=["/o/*"]),
                                      binding("s", {"type": "basic", "credential": "s"}, paths=["/s/*"]), k=SECRET, o=ODD, s=basic))
    percent = urllib.parse.quote(ODD, safe="")
    def lower(text):
        return "".join(c.lower() if text[i - 1:i] == "%" or text[max(0, i - 2):max(0, i - 1)] == "%" else c for i, c in enumerate(text))
    forms = {"value": ODD, "percent": percent, "percent lower": lower(percent), "form": percent.replace("%20", "+"),
             "json": json.dumps(ODD, ensure_ascii=False)[1:-1], "json ascii": json.dumps(ODD)[1:-1],
             "json html": json.dumps(ODD, ensure_ascii=False)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace(
                 "\u2028", "\\u2028"),
             "basic": basic, "basic header": "Basic " + basic, "user and password": "user:the-pass-word", "password": "the-pass-word", "bearer": "Bearer " + SECRET}
    for path in ("/v1/x", "/nothing/bound"):       # the whole vault's strings, whichever binding it was
        for c in b.clients():
            for what, form in forms.items():
                script.said = Said(200, "Content-Type: application/json", body=f"<<{form}>>".encode())
                a = c.ask("GET", path)
                equal((what, a.body), (what, b"<<" + b"*" * len(form.encode()) + b">>"))
    script.said = Said(200, body=f"<{SECRET}>".encode())
    a = b.h1("other.test", trust=b.theirs).ask("GET", "/v1/x")
    equal(a.body, f"<{SECRET}>".encode(), "another host's bytes are untouched")


@test("14.1", "VLT-07", limit=60)
def what_a_basic_substitution_made_is_known_too(lab):
    b, script = world(lab, body=vault(filled("PH", "header"), k=SECRET))
    script.said = lambda q: Said(200, f"X-Echo: {q.get('authorization')}", body=[q.get("authorization").encode(), b" ",
                                                                                 base64.b64decode(q.get("authorization").split()[1])])
    for c in b.clients():
        a = c.ask("GET", "/v1/x", "Authorization: Basic " + base64.b64encode(b"git:PH").decode())
        token = base64.b64encode(f"git:{SECRET}".encode()).decode()
        injected(b, token, scheme="Basic ")
        clean(a)
        clean(a, secret=token)
        a = c.ask("GET", "/v1/x", "Authorization: Basic " + base64.b64encode(b"git:nothing").decode())
        check(b"git:nothing" in a.body, "another request's are not", a.body)


# ---- bodies

@test("VLT-06", "14.2", "23", limit=240)
def cut_at_every_byte_in_every_coding(lab):
    """Plain: a piece for each side of the cut; coded: the bytes of the coding are cut."""
    b, script = world(lab)
    text = b"before " + SECRET.encode() + b" after"
    wanted = b"before " + STARS + b" after"
    for coding, (pack, unpack) in coders().items():
        data = pack(text)
        cuts = range(0, len(data) + 1)
        for c in b.clients():
            for at in cuts:
                script.said = Said(200, *fields(coding), body=[p for p in cut(data, at) if p] or [b""])
                a = c.ask("GET", "/v1/x")
                equal((coding, at, a.status, a.end), (coding, at, 200, "whole"))
                equal((coding, at, unpack(a.body)), (coding, at, wanted))
                equal(a.get("content-encoding"), None if coding == "identity" else coding)
            script.said = Said(200, *fields(coding), body=list(several(data, 1)))
            equal((coding, unpack(c.ask("GET", "/v1/x").body)), (coding, wanted))
    b2, script2 = world(lab)
    for c in b2.clients():
        script2.said = lambda q: Said(200, body=waiting(several(text * 3, 3)))
        equal(c.ask("GET", "/v1/x").body, wanted * 3)


@test("VLT-06", "14.2", limit=120)
def framing_stays_true(lab):
    b, script = world(lab)
    text = b"x" * 1000 + SECRET.encode() + b"y" * 1000
    for alpn_client in (b.h1, b.h2):
        c = alpn_client()
        script.said = Said(200, "ETag: \"1\"", "Digest: sha-256=abc", "Content-MD5: x", body=text)
        a = c.ask("GET", "/v1/x")
        equal((a.get("content-length"), len(a.body), a.get("etag"), a.get("digest")), (str(len(text)), len(text), '"1"', "sha-256=abc"))
        script.said = Said(206, "Content-Range: bytes 990-1030/2020", body=text[990:1031])
        a = c.ask("GET", "/v1/x", "Range: bytes=990-1030", "Accept-Encoding: gzip")
        equal((a.status, a.get("content-range"), len(a.body)), (206, "bytes 990-1030/2020", 41))
        clean(a)
        equal(b.api.last.get("accept-encoding"), "identity")
        for status in (204, 304):
            script.said = Said(status, "ETag: \"1\"", "Content-Encoding: gzip", "Alt-Svc: clear")
            a = c.ask("GET", "/v1/x")
            equal((a.status, a.get("etag"), a.get("content-encoding"), a.body), (status, '"1"', "gzip", b""))
        for coding, (pack, unpack) in coders().items():
            if coding == "identity":
                continue
            data = pack(text)
            script.said = Said(200, *fields(coding, "Content-MD5: x", "Digest: x", "Content-Digest: x", "Repr-Digest: x", "ETag: \"1\""), body=data)
            a = c.ask("GET", "/v1/x")
            equal((coding, a.end, unpack(a.body)), (coding, "whole", text.replace(SECRET.encode(), STARS)))
            equal([a.get(n) for n in ("content-length", "content-md5", "digest", "content-digest", "repr-digest", "etag")], [None] * 5 + ['"1"'])
    b, script = world(lab, body=vault(binding(methods=["GET", "HEAD"]), k=SECRET))
    for c in b.clients():
        script.said = Said(200, "Content-Length: 2020", "Content-Encoding: gzip", "Content-MD5: x", f"X-S: {SECRET}")
        a = c.ask("HEAD", "/v1/x")
        equal((a.get("content-length"), a.get("content-encoding"), a.get("content-md5"), a.get("x-s"), a.body), ("2020", "gzip", "x", "[REDACTED]", b""))
        equal(c.ask("HEAD", "/v1/x").status, 200, "the connection goes on")


@test("14.2", "VLT-06", limit=90)
def codings_that_cannot_be_read_are_refused(lab):
    b, script = world(lab)
    raw = zlib.compress(SECRET.encode())
    for coding in ("deflate", "compress", "gzip, br", "gzip, gzip", "rot13", "GZIP,identity,zstd", "aes128gcm", "dcb"):
        for c in b.clients():
            script.said = Said(200, f"Content-Encoding: {coding}", body=raw)
            refused(c.ask("GET", "/v1/x"), 502, "response encoding cannot be scrubbed")
            script.said = Said(200, body=b"fine")
            equal(c.ask("GET", "/v1/x").body, b"fine", "the connection goes on")
    for two in (["Content-Encoding: gzip", "Content-Encoding: br"],):
        script.said = Said(200, *two, body=raw)
        refused(b.h1().ask("GET", "/v1/x"), 502, "response encoding cannot be scrubbed")
    for coding in ("identity", "Identity", ""):
        script.said = Said(200, f"Content-Encoding: {coding}", body=SECRET.encode())
        for c in b.clients():
            equal(c.ask("GET", "/v1/x").body, STARS)
    script.said = Said(200, "Content-Encoding: GZip", body=gzip.compress(SECRET.encode()))
    equal(gzip.decompress(b.h1().ask("GET", "/v1/x").body), STARS)
    for sent, wanted in (("gzip, deflate, br, zstd;q=0.5, *", "gzip, br, zstd;q=0.5"), ("deflate", "identity"), ("*", "identity"), (None, None)):
        script.said = Said(200)
        b.h1().ask("GET", "/v1/x", *([f"Accept-Encoding: {sent}"] if sent else []))
        got = b.api.last.get("accept-encoding")
        equal(got.replace(" ", "") if got else got, wanted.replace(" ", "") if wanted else wanted, f"Accept-Encoding: {sent}")


@test("14.2", "STR-02", limit=120)
def a_coded_body_that_is_cut_or_corrupt_ends_cut(lab):
    b, script = world(lab)
    text = os.urandom(30000) + SECRET.encode() + os.urandom(30000)
    for coding, (pack, _) in coders().items():
        if coding == "identity":
            continue
        data = bytearray(pack(text))
        short = bytes(data[:len(data) * 3 // 4])
        broken = bytes(data[:2000]) + b"\xff\xff\xff\xff" * 500 + bytes(data[4000:])
        # Garbage behind a gzip member is no member, and behind a zstd frame no frame.
        for what, body in (("truncated", short), ("corrupt", broken), ("nothing of it", b"this was never coded at all, not a bit")):
            for c in (b.h1(), b.h2()):
                script.said = Said(200, *fields(coding), body=list(several(body, 7000)))
                try:
                    a = c.ask("GET", "/v1/x")
                except Ended:
                    continue
                clean(a)
                if what == "corrupt" and coding in ("br", "zstd") and a.end == "whole":
                    continue        # random bytes may well be stored as they are: what was changed is then just other text
                check(a.end != "whole" or a.status == 502, coding, what, c.version, a.status, a.end, len(a.body))


@test("14.2", "B6", limit=180)
def a_bomb_costs_no_memory(lab):
    b, script = world(lab)
    zero = bytes(64 << 20)
    bombs = {"gzip": gzip.compress(zero, 9)}
    found = coders()
    for coding in ("br", "zstd"):
        if coding in found:
            bombs[coding] = found[coding][0](zero)
    def rss():
        with open(f"/proc/{b.s.worker}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    for coding, data in bombs.items():
        check(len(data) < 200000, coding, len(data))
        script.said = Said(200, *fields(coding), body=data)
        before = rss()
        slow = [b.h2(window=65535) for _ in range(4)]
        streams = [c.open("GET", "/v1/x") for c in slow]
        for s in streams:
            s.next_head(0)
        time.sleep(1)
        check(rss() - before < 60000 * b.w.lab.slow, coding, "grew by", rss() - before, "kB")
        for c in slow:
            c.close()
        c = b.h1()
        a = c.ask("GET", "/v1/x")
        equal((coding, a.end, found[coding][1](a.body) == zero), (coding, "whole", True))


@test("14.2", limit=120)
def many_members_and_frames_are_one_body(lab):
    b, script = world(lab)
    parts = [b"one " + SECRET.encode()[:7], SECRET.encode()[7:] + b" two", b"", b" three " + SECRET.encode()]
    wanted = b"".join(parts).replace(SECRET.encode(), STARS)
    for coding, (pack, _) in coders().items():
        if coding in ("identity", "br"):
            continue
        data = b"".join(pack(p) for p in parts)
        if coding == "zstd":
            data = b"\x50\x2a\x4d\x18\x04\0\0\0skip" + data
        for c in b.clients():
            script.said = Said(200, *fields(coding), body=list(several(data, 11)))
            a = c.ask("GET", "/v1/x")
            if coding == "zstd":
                import zstandard
                with zstandard.ZstdDecompressor().stream_reader(a.body, read_across_frames=True) as r:
                    equal(r.read(), wanted)
            else:
                equal(gzip.decompress(a.body), wanted)


@test("14.1", "14.2", limit=90)
def overlapping_and_nested_values_leave_no_remainder(lab):
    values = {"k": "CANARY-abcdef", "l": "abcdef-CANARY", "m": "CANARY-abcdef-CANARY-more", "n": "aaaaaaaa"}
    b, script = world(lab, body=vault(*[binding(f"b{n}", {"type": "apiKey", "name": "X-Key", "credential": n}, paths=[f"/{n}/*"]) for n in values], **values))
    for text, wanted in (("xCANARY-abcdef-CANARYx", "x********************x"), ("CANARY-abcdef-CANARY-mor", "********************-mor"),
                         ("CANARY-abcdef-CANARY-more!", "*" * 25 + "!"), ("a" * 19 + "b", "*" * 19 + "b"), ("a" * 7 + "b" + "a" * 8, "a" * 7 + "b" + "*" * 8),
                         ("CANARY-abcdeCANARY-abcdef", "CANARY-abcde*************")):
        for c in b.clients():
            for pieces in ([text.encode()], several(text.encode(), 1), several(text.encode(), 5)):
                script.said = Said(200, f"X-V: {text}", body=list(pieces))
                a = c.ask("GET", "/k/x")
                equal((text, a.text), (text, wanted))
                for v in values.values():
                    check(v not in a.get("x-v"), a.get("x-v"))


@test("14.2", limit=60)
def bodies_stay_as_they_are_where_that_is_set(lab):
    b, script = world(lab, SCRUB_BODIES="false")
    script.said = Said(200, f"X-S: {SECRET}", "Content-Encoding: deflate", body=zlib.compress(SECRET.encode()))
    for c in b.clients():
        a = c.ask("GET", "/v1/x", "Accept-Encoding: deflate, br")
        equal((a.get("x-s"), zlib.decompress(a.body)), ("[REDACTED]", SECRET.encode()))
        equal(b.api.last.get("accept-encoding"), "deflate, br")
    b, script = world(lab, SCRUB_BODY_MIN="4", body=vault(binding(), k="abcd"))
    script.said = Said(200, body=b"xabcdx abc")
    equal(b.h1().ask("GET", "/v1/x").body, b"x****x abc")


@test("14.3", "VLT-06", limit=120)
def what_could_be_a_beginning_is_held_back_no_longer_than_that(lab):
    """The longest tail that may still become a match waits, all else is out at once."""
    go = threading.Event()
    def pieces():
        for p in (b"hello " + SECRET[:5].encode(), b" no", b"data: x\n\n", SECRET[:19].encode(), SECRET[19:].encode() + b"!"):
            go.wait(20)
            go.clear()
            yield p
    b, script = world(lab)
    for c in (b.h2(), b.h1()):
        script.said = lambda q: Said(200, "Content-Type: text/event-stream", body=pieces())
        if c.version == "h2":
            s = c.open("GET", "/v1/x")
            s.next_head(0)
            seen = bytearray()
            def got(n):
                while len(seen) < n:
                    part = s.take(within=20)
                    check(part, "ended early")
                    seen.extend(part)
                return bytes(seen)
            def quiet():
                try:
                    s.wait(lambda: len(s.data) > 0, "x", 0.3)
                except Late:
                    return True
                return False
        else:
            c.send(request("GET", "/v1/x", host="api.test"))
            c.head()
            seen = bytearray()
            def got(n):
                while len(seen) < n:
                    size = int(c.until(b"\r\n"), 16)
                    seen.extend(c.exact(size))
                    c.exact(2)
                return bytes(seen)
            def quiet():
                return c.silent(0.3)
        go.set()
        equal(got(6), b"hello ")
        check(quiet(), "more than what is safe")
        go.set()
        equal(got(14), b"hello " + SECRET[:5].encode() + b" no")
        go.set()
        equal(got(23)[14:], b"data: x\n\n", "an event ends and is there")
        go.set()
        check(quiet(), "the beginning of the secret is out")
        go.set()
        equal(got(23 + len(SECRET) + 1)[23:], STARS + b"!")


