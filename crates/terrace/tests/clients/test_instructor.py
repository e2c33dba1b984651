"""instructor, in all modes that its OpenAI and Anthropic clients have here."""

from collections.abc import Iterable
from typing import Literal

import anthropic
import instructor
import openai
import pydantic
import pytest
from conftest import KEY
from instructor import Mode

CLIENT = "instructor"
HI = [{"role": "user", "content": "Who?"}]
QUIET = {"reasoning_format": "none", "cache_prompt": False}


class Person(pydantic.BaseModel):
    """A person."""

    age: int = pydantic.Field(ge=3, le=5)
    color: Literal["red", "green"]


class Anything(pydantic.BaseModel):
    """Any object: this model cannot follow a schema that it is only told of."""

    note: object = None


# What a trained model would write where nothing but the prompt asks for it.
FENCED = r'''root ::= "```json\n{\"age\": " [3-5] ", \"color\": \"red\"}\n```"'''
BARE = r'''root ::= "{\"age\": " [3-5] ", \"color\": \"red\"}"'''


@pytest.fixture
def of_openai(server):
    def ask(mode, model=Person, extra=None, create="create", **more):
        with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as plain:
            client = instructor.from_openai(plain, mode=mode)
            asked = {
                "max_tokens": 300,
                "temperature": 0,
                "extra_body": {**QUIET, **(extra or {})},
                "max_retries": 0,
                **more,
            }
            got = getattr(client.chat.completions, create)(
                model=server.model, messages=HI, response_model=model, **asked
            )
            return got if isinstance(got, pydantic.BaseModel) else list(got)

    return ask


@pytest.fixture
def of_anthropic(server):
    def ask(mode, model=Person, extra=None, **more):
        with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as plain:
            client = instructor.from_anthropic(plain, mode=mode)
            asked = {
                "max_tokens": 1100,
                "extra_body": {"temperature": 0, **(extra or {})},
                "max_retries": 0,
                **more,
            }
            got = client.chat.completions.create(
                model=server.model, messages=HI, response_model=model, **asked
            )
            return got if isinstance(got, pydantic.BaseModel) else list(got)

    return ask


@pytest.mark.parametrize(
    "mode, model, extra",
    [
        (Mode.TOOLS, Person, None),
        (Mode.TOOLS_STRICT, Person, None),
        (Mode.JSON_SCHEMA, Person, None),
        (Mode.JSON, Anything, None),
        (Mode.MD_JSON, Person, {"grammar": FENCED}),
    ],
    ids=lambda value: value.name if isinstance(value, Mode) else "",
)
def test_modes_of_openai(of_openai, mode, model, extra):
    assert isinstance(of_openai(mode, model, extra), model)


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON_SCHEMA], ids=lambda mode: mode.name)
def test_streams_of_openai(of_openai, mode):
    parts = of_openai(mode, create="create_partial")
    assert Person.model_validate(parts[-1].model_dump())
    assert len({part.model_dump_json() for part in parts}) > 1


def test_parallel_tools_of_openai(of_openai):
    called = of_openai(
        Mode.PARALLEL_TOOLS, Iterable[Person], {"tool_choice": "required", "parallel_tool_calls": False}
    )
    assert called and all(isinstance(one, Person) for one in called)


@pytest.mark.parametrize(
    "mode, extra",
    [
        (Mode.ANTHROPIC_TOOLS, {"thinking": {"type": "disabled"}}),
        (
            Mode.ANTHROPIC_REASONING_TOOLS,
            {"thinking": {"type": "disabled"}, "tool_choice": {"type": "tool", "name": "Person"}},
        ),
        (Mode.ANTHROPIC_JSON, {"grammar": BARE}),
    ],
    ids=lambda value: value.name if isinstance(value, Mode) else "",
)
def test_modes_of_anthropic(of_anthropic, mode, extra):
    assert isinstance(of_anthropic(mode, extra=extra), Person)


def test_parallel_tools_of_anthropic(of_anthropic):
    choice = {
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "disabled"},
    }
    called = of_anthropic(Mode.ANTHROPIC_PARALLEL_TOOLS, Iterable[Person], choice)
    assert called and all(isinstance(one, Person) for one in called)
