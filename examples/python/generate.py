#!/usr/bin/env python3
"""Generates text with the library for C, by ctypes alone.

    python3 examples/python/generate.py libterrace.so MODEL.gguf "In the beginning"

The package from PyPI (`pip install terrace-llm`) runs the program instead: docs/guide/install.md#python.
"""

import ctypes
import json
import sys

OnToken = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t, ctypes.c_void_p)


def main(library: str, path: str, prompt: str) -> None:
    terrace = ctypes.CDLL(library)
    terrace.terrace_last_error.restype = ctypes.c_char_p
    terrace.terrace_model_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    terrace.terrace_model_free.argtypes = [ctypes.c_void_p]
    terrace.terrace_model_free.restype = None
    terrace.terrace_session_new.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
    terrace.terrace_session_free.argtypes = [ctypes.c_void_p]
    terrace.terrace_session_free.restype = None
    terrace.terrace_session_generate.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        OnToken,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
    ]
    terrace.terrace_string_free.argtypes = [ctypes.c_void_p]
    terrace.terrace_string_free.restype = None

    def check(status: int) -> None:
        if status:
            raise RuntimeError(terrace.terrace_last_error().decode())

    def print_token(piece, length, _user) -> int:
        sys.stdout.buffer.write(piece[:length])
        sys.stdout.buffer.flush()
        return 0

    model, session, result = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    load = {"ram-budget": "8MiB", "stream": "experts", "ctx": 512, "threads": 1}
    check(terrace.terrace_model_load(path.encode(), json.dumps(load).encode(), ctypes.byref(model)))
    try:
        check(terrace.terrace_session_new(model, ctypes.byref(session)))
        options = json.dumps({"n": 16, "temp": 0}).encode()
        # Kept in a variable for as long as C calls it.
        callback = OnToken(print_token)
        check(
            terrace.terrace_session_generate(
                session, prompt.encode(), options, callback, None, ctypes.byref(result)
            )
        )
        report = json.loads(ctypes.cast(result, ctypes.c_char_p).value)
        terrace.terrace_string_free(result)
        print(f"\n{len(report['tokens'])} tokens, {report['timings']['ttft_ms']:.0f} ms to the first")
    finally:
        terrace.terrace_session_free(session)
        terrace.terrace_model_free(model)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
