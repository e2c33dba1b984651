//! Which settings are searched, and over which values.

use super::args::OptimizeArgs;
use super::search::{Knob, Settings};
use std::path::{Path, PathBuf};
use terrace_cli::args::{DraftArgs, EngineArgs};
use terrace_cli::error::CliError;
use terrace_cli::report::RunReport;
use terrace_engine::options::DraftSource;
use terrace_engine::{Lookahead, NoDrafts};
use terrace_model::MtpUse;
use terrace_store::PolicyKind;

/// The settings worth trying, judged by a run with the defaults; options that the user set are left
/// out. `drafts`: the sources of drafts to try.
pub fn of(run: &RunReport, args: &EngineArgs, drafts: &[String]) -> Vec<Knob> {
    let threads = run.plan["threads"].as_u64().unwrap_or(1);
    let direct = run.plan["direct"].as_bool().unwrap_or(false);
    let streams = run.store.is_some_and(|store| store.misses + store.joined > 0);
    let experts = streams && run.mode != "dense-ffn-streaming";
    let mut all = Vec::new();
    let mut knob = |name: &'static str, wanted: bool, default: &str, values: &[&str]| {
        let mut values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        values.retain(|value| value != default);
        values.dedup();
        if wanted && !values.is_empty() {
            all.push(Knob { name, default: default.into(), values });
        }
    };
    // Without reading, or with fewer reads, other settings are best.
    let drafts: Vec<&str> = drafts.iter().map(String::as_str).collect();
    knob("draft", !drafts.is_empty(), "off", &drafts);
    // Half the threads leaves out the siblings of cores; one less leaves a core to other programs.
    let fewer = [threads.saturating_sub(1), threads / 2].map(|n| n.max(1).to_string());
    knob("threads", args.compute.threads.is_none(), &threads.to_string(), &[&fewer[0], &fewer[1]]);
    knob("queue-depth", streams && args.io.queue_depth.is_none(), "auto", &["8", "16", "64", "128"]);
    knob(
        "request-size",
        streams && args.io.request_size.is_none(),
        "auto",
        &["256KiB", "512KiB", "2MiB", "4MiB"],
    );
    knob(
        "lookahead",
        experts && args.cache.lookahead == Lookahead::Auto,
        "auto",
        &["off", "4MiB", "12MiB", "24MiB"],
    );
    let policy = PolicyKind::default();
    let policies: Vec<String> = PolicyKind::SELF_CONTAINED.iter().map(ToString::to_string).collect();
    let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
    knob("cache-policy", experts && args.cache.cache_policy == policy, &policy.to_string(), &policies);
    // The page cache can use what the slots leave; direct reads bypass it.
    knob("slots-share", streams && !direct && args.cache.slots_share == 100, "100", &["75", "50"]);
    // All graphs with at least as many tokens as the prompt are the same.
    let tokens = run.plan["ubatch"].as_u64().unwrap_or(512);
    let sizes = [256, 512, 1024, 2048u64].map(|size| (size, size.to_string()));
    let differ = |size: u64| size.min(run.prompt_tokens as u64) != tokens.min(run.prompt_tokens as u64);
    let sizes: Vec<&str> =
        sizes.iter().filter(|(size, _)| differ(*size)).map(|(_, text)| text.as_str()).collect();
    knob("ubatch", args.placement.context.ubatch.is_none(), &tokens.to_string(), &sizes);
    all
}

/// The draft models to try, as a preset names them: it is for runs in any directory.
///
/// # Errors
/// One of them cannot be read.
pub fn draft_models(args: &OptimizeArgs) -> Result<Vec<String>, CliError> {
    let named = |path: &PathBuf| {
        terrace_ggml::gguf::read(path)?;
        let path = path.canonicalize().map_err(CliError::io(path.display().to_string()))?;
        path.into_os_string().into_string().map_err(|path| CliError::Usage {
            message: format!("{}: a preset holds only paths in UTF-8", path.display()),
            hint: "rename the draft model".into(),
        })
    };
    args.try_draft.iter().map(named).collect()
}

/// Sources of drafts worth trying for this model, judged by a run without; `models` among them. None if the user
/// set one, or where drafts could change the text.
///
/// # Errors
/// The model cannot be read.
pub fn drafts(
    run: &RunReport,
    args: &OptimizeArgs,
    model: &Path,
    models: Vec<String>,
) -> Result<Vec<String>, CliError> {
    let DraftArgs { given, draft_recorded, .. } = &args.drafts;
    let mut sources = Vec::new();
    if given.draft.is_some() || draft_recorded.is_some() {
        return Ok(sources);
    }
    if run.hot_experts.is_some() || !run.device_layers.is_empty() {
        if !models.is_empty() {
            tracing::warn!("no drafts are tried: {}", NoDrafts::Devices);
        }
        return Ok(sources);
    }
    let gain = &run.plan["placement"]["estimate"]["drafts"];
    if gain.is_null() || !gain["pays_from"].is_null() {
        sources.push(DraftSource::Ngram.to_string());
        if matches!(terrace_ggml::gguf::read(model)?.mtp_use(), MtpUse::Drafts { .. }) {
            sources.push(DraftSource::Mtp.to_string());
        }
    }
    sources.extend(models);
    Ok(sources)
}

/// The options with these settings, as words for a run.
pub fn apply(args: &EngineArgs, settings: &Settings) -> EngineArgs {
    let mut args = args.clone();
    for (name, value) in &settings.0 {
        args.words.set(name, value);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Cli, Command};
    use clap::Parser;
    use terrace_cli::args::RunArgs;
    use terrace_cli::preset::OPTIONS;

    fn run(more: &[&str]) -> RunArgs {
        let all = ["terrace", "run", "m.gguf"].into_iter().chain(more.iter().copied());
        let Command::Run(run) = Cli::parse_from(all).command else { panic!("run") };
        run
    }

    fn args(more: &[&str]) -> EngineArgs {
        run(more).engine
    }

    fn report(mode: &str, misses: u64, direct: bool) -> RunReport {
        serde_json::from_value(serde_json::json!({
            "text": "", "tokens": [], "prompt_tokens": 600, "stop": "length", "mode": mode,
            "plan": { "threads": 4, "ubatch": 512, "direct": direct },
            "timings": { "load_ms": 1.0, "prompt_tps": 1.0, "decode_tps": 1.0, "ttft_ms": 1.0 },
            "store": {
                "bytes_read": 0, "requests": 0, "hits": 0, "misses": misses, "hit_rate": 0.0, "read_gbps": 0.0,
                "stall_ms": 0.0,
            },
            "peak_rss_bytes": 1,
        }))
        .unwrap()
    }

    #[test]
    fn only_what_can_matter_is_turned() {
        let names = |knobs: &[Knob]| knobs.iter().map(|knob| knob.name).collect::<Vec<_>>();
        let drafts = ["ngram".to_owned(), "/draft.gguf".into()];
        let all = of(&report("expert-streaming", 9, false), &args(&[]), &drafts);
        let mut known = OPTIONS.to_vec();
        known.sort_unstable();
        let mut sorted = names(&all);
        sorted.sort_unstable();
        assert_eq!(sorted, known, "all that a preset can hold");
        assert_eq!(names(&of(&report("mapped", 0, false), &args(&[]), &[])), ["threads", "ubatch"]);
        let dense = of(
            &report("dense-ffn-streaming", 9, true),
            &args(&["--queue-depth", "4", "--threads", "2"]),
            &[],
        );
        assert_eq!(names(&dense), ["request-size", "ubatch"]);
        assert_eq!(all[1].values, ["3", "2"]);
        // For 600 tokens, graphs of 1,024 and 2,048 are the same.
        assert_eq!(all.last().unwrap().values, ["256", "1024", "2048"]);
        for knob in &all {
            for value in &knob.values {
                let settings = Settings(vec![(knob.name, value.clone())]);
                let words: Vec<String> = apply(&args(&[]), &settings)
                    .words
                    .arguments()
                    .map(|w| w.into_string().unwrap())
                    .collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                assert_ne!(format!("{:?}", run(&words)), format!("{:?}", run(&[])), "{settings}");
            }
        }
    }
}
