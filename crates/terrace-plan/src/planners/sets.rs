//! The plan: what is managed, what is resident, how large the slots are.

use crate::error::{Need, PlanError};
use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Selection, select};
use crate::model::working_set::{WorkingSet, working_set};
use crate::planners::pin::pin;
use crate::wishes::{Budget, Machine, Manage, Request};
use serde::Serialize;
use std::fmt;
use terrace_model::{ByteSize, ModelFile, PAGE};

/// What a run does with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is managed; all weights are in RAM.
    FullResident,
    /// Nothing is managed; the page cache serves all weights.
    Mapped,
    /// Routed experts are streamed, the rest is resident.
    ExpertStreaming,
    /// Dense feed-forward matrices are streamed, the rest is resident.
    DenseFfnStreaming,
    /// Other sets: experts and dense matrices, or all matrices.
    MixedStreaming,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FullResident => "full-resident",
            Self::Mapped => "mapped",
            Self::ExpertStreaming => "expert-streaming",
            Self::DenseFfnStreaming => "dense-ffn-streaming",
            Self::MixedStreaming => "mixed-streaming",
        })
    }
}

/// What lives where. `Display` is one line; `{:#}` is the whole table, warnings included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The kind of run.
    pub mode: Mode,
    /// What is managed; never [`Manage::Auto`].
    pub manage: Manage,
    /// Most RAM that weights may take: resident ones and slots.
    pub budget: ByteSize,
    /// Whether the budget was chosen here.
    pub auto_budget: bool,
    /// The smallest budget under which what is managed can run.
    pub minimum: ByteSize,
    /// Weights that are in RAM for good.
    pub resident: ByteSize,
    /// Weights that the page cache serves: all of them, or none.
    pub mapped: ByteSize,
    /// Of the resident ones, weights that `manage` names and the budget can hold all the same.
    pub pinned: ByteSize,
    /// RAM for the slots that managed weights stream through.
    pub slots: ByteSize,
    /// Number of managed tensors.
    pub managed_tensors: usize,
    /// Their bytes.
    pub managed_bytes: ByteSize,
    /// Bytes of weights on devices.
    pub on_devices: ByteSize,
    /// Bytes of managed weights that one token touches: over the layers, top-k times the expert bundle; dense
    /// matrices whole. Slots below this hit nothing under a global LRU.
    pub token_cycle: ByteSize,
    /// Memory for the context, beside the budget.
    pub context: ByteSize,
    /// Whether to read around the page cache.
    pub direct: bool,
    /// Why.
    pub direct_reason: String,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The managed tensors themselves.
    #[serde(skip)]
    pub managed: Selection,
}

/// RAM that an automatic budget leaves alone: 5 % of what is available, at least 512 MiB.
pub fn auto_reserve(available: ByteSize) -> ByteSize {
    ByteSize((available.bytes() / 20).max(ByteSize::mib(512).bytes()))
}

/// Plans a model on a machine.
///
/// [`Manage::Auto`] takes the first of these that the budget allows: nothing managed (everything fits; mapped if
/// [`Request::mapping`] allows it), experts, feed-forward weights, all matrices. Whole matrices that the budget can hold beside the slots are pinned. More budget
/// thus never manages more.
///
/// # Errors
/// If the budget is below the minimum: resident weights plus the largest set of blocks that must be in slots at
/// once (the largest managed matrix, or as many experts of one tensor as a token uses; each with its page padding).
/// Mapped weights need as much as resident ones under a budget that was given. Under an automatic one a model of any
/// size can be mapped, if that is asked for.
pub fn plan(model: &ModelFile, machine: &Machine, request: &Request) -> Result<Plan, PlanError> {
    let classes = classify_all(model);
    let budget = Allowance::of(machine, request);
    let Candidate { manage, mut selection, set, resident } = choose(model, &classes, request, budget.bytes);
    let need = Need { resident, slots: set.least, what: set.needs };
    let budget = budget.holds(machine, request, &need, manage == Manage::Mapped)?;
    let named = selection.bytes(model);
    pin(model, &classes, &mut selection, budget.bytes);
    let pinned = named - selection.bytes(model);
    let elsewhere = ByteSize::ZERO;
    let chosen = Chosen { model, classes: &classes, manage, pinned, elsewhere, need, budget };
    Ok(chosen.finish(selection, machine, request))
}

/// Plans a model of which so much is managed, no more and no less: what a [`Placement`](crate::Placement) says, or the user.
/// So many bytes of other weights are on devices.
///
/// # Errors
/// As [`plan`]: a budget that does not hold the rest and the slots that the selection needs at once.
pub fn plan_selection(
    model: &ModelFile,
    machine: &Machine,
    request: &Request,
    selection: Selection,
    elsewhere: ByteSize,
) -> Result<Plan, PlanError> {
    let classes = classify_all(model);
    let manage = selection.kind(model, &classes);
    let set = working_set(model, &classes, &selection);
    let resident = model.size() - selection.bytes(model) - elsewhere;
    let need = Need { resident, slots: set.least, what: set.needs };
    let budget = Allowance::of(machine, request).holds(machine, request, &need, false)?;
    let pinned = ByteSize::ZERO;
    let chosen = Chosen { model, classes: &classes, manage, pinned, elsewhere, need, budget };
    Ok(chosen.finish(selection, machine, request))
}

/// RAM for weights.
#[derive(Clone, Copy)]
struct Allowance {
    bytes: ByteSize,
    auto: bool,
}

impl Allowance {
    fn of(machine: &Machine, request: &Request) -> Self {
        match request.ram_budget {
            Budget::Bytes(bytes) => Self { bytes, auto: false },
            Budget::Auto => {
                let free = machine.ram_available.saturating_sub(request.context);
                Self { bytes: free.saturating_sub(auto_reserve(machine.ram_available)), auto: true }
            }
        }
    }

    /// The same if it holds what must be in memory at once.
    fn holds(
        self,
        machine: &Machine,
        request: &Request,
        need: &Need,
        mapped: bool,
    ) -> Result<Self, PlanError> {
        let minimum = need.minimum();
        // Under whatever the machine has, the page cache holds what it can.
        let bytes = if mapped && self.auto { need.resident } else { self.bytes };
        if bytes >= minimum {
            return Ok(Self { bytes, ..self });
        }
        let need = need.clone();
        Err(if self.auto {
            let available = machine.ram_available;
            let (context, reserve) = (request.context, auto_reserve(available));
            PlanError::AutoNoRoom { available, context, reserve, left: bytes, minimum, need }
        } else {
            PlanError::BudgetTooSmall { budget: bytes, minimum, need }
        })
    }
}

/// What was decided, but for the numbers that follow.
struct Chosen<'a> {
    model: &'a ModelFile,
    classes: &'a [TensorClass],
    manage: Manage,
    pinned: ByteSize,
    elsewhere: ByteSize,
    need: Need,
    budget: Allowance,
}

impl Chosen<'_> {
    fn finish(self, selection: Selection, machine: &Machine, request: &Request) -> Plan {
        let Self { model, classes, manage, pinned, elsewhere, need, budget } = self;
        let Allowance { bytes: budget, auto } = budget;
        let mapped = if manage == Manage::Mapped { model.size() } else { ByteSize::ZERO };
        let managed_bytes = selection.bytes(model);
        let resident = model.size() - managed_bytes - mapped - elsewhere;
        let set = working_set(model, classes, &selection);
        let room = ByteSize((budget - resident - mapped).bytes() / PAGE * PAGE);
        let slots = room.min(set.whole);
        // An automatic budget has no reason to be more than what is used of it.
        let budget = if auto { budget.min(resident + mapped + slots) } else { budget };
        let (direct, direct_reason) = if manage == Manage::Mapped {
            (false, mapped_reason(request.manage).into())
        } else {
            direct(machine, request.context, resident + slots, managed_bytes)
        };
        let mut plan = Plan {
            mode: if manage == Manage::Mapped { Mode::Mapped } else { mode(classes, &selection) },
            manage,
            budget,
            auto_budget: auto,
            minimum: need.minimum(),
            resident,
            mapped,
            pinned,
            slots,
            managed_tensors: selection.tensors.len(),
            managed_bytes,
            on_devices: elsewhere,
            token_cycle: set.token_cycle,
            context: request.context,
            direct,
            direct_reason,
            warnings: Vec::new(),
            managed: selection,
        };
        plan.warnings = warnings(&plan, machine, request);
        plan
    }
}

impl Plan {
    /// Takes `percent` of the slots, at least what is needed: the rest is left to the page cache.
    pub fn share_slots(&mut self, percent: u32) {
        let least = self.minimum.saturating_sub(self.resident.saturating_sub(self.pinned));
        let share = ByteSize(self.slots.bytes() / 100 * u64::from(percent.min(100)) / PAGE * PAGE);
        let slots = share.max(least).min(self.slots);
        self.budget = self.budget.saturating_sub(self.slots - slots);
        self.slots = slots;
    }

    /// Whether mapped weights can all be in memory beside the context, so that they may be brought there before
    /// somebody asks for them.
    pub fn populates(&self, machine: &Machine) -> bool {
        self.mapped > ByteSize::ZERO && self.mapped + self.context <= machine.ram_available
    }
}

/// A set of managed tensors with what it needs.
struct Candidate {
    manage: Manage,
    selection: Selection,
    set: WorkingSet,
    resident: ByteSize,
}

impl Candidate {
    fn minimum(&self) -> ByteSize {
        self.resident + self.set.least
    }
}

fn choose(model: &ModelFile, classes: &[TensorClass], request: &Request, budget: ByteSize) -> Candidate {
    let candidate = |manage| {
        let selection = select(model, classes, manage);
        let set = working_set(model, classes, &selection);
        let resident = model.size() - selection.bytes(model);
        Candidate { manage, selection, set, resident }
    };
    if request.manage != Manage::Auto {
        return candidate(request.manage);
    }
    // Mapped weights are where they are at once; past the memory there is, reading on demand, page by page, loses to
    // slots by far.
    let mapped = candidate(Manage::Mapped);
    if request.mapping && mapped.minimum() <= budget {
        return mapped;
    }
    // A set that adds nothing to the one before it only fits where that did, and so is never found.
    let mut nearest = candidate(Manage::None);
    for next in [Manage::Experts, Manage::Ffn, Manage::All] {
        if nearest.minimum() <= budget {
            break;
        }
        let next = candidate(next);
        // Where none fits, the error names the smallest budget that would do.
        if next.minimum() <= budget || next.minimum() < nearest.minimum() {
            nearest = next;
        }
    }
    nearest
}

fn mode(classes: &[TensorClass], selection: &Selection) -> Mode {
    let all = |class| selection.tensors.iter().all(|m| classes[m.tensor] == class);
    if selection.is_empty() {
        Mode::FullResident
    } else if all(TensorClass::Expert) {
        Mode::ExpertStreaming
    } else if all(TensorClass::DenseFfn) {
        Mode::DenseFfnStreaming
    } else {
        Mode::MixedStreaming
    }
}

fn mapped_reason(asked: Manage) -> &'static str {
    if asked == Manage::Auto { "everything fits, so nothing has to be copied" } else { "as asked" }
}

/// Reading through the page cache pays where the cache can hold (nearly) all of what is streamed; otherwise it
/// only copies, and takes memory from others.
fn direct(machine: &Machine, context: ByteSize, held: ByteSize, streamed: ByteSize) -> (bool, String) {
    if streamed == ByteSize::ZERO {
        return (false, "nothing is streamed, and the file may be in the page cache already".into());
    }
    let cache = machine.ram_available.saturating_sub(context).saturating_sub(held);
    let nearly = ByteSize(streamed.bytes() - streamed.bytes() / 10);
    (cache < nearly, format!("{streamed} are streamed, the page cache could hold {cache}"))
}

/// What to say where slots are smaller than what one token touches.
pub fn token_cycle_warning(slots: ByteSize, token_cycle: ByteSize) -> Option<String> {
    (slots < token_cycle).then(|| {
        format!(
            "slots of {slots} are less than the {token_cycle} of managed weights that one token touches: a global LRU will \
             hit 0 %, every token reads all of it"
        )
    })
}

fn warnings(plan: &Plan, machine: &Machine, request: &Request) -> Vec<String> {
    let mut warnings = Vec::new();
    let asked = !matches!(request.manage, Manage::None | Manage::Mapped | Manage::Auto);
    if asked && plan.managed.is_empty() && plan.pinned == ByteSize::ZERO {
        warnings.push(format!(
            "there is nothing to manage under `{}` in this model: all of it is resident",
            plan.manage
        ));
    }
    if let Some(warning) = token_cycle_warning(plan.slots, plan.token_cycle) {
        let enough = plan.resident + plan.token_cycle;
        warnings.push(format!("{warning}; a RAM budget above {enough} would change that"));
    }
    let taken = plan.resident + plan.slots + plan.context;
    if plan.mapped > ByteSize::ZERO && !plan.populates(machine) {
        let left = machine.ram_available.saturating_sub(plan.context);
        warnings.push(format!(
            "{} are mapped and {left} are left for the page cache: what it cannot hold is read again page by page \
             whenever it is used, which is far slower than streaming (--manage auto)",
            plan.mapped
        ));
    } else if taken > machine.ram_available {
        warnings.push(format!(
            "weights and context take {taken}, but only {} of RAM are available: the system may swap or end the process",
            machine.ram_available
        ));
    }
    warnings
}
