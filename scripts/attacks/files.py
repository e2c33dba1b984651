"""Files that are pipes, devices, or endless."""

import os
import shutil

from target import MODEL, refused, run

# Options of `run` that read a file.
READS = ["--plan", "--layer-skip", "--lossy", "--grammar-file", "--json-schema-file", "--chat-template-file", "-f",
         "--learned", "--lora", "--mmproj", "--config", "--draft"]


def attack_pipes_and_devices(folder):
    """A pipe without a writer and /dev/zero, as every file that is read."""
    pipe, zero = folder / "pipe", folder / "zero"
    os.mkfifo(pipe)
    zero.symlink_to("/dev/zero")
    for option in READS:
        for path in (pipe, zero):
            words = ["run", MODEL, "-n", 1, option, path]
            words += [] if option == "-f" else ["-p", "x"]
            refused(run(*words, timeout=60))
    for path in (pipe, zero):
        refused(run("run", path, "-p", "x", timeout=60))
        refused(run("inspect", path, timeout=60))
        refused(run("plan", MODEL, "--machine", path, timeout=60))
        refused(run("quantize", path, folder / "out.gguf", "--type", "Q4_0", timeout=60))


def attack_broken_homes(folder):
    """Homes that cannot be entered."""
    for home in ["/dev/null", MODEL, "/nonexistent/home"]:
        os.environ.update(HOME=home)
        for name in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME"]:
            os.environ.pop(name, None)
        done = run("run", MODEL, "-p", "In the", "-n", 2)
        assert done.returncode == 0, done


def attack_truncated_models(folder):
    """The model cut at many places."""
    size = os.path.getsize(MODEL)
    for part in [0, 3, 4, 24, 100, 5000, size // 100, size // 2, size - 1]:
        path = folder / "cut.gguf"
        shutil.copyfile(MODEL, path)
        os.truncate(path, part)
        refused(run("run", path, "-p", "x", "-n", 1))
