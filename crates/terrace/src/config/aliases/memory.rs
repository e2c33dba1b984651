//! Places of weights.

use super::ik_llama::DIVIDED;
use super::{Alias, LOADS, Opt, Ours, Parsed, Switch, Takes, alias, always, ignored, ignored_value, no};
use crate::config::refusal::Refusal;
use crate::config::truth::truth;

/// llama.cpp's expression for the dense feed-forward weights of a layer.
const DENSE: &str = r"\.ffn_(up|down|gate)\.";
/// More layers than any model has.
const ALL_LAYERS: &str = "9999";

const PLAN: &str = "the plan fills accelerators where that is faster; --vram-budget DEVICE=SIZE limits one";
const LOCKED: &str = "memory is given back when other programs need it; --adapt off keeps the budget";

pub const ALIASES: &[Alias] = &[
    alias(&["-ngl", "--gpu-layers", "--n-gpu-layers"], Parsed("n-gpu-layers", Takes::Value, layers)),
    alias(&["-sm", "--split-mode"], Parsed("split-mode", Takes::Value, split_mode)),
    alias(&["-ot", "--ot", "--override-tensor"], Parsed("override-tensor", Takes::Value, override_tensor)),
    alias(&["-cmoe"], Switch("cpu-moe", None)),
    alias(&["-ncmoe"], Opt("n-cpu-moe")),
    alias(&["--moe-cache-mib"], Parsed("hot-cache", Takes::Value, expert_cache)),
    alias(&["-ncffn", "--n-cpu-ffn"], Parsed("override-tensor", Takes::Value, dense_on_cpu)),
    alias(&["-dev"], Opt("device")),
    no(&["--list-devices"], "it prints a list and exits", "`terrace doctor` lists the devices"),
    ignored_value(&["-ts", "--tensor-split"], PLAN),
    ignored_value(&["-mg", "--main-gpu"], "there is no main accelerator; --device DEVICE uses one alone"),
    alias(&["-fit", "--fit"], Parsed(LOADS, Takes::Maybe, fit)),
    alias(&["-fitt", "--fit-target"], Parsed("vram-reserve", Takes::Value, fit_target)),
    ignored_value(&["-fitc", "--fit-ctx"], "--ctx sets the size of the context"),
    ignored(&["--no-host"], PLAN),
    alias(&["--no-mmap"], Switch("mmap", Some("off"))),
    alias(&["-lm", "--load-mode"], Parsed("mmap", Takes::Value, load_mode)),
    ignored_value(
        &["-lzm", "--lazy-mode"],
        "weights that do not fit stream from disk; --stream selects which",
    ),
    ignored(&["--mlock"], LOCKED),
    ignored_value(
        &["--numa"],
        "the kernel decides where memory is allocated; numactl starts terrace otherwise",
    ),
    always(&["-nr", "--no-repack"]),
];

fn layers(value: &str) -> Result<Ours, Refusal> {
    match value {
        "auto" | "-1" => Ok(Ours::default()),
        number => Ok(Ours::word(format!("--n-gpu-layers={}", layer_count(number)))),
    }
}

/// The number of layers, also where all are meant.
pub(super) fn layer_count(value: &str) -> &str {
    if matches!(value, "all" | "-2") { ALL_LAYERS } else { value }
}

fn split_mode(value: &str) -> Result<Ours, Refusal> {
    match value {
        "none" => Ok(Ours::note("--device DEVICE uses one accelerator alone")),
        "graph" | "attn" => Ok(Ours::note(DIVIDED)),
        "row" => Ok(Ours::note("accelerators get whole layers; --split-mode tensor splits matrices")),
        mode => Ok(Ours::word(format!("--split-mode={mode}"))),
    }
}

/// Makes one rule of each item of a list separated by commas. llama.cpp's `CPU` is `host`: in RAM, or streamed.
pub(super) fn override_tensor(value: &str) -> Result<Ours, Refusal> {
    let rules: Vec<&str> = match value.split(',').all(|rule| rule.contains('=')) {
        true => value.split(',').collect(),
        false => vec![value],
    };
    let ours = |rule: &str| match rule.strip_suffix("=CPU") {
        Some(regex) if is_all_experts(regex) => "--cpu-moe".to_owned(),
        Some(regex) => format!("--override-tensor={regex}=host"),
        None => format!("--override-tensor={rule}"),
    };
    Ok(Ours { words: rules.into_iter().map(ours).collect(), note: None })
}

/// Returns true if an expression is about the experts of all layers.
fn is_all_experts(regex: &str) -> bool {
    let of_some = regex.contains("blk") || regex.contains(|c: char| c.is_ascii_digit());
    let of_some_matrices = ["up", "down", "gate"].iter().filter(|name| regex.contains(**name)).count();
    regex.contains("exps") && !of_some && matches!(of_some_matrices, 0 | 3)
}

/// `--moe-cache-mib N` of releases after the pinned one: memory of all devices together for experts that stay in RAM.
fn expert_cache(value: &str) -> Result<Ours, Refusal> {
    match value.parse::<u32>() {
        Ok(0) => Ok(Ours::word("--hot-cache=off")),
        Ok(mib) => Ok(Ours {
            words: vec![format!("--hot-cache={mib}MiB")],
            note: Some("each accelerator gets this size; --hot-cache DEVICE=SIZE gives one alone"),
        }),
        Err(_) => Err(Refusal { why: "must be a number of MiB", hint: "use e.g. --hot-cache 4GiB" }),
    }
}

/// `--n-cpu-ffn N`: the dense feed-forward weights of the first layers.
fn dense_on_cpu(value: &str) -> Result<Ours, Refusal> {
    match value.parse::<u16>() {
        Ok(0) => Ok(Ours::default()),
        Ok(count) => {
            let layers: Vec<String> = (0..count).map(|layer| layer.to_string()).collect();
            Ok(Ours::word(format!(r"--override-tensor=blk\.({}){DENSE}=host", layers.join("|"))))
        }
        Err(_) => Err(Refusal { why: "must be a number of layers", hint: "leave it out, or use e.g. 8" }),
    }
}

fn fit(value: &str) -> Result<Ours, Refusal> {
    match truth(value) {
        Some(false) => {
            Ok(Ours::note("weights are always placed by what fits; --ram-budget and -ngl decide otherwise"))
        }
        _ => Ok(Ours::default()),
    }
}

/// `--fit-target MIB,...`: memory that stays free on each device, or on all.
fn fit_target(value: &str) -> Result<Ours, Refusal> {
    let sizes: Option<Vec<u64>> = value.split(',').map(|size| size.parse().ok()).collect();
    match sizes.as_deref() {
        Some([size]) => Ok(Ours::word(format!("--vram-reserve={size}MiB"))),
        Some(_) => Ok(Ours::note("--vram-reserve DEVICE=SIZE keeps memory of one accelerator free")),
        None => Err(Refusal { why: "must be a number of MiB", hint: "use e.g. --vram-reserve 1GiB" }),
    }
}

pub(super) fn load_mode(value: &str) -> Result<Ours, Refusal> {
    match value {
        "auto" | "mmap" => Ok(Ours::default()),
        "none" => Ok(Ours::word("--mmap=off")),
        "dio" => Ok(Ours { words: vec!["--mmap=off".into(), "--direct=on".into()], note: None }),
        "mlock" | "mmap+mlock" => Ok(Ours::note(LOCKED)),
        _ => Err(Refusal {
            why: "must be auto, none, mmap, mlock, mmap+mlock or dio",
            hint: "leave it out: --mmap and --direct decide how weights are read",
        }),
    }
}
