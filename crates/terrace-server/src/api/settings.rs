//! Settings of a response, under llama-server's names.

use crate::app::Ready;
use crate::request::answer_settings::AnswerSettings;
use serde_json::{Value, json};

/// llama-server's `generation_settings`.
pub fn settings(wanted: &AnswerSettings, stream: bool, ready: &Ready) -> Value {
    let s = &wanted.sampling;
    let n_predict = wanted.n_max.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
    // JSON has no infinity: null stands for the one that forbids a token.
    let bias = s.logit_bias.iter().map(|(token, bias)| json!({"token": token.0, "bias": bias}));
    let ends = ready.facts.ends.iter().filter(|_| s.ignore_eos);
    let bias = bias.chain(ends.map(|token| json!({"token": token, "bias": null})));
    let adapters = 0..ready.facts.adapters.len();
    let lora = adapters.map(|id| json!({"id": id, "scale": wanted.scales.of(id)}));
    json!({
        "n_ctx": ready.facts.context,
        "seed": s.seed,
        "temperature": s.temp,
        "dynatemp_range": s.dynatemp_range,
        "dynatemp_exponent": s.dynatemp_exponent,
        "top_k": s.top_k,
        "top_p": s.top_p,
        "min_p": s.min_p,
        "top_n_sigma": s.top_n_sigma,
        "xtc_probability": s.xtc_probability,
        "xtc_threshold": s.xtc_threshold,
        "typical_p": s.typical_p,
        "repeat_last_n": s.repeat_last_n,
        "repeat_penalty": s.repeat_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "dry_multiplier": s.dry_multiplier,
        "dry_base": s.dry_base,
        "dry_allowed_length": s.dry_allowed_length,
        "dry_penalty_last_n": s.dry_penalty_last_n,
        "dry_sequence_breakers": s.dry_sequence_breakers,
        "mirostat": s.mirostat,
        "mirostat_tau": s.mirostat_tau,
        "mirostat_eta": s.mirostat_eta,
        "adaptive_target": s.adaptive_target,
        "adaptive_decay": s.adaptive_decay,
        "samplers": s.order.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "logit_bias": bias.collect::<Vec<_>>(),
        "ignore_eos": s.ignore_eos,
        "min_tokens": s.min_tokens,
        "min_keep": s.min_keep,
        "n_probs": wanted.probs.unwrap_or(0),
        "post_sampling_probs": wanted.after_samplers,
        "grammar": s.grammar.as_ref().map_or("", |grammar| grammar.text.as_str()),
        "lora": lora.collect::<Vec<_>>(),
        "stop": wanted.stop,
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "stream": stream,
    })
}
