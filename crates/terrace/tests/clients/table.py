"""Prints the page of the book that says which client used which endpoint: `table.py USED.json`."""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

# The libraries, with the packages whose versions are named.
LIBRARIES = {
    "openai (Python)": "openai",
    "openai (JavaScript)": None,
    "anthropic": "anthropic",
    "ollama": "ollama",
    "litellm": "litellm",
    "LangChain": "langchain-core",
    "instructor": "instructor",
    "llm": "llm",
    "openai-agents": "openai-agents",
    "pydantic-ai": "pydantic-ai-slim",
    "LlamaIndex": "llama-index-core",
    "Haystack": "haystack-ai",
    "semantic-kernel": None,
    "outlines": "outlines",
    "guidance": "guidance",
    "AI SDK": None,
    "ollama-ai-provider-v2": None,
}
HERE = Path(__file__).parent
# Those that are installed elsewhere: from npm, or in another venv.
NPM = {"openai (JavaScript)": "openai", "AI SDK": "ai", "ollama-ai-provider-v2": "ollama-ai-provider-v2"}

HEAD = """# Clients

`make test-clients` asks a server with the bundled model through the libraries below, as installed from PyPI and npm,
and sends it requests in the forms of the programs below. Agents that call tools by themselves are tried with a trained
model, Qwen2.5-Coder-1.5B, where `scripts/trained-models` has fetched it. Each test compares what it gets: answers streamed and whole,
token counts, reasons for the end, JSON against its schema, calls of tools against theirs, and what every sampler and
limit does to the tokens. The program `scripts/test-clients --table` writes this page.
"""

PROGRAMS = """Requests as they send them are in `crates/terrace/tests/clients/payloads`. aider, Cline, Codex, Continue (its command
line) and OpenCode also run themselves, set up as [Serve an IDE](../guide/jobs/serve-an-ide.md) says, and n8n's part is
LangChain for JavaScript.
"""


def endpoint(text):
    """An endpoint; names in its path are left out."""
    return re.sub(r"(/v1/models)/.+", r"\1/NAME", text)


def version(client):
    if package := LIBRARIES[client]:
        return importlib.metadata.version(package)
    if client in NPM:
        return json.loads((HERE / "package.json").read_text())["dependencies"][NPM[client]]
    return (HERE / "requirements-kernel.txt").read_text().strip().split("==")[1]


def table(used, clients):
    """Lines of a table: a row for each endpoint, with the number of tests of each client."""
    counts = {}
    for client in clients:
        for name, tests in used[client].items():
            row = counts.setdefault(endpoint(name), {})
            row[client] = row.get(client, 0) + tests
    yield "| | " + " | ".join(clients) + " |"
    yield "|---|" + "--:|" * len(clients)
    for name in sorted(counts, key=lambda name: name.split()[::-1]):
        cells = (str(counts[name].get(client, "")) for client in clients)
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def main():
    record = json.loads(Path(sys.argv[1]).read_text())
    used = record["used"]
    libraries = [client for client in LIBRARIES if client in used]
    programs = sorted(set(used) - set(LIBRARIES))
    print(HEAD)
    ends = ", ".join(f"{record[what]} {what}" for what in ("passed", "failed", "skipped"))
    print(
        f"Of all tests {ends}, in {record['seconds']:.0f} s on two cores. A number below is that of the tests that"
    )
    print("used an endpoint and passed.\n")
    print("## Libraries\n")
    for first in range(0, len(libraries), 9):
        print("\n".join(table(used, libraries[first : first + 9])) + "\n")
    print("Versions: " + ", ".join(f"{client} {version(client)}" for client in libraries) + ".\n")
    print("## Programs\n")
    print(PROGRAMS)
    print("\n".join(table(used, programs)))


if __name__ == "__main__":
    main()
