"""litellm, which speaks to servers as OpenAI's, Anthropic's and Ollama's clients do."""

import asyncio
import os

import pytest
from common import ASKED, PERSON, TOOLS, called, valid
from conftest import KEY

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

CLIENT = "litellm"
HI = [{"role": "user", "content": "Hi"}]
litellm.disable_aiohttp_transport = True
litellm.telemetry = False
litellm.num_retries = 0


@pytest.fixture(params=["openai", "anthropic", "ollama_chat"])
def ask(request, server):
    """Asks in each of the three forms."""
    base = server.url + ("/v1" if request.param == "openai" else "")

    def ask(messages=HI, **more):
        asked = {"max_tokens": 12, "temperature": 0, **more}
        model = f"{request.param}/{server.model}"
        headers = {"Authorization": f"Bearer {KEY}"}
        return litellm.completion(
            model=model, messages=messages, api_base=base, api_key=KEY, extra_headers=headers, **asked
        )

    ask.form = request.param
    return ask


def content(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_answers_whole_and_streamed(ask):
    ask(max_tokens=1)
    whole = ask()
    assert whole.choices[0].message.content and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 12 and whole.usage.prompt_tokens > 0
    assert content(ask(stream=True)) == whole.choices[0].message.content


def test_stop_strings(ask):
    ask(max_tokens=1)
    text = ask().choices[0].message.content
    cut = ask(stop=[text[5:8]])
    assert cut.choices[0].message.content.rstrip() == text[: text.index(text[5:8])].rstrip()
    assert cut.choices[0].finish_reason == "stop"


def test_named_tools_are_called(ask):
    if ask.form == "ollama_chat":
        pytest.skip("Ollama has no choice of tools")
    quiet = (
        {"thinking": {"type": "disabled"}, "allowed_openai_params": ["thinking"]}
        if ask.form == "anthropic"
        else {"extra_body": {"reasoning_format": "none"}}
    )
    choice = {"type": "function", "function": {"name": "weather"}}
    whole = ask(ASKED, tools=TOOLS, tool_choice=choice, max_tokens=300, **quiet)
    assert whole.choices[0].finish_reason == "tool_calls"
    [call] = whole.choices[0].message.tool_calls
    assert call.function.name == "weather" and called("weather", call.function.arguments)
    talk = [
        *ASKED,
        whole.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
    ]
    assert ask(talk, tools=TOOLS, tool_choice="none").choices[0].message.content
    chunks = ask(ASKED, tools=TOOLS, tool_choice=choice, max_tokens=300, stream=True, **quiet)
    built = litellm.stream_chunk_builder(list(chunks))
    assert called("weather", built.choices[0].message.tool_calls[0].function.arguments)


def test_json_by_a_schema(ask):
    format = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    quiet = {} if ask.form == "ollama_chat" else {"reasoning_effort": "none"}
    if ask.form == "anthropic":
        quiet = {"thinking": {"type": "disabled"}, "allowed_openai_params": ["thinking"]}
    assert valid(ask(response_format=format, max_tokens=300, **quiet).choices[0].message.content)


def test_text_completions(server):
    asked = {
        "model": f"text-completion-openai/{server.model}",
        "api_base": server.url + "/v1",
        "api_key": KEY,
    }
    whole = litellm.text_completion(prompt="And God said unto", max_tokens=8, temperature=0, **asked)
    plain = server.post("/completion", {"prompt": "And God said unto", "n_predict": 8, "temperature": 0})
    assert whole.choices[0].text == plain["content"]


def test_as_aider_asks(server):
    """aider streams with a temperature and without a limit, and its turns end with a reminder."""
    talk = [
        {"role": "system", "content": "Act as an expert software developer."},
        {
            "role": "user",
            "content": "I have *added these files to the chat*.\n\nhello.py\n```\nprint('hi')\n```\n",
        },
        {"role": "assistant", "content": "Ok, any changes I propose will be to those files."},
        {"role": "user", "content": "Say hello to the world."},
    ]
    asked = {"model": f"openai/{server.model}", "api_base": server.url + "/v1", "api_key": KEY}
    stream = litellm.completion(messages=talk, stream=True, temperature=0, max_tokens=20, **asked)
    assert content(stream)


def test_async(server):
    async def ask():
        asked = {"model": f"openai/{server.model}", "api_base": server.url + "/v1", "api_key": KEY}
        stream = await litellm.acompletion(messages=HI, max_tokens=5, stream=True, **asked)
        return [chunk async for chunk in stream]

    assert content(asyncio.run(ask()))


def test_errors_have_litellms_classes(ask):
    """Which it does not have for Ollama."""
    kind = litellm.BadRequestError if ask.form == "ollama_chat" else litellm.ContextWindowExceededError
    with pytest.raises(kind, match="context size|too long"):
        ask([{"role": "user", "content": "word " * 9000}])
