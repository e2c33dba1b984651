"""Grammars and schemas that take exponential time or memory."""

import threading
import time

from target import HANGS, Server

NESTED = {"type": "string", "pattern": "^(((((a{0,99}){0,99}){0,99}){0,99}){0,99})$"}
ALTERNATIVES = "root ::= ({})*\n{}".format(
    " | ".join(f"a{n}" for n in range(400)), "\n".join(f"a{n} ::= [a-z ]*" for n in range(400)))
HOSTILE = {
    "nested repetitions": {"json_schema": NESTED},
    "400 alternatives": {"grammar": ALTERNATIVES},
    "ambiguous recursion": {"grammar": 'root ::= root root | "a" | ""'},
    "left recursion": {"grammar": 'root ::= a\na ::= b\nb ::= a "x"'},
    "wide enumeration": {"json_schema": {"enum": [f"{n}" * 20 for n in range(4000)]}},
    "deep schema": {"json_schema": __import__("functools").reduce(
        lambda inner, _: {"type": "object", "properties": {"a": inner}, "required": ["a"]}, range(120), {"type": "null"})},
    "endless reference": {"json_schema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
    "many repetitions": {"json_schema": {"type": "array", "items": {"type": "string"}, "minItems": 100000}},
}


def attack_one_by_one(folder):
    """Each hostile grammar is answered, and another request beside it, too."""
    with Server(folder, "--ctx", 256, "--parallel", 2, "--timeout", 30, "--grace", 2) as server:
        server.stands()
        before, longest = server.peak_mib(), 0.0
        for name, grammar in HOSTILE.items():
            begin = time.monotonic()
            other = threading.Thread(target=server.stands)
            other.start()
            status, text = server.post("/completion", {"prompt": "a", "n_predict": 8, **grammar})
            longest = max(longest, time.monotonic() - begin)
            assert status < 500, f"{name}: {status} {text[:300]}"
            other.join(HANGS)
            assert not other.is_alive(), f"{name}: another request waits"
        grown = server.peak_mib() - before
        assert grown < 512, f"memory grew by {grown:.0f} MiB"
        return f"longest {longest:.1f} s, memory grew by {grown:.0f} MiB"


def attack_end_while_sampling(folder):
    """SIGTERM ends the server within its grace, whatever a grammar does."""
    with Server(folder, "--ctx", 256, "--timeout", 600, "--grace", 2) as server:
        server.stands()
        asking = threading.Thread(target=lambda: ask(server), daemon=True)
        asking.start()
        time.sleep(0.5)
        seconds = server.ends(2)
        return f"ended after {seconds:.1f} s"


def ask(server):
    try:
        server.post("/completion", {"prompt": "a", "n_predict": 200, "grammar": ALTERNATIVES})
    except (AssertionError, OSError):
        pass
