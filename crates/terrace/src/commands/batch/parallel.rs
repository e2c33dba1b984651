//! Number of requests that are computed at a time.

use terrace_cli::error::CliError;
use terrace_engine::{Options, PlannedMachine, plan_run};
use terrace_plan::batches::{BatchWork, fastest, plan_batches};

/// The number of requests at a time with which a batch is done soonest.
///
/// # Errors
/// As a load of these options up to its plan.
pub fn soonest(options: &Options, work: BatchWork) -> Result<u32, CliError> {
    let mut one = options.clone();
    set(&mut one, work, 1);
    let planned = plan_run(&one, PlannedMachine::default())?;
    let all = plan_batches(&planned.file, &planned.machine, &planned.wishes, work, None)?;
    Ok(fastest(&all).sequences)
}

/// Sets the options of a batch with so many requests at a time.
pub fn set(options: &mut Options, work: BatchWork, parallel: u32) {
    let context = &mut options.context;
    context.ctx = context.ctx.or(Some(work.context));
    (context.sequences, context.unified) = (parallel, false);
    (context.outputs, context.clients) = (parallel, parallel);
}
