//! What lives where in a run: the user's words, the model's header and the machine, made into one plan.

use super::devices::OnDevices;
use super::scene::{AUTO_KV_TYPES, Scene};
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::{HotCacheChoice, KvChoice, Options};
use crate::unfit::Unfit;
use std::path::Path;
use terrace_ggml::llama::SplitMode;
use terrace_model::{ByteSize, KvTypes};
use terrace_plan::{
    Budget, Given, Manage, PlaceRequest, Placement, Plan, Request, apply_rules, assess, auto_reserve,
    managed, place, plan, plan_selection,
};

/// A smaller type of keys and values is lossy: it must make this much of a difference.
const WORTH_IT: f64 = 1.05;

/// A run's plan, and what it should cost.
pub struct Placing {
    /// What the run does in RAM.
    pub plan: Plan,
    /// What it does on devices.
    pub devices: OnDevices,
    /// All of it in the words of `terrace plan`, with estimates; none for models without layers.
    pub placed: Option<Placement>,
}

/// Decides. A plan from a file is followed or refused, never changed; a manual mode is followed; else everything that fits is
/// resident or mapped, and what does not is placed by the cost model.
///
/// # Errors
/// A plan of another model or one that does not fit, rules that match nothing, budgets that are too small.
pub fn placing(scene: &Scene<'_>, kv_type: KvTypes) -> Result<Placing, EngineError> {
    let Scene { options, file, .. } = scene;
    let asked = scene.asked(kv_type);
    let (machine, mut request) = (scene.memory(), scene.request(kv_type));
    let given = scene.given(&asked)?;
    let mut devices = OnDevices::of(file, given.as_ref()).map_err(|reason| scene.unusable(reason))?;
    if let (Some(path), Some(given)) = (&options.placement.plan, &given) {
        request.ram_budget = scene.budget(path, given, devices.bytes(file), request.context)?;
    }
    // Rules speak of weights that are read or stay, and devices of ones that are nowhere else, so none may be mapped.
    request.mapping &= options.placement.rules.is_empty() && devices.is_empty();
    let select = |selection, devices: &OnDevices| {
        plan_selection(file, &machine, &request, selection, devices.bytes(file))
    };
    let mut plan = match &given {
        Some(given) => select(devices.without(given.managed.clone()), &devices)?,
        None => plan(file, &machine, &request)?,
    };
    if !options.placement.rules.is_empty() {
        let mut selection = plan.managed.clone();
        for (device, tensors) in apply_rules(&options.placement.rules, file, &mut selection)? {
            devices.add(&device, tensors);
        }
        plan = select(devices.without(selection), &devices)?;
    }
    let given = Given { managed: plan.managed.clone(), slots: plan.slots, ..given.unwrap_or_default() };
    // What cannot be estimated can still be run.
    let placed = assess(file, &scene.machine, &asked, &given)
        .inspect_err(|error| tracing::debug!("no estimate: {error}"))
        .ok();
    Ok(Placing { plan, devices, placed })
}

/// The type of keys and values: what was asked for, or the largest under which the model can be placed, unless it is
/// streamed and a smaller one makes it [`WORTH_IT`] times as fast.
pub fn kv_type(scene: &Scene<'_>) -> KvTypes {
    let types = match scene.options.context.kv_type {
        KvChoice::Types(ty) => return ty,
        KvChoice::Auto => AUTO_KV_TYPES,
    };
    let mut best = (KvTypes::F16, 0.0);
    for ty in types {
        let Ok(placed) = place(scene.file, &scene.machine, &scene.asked(ty)) else { continue };
        let rate = placed.estimate.decode_tok_s;
        if rate > best.1 * WORTH_IT {
            best = (ty, rate);
        }
        if placed.estimate.read_per_token == ByteSize::ZERO {
            break;
        }
    }
    best.0
}

impl Scene<'_> {
    fn asked(&self, kv_type: KvTypes) -> PlaceRequest {
        PlaceRequest {
            ram_budget: self.options.placement.ram_budget,
            context: Some(self.tokens),
            kv_type,
            kv_offload: self.options.context.kv_offload,
            ubatch: self.ubatch,
            prompt: self.options.estimates.prompt,
            hits: self.options.estimates.hits.clone(),
            vram_budget: self.options.devices.vram_budget,
            device_layers: self.options.devices.layers,
            hot_lanes: self.may_copy_experts(),
            measured_context: self.measured_context(kv_type).or_else(|| {
                // What would be estimated there is one slot.
                (self.options.context.slots() > 1).then(|| self.estimated_context(kv_type))
            }),
        }
    }

    /// Whether devices may have copies of a part of a layer's experts. Who says how many layers are there means whole ones; a
    /// recorded trace is replayed without devices; slices of a matrix on each are not slots.
    fn may_copy_experts(&self) -> bool {
        let Options { hot, placement, devices, record, .. } = self.options;
        hot.cache == HotCacheChoice::Auto
            && !matches!(placement.stream, Manage::None | Manage::Mapped)
            && devices.layers.is_none()
            && record.trace.is_none()
            && devices.split_mode == SplitMode::Layer
    }

    fn request(&self, kv_type: KvTypes) -> Request {
        Request {
            manage: self.options.placement.stream,
            ram_budget: self.options.placement.ram_budget,
            context: self.context(kv_type),
            mapping: self.mapping,
        }
    }

    /// What the plan's file says, or the cost model where not everything fits in RAM; none: the sets of `--manage`.
    fn given(&self, asked: &PlaceRequest) -> Result<Option<Given>, EngineError> {
        if let Some(written) = self.written {
            let given = written.realize(self.file);
            return given.map(Some).map_err(|error| self.unusable(error.to_string()));
        }
        let devices = self.machine.separate().next().is_some() && self.options.devices.layers != Some(0);
        if !devices && self.options.devices.layers.is_some_and(|layers| layers > 0) {
            return Err(Unfit::NoAccelerator.into());
        }
        if self.options.placement.stream != Manage::Auto && !devices {
            return Ok(None);
        }
        let placed = match place(self.file, &self.machine, asked) {
            Ok(placed) => placed,
            // That has nobody else a plan for.
            Err(error) if self.options.devices.layers.is_some_and(|layers| layers > 0) => {
                return Err(Unfit::Place(error).into());
            }
            Err(error) => {
                // Where there is too little room, the sets know the smallest budget that would do.
                tracing::debug!("the cost model has no plan: {error}");
                return Ok(None);
            }
        };
        let mut given = placed.realize(self.file).expect("a plan of this model");
        if self.options.placement.stream != Manage::Auto {
            given.managed = managed(self.file, self.options.placement.stream);
        }
        // Everything is in RAM: mapped or read, that is no question of where.
        let in_ram = given.managed.is_empty() && given.homes.iter().all(Option::is_none);
        Ok((!in_ram).then_some(given))
    }

    fn unusable(&self, reason: String) -> EngineError {
        FileError {
            role: FileRole::Plan,
            path: self.options.placement.plan.clone().unwrap_or_default(),
            reason,
        }
        .into()
    }

    /// RAM for the weights of a plan from a file: exactly what it says, if the machine has it.
    fn budget(
        &self,
        path: &Path,
        given: &Given,
        elsewhere: ByteSize,
        context: ByteSize,
    ) -> Result<Budget, EngineError> {
        let weights = self.file.size() - given.managed.bytes(self.file) - elsewhere + given.slots;
        let available = self.machine.memory.available;
        let room = available.saturating_sub(auto_reserve(available));
        let needed = weights + context;
        if needed > room {
            return Err(FileError {
                role: FileRole::Plan,
                path: path.into(),
                reason: format!(
                    "it does not fit: {weights} of weights and slots with {context} of context are {needed}, and {room} \
                     of RAM can be used"
                ),
            }.into());
        }
        Ok(Budget::Bytes(weights))
    }
}
