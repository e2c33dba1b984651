"""Embeddings, by the libraries that ask for them."""

import math

import litellm
import ollama
import openai
import pytest
from conftest import KEY, Server
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings

TEXTS = [
    "In the beginning God created the heaven and the earth.",
    "A hacker is a person who enjoys programs.",
]


@pytest.fixture(scope="module")
def embedding():
    server = Server("--embeddings")
    yield server
    server.end()


def by_openai(server, texts):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        answer = client.embeddings.create(model=server.model, input=texts)
        assert [one.index for one in answer.data] == list(
            range(len(texts))
        ) and answer.usage.prompt_tokens > 0
        return [one.embedding for one in answer.data]


def by_ollama(server, texts):
    client = ollama.Client(host=server.url, headers={"Authorization": f"Bearer {KEY}"})
    return [list(one) for one in client.embed(model=server.model, input=texts).embeddings]


def by_litellm(server, texts):
    answer = litellm.embedding(
        model=f"openai/{server.model}",
        input=texts,
        api_base=server.url + "/v1",
        api_key=KEY,
        encoding_format="float",
    )
    return [one["embedding"] for one in answer.data]


def by_langchain(server, texts):
    model = OpenAIEmbeddings(
        model=server.model, base_url=server.url + "/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    of_ollama = OllamaEmbeddings(
        model=server.model, base_url=server.url, client_kwargs={"headers": {"Authorization": f"Bearer {KEY}"}}
    )
    assert close(of_ollama.embed_query(texts[0]), model.embed_query(texts[0]))
    return model.embed_documents(texts)


ASKING = {"openai (Python)": by_openai, "ollama": by_ollama, "litellm": by_litellm, "LangChain": by_langchain}


@pytest.fixture
def client_name(client):
    return client


def close(one, other):
    return len(one) == len(other) and all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(one, other))


@pytest.mark.parametrize("client", ASKING)
def test_embeddings(client, embedding):
    both = ASKING[client](embedding, TEXTS)
    assert len(both) == 2 and not close(*both)
    for vector in both:
        assert math.isclose(sum(x * x for x in vector), 1, abs_tol=1e-3)
    assert close(both[0], by_ollama(embedding, TEXTS[:1])[0])
