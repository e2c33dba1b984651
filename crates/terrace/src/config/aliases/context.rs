//! The context, its keys and values, and batches.

use super::{
    Alias, LOADS, Opt, OptionUnless, Ours, Parsed, SERVE, Switch, Takes, alias, always, ignored,
    ignored_value,
};
use super::{Means, no};
use crate::config::refusal::Refusal;
use crate::config::truth::truth;

const CHECKPOINTS: &str = "--cache-ram limits the conversations that are kept";
const SHARED: &str = "each request gets a context of this size";

pub const ALIASES: &[Alias] = &[
    alias(&["-c", "--ctx-size"], Opt("ctx")),
    alias(&["-b", "--batch-size"], Opt("batch")),
    alias(&["-ub", "--ubatch-size"], Opt("ubatch")),
    alias(&["-ctk"], Opt("cache-type-k")),
    alias(&["-ctv"], Opt("cache-type-v")),
    alias(&["-kvo", "--kv-offload"], Parsed("kv-offload", Takes::Maybe, kv_offload)),
    alias(&["-nkvo", "--no-kv-offload"], Switch("kv-offload", Some("off"))),
    alias(&["--op-offload"], Parsed("op-offload", Takes::Maybe, op_offload)),
    alias(&["--no-op-offload"], Switch("op-offload", Some("off"))),
    alias(&["-fa", "--flash-attn"], Parsed(LOADS, Takes::Maybe, flash_attention)),
    always(&["--no-context-shift"]),
    no(
        &["--context-shift"],
        "a response ends when the context is full: dropping earlier tokens would change the text",
        "use a larger --ctx",
    ),
    ignored_value(&["--keep"], "a response ends when the context is full; nothing is dropped"),
    always(&["-no-kvu", "--no-kv-unified"]),
    ignored(&["-kvu", "--kv-unified"], SHARED),
    ignored_value(&["--kv-unified-per-slot"], SHARED),
    ignored(&["--swa-full"], CHECKPOINTS),
    ignored_value(&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"], CHECKPOINTS),
    ignored_value(&["-cms", "--checkpoint-min-step"], CHECKPOINTS),
    alias(&["-cram", "--cache-ram"], OptionUnless("cache-ram", &["-1"])),
    ignored_value(&["-cram", "--cache-ram"], "--prompt-cache FILE keeps a prompt for the next run"),
    alias(&["--cache-prompt", "--cache-idle-slots"], Means::Always(LOADS)),
    ignored(
        &["--no-cache-prompt"],
        "the part that a prompt shares with an earlier one is not computed again",
    ),
    ignored(&["--no-cache-idle-slots"], CHECKPOINTS),
    ignored_value(&["--cache-reuse"], "only a shared beginning of the prompt is reused, which is exact"),
    ignored_value(&["-dt", "--defrag-thold"], "the cache does not fragment"),
    alias(&["-np", "--parallel"], OptionUnless("parallel", &["-1"])),
    ignored_value(&["-np", "--parallel"], "this command computes one response at a time"),
    alias(&["-cb", "--cont-batching"], Switch(SERVE, Some("on"))),
    alias(&["-nocb", "--no-cont-batching"], Switch(SERVE, Some("off"))),
    always(&["-cb", "--cont-batching", "-nocb", "--no-cont-batching"]),
];

fn flash_attention(value: &str) -> Result<Ours, Refusal> {
    match truth(value) {
        Some(false) => Ok(Ours::note("attention is always fused")),
        Some(true) => Ok(Ours::default()),
        None if matches!(value, "" | "auto" | "-1") => Ok(Ours::default()),
        None => Err(Refusal { why: "must be on, off or auto", hint: "leave it out: it is always on" }),
    }
}

fn kv_offload(value: &str) -> Result<Ours, Refusal> {
    switched("--kv-offload", value)
}

fn op_offload(value: &str) -> Result<Ours, Refusal> {
    switched("--op-offload", value)
}

/// A switch of llama.cpp that has a value here.
fn switched(option: &str, value: &str) -> Result<Ours, Refusal> {
    let value = match (value, truth(value)) {
        ("", _) | (_, Some(true)) => "on",
        (_, Some(false)) => "off",
        // clap names it.
        (other, None) => other,
    };
    Ok(Ours::word(format!("{option}={value}")))
}
