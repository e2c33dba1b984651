"""Options that write, pointed at files that they must not touch."""

import hashlib
import os
import shutil

from target import MODEL, Server, refused, run


def state(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest(), os.stat(path).st_mtime_ns, os.stat(path).st_mode


def attack_own_inputs(folder):
    """The model itself, links to it, and a user's text, as every file that `run` writes."""
    model, text = folder / "model.gguf", folder / "thesis.txt"
    shutil.copyfile(MODEL, model)
    text.write_text("years of work\n")
    os.link(model, folder / "hard.gguf")
    (folder / "soft.gguf").symlink_to(model)
    before = state(model), state(text)
    for option in ["--prompt-cache", "--timeline", "--learn-to", "--save-last-logits"]:
        for path in [model, folder / "hard.gguf", folder / "soft.gguf", text]:
            refused(run("run", model, "-p", "x", "-n", 2, option, path))
            assert (state(model), state(text)) == before, f"{option} {path}"
    for path in [model, text]:
        refused(run("trace", "record", "-o", path, model, "-p", "x", "-n", 2))
        refused(run("perplexity", model, "-f", text, "--save-logits", path))
        assert (state(model), state(text)) == before, path


def attack_slot_files(folder):
    """A client saves a server slot over the model that is served, and outside of the folder."""
    slots = folder / "slots"
    slots.mkdir()
    model = slots / "model.gguf"
    shutil.copyfile(MODEL, model)
    (slots / "link.bin").symlink_to(folder / "outside.bin")
    (folder / "outside.bin").write_text("years of work\n")
    before = state(model), state(folder / "outside.bin")
    with Server(folder, "--ctx", 256, "--slot-save-path", slots, model=model) as server:
        server.stands()
        for name in ["model.gguf", "../outside.bin", "link.bin", "/etc/hostname", "a/../../outside.bin", "", ".", "\0"]:
            status, answer = server.post("/slots/0?action=save", {"filename": name})
            assert 400 <= status < 500, f"{name}: {status} {answer}"
            assert (state(model), state(folder / "outside.bin")) == before, name
        server.stands()
