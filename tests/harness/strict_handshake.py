#!/usr/bin/env python3
"""A client with Python's strictest verification shakes hands in memory with a server that has a leaf: CA LEAF KEY NAME.

Exit 0: verified; 1: refused, the reason on stderr; 77: this Python has no strict verification.
"""
import ssl
import sys


def shake(client, server):
    """Both sides over two pairs of memory BIOs."""
    for _ in range(8):
        waiting = 0
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if waiting == 0:
            return
    raise ssl.SSLError("the handshake does not end")


def main():
    ca, leaf, key, name = sys.argv[1:5]
    if not hasattr(ssl, "VERIFY_X509_STRICT"):
        return 77
    theirs = ssl.create_default_context(cafile=ca)
    theirs.verify_flags |= ssl.VERIFY_X509_STRICT
    if hasattr(ssl, "VERIFY_X509_PARTIAL_CHAIN"):
        theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    theirs.hostname_checks_common_name = False
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(leaf, key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(down, up, server_hostname=name)
    server = ours.wrap_bio(up, down, server_side=True)
    try:
        shake(client, server)
    except ssl.SSLError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


sys.exit(main())
