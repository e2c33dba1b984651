//! `terrace plan --workers`: how fast the model would be with more and more workers, by the plan's cost model.

mod args;
mod plot;
mod show;

pub use args::WorkersArgs;
pub use plot::draw;
pub use show::Report;

use super::described;
use std::collections::BTreeSet;
use terrace_cli::error::CliError;
use terrace_engine::Planned;
use terrace_engine::options::ContextOptions;
use terrace_plan::scaling::{Fleet, Link, Prices, scaled};
use terrace_plan::{PlanError, Wishes};

/// Plans what each number of workers would give to a planned run; `None` if no numbers are given.
///
/// # Errors
/// The description of the workers cannot be used, or a machine has too little room.
pub fn planned(args: &WorkersArgs, run: &Planned) -> Result<Option<Report>, CliError> {
    if args.workers.is_empty() {
        return Ok(None);
    }
    let Planned { file: model, machine: home, wishes, .. } = run;
    if !wishes.devices.rpc.is_empty() {
        return Err(CliError::Usage {
            message: "--workers plans with workers that are described, and --rpc with workers that run"
                .into(),
            hint: "leave out one of them".into(),
        });
    }
    let worker = args.worker.as_deref().map(described).transpose()?.unwrap_or_else(|| home.clone());
    worker.check().map_err(PlanError::from)?;
    let worker = args.worker_what_if.as_ref().map_or_else(|| worker.clone(), |what| what.apply(&worker));
    let fleet = Fleet {
        home,
        worker: &worker,
        link: Link { bytes_per_s: args.link, latency_s: args.latency },
        prices: Prices { home: args.home_price, worker: args.worker_price },
    };
    let counts: BTreeSet<u32> = args.workers.iter().flat_map(|counts| counts.first..=counts.last).collect();
    let clients: BTreeSet<u32> = args.clients.iter().copied().collect();
    let mut points = Vec::new();
    for &clients in &clients {
        // Each client has a context of its own.
        let sequences = wishes.context.slots().max(clients);
        let context = ContextOptions { sequences, unified: false, ..wishes.context };
        let wishes = Wishes { clients, context, ..wishes.clone() };
        for &workers in &counts {
            points.push(scaled(model, &fleet, &wishes, workers)?);
        }
    }
    let (link, prices, expected) = (fleet.link, fleet.prices, wishes.expected);
    Ok(Some(Report { home: home.clone(), worker, link, prices, expected, points }))
}
