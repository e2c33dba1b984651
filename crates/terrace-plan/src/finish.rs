//! Completes a plan: its numbers, after the decisions are made.

use crate::error::PlanError;
use crate::machine::auto_reserve;
use crate::model::class::TensorClass;
use crate::model::experts::groups;
use crate::model::selection::Selection;
use crate::model::working_set::{is_row_table, working_set};
use crate::options::manage::Manage;
use crate::options::{Expected, HotSize};
use crate::place::assignment::Assignment;
use crate::place::costs::{Costs, DeviceCost};
use crate::place::describe::{Placed, summary};
use crate::place::drafted::gain;
use crate::place::estimate::Terms;
use crate::place::wished::CopiesRoom;
use crate::place::workload::Workload;
use crate::plan::decided::Decided;
use crate::plan::parts::{HotCopies, TierUse, TransitSlots};
use crate::plan::{Mode, OnDevices, PLAN_VERSION, Plan, PlannedContext, PlannedModel, ReadsReason, Warning};
use crate::planners::copies::{DeviceRoom, copies_by_size, copies_on_all};
use crate::planning::{Draft, Planning};
use terrace_model::PAGE;
use terrace_model::{ByteSize, LayerId, ModelFile};

/// Counts tensors that rules put on devices there instead of in RAM, where the assignment has them: the cost model
/// knows whole layers only.
fn count_single_tensors(tiers: &mut [TierUse], devices: &OnDevices, model: &ModelFile) {
    for (device, selection) in &devices.single {
        let bytes = selection.bytes(model);
        if let Some(ram) = tiers.first_mut() {
            ram.weights = ram.weights.saturating_sub(bytes);
        }
        if let Some(tier) = tiers.iter_mut().find(|tier| tier.tier == *device) {
            tier.weights += bytes;
        }
    }
}

impl Planning<'_> {
    /// Makes the plan of a draft, and the assignment that it describes.
    ///
    /// # Errors
    /// If the budget does not hold what must be in memory at once.
    pub fn finish(&self, draft: Draft) -> Result<(Plan, Assignment), PlanError> {
        let Self { model, classes, machine, wishes, work, costs, .. } = self;
        let budget = self.budget(&draft)?;
        let Draft {
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
            warnings: of_rules,
        } = draft;
        let is_mapped = manage == Manage::Mapped;
        let mapped = if is_mapped { model.size() } else { ByteSize::ZERO };
        let (managed_bytes, elsewhere) = (selection.bytes(model), devices.bytes(model));
        let resident = model.size() - managed_bytes - mapped - elsewhere;
        let set = working_set(model, classes, &selection);
        let room = ByteSize((budget - resident - mapped).bytes() / PAGE * PAGE);
        let slots = room.min(set.whole);
        // An automatic budget is no larger than what is used of it.
        let budget = if allowance.auto { budget.min(resident + mapped + slots) } else { budget };
        let (budget, slots) = share(wishes.slots_share, budget, slots, need.slots);
        let decided = Decided { managed: selection, slots, homes, on_device };
        let assignment = Assignment::of(&decided, model, machine, (work, costs))?;
        let placed = Placed {
            model,
            machine,
            work,
            costs,
            assignment: &assignment,
            experts_stream: experts_stream(model, classes, &decided, &devices.tensors(model)),
        };
        let layers = placed.layers();
        let hot = self.copies(&devices, &assignment);
        let with_copies = self.with_copies(&assignment, &hot, &decided);
        let ubatch = wishes.ubatch(model, machine.memory.available);
        let drafts = self.is_estimable().then(|| gain(&with_copies, (work, costs), machine, wishes, ubatch));
        let terms = Terms {
            expected: wishes.expected,
            hits_given: wishes.hits.is_some(),
            bound,
            drafts: drafts.flatten(),
        };
        let transit = self.transit_slots(&assignment, &hot, &decided);
        let available = machine.memory.available;
        let left = available.saturating_sub(allowance.beside());
        let stays = mapped <= left;
        let estimated = |work: &Workload, costs: &Costs, expected: Expected| {
            let placed = Placed { assignment: &with_copies, work, costs, ..placed };
            let mut estimate = placed.estimate(Terms { expected, ..terms }, &layers);
            if is_mapped {
                // Nothing is read before the first run.
                estimate.load_ms = 0.0;
                let cold = stays.then(|| placed.cold_start(wishes.cold, expected, &estimate));
                estimate.cold = cold.flatten();
            }
            estimate
        };
        let estimate = self.is_estimable().then(|| estimated(work, costs, wishes.expected));
        let given = wishes.given.filter(|_| self.is_estimable()).map(|given| {
            let (work, costs) = self.of_lengths(given);
            estimated(&work, &costs, given)
        });
        let mut tiers = placed.tiers();
        count_single_tensors(&mut tiers, &devices, model);
        let mode = if is_mapped { Mode::Mapped } else { mode(model, classes, &decided.managed) };
        let (direct, direct_reason) = match (is_mapped, wishes.memory.manage()) {
            (true, Manage::Auto) => (false, ReadsReason::EverythingFits),
            (true, _) => (false, ReadsReason::MappedAsAsked),
            (false, _) => ReadsReason::of(managed_bytes, left.saturating_sub(resident + slots)),
        };
        let (read_by_row, streamed) = names(model, classes, &decided.managed);
        let mut plan = Plan {
            version: PLAN_VERSION,
            model: PlannedModel {
                name: model.str("general.name").unwrap_or_else(|| model.architecture()).to_owned(),
                architecture: model.architecture().to_owned(),
                tensors: model.tensors.len() as u64,
                bytes: model.size(),
            },
            machine: machine.name.clone(),
            mode,
            summary: summary(mode, &layers, &hot),
            planner,
            manage,
            budget,
            auto_budget: allowance.auto,
            minimum: need.minimum(),
            resident,
            mapped,
            pinned,
            slots,
            managed_tensors: decided.managed.tensors.len(),
            managed_bytes,
            on_devices: elsewhere,
            token_cycle: set.token_cycle,
            context: PlannedContext {
                tokens: work.context.tokens,
                kv_type: work.context.kv_type,
                cache: self.context.cache,
                compute: self.context.compute,
                logits: self.context.logits,
                ram: allowance.context,
            },
            prompt_cache: allowance.prompt_cache,
            direct,
            direct_reason,
            tiers,
            layers,
            hot,
            transit,
            streamed,
            read_by_row,
            estimate,
            given,
            warnings: Vec::new(),
            managed: decided.managed,
            devices,
        };
        plan.warnings = warnings(&plan, available, wishes.memory.manage());
        plan.warnings.extend(of_rules);
        plan.warnings.extend(self.lacks_accelerator().then_some(Warning::NoAccelerator));
        plan.warnings.extend(self.short_of_copies(&plan.hot));
        let beyond = allowance.beyond.filter(|_| model.size() > allowance.bytes);
        plan.warnings
            .extend(beyond.map(|asked| Warning::BudgetBeyondMemory { asked, room: allowance.bytes }));
        Ok((plan, assignment))
    }

    /// Returns the copies of experts on devices: those decided on, those of the written plan, or as
    /// many as fit into the given memory. The experts themselves are streamed, or in RAM.
    fn copies(&self, devices: &OnDevices, assignment: &Assignment) -> Vec<HotCopies> {
        if !devices.hot.is_empty() {
            return devices.hot.clone();
        }
        let written = self.wishes.written.as_ref().map_or(&[][..], |written| &written.hot);
        if self.copies_room.is_empty() && written.is_empty() {
            return Vec::new();
        }
        let on_devices = devices.tensors(self.model);
        let mut groups = groups(self.model, &self.classes);
        groups.retain(|group| !group.roles.iter().any(|tensor| on_devices.contains(tensor)));
        groups.dedup_by_key(|group| group.layer);
        if self.copies_room.is_empty() {
            let there = |copies: &&HotCopies| {
                self.wishes.hot.size_on(&copies.device) != HotSize::Off
                    && groups.iter().any(|group| group.layer.0 == copies.layer)
            };
            return written.iter().filter(there).cloned().collect();
        }
        let rooms: Vec<DeviceRoom> =
            self.copies_room.iter().map(|room| self.room_for_copies(room, assignment)).collect();
        match self.wishes.hot.hot_split {
            how if how.divides_experts() => copies_on_all(self.model, &groups, &rooms, how),
            _ => copies_by_size(self.model, &groups, &rooms, self.wishes.paths.streamed),
        }
    }

    /// Returns the assignment with copies of a given size as well, as far as they are at the home of
    /// their layer: a lane elsewhere is not estimated.
    fn with_copies(&self, assignment: &Assignment, hot: &[HotCopies], decided: &Decided) -> Assignment {
        let mut with = assignment.clone();
        for copies in hot {
            let (id, place) = (LayerId(copies.layer), self.place_of(&copies.device));
            let Some(index) = self.work.layers.iter().position(|layer| layer.id == Some(id)) else {
                continue;
            };
            if with.hot[index] == 0 && Some(with.homes[index]) == place {
                with.hot[index] = copies.slots;
                with.kept[index] = !self.streams(decided, id);
            }
        }
        // What has a copy is read no more into RAM.
        with.arena = with.arena.min(with.cold_experts(&self.work));
        with
    }

    /// Returns whether a layer's experts stream.
    fn streams(&self, decided: &Decided, layer: LayerId) -> bool {
        decided.managed.tensors.iter().any(|managed| {
            managed.experts.is_some() && self.model.tensors[managed.tensor].layer() == Some(layer)
        })
    }

    /// Returns the transit slots for layers whose experts stream and have no copies.
    fn transit_slots(
        &self,
        assignment: &Assignment,
        hot: &[HotCopies],
        decided: &Decided,
    ) -> Vec<TransitSlots> {
        let mut all: Vec<TransitSlots> = Vec::new();
        for (index, layer) in self.work.layers.iter().enumerate() {
            let Some(id) = layer.id.filter(|id| hot.iter().all(|copies| copies.layer != id.0)) else {
                continue;
            };
            let place = self.costs.lane_without_copies(assignment.homes[index]);
            let Some(place) = place.filter(|_| self.streams(decided, id)) else { continue };
            let index = self.costs.devices[place - 1].index;
            let device = &self.machine.devices[index].name;
            match all.iter_mut().find(|slots| slots.device == *device) {
                Some(slots) => slots.layers.push(id.0),
                None => {
                    let alone = self.transit.iter().find(|(other, _)| *other == index);
                    let bytes = alone.map_or(ByteSize::ZERO, |(_, alone)| alone.bytes());
                    all.push(TransitSlots { device: device.clone(), layers: vec![id.0], bytes });
                }
            }
        }
        all
    }

    /// Returns the place of a device.
    fn place_of(&self, device: &str) -> Option<usize> {
        let is_it = |at: &DeviceCost| self.machine.devices[at.index].name == device;
        Some(self.costs.devices.iter().position(is_it)? + 1)
    }

    /// Returns a device's bytes for copies: those given, or what the assignment leaves.
    fn room_for_copies(&self, room: &CopiesRoom, assignment: &Assignment) -> DeviceRoom {
        let left = || {
            let place = self.place_of(&room.device)?;
            let uses = assignment.uses(&self.work, &self.costs);
            let device = &self.costs.devices[place - 1];
            let left = device.room.saturating_sub(uses[place].all());
            let of_ram = || self.costs.weight_room(&uses).saturating_sub(uses[0].weights());
            Some(ByteSize(if device.shares { left.min(of_ram()) } else { left }))
        };
        let left = || match (left()?, room.more_free) {
            (left, Some((kept, stays))) => Some((left + kept).saturating_sub(stays)),
            (left, None) => Some(left),
        };
        let bytes = room.bytes.map(|(_, bytes)| bytes).or_else(left).unwrap_or_default();
        DeviceRoom { device: room.device.clone(), bytes, speed: room.speed }
    }

    /// Returns a warning for each device that has less memory for copies than requested.
    fn short_of_copies(&self, hot: &[HotCopies]) -> Vec<Warning> {
        let has_some = |device: &str| hot.iter().any(|copies| copies.device == device);
        let warning = |CopiesRoom { device, bytes, .. }: &CopiesRoom| {
            let (asked, room) = bytes.filter(|(asked, room)| room < asked && has_some(device))?;
            Some(Warning::CopiesBeyondRoom { device: device.clone(), room, asked })
        };
        self.copies_room.iter().filter_map(warning).collect()
    }

    /// Returns the RAM for weights, if it holds what must be in memory at once.
    fn budget(&self, draft: &Draft) -> Result<ByteSize, PlanError> {
        let Draft { need, allowance, .. } = draft;
        let (need, minimum) = (need.clone(), need.minimum());
        let context = allowance.beside();
        // Mapped weights need no minimum: the page cache holds what it can.
        let is_mapped = draft.manage == Manage::Mapped;
        let free = allowance.auto || allowance.beyond.is_some();
        let bytes = if is_mapped && free { need.resident } else { allowance.bytes };
        if bytes >= minimum {
            return Ok(bytes);
        }
        Err(if allowance.auto || allowance.beyond.is_some() {
            let available = self.machine.memory.available;
            let reserve = if allowance.auto { auto_reserve(available) } else { ByteSize::ZERO };
            PlanError::AutoNoRoom { available, context, reserve, left: bytes, minimum, need }
        } else {
            PlanError::BudgetTooSmall { budget: bytes, minimum, need }
        })
    }
}

/// Reduces the slots to `percent` of them, but no less than `least`, and the budget with them: the
/// rest is left to the page cache.
fn share(percent: u32, budget: ByteSize, slots: ByteSize, least: ByteSize) -> (ByteSize, ByteSize) {
    if percent >= 100 {
        return (budget, slots);
    }
    let share = ByteSize(slots.bytes() / 100 * u64::from(percent) / PAGE * PAGE);
    let kept = share.max(least).min(slots);
    (budget.saturating_sub(slots - kept), kept)
}

/// Returns whether all experts are streamed that are not whole on devices.
fn experts_stream(
    model: &ModelFile,
    classes: &[TensorClass],
    decided: &Decided,
    on_devices: &[usize],
) -> bool {
    let is_streamed = |index: usize| decided.managed.tensors.iter().any(|m| m.tensor == index);
    let mut experts = (0..model.tensors.len())
        .filter(|index| classes[*index] == TensorClass::Expert && !on_devices.contains(index))
        .peekable();
    experts.peek().is_some() && experts.all(is_streamed)
}

/// Returns the names of streamed tables and of streamed matrices.
fn names(model: &ModelFile, classes: &[TensorClass], selection: &Selection) -> (Vec<String>, Vec<String>) {
    let has_output = model.tensor("output.weight").is_some();
    let whole = selection.tensors.iter().filter(|m| m.experts.is_none()).map(|m| m.tensor);
    let (tables, matrices): (Vec<usize>, Vec<usize>) =
        whole.partition(|&index| is_row_table(&model.tensors[index], classes[index], has_output));
    let names = |all: Vec<usize>| all.into_iter().map(|index| model.tensors[index].name.clone()).collect();
    (names(tables), names(matrices))
}

/// Finds the mode of a selection. Tables that are read by row count only if nothing else is
/// streamed.
fn mode(model: &ModelFile, classes: &[TensorClass], selection: &Selection) -> Mode {
    let has_output = model.tensor("output.weight").is_some();
    let (mut experts, mut ffn, mut others, mut tables) = (false, false, false, false);
    for managed in &selection.tensors {
        let class = classes[managed.tensor];
        match class {
            TensorClass::Expert => experts = true,
            TensorClass::DenseFfn | TensorClass::SharedExpert => ffn = true,
            _ if is_row_table(&model.tensors[managed.tensor], class, has_output) => tables = true,
            _ => others = true,
        }
    }
    match (experts, ffn, others) {
        (false, false, false) if !tables => Mode::FullResident,
        (true, false, false) => Mode::ExpertStreaming,
        (false, true, false) => Mode::DenseFfnStreaming,
        _ => Mode::MixedStreaming,
    }
}

fn warnings(plan: &Plan, available: ByteSize, asked: Manage) -> Vec<Warning> {
    let Plan { manage, slots, token_cycle, resident, mapped, context, .. } = *plan;
    let mut warnings = Vec::new();
    let named = !matches!(asked, Manage::None | Manage::Mapped | Manage::Auto);
    if named && plan.managed.is_empty() && plan.pinned == ByteSize::ZERO {
        warnings.push(Warning::NothingToStream { manage });
    }
    if slots < token_cycle {
        let enough = resident + token_cycle;
        warnings.push(Warning::SlotsBelowCycle { slots, token_cycle, enough });
    }
    if mapped > ByteSize::ZERO && !plan.populates(available) {
        let left = available.saturating_sub(context.ram);
        warnings.push(Warning::MappedBeyondMemory { mapped, left });
    }
    warnings
}
