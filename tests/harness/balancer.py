"""haproxy in front of gateways, as one would have it: connections as they are, and only to those whose /status.ok is 200."""
import os
import shutil

CONF = """
defaults
    mode tcp
    # one that is about to end drops handshakes that it would not serve: another is asked soon
    timeout connect 250ms
    timeout client 60s
    timeout server 60s
    timeout check 2s
    retries 3
    option redispatch 1
frontend clients
    bind 127.0.0.1:{port}
    default_backend gateways
backend gateways
    balance roundrobin
    option httpchk GET /status.ok
    default-server inter 200ms fall 1 rise 1
"""


def program():
    """Its path, or None; the folder is not everybody's."""
    return shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")


def command(conf, port, gateways):
    """Writes the file conf -> what to start."""
    with open(conf, "w", encoding="utf-8") as f:
        f.write(CONF.format(port=port))
        f.writelines(f"    server s{n} 127.0.0.1:{to} check\n" for n, to in enumerate(gateways, 1))
    return [program(), "-db", "-f", str(conf)]
