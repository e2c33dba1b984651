"""Vercel's AI SDK with its providers for servers of OpenAI's API, and with the one for Ollama's: `ai_sdk.mjs`."""

import re

import pytest
from conftest import Server, node_tests, used_elsewhere

CLIENT = "AI SDK"


@pytest.fixture(scope="module")
def embedding():
    server = Server("--embeddings")
    yield server
    server.end()


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses", "ollama"])
def test_ai_sdk_mjs(server, embedding, provider, tmp_path):
    variables = {"EMBEDDING": embedding.url, "PROVIDER": provider}
    told, used = node_tests("ai_sdk.mjs", "ai", tmp_path, server, **variables)
    passed = int(re.search(r"^# pass (\d+)", told, re.MULTILINE)[1])
    assert passed == (6 if provider == "ollama" else 7), told
    used_elsewhere("ollama-ai-provider-v2" if provider == "ollama" else CLIENT, used)
