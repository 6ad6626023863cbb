#!/usr/bin/python3
"""A sandbox that speaks gRPC, for the demonstration: HTTP/2 by prior knowledge, each call answered with the message it sent and
with trailers.  The frames are those of the flow tests.

    demo_grpc.py        prints 'listening on PORT' once it serves
"""
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "flow"))
from h2wire import H2, SETTINGS, frame  # noqa: E402


def answer(stream):
    stream.next_head(0)
    message = stream.read()
    stream.head([(":status", "200"), ("content-type", "application/grpc")])
    stream.send(message)
    stream.head([("grpc-status", "0"), ("grpc-message", ""), ("x-echoed-bytes", str(len(message)))], end=True)


def serve(sock):
    start = lambda stream: threading.Thread(target=answer, args=(stream,), daemon=True).start()
    h2 = H2(sock, server=True, begin=False, on_stream=start)
    h2.offer(frame(SETTINGS, 0, 0))
    h2.run()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print("listening on %d" % listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
