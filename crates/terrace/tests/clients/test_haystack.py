"""Haystack's generators and embedders of OpenAI and Ollama, and its agent."""

from typing import Annotated, Literal

import pydantic
import pytest
from conftest import KEY, Server
from haystack.components.agents import Agent
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from haystack_integrations.components.embedders.ollama import OllamaTextEmbedder
from haystack_integrations.components.generators.ollama import OllamaChatGenerator

CLIENT = "Haystack"
HI = [ChatMessage.from_user("Hi")]
QUESTION = [ChatMessage.from_user("What is the weather in Rome?")]
HEADERS = {"headers": {"Authorization": f"Bearer {KEY}"}}


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


@tool
def weather(city: Annotated[Literal["Rome", "Paris"], "The city"]) -> str:
    """Tells the weather."""
    return f"Sunny in {city}, 4 degrees."


def openai(server, plain=False, **more):
    # A prompt that is partly kept is computed in other pieces, which rounds differently.
    extra = {} if plain else {"extra_body": {"reasoning_format": "none", "cache_prompt": False}}
    callback = more.pop("streaming_callback", None)
    return OpenAIChatGenerator(
        model=server.model,
        api_base_url=server.url + "/v1",
        api_key=Secret.from_token(KEY),
        max_retries=0,
        streaming_callback=callback,
        generation_kwargs={"temperature": 0, "max_tokens": 12, **extra, **more},
    )


def ollama(server, response_format=None, streaming_callback=None, **more):
    import ollama as library

    generator = OllamaChatGenerator(
        model=server.model,
        url=server.url,
        generation_kwargs={"temperature": 0, "num_predict": 12, **more},
        response_format=response_format,
        streaming_callback=streaming_callback,
    )
    # The generator has no word for a key.
    generator._client = library.Client(host=server.url, **HEADERS)
    return generator


@pytest.mark.parametrize("of", [openai, ollama])
def test_whole_and_streamed(server, of):
    of(server).run(HI)
    [whole] = of(server).run(HI)["replies"]
    # The generator translates no other of Ollama's reasons.
    assert whole.text and whole.meta["finish_reason"] == ("length" if of is openai else None)
    assert whole.meta["usage"]["completion_tokens"] == 12
    parts = []
    [streamed] = of(server, streaming_callback=lambda part: parts.append(part.content)).run(HI)["replies"]
    assert "".join(parts) == streamed.text == whole.text


def test_structured_output(server):
    [answer] = openai(server, max_tokens=300, response_format=Report).run(HI)["replies"]
    Report.model_validate_json(answer.text)
    schema = Report.model_json_schema()
    [answer] = ollama(server, response_format=schema, num_predict=300).run(HI)["replies"]
    Report.model_validate_json(answer.text)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_tool_is_called_and_its_result_goes_back(server, streamed):
    callback = (lambda part: None) if streamed else None
    choice = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300}
    [asked] = openai(server, streaming_callback=callback, **choice).run(QUESTION, tools=[weather])["replies"]
    [call] = asked.tool_calls
    result = weather.invoke(**call.arguments)
    assert result.startswith("Sunny in ")
    talk = [*QUESTION, asked, ChatMessage.from_tool(result, origin=call)]
    [after] = openai(server, tool_choice="none").run(talk, tools=[weather])["replies"]
    assert after.text and not after.tool_calls


def test_tools_and_a_format(server):
    """The first answer is a call, the second one JSON, though the tools are still offered."""
    more = {"max_tokens": 300, "response_format": Report, "parallel_tool_calls": False}
    # OpenAI's library, which parses the answer, wants strict tools beside a format.
    offered = {"tools": [weather], "tools_strict": True}
    [asked] = openai(server, tool_choice="required", **more).run(QUESTION, **offered)["replies"]
    [call] = asked.tool_calls
    talk = [*QUESTION, asked, ChatMessage.from_tool("Sunny.", origin=call)]
    [answer] = openai(server, tool_choice="none", **more).run(talk, **offered)["replies"]
    Report.model_validate_json(answer.text)


def test_embeddings():
    server = Server("--embeddings")
    try:
        key = Secret.from_token(KEY)
        embedder = OpenAITextEmbedder(model=server.model, api_base_url=server.url + "/v1", api_key=key)
        one = embedder.run("A hacker")["embedding"]
        import ollama as library

        of_ollama = OllamaTextEmbedder(model=server.model, url=server.url)
        of_ollama._client = library.Client(host=server.url, **HEADERS)
        other = of_ollama.run("A hacker")["embedding"]
        assert len(one) == len(other) > 8
    finally:
        server.end()


def test_an_agent_with_a_trained_model(trained):
    agent = Agent(
        chat_generator=openai(trained, plain=True, max_tokens=64),
        tools=[weather],
        system_prompt="Use the tool.",
        max_agent_steps=3,
    )
    messages = agent.run(messages=QUESTION)["messages"]
    results = [message.tool_call_result.result for message in messages if message.tool_call_result]
    assert results == ["Sunny in Rome, 4 degrees."] and "4" in messages[-1].text
