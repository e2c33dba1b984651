"""openai-agents, over chat completions and over responses: agents with tools, with output types, and with both."""

import asyncio
from typing import Literal

import agents
import openai
import pydantic
import pytest
from conftest import KEY

CLIENT = "openai-agents"
QUESTION = "What is the weather in Rome?"
agents.set_tracing_disabled(True)


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


def places():
    """The tool `weather`, and the places it was asked for."""
    asked = []

    @agents.function_tool
    def weather(city: Literal["Rome", "Paris"]) -> str:
        """Tells the weather."""
        asked.append(city)
        return f"Sunny in {city}, 4 degrees."

    return weather, asked


def settings(**more):
    """A prompt that is partly kept is computed in other pieces, which rounds differently."""
    extra = {"reasoning_format": "none", "cache_prompt": False}
    return agents.ModelSettings(**{"temperature": 0, "max_tokens": 12, "extra_body": extra, **more})


@pytest.fixture(params=["chat", "responses"])
def asking(request):
    """Runs a function with an agent's maker, within one loop, as the library's client wants it."""
    classes = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}

    def run(server, ask):
        async def inner():
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
                model = classes[request.param](model=server.model, openai_client=client)
                await ask(
                    lambda **more: agents.Agent(
                        **{"name": "a", "model": model, "model_settings": settings(), **more}
                    )
                )

        asyncio.run(inner())

    return run


def test_whole_and_streamed(server, asking):
    # Of responses that a limit cuts, the library reads none.
    ends = settings(extra_body={"grammar": 'root ::= "Hello " [a-z]{4}'})

    async def ask(agent):
        one = agent(instructions="Be brief.", model_settings=ends)
        whole = await agents.Runner.run(one, "Hi")
        assert whole.final_output.startswith("Hello ") and whole.raw_responses[0].usage.output_tokens > 2
        stream = agents.Runner.run_streamed(one, "Hi")
        deltas = [
            event.data.delta
            async for event in stream.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
        assert "".join(deltas) == stream.final_output == whole.final_output

    asking(server, ask)


def test_output_types(server, asking):
    async def ask(agent):
        one = agent(output_type=Report, model_settings=settings(max_tokens=300))
        assert isinstance((await agents.Runner.run(one, "Hi")).final_output, Report)
        stream = agents.Runner.run_streamed(one, "Hi")
        async for _ in stream.stream_events():
            pass
        assert isinstance(stream.final_output, Report)

    asking(server, ask)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_tool_and_an_output_type(server, asking, streamed):
    """The first turn has to call the tool; the last one is JSON, though the tools are offered again."""

    async def ask(agent):
        weather, asked = places()
        choice = settings(max_tokens=300, tool_choice="required", parallel_tool_calls=False)
        one = agent(tools=[weather], output_type=Report, model_settings=choice)
        hooks = Forbidding()
        if streamed:
            result = agents.Runner.run_streamed(one, QUESTION, hooks=hooks)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(one, QUESTION, hooks=hooks)
        assert isinstance(result.final_output, Report) and len(asked) == 1
        kinds = [item.type for item in result.new_items if item.type != "reasoning_item"]
        assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]

    asking(server, ask)


class Forbidding(agents.RunHooks):
    """After a tool no other is called: the bundled model would call some for ever."""

    async def on_tool_end(self, context, agent, tool, result):
        agent.model_settings = agent.model_settings.resolve(agents.ModelSettings(tool_choice="none"))


def test_handoffs(server, asking):
    async def ask(agent):
        other = agent(name="other", output_type=Report, model_settings=settings(max_tokens=300))
        choice = settings(max_tokens=300, tool_choice="required", parallel_tool_calls=False)
        result = await agents.Runner.run(agent(handoffs=[other], model_settings=choice), "Hi")
        assert result.last_agent is other and isinstance(result.final_output, Report)

    asking(server, ask)


def test_a_stream_can_be_left(server, asking):
    async def ask(agent):
        endless = settings(max_tokens=4000, extra_body={"ignore_eos": True})
        stream = agents.Runner.run_streamed(agent(model_settings=endless), "Hi")
        async for event in stream.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith(".delta"):
                stream.cancel()
        assert (await agents.Runner.run(agent(), "Hi")).final_output

    asking(server, ask)


def test_errors(server, asking):
    async def ask(agent):
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await agents.Runner.run(agent(model_settings=settings(temperature=-1)), "Hi")

    asking(server, ask)


def test_a_trained_model_calls_by_itself(trained, asking):
    async def ask(agent):
        weather, asked = places()
        brief = agents.ModelSettings(temperature=0, max_tokens=64)
        one = agent(instructions="Use the tool.", tools=[weather], model_settings=brief)
        result = await agents.Runner.run(one, QUESTION, max_turns=3)
        assert asked == ["Rome"] and "4" in result.final_output

    asking(trained, ask)
