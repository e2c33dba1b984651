"""LlamaIndex, by its packages for servers of OpenAI's API and for Ollama."""

import asyncio
from typing import Literal

import pydantic
import pytest
from conftest import KEY, Server
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

CLIENT = "LlamaIndex"
HI = [ChatMessage(role="user", content="Hi")]
QUESTION = "What is the weather in Rome?"


class Report(pydantic.BaseModel):
    """A report."""

    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


def weather(city: Literal["Rome", "Paris"]) -> str:
    """Tells the weather."""
    return f"Sunny in {city}, 4 degrees."


TOOL = FunctionTool.from_defaults(weather)


def openai(server, extra=None, **more):
    # A prompt that is partly kept is computed in other pieces, which rounds differently.
    extra = {"reasoning_format": "none", "cache_prompt": False} if extra is None else extra
    asked = {"temperature": 0, "max_tokens": 12, "additional_kwargs": {"extra_body": extra}, **more}
    return OpenAILike(
        model=server.model,
        api_base=server.url + "/v1",
        api_key=KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        context_window=8192,
        max_retries=0,
        **asked,
    )


def ollama(server, **more):
    import ollama as library

    client = library.Client(host=server.url, headers={"Authorization": f"Bearer {KEY}"})
    options = {"num_predict": 12, **more}
    return Ollama(
        model=server.model,
        base_url=server.url,
        client=client,
        temperature=0,
        context_window=8192,
        additional_kwargs=options,
        thinking=False,
    )


@pytest.mark.parametrize("of", [openai, ollama])
def test_whole_and_streamed(server, of):
    model = of(server)
    model.chat(HI)
    whole = model.chat(HI)
    assert whole.message.content
    parts = list(model.stream_chat(HI))
    assert "".join(part.delta or "" for part in parts) == whole.message.content
    assert model.complete("Hi").text


def test_async(server):
    async def ask():
        model = openai(server)
        stream = await model.astream_chat(HI)
        return "".join([part.delta or "" async for part in stream])

    assert asyncio.run(ask()) == openai(server).chat(HI).message.content


@pytest.mark.parametrize("of, room", [(openai, {"max_tokens": 300}), (ollama, {"num_predict": 300})])
def test_structured_output(server, of, room):
    model = of(server, **room)
    assert isinstance(model.structured_predict(Report, PromptTemplate("Who?")), Report)
    assert isinstance(model.as_structured_llm(Report).chat(HI).raw, Report)


def test_a_tool_is_called_and_its_result_goes_back(server):
    model = openai(server, max_tokens=300)
    answer = model.chat_with_tools([TOOL], user_msg=QUESTION, tool_required=True)
    [call] = model.get_tool_calls_from_response(answer)
    assert call.tool_name == "weather"
    result = TOOL(**call.tool_kwargs)
    assert result.content.startswith("Sunny in ")
    returned = ChatMessage(
        role="tool",
        content=result.content,
        additional_kwargs={"tool_call_id": call.tool_id, "name": "weather"},
    )
    talk = [ChatMessage(role="user", content=QUESTION), answer.message, returned]
    assert openai(server).chat(talk).message.content
    *_, last = model.stream_chat_with_tools([TOOL], user_msg=QUESTION, tool_required=True)
    assert model.get_tool_calls_from_response(last)[0].tool_kwargs == call.tool_kwargs


def test_tools_of_ollama_are_offered(server):
    model = ollama(server)
    plain, offered = model.chat(HI), model.chat_with_tools([TOOL], user_msg="Hi")
    assert offered.raw["prompt_eval_count"] > plain.raw["prompt_eval_count"]


def test_embeddings():
    server = Server("--embeddings")
    try:
        by_openai = OpenAIEmbedding(
            model_name=server.model, api_base=server.url + "/v1", api_key=KEY, max_retries=0
        )
        headers = {"headers": {"Authorization": f"Bearer {KEY}"}}
        by_ollama = OllamaEmbedding(model_name=server.model, base_url=server.url, client_kwargs=headers)
        one, other = by_openai.get_text_embedding("A hacker"), by_ollama.get_text_embedding("A hacker")
        # Ollama's are of length 1.
        length = sum(value * value for value in one) ** 0.5
        assert [value / length for value in one] == pytest.approx(other, abs=1e-3)
        batch = by_openai.get_text_embedding_batch(["In the beginning", "A hacker"])
        assert batch[1] == pytest.approx(one, abs=1e-3)
    finally:
        server.end()


def test_an_agent_with_a_trained_model(trained):
    asked = []

    def weather(city: str) -> str:
        """Tells the weather in a city."""
        asked.append(city)
        return f"Sunny in {city}, 4 degrees."

    async def ask():
        model = openai(trained, extra={}, max_tokens=64)
        agent = FunctionAgent(tools=[weather], llm=model, system_prompt="Use the tool.", streaming=False)
        return str(await agent.run(QUESTION))

    assert "4" in asyncio.run(ask()) and asked == ["Rome"]
