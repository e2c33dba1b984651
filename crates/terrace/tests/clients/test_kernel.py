"""semantic-kernel: `kernel.py`, by the Python of a venv of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import HERE, KEY, Server, used_elsewhere

CLIENT = "semantic-kernel"


def test_kernel_py(server):
    python = os.environ.get("KERNEL", "")
    if not Path(python).exists():
        pytest.skip("semantic-kernel is not installed")
    embedding = Server("--embeddings")
    try:
        environment = {
            **os.environ,
            "URL": server.url,
            "EMBEDDING": embedding.url,
            "KEY": KEY,
            "MODEL": server.model,
        }
        run = subprocess.run(
            [python, str(HERE / "kernel.py")], env=environment, capture_output=True, text=True, timeout=900
        )
    finally:
        embedding.end()
    assert run.returncode == 0, run.stdout + run.stderr
    record = json.loads(run.stdout.splitlines()[-1])
    assert len(record["passed"]) == 5, record
    used_elsewhere(CLIENT, record["used"])
