"""RPC servers that misbehave."""

import os
import socket
import threading

from target import MODEL, refused, run


def hostile(answer):
    """A server that does `answer` with each connection. Returns its address, and a function that ends it."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answered, args=(connection,), daemon=True).start()

    def answered(connection):
        with connection:
            connection.settimeout(30)
            try:
                answer(connection)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()

    def end():
        stop.set()
        listener.close()

    return "127.0.0.1:%d" % listener.getsockname()[1], end


def attack_silent_and_garbage(folder):
    """Servers that close, say nothing, drip, and send garbage and huge lengths."""

    def closes(connection):
        connection.recv(1)

    def silent(connection):
        connection.recv(1 << 16)
        connection.recv(1 << 16)

    def garbage(connection):
        connection.sendall(os.urandom(1 << 16))
        connection.recv(1 << 16)

    def huge(connection):
        connection.recv(1 << 16)
        connection.sendall((2**63).to_bytes(8, "little"))
        connection.recv(1 << 16)

    def most(connection):
        connection.recv(1 << 16)
        connection.sendall(b"\xff" * 4096)
        connection.recv(1 << 16)

    for answer in [closes, silent, garbage, huge, most]:
        address, end = hostile(answer)
        try:
            for command in [["run", MODEL, "-p", "x", "-n", 1], ["plan", MODEL]]:
                refused(run(*command, "--rpc", address, "--rpc-timeout", 3, timeout=120))
        finally:
            end()
