"""pydantic-ai, over chat completions, responses and Ollama: its tools, its three kinds of output, its streams."""

import asyncio
from typing import Literal

import httpx
import pydantic
import pydantic_ai
import pytest
from conftest import KEY, Server
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.embeddings import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

CLIENT = "pydantic-ai"
QUESTION = "What is the weather in Rome?"


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


def settings(**more):
    # A prompt that is partly kept is computed in other pieces, which rounds differently.
    extra = {"reasoning_format": "none", "cache_prompt": False, **more.pop("extra_body", {})}
    return {"temperature": 0, "max_tokens": 12, "extra_body": extra, **more}


def over(kind, server):
    """A model, and the client whose end is the test's."""
    client = httpx.AsyncClient(timeout=300)
    classes = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel, "ollama": OllamaModel}
    of = OllamaProvider if kind == "ollama" else OpenAIProvider
    provider = of(base_url=server.url + "/v1", api_key=KEY, http_client=client)
    return classes[kind](server.model, provider=provider), client


@pytest.fixture(params=["chat", "responses", "ollama"])
def asking(request):
    def run(server, ask):
        async def inner():
            model, client = over(request.param, server)
            async with client:
                await ask(lambda *arguments, **more: Agent(model, *arguments, **more))

        asyncio.run(inner())

    return run


BRIEF = {"temperature": 0, "max_tokens": 64}
ENDS = settings(extra_body={"grammar": 'root ::= "Hello " [a-z]{4}'})


def test_whole_and_streamed(server, asking):
    async def ask(agent):
        whole = await agent(instructions="Be brief.").run("Hi", model_settings=ENDS)
        assert whole.output.startswith("Hello ") and whole.usage.output_tokens > 2
        async with agent(instructions="Be brief.").run_stream("Hi", model_settings=ENDS) as stream:
            parts = [part async for part in stream.stream_text(delta=True, debounce_by=None)]
            assert len(parts) > 1 and "".join(parts) == whole.output
            assert stream.usage.output_tokens == whole.usage.output_tokens

    asking(server, ask)


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput], ids=lambda kind: kind.__name__)
def test_output_types(server, asking, kind):
    async def ask(agent):
        one = agent(
            output_type=kind(Report), model_settings=settings(max_tokens=300, parallel_tool_calls=False)
        )
        whole = (await one.run("Hi")).output
        assert isinstance(whole, Report)
        async with one.run_stream("Hi") as stream:
            assert await stream.get_output() == whole

    asking(server, ask)


class Anything(pydantic.BaseModel):
    """Any object: this model cannot follow a schema that it is only told of."""

    note: object = None


def test_prompted_output(server, asking):
    """The schema is in the prompt; the answer is some JSON object."""

    async def ask(agent):
        one = agent(output_type=PromptedOutput(Anything), model_settings=settings(max_tokens=1000))
        assert isinstance((await one.run("Hi")).output, Anything)

    asking(server, ask)


def test_a_choice_of_outputs(server, asking):
    class Refusal(pydantic.BaseModel):
        reason: Literal["none", "other"]

    async def ask(agent):
        one = agent(
            output_type=[Report, Refusal], model_settings=settings(max_tokens=300, parallel_tool_calls=False)
        )
        assert isinstance((await one.run("Hi")).output, (Report, Refusal))
        native = agent(output_type=NativeOutput([Report, Refusal]), model_settings=settings(max_tokens=300))
        assert isinstance((await native.run("Hi")).output, (Report, Refusal))

    asking(server, ask)


def test_a_tool_beside_an_output_type(server, asking):
    """Some call is required here, of the tool or of the output: the bundled model may choose either."""

    async def ask(agent):
        asked = []

        def weather(city: Literal["Rome", "Paris"]) -> str:
            asked.append(city)
            return f"Sunny in {city}."

        one = agent(
            output_type=ToolOutput(Report),
            tools=[pydantic_ai.Tool(weather)],
            model_settings=settings(max_tokens=300, parallel_tool_calls=False),
        )
        limits = pydantic_ai.UsageLimits(tool_calls_limit=3)
        try:
            assert isinstance((await one.run(QUESTION, usage_limits=limits)).output, Report)
        except pydantic_ai.UsageLimitExceeded:
            assert len(asked) >= 3
        native = agent(
            output_type=NativeOutput(Report),
            tools=[weather],
            model_settings=settings(max_tokens=300, tool_choice="none"),
        )
        assert isinstance((await native.run(QUESTION)).output, Report)

    asking(server, ask)


def test_embeddings():
    server = Server("--embeddings")

    async def ask():
        async with httpx.AsyncClient(timeout=300) as client:
            provider = OpenAIProvider(base_url=server.url + "/v1", api_key=KEY, http_client=client)
            embedder = Embedder(OpenAIEmbeddingModel(server.model, provider=provider))
            both = await embedder.embed_documents(["In the beginning", "A hacker"])
            one = await embedder.embed_query("A hacker")
            assert both.embeddings[1] == pytest.approx(one.embeddings[0], abs=1e-3)
            assert both.usage.input_tokens > one.usage.input_tokens > 0

    try:
        asyncio.run(ask())
    finally:
        server.end()


def test_a_stream_can_be_left(server, asking):
    async def ask(agent):
        endless = settings(max_tokens=4000, extra_body={"ignore_eos": True})
        async with agent().run_stream("Hi", model_settings=endless) as stream:
            async for _ in stream.stream_text(delta=True, debounce_by=None):
                break
        assert (await agent().run("Hi", model_settings=ENDS)).output

    asking(server, ask)


def test_errors(server, asking):
    async def ask(agent):
        with pytest.raises(pydantic_ai.ModelHTTPError, match="temperature") as caught:
            await agent().run("Hi", model_settings=settings(temperature=-1))
        assert caught.value.status_code == 400

    asking(server, ask)


def test_a_trained_model_calls_by_itself(trained):
    async def ask():
        model, client = over("chat", trained)
        asked = []

        def weather(city: str) -> str:
            """Tells the weather in a city."""
            asked.append(city)
            return f"Sunny in {city}, 4 degrees."

        async with client:
            agent = Agent(model, instructions="Use the tool.", tools=[weather], model_settings=BRIEF)
            answer = await agent.run(QUESTION, usage_limits=pydantic_ai.UsageLimits(request_limit=3))
            assert asked == ["Rome"] and "4" in answer.output

    asyncio.run(ask())
