//! Everything up to the plan: the part of a load that `terrace plan` shares with it (decision 0084).

use super::header::Header;
use super::scene::{PlanInput, PlannedMachine};
use super::wishes::reading_choice;
use crate::error::EngineError;
use crate::lossy::LossyUsed;
use crate::options::{Mode, Options};
use crate::report::PlanReport;
use crate::unfit::Unfit;
use terrace_model::{ByteSize, KvTypes, ModelFile};
use terrace_plan::model::prompt_cache;
use terrace_plan::{MachineProfile, Manage, Plan, Wishes};

/// A plan, and all that it was made from.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The model without the tensors that the run would leave out.
    pub file: ModelFile,
    /// The machine before the changes that are planned for; `None` if there are none.
    pub unchanged: Option<MachineProfile>,
    /// The machine, less the memory that is taken before weights are placed.
    pub machine: MachineProfile,
    /// The run's wishes.
    pub wishes: Wishes,
    /// The plan of the run.
    pub plan: Plan,
    /// The run's lossy settings; `None` if the model is computed exactly.
    pub lossy: Option<LossyUsed>,
}

/// Plans a run as [`Engine::load`](crate::Engine::load) does, and loads nothing.
///
/// # Errors
/// As a load of the same options up to its plan.
pub fn plan_run(options: &Options, machine: PlannedMachine<'_>) -> Result<Planned, EngineError> {
    let mut header = Header::read(options)?;
    settle_drafts(&mut header, options, machine)?;
    let (scene, report) = settled(&header, options, machine)?;
    let plan = scene.plan()?;
    let PlanInput { unchanged, machine, wishes, .. } = scene;
    Ok(Planned { unchanged, machine, wishes, plan, lossy: LossyUsed::of(&report), file: header.file })
}

/// Settles where drafts come from. Does without them if they are optional and cannot be had.
///
/// # Errors
/// Drafts that are not optional cannot be had.
pub fn settle_drafts(
    header: &mut Header,
    options: &Options,
    machine: PlannedMachine<'_>,
) -> Result<(), EngineError> {
    header.choose_drafts(options, machine)?;
    if header.drafts.draft_optional
        && let Err(EngineError::Unfit(Unfit::Drafts(reason))) = PlanInput::of(header, options, machine)
    {
        header.without_drafts(&reason);
        header.choose_drafts(options, machine)?;
    }
    Ok(())
}

/// Settles everything else that a plan is made from, and checks what does not depend on it.
///
/// # Errors
/// The model, the context or the options cannot be used.
pub fn settled<'a>(
    header: &'a Header,
    options: &'a Options,
    machine: PlannedMachine<'_>,
) -> Result<(PlanInput<'a>, PlanReport), EngineError> {
    let mut scene = PlanInput::of(header, options, machine)?;
    let kv_type = scene.settle()?;
    let needed = scene.wishes.context_size(scene.file, kv_type, scene.available).total();
    let mut report = report(&scene, kv_type, needed);
    report.layer_skip.clone_from(&header.layer_skip);
    report.lossy = header.lossy.clone().filter(|lossy| !lossy.settings.is_exact());
    check(&scene, &report)?;
    Ok((scene, report))
}

/// Reports what is known about the run before its weights are placed.
fn report(scene: &PlanInput<'_>, kv_type: KvTypes, needed: ByteSize) -> PlanReport {
    let PlanInput { options, tokens, batch, ubatch, .. } = *scene;
    let repacks = options.mode == Mode::Stock { repack: true };
    let threads =
        options.compute.threads.map_or_else(terrace_ggml::cpu::default_threads, |t| t.max(1) as usize);
    PlanReport {
        mode: if repacks { "repacked" } else { "stock" }.into(),
        placement: None,
        kv_type,
        io: None,
        direct: None,
        io_reason: None,
        tuned_gbps: None,
        hot: None,
        drafts: None,
        layer_skip: None,
        lossy: None,
        adapters: Vec::new(),
        projector: None,
        context: tokens,
        positions: scene.file.positions(),
        slots: scene.wishes.context.slots(),
        context_bytes: needed,
        prompt_cache: prompt_cache(scene.file, &scene.machine, &scene.wishes, needed),
        batch,
        ubatch,
        threads,
        threads_batch: options.compute.threads_batch.map_or(threads, |t| t.max(1) as usize),
    }
}

/// Checks the requirements that do not depend on a plan.
fn check(scene: &PlanInput<'_>, report: &PlanReport) -> Result<(), EngineError> {
    let PlanInput { options, file, tokens, available, .. } = *scene;
    let needed = report.context_bytes;
    if needed > available {
        return Err(Unfit::ContextTooLarge { tokens, needed, available }.into());
    }
    let repacked = ByteSize(2 * file.size().bytes()) + needed;
    if options.mode == (Mode::Stock { repack: true }) && repacked > available {
        return Err(Unfit::RepackTooLarge { needed: repacked, available }.into());
    }
    if options.io.verify && matches!(options.mode, Mode::Stock { .. }) {
        return Err(Unfit::StockVerify.into());
    }
    match (options.mode, options.memory.manage(), reading_choice(options)) {
        (Mode::Terrace, Manage::Mapped, Some(choice)) => Err(Unfit::MappedAndRead { choice }.into()),
        _ => Ok(()),
    }
}
