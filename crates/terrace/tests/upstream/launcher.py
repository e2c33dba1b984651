#!/usr/bin/env python3
"""Starts `terrace serve` in place of `llama-server`, with the options that stand for the given ones.

An option for which Terrace has nothing ends it with an error, so that no test passes without what it asks for. In place
of the models that llama.cpp's tests download it serves those of MODELS, a directory.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

# What it gives by default, or what has no influence on an answer.
NEUTRAL = {
    "--offline",
    "--jinja",
    "--no-jinja",
    "--slots",
    "--no-slots",
    "--cont-batching",
    "--metrics",
    "--swa-full",
    "--no-mmproj",
    "--no-cache-idle-slots",
    "--kv-unified",
}
NEUTRAL_WITH_VALUE = {"--hf-file", "--n-gpu-layers", "-fa", "--threads"}
# Ours, for options of the same meaning.
SAME = {
    "--port": "--port",
    "--host": "--host",
    "--temp": "--temp",
    "--seed": "--seed",
    "--alias": "--alias",
    "--n-predict": "-n",
    "--slot-save-path": "--slot-save-path",
    "--api-key": "--api-key",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "--cache-ram": "--cache-ram",
    "--cors-origins": "--cors-origin",
    "--chat-template": "--chat-template",
    "--chat-template-file": "--chat-template-file",
    "--reasoning-format": "--reasoning-format",
    "--pooling": "--pooling",
    "--reasoning": "--reasoning",
    "--sleep-idle-seconds": "--keep-alive",
}
# Ours, for options that are switches.
SWITCHES = {"--embedding": ["--embeddings"], "--reranking": ["--reranking"], "--verbose": ["-v"]}
OURS = {
    "--batch-size",
    "--ubatch-size",
    "--ctx-size",
    "--parallel",
    "--model",
    "--hf-repo",
    "--models-preset",
}

# Models in the place of those of the tests: a file of MODELS.
REPOSITORIES = {
    "ggml-org/test-model-stories260K": "model.gguf",
    "ggml-org/stories15M_MOE": "model.gguf",
    "ggml-org/test-model-stories260K-infill": "infill.gguf",
    # Images are refused, as its tests expect of wrong ones.
    "ggml-org/tinygemma3-GGUF:Q8_0": "model.gguf",
}
FILES = {
    "bert-bge-small/ggml-model-f16.gguf": "model.gguf",
    "jina-reranker-v1-tiny-en/ggml-model-f16.gguf": "ranker.gguf",
}
# What a router offers: the models that are in the cache of those who run the tests.
ROUTED = {
    "ggml-org/tinygemma3-GGUF:Q8_0": "model.gguf",
    "ggml-org/test-model-stories260K:F32": "model.gguf",
    "ggml-org/test-model-stories260K-infill:F32": "infill.gguf",
}


def refuse(why):
    print(f"Terrace has nothing for {why}", file=sys.stderr)
    sys.exit(2)


def options(words):
    """The values by option; those of switches are empty."""
    found = {}
    words = iter(words)
    for word in words:
        if word in NEUTRAL or word in SWITCHES:
            found[word] = None
        elif word in NEUTRAL_WITH_VALUE or word in SAME or word in OURS:
            found[word] = next(words)
        else:
            refuse(word)
    return found


def model_of(found):
    models = Path(os.environ["MODELS"])
    if "--model" in found:
        return found["--model"]
    if found.get("--hf-file") in FILES:
        return str(models / FILES[found["--hf-file"]])
    if found["--hf-repo"] in REPOSITORIES:
        return str(models / REPOSITORIES[found["--hf-repo"]])
    refuse(f"the model {found['--hf-repo']} {found.get('--hf-file') or ''}")


def router(found):
    """A configuration file with the models of a router."""
    models = Path(os.environ["MODELS"])
    if "--models-preset" in found:
        refuse("--models-preset")
    sections = [
        f"[models.{json.dumps(name)}]\nmodel = {json.dumps(str(models / file))}\n"
        for name, file in ROUTED.items()
    ]
    handle, path = tempfile.mkstemp(suffix=".toml", dir=models)
    os.write(handle, "\n".join(sections).encode())
    return path


def main():
    found = options(sys.argv[1:])
    command = [os.environ["TERRACE"], "serve"]
    if "--model" in found or "--hf-repo" in found:
        command.append(model_of(found))
    else:
        command += ["--config", router(found)]
    if os.environ.get("TEMPLATE") and not any(name.startswith("--chat-template") for name in found):
        command += ["--chat-template-file", os.environ["TEMPLATE"]]
    # llama.cpp's context is that of all slots together unless they share it; ours is that of each.
    slots, context = int(found.get("--parallel", 4)), int(found.get("--ctx-size", 4096))
    command += [
        "--parallel",
        str(slots),
        "--ctx",
        str(context if "--kv-unified" in found else context // slots),
    ]
    batch = int(found.get("--batch-size", 512))
    command += ["--batch", str(batch), "--ubatch", str(min(batch, int(found.get("--ubatch-size", 512))))]
    for name, value in found.items():
        if name in SAME:
            command += [SAME[name], value]
        command += SWITCHES.get(name, [])
    command += ["--threads", "1", "--stream", "none"]
    print("starts", *command, file=sys.stderr, flush=True)
    os.execv(command[0], command)


main()
