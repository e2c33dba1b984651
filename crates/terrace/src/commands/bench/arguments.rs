//! What a run of `bench` is told.

use crate::args::{EngineArgs, OnOff};
use std::ffi::OsString;
use std::path::Path;
use terrace_model::SizeChoice;
use terrace_plan::Budget;

/// All options by name: what this process was told by flag, environment or file, its children are told by flag.
pub fn arguments(engine: &EngineArgs, n: u32, model: &Path, prompt: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["run".into(), "--json".into(), "--temp".into(), "0".into()];
    let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
    option("--seed", "1".into());
    option("--file", prompt.into());
    option("-n", n.to_string().into());
    option("--preset", "off".into());
    option("--slots-share", engine.cache.slots_share.to_string().into());
    if let Some(size) = engine.io.request_size {
        option("--request-size", size.bytes().to_string().into());
    }
    option("--adapt", engine.following.adapt.to_string().into());
    match &engine.following.plan {
        Some(plan) => option("--plan", plan.into()),
        None => {
            // What --repack excludes was not said; the defaults may not be said either.
            if !engine.compute.repack {
                option("--ram-budget", budget_word(engine.placement.memory.ram_budget).into());
                option("--manage", engine.placement.memory.manage.to_string().into());
            }
            option("--vram-budget", budget_word(engine.placement.devices.vram_budget).into());
            if let Some(layers) = engine.placement.devices.n_gpu_layers {
                option("--n-gpu-layers", layers.to_string().into());
            }
            option("--kv-type", engine.placement.context.kv_type.to_string().into());
            option("--split-mode", engine.placement.devices.split_mode.to_string().into());
            if let Some(tokens) = engine.placement.context.ctx {
                option("--ctx", tokens.to_string().into());
            }
        }
    }
    for server in &engine.placement.devices.rpc {
        option("--rpc", server.into());
    }
    // To the byte, which a size for people is not.
    let size = |choice: SizeChoice| match choice {
        SizeChoice::Bytes(bytes) => bytes.bytes().to_string(),
        other => other.to_string(),
    };
    if !engine.compute.repack {
        option("--hot-cache", size(engine.placement.hot.hot_cache).into());
    }
    option("--hot-update", size(engine.placement.hot.hot_update).into());
    option("--hot-split", engine.placement.hot.hot_split.name().into());
    for rule in &engine.placement.devices.override_tensor {
        option("--override-tensor", rule.to_string().into());
    }
    option("--hits", engine.placement.estimates.hits.to_string().into());
    option("--io", engine.io.io.to_string().into());
    option("--direct", engine.io.direct.to_string().into());
    option("--cache-policy", engine.cache.cache_policy.to_string().into());
    // What one run keeps would make the next one, of the same text, foreknow all.
    option("--warm-start", engine.cache.warm_start.unwrap_or(OnOff::Off).name().into());
    option("--lookahead", size(engine.cache.lookahead).into());
    option("--kv-offload", engine.placement.context.kv_offload.name().into());
    option("--batch", engine.compute.batch.to_string().into());
    if let Some(file) = &engine.compute.layer_skip {
        option("--layer-skip", file.into());
    }
    for (name, value) in [
        ("--queue-depth", engine.io.queue_depth),
        ("--ubatch", engine.placement.context.ubatch),
        ("--threads", engine.compute.threads),
    ] {
        if let Some(value) = value {
            option(name, value.to_string().into());
        }
    }
    if engine.compute.repack {
        words.push("--repack".into());
    }
    // A path that begins with `-` or `hf:` stays a path.
    words.push(Path::new("./").join(model).into());
    words
}

/// To the byte: as people read them, sizes are rounded.
fn budget_word(budget: Budget) -> String {
    match budget {
        Budget::Auto => "auto".to_owned(),
        Budget::Bytes(size) => size.bytes().to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::{CommandFactory, Parser};

    fn engine(words: impl IntoIterator<Item = OsString>) -> EngineArgs {
        match Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).command {
            Command::Bench(args) => args.engine,
            Command::Run(args) => args.engine,
            _ => unreachable!("only these are parsed here"),
        }
    }

    /// Values that are nobody's defaults. A new option fails the test until it is here.
    const OTHER: [(&str, &str); 27] = [
        ("ram-budget", "123456789"),
        ("adapt", "off"),
        ("manage", "experts"),
        ("io", "pread"),
        ("direct", "off"),
        ("queue-depth", "7"),
        ("request-size", "12345"),
        ("slots-share", "77"),
        ("cache-policy", "lfru"),
        ("layer-skip", "skip.json"),
        ("lookahead", "1234567"),
        ("warm-start", "on"),
        ("n-gpu-layers", "3"),
        ("split-mode", "tensor"),
        ("vram-budget", "987654321"),
        ("hot-cache", "7654321"),
        ("hot-update", "off"),
        ("hot-split", "on"),
        ("rpc", "localhost:1"),
        ("override-tensor", "ffn=ram"),
        ("hits", "uniform"),
        ("kv-type", "q8_0"),
        ("kv-offload", "off"),
        ("ctx", "321"),
        ("batch", "123"),
        ("ubatch", "45"),
        ("threads", "5"),
    ];

    #[test]
    fn a_run_is_told_all_that_the_bench_is_told() {
        let words = |options: &[(&str, &str)]| -> Vec<OsString> {
            let flags = options.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]);
            ["terrace", "bench", "m.gguf"]
                .map(String::from)
                .into_iter()
                .chain(flags)
                .map(Into::into)
                .collect()
        };
        let told = |engine: &EngineArgs| -> EngineArgs {
            let run = arguments(engine, 5, Path::new("m.gguf"), Path::new("prompt"));
            let told = self::engine([OsString::from("terrace")].into_iter().chain(run));
            // A preset is the bench's, and its runs have all of it by name.
            assert_eq!(told.presets.preset.to_string(), "off");
            EngineArgs { presets: engine.presets.clone(), ..told }
        };
        let all = engine(words(&OTHER));
        assert_eq!(format!("{:?}", told(&all)), format!("{all:?}"));
        let planned = [("plan", "plan.json"), ("hot-update", "off")];
        let planned = engine(words(&planned));
        let mut expected = planned.clone();
        expected.cache.warm_start = Some(OnOff::Off);
        assert_eq!(format!("{:?}", told(&planned)), format!("{expected:?}"));
        let mut repacked = words(&[("ctx", "321"), ("kv-type", "q8_0"), ("threads", "3")]);
        repacked.push("--repack".into());
        let repacked = engine(repacked);
        let mut expected = repacked.clone();
        expected.cache.warm_start = Some(OnOff::Off);
        assert_eq!(format!("{:?}", told(&repacked)), format!("{expected:?}"));

        let run = Cli::command().find_subcommand("bench").unwrap().clone();
        let mine = ["preset", "plan", "repack"];
        for option in run.get_arguments().filter_map(|argument| argument.get_long()) {
            let of_engine = run.get_arguments().any(|argument| {
                argument.get_long() == Some(option) && argument.get_help_heading() == Some("Memory and I/O")
            });
            let known = mine.contains(&option) || OTHER.iter().any(|(name, _)| *name == option);
            assert!(!of_engine || known, "--{option} is not tested");
        }
    }
}
