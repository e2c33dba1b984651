//! Known fields without effect: harmless ones, and those that are refused unless they ask for
//! nothing.

use serde_json::Value;

/// Treatment of a field without effect.
#[derive(Clone, Copy)]
pub enum Known {
    /// Ignored: it has no influence on the answer.
    Harmless,
    /// Ignored if the function returns true for its value, and otherwise refused.
    Neutral(fn(&Value) -> bool),
}

/// Treatment of a field. `None` if it is unknown.
pub fn known(name: &str) -> Option<Known> {
    TABLE.iter().find(|(names, _)| names.contains(&name)).map(|(_, known)| *known)
}

const TABLE: &[(&[&str], Known)] = &[
    // Who sends the request and why, and how it is stored or billed.
    (
        &["model", "user", "metadata", "client_metadata", "store", "service_tier", "safety_identifier"],
        Known::Harmless,
    ),
    // Where and how fast an answer is computed. A prediction only makes it faster.
    // llama-server knows no limit of a prompt's time either.
    (
        &[
            "keep_alive",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "prediction",
            "t_max_prompt_ms",
        ],
        Known::Harmless,
    ),
    (
        &[
            "num_batch",
            "num_gpu",
            "main_gpu",
            "num_thread",
            "numa",
            "use_mmap",
            "use_mlock",
            "low_vram",
            "vocab_only",
            "num_keep",
            "n_cache_reuse",
            "truncation_length",
            "priority",
            "penalize_newline",
        ],
        Known::Harmless,
    ),
    // Additional output: less than was asked for, or what is reported anyway.
    (&["timings_per_token", "return_progress", "include_obfuscation"], Known::Harmless),
    // Parameters of features that are refused below unless they are off.
    (&["n_keep", "penalize_nl", "parallel_tool_calls", "reasoning_format"], Known::Harmless),
    (&["n", "best_of", "tfs_z", "length_penalty"], Known::Neutral(one)),
    (
        &[
            "logprobs",
            "echo",
            "background",
            "use_beam_search",
            // Elsewhere, probabilities are those before the samplers.
            "post_sampling_probs",
            "continue_final_message",
            "think",
            "truncate",
            "backend_sampling",
            "grammar_lazy",
            "reasoning_in_content",
            "thinking_forced_open",
        ],
        Known::Neutral(off),
    ),
    (
        &["skip_special_tokens", "do_sample", "add_bos_token"],
        Known::Neutral(|value| *value == Value::Bool(true)),
    ),
    (
        &[
            "tools",
            "functions",
            "images",
            "suffix",
            "bad_words",
            "stop_token_ids",
            "grammar_triggers",
            "preserved_tokens",
        ],
        Known::Neutral(empty),
    ),
    // Samplers that other programs have, which frontends send whatever the server is.
    (
        &["tfs", "guidance_scale", "encoder_repetition_penalty", "num_beams", "num_return_sequences"],
        Known::Neutral(one),
    ),
    (
        &[
            "n_discard",
            "skew",
            "max_tokens_second",
            "mirostat_mode",
            "top_a",
            "smoothing_factor",
            "penalty_alpha",
            "no_repeat_ngram_size",
            "min_length",
        ],
        Known::Neutral(zero_or_less),
    ),
    // Parameters of those.
    (&["smoothing_curve", "sampler_priority", "temperature_last"], Known::Harmless),
    (&["early_stopping", "ban_eos_token", "use_default_badwordsids"], Known::Neutral(off)),
    (&["negative_prompt", "banned_strings", "custom_token_bans", "grammar_string"], Known::Neutral(empty)),
    (&["tool_choice", "function_call"], Known::Neutral(|value| *value == "none" || *value == "auto")),
    (&["modalities"], Known::Neutral(|value| *value == serde_json::json!(["text"]))),
    (
        &[
            "reasoning",
            "reasoning_effort",
            "chat_template_kwargs",
            "format",
            "verbosity",
            "web_search_options",
            "audio",
            "chat_template",
            "template",
            "context",
        ],
        Known::Neutral(empty),
    ),
];

fn one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn zero_or_less(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number <= 0.0)
}

fn off(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_field_is_known_once() {
        let mut seen = BTreeSet::new();
        for name in TABLE.iter().flat_map(|(names, _)| *names) {
            assert!(seen.insert(name), "{name}");
        }
    }
}
