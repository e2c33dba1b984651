//! Speculative decoding.

use super::{Alias, Opt, Ours, Parsed, Switch, Takes, alias, ignored, ignored_value};
use crate::config::refusal::Refusal;

/// Most tokens that a pass guesses.
const MAX_DRAFTS: u32 = 15;

const PLACE: &str = "draft models are in RAM, and the CPU computes them with --threads";
const MEASURED: &str = "how many tokens are guessed follows from measurements; --draft-max limits it";
const NGRAM: &str = "--draft ngram guesses from the text so far";

pub const ALIASES: &[Alias] = &[
    alias(&["-md", "--model-draft", "--spec-draft-model"], Opt("draft")),
    ignored_value(&["-md", "--model-draft", "--spec-draft-model"], "this command uses no drafts"),
    // The name of a file with us; older releases of llama.cpp have a number.
    alias(&["--draft"], Parsed("draft", Takes::Value, draft)),
    alias(&["--draft-max", "--draft-n", "--spec-draft-n-max"], Parsed("draft-max", Takes::Value, most)),
    alias(&["--spec-type"], Parsed("draft", Takes::Value, kinds)),
    alias(&["--spec-default"], Switch("draft", Some("auto"))),
    ignored_value(
        &["--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"],
        "download the model, and give its file with --draft",
    ),
    ignored_value(&["--draft-min", "--draft-n-min", "--spec-draft-n-min"], MEASURED),
    ignored_value(
        &["--draft-p-min", "--spec-draft-p-min", "--draft-p-split", "--spec-draft-p-split"],
        MEASURED,
    ),
    ignored_value(&["--spec-draft-sampling", "--spec-synth-len", "--spec-synth-rates"], MEASURED),
    ignored(&["--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"], PLACE),
    ignored_value(&["-td", "--threads-draft", "--spec-draft-threads"], PLACE),
    ignored_value(&["-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"], PLACE),
    ignored_value(&["-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"], PLACE),
    ignored_value(&["-Crd", "--cpu-range-draft", "--spec-draft-cpu-range"], PLACE),
    ignored_value(&["--cpu-strict-draft", "--spec-draft-cpu-strict"], PLACE),
    ignored_value(&["--prio-draft", "--spec-draft-prio", "--poll-draft", "--spec-draft-poll"], PLACE),
    ignored_value(&["-Cbd", "--cpu-mask-batch-draft", "--spec-draft-cpu-mask-batch"], PLACE),
    ignored_value(&["-Crbd", "--cpu-range-batch-draft", "--spec-draft-cpu-range-batch"], PLACE),
    ignored_value(&["--cpu-strict-batch-draft", "--spec-draft-cpu-strict-batch"], PLACE),
    ignored_value(&["--prio-batch-draft", "--spec-draft-prio-batch"], PLACE),
    ignored_value(&["--poll-batch-draft", "--spec-draft-poll-batch"], PLACE),
    ignored_value(&["-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"], PLACE),
    ignored_value(&["-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"], PLACE),
    ignored_value(&["-otd", "--override-tensor-draft", "--spec-draft-override-tensor"], PLACE),
    ignored(&["-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"], PLACE),
    ignored_value(&["-ncmoed", "--n-cpu-moe-draft", "--spec-draft-ncmoe", "--spec-draft-n-cpu-moe"], PLACE),
    ignored_value(&["-devd", "--device-draft", "--spec-draft-device"], PLACE),
    ignored_value(&["-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"], PLACE),
    ignored_value(&["-cd", "--ctx-size-draft", "--spec-draft-ctx-size"], PLACE),
    ignored_value(&["--spec-ngram-size-n", "--spec-ngram-size-m", "--spec-ngram-min-hits"], NGRAM),
    ignored_value(&["--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"], NGRAM),
    ignored_value(
        &["--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits"],
        NGRAM,
    ),
    ignored_value(
        &["--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits"],
        NGRAM,
    ),
    ignored_value(
        &["--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"],
        NGRAM,
    ),
    ignored_value(&["-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"], NGRAM),
];

fn draft(value: &str) -> Result<Ours, Refusal> {
    match value.parse::<u32>() {
        Ok(_) => most(value),
        Err(_) => Ok(Ours::word(format!("--draft={value}"))),
    }
}

fn most(value: &str) -> Result<Ours, Refusal> {
    match value.parse::<u32>() {
        Ok(0) => Ok(Ours::word("--draft=off")),
        Ok(count) if count > MAX_DRAFTS => Ok(Ours {
            words: vec![format!("--draft-max={MAX_DRAFTS}")],
            note: Some("at most 15 tokens are guessed"),
        }),
        _ => Ok(Ours::word(format!("--draft-max={value}"))),
    }
}

/// `--spec-type KIND,...`: the first that Terrace has.
fn kinds(value: &str) -> Result<Ours, Refusal> {
    let ours = value.split(',').find_map(|kind| match kind {
        "none" => Some("--draft=off"),
        "draft-mtp" => Some("--draft=mtp"),
        ngram if ngram.starts_with("ngram-") => Some("--draft=ngram"),
        _ => None,
    });
    match ours {
        Some(word) => Ok(Ours::word(word)),
        // The model itself says so.
        None if value.split(',').all(|kind| kind == "draft-simple") => Ok(Ours::default()),
        None => Ok(Ours::note("responses are generated without such drafts, and are the same")),
    }
}
