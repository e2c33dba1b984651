"""LangChain, by its packages for OpenAI and Ollama."""

import asyncio
from typing import Literal

import pydantic
import pytest
from conftest import KEY
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaLLM
from langchain_openai import ChatOpenAI, OpenAI

CLIENT = "LangChain"
KEYS = {"headers": {"Authorization": f"Bearer {KEY}"}}
QUIET = {"reasoning_format": "none"}


class Person(pydantic.BaseModel):
    """A person."""

    age: int = pydantic.Field(ge=3, le=5)
    color: Literal["red", "green"]


@tool
def weather(city: Literal["Rome", "Paris"], days: Literal[1, 2]) -> str:
    """Tells the weather."""
    return f"Sunny in {city}."


@pytest.fixture
def openai(server):
    def model(extra=None, **more):
        asked = {"max_tokens": 12, "temperature": 0, **more}
        extra = {"cache_prompt": False, **(extra or {})}
        return ChatOpenAI(
            model=server.model,
            base_url=server.url + "/v1",
            api_key=KEY,
            max_retries=0,
            extra_body=extra,
            **asked,
        )

    return model


@pytest.fixture
def ollama(server):
    def model(**more):
        asked = {"num_predict": 12, "temperature": 0, **more}
        return ChatOllama(model=server.model, base_url=server.url, client_kwargs=KEYS, **asked)

    return model


def test_openai_whole_and_streamed(openai):
    whole = openai().invoke("Hi")
    assert whole.content and whole.response_metadata["finish_reason"] == "length"
    assert whole.usage_metadata["output_tokens"] == 12
    parts = list(openai(stream_usage=True).stream("Hi"))
    assert "".join(part.content for part in parts) == whole.content
    assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) == 12
    cut = openai(stop=[whole.content[5:8]]).invoke("Hi")
    assert cut.content == whole.content[: whole.content.index(whole.content[5:8])]


def test_openai_options(openai):
    def drawn(**more):
        return openai(temperature=1.5, **more).invoke("Hi").content

    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    assert drawn(seed=1, top_p=0) == openai().invoke("Hi").content
    two = openai(n=2, temperature=1.5, seed=1).generate([[HumanMessage("Hi")]]).generations[0]
    assert len(two) == 2 and two[0].text != two[1].text
    told = openai(logprobs=True, top_logprobs=2).invoke("Hi")
    logs = told.response_metadata["logprobs"]["content"]
    # Those of the content: a token that it leaves out at its ends has none.
    assert "".join(log["token"] for log in logs) == told.content
    assert len(logs) in (11, 12) and len(logs[0]["top_logprobs"]) == 2
    assert (
        openai(presence_penalty=2, frequency_penalty=2, max_tokens=32).invoke("Hi").content
        != openai(max_tokens=32).invoke("Hi").content
    )


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_openai_structured_output(openai, method):
    model = openai(max_tokens=200, extra=QUIET).with_structured_output(Person, method=method)
    assert isinstance(model.invoke("Who?"), Person)


def test_openai_tools(openai):
    model = openai(max_tokens=200, extra=QUIET)
    asked = model.bind_tools([weather], tool_choice="weather").invoke("What is the weather in Rome?")
    [call] = asked.tool_calls
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage) and result.content.startswith("Sunny in ")
    parts = list(model.bind_tools([weather], tool_choice="any").stream("What is the weather in Rome?"))
    total = parts[0]
    for part in parts[1:]:
        total += part
    assert total.tool_calls[0]["name"] == "weather" and weather.invoke(total.tool_calls[0]).content
    talk = [SystemMessage("Be brief."), HumanMessage("What is the weather in Rome?"), asked, result]
    assert openai().bind_tools([weather], tool_choice="none").invoke(talk).content


def test_openai_texts(server):
    model = OpenAI(model=server.model, base_url=server.url + "/v1", api_key=KEY, max_tokens=8, temperature=0)
    plain = server.post("/completion", {"prompt": "And God said unto", "n_predict": 8, "temperature": 0})[
        "content"
    ]
    assert model.invoke("And God said unto") == plain
    assert "".join(model.stream("And God said unto")) == plain


def test_openai_async(openai):
    async def ask():
        return [part.content async for part in openai().astream("Hi")]

    assert "".join(asyncio.run(ask())) == openai().invoke("Hi").content


def test_ollama_whole_and_streamed(ollama):
    ollama().invoke("Hi")
    whole = ollama().invoke("Hi")
    assert whole.content and whole.response_metadata["done_reason"] == "length"
    assert whole.usage_metadata["output_tokens"] == 12
    assert "".join(part.content for part in ollama().stream("Hi")) == whole.content
    cut = ollama(stop=[whole.content[5:8]]).invoke("Hi")
    assert cut.content == whole.content[: whole.content.index(whole.content[5:8])]


def test_ollama_options(ollama):
    def drawn(**more):
        return ollama(temperature=1.5, **more).invoke("Hi").content

    drawn()
    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    assert drawn(top_k=1, repeat_penalty=1.0) == ollama().invoke("Hi").content
    assert drawn(seed=1, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.5) != drawn(seed=1)


def test_ollama_structured_output(ollama):
    model = ollama(num_predict=200, reasoning=False).with_structured_output(Person, method="json_schema")
    assert isinstance(model.invoke("Who?"), Person)
    assert ollama(num_predict=400, format="json", reasoning=False).invoke("Who?").content.startswith("{")


def test_ollama_tools(ollama):
    """Ollama has no choice of tools: they are in the prompt, and results go back."""
    asked = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome", "days": 1}, "id": "1"}])
    talk = [HumanMessage("What is the weather in Rome?"), asked, ToolMessage("Sunny.", tool_call_id="1")]
    plain, with_tools = ollama().invoke(talk), ollama().bind_tools([weather]).invoke(talk)
    assert with_tools.usage_metadata["input_tokens"] > plain.usage_metadata["input_tokens"]
    assert with_tools.content


def test_ollama_texts(server):
    model = OllamaLLM(
        model=server.model, base_url=server.url, client_kwargs=KEYS, num_predict=8, temperature=0
    )
    assert model.invoke("And God said unto") and "".join(model.stream("And God said unto"))
