"""Programs as their registries have them, set up as the guide says (`docs/guide/jobs/serve-an-ide.md`).

Each asks one question of a server with the bundled model, in a home of its own, and is interrupted in the middle of
another. The model's texts make no sense; what counts is that the program sends what it sends, shows what it gets, and
ends as it does when all is well. The server's log says what was asked, with which status, and how answers ended.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import HERE, Server, used_elsewhere

PLACE = Path(os.environ["PROGRAMS"])
PAGE = (HERE.parents[3] / "docs/guide/jobs/serve-an-ide.md").read_text()
QUESTION = "Say hello"
# Prompts have up to 16,000 tokens here, and a machine may be busy.
PATIENCE = 600
# The most that serve gives a slot without `--ctx`; all of the programs' prompts fit.
CONTEXT = 32768


def block(title):
    """The configuration in a section of the page."""
    return re.search(rf"^## {title}\n.*?```\w+\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[1]


def command_of(program):
    """The first command in a program's row of the table."""
    return shlex.split(re.search(rf"^\| {program} \| `([^`]+)`", PAGE, re.MULTILINE)[1])


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def node(name):
    return str(PLACE / "node_modules" / ".bin" / name)


class Program:
    """A program: how it is set up, and asked one question."""

    def __init__(self, path, paths, setup, ask, *, environment=None):
        self.path, self.paths, self.environment = Path(path), paths, environment or {}
        # What they return has the page's address; `at` replaces it.
        self.setup, self.ask = setup, ask


def codex(home, at):
    write(home / ".codex/config.toml", at(block("Codex")))


def continues(home, at):
    write(home / ".continue/config.yaml", at(block("Continue")))


def opencode(home, at):
    write(home / ".config/opencode/opencode.json", at(block("OpenCode")))


def cline(home, at):
    words = [at(word) for word in command_of("Cline")]
    subprocess.run([node("cline"), *words[1:]], env=environment(home), check=True, timeout=PATIENCE)


PROGRAMS = {
    "aider": Program(
        PLACE / "venv/bin/aider",
        {"POST /v1/chat/completions"},
        lambda home, at: None,
        lambda at: [
            *(at(word) for word in command_of("aider")[1:]),
            *("--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable"),
            *("--yes-always", "--message", QUESTION, "file.py"),
        ],
        # Otherwise a list of prices is fetched.
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    "Cline": Program(
        node("cline"),
        {"POST /v1/chat/completions"},
        cline,
        lambda at: ["-P", "openai-compatible", "--auto-approve", "false", QUESTION],
    ),
    "Codex": Program(
        node("codex"),
        {"POST /v1/responses"},
        codex,
        lambda at: ["exec", "--skip-git-repo-check", QUESTION],
    ),
    "Continue": Program(
        node("cn"),
        {"POST /v1/chat/completions"},
        continues,
        lambda at: ["-p", QUESTION],
    ),
    "OpenCode": Program(
        node("opencode"),
        {"POST /v1/chat/completions"},
        opencode,
        lambda at: ["run", "-m", "terrace/local", QUESTION],
    ),
}


class Tried(Server):
    """A server without keys, whose log is read."""

    def __init__(self, *options):
        template = HERE.parent / "it" / "tools.jinja"
        super().__init__(
            *("--chat-template-file", str(template), "--log-format", "json", *options), key=None, context=CONTEXT
        )
        self.read = 0

    def at(self, text):
        """The page's text, with this server's address."""
        return text.replace("http://127.0.0.1:8080", self.url)

    def requests(self):
        """The requests that have ended since the last call; the tests' own are left out."""
        lines = self.log.read_text(errors="replace").splitlines()
        new, self.read = lines[self.read :], len(lines)
        logged = [json.loads(line) for line in new if line.startswith("{")]
        requests = [entry for entry in logged if "path" in entry and "status" in entry]
        return [entry for entry in requests if entry["path"] not in ("/slots", "/health")]

    def busy(self):
        return any(slot["is_processing"] for slot in self.get("/slots"))


@pytest.fixture(scope="module")
def brief():
    """A server whose answers are short: the token that ends one (2047) gets a bonus."""
    server = Tried("--logit-bias", "2047+15", "-n", "200")
    yield server
    assert server.end() == 0


@pytest.fixture(scope="module")
def endless():
    """A server whose answers do not end."""
    server = Tried("--ignore-eos")
    yield server
    assert server.end() == 0


@pytest.fixture
def client_name(request):
    return request.node.callspec.params["name"] if hasattr(request.node, "callspec") else "n8n"


def environment(home, **more):
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**inherited, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1", **more}


def begin(name, server, folder):
    """Sets the program up, and asks. The process leads a group of its own, as a terminal's job does."""
    program = PROGRAMS[name]
    if not program.path.exists():
        pytest.skip(f"{name} is not installed")
    home, work = folder / "home", folder / "work"
    home.mkdir()
    write(work / "file.py", "def f():\n    pass\n")
    program.setup(home, server.at)
    return subprocess.Popen(
        [str(program.path), *program.ask(server.at)],
        cwd=work,
        env=environment(home, **program.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process):
    """Ends what is left of a program's group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(60)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_question_is_answered(name, brief, tmp_path):
    brief.requests()
    process = begin(name, brief, tmp_path)
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        end(process)
    requests = brief.requests()
    assert process.returncode == 0, f"{output}\n{requests}"
    asked = {f"{entry['method']} {entry['path']}" for entry in requests}
    assert PROGRAMS[name].paths <= asked, output
    assert all(entry["status"] == 200 for entry in requests), requests
    assert all(not entry.get("left") for entry in requests), requests
    assert {entry["end"] for entry in requests if "end" in entry} == {"end_of_text"}, requests
    used_elsewhere(name, asked)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupt_frees_the_slot(name, endless, tmp_path):
    endless.requests()
    process = begin(name, endless, tmp_path)
    try:
        wait(endless.busy, process)
        os.killpg(process.pid, signal.SIGINT)
        wait(lambda: not endless.busy())
    finally:
        end(process)
    wait(lambda: any(entry.get("left") for entry in endless.requests()))


def wait(what, process=None):
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < PATIENCE
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def test_nodes_of_n8n_ask(brief):
    """The libraries that n8n's nodes are made of, as those nodes use them."""
    if not (PLACE / "node_modules" / "@langchain").exists():
        pytest.skip("LangChain for JavaScript is not installed")
    brief.requests()
    script = HERE / "n8n.mjs"
    command = ["node", str(script), brief.url]
    run = subprocess.run(
        command, env={**os.environ, "PLACE": str(PLACE)}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stdout + run.stderr
    requests = brief.requests()
    assert all(entry["status"] == 200 for entry in requests), requests
    used_elsewhere("n8n", {f"{entry['method']} {entry['path']}" for entry in requests})
