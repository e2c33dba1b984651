"""Vercel's AI SDK with its providers for servers of OpenAI's API, and with the one for Ollama's: `ai_sdk.mjs`."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import KEY, Server, used_elsewhere

CLIENT = "AI SDK"


@pytest.fixture(scope="module")
def embedding():
    server = Server("--embeddings")
    yield server
    server.end()


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses", "ollama"])
def test_ai_sdk_mjs(server, embedding, provider, tmp_path):
    packages = os.environ.get("PACKAGES", "")
    if not shutil.which("node") or not Path(packages, "node_modules", "ai").is_dir():
        pytest.skip("needs node and npm")
    used = tmp_path / "used.json"
    environment = {
        **os.environ,
        "URL": server.url,
        "EMBEDDING": embedding.url,
        "KEY": KEY,
        "MODEL": server.model,
        "PROVIDER": provider,
        "USED_BY_JS": str(used),
    }
    command = ["node", "--test", str(Path(__file__).parent / "ai_sdk.mjs")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    passed = int(re.search(r"^# pass (\d+)", run.stdout, re.MULTILINE)[1])
    assert passed == (6 if provider == "ollama" else 7), run.stdout
    used_elsewhere("ollama-ai-provider-v2" if provider == "ollama" else CLIENT, json.loads(used.read_text()))
