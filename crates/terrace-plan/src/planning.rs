//! The planner: makes one plan from a model, a machine and wishes.

use crate::error::{Need, PlanError};
use crate::machine::{MachineProfile, auto_reserve};
use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Selection, select};
use crate::model::working_set::working_set;
use crate::model::{ContextSize, prompt_cache};
use crate::options::manage::Manage;
use crate::options::{Budget, DeviceOptions, Expected};
use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::round::round;
use crate::place::sending::transit_alone;
use crate::place::wished::CopiesRoom;
use crate::place::workload::{ContextAsk, Workload};
use crate::plan::decided::Decided;
use crate::plan::planner::Planner;
use crate::plan::{OnDevices, Plan, Warning};
use crate::planners::choose::{Chosen, choose};
use crate::planners::sets;
use crate::rules::{Placed, TensorRule, apply_rules, streamable};
use crate::wishes::Wishes;
use terrace_model::{ByteSize, KvTypes, ModelFile, TransitAlone};

/// A smaller type of keys and values is lossy, so it must speed decoding up at least this much.
const WORTH_IT: f64 = 1.05;

/// Plans a model on a machine.
///
/// A written plan is followed or refused, never changed, and a named set is followed. Otherwise a
/// model that fits is resident or mapped, and one that does not is placed by the cost model, or by
/// sets if the cost model has no plan. Tensor rules override all of these.
///
/// # Errors
/// If the budget is below the minimum, which is resident weights plus the largest set of blocks
/// that must be in slots at once; if a written plan is for another model or does not fit; if a rule
/// matches nothing; if a device does not exist or has too little memory.
pub fn plan(model: &ModelFile, machine: &MachineProfile, wishes: &Wishes) -> Result<Plan, PlanError> {
    wishes.check_devices(machine)?;
    let planning = Planning::of(model, machine, wishes)?;
    match planning.run() {
        // More layers than there are is a way to say all that fit.
        Err(PlanError::NoDeviceRoom { room, layers, .. }) if layers as usize > planning.work.layers.len() => {
            let devices = DeviceOptions { n_gpu_layers: None, ..wishes.devices.clone() };
            let wishes = Wishes { devices, ..wishes.clone() };
            let (mut plan, _) = Planning::of(model, machine, &wishes)?.run()?;
            plan.warnings.push(Warning::LayersBeyondRoom { room });
            Ok(plan)
        }
        other => other.map(|(plan, _)| plan),
    }
}

/// Returns the types of keys and values that a plan would have.
///
/// # Errors
/// Those that are asked for do not suit the model.
pub fn kv_types(model: &ModelFile, machine: &MachineProfile, wishes: &Wishes) -> Result<KvTypes, PlanError> {
    match wishes.kv_types(model)?[..] {
        [one] => Ok(one),
        _ => Ok(Planning::of(model, machine, wishes)?.work.context.kv_type),
    }
}

/// Everything that is known before decisions are made.
pub struct Planning<'a> {
    pub model: &'a ModelFile,
    pub classes: Vec<TensorClass>,
    /// The machine as layers see it.
    pub machine: MachineProfile,
    pub wishes: &'a Wishes,
    pub context: ContextSize,
    /// RAM for kept conversations.
    pub prompt_cache: ByteSize,
    pub work: Workload,
    pub costs: Costs,
    /// Memory of each device for copies of experts, if the user gave it.
    pub copies_room: Vec<CopiesRoom>,
    /// Memory for transit slots beside everything else, by device (its index in the machine's list).
    pub transit: Vec<(usize, TransitAlone)>,
}

/// A decision and the planner that made it.
struct Found {
    /// `None` means that sets decide.
    decided: Option<Decided>,
    planner: Planner,
    bound: Option<f64>,
}

/// The decisions of a plan, with the memory that they need.
pub struct Draft {
    pub selection: Selection,
    pub manage: Manage,
    pub pinned: ByteSize,
    pub need: Need,
    pub devices: OnDevices,
    pub homes: Vec<Option<String>>,
    pub on_device: Vec<u32>,
    pub planner: Planner,
    pub bound: Option<f64>,
    pub allowance: Allowance,
    /// Warnings about rules without effect.
    pub warnings: Vec<Warning>,
}

/// RAM for weights.
#[derive(Clone, Copy)]
pub struct Allowance {
    pub bytes: ByteSize,
    pub auto: bool,
    /// The given budget, if memory has less beside the context.
    pub beyond: Option<ByteSize>,
    /// RAM that the context takes in addition.
    pub context: ByteSize,
    /// RAM that kept conversations take in addition.
    pub prompt_cache: ByteSize,
    /// RAM of what devices without memory of their own hold.
    pub shared: ByteSize,
}

impl Allowance {
    /// Returns the RAM that everything but weights in RAM takes.
    pub fn beside(&self) -> ByteSize {
        self.context + self.prompt_cache + self.shared
    }
}

/// The work with a context of this type and size, and its costs, of which the memory for weights is yet to be reduced.
fn work_and_costs(
    model: &ModelFile,
    machine: &MachineProfile,
    wishes: &Wishes,
    (kv_type, size): (KvTypes, ContextSize),
) -> (Workload, Costs) {
    let (prompt, offload) = (wishes.expected.prompt, wishes.context.kv_offload);
    let tokens = wishes.tokens(model);
    let work = Workload::of(model, &ContextAsk { tokens, kv_type, prompt, offload, size });
    let costs = Costs::of(&work, machine, wishes, wishes.ubatch(model, machine.memory.available));
    (work, costs)
}

impl<'a> Planning<'a> {
    /// Analyses the model and the machine, and chooses the types of keys and values.
    ///
    /// # Errors
    /// The types that are asked for do not suit the model.
    pub fn of(model: &'a ModelFile, machine: &MachineProfile, wishes: &'a Wishes) -> Result<Self, PlanError> {
        let machine = &wishes.usable(machine);
        let copies_room = wishes.copies_room(machine);
        let machine = wishes.machine(machine);
        let of = |kv_type| Self::with_type(model, machine.clone(), wishes, kv_type);
        let types = wishes.kv_types(model)?;
        let (first, others) = types.split_first().expect("F16 suits every model");
        let mut best = of(*first);
        if others.is_empty() {
            best.copies_room = copies_room;
            return Ok(best);
        }
        // The largest type with which the model can be placed, unless it streams and a smaller type
        // makes it clearly faster.
        let mut least = 0.0;
        for ty in types {
            let this = of(ty);
            let Some(chosen) = this.by_cost() else { continue };
            let decode = chosen.assignment.decode(&this.work, &this.costs);
            let rate = round(1.0 / decode.total);
            if rate > least * WORTH_IT {
                (best, least) = (this, rate);
            }
            if decode.bytes_read < 1.0 {
                break;
            }
        }
        best.copies_room = copies_room;
        Ok(best)
    }

    fn with_type(
        model: &'a ModelFile,
        machine: MachineProfile,
        wishes: &'a Wishes,
        kv_type: KvTypes,
    ) -> Self {
        let available = machine.memory.available;
        let context = wishes.context_size(model, kv_type, available);
        let (work, mut costs) = work_and_costs(model, &machine, wishes, (kv_type, context));
        let prompt_cache = prompt_cache(model, &machine, wishes, context.total());
        costs.ram = costs.ram.saturating_sub(prompt_cache.bytes());
        let classes = classify_all(model);
        let devices = machine.holding().map(|(index, device)| (index, device.clone()));
        let transit = transit_alone(model, &classes, wishes, devices);
        costs.give_transit(&transit);
        let copies_room = Vec::new();
        Self { model, classes, machine, wishes, context, prompt_cache, work, costs, copies_room, transit }
    }

    /// The work and the costs of other lengths than those that the plan is made for.
    pub fn of_lengths(&self, expected: Expected) -> (Workload, Costs) {
        let wishes = Wishes { expected, ..self.wishes.clone() };
        let context = (self.work.context.kv_type, self.context);
        let (work, mut costs) = work_and_costs(self.model, &self.machine, &wishes, context);
        costs.ram = self.costs.ram;
        costs.give_transit(&self.transit);
        (work, costs)
    }

    /// Returns whether the cost model applies to this machine and model.
    pub fn is_estimable(&self) -> bool {
        self.machine.check().is_ok() && self.work.layers.iter().any(|layer| layer.id.is_some())
    }

    fn by_cost(&self) -> Option<Chosen> {
        if self.is_estimable() { choose(&self.work, &self.costs) } else { None }
    }

    /// Makes the plan, and the assignment that it describes.
    pub fn run(&self) -> Result<(Plan, Assignment), PlanError> {
        let found = self.found()?;
        let draft = self.draft(found)?;
        self.finish(draft)
    }

    /// Decides by the written plan, by the cost model if not everything fits in RAM, or leaves the
    /// decision to sets.
    fn found(&self) -> Result<Found, PlanError> {
        let Self { model, machine, wishes, .. } = self;
        if let Some(written) = &wishes.written {
            let decided = written.decided(model)?;
            let decided = (!(written.mapped && wishes.mapping && decided.is_in_ram())).then_some(decided);
            return Ok(Found { decided, planner: Planner::File, bound: None });
        }
        let sets = Found { decided: None, planner: Planner::Sets, bound: None };
        let devices = machine.holding().next().is_some() && wishes.devices.n_gpu_layers != Some(0);
        let layers = wishes.devices.n_gpu_layers.filter(|&layers| layers > 0 && devices);
        if wishes.memory.manage() != Manage::Auto && !devices {
            return Ok(sets);
        }
        let Some(Chosen { assignment, planner, decode_bound: bound, .. }) = self.by_cost() else {
            return match layers {
                // No other planner can place this either.
                Some(layers) => Err(self.no_device_room(layers)),
                // If there is too little room, sets find the smallest budget that would do.
                None => Ok(sets),
            };
        };
        let mut decided = assignment.decided(model, machine, &self.classes, (&self.work, &self.costs));
        let named = wishes.memory.manage() != Manage::Auto;
        if named {
            decided.managed = select(model, &self.classes, wishes.memory.manage());
        }
        if decided.is_in_ram() {
            return Ok(Found { bound, ..sets });
        }
        Ok(Found { decided: Some(decided), planner: if named { Planner::Sets } else { planner }, bound })
    }

    fn no_device_room(&self, layers: u32) -> PlanError {
        let devices = &self.costs.devices;
        PlanError::NoDeviceRoom {
            layers,
            names: devices.iter().map(|at| self.machine.devices[at.index].name.clone()).collect(),
            room: ByteSize(devices.iter().map(|device| device.room).sum()),
        }
    }

    /// Applies sets and rules to a decision.
    fn draft(&self, found: Found) -> Result<Draft, PlanError> {
        let Self { model, classes, wishes, .. } = self;
        let Found { decided, planner, bound } = found;
        let mut devices = match &decided {
            Some(decided) => OnDevices::of(model, decided)?,
            None => OnDevices::default(),
        };
        let allowance = self.allowance(decided.as_ref(), &devices)?;
        // Rules place weights in RAM or on disk, and weights on devices are nowhere else: nothing
        // may be mapped then.
        let mapping = wishes.mapping && self.rules().iter().all(TensorRule::is_host) && devices.is_empty();
        let mut draft = match decided {
            None => {
                let asked = if wishes.written.is_some() { Manage::Mapped } else { wishes.memory.manage() };
                let set = sets::choose(model, classes, asked, mapping, allowance.bytes);
                let set = set.pinned(model, classes, allowance.bytes);
                let sets::Candidate { manage, selection, need, pinned } = set;
                let (homes, on_device) = (Vec::new(), Vec::new());
                Draft {
                    selection,
                    manage,
                    pinned,
                    need,
                    devices: OnDevices::default(),
                    homes,
                    on_device,
                    planner,
                    bound,
                    allowance,
                    warnings: Vec::new(),
                }
            }
            Some(Decided { managed, homes, on_device, .. }) => {
                let selection = devices.without(managed);
                let (manage, need) = self.needs(&selection, &devices);
                let (pinned, devices) = (ByteSize::ZERO, std::mem::take(&mut devices));
                Draft {
                    selection,
                    manage,
                    pinned,
                    need,
                    devices,
                    homes,
                    on_device,
                    planner,
                    bound,
                    allowance,
                    warnings: Vec::new(),
                }
            }
        };
        if !wishes.memory.override_tensor.is_empty() {
            let rules = self.rules();
            let Placed { devices, host, small } = apply_rules(&rules, model, &mut draft.selection)?;
            for (device, tensors) in devices {
                draft.devices.add(&device, tensors);
            }
            let moved = draft.devices.keep_off(&host);
            // What has no place on a device streams, like the rest, if not everything fits in RAM.
            if !draft.selection.is_empty() {
                draft.selection.insert(moved.iter().filter_map(|&tensor| streamable(model, classes, tensor)));
            }
            draft.warnings.extend(small);
            if !moved.is_empty() || !rules.iter().all(TensorRule::is_host) {
                draft.selection = draft.devices.without(draft.selection);
                (draft.manage, draft.need) = self.needs(&draft.selection, &draft.devices);
                draft.pinned = ByteSize::ZERO;
            }
        }
        Ok(draft)
    }

    /// The rules for single tensors. Where there is no accelerator at all, none of them names one.
    fn rules(&self) -> Vec<TensorRule> {
        let rules = self.wishes.memory.override_tensor.iter();
        match self.machine.devices.is_empty() {
            true => rules.map(TensorRule::without_device).collect(),
            false => rules.cloned().collect(),
        }
    }

    /// Returns whether something is asked of accelerators, and there is none.
    pub fn lacks_accelerator(&self) -> bool {
        let Wishes { devices, memory, .. } = self.wishes;
        let layers = devices.n_gpu_layers.is_some_and(|layers| layers > 0);
        let named = devices.usable().is_some_and(|names| !names.is_empty());
        let ruled = memory.override_tensor.iter().any(TensorRule::names_device);
        (layers && self.machine.holding().next().is_none())
            || ((named || ruled) && self.machine.devices.is_empty())
    }

    fn needs(&self, selection: &Selection, devices: &OnDevices) -> (Manage, Need) {
        let Self { model, classes, .. } = self;
        let set = working_set(model, classes, selection);
        let resident = model.size() - selection.bytes(model) - devices.bytes(model);
        (selection.kind(model, classes), Need { resident, slots: set.least, what: set.needs })
    }

    /// Computes the RAM for weights: the given budget, what a written plan needs if the machine has
    /// it, or what the machine has.
    fn allowance(&self, decided: Option<&Decided>, devices: &OnDevices) -> Result<Allowance, PlanError> {
        let Self { model, machine, wishes, prompt_cache, .. } = self;
        let prompt_cache = *prompt_cache;
        let (context, shared) = match decided {
            Some(decided) if !devices.is_empty() => {
                let assignment = Assignment::of(decided, model, machine, (&self.work, &self.costs))?;
                let uses = assignment.uses(&self.work, &self.costs);
                let context = ByteSize(uses[0].context()) + self.context.logits;
                (context, ByteSize(self.costs.shared(&uses)))
            }
            _ => (self.context.total(), ByteSize::ZERO),
        };
        let mut allowance =
            Allowance { bytes: ByteSize::ZERO, auto: false, beyond: None, context, prompt_cache, shared };
        let beside = allowance.beside();
        if wishes.written.is_some() {
            let slots = decided.map_or(ByteSize::ZERO, |decided| decided.slots);
            let managed = decided.map(|decided| devices.without(decided.managed.clone()));
            let managed = managed.map_or(ByteSize::ZERO, |managed| managed.bytes(model));
            let weights = model.size() - managed - devices.bytes(model) + slots;
            let available = machine.memory.available;
            let room = available.saturating_sub(auto_reserve(available));
            let needed = weights + beside;
            if needed > room {
                return Err(crate::plan::FileError::NoRoom { weights, context, needed, room }.into());
            }
            allowance.bytes = weights;
            return Ok(allowance);
        }
        match wishes.memory.ram_budget {
            Budget::Bytes(asked) => {
                // With more, the system would swap, or end the process at the limit of its control group.
                let room = machine.memory.available.saturating_sub(beside);
                allowance.beyond = (asked > room).then_some(asked);
                allowance.bytes = asked.min(room);
            }
            Budget::Auto => {
                allowance.auto = true;
                allowance.bytes = machine.ram_room().saturating_sub(beside);
            }
        }
        Ok(allowance)
    }
}
