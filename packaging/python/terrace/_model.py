"""A loaded model: a server of one's own, over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal, overload
from urllib.parse import urlsplit

from terrace._program import Error, PathLike, arguments, program

# Time that a server has to end by itself, in seconds.
_GRACE = 15


class Model:
    """A model that is loaded, until :meth:`close` or the end of a ``with`` block.

    :param path: a ``.gguf`` file (of a split model the first shard), or ``hf:owner/repo[:file]``, which is downloaded;
        ``None`` is the small model that the package brings.
    :param options: options of ``terrace serve``, with underscores: ``ram_budget="8GiB"``, ``ctx=4096``, ``parallel=4``,
        ``watch=True``.
    :raises Error: the model cannot be loaded with these.

    Its methods may be called by several threads; ``parallel`` says how many are computed at a time.
    """

    def __init__(self, path: PathLike | None = None, **options: Any) -> None:
        key = secrets.token_hex(16)
        words = [program(), "serve", *arguments(options), "--host=127.0.0.1", "--port=0"]
        if path is not None:
            words += ["--", os.fspath(path)]
        # A file, so that nobody has to read it for the server to go on.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._server = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Not in the list of processes, which others can read.
            env={**os.environ, "TERRACE_API_KEY": key},
            # Ctrl-C is for this process, which then ends the server.
            start_new_session=True,
        )
        self._watcher = _watch(self._server.pid)
        self._close = weakref.finalize(self, _close, self._server, self._watcher, self._errors)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        try:
            assert self._server.stdout is not None
            line = self._server.stdout.readline().decode()
            if "://" not in line:
                self._server.wait()
                raise Error.of(self._said())
            self._address = urlsplit(line.split()[-1]).netloc
            self._await_load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unloads the model. Generations that run are ended."""
        self._close()

    @overload
    def generate(
        self, prompt: str, *, max_tokens: int | None = ..., stream: Literal[False] = ..., **sampling: Any
    ) -> str: ...
    @overload
    def generate(
        self, prompt: str, *, max_tokens: int | None = ..., stream: Literal[True], **sampling: Any
    ) -> Iterator[str]: ...
    def generate(
        self, prompt: str, *, max_tokens: int | None = None, stream: bool = False, **sampling: Any
    ) -> str | Iterator[str]:
        """The text that follows a prompt; with ``stream``, its pieces as they are generated.

        :param sampling: fields of OpenAI's and llama-server's APIs: ``temperature``, ``top_p``, ``seed``, ``stop``,
            ``grammar`` and so on.
        """
        body = {"prompt": prompt, "max_tokens": max_tokens, **sampling}
        if stream:
            return self._pieces("/v1/completions", body, lambda choice: choice.get("text"))
        return str(self._request("POST", "/v1/completions", body)["choices"][0]["text"])

    @overload
    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        max_tokens: int | None = ...,
        stream: Literal[False] = ...,
        **fields: Any,
    ) -> str: ...
    @overload
    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        max_tokens: int | None = ...,
        stream: Literal[True],
        **fields: Any,
    ) -> Iterator[str]: ...
    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        max_tokens: int | None = None,
        stream: bool = False,
        **fields: Any,
    ) -> str | Iterator[str]:
        """The answer to a conversation, by the model's chat template; with ``stream``, its pieces.

        :param messages: ``[{"role": "user", "content": "..."}]``, as in OpenAI's API.
        """
        body = {"messages": list(messages), "max_tokens": max_tokens, **fields}
        if stream:
            return self._pieces("/v1/chat/completions", body, lambda choice: choice["delta"].get("content"))
        return str(self._request("POST", "/v1/chat/completions", body)["choices"][0]["message"]["content"] or "")

    @overload
    def embed(self, text: str) -> list[float]: ...  # type: ignore[overload-overlap]
    @overload
    def embed(self, text: Sequence[str]) -> list[list[float]]: ...
    def embed(self, text: str | Sequence[str]) -> list[float] | list[list[float]]:
        """The embedding of a text, of length 1, or of several texts."""
        body = {"input": text if isinstance(text, str) else list(text)}
        data = self._request("POST", "/v1/embeddings", body)["data"]
        embeddings = [entry["embedding"] for entry in sorted(data, key=lambda entry: entry["index"])]
        return embeddings[0] if isinstance(text, str) else embeddings

    def reload(self) -> dict[str, Any]:
        """Replaces the tensors that have changed in the model's files; says which."""
        report: dict[str, Any] = self._request("POST", "/v1/tensors/reload", {})
        return report

    def _await_load(self) -> None:
        """Returns when the model is loaded: until then the server answers that it is loading."""
        pause = 0.005
        while True:
            connection = http.client.HTTPConnection(self._address)
            try:
                connection.request("GET", "/health", headers=self._headers)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(error) from error
            finally:
                connection.close()
            if status == 200:
                return
            if self._server.poll() is not None:
                raise Error.of(self._said())
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection, response = self._ask(method, path, body)
        try:
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._lost(error) from error
        with self._lock:
            self._idle.append(connection)
        return json.loads(answer)

    def _pieces(self, path: str, body: dict[str, Any], text: Any) -> Iterator[str]:
        connection, response = self._ask("POST", path, {**body, "stream": True})

        def pieces() -> Iterator[str]:
            # A reader that stops early closes the connection, which ends the generation.
            try:
                for line in response:
                    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                        continue
                    event = json.loads(line[len(b"data: ") :])
                    if "error" in event:
                        raise Error(event["error"]["message"])
                    for choice in event["choices"]:
                        piece = text(choice)
                        if piece:
                            yield piece
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(error) from error
            finally:
                connection.close()

        return pieces()

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Sends a request. An idle connection may have been closed meanwhile: then another one is made."""
        if not self._close.alive:
            raise Error("the model is closed")
        sent = None
        if body is not None:
            sent = json.dumps({name: value for name, value in body.items() if value is not None})
        while True:
            with self._lock:
                old = self._idle.pop() if self._idle else None
            connection = old or http.client.HTTPConnection(self._address)
            try:
                connection.request(method, path, sent, self._headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if old is not None and self._server.poll() is None:
                    continue
                raise self._lost(error) from error
            if response.status >= 400:
                answer = response.read()
                connection.close()
                raise Error(_reason(answer) or f"{path}: {response.status}")
            return connection, response

    def _lost(self, error: Exception) -> Error:
        """Why a connection was lost: mostly that the server has ended, and it says why."""
        try:
            self._server.wait(1)
        except subprocess.TimeoutExpired:
            return Error(f"the connection to the model was lost: {error}")
        return Error.of(self._said())

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def _reason(answer: bytes) -> str | None:
    try:
        return str(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _watch(pid: int) -> subprocess.Popen[bytes] | None:
    """Ends the server when this process ends without a chance to: the pipe closes then."""
    if not sys.platform.startswith(("linux", "darwin")):
        return None
    script = 'read -r _ || kill "$1" 2>/dev/null'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _close(server: subprocess.Popen[bytes], watcher: subprocess.Popen[bytes] | None, errors: IO[str]) -> None:
    server.terminate()
    try:
        server.wait(_GRACE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if watcher is not None and watcher.stdin is not None:
        # A line: the server is gone, and its number may be another one's.
        try:
            watcher.stdin.write(b"\n")
            watcher.stdin.close()
        except OSError:
            pass
        watcher.wait()
    if server.stdout is not None:
        server.stdout.close()
    errors.close()
