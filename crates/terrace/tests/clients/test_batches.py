"""Batches of OpenAI's library for Python."""

import json
import time

import openai
import pytest
from conftest import KEY, Server

CLIENT = "openai (Python)"


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    server = Server("--batch-dir", str(tmp_path_factory.mktemp("batches")))
    yield server
    assert server.end() == 0


@pytest.fixture(scope="module")
def client(batches):
    with openai.OpenAI(base_url=batches.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


def requests(model, count):
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0}
    for number in range(count):
        yield {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def upload(client, lines, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return client.files.create(file=path, purpose="batch")


def begin(client, file):
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
    )


def ended(client, batch):
    until = time.monotonic() + 120
    while batch.status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < until, batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def test_a_batch_from_file_to_file(client, batches, tmp_path):
    file = upload(client, requests(batches.model, 5), tmp_path)
    assert (file.object, file.purpose, file.filename) == ("file", "batch", "in.jsonl")
    assert file.bytes == (tmp_path / "in.jsonl").stat().st_size
    assert client.files.retrieve(file.id) == file
    assert file.id in [one.id for one in client.files.list()]
    batch = begin(client, file)
    assert (batch.object, batch.metadata, batch.request_counts.total) in (
        ("batch", {"a": "b"}, 0),
        ("batch", {"a": "b"}, 5),
    )
    batch = ended(client, batch)
    assert batch.status == "completed" and batch.error_file_id is None
    assert (batch.request_counts.total, batch.request_counts.completed) == (5, 5)
    assert batch.id in [one.id for one in client.batches.list(limit=1)]
    answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [answer["custom_id"] for answer in answers] == [f"r{number}" for number in range(5)]
    lone = client.chat.completions.create(
        model=batches.model,
        messages=[{"role": "user", "content": "Hi"}],
        max_tokens=6,
        temperature=0,
        extra_body={"cache_prompt": False},
    )
    for answer in answers:
        completion = openai.types.chat.ChatCompletion.model_validate(answer["response"]["body"])
        assert completion.choices[0].message.content == lone.choices[0].message.content
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_a_wrong_file_fails_with_its_lines(client, batches, tmp_path):
    lines = list(requests(batches.model, 2))
    lines[1]["url"] = "/v1/completions"
    batch = ended(client, begin(client, upload(client, lines, tmp_path)))
    assert batch.status == "failed"
    assert [(error.line, error.code) for error in batch.errors.data] == [(2, "mismatched_url")]


def test_a_batch_can_be_cancelled(client, batches, tmp_path):
    lines = list(requests(batches.model, 200))
    for line in lines:
        line["body"] = {**line["body"], "max_tokens": 200}
    batch = begin(client, upload(client, lines, tmp_path))
    assert client.batches.cancel(batch.id).status == "cancelling"
    assert ended(client, batch).status == "cancelled"
