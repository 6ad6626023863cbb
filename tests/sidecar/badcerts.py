"""Certificates of every kind for the servers outside, by the authority of a world: good ones and those that prove nothing."""
import datetime
import os
import ssl
import warnings

from wire import Skipped

DAY = datetime.timedelta(days=1)


def modules():
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise Skipped("python3-cryptography is not installed") from None
    return x509, hashes, serialization, ec


def signs(digest):
    """Does the library still sign with that?"""
    x509, hashes, _, ec = modules()
    from cryptography.exceptions import UnsupportedAlgorithm
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(ec.generate_private_key(ec.SECP256R1()), getattr(hashes, digest)())
    except UnsupportedAlgorithm:
        return False
    return True


class Signer:
    """An authority with its key; from PEM files, or a fresh one."""

    def __init__(self, cert=None, key=None):
        self.cert, self.key = cert, key

    @classmethod
    def load(cls, cert_file, key_file):
        x509, _, serialization, _ = modules()
        with open(cert_file, "rb") as f:
            cert = x509.load_pem_x509_certificate(f.read())
        with open(key_file, "rb") as f:
            key = serialization.load_pem_private_key(f.read(), None)
        return cls(cert, key)

    def issue(self, names, days=(-1, 20), key=None, ca=False, usage="server", digest="SHA256", common="leaf", issuer=None):
        """A certificate of this authority (None: signed by itself): (certificate, key)."""
        x509, hashes, _, ec = modules()
        eku = {"server": x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, "client": x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH}
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.utcnow()
        subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common)])
        signer = self.key or key
        b = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer or (self.cert.subject if self.cert else subject))
        b = b.public_key(key.public_key()).serial_number(x509.random_serial_number())
        b = b.not_valid_before(now + days[0] * DAY).not_valid_after(now + days[1] * DAY)
        b = b.add_extension(x509.BasicConstraints(ca, None), critical=True)
        b = b.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        b = b.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        if names:
            b = b.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
        if not ca and usage:
            b = b.add_extension(x509.ExtendedKeyUsage([eku[usage]]), critical=False)
        if ca:
            b = b.add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # that a digest is weak is what some of them are for
            return b.sign(signer, getattr(hashes, digest)()), key


def pem(*certs):
    _, _, serialization, _ = modules()
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certs)


def context(folder, key, *chain, alpn=("h2", "http/1.1"), security=None):
    """A server's context that shows this chain."""
    _, _, serialization, _ = modules()
    base = os.path.join(folder, f"chain-{chain[0].serial_number:x}")
    with open(base + ".pem", "wb") as f:
        f.write(pem(*chain))
    with open(base + ".key", "wb") as f:
        f.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if security is not None:
        c.set_ciphers(f"DEFAULT:@SECLEVEL={security}")
    c.load_cert_chain(base + ".pem", base + ".key")
    if alpn:
        c.set_alpn_protocols(list(alpn))
    return c
