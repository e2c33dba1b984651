"""Requests with values that cost memory or time."""

from target import Server

EXTREMES = [-1, 0, 2**31 - 1, 2**32 - 1, 2**53, -(2**63), 1e308, -1e308, "NaN", None, [], {}]
FIELDS = {
    "/completion": """n_predict n_keep top_k top_p min_p min_keep typical_p temperature dynatemp_range
        dynatemp_exponent repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base
        dry_allowed_length dry_penalty_last_n mirostat mirostat_tau mirostat_eta xtc_probability xtc_threshold n_probs
        n_indent seed id_slot t_max_predict_ms n_discard top_n_sigma""",
    "/v1/completions": "max_tokens n best_of logprobs top_p temperature frequency_penalty presence_penalty seed",
    "/v1/chat/completions": """max_tokens max_completion_tokens n top_logprobs temperature top_p seed
        frequency_penalty presence_penalty""",
    "/v1/messages": "max_tokens top_k top_p temperature",
    "/v1/responses": "max_output_tokens top_p temperature top_logprobs",
    "/api/generate": "keep_alive options",
    "/api/chat": "keep_alive options",
    "/infill": "n_predict top_k repeat_last_n n_probs",
}


def body_of(path):
    messages = [{"role": "user", "content": "a"}]
    return {
        "/completion": {"prompt": "a", "n_predict": 1, "repeat_penalty": 1.1, "dry_multiplier": 0.5},
        "/v1/completions": {"prompt": "a", "max_tokens": 1},
        "/v1/chat/completions": {"messages": messages, "max_tokens": 1},
        "/v1/messages": {"messages": messages, "max_tokens": 1},
        "/v1/responses": {"input": "a", "max_output_tokens": 1},
        "/api/generate": {"prompt": "a", "stream": False, "options": {"num_predict": 1}},
        "/api/chat": {"messages": messages, "stream": False, "options": {"num_predict": 1}},
        "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 1},
    }[path]


def attack_extreme_numbers(folder):
    """Every numeric field of every dialect, at and beyond its ends."""
    with Server(folder, "--ctx", 256, "-n", 2, "--timeout", 20) as server:
        server.stands()
        before = server.peak_mib()
        for path, fields in FIELDS.items():
            for field in fields.split():
                for value in EXTREMES:
                    status, text = server.post(path, body_of(path) | {field: value})
                    assert status < 500 or status == 501, f"{path} {field}={value}: {status} {text[:300]}"
        server.stands()
        grown = server.peak_mib() - before
        assert grown < 64, f"memory grew by {grown:.0f} MiB"
        return f"memory grew by {grown:.0f} MiB"


def attack_penalty_window(folder):
    """A window of 2^31 tokens for penalties, which once took 8 GiB."""
    with Server(folder, "--ctx", 256) as server:
        server.stands()
        before = server.peak_mib()
        for field in ["repeat_last_n", "dry_penalty_last_n"]:
            body = {"prompt": "a", "n_predict": 1, field: 2**31 - 1, "repeat_penalty": 1.1, "dry_multiplier": 0.8}
            status, text = server.post("/completion", body)
            assert status in (200, 400), text
        grown = server.peak_mib() - before
        assert grown < 32, f"memory grew by {grown:.0f} MiB"
        server.stands()
        return f"memory grew by {grown:.0f} MiB"


def attack_many_and_long(folder):
    """Thousands of stop strings, biases and choices, deep JSON, long names."""
    with Server(folder, "--ctx", 256, "-n", 2) as server:
        bodies = [
            {"prompt": "a", "max_tokens": 1, "stop": ["x" * 1000] * 2000},
            {"prompt": "a", "max_tokens": 1, "logit_bias": {str(token): 1 for token in range(20000)}},
            {"prompt": ["a"] * 5000, "max_tokens": 1},
            {"prompt": "a", "max_tokens": 1, "n": 100000},
            {"prompt": "a" * 500000, "max_tokens": 1},
            {"prompt": "a", "max_tokens": 1, "model": "\u202e" * 10000},
        ]
        for body in bodies:
            status, text = server.post("/v1/completions", body)
            assert status < 500, text[:300]
            assert len(text) < 200000, f"an answer of {len(text)} bytes"
        status, _ = server.post("/v1/completions", b"[" * 100000)
        assert status == 400
        server.stands()
