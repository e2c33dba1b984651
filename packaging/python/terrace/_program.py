"""The program that the package brings, and its options."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Union

PathLike = Union[str, "os.PathLike[str]"]

try:
    __version__ = importlib.metadata.version("terrace-llm")
except importlib.metadata.PackageNotFoundError:  # Not installed: run from its folder.
    __version__ = "0"


class Error(Exception):
    """What the program could not do, in its own words. ``hint`` says what to do about it, if it knows."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} (hint: {hint})")
        self.hint = hint

    @classmethod
    def of(cls, stderr: str) -> Error:
        """The error at the end of what the program said."""
        lines = [line for line in stderr.splitlines() if line.strip()]
        hints = [line[len("hint: ") :] for line in lines if line.startswith("hint: ")]
        errors = [line[len("error: ") :] for line in lines if line.startswith("error: ")]
        message = errors[-1] if errors else lines[-1] if lines else "terrace ended without a word"
        return cls(message, hints[-1] if hints and errors else None)


def program() -> str:
    """The path of the program ``terrace``: ``TERRACE_PROGRAM``, the one of this package, or one in ``PATH``."""
    named = os.environ.get("TERRACE_PROGRAM")
    if named:
        return named
    try:
        files = importlib.metadata.files("terrace-llm") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    name = "terrace.exe" if sys.platform == "win32" else "terrace"
    # `Scripts` on Windows.
    own = [Path(str(file.locate())) for file in files if file.parts[-2:] in (("bin", name), ("Scripts", name))]
    for path in [*own, Path(sysconfig.get_path("scripts"), name)]:
        if path.is_file():
            return str(path.resolve())
    found = shutil.which("terrace")
    if found is None:
        raise Error("the program `terrace` is not there", "pip install --force-reinstall terrace-llm")
    return found


def arguments(options: dict[str, Any]) -> list[str]:
    """Options of Python as words of a command line: ``ram_budget="8GiB"`` is ``--ram-budget=8GiB``."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not None and one is not False:
                words.append(f"{option}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return words


def plan(path: PathLike, **options: Any) -> dict[str, Any]:
    """What would live where, and how fast that would be, as ``terrace plan --json`` says. Nothing is loaded.

    :param path: a ``.gguf`` file, or ``hf:owner/repo[:file]``, of which only the header is read.
    :raises Error: the model cannot be read, or the machine has too little memory.
    """
    words = [program(), "plan", "--json", *arguments(options), "--", os.fspath(path)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error.of(done.stderr)
    made: dict[str, Any] = json.loads(done.stdout)
    return made
