"""Ollama's library for Python."""

import asyncio
import datetime

import ollama
import pytest
from common import ASKED, PERSON, THINKING, TOOLS, valid
from conftest import KEY

CLIENT = "ollama"
HI = [{"role": "user", "content": "Hi"}]
AND = "And God said unto"


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url, headers={"Authorization": f"Bearer {KEY}"})


def options(**more):
    return {"temperature": 0, "num_predict": 12, **more}


@pytest.fixture
def chat(client, server):
    def ask(messages=HI, options=options(), **more):
        return client.chat(model=server.model, messages=messages, options=options, **more)

    return ask


@pytest.fixture
def generate(client, server):
    def ask(prompt=AND, options=options(), **more):
        return client.generate(model=server.model, prompt=prompt, options=options, **more)

    return ask


def test_models(client, server):
    [model] = client.list().models
    assert model.model == server.model and model.size > 1_000_000 and model.details.format == "gguf"
    [loaded] = client.ps().models
    assert loaded.model == server.model
    assert loaded.expires_at > datetime.datetime.now(datetime.timezone.utc)
    shown = client.show(server.model)
    assert shown.modelinfo["general.architecture"] == "qwen3moe"
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities)
    assert "<tool_call>" in shown.template


def test_chats_whole_and_streamed(chat):
    whole = chat()
    assert whole.done and whole.done_reason == "length" and whole.message.role == "assistant"
    assert whole.message.content and whole.eval_count == 12
    assert whole.prompt_eval_count > 0 and whole.total_duration >= whole.eval_duration > 0
    parts = list(chat(stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("length", 12)


def test_texts_whole_and_streamed(generate, server):
    whole = generate(raw=True)
    plain = server.post("/completion", {"prompt": AND, "n_predict": 12, "temperature": 0})["content"]
    assert whole.response == plain and whole.done_reason == "length"
    assert "".join(part.response for part in generate(raw=True, stream=True)) == plain
    asked = generate(system="Be brief.")
    assert asked.prompt_eval_count > generate().prompt_eval_count > whole.prompt_eval_count


def test_async(server, chat):
    async def ask():
        client = ollama.AsyncClient(host=server.url, headers={"Authorization": f"Bearer {KEY}"})
        stream = await client.chat(model=server.model, messages=HI, options=options(), stream=True)
        return "".join([part.message.content async for part in stream])

    assert asyncio.run(ask()) == chat().message.content


def test_options(chat):
    greedy = chat().message.content

    def drawn(**more):
        return chat(options=options(temperature=1.5, **more)).message.content

    assert drawn(seed=7) == drawn(seed=7) != drawn(seed=8)
    for one in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
        assert drawn(seed=3, **one) == greedy
    assert drawn(seed=5, typical_p=0.2) != drawn(seed=5)
    long = options(num_predict=32)
    for one in (
        {"repeat_penalty": 1.5, "repeat_last_n": -1},
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
    ):
        assert chat(options={**long, **one}).message.content != chat(options=long).message.content
    cut = chat(options=options(stop=[greedy[5:8]]))
    assert cut.message.content == greedy[: greedy.index(greedy[5:8])] and cut.done_reason == "stop"
    assert (
        chat(options=options(num_ctx=2048, num_thread=4, num_gpu=0, num_batch=64)).message.content == greedy
    )


def test_formats(chat, generate):
    room = options(num_predict=400, temperature=1, seed=2)
    whole = chat(format=PERSON, options=room)
    assert valid(whole.message.content) and whole.done_reason == "stop"
    assert (
        "".join(part.message.content for part in chat(format=PERSON, options=room, stream=True))
        == whole.message.content
    )
    assert valid(generate(format=PERSON, options=room, think=False).response)
    valid(chat(format="json", options=options(num_predict=400)).message.content, {"type": "object"})


def test_tools(chat):
    # Ollama has no choice of tools: the model's turn is begun for it.
    grammar = {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 1}}\n</tool_call>',
    }
    begun = chat([*ASKED, grammar], tools=TOOLS, options=options(num_predict=1))
    assert begun.done
    talk = [
        *ASKED,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome", "days": 1}}}],
        },
        {"role": "tool", "tool_name": "weather", "content": "Sunny."},
    ]
    after = chat(talk, tools=TOOLS)
    assert after.message.content and not after.message.tool_calls
    assert after.prompt_eval_count > chat(talk).prompt_eval_count


def test_thoughts(chat, server):
    asked = {"messages": HI, "grammar": THINKING}
    assert server.post("/v1/chat/completions", asked)["choices"][0]["message"]["reasoning_content"]
    on, off = chat(think=True), chat(think=False)
    assert off.prompt_eval_count > on.prompt_eval_count


def test_keep_alive_and_empty_prompts(client, server, chat):
    assert client.generate(model=server.model, prompt="", keep_alive="10m").done_reason == "load"
    assert chat(keep_alive=-1).message.content


def test_errors(chat, client, server):
    with pytest.raises(ollama.ResponseError, match="top_p") as caught:
        chat(options={"top_p": -7})
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="image"):
        chat([{"role": "user", "content": "Hi", "images": [b"\x89PNG"]}])
    with pytest.raises(ollama.ResponseError) as caught:
        ollama.Client(host=server.url).chat(model=server.model, messages=HI)
    assert caught.value.status_code == 401
