"""Ends and limits of the process."""

import os
import resource
import signal
import time

from target import MODEL, Server, run


def limit(which, value):
    return lambda: resource.setrlimit(which, (value, value))


def attack_small_limits(folder):
    """Few descriptors, small files, few threads."""
    for number in [8, 16, 32]:
        done = run("run", MODEL, "-p", "In the", "-n", 2, before=limit(resource.RLIMIT_NOFILE, number))
        assert done.returncode >= 0, done
    done = run("quantize", MODEL, folder / "out.gguf", "--type", "COPY", before=limit(resource.RLIMIT_FSIZE, 1 << 20))
    assert done.returncode > 0 and "error: " in done.stderr, done
    assert not (folder / "out.gguf").exists()


def attack_flood_with_few_descriptors(folder):
    """More connections than there are descriptors, and then none."""
    import socket
    with Server(folder, "--ctx", 256, before=limit(resource.RLIMIT_NOFILE, 64)) as server:
        held = []
        for _ in range(200):
            try:
                held.append(socket.create_connection(server.address, timeout=2))
            except OSError:
                break
        for connection in held:
            connection.close()
        end = time.monotonic() + 60
        while True:
            try:
                server.stands()
                return f"{len(held)} connections"
            except (AssertionError, OSError):
                assert time.monotonic() < end and server.process.poll() is None, server.said()
                time.sleep(0.2)


def attack_closed_terminal(folder):
    """The terminal of a server is closed: the server ends."""
    import pty
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(os.environ.get("TERRACE", "target/release/terrace"),
                 ["terrace", "serve", MODEL, "--port", "0", "--threads", "1", "--ctx", "256"])
    text = b""
    while b"listening on" not in text:
        text += os.read(terminal, 4096)
    time.sleep(0.5)
    os.close(terminal)
    end = time.monotonic() + 60
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("it runs on")
        time.sleep(0.05)
