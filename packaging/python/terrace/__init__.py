"""Runs GGUF models that do not fit in memory.

>>> import terrace
>>> with terrace.Model("model.gguf", ram_budget="12GiB") as model:
...     print(model.generate("Once upon a time", max_tokens=64))

A :class:`Model` is a process of its own, ``terrace serve`` on an address of this machine that only this process has the
key of: a model that runs out of memory does not take its caller along, and calls of several threads are computed
together.
"""

from terrace._model import Model
from terrace._program import Error, __version__, plan, program

__all__ = ["Error", "Model", "__version__", "plan", "program"]
