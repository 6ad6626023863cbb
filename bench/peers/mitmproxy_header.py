"""The credential, as an add-on of mitmproxy's; it looks at nothing else."""
import os

VALUE = "Bearer " + os.environ["BENCH_SECRET"]


def request(flow):
    flow.request.headers["authorization"] = VALUE
