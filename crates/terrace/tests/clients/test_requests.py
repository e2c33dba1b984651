"""What programs ask before they chat, as their sources have it: GitHub Copilot's provider for Ollama
(`ollamaProvider.ts`), Home Assistant's integration (`config_flow.py`, `ai_task.py`, `entity.py`), Open WebUI's router (`routers/ollama.py`,
`routers/openai.py`)."""

import asyncio
import datetime
import json

import httpx
import ollama
import pytest
from common import ASKED, PERSON, TOOLS, valid
from conftest import KEY, Server

HEADERS = {"Authorization": f"Bearer {KEY}"}
CLIENTS = {"copilot": "VS Code", "home_assistant": "Home Assistant", "open_webui": "Open WebUI"}


@pytest.fixture
def client_name(request):
    return next(name for part, name in CLIENTS.items() if part in request.node.name)


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, headers=HEADERS, timeout=300) as client:
        yield client


def test_copilot_checks_the_version_and_reads_the_models(http, server):
    """It takes no server below 0.6.4, by the numbers between dots, and reads each model's context and capabilities."""
    version = http.get("/api/version").json()["version"]
    numbers = [int(part) for part in version.split(".")]
    assert numbers >= [0, 6, 4], version
    [model] = http.get("/api/tags").json()["models"]
    assert model["model"] == server.model
    shown = http.post("/api/show", json={"model": model["model"]}).json()
    info = shown["model_info"]
    assert info["general.basename"] and info[f"{info['general.architecture']}.context_length"] > 0
    assert {"completion", "tools"} <= set(shown["capabilities"]) and isinstance(shown["template"], str)


def test_copilot_chats_by_openai(http, server):
    """Then it chats over `/v1/chat/completions`, with all its tools and a stream."""
    body = {
        "model": server.model,
        "messages": ASKED,
        "temperature": 0.1,
        "top_p": 1,
        "n": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": TOOLS,
        "max_tokens": 24,
    }
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    assert json.loads(data[-2])["usage"]["completion_tokens"] > 0


def test_home_assistant_tests_the_connection(server):
    """A form with a wrong key has to get 401, and the right one a list of models, with the model's name."""

    async def listed(key):
        client = ollama.AsyncClient(host=server.url, headers={"Authorization": f"Bearer {key}"})
        return [model["model"] for model in (await client.list())["models"]]

    assert asyncio.run(listed(KEY)) == [server.model]
    with pytest.raises(ollama.ResponseError) as caught:
        asyncio.run(listed("wrong"))
    assert caught.value.status_code == 401


@pytest.mark.parametrize("keep_alive", [-1, "300s"])
def test_home_assistant_asks_for_data(server, keep_alive):
    """Its AI tasks: a stream with the structure as `format`, and tools beside it."""

    async def asked():
        client = ollama.AsyncClient(host=server.url, headers=HEADERS)
        stream = await client.chat(
            model=server.model,
            messages=[
                ollama.Message(role="system", content="You are an assistant."),
                ollama.Message(role="user", content="Who?"),
            ],
            tools=TOOLS if keep_alive == -1 else None,
            stream=True,
            keep_alive=keep_alive,
            options={"num_ctx": 8192, "num_predict": 400, "temperature": 0},
            think=False,
            format=PERSON,
        )
        return [part async for part in stream]

    parts = asyncio.run(asked())
    calls = [call for part in parts for call in part.message.tool_calls or []]
    assert parts[-1].done and parts[-1].done_reason == "stop"
    assert calls or valid("".join(part.message.content or "" for part in parts))


def test_open_webui_finds_models(http, server):
    """Verification, the merged list of models and of loaded ones, whose times it reads as ISO 8601."""
    assert http.get("/api/version").json()["version"]
    [model] = http.get("/api/tags").json()["models"]
    assert model["model"] == model["name"] == server.model
    loaded = {one["name"]: one["expires_at"] for one in http.get("/api/ps").json()["models"]}
    assert datetime.datetime.fromisoformat(loaded[model["name"]]).timestamp() > 0
    assert [one["id"] for one in http.get("/v1/models").json()["data"]] == [server.model]


def test_open_webui_sends_users_and_unloads(http, server):
    """Its headers name the user; what unloads a model is refused with a reason by a server that keeps it."""
    headers = {
        "X-OpenWebUI-User-Name": "A%C3%A4",
        "X-OpenWebUI-User-Id": "1",
        "X-OpenWebUI-User-Email": "a@example.org",
        "X-OpenWebUI-User-Role": "admin",
        "X-OpenWebUI-Chat-Id": "2",
    }
    body = {"model": server.model, "messages": ASKED, "stream": False, "options": {"num_predict": 4}}
    assert http.post("/api/chat", json=body, headers=headers).json()["done"]
    body = {"model": server.model, "keep_alive": 0, "prompt": ""}
    assert "keeps its model loaded" in http.post("/api/generate", json=body).json()["error"]


def test_open_webui_embeds(client_name):
    server = Server("--embeddings")
    try:
        with httpx.Client(base_url=server.url, headers=HEADERS, timeout=300) as http:
            body = {"model": server.model, "input": ["In the beginning", "A hacker"]}
            both = http.post("/api/embed", json=body).json()["embeddings"]
            assert len(both) == 2
            data = http.post("/v1/embeddings", json=body).json()["data"]
            assert [one["index"] for one in data] == [0, 1]
    finally:
        server.end()
