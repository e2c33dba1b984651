//! `terrace scaling`: how fast a model would be with more and more workers, by the plan's cost model.

mod args;
mod plot;
mod show;

pub use args::ScalingArgs;

use crate::commands::plan::described;
use show::Report;
use std::collections::BTreeSet;
use std::path::Path;
use terrace_cli::args::PlacementArgs;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::print;
use terrace_cli::user_dirs::user_dirs;
use terrace_cli::whole_file;
use terrace_engine::options::{CacheOptions, ContextOptions};
use terrace_engine::{Options, wishes_of};
use terrace_model::ModelFile;
use terrace_plan::advice::WhatIf;
use terrace_plan::scaling::{Fleet, Link, Prices, scaled};
use terrace_plan::{MachineProfile, PlanError, Wishes};

/// Prints what each number of workers would give.
///
/// # Errors
/// A file of the model, a machine or a trace cannot be used, or a machine has too little room.
pub fn scaling(args: &ScalingArgs) -> Result<(), CliError> {
    if !args.placement.devices.rpc.is_empty() {
        return Err(CliError::Usage {
            message: "workers are described here, not asked".into(),
            hint: "`terrace plan --rpc` measures workers that run".into(),
        });
    }
    let header = source::header(&args.model)?;
    let model = terrace_ggml::gguf::read(header.path())?;
    terrace_ggml::gguf::check_numbers(&model)?;
    let home = machine(args.machine.as_deref(), args.what_if.as_ref(), &model, None)?;
    let worker = machine(args.worker.as_deref(), args.worker_what_if.as_ref(), &model, Some(&home))?;
    let fleet = Fleet {
        home: &home,
        worker: &worker,
        link: Link { bytes_per_s: args.link, latency_s: args.latency },
        prices: Prices { home: args.home_price, worker: args.worker_price },
    };
    let wishes = wishes_of(&options(&args.placement)?);
    let counts: BTreeSet<u32> = args.workers.iter().flat_map(|counts| counts.first..=counts.last).collect();
    let clients: BTreeSet<u32> = args.clients.iter().copied().collect();
    let mut points = Vec::new();
    for &clients in &clients {
        // Each client has a context of its own.
        let sequences = wishes.context.slots().max(clients);
        let context = ContextOptions { sequences, unified: false, ..wishes.context };
        let wishes = Wishes { clients, context, ..wishes.clone() };
        for &workers in &counts {
            points.push(scaled(&model, &fleet, &wishes, workers)?);
        }
    }
    let report = Report { model: &model, fleet: &fleet, expected: wishes.expected, points: &points };
    if let Some(path) = &args.svg {
        whole_file::write_svg(path, &plot::draw(&report))?;
    }
    print(&if args.json { report.json() } else { report.table() })
}

/// A machine: described in a file, otherwise `other`, or this one; with changes.
fn machine(
    file: Option<&Path>,
    changes: Option<&WhatIf>,
    model: &ModelFile,
    other: Option<&MachineProfile>,
) -> Result<MachineProfile, CliError> {
    let machine = match (file, other) {
        (Some(file), _) => described(file)?,
        (None, Some(other)) => other.clone(),
        (None, None) => terrace_host::machine::machine_profile(model, &user_dirs()),
    };
    machine.check().map_err(PlanError::from)?;
    Ok(changes.map_or_else(|| machine.clone(), |changes| changes.apply(&machine)))
}

/// The options that `run` would have on each machine.
///
/// # Errors
/// The options contradict each other, or a trace cannot be read.
fn options(placement: &PlacementArgs) -> Result<Options, CliError> {
    // Nothing is kept or expected of a model, and plans are made for the policy of runs that are not told
    // another one.
    placement.options(CacheOptions { warm_start: Some(false), ..CacheOptions::default() })
}
