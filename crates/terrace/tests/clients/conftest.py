"""A server with the bundled model, and a record of the endpoints that each client used."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import httpx
import httpx2
import pytest

KEY = "clients-key"
HERE = Path(__file__).parent


class Server:
    """A `terrace serve`, with a key unless it is `None`, and plain requests to it that are not recorded."""

    def __init__(self, *options, key=KEY, context=8192, model=None, threads=1):
        self.home = tempfile.TemporaryDirectory(prefix="terrace-clients-")
        home = Path(self.home.name)
        self.log = home / "log"
        command = [os.environ["TERRACE"], "serve", model or os.environ["MODEL"], "--port", "0"]
        command += ["--ctx", str(context), "--parallel", "2", "--threads", str(threads), "--stream", "none", *options]
        if key is not None:
            command += ["--api-key", key]
        environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
            )
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait()
            raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")
        self.url = line.removeprefix("listening on ").strip()
        while self.health() != 200:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended:\n{self.log.read_text()}")
            time.sleep(0.1)
        self.model = self.get("/v1/models")["data"][0]["id"]

    def health(self):
        try:
            return urllib.request.urlopen(self.url + "/health", timeout=60).status
        except urllib.error.HTTPError as error:
            return error.code

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {KEY}"})
        return json.load(urllib.request.urlopen(request, timeout=60))

    def post(self, path, body):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        return json.load(urllib.request.urlopen(request, timeout=300))

    def tokens(self, text):
        return self.post("/tokenize", {"content": text})["tokens"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.home.cleanup()
        return code


@pytest.fixture(scope="session")
def server():
    server = Server("--chat-template-file", str(HERE.parent / "it" / "tools.jinja"))
    yield server
    assert server.process.poll() is None, f"the server ended:\n{server.log.read_text()}"
    assert server.end() == 0


@pytest.fixture(scope="session")
def trained():
    """A server whose model calls tools by itself, as the bundled one does not."""
    model = os.environ.get("TRAINED", "")
    if not Path(model).is_file():
        pytest.skip("needs a trained model: scripts/trained-models fetches it")
    # Of its own template's calls this model leaves out the tags; here there are none.
    server = Server("--chat-template-file", str(HERE / "trained.jinja"), model=model, threads=os.cpu_count())
    yield server
    assert server.end() == 0


# Which endpoints a test used, and which clients' tests that passed used which endpoints.
_requests = set()
_used = {}


def _record(request):
    if request.url.host == "127.0.0.1":
        _requests.add((request.method, request.url.path))


def _recorded(send):
    def handle(self, request):
        _record(request)
        return send(self, request)

    return handle


for library in (httpx, httpx2):
    for transport, send in (
        ("HTTPTransport", "handle_request"),
        ("AsyncHTTPTransport", "handle_async_request"),
    ):
        transport = getattr(library, transport)
        setattr(transport, send, _recorded(getattr(transport, send)))


@pytest.fixture
def client_name(request):
    """The client that a test is about."""
    return request.module.CLIENT


@pytest.fixture(autouse=True)
def _count(request, client_name):
    _requests.clear()
    yield
    report = getattr(request.node, "report", None)
    if report is not None and report.passed:
        _used.setdefault(client_name, Counter()).update(f"{method} {path}" for method, path in _requests)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.report = report
    return report


def node_tests(script, package, tmp_path, server, **variables):
    """Runs tests with Node's own runner; returns what it prints, and the endpoints that they used."""
    packages = os.environ.get("PACKAGES", "")
    if not shutil.which("node") or not Path(packages, "node_modules", package).is_dir():
        pytest.skip("needs node and npm")
    used = tmp_path / "used.json"
    told = {"URL": server.url, "KEY": KEY, "MODEL": server.model, "USED_BY_JS": str(used)}
    command = ["node", "--test", str(HERE / script)]
    environment = {**os.environ, **told, **variables}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout, json.loads(used.read_text())


def used_elsewhere(client, endpoints):
    """Adds what a client in another process used, as `METHOD PATH` with a number of tests."""
    _used.setdefault(client, Counter()).update(endpoints)


_begun = time.monotonic()


def pytest_terminal_summary(terminalreporter):
    if path := os.environ.get("USED"):
        count = {what: len(terminalreporter.stats.get(what, [])) for what in ("passed", "failed", "skipped")}
        record = {"used": _used, "seconds": time.monotonic() - _begun, **count}
        Path(path).write_text(json.dumps(record, indent=1, sort_keys=True))
