"""Anthropic's library for Python."""

import anthropic
import pytest
from common import ASKED, NOW, PERSON, THINKING, WEATHER, called, valid
from conftest import KEY

CLIENT = "anthropic"
HI = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
    for tool in (WEATHER, NOW)
]
# The model would think without end before it calls a tool.
QUIET = {"type": "disabled"}


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def ask(client, server):
    """Asks for an answer of 12 greedy tokens, unless the request says otherwise."""

    def ask(messages=HI, extra=None, **more):
        asked = {"max_tokens": 12, "model": server.model, **more}
        # A prompt that was not kept is computed in other pieces, which rounds differently.
        client.messages.create(messages=messages, **{**asked, "max_tokens": 1})
        extra = {"temperature": 0, **(extra or {})}
        return client.messages.create(messages=messages, extra_body=extra, **asked)

    return ask


@pytest.fixture
def stream(client, server):
    """The final message of a stream, and the kinds of its events."""

    def stream(messages=HI, extra=None, **more):
        asked = {"max_tokens": 12, "model": server.model, **more}
        extra = {"temperature": 0, **(extra or {})}
        with client.messages.stream(messages=messages, extra_body=extra, **asked) as stream:
            kinds = [event.type for event in stream]
            return stream.get_final_message(), kinds

    return stream


def same(one, other):
    """Whether two messages have the same content, but for the identifiers of calls."""
    assert one.stop_reason == other.stop_reason and one.stop_sequence == other.stop_sequence
    return [block.model_dump(exclude={"id"}) for block in one.content] == [
        block.model_dump(exclude={"id"}) for block in other.content
    ]


def test_messages_whole_and_streamed(ask, stream):
    whole = ask()
    assert (whole.type, whole.role, whole.stop_reason) == ("message", "assistant", "max_tokens")
    [block] = whole.content
    assert block.type == "text" and block.text and whole.usage.output_tokens == 12
    streamed, kinds = stream()
    assert same(whole, streamed) and streamed.usage.output_tokens == 12
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1


def test_counted_tokens_are_those_of_usage(client, ask, stream, server):
    asked = {"system": "Be brief.", "tools": TOOLS, "messages": ASKED}
    counted = client.messages.count_tokens(model=server.model, **asked).input_tokens
    assert counted > client.messages.count_tokens(model=server.model, messages=ASKED).input_tokens
    for message in (ask(**asked), stream(**asked)[0]):
        usage = message.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == counted


def test_systems_are_texts_or_blocks(ask, client, server):
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    one, other = ask(system="Be brief."), ask(system=blocks)
    assert same(one, other)

    def count(**more):
        return client.messages.count_tokens(model=server.model, messages=HI, **more).input_tokens

    assert count(system="Be brief.") == count(system=blocks) > count()


def test_stop_sequences(ask, stream):
    text = ask().content[0].text
    stop = text[5:8]
    for cut in (ask(stop_sequences=[stop]), stream(stop_sequences=[stop])[0]):
        assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
        assert cut.content[0].text == text[: text.index(stop)]


def test_samplers(ask):
    def drawn(**more):
        return ask(extra={"temperature": 1.5, **more}).content[0].text

    assert drawn(top_k=1) == drawn(top_p=0) == ask().content[0].text
    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_tools_are_called(ask, stream, choice):
    asked = {"tools": TOOLS, "tool_choice": {**choice, "disable_parallel_tool_use": True}, "max_tokens": 300}
    whole = ask(ASKED, thinking=QUIET, **asked)
    assert whole.stop_reason == "tool_use"
    call = whole.content[-1]
    assert call.type == "tool_use" and call.id
    called(call.name, call.input)
    if choice["type"] == "tool":
        assert call.name == "weather"
    streamed, kinds = stream(ASKED, thinking=QUIET, **asked)
    assert same(whole, streamed) and "input_json" in kinds
    talk = [
        *ASKED,
        {"role": "assistant", "content": [block.model_dump() for block in whole.content]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": [{"type": "text", "text": "Sunny."}],
                }
            ],
        },
    ]
    after = ask(talk, tools=TOOLS, tool_choice={"type": "none"})
    assert after.content[0].type == "text" and after.stop_reason == "max_tokens"


def test_thoughts(ask, stream):
    asked = {"extra": {"grammar": THINKING}, "max_tokens": 60}
    thinking = {"type": "adaptive"}
    whole = ask(thinking=thinking, **asked)
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[0].thinking.strip() == "hm" and whole.content[1].text == "yes"
    streamed, kinds = stream(thinking=thinking, **asked)
    assert same(whole, streamed) and kinds.count("content_block_start") == 2
    talk = [*HI, {"role": "assistant", "content": [block.model_dump() for block in whole.content]}, *HI]
    assert ask(talk).content[0].text


def test_thinking_on_and_off(client, server):
    def count(**more):
        return client.messages.count_tokens(model=server.model, messages=HI, **more).input_tokens

    assert count(thinking={"type": "disabled"}) > count(thinking={"type": "enabled", "budget_tokens": 1024})


def test_json_by_a_schema(ask, stream):
    format = {"output_config": {"format": {"type": "json_schema", "schema": PERSON}}, "max_tokens": 300}
    whole = ask(thinking=QUIET, **format)
    assert whole.stop_reason == "end_turn" and valid(whole.content[0].text)
    assert same(whole, stream(thinking=QUIET, **format)[0])


def test_fields_of_anthropics_own_services(ask):
    """They are accepted where they change nothing of an answer."""
    plain = ask()
    more = {"metadata": {"user_id": "me"}, "service_tier": "auto", "output_config": {"effort": "low"}}
    more |= {"cache_control": {"type": "ephemeral"}, "speed": "standard", "inference_geo": "us"}
    assert same(ask(**more), plain)


def test_the_assistants_turn_is_continued(ask, server):
    begun = [*HI, {"role": "assistant", "content": "In the beginning"}]
    prompt = server.post("/apply-template", {"messages": begun})["prompt"]
    plain = server.post("/completion", {"prompt": prompt, "n_predict": 12, "temperature": 0})["content"]
    assert ask(begun).content[0].text == plain


def test_errors(ask, client, server):
    with pytest.raises(anthropic.BadRequestError, match="min_p") as caught:
        ask(extra={"min_p": "much"})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError, match="names the tool `none`"):
        ask(tools=TOOLS, tool_choice={"type": "tool", "name": "none"})
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        ask([{"role": "user", "content": [image]}])
    with pytest.raises(anthropic.BadRequestError, match="context"):
        ask([{"role": "user", "content": "word " * 9000}])
    with anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as other:
        with pytest.raises(anthropic.AuthenticationError):
            other.messages.create(model=server.model, max_tokens=1, messages=HI)


def test_models(client, server):
    assert [model.id for model in client.models.list()] == [server.model]
