"""Simon Willison's llm, with a model of an OpenAI-compatible server in its configuration."""

import json
import os
import subprocess
import sys

import pytest
from common import PERSON, valid
from conftest import KEY

CLIENT = "llm"


@pytest.fixture(scope="module")
def llm(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("llm")
    model = {"model_name": server.model, "api_base": server.url + "/v1", "api_key_name": "terrace"}
    models = [
        {"model_id": "terrace", "supports_schema": True, "supports_tools": True, **model},
        {"model_id": "terrace-text", "completion": True, **model},
    ]
    # YAML reads JSON.
    (home / "extra-openai-models.yaml").write_text(json.dumps(models))
    (home / "keys.json").write_text(json.dumps({"terrace": KEY}))
    os.environ["LLM_USER_PATH"] = str(home)
    import llm

    return llm


def asked(**more):
    return {"temperature": 0, "max_tokens": 12, **more}


def test_answers_whole_and_streamed(llm):
    model = llm.get_model("terrace")
    model.prompt("Hi", stream=False, **asked()).text()
    whole = model.prompt("Hi", stream=False, **asked())
    assert whole.text() and whole.usage().output == 12
    assert "".join(model.prompt("Hi", stream=True, **asked())) == whole.text()
    system = model.prompt("Hi", system="Be brief.", stream=False, **asked())
    assert system.usage().input > whole.usage().input


def test_options(llm):
    model = llm.get_model("terrace")

    def drawn(**more):
        return model.prompt("Hi", stream=False, **asked(temperature=1.5, **more)).text()

    drawn(seed=1)
    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    assert drawn(top_p=0) == model.prompt("Hi", stream=False, **asked()).text()


def test_conversations(llm):
    talk = llm.get_model("terrace").conversation()
    first = talk.prompt("Hi", stream=False, **asked())
    assert first.text()
    second = talk.prompt("And then?", stream=False, **asked())
    assert second.text() and second.usage().input > first.usage().input


def test_schemas(llm):
    model = llm.get_model("terrace")
    for stream in (False, True):
        assert valid(model.prompt("Who?", schema=PERSON, stream=stream, **asked(max_tokens=300)).text())


def test_tools(llm):
    def weather(city: str) -> str:
        """Tells the weather."""
        return "Sunny."

    response = llm.get_model("terrace").prompt(
        "Hi", tools=[llm.Tool.function(weather)], stream=False, **asked()
    )
    assert response.text() and not response.tool_calls()
    plain = llm.get_model("terrace").prompt("Hi", stream=False, **asked())
    plain.text()
    assert response.usage().input > plain.usage().input


def test_texts(llm, server):
    plain = server.post("/completion", {"prompt": "And God said unto", "n_predict": 12, "temperature": 0})
    assert (
        llm.get_model("terrace-text").prompt("And God said unto", stream=False, **asked()).text()
        == plain["content"]
    )


def test_command_line(llm, server):
    """As a user starts it."""
    command = [
        sys.executable,
        "-m",
        "llm",
        "-m",
        "terrace",
        "-o",
        "temperature",
        "0",
        "-o",
        "max_tokens",
        "12",
        "Hi",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and run.stdout.strip(), run.stderr
