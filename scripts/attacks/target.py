"""The program under attack: servers and commands, with limits on time and memory."""

import functools
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TERRACE = os.environ.get("TERRACE", str(ROOT / "target/release/terrace"))
MODEL = os.environ.get("MODEL", str(ROOT / "models/tiny-moe-Q4_K.gguf"))
# Shared machines are slow: a limit says that something hangs, not how fast it is.
HANGS = 180
PROMPT = "In the beginning"


def run(*words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.PIPE, before=None, timeout=HANGS):
    """Runs a command to its end. A command that hangs is an error."""
    return subprocess.run([TERRACE, *map(str, words)], stdin=stdin, stdout=stdout, stderr=stderr, timeout=timeout,
                          preexec_fn=before, text=True)


def refused(done, *parts):
    """Checks that a command ended with one line that says all of `parts`, and not by a signal."""
    text = done.stderr or ""
    assert done.returncode > 0, f"status {done.returncode}: {text}"
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    assert "internal" not in errors[0] and "GGML_ASSERT" not in text and "panicked" not in text, text
    for part in parts:
        assert part in text, f"`{part}` is not in: {text}"
    return errors[0]


@functools.cache
def golden():
    """The greedy text of four tokens after the prompt, by `run`."""
    done = run("run", MODEL, "-p", PROMPT, "-n", 4, "--temp", 0, "--threads", 1, "--json")
    return json.loads(done.stdout)["text"]


class Server:
    """A server with the bundled model."""

    def __init__(self, folder, *words, model=MODEL, stderr=None, before=None):
        self.log = open(Path(folder) / f"log-{time.monotonic_ns()}", "w+") if stderr is None else None
        words = ["serve", *([str(model)] if model else []), "--port", "0", "--threads", "1", *map(str, words)]
        self.process = subprocess.Popen([TERRACE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log if stderr is None else stderr, text=True, preexec_fn=before)
        line = self.process.stdout.readline()
        found = re.match(r"listening on http://([^:]+):(\d+)", line)
        assert found, f"`{line}`: {self.said()}"
        self.address = (found[1], int(found[2]))
        self.wait_until_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if self.log:
            self.log.close()

    def said(self):
        if not self.log:
            return ""
        self.log.seek(0)
        return self.log.read()

    def wait_until_ready(self):
        end = time.monotonic() + HANGS
        while self.get("/health")[0] != 200:
            assert time.monotonic() < end and self.process.poll() is None, self.said()
            time.sleep(0.05)

    def raw(self, data, timeout=HANGS):
        """Sends bytes, and returns what comes until the server closes."""
        with socket.create_connection(self.address, timeout=timeout) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65536):
                received += piece
        return received

    def request(self, method, path, body=None, headers=(), timeout=HANGS):
        """Status and text of an answer."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(data)}"]
        head += ["Content-Type: application/json", *headers]
        answer = self.raw("\r\n".join(head).encode() + b"\r\n\r\n" + data, timeout)
        assert answer, f"no answer to {method} {path}: {self.said()}"
        begin, _, rest = answer.partition(b"\r\n\r\n")
        return int(begin.split()[1]), rest.decode(errors="replace")

    def get(self, path, headers=()):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=(), timeout=HANGS):
        return self.request("POST", path, body, headers, timeout)

    def stands(self):
        """Checks that the server answers, and with right tokens."""
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.said()}"
        status, text = self.get("/health")
        assert status == 200, text
        body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
        status, text = self.post("/v1/completions", body)
        assert status == 200 and json.loads(text)["choices"][0]["text"] == golden(), text

    def peak_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def ends(self, grace, number=signal.SIGTERM):
        """Tells the server to end, and returns the seconds that it took."""
        begin = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(timeout=grace + HANGS)
        return time.monotonic() - begin
