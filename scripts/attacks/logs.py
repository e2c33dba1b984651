"""Logs that cannot be written, or that nobody reads."""

import os
import subprocess

from target import MODEL, Server, run


def attack_full_log(folder):
    """Commands and a server whose log is on a full disk."""
    with open("/dev/full", "w") as full:
        done = run("run", MODEL, "-p", "In the", "-n", 2, "-v", stderr=full)
        assert done.returncode == 0 and done.stdout, done
        done = run("inspect", MODEL, "-v", stderr=full)
        assert done.returncode == 0, done
        done = run("run", "/nonexistent.gguf", "-p", "x", stderr=full)
        assert done.returncode not in (0, 101) and done.returncode > 0, done
        with Server(folder, "--ctx", 256, "--log-format", "json", stderr=full) as server:
            for _ in range(50):
                server.stands()


def attack_ended_reader(folder):
    """A log whose reader has ended."""
    end, begin = os.pipe()
    os.close(end)
    try:
        done = run("run", MODEL, "-p", "In the", "-n", 2, "-v", stderr=begin)
        assert done.returncode == 0 and done.stdout, done
        with Server(folder, "--ctx", 256, "--log-format", "json", stderr=begin) as server:
            for _ in range(50):
                server.stands()
    finally:
        os.close(begin)


def attack_unread_log(folder):
    """A log that nobody reads: 600 requests, and an end within the grace."""
    with Server(folder, "--ctx", 256, "--log-format", "json", "--grace", 2, stderr=subprocess.PIPE) as server:
        for _ in range(600):
            assert server.get("/health")[0] == 200
            assert server.get("/nothing")[0] == 404
        server.stands()
        seconds = server.ends(2)
        server.process.stderr.close()
        return f"ended after {seconds:.1f} s"
