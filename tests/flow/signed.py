"""Signatures of contract 4.4 and tokens of contract 5 for the flow tests, made here from the text of the contract and not with the gateway's code."""
import base64
import hashlib
import hmac
import struct
import time

SECRET = b"conformance-key-1"
RING = "a=" + base64.b64encode(SECRET).decode()


def ring(**keys):
    """The text of a key ring."""
    return ",".join(f"{k}={base64.b64encode(v).decode()}" for k, v in keys.items())


def base36(n):
    digits = ""
    while n or not digits:
        n, d = divmod(n, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[d] + digits
    return digits


def signature(sandbox, port, exp36, secret=SECRET, key="a"):
    text = f"v1\nshort\n{sandbox}\n{port}\n{exp36}\n".encode()
    inner = struct.pack(">I", len(secret)) + secret + struct.pack(">I", len(text)) + text
    return hashlib.sha256(inner).hexdigest()[:8] + key


def b64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def scope(sandbox, port=3000, namespace="tenant-a", secret=SECRET, key="a", tag="opensandbox-fsb-route-v1"):
    """A route scope token of contract 5."""
    text = f"{tag}\n{namespace}\n{sandbox}\n{port}\n".encode()
    mac = hmac.new(secret, text, hashlib.sha256).digest()[:16]
    return ".".join(["f1", b64url(namespace.encode()), b64url(sandbox.encode()), str(port), key, b64url(mac)])


class Proof:
    """A signed route of a sandbox's port, in all its forms."""

    def __init__(self, sandbox, port=3000, ttl=600, exp=None, secret=SECRET, key="a"):
        self.exp = int(time.time()) + ttl if exp is None else exp
        self.exp36 = base36(self.exp)
        self.sandbox, self.port = sandbox, port
        self.sig = signature(sandbox, port, self.exp36, secret, key)

    def forged(self):
        """The same with a wrong hash and the right key id."""
        self.sig = ("0" if self.sig[0] != "0" else "1") + self.sig[1:]
        return self

    def unknown(self):
        """The same with a key id that no ring of these tests has."""
        self.sig = self.sig[:-1] + "q"
        return self

    @property
    def label(self):
        return f"{self.sandbox}-{self.port}-{self.exp36}-{self.sig}"

    @property
    def path(self):
        return f"/sandboxes/{self.sandbox}/port/{self.port}/{self.exp36}/{self.sig}"

    @property
    def uri(self):
        return f"/{self.sandbox}/{self.port}/{self.exp36}/{self.sig}"
