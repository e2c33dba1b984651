"""Requests in the forms that programs send them: `payloads/`, one file per request.

A file has the program's name, the path, the headers and the body; `lenient` says that the program
may send fields that the server ignores, with a warning.
"""

import json
from pathlib import Path

import httpx
import pytest
from conftest import KEY, Server

PAYLOADS = {
    file.stem: json.loads(file.read_text())
    for file in sorted((Path(__file__).parent / "payloads").glob("*.json"))
}
# Events after which a stream is left: some programs set no limit, or a large one.
ENOUGH = 24


@pytest.fixture(scope="module")
def lenient():
    template = Path(__file__).parents[1] / "it" / "tools.jinja"
    server = Server("--chat-template-file", str(template))
    yield server
    server.end()


@pytest.fixture
def client_name(request):
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    return PAYLOADS[name]["client"] if name else "programs"


def ask(server, payload, **more):
    body = {**payload["body"], **more}
    if body.get("model") == "MODEL":
        body["model"] = server.model
    headers = {"Authorization": f"Bearer {KEY}", **payload.get("headers", {})}
    return httpx.stream("POST", server.url + payload["path"], json=body, headers=headers, timeout=300)


class Answer:
    """What an answer of any form says: its text with thoughts and calls, why it ended, its tokens."""

    def __init__(self):
        self.text, self.finish, self.tokens, self.done = "", None, None, False

    def read(self, path, value):
        assert "error" not in value or value["error"] is None, value
        if path == "/api/chat":
            message = value["message"]
            self.text += (
                message["content"]
                + message.get("thinking", "")
                + json.dumps(message.get("tool_calls", ""))[2:]
            )
            self.done, self.finish = value["done"], value.get("done_reason")
            self.tokens = value.get("eval_count")
        elif path == "/api/generate":
            self.text += value["response"]
            self.done, self.finish = value["done"], value.get("done_reason")
            self.tokens = value.get("eval_count")
        elif path == "/completion":
            self.text += value["content"]
            self.done = value["stop"]
            self.finish, self.tokens = value.get("stop_type"), value.get("tokens_predicted")
        elif path == "/v1/messages":
            self.message(value)
        elif path == "/v1/responses":
            self.response(value)
        else:
            for choice in value["choices"]:
                part = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
                self.text += (part.get("content") or "") + (part.get("reasoning_content") or "")
                self.text += "".join(call["function"]["arguments"] for call in part.get("tool_calls") or [])
                self.finish = choice["finish_reason"] or self.finish
            self.tokens = (value.get("usage") or {}).get("completion_tokens", self.tokens)
            self.done = self.finish is not None

    def message(self, value):
        if value["type"] == "message":
            self.text = json.dumps(value["content"])[2:-2]
            self.finish, self.tokens, self.done = value["stop_reason"], value["usage"]["output_tokens"], True
        elif value["type"] == "content_block_delta":
            self.text += "".join(str(part) for name, part in value["delta"].items() if name != "type")
        elif value["type"] == "message_delta":
            self.finish, self.tokens = value["delta"]["stop_reason"], value["usage"]["output_tokens"]
        elif value["type"] == "message_stop":
            self.done = True

    def response(self, value):
        if value.get("object") == "response":
            self.text, self.done = json.dumps(value["output"]), True
            self.finish, self.tokens = value["status"], value["usage"]["output_tokens"]
        elif value["type"].endswith(".delta"):
            self.text += value["delta"]
        elif value["type"] in ("response.completed", "response.incomplete"):
            self.done, self.finish = True, value["response"]["status"]
            self.tokens = value["response"]["usage"]["output_tokens"]


def read(path, response, leave):
    """The answer of a response, whole or streamed; of a long stream the beginning."""
    answer = Answer()
    kind = response.headers["content-type"]
    if kind.startswith("application/json"):
        answer.read(path, json.loads(response.read()))
        return answer
    events = 0
    for line in response.iter_lines():
        if kind.startswith("application/x-ndjson"):
            answer.read(path, json.loads(line))
        elif line.startswith("data: ") and line != "data: [DONE]":
            answer.read(path, json.loads(line.removeprefix("data: ")))
        events += bool(line)
        if leave and events > 4 * ENOUGH and answer.text:
            answer.done = True
            break
    return answer


def limit_of(path, body):
    """What limits a request whose program sets no limit, or a large one; otherwise nothing."""
    if path == "/v1/responses":
        return {"max_output_tokens": ENOUGH}
    if path == "/api/chat" and not body["options"].get("num_predict"):
        return {"options": {**body["options"], "num_predict": ENOUGH}}
    given = body.get("max_tokens", body.get("max_completion_tokens", ENOUGH + 1))
    is_large = path in ("/v1/messages", "/v1/chat/completions") and given > ENOUGH
    return {"max_tokens": ENOUGH} if is_large else {}


@pytest.mark.parametrize("name", PAYLOADS)
def test_as_it_is_sent(name, server, request):
    payload = PAYLOADS[name]
    path = payload["path"].split("?")[0]
    to = request.getfixturevalue("lenient") if payload.get("lenient") else server
    limit = limit_of(path, payload["body"])
    if path.endswith("count_tokens"):
        with ask(to, payload) as response:
            assert json.loads(response.read())["input_tokens"] > 20
        return
    with ask(to, payload) as response:
        assert response.status_code == 200, response.read()
        assert payload.get("lenient") or "x-terrace-warning" not in response.headers
        answer = read(path, response, leave=bool(limit))
        assert answer.done and answer.text.strip()
    # The same, whole or streamed where it was not, with a limit.
    with ask(to, payload, stream=not payload["body"].get("stream", False), **limit) as response:
        other = read(path, response, leave=False)
        assert other.done and other.text.strip() and other.finish
        assert other.tokens is None or 0 < other.tokens <= ENOUGH
