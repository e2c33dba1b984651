"""outlines, over its models of OpenAI, Ollama and vLLM, whose field `structured_outputs` the server reads too."""

import re
from typing import Literal

import ollama
import openai
import outlines
import pydantic
import pytest
from conftest import KEY

CLIENT = "outlines"
# A prompt that is partly kept is computed in other pieces, which rounds differently.
ASKED = {
    "temperature": 0,
    "max_tokens": 300,
    "extra_body": {"reasoning_format": "none", "cache_prompt": False},
}
OPTIONS = {"options": {"temperature": 0, "num_predict": 300}, "think": False}


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("make", [outlines.from_openai, outlines.from_vllm])
def test_texts_and_json(client, server, make):
    model = make(client, server.model)
    brief = {**ASKED, "max_tokens": 12}
    whole = model("Hi", **brief)
    assert whole and "".join(model.stream("Hi", **brief)) == whole
    text = model("Hi", Report, **ASKED)
    Report.model_validate_json(text)
    assert "".join(model.stream("Hi", Report, **ASKED)) == text


def test_types_of_vllm(client, server):
    """Types that outlines sends as regular expressions."""
    model = outlines.from_vllm(client, server.model)
    assert model("Hi", Literal["left", "right"], **ASKED) in ("left", "right")
    assert int(model("Hi", outlines.types.regex("[3-5]{2}"), **ASKED)) in range(33, 56)
    assert re.fullmatch(r"[A-Z]{3}-\d{4}", model("Hi", outlines.regex(r"[A-Z]{3}-\d{4}"), **ASKED))
    assert model("Hi", bool, **ASKED) in ("True", "False")


def test_ollama(server):
    client = ollama.Client(host=server.url, headers={"Authorization": f"Bearer {KEY}"})
    model = outlines.from_ollama(client, server.model)
    text = model("Hi", Report, **OPTIONS)
    Report.model_validate_json(text)
    assert "".join(model.stream("Hi", Report, **OPTIONS)) == text
