//! The command line of a run that `bench` starts.

use super::BenchArgs;
use std::ffi::OsString;
use std::path::Path;
use terrace_cli::args::EngineArgs;

/// Tokens of the prompt after a stated depth, if their number is not stated.
const PROMPT_TOKENS: u32 = 64;

/// The engine's options of the runs, with the stated length of their prompts.
pub fn with_prompt(args: &BenchArgs) -> EngineArgs {
    let mut engine = args.engine.clone();
    let depth = args.depth.unwrap_or(0);
    let Some(tokens) = args.prompt_tokens.or((depth > 0).then_some(PROMPT_TOKENS)) else { return engine };
    engine.words.set("prompt-tokens", tokens.to_string());
    if depth > 0 {
        engine.words.set("depth", depth.to_string());
    }
    if engine.words.given().all(|(name, _)| name != "ctx") {
        let all = u64::from(tokens) + u64::from(depth) + u64::from(args.n);
        // llama.cpp rounds it up to that.
        engine.words.set("ctx", all.next_multiple_of(256).to_string());
    }
    engine
}

/// Builds the command line of a child process, which gets the engine's options of this process.
pub fn arguments(engine: &EngineArgs, n: u32, model: &Path, prompt: &Path) -> Vec<OsString> {
    let mut words = engine.words.clone();
    // The child gets the settings of a preset by name.
    for (name, value) in engine.presets.from_preset.iter().flat_map(|preset| &preset.settings) {
        words.set(name, value);
    }
    words.set("preset", "off");
    // Plans are made for what the runs do.
    if engine.placement.estimates.expect_output.is_none() {
        words.set("expect-output", n.to_string());
    }
    // A warm start would let each run know the experts of the one before, which had the same text.
    words.set("warm-start", if engine.cache.warm_start == Some(true) { "on" } else { "off" });
    // A text that ends early would leave too few tokens to measure, or none.
    let mut all: Vec<OsString> =
        ["run", "--json", "--temp=0", "--seed=1", "--ignore-eos"].map(OsString::from).into();
    all.extend(["-n".into(), n.to_string().into(), "--file".into(), prompt.into()]);
    all.extend(words.arguments());
    // A path that begins with `-` or `hf:` stays a path.
    all.push(Path::new("./").join(model).into());
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::program::{Cli, Command};
    use clap::{CommandFactory, FromArgMatches};
    use terrace_cli::args::Words;

    fn engine(words: impl IntoIterator<Item = OsString>) -> EngineArgs {
        let matches = Cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
        let told = Words::of(matches.subcommand().unwrap().1);
        let mut engine = match Cli::from_arg_matches(&matches).unwrap().command {
            Command::Bench(args) => args.engine,
            Command::Run(args) => args.engine,
        };
        engine.words = told;
        engine
    }

    /// The options as a child parses them, apart from its words.
    fn told(engine: &EngineArgs) -> EngineArgs {
        let run = arguments(engine, 5, Path::new("m.gguf"), Path::new("prompt"));
        let told = self::engine([OsString::from("terrace")].into_iter().chain(run));
        // Only the bench reads presets; its runs get their settings by name.
        assert_eq!(told.presets.preset.to_string(), "off");
        EngineArgs { presets: engine.presets.clone(), words: engine.words.clone(), ..told }
    }

    #[test]
    fn a_run_is_told_all_that_the_bench_is_told() {
        for options in [
            "--ram-budget 123456789 --stream experts --mmap=off --cache-policy lfru --rpc localhost:1 --rpc b:2 \
             --override-tensor ffn=ram --warm-start on --kv-type q8_0 --cache-type-v f16 --hot-cache 7654321",
            "--plan plan.json --hot-update off",
            "--repack --ctx 321 --threads 3 --threads-batch 2",
        ] {
            let words = ["terrace", "bench", "m.gguf"].into_iter().chain(options.split_whitespace());
            let engine = engine(words.map(OsString::from));
            let mut expected = engine.clone();
            expected.cache.warm_start.get_or_insert(false);
            expected.placement.estimates.expect_output = Some(5);
            assert_eq!(format!("{:?}", told(&engine)), format!("{expected:?}"));
        }
    }

    #[test]
    fn a_preset_is_told_by_name() {
        let mut engine = engine(["terrace", "bench", "m.gguf", "--threads", "3"].map(OsString::from));
        let settings = [("threads", "2"), ("queue-depth", "7")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        engine.presets.from_preset = Some(terrace_cli::preset::Applied { path: "kept".into(), settings });
        let told = told(&engine);
        assert_eq!((told.compute.threads, told.io.queue_depth), (Some(2), Some(7)));
    }
}
