"""OpenAI's library for JavaScript: `openai.mjs`, by Node's own test runner."""

from conftest import node_tests, used_elsewhere

CLIENT = "openai (JavaScript)"


def test_openai_mjs(server, tmp_path):
    told, used = node_tests("openai.mjs", "openai", tmp_path, server)
    assert "# pass 10" in told, told
    used_elsewhere(CLIENT, used)
