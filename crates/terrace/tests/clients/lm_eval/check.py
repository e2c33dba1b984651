"""Compares what lm-eval found out through the server: the same by text and by tokens, and not by chance."""

import json
import sys
from pathlib import Path


def results(directory):
    [file] = Path(directory).rglob("results_*.json")
    return json.loads(file.read_text())["results"]


text, tokens, chat = map(results, sys.argv[1:])
for task in ("tiny_choice", "tiny_words", "tiny_text"):
    of = [{name: value for name, value in one[task].items() if "," in name} for one in (text, tokens)]
    assert of[0] == of[1], of
assert 0 < text["tiny_choice"]["acc,none"] <= 1, text
assert 1 < text["tiny_words"]["byte_perplexity,none"] < 4, text
assert "exact_match,none" in chat["tiny_text"], chat
print("lm-eval:", {task: {n: round(v, 4) for n, v in one.items() if isinstance(v, float)} for task, one in text.items()})
