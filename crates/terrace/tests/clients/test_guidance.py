"""guidance over OpenAI's API: text, JSON by a schema, and what it sends to vLLM."""

from typing import Literal

import guidance
import pydantic
import pytest
from conftest import KEY
from guidance.models.experimental import VLLMModel

CLIENT = "guidance"


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


def asked(server, of=guidance.models.OpenAI):
    model = of(server.model, base_url=server.url + "/v1", api_key=KEY, echo=False)
    with guidance.user():
        model += "Hi"
    return model


def test_texts(server):
    model = asked(server)
    with guidance.assistant():
        model += guidance.gen("answer", max_tokens=12)
    assert model["answer"]


def test_json(server):
    model = asked(server)
    with guidance.assistant():
        model += guidance.json("answer", schema=Report, max_tokens=400)
    Report.model_validate_json(model["answer"])


def test_grammars_for_vllm_are_refused_or_followed(server):
    """llguidance's grammars are not those of llama.cpp: the server says so, and writes nothing else instead."""
    model = asked(server, VLLMModel)
    with guidance.assistant(), pytest.raises(Exception, match="grammar"):
        model += guidance.select(["left", "right"], name="side")
