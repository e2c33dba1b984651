//! `terrace trace`: what a model's routers choose, recorded, and replayed against cache policies.

mod args;
mod show;

pub use args::TraceCommand;

use crate::commands::run;
use crate::error::CliError;
use crate::source::trace_file;
use crate::term::print;
use args::{HotArgs, RecordArgs, ReplayArgs};
use show::{Outcome, Report};
use terrace_model::trace::Trace;
use terrace_plan::token_cycle_warning;
use terrace_store::tools::replay::{ParseReplayPolicyError, Replay, ReplayPolicy};
use terrace_store::{HotList, PolicyKind};

/// Runs the subcommand.
///
/// # Errors
/// The run's; a trace that is none; policies and budgets that cannot be.
pub fn trace(command: &TraceCommand, verbose: bool) -> Result<(), CliError> {
    match command {
        TraceCommand::Record(args) => record(args, verbose),
        TraceCommand::Replay(args) => replay(args),
        TraceCommand::Hot(args) => hot(args),
    }
}

fn record(args: &RecordArgs, verbose: bool) -> Result<(), CliError> {
    let RecordArgs { output, run } = args;
    match run::record(run, verbose, Some(output.clone()))? {
        Some(saved) => {
            let end = if saved.cut_off { "; it became too long, the end is missing" } else { "" };
            eprintln!("routing trace: {} in {}{end}", saved.size, saved.path.display());
            Ok(())
        }
        None => Err(CliError::Usage {
            message: "nothing was recorded: this run has no managed experts".into(),
            hint: "use --stream experts, or a --ram-budget below the model's size".into(),
        }),
    }
}

fn replay(args: &ReplayArgs) -> Result<(), CliError> {
    let trace = trace_file::read(&args.file)?;
    if trace.groups.is_empty() {
        let reason = "it holds no MoE block, so there is nothing to replay".into();
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
            eprintln!("warning: {warning}");
        }
        // The oracle is run for every budget: the others are measured by it.
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

/// Whether a replay as the run was counts what the run counted; or why that cannot be told.
fn reproduced(trace: &Trace, replay: &Replay<'_>) -> Result<bool, String> {
    if trace.whole_tensors() > 0 {
        return Err(format!(
            "{} whole tensors shared the slots, which a replay leaves out",
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

fn hot(args: &HotArgs) -> Result<(), CliError> {
    let trace = trace_file::read(&args.file)?;
    let experts = trace.hot_experts().into_iter().take(args.top.unwrap_or(usize::MAX));
    let list = HotList(experts.map(|(layer, expert, _)| (layer, expert)).collect());
    match &args.output {
        Some(path) => {
            std::fs::write(path, list.to_string()).map_err(CliError::io(path.display().to_string()))
        }
        None => print(&list.to_string()),
    }
}
