"""OpenAI's library for JavaScript: `openai.mjs`, by Node's own test runner."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import KEY, used_elsewhere

CLIENT = "openai (JavaScript)"


def test_openai_mjs(server, tmp_path):
    packages = os.environ.get("PACKAGES", "")
    if not shutil.which("node") or not Path(packages, "node_modules", "openai").is_dir():
        pytest.skip("needs node and npm")
    used = tmp_path / "used.json"
    environment = {
        **os.environ,
        "URL": server.url,
        "KEY": KEY,
        "MODEL": server.model,
        "USED_BY_JS": str(used),
    }
    command = ["node", "--test", str(Path(__file__).parent / "openai.mjs")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# pass 10" in run.stdout, run.stdout
    used_elsewhere(CLIENT, json.loads(used.read_text()))
