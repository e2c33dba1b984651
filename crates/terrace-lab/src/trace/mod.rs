//! `terrace trace`: records the routers' choices, and replays them with other cache policies.

mod args;
mod show;

pub use args::{RecordArgs, TraceCommand};

use args::ReplayArgs;
use show::{Outcome, Report};
use std::path::PathBuf;
use terrace_cli::args::RunArgs;
use terrace_cli::error::CliError;
use terrace_cli::source::trace_file;
use terrace_cli::term::print;
use terrace_cli::term::say;
use terrace_engine::SavedTrace;
use terrace_model::trace::Trace;
use terrace_plan::token_cycle_warning;
use terrace_store::PolicyKind;
use terrace_store::tools::replay::{ParseReplayPolicyError, Replay, ReplayPolicy};

/// Runs the subcommand. `run` generates text as `terrace run` does, and records a trace in a file; `None` if
/// there was nothing to record.
///
/// # Errors
/// The run fails, a file is not a trace, or a policy or budget is impossible.
pub fn trace(
    command: &TraceCommand,
    run: impl FnOnce(&RunArgs, PathBuf) -> Result<Option<SavedTrace>, CliError>,
) -> Result<(), CliError> {
    match command {
        TraceCommand::Record(args) => {
            let RecordArgs { output, run: of } = &**args;
            recorded(run(of, output.to_path_buf())?)
        }
        TraceCommand::Replay(args) => replay(args),
    }
}

fn recorded(saved: Option<SavedTrace>) -> Result<(), CliError> {
    match saved {
        Some(saved) => {
            let end = if saved.cut_off { "; it reached the size limit, so the end is missing" } else { "" };
            say!("routing trace: {} in {}{end}", saved.size, saved.path.display());
            Ok(())
        }
        None => Err(CliError::Usage {
            message: "nothing was recorded: no experts stream in this run".into(),
            hint: "use --stream experts, or a --ram-budget below the model's size".into(),
        }),
    }
}

fn replay(args: &ReplayArgs) -> Result<(), CliError> {
    let trace = trace_file::read(&args.file)?;
    if trace.groups.is_empty() {
        let reason = "the trace has no MoE block, so there is nothing to replay".into();
        return Err(CliError::Trace { path: args.file.clone(), reason });
    }
    let policies: Vec<ReplayPolicy> = match args.policy.as_slice() {
        [] => PolicyKind::SELF_CONTAINED.iter().cloned().map(ReplayPolicy::Online).collect(),
        given => given.iter().filter(|policy| **policy != ReplayPolicy::Belady).cloned().collect(),
    };
    let budgets = match args.budget.as_slice() {
        [] => vec![trace.run.slots],
        given => given.iter().map(|slots| slots.of(trace.managed_bytes())).collect(),
    };
    let replay = Replay::new(&trace);
    let mut outcomes = Vec::new();
    for slots in budgets {
        if let Some(warning) = token_cycle_warning(slots, trace.token_cycle()) {
            say!("warning: {warning}");
        }
        // The oracle is replayed for every budget, because the others are compared with it.
        let best = replay.run(&ReplayPolicy::Belady, slots)?;
        for policy in &policies {
            let result = replay.run(policy, slots)?;
            outcomes.push(Outcome { slots, policy: policy.clone(), result, best: best.clone() });
        }
        outcomes.push(Outcome { slots, policy: ReplayPolicy::Belady, result: best.clone(), best });
    }
    let report = Report {
        trace: &trace,
        reproduced: reproduced(&trace, &replay),
        gbps: args.gbps.unwrap_or(trace.run.bytes_per_second as f64 / 1e9),
        measured: args.gbps.is_none(),
        compute_ms: args.compute_ms,
        outcomes,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report.json()).expect("numbers are plain data")
    } else {
        report.table(&args.file)
    };
    print(&text)
}

/// Returns true if a replay with the run's policy and budget gives the run's counts. An error says why they
/// cannot be compared.
fn reproduced(trace: &Trace, replay: &Replay<'_>) -> Result<bool, String> {
    if trace.whole_tensors() > 0 {
        return Err(format!(
            "{} whole tensors shared the slots; replays leave them out",
            trace.whole_tensors()
        ));
    }
    let policy: ReplayPolicy =
        trace.run.policy.parse().map_err(|error: ParseReplayPolicyError| error.to_string())?;
    let total = replay.run(&policy, trace.run.slots).map_err(|error| error.to_string())?.total();
    let run = &trace.run;
    Ok((total.hits, total.misses, total.evictions, total.bytes_read)
        == (run.hits, run.misses, run.evictions, run.bytes_read))
}
