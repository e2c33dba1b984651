//! Everything up to the plan: the part of a load that `terrace plan` shares with it (decision 0084).

use super::drafts::planned;
use super::header::Header;
use super::scene::{PlanBase, PlanInput, PlannedMachine};
use crate::error::EngineError;
use crate::lossy::{LossyUsed, lossy_marks};
use crate::options::Options;
use crate::record::Record;
use terrace_model::ModelFile;
use terrace_plan::{MachineProfile, Plan, Wishes};

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
    let header = Header::read(options)?;
    let record = Record::open(options, &header.file);
    let ground = PlanBase::of(&header, options, machine, record.as_ref().and_then(Record::expected))?;
    let (scene, plan) = planned(&ground)?;
    let plan = plan.map_or_else(|| scene.plan(), Ok)?;
    let lossy =
        LossyUsed::marked(lossy_marks(header.layer_skip.as_ref(), header.lossy_used(), scene.kv_type));
    let PlanInput { file, machine, wishes, .. } = scene;
    let file = file.into_owned();
    Ok(Planned { file, unchanged: ground.unchanged, machine, wishes, plan, lossy })
}
