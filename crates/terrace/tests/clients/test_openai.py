"""OpenAI's library for Python."""

import asyncio
import itertools

import openai
import pydantic
import pytest
from common import ASKED, PERSON, THINKING, TOOLS, called, valid
from conftest import KEY

CLIENT = "openai (Python)"
HI = [{"role": "user", "content": "Hi"}]
AND = "And God said unto"
# A model that was not trained for tools would think without end before it calls one.
SAID = {"reasoning_format": "none"}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def chat(client, server):
    """Asks for an answer of 12 greedy tokens, unless the request says otherwise."""

    def ask(messages=HI, extra=None, **more):
        asked = {"max_tokens": 12, "temperature": 0, **more}
        # A prompt that is partly kept is computed in other pieces, which rounds differently.
        extra = {"cache_prompt": False, **(extra or {})}
        return client.chat.completions.create(
            model=server.model, messages=messages, extra_body=extra, **asked
        )

    return ask


@pytest.fixture
def text(client, server):
    def ask(prompt=AND, extra=None, **more):
        asked = {"max_tokens": 16, "temperature": 0, **more}
        extra = {"cache_prompt": False, **(extra or {})}
        return client.completions.create(model=server.model, prompt=prompt, extra_body=extra, **asked)

    return ask


class Streamed:
    """The parts of a chat's stream, put together by answer."""

    def __init__(self, stream):
        self.content, self.thoughts, self.finish, self.calls, self.logprobs = {}, "", {}, [], []
        self.usage, self.ids = None, set()
        for chunk in stream:
            self.ids.add(chunk.id)
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices:
                delta = choice.delta
                self.content[choice.index] = self.content.get(choice.index, "") + (delta.content or "")
                self.thoughts += getattr(delta, "reasoning_content", None) or ""
                if choice.finish_reason:
                    self.finish[choice.index] = choice.finish_reason
                if choice.logprobs:
                    self.logprobs += choice.logprobs.content
                for call in delta.tool_calls or []:
                    if call.index == len(self.calls):
                        assert call.id and call.type == "function"
                        self.calls.append([call.function.name, call.function.arguments])
                    else:
                        self.calls[call.index][1] += call.function.arguments


def test_models(client, server):
    assert [model.id for model in client.models.list()] == [server.model]
    assert client.models.retrieve(server.model).object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no such model")


def test_answers_whole_and_streamed(chat):
    whole = chat()
    [choice] = whole.choices
    assert whole.object == "chat.completion" and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason == "length"
    usage = whole.usage
    assert usage.completion_tokens == 12
    assert usage.total_tokens == usage.prompt_tokens + 12
    assert whole.timings["predicted_n"] == 12 and whole.timings["predicted_ms"] > 0
    parts = Streamed(chat(stream=True, stream_options={"include_usage": True}))
    assert parts.content == {0: choice.message.content} and parts.finish == {0: "length"}
    assert len(parts.ids) == 1
    assert (parts.usage.prompt_tokens, parts.usage.completion_tokens) == (usage.prompt_tokens, 12)
    assert Streamed(chat(stream=True)).usage is None
    assert chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=3).usage.completion_tokens == 3


def test_async(server, chat):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY) as client:
            asked = {"model": server.model, "messages": HI, "max_tokens": 12, "temperature": 0}
            whole = client.chat.completions.create(**asked)
            stream = await client.chat.completions.create(**asked, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return (await whole).choices[0].message.content, "".join(parts)

    content = chat().choices[0].message.content
    assert asyncio.run(ask()) == (content, content)


def test_seeds_repeat(chat):
    def drawn(seed):
        return chat(seed=seed, temperature=1.5).choices[0].message.content

    assert drawn(7) == drawn(7)
    assert len({drawn(seed) for seed in (7, 7 + (1 << 40), -7)}) == 3


def test_several_answers(chat):
    whole = chat(n=2, seed=1, temperature=1.5)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1] and whole.usage.completion_tokens == 24
    parts = Streamed(chat(n=2, seed=1, temperature=1.5, stream=True))
    assert parts.content == dict(enumerate(texts)) and parts.finish == {0: "length", 1: "length"}


def test_stop_strings_cut(chat, text):
    content = chat().choices[0].message.content
    stop = content[5:9]
    cut = chat(stop=[stop, "never seen"]).choices[0]
    assert cut.message.content == content[: content.index(stop)] and cut.finish_reason == "stop"
    parts = Streamed(chat(stop=stop, stream=True))
    assert parts.content[0] == cut.message.content and parts.finish == {0: "stop"}
    plain = text().choices[0].text
    assert text(stop=plain[3:6]).choices[0].text == plain[: plain.index(plain[3:6])]


def test_biases_change_tokens(chat, text, server):
    first = server.tokens(text().choices[0].text)[0]
    assert server.tokens(text(logit_bias={str(first): -100}).choices[0].text)[0] != first
    always = server.tokens(" Israel")[0]
    content = text(logit_bias={str(always): 100}, max_tokens=3).choices[0].text
    assert server.tokens(content) == [always] * 3
    assert chat(logit_bias={str(always): 100}, max_tokens=2).choices[0].message.content == "Israel Israel"


def test_probabilities(chat, text):
    choice = chat(logprobs=True, top_logprobs=3).choices[0]
    all = choice.logprobs.content
    # Those of the content, from which white space at both ends is removed.
    assert 10 <= len(all) <= 12 and "".join(one.token for one in all) == choice.message.content
    for one in all:
        logs = [top.logprob for top in one.top_logprobs]
        assert len(logs) == 3 and logs == sorted(logs, reverse=True) and logs[0] <= 0
        # Greedy.
        assert one.top_logprobs[0].token.strip() == one.token.strip() and one.logprob == logs[0]
    parts = Streamed(chat(logprobs=True, top_logprobs=3, stream=True))
    assert [one.token for one in parts.logprobs] == [one.token for one in all]
    assert chat().choices[0].logprobs is None
    lists = text(logprobs=2).choices[0].logprobs
    assert len(lists.tokens) == len(lists.token_logprobs) == 16
    assert all_of(len(top) == 2 for top in lists.top_logprobs) and lists.text_offset[0] == 0


def all_of(flags):
    flags = list(flags)
    return flags and all(flags)


@pytest.mark.parametrize(
    "more",
    [
        {"presence_penalty": 2},
        {"frequency_penalty": 2},
        {"extra": {"repeat_penalty": 1.5, "repeat_last_n": -1}},
        {"extra": {"repetition_penalty": 1.5, "repeat_last_n": 256}},
        {"extra": {"dry_multiplier": 5, "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": -1}},
    ],
)
def test_penalties_change_greedy_answers(chat, more):
    greedy = chat(max_tokens=32)
    changed = chat(max_tokens=32, **more)
    assert changed.choices[0].message.content != greedy.choices[0].message.content
    again = chat(max_tokens=32, stream=True, **more)
    assert Streamed(again).content[0] == changed.choices[0].message.content


@pytest.mark.parametrize(
    "more",
    [
        {"top_p": 0},
        {"extra": {"top_k": 1}},
        {"extra": {"min_p": 1}},
        {"extra": {"top_n_sigma": 0.001}},
        {"extra": {"samplers": ["top_k"], "top_k": 1}},
        {"extra": {"samplers": "k", "top_k": 1}},
    ],
)
def test_samplers_that_leave_one_token_are_greedy(chat, more):
    greedy = chat().choices[0].message.content
    drawn = chat(temperature=1.5, seed=3, **more).choices[0].message.content
    assert drawn == greedy
    assert chat(temperature=1.5, seed=3).choices[0].message.content != greedy


@pytest.mark.parametrize(
    "more",
    [
        {"typical_p": 0.2},
        {"xtc_probability": 1, "xtc_threshold": 0.01},
        {"mirostat": 1, "mirostat_tau": 1, "mirostat_eta": 0.5},
        {"mirostat": 2, "mirostat_tau": 1, "mirostat_eta": 0.5},
        {"dynatemp_range": 1.4, "dynatemp_exponent": 2},
        {"adaptive_target": 0.9, "adaptive_decay": 0.5},
        {"samplers": ["temperature", "top_k"], "top_k": 2},
        {"min_p": 0.3, "min_keep": 2},
    ],
)
def test_samplers_have_an_effect(chat, more):
    def drawn(extra, stream=False):
        answer = chat(temperature=1.5, seed=5, max_tokens=40, extra=extra, stream=stream)
        return Streamed(answer).content[0] if stream else answer.choices[0].message.content

    with_it = drawn(more)
    assert with_it != drawn(None)
    assert drawn(more, stream=True) == with_it


def test_ends(chat, text, server):
    # The end is the likeliest token.
    end = {
        str(server.post("/tokenize", {"content": "<|endoftext|>", "parse_special": True})["tokens"][0]): 100
    }
    at_once = text(logit_bias=end)
    assert at_once.choices[0].finish_reason == "stop" and at_once.choices[0].text == ""
    later = text(logit_bias=end, extra={"min_tokens": 5})
    assert later.choices[0].finish_reason == "stop" and later.usage.completion_tokens >= 5
    never = text(logit_bias=end, extra={"ignore_eos": True})
    assert never.choices[0].finish_reason == "length" and never.usage.completion_tokens == 16
    assert Streamed(chat(logit_bias=end, stream=True)).finish == {0: "stop"}


def test_the_assistants_turn_is_continued(chat, server):
    begun = [*HI, {"role": "assistant", "content": "In the beginning"}]
    prompt = server.post("/apply-template", {"messages": begun})["prompt"]
    assert prompt.endswith("In the beginning")
    whole = chat(begun).choices[0].message.content
    plain = server.post("/completion", {"prompt": prompt, "n_predict": 12, "temperature": 0})["content"]
    assert whole == plain
    assert Streamed(chat(begun, stream=True)).content[0] == whole
    assert chat(begun, extra={"continue_final_message": False}).choices[0].message.content != whole


def test_json_objects(chat):
    asked = {"response_format": {"type": "json_object"}, "max_tokens": 400}
    whole = chat(**asked).choices[0]
    assert isinstance(valid(whole.message.content, {"type": "object"}), dict)
    assert Streamed(chat(stream=True, **asked)).content[0] == whole.message.content


def test_json_by_a_schema(chat, text):
    format = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    for seed in (1, 2):
        asked = {"response_format": format, "max_tokens": 200, "seed": seed, "temperature": 1}
        whole = chat(**asked).choices[0]
        assert whole.finish_reason == "stop" and valid(whole.message.content)
        assert Streamed(chat(stream=True, **asked)).content[0] == whole.message.content
        assert valid(text(extra={"json_schema": PERSON}, max_tokens=200, seed=seed).choices[0].text)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=3, le=5)
    nested: list[bool] = pydantic.Field(min_length=1, max_length=3)


def test_parsed_answers(client, server):
    asked = {"model": server.model, "messages": HI, "max_tokens": 200, "temperature": 0}
    parsed = client.chat.completions.parse(response_format=Person, **asked).choices[0].message.parsed
    assert isinstance(parsed, Person)
    with client.chat.completions.stream(response_format=Person, **asked) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    assert {"content.delta", "content.done"} <= kinds


def test_grammars(chat, text):
    grammar = {"grammar": 'root ::= ("yes" | "no") "!"'}
    for answer in (chat(extra=grammar).choices[0].message.content, text(extra=grammar).choices[0].text):
        assert answer in ("yes!", "no!")
    assert Streamed(chat(extra=grammar, stream=True)).content[0] in ("yes!", "no!")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tools_are_called(chat, choice):
    asked = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 300, "parallel_tool_calls": False}
    whole = chat(ASKED, extra=SAID, **asked).choices[0]
    assert whole.finish_reason == "tool_calls"
    [call] = whole.message.tool_calls
    assert call.id and called(call.function.name, call.function.arguments) is not None
    if choice != "required":
        assert call.function.name == "weather"
    parts = Streamed(chat(ASKED, extra=SAID, stream=True, **asked))
    assert parts.calls == [[call.function.name, call.function.arguments]]
    assert parts.finish == {0: "tool_calls"}
    talk = [
        *ASKED,
        whole.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
    ]
    after = chat(talk, tools=TOOLS, tool_choice="none")
    assert after.choices[0].message.content and not after.choices[0].message.tool_calls


def test_tools_are_optional(chat, server):
    """What the model says is a call if it has the form of one, and otherwise text."""
    assert chat(ASKED, tools=TOOLS, tool_choice="auto").choices[0].finish_reason == "length"
    none = chat(ASKED, tools=TOOLS, tool_choice="none").choices[0]
    assert none.message.content and none.message.tool_calls is None
    begun = [*ASKED, {"role": "assistant", "content": '<tool_call>\n{"name": "now", "arguments"'}]
    call = chat(begun, tools=TOOLS, max_tokens=60).choices[0]
    assert call.finish_reason in ("tool_calls", "length")
    prompts = [
        server.post("/apply-template", {"messages": ASKED, **more})["prompt"]
        for more in ({}, {"tools": TOOLS})
    ]
    assert "Tells the weather." not in prompts[0] and "Tells the weather." in prompts[1]


def test_parallel_calls(chat):
    """Several calls, each by its tool's schema."""
    for seed in itertools.count(1):
        asked = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 500, "parallel_tool_calls": True}
        whole = chat(ASKED, extra=SAID, seed=seed, temperature=1, **asked).choices[0]
        for call in whole.message.tool_calls:
            if whole.finish_reason == "tool_calls":
                called(call.function.name, call.function.arguments)
        parts = Streamed(chat(ASKED, extra=SAID, seed=seed, temperature=1, stream=True, **asked))
        assert parts.calls == [
            [call.function.name, call.function.arguments] for call in whole.message.tool_calls
        ]
        if len(parts.calls) > 1 or seed == 8:
            return


def test_runs_of_the_tool_helper(client, server):
    """The library parses arguments itself."""
    tool = openai.pydantic_function_tool(Person, name="person")
    asked = {"model": server.model, "messages": ASKED, "max_tokens": 300, "temperature": 0}
    choice = {"type": "function", "function": {"name": "person"}}
    parsed = client.chat.completions.parse(tools=[tool], tool_choice=choice, extra_body=SAID, **asked)
    [call] = parsed.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Person)


def test_thoughts(chat):
    asked = {"extra": {"grammar": THINKING, "reasoning_format": "auto"}, "max_tokens": 60}
    message = chat(**asked).choices[0].message
    assert message.content == "yes" and message.reasoning_content.strip() == "hm"
    parts = Streamed(chat(stream=True, **asked))
    assert parts.content == {0: "yes"} and parts.thoughts == message.reasoning_content
    inside = {"grammar": THINKING, "reasoning_format": "none"}
    message = chat(extra=inside, max_tokens=60).choices[0].message
    assert message.content == "<think>\nhm\n</think>\n\nyes" and not hasattr(message, "reasoning_content")


def test_thinking_on_and_off(chat, server):
    def prompt(**more):
        return server.post("/apply-template", {"messages": HI, **more})["prompt"]

    off = prompt(chat_template_kwargs={"enable_thinking": False})
    assert off.endswith("</think>\n\n") and off == prompt(reasoning_effort="none")
    assert off != prompt() == prompt(reasoning_effort="low")
    tokens = len(server.tokens(off)) - len(server.tokens(prompt()))
    asked = [
        chat(),
        chat(extra={"chat_template_kwargs": {"enable_thinking": False}}),
        chat(reasoning_effort="none"),
    ]
    counts = [one.usage.prompt_tokens for one in asked]
    assert tokens > 0 and counts[1] == counts[2] > counts[0]


def test_turns_of_several_kinds(chat, server):
    talk = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}],
            "name": "me",
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "12:00"},
    ]
    assert chat(talk).choices[0].message.content
    image = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        }
    ]
    with pytest.raises(openai.BadRequestError, match="image"):
        chat(image)


def test_texts_whole_and_streamed(text):
    whole = text()
    assert whole.object == "text_completion" and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 16
    chunks = list(text(stream=True, stream_options={"include_usage": True}))
    streamed = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert streamed == whole.choices[0].text and chunks[-1].usage.completion_tokens == 16


def test_several_prompts(text, server):
    alone = [text(prompt).choices[0].text for prompt in (AND, "The hacker")]
    both = text([AND, "The hacker"], n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in both.choices] == [alone[0], alone[0], alone[1], alone[1]]
    assert text(server.tokens(AND)).choices[0].text == alone[0]
    assert [
        choice.text for choice in text([server.tokens(AND), server.tokens("The hacker")]).choices
    ] == alone
    parts = ["", ""]
    for chunk in text([AND, "The hacker"], stream=True):
        parts[chunk.choices[0].index] += chunk.choices[0].text
    assert parts == alone


def test_echo(text):
    assert text(echo=True).choices[0].text == AND + text().choices[0].text
    assert "".join(chunk.choices[0].text for chunk in text(echo=True, stream=True)).startswith(AND)


def test_echo_with_probabilities(server, text):
    prompt = server.tokens(AND)
    choice = text(prompt=prompt, echo=True, logprobs=1, max_tokens=1).choices[0]
    assert len(choice.logprobs.token_logprobs) == len(prompt) + 1
    assert choice.logprobs.token_logprobs[0] is None and choice.logprobs.top_logprobs[0] is None
    assert all(log <= 0 for log in choice.logprobs.token_logprobs[1:])
    assert "".join(choice.logprobs.tokens) == choice.text


def test_cached_tokens(chat):
    talk = [{"role": "user", "content": "In the beginning God created the heaven and the earth. " * 20}]
    # The first is evaluated as a whole, which rounds in other ways than the last token alone does.
    _, again, third = (chat(talk, extra={"cache_prompt": True}) for _ in range(3))
    for answer in (again, third):
        details = answer.usage.prompt_tokens_details
        assert details.cached_tokens > 0.9 * answer.usage.prompt_tokens > 100
    assert again.choices[0].message.content == third.choices[0].message.content


@pytest.mark.parametrize(
    "more, part",
    [
        ({"extra": {"min_p": "much"}}, "min_p"),
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"tool_choice": "required"}, "tools"),
        ({"extra": {"grammar": "root ::= ("}}, "grammar"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, "exceed"),
    ],
)
def test_errors_name_the_field(chat, more, part):
    with pytest.raises(openai.BadRequestError, match=part):
        chat(**more)


def test_a_wrong_key_is_refused(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model=server.model, messages=HI)


def test_a_stream_can_be_left(chat, server):
    """The slot is free again after the client has gone."""
    for _ in range(4):
        with chat(stream=True, max_tokens=4000, extra={"ignore_eos": True}) as stream:
            next(iter(stream))
    assert chat().choices[0].message.content
