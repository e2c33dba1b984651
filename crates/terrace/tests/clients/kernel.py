"""semantic-kernel, whose dependencies stand against those of others: `test_kernel.py` runs this in a venv of its own.

Prints the tests that passed, with the endpoints they used, as JSON."""

import asyncio
import json
import os
from collections import Counter
from typing import Annotated, Literal

import httpx
import openai
import pydantic
from ollama import AsyncClient
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.ollama import OllamaChatCompletion, OllamaChatPromptExecutionSettings
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
    OpenAITextEmbedding,
)
from semantic_kernel.contents import ChatHistory, FunctionCallContent, FunctionResultContent
from semantic_kernel.functions import kernel_function

URL, EMBEDDING, KEY, MODEL = (os.environ[name] for name in ("URL", "EMBEDDING", "KEY", "MODEL"))
QUIET = {"reasoning_format": "none", "cache_prompt": False}


class Report(pydantic.BaseModel):
    """A report."""

    model_config = {"extra": "forbid"}
    degrees: int = pydantic.Field(ge=3, le=5)
    sky: Literal["clear", "cloudy"]


class Weather:
    def __init__(self):
        self.asked = []

    @kernel_function(name="weather", description="Tells the weather.")
    def weather(self, tomorrow: Annotated[bool, "Of tomorrow, not of today"]) -> str:
        self.asked.append(tomorrow)
        return "Sunny, 4 degrees."


requests = set()


async def seen(request):
    requests.add(f"{request.method} {request.url.path}")


def client(url=URL):
    http = httpx.AsyncClient(event_hooks={"request": [seen]}, timeout=300)
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, http_client=http)


def chat():
    return OpenAIChatCompletion(ai_model_id=MODEL, async_client=client())


def settings(**more):
    return OpenAIChatPromptExecutionSettings(
        **{"temperature": 0, "max_tokens": 12, "extra_body": QUIET, **more}
    )


def history(text="Hi"):
    history = ChatHistory(system_message="Be brief.")
    history.add_user_message(text)
    return history


async def whole_and_streamed():
    service = chat()
    [whole] = await service.get_chat_message_contents(history(), settings())
    assert whole.content and whole.finish_reason == "length"
    parts = [parts[0] async for parts in service.get_streaming_chat_message_contents(history(), settings())]
    assert "".join(part.content for part in parts) == whole.content


async def structured_output():
    [answer] = await chat().get_chat_message_contents(
        history(), settings(max_tokens=300, response_format=Report)
    )
    Report.model_validate_json(answer.content)


async def a_tool_is_called_and_its_result_goes_back():
    kernel, weather = Kernel(), Weather()
    kernel.add_plugin(weather, "places")
    # The kernel calls the function itself, and asks again: then no other has to be called.
    choice = FunctionChoiceBehavior.Required(maximum_auto_invoke_attempts=1)
    asked = settings(max_tokens=300, function_choice_behavior=choice, parallel_tool_calls=False)
    talk = history("What is the weather in Rome?")
    await chat().get_chat_message_contents(talk, asked, kernel=kernel)
    assert len(weather.asked) == 1
    kinds = [type(item) for message in talk.messages for item in message.items]
    assert FunctionCallContent in kinds and FunctionResultContent in kinds
    [after] = await chat().get_chat_message_contents(talk, settings())
    assert after.content


async def ollama():
    """Chats of Ollama's API, whole, streamed and by a schema."""
    by = AsyncClient(host=URL, headers={"Authorization": f"Bearer {KEY}"})
    by._client.event_hooks["request"].append(seen)
    service = OllamaChatCompletion(ai_model_id=MODEL, client=by)
    options = {"temperature": 0, "num_predict": 12}
    asked = OllamaChatPromptExecutionSettings(options=options)
    [whole] = await service.get_chat_message_contents(history(), asked)
    parts = [parts[0] async for parts in service.get_streaming_chat_message_contents(history(), asked)]
    assert whole.content and "".join(part.content for part in parts) == whole.content
    form = OllamaChatPromptExecutionSettings(
        options={**options, "num_predict": 300}, format=Report.model_json_schema()
    )
    [answer] = await service.get_chat_message_contents(history(), form)
    Report.model_validate_json(answer.content)


async def embeddings():
    service = OpenAITextEmbedding(ai_model_id=MODEL, async_client=client(EMBEDDING))
    both = await service.generate_embeddings(["In the beginning", "A hacker"])
    assert both.shape[0] == 2 and both.shape[1] > 8


def main():
    used, passed = Counter(), []
    for test in (
        whole_and_streamed,
        structured_output,
        a_tool_is_called_and_its_result_goes_back,
        ollama,
        embeddings,
    ):
        requests.clear()
        asyncio.run(test())
        used.update(requests)
        passed.append(test.__name__)
    print(json.dumps({"passed": passed, "used": used}))


if __name__ == "__main__":
    main()
