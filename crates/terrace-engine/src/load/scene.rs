//! The input of planning: the model, the machine and the context, each known as precisely as the
//! decision needs.

use super::context_ask::measured_contexts;
use super::draft_memory::draft_memory;
use super::header::Header;
use super::wishes::wishes_of;
use crate::embedding::Shape;
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::lossy::{LossyPlan, LowFile};
use crate::options::{ContextOptions, DraftOptions, Embeds, Mode, Options};
use crate::unfit::Unfit;
use crate::record::Record;
use terrace_host::machine::{known_machine, probe_machine, probe_workers, read_together};
use terrace_model::{ByteSize, KvTypes, ModelFile};
use terrace_plan::advice::WhatIf;
use terrace_plan::machine::auto_reserve;
use terrace_plan::{Budget, MachineProfile, Manage, Plan, PlanError, Wishes, kv_types, plan};
use terrace_store::Replica;

/// Models below this size are not worth a probe, which briefly takes up to 128 MiB itself: that
/// would be most of the resident memory of a small model's run.
const WORTH_PROBING: ByteSize = ByteSize::gib(1);

/// The machine that a plan is made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlannedMachine<'a> {
    /// Its description; `None` means this machine.
    pub described: Option<&'a MachineProfile>,
    /// Changes to it.
    pub changes: Option<&'a WhatIf>,
    /// Probes this machine even where no decision depends on it, for the sake of the estimates.
    pub probed: bool,
}

/// The input from which a plan is made.
pub struct PlanInput<'a> {
    pub options: &'a Options,
    pub file: &'a ModelFile,
    /// Where drafts come from.
    pub drafts: &'a DraftOptions,
    /// What may be lost.
    pub lossy: Option<&'a LossyPlan>,
    /// The experts in fewer bits.
    pub low: Option<&'a LowFile>,
    /// Copies of its files on other disks.
    pub replicas: &'a [Replica],
    pub tokens: u32,
    pub batch: u32,
    pub ubatch: u32,
    /// Available RAM.
    pub available: ByteSize,
    pub machine: MachineProfile,
    /// The machine without the changes that are planned for; `None` if there are none.
    pub unchanged: Option<MachineProfile>,
    pub wishes: Wishes,
    /// What the context for embeddings is like; `None` if there is to be none.
    pub embedding: Option<Shape>,
    /// What is remembered of the model; `None` if nothing is kept.
    pub record: Option<Record>,
    /// RAM for adapters and the projector, which neither [`PlanInput::available`] nor the wishes' budget holds
    /// any more.
    pub beside: ByteSize,
}

impl<'a> PlanInput<'a> {
    /// Probes the machine and asks llama.cpp for the sizes of contexts, if a decision depends on
    /// them. Where everything fits, and in stock runs, none does, and nothing has to wait for a
    /// probe.
    ///
    /// # Errors
    /// Scores are asked for, and the model has no classification head.
    pub fn of(
        header: &'a Header,
        options: &'a Options,
        planned: PlannedMachine<'_>,
    ) -> Result<Self, EngineError> {
        let file = &header.file;
        let machine = machine(header, options, planned);
        let changed = planned.changes.map(|changes| changes.apply(&machine));
        let (mut machine, unchanged) = match changed {
            Some(changed) => (changed, Some(machine)),
            None => (machine, None),
        };
        let available = machine.memory.available;
        let mut wishes = Wishes { written: header.written.clone(), ..wishes_of(options) };
        // What adapters, the projector and a draft model take is gone before anything is planned.
        let (adapters, projector) = (header.adapter_bytes(), header.projector_bytes());
        let too_large = |needed, budget| Unfit::AdaptersTooLarge { needed, budget };
        wishes.memory.ram_budget = without(wishes.memory.ram_budget, adapters, too_large)?;
        let too_large = |needed, budget| Unfit::ProjectorTooLarge { needed, budget };
        wishes.memory.ram_budget = without(wishes.memory.ram_budget, projector, too_large)?;
        let beside = adapters + projector;
        let available = available.saturating_sub(beside);
        let drafts = draft_memory(&header.drafts.source(), file, &wishes, available)?;
        let available = available.saturating_sub(drafts);
        warn_of_positions(file, &wishes);
        let embedding = embedding(file, options, &mut wishes)?;
        let record = Record::open(options, file);
        wishes.expect(record.as_ref().and_then(Record::expected));
        if decides(file, options, &machine, available) {
            wishes.measured = measured_contexts(&options.model, file, &wishes, available);
            if planned.described.is_none() && !planned.probed {
                probe(&mut machine, file, options, file.size() >= WORTH_PROBING);
            }
        }
        machine.set_available(available);
        Ok(Self {
            options,
            file,
            drafts: &header.drafts,
            lossy: header.lossy.as_ref(),
            low: header.low.as_ref(),
            replicas: &header.replicas,
            tokens: wishes.tokens(file),
            batch: wishes.batch(file),
            ubatch: wishes.ubatch(file, available),
            available,
            machine,
            unchanged,
            wishes,
            embedding,
            record,
            beside,
        })
    }

    /// Decides the types of keys and values.
    ///
    /// # Errors
    /// Those that are asked for do not suit the model.
    pub fn settle(&mut self) -> Result<KvTypes, EngineError> {
        let kv_type = kv_types(self.file, &self.machine, &self.wishes)?;
        self.wishes.context = self.wishes.context.with_types(kv_type);
        Ok(kv_type)
    }

    /// Makes the plan of the run.
    pub fn plan(&self) -> Result<Plan, EngineError> {
        plan(self.file, &self.machine, &self.wishes).map_err(|error| {
            match (error, &self.options.following.plan) {
                (PlanError::File(error), Some(path)) => {
                    FileError { role: FileRole::Plan, path: path.clone(), reason: error.to_string() }.into()
                }
                // Of the budget that was given, adapters and the projector have a part.
                (PlanError::BudgetTooSmall { budget, minimum, need }, _) => {
                    let (budget, minimum) = (budget + self.beside, minimum + self.beside);
                    PlanError::BudgetTooSmall { budget, minimum, need }.into()
                }
                (error, _) => error.into(),
            }
        })
    }
}

/// The machine without changes, with the memory that `options` say is available.
fn machine(header: &Header, options: &Options, planned: PlannedMachine<'_>) -> MachineProfile {
    let file = &header.file;
    let mut machine = match planned.described {
        Some(described) => described.clone(),
        None => known_machine(file, &options.user),
    };
    if planned.described.is_none() && planned.probed {
        probe(&mut machine, file, options, true);
    }
    read_together(&mut machine, file, &header.replicas, &options.user);
    if let Some(available) = options.memory.available_memory {
        machine.set_available(available);
    }
    machine
}

/// Adds the rates that were never measured: those of workers, and, with `cpu`, those of the processor.
fn probe(machine: &mut MachineProfile, file: &ModelFile, options: &Options, cpu: bool) {
    if cpu {
        probe_machine(machine, file, &options.user);
    }
    if options.devices.rpc_probe {
        probe_workers(machine, file, &options.user);
    }
}

/// The budget for weights that is left beside others' `bytes`.
fn without(
    budget: Budget,
    bytes: ByteSize,
    too_large: impl FnOnce(ByteSize, ByteSize) -> Unfit,
) -> Result<Budget, Unfit> {
    match budget {
        Budget::Bytes(budget) if bytes > budget => Err(too_large(bytes, budget)),
        Budget::Bytes(budget) => Ok(Budget::Bytes(budget.saturating_sub(bytes))),
        Budget::Auto => Ok(Budget::Auto),
    }
}

/// Warns if a longer context is asked for than the model has positions.
fn warn_of_positions(file: &ModelFile, wishes: &Wishes) {
    let (Some(asked), Some(rows)) = (wishes.asked_tokens(), file.positions()) else { return };
    if asked > rows {
        tracing::warn!(
            "the context has {rows} tokens, not {asked}: the model's table of positions, `{}`, has {rows} rows",
            ModelFile::POSITIONS
        );
    }
}

/// What the context for embeddings is like, which the plan has to count if it is made at load.
fn embedding(file: &ModelFile, options: &Options, wishes: &mut Wishes) -> Result<Option<Shape>, EngineError> {
    let Some(asked) = &options.embeddings else { return Ok(None) };
    let shape = Shape::of(file, asked.pooling(), wishes.tokens(file))?;
    if shape.encoder {
        // Its only context: a text is one graph, and there is one at a time.
        let (ctx, batch, ubatch) = (Some(shape.tokens), shape.ubatch, Some(shape.ubatch));
        wishes.context = ContextOptions { ctx, batch, ubatch, unified: true, ..wishes.context };
    } else if asked.made() == Embeds::AtLoad {
        wishes.embedding = Some((shape.tokens, shape.ubatch));
    }
    Ok(Some(shape))
}

/// Whether there is a decision that is worth probing the machine for.
fn decides(file: &ModelFile, options: &Options, machine: &MachineProfile, available: ByteSize) -> bool {
    let room = match options.memory.ram_budget {
        Budget::Auto => available.saturating_sub(auto_reserve(available)),
        Budget::Bytes(budget) => budget,
    };
    let auto = options.memory.manage() == Manage::Auto && options.following.plan.is_none();
    let fits = auto && file.size() <= room;
    // They could hold layers or copies of experts.
    let devices =
        options.devices.usable().is_none_or(|only| !only.is_empty()) && machine.separate().next().is_some();
    options.mode == Mode::Terrace && (!fits || devices)
}
