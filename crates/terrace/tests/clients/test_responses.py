"""OpenAI's responses, by its library for Python."""

import openai
import pydantic
import pytest
from common import ASKED, PERSON, PLACE, called, valid
from conftest import KEY

CLIENT = "openai (Python)"
QUIET = {"effort": "none"}
WEATHER = {"type": "function", "name": "weather", "parameters": PLACE, "strict": True}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def respond(client, server):
    def ask(input="Hi", **more):
        asked = {"max_output_tokens": 12, "temperature": 0, "reasoning": QUIET, **more}
        return client.responses.create(model=server.model, input=input, store=False, **asked)

    return ask


def test_answers_whole_and_streamed(respond):
    respond(max_output_tokens=1)
    whole = respond()
    assert whole.object == "response" and whole.status == "incomplete"
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output_text and whole.usage.output_tokens == 12
    events = list(respond(stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.incomplete"
    assert (
        "".join(event.delta for event in events if event.type == "response.output_text.delta")
        == whole.output_text
    )
    assert events[-1].response.output_text == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_inputs(respond):
    plain = respond()
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
    assert respond(parts).usage.input_tokens == plain.usage.input_tokens
    assert respond(instructions="Be brief.").usage.input_tokens > plain.usage.input_tokens


def test_tools(respond):
    asked = {
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "weather"},
        "max_output_tokens": 300,
    }
    respond(ASKED, **{**asked, "max_output_tokens": 1})
    whole = respond(ASKED, **asked)
    [call] = [item for item in whole.output if item.type == "function_call"]
    assert whole.status == "completed" and called(call.name, call.arguments)
    events = list(respond(ASKED, stream=True, **asked))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments and events[-1].type == "response.completed"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    after = respond([*ASKED, call.model_dump(exclude_none=True), result], tools=[WEATHER], tool_choice="none")
    assert after.output_text


class Person(pydantic.BaseModel):
    age: int = pydantic.Field(ge=3, le=5)


def test_formats(client, respond, server):
    format = {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": PERSON}}
    assert valid(respond(text=format, max_output_tokens=300).output_text)
    asked = {
        "model": server.model,
        "input": "Who?",
        "temperature": 0,
        "max_output_tokens": 200,
        "reasoning": QUIET,
    }
    assert isinstance(client.responses.parse(text_format=Person, **asked).output_parsed, Person)


def test_errors(respond):
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        respond(previous_response_id="resp_1")
