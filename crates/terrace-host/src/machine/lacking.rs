//! What the description of a machine lacks for a model, and what it takes from earlier probes.

use super::fast_rates::{has_prompts, has_tokens};
use super::kept_probe::{Dated, Found, is_fresh, probed_at};
use std::collections::BTreeMap;
use terrace_ggml::quantize::WeightType;
use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_plan::machine::{Kernels, MatmulRate};

/// The source that is noted for rates that could not be measured because other programs took the processor.
pub const BUSY: &str = "assumed, as the machine is busy";
/// A type with less than this share of a model's bytes is not measured.
const TELLING_SHARE: f64 = 0.01;

/// The rates that the description of a machine lacks for a model.
pub struct Lacking {
    pub bandwidth: bool,
    pub overhead: bool,
    /// Types without rates of ggml's kernels.
    pub types: Vec<WeightType>,
    /// Types without rates of `--kernels fast`.
    pub fast_types: Vec<WeightType>,
    pub fast_attention: bool,
}

impl Lacking {
    pub fn of(machine: &MachineProfile, model: &ModelFile) -> Self {
        let all = types_of(model);
        let types = all.iter().copied().filter(|ty| !machine.cpu.matmul.contains_key(ty.name())).collect();
        let mut fast_types = all;
        fast_types.retain(|ty| has_prompts(*ty) && !machine.cpu.fast.matmul.contains_key(ty.name()));
        Self {
            bandwidth: machine.memory.bandwidth.is_empty(),
            overhead: machine.cpu.layer_overhead_s.is_none(),
            types,
            fast_types,
            fast_attention: machine.cpu.fast.attention.is_none(),
        }
    }

    pub const fn is_nothing(&self) -> bool {
        !self.bandwidth && !self.overhead && self.types.is_empty() && self.is_nothing_fast()
    }

    /// Returns whether no rate of fast kernels is missing.
    pub const fn is_nothing_fast(&self) -> bool {
        self.fast_types.is_empty() && !self.fast_attention
    }

    /// Removes what a run with these kernels does not depend on.
    pub fn with(mut self, kernels: Kernels) -> Self {
        match kernels {
            Kernels::Exact => {
                self.fast_types.clear();
                self.fast_attention = false;
            }
            Kernels::Fast => self.types.retain(|ty| !has_tokens(*ty)),
        }
        self
    }

    /// Removes what was found lately.
    pub fn without(mut self, found: &Found) -> Self {
        self.bandwidth &= !found.bandwidth.is_some_and(|at| is_fresh(at.measured_at));
        self.overhead &= !found.layer_overhead_s.is_some_and(|at| is_fresh(at.measured_at));
        let fresh = |found: &BTreeMap<String, Dated<MatmulRate>>, ty: &WeightType| {
            found.get(ty.name()).is_some_and(|at| is_fresh(at.measured_at))
        };
        self.types.retain(|ty| !fresh(&found.matmul, ty));
        self.fast_types.retain(|ty| !fresh(&found.fast_matmul, ty));
        self.fast_attention &= !found.fast_attention.is_some_and(|at| is_fresh(at.measured_at));
        self
    }

    /// Copies what was found, with its date as the source.
    pub fn take(&self, machine: &mut MachineProfile, found: &Found) {
        if let Some(at) = found.bandwidth.filter(|_| self.bandwidth) {
            machine.memory.bandwidth.push(at.rate);
            machine.sources.insert("memory.bandwidth".into(), probed_at(at.measured_at));
        }
        if let Some(at) = found.layer_overhead_s.filter(|_| self.overhead) {
            machine.cpu.layer_overhead_s = Some(at.rate);
            machine.sources.insert("cpu.layer_overhead_s".into(), probed_at(at.measured_at));
        }
        let products = [
            ("cpu.matmul", &self.types, &found.matmul, &mut machine.cpu.matmul),
            ("cpu.fast.matmul", &self.fast_types, &found.fast_matmul, &mut machine.cpu.fast.matmul),
        ];
        for (place, types, found, rates) in products {
            for ty in types.iter().map(|ty| ty.name()) {
                if let Some(at) = found.get(ty) {
                    rates.insert(ty.into(), at.rate);
                    machine.sources.insert(format!("{place}.{ty}"), probed_at(at.measured_at));
                }
            }
        }
        if let Some(at) = found.fast_attention.filter(|_| self.fast_attention) {
            machine.cpu.fast.attention = Some(at.rate);
            machine.sources.insert("cpu.fast.attention".into(), probed_at(at.measured_at));
        }
    }

    /// Notes why the rates that are still missing are assumed.
    pub fn note_busy(&self, machine: &mut MachineProfile) {
        let places = [
            (self.bandwidth && machine.memory.bandwidth.is_empty(), "memory.bandwidth"),
            (self.overhead && machine.cpu.layer_overhead_s.is_none(), "cpu.layer_overhead_s"),
            (self.fast_attention && machine.cpu.fast.attention.is_none(), "cpu.fast.attention"),
        ];
        let types = self.types.iter().filter(|ty| !machine.cpu.matmul.contains_key(ty.name()));
        let fast = self.fast_types.iter().filter(|ty| !machine.cpu.fast.matmul.contains_key(ty.name()));
        // Without rates of their own, types are multiplied at multiples of ggml's.
        let types = types.chain(fast).map(|ty| format!("cpu.matmul.{}", ty.name()));
        let places = places.into_iter().filter(|(noted, _)| *noted).map(|(_, place)| place.to_owned());
        for place in places.chain(types).collect::<Vec<_>>() {
            machine.sources.insert(place, BUSY.into());
        }
    }
}

/// Returns the types with a significant share of the model's bytes, the largest share first.
pub fn types_of(model: &ModelFile) -> Vec<WeightType> {
    let mut bytes: BTreeMap<WeightType, u64> = BTreeMap::new();
    for tensor in &model.tensors {
        if let Some(ty) = WeightType::from_id(tensor.ty.id) {
            *bytes.entry(ty).or_default() += tensor.extent.len;
        }
    }
    let all: u64 = bytes.values().sum();
    let mut types: Vec<(WeightType, u64)> =
        bytes.into_iter().filter(|(_, part)| *part as f64 >= all as f64 * TELLING_SHARE).collect();
    types.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    types.into_iter().map(|(ty, _)| ty).collect()
}
