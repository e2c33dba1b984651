//! The input of planning: the model, the machine and the context, each known as precisely as the
//! decision needs.

use super::context_ask::{HeaderModel, measured_contexts};
use super::draft_memory::draft_memory;
use super::given::given_lengths;
use super::header::Header;
use super::mtp::loaded_for;
use super::wishes::{kernels_of, reading_choice, wishes_of};
use crate::embedding::Shape;
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::{ContextOptions, DraftOptions, Embeds, Mode, Options};
use crate::unfit::Unfit;
use std::borrow::Cow;
use terrace_backend::FileMaps;
use terrace_host::machine::{known_machine, probe_machine, probe_workers, read_together};
use terrace_model::{ByteSize, KvTypes, ModelFile, MtpUse};
use terrace_plan::advice::WhatIf;
use terrace_plan::machine::auto_reserve;
use terrace_plan::{Budget, Expected, MachineProfile, Manage, Plan, PlanError, Wishes, kv_types, plan};

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

/// Share of a model's files that the page cache does not hold; 0 if they are not here, or the system does not tell.
fn unread_share(file: &ModelFile) -> f64 {
    let paths: Vec<_> = file.shards.iter().map(|shard| shard.path.clone()).collect();
    FileMaps::open(&paths).ok().and_then(|maps| maps.cached_share()).map_or(0.0, |cached| 1.0 - cached)
}

/// The input of a plan apart from what drafts change. Made once per load.
pub struct PlanBase<'a> {
    pub options: &'a Options,
    pub header: &'a Header,
    machine: MachineProfile,
    /// The machine without the changes that are planned for; `None` if there are none.
    pub unchanged: Option<MachineProfile>,
    /// True if nothing more is probed.
    probed: bool,
    /// Available RAM.
    available: ByteSize,
    wishes: Wishes,
    /// Shape of the context for embeddings; `None` if there is to be none.
    pub embedding: Option<Shape>,
    /// RAM for adapters and the projector, which neither `available` nor the wishes' budget holds any more.
    beside: ByteSize,
}

impl<'a> PlanBase<'a> {
    /// Describes the machine, and what of it the run may have. `usual` are the lengths of earlier runs.
    ///
    /// # Errors
    /// Adapters or the projector have no room in the budget; scores are asked for, and the model has no
    /// classification head.
    pub fn of(
        header: &'a Header,
        options: &'a Options,
        planned: PlannedMachine<'_>,
        usual: Option<Expected>,
    ) -> Result<Self, EngineError> {
        let file = &header.file;
        let machine = machine(header, options, planned);
        let changed = planned.changes.map(|changes| changes.apply(&machine));
        let (machine, unchanged) = match changed {
            Some(changed) => (changed, Some(machine)),
            None => (machine, None),
        };
        let mut wishes = Wishes { written: header.written.clone(), ..wishes_of(options) };
        // What adapters and the projector take is gone before anything is planned.
        let (adapters, projector) = (header.adapter_bytes(), header.projector_bytes());
        let too_large = |needed, budget| Unfit::AdaptersTooLarge { needed, budget };
        wishes.memory.ram_budget = without(wishes.memory.ram_budget, adapters, too_large)?;
        let too_large = |needed, budget| Unfit::ProjectorTooLarge { needed, budget };
        wishes.memory.ram_budget = without(wishes.memory.ram_budget, projector, too_large)?;
        let beside = adapters + projector;
        let available = machine.memory.available.saturating_sub(beside);
        wishes.settle_context(file, available);
        warn_of_positions(file, &wishes);
        let embedding = embedding(file, options, &mut wishes)?;
        wishes.expect(usual);
        if planned.described.is_none() {
            wishes.cold = unread_share(file);
        }
        Ok(Self {
            options,
            header,
            available,
            machine,
            unchanged,
            probed: planned.described.is_some() || planned.probed,
            wishes,
            embedding,
            beside,
        })
    }
}

/// All that a plan is made from, and the context that the run gets.
pub struct PlanInput<'a> {
    pub ground: &'a PlanBase<'a>,
    pub options: &'a Options,
    /// The model without the tensors that the run leaves out.
    pub file: Cow<'a, ModelFile>,
    /// The source of drafts.
    pub drafts: DraftOptions,
    /// The use of the MTP layers that are loaded.
    pub mtp: MtpUse,
    pub tokens: u32,
    pub batch: u32,
    pub ubatch: u32,
    pub kv_type: KvTypes,
    /// Size of the context.
    pub context_bytes: ByteSize,
    pub threads: usize,
    /// Threads that compute prompts.
    pub threads_batch: usize,
    /// The machine, less the memory that is taken before weights are placed.
    pub machine: MachineProfile,
    pub wishes: Wishes,
}

impl<'a> PlanInput<'a> {
    /// Probes the machine and asks llama.cpp for the sizes of contexts, if a decision depends on
    /// them. Where everything fits, and in stock runs, none does, and nothing has to wait for a
    /// probe.
    ///
    /// # Errors
    /// [`Unfit::Drafts`] if the memory for these drafts is not available; the model, the context or the
    /// options cannot be used.
    pub fn of(ground: &'a PlanBase<'a>, drafts: DraftOptions) -> Result<Self, EngineError> {
        let PlanBase { options, header, .. } = *ground;
        let (file, mtp) = loaded_for(header, &drafts, options);
        let (mut machine, mut wishes) = (ground.machine.clone(), ground.wishes.clone());
        let taken = draft_memory(&drafts.source(), &file, &wishes, ground.available)?;
        let available = ground.available.saturating_sub(taken);
        let decides = decides(&file, options, &machine, available);
        // Not kept longer than this, because its vocabulary would be beside the model's own.
        let header = if decides { HeaderModel::read(&options.model) } else { None };
        wishes.given = given_lengths(&options.given, wishes.expected, header.as_ref());
        if let Some(header) = header {
            wishes.measured = measured_contexts(&header, &file, &wishes, available);
        }
        if decides && !ground.probed {
            probe(&mut machine, &file, options, file.size() >= WORTH_PROBING);
        }
        machine.set_available(available);
        let (tokens, batch) = (wishes.tokens(&file), wishes.batch(&file));
        let ubatch = wishes.ubatch(&file, available);
        let kv_type = kv_types(&file, &machine, &wishes)?;
        wishes.context = wishes.context.with_types(kv_type);
        let context_bytes = wishes.context_size(&file, kv_type, available).total();
        let threads =
            options.compute.threads.map_or_else(terrace_ggml::cpu::default_threads, |t| t.max(1) as usize);
        let threads_batch = options.compute.threads_batch.map_or(threads, |t| t.max(1) as usize);
        let scene = Self {
            ground,
            options,
            file,
            drafts,
            mtp,
            tokens,
            batch,
            ubatch,
            kv_type,
            context_bytes,
            threads,
            threads_batch,
            machine,
            wishes,
        };
        scene.check(available)?;
        Ok(scene)
    }

    /// Checks the requirements that do not depend on a plan.
    fn check(&self, available: ByteSize) -> Result<(), EngineError> {
        let Self { options, tokens, context_bytes: needed, .. } = *self;
        if needed > available {
            return Err(Unfit::ContextTooLarge { tokens, needed, available }.into());
        }
        let repacked = ByteSize(2 * self.file.size().bytes()) + needed;
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

    /// Makes the plan of the run.
    pub fn plan(&self) -> Result<Plan, EngineError> {
        let beside = self.ground.beside;
        plan(&self.file, &self.machine, &self.wishes).map_err(|error| {
            match (error, &self.options.following.plan) {
                (PlanError::File(error), Some(path)) => {
                    FileError { role: FileRole::Plan, path: path.clone(), reason: error.to_string() }.into()
                }
                // Of the budget that was given, adapters and the projector have a part.
                (PlanError::BudgetTooSmall { budget, minimum, need }, _) => {
                    let (budget, minimum) = (budget + beside, minimum + beside);
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
    machine.cpu.kernels = kernels_of(options);
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

/// Shape of the context for embeddings, which the plan has to count if it is made at load.
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

/// Returns true if there is a decision that is worth probing the machine for.
fn decides(file: &ModelFile, options: &Options, machine: &MachineProfile, available: ByteSize) -> bool {
    let room = match options.memory.ram_budget {
        Budget::Auto => available.saturating_sub(auto_reserve(available)),
        Budget::Bytes(budget) => budget,
    };
    let auto = options.memory.manage() == Manage::Auto && options.following.plan.is_none();
    let fits = auto && file.size() <= room;
    // They could hold layers or copies of experts.
    let devices =
        options.devices.usable().is_none_or(|only| !only.is_empty()) && machine.holding().next().is_some();
    options.mode == Mode::Terrace && (!fits || devices)
}
