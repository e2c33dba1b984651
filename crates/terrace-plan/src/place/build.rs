//! From an assignment to the report on it.

use super::assignment::Decode;
use super::costs::{Costs, host_bandwidth};
use super::prefill::prefill;
use super::report::{
    Bound, Estimate, PLACEMENT_VERSION, PlacedContext, PlacedExperts, PlacedLayer, PlacedMode, PlacedModel,
    Placement, Term, TermKind, TierUse,
};
use super::request::PlaceRequest;
use super::workload::Workload;
use crate::machine::MachineProfile;
use crate::model::class::TensorClass;
use crate::planners::choose::Chosen;
use std::collections::BTreeSet;
use terrace_model::{ByteSize, ModelFile};

/// Experts of which a token uses less than this share count as sparse (the seeds' rule).
const SPARSE_USE: f64 = 0.15;
/// What a token uses must be below this share of RAM for the page cache to serve as well (the seeds' rule).
const SPARSE_ACTIVE: f64 = 0.30;
/// Share of the memory's bandwidth above which a product is bound by it.
const MEMORY_BOUND: f64 = 0.6;

/// Everything that the report is made of.
pub struct Planned<'a> {
    pub model: &'a ModelFile,
    pub machine: &'a MachineProfile,
    pub request: &'a PlaceRequest,
    pub work: &'a Workload,
    pub costs: &'a Costs,
    pub chosen: &'a Chosen,
}

impl Planned<'_> {
    /// The whole report.
    pub fn report(&self) -> Placement {
        let Self { model, machine, work, chosen, .. } = self;
        let assignment = &chosen.assignment;
        let decode = assignment.decode(work, self.costs);
        let layers = self.layers();
        let mode = self.mode(&layers);
        let name = |index: usize| model.tensors[index].name.clone();
        let mut streamed: Vec<usize> = (0..work.matrices.len())
            .filter(|&i| assignment.streamed[i])
            .map(|i| work.matrices[i].tensor)
            .collect();
        streamed.sort_unstable();
        let tables = work.tables.iter().filter(|_| assignment.tables_streamed);
        Placement {
            version: PLACEMENT_VERSION,
            model: PlacedModel {
                name: model.str("general.name").unwrap_or_else(|| model.architecture()).to_owned(),
                architecture: model.architecture().to_owned(),
                tensors: model.tensors.len() as u64,
                bytes: model.size(),
            },
            machine: machine.name.clone(),
            mode,
            summary: summary(mode, &layers),
            planner: chosen.planner,
            context: PlacedContext {
                tokens: work.context.tokens,
                kv_type: work.context.kv_type,
                cache: ByteSize(work.layers.iter().map(|layer| layer.cache).sum()),
                compute: ByteSize(work.context.compute),
            },
            tiers: self.tiers(),
            notes: self.notes(&decode, &layers),
            layers,
            streamed: streamed.into_iter().map(name).collect(),
            read_by_row: tables.map(|table| name(table.tensor)).collect(),
            estimate: self.estimate(&decode),
        }
    }

    fn place_name(&self, place: usize) -> String {
        if place == 0 {
            return "ram".into();
        }
        self.machine.devices[self.costs.devices[place - 1].index].name.clone()
    }

    /// Share of the experts that are on no device which RAM holds.
    fn cached(&self) -> f64 {
        let cold = self.chosen.assignment.cold_experts(self.work);
        if cold == 0 { 1.0 } else { (self.chosen.assignment.arena as f64 / cold as f64).min(1.0) }
    }

    fn layers(&self) -> Vec<PlacedLayer> {
        let Self { work, costs, chosen, .. } = self;
        let assignment = &chosen.assignment;
        let cached = self.cached();
        let layer = |(index, load): (usize, &super::workload::LayerLoad)| {
            let streamed =
                work.matrices.iter().zip(&assignment.streamed).filter(|(m, s)| **s && m.layer == index);
            let streamed: Vec<_> = streamed.map(|(matrix, _)| matrix).collect();
            let bytes: u64 = streamed.iter().map(|matrix| matrix.bytes).sum();
            let home = assignment.homes[index];
            let experts = load.experts.as_ref().map(|experts| {
                let share =
                    if home > 0 { f64::from(assignment.hot[index]) / f64::from(experts.count) } else { 0.0 };
                let in_ram = cached * (1.0 - share);
                PlacedExperts {
                    count: experts.count,
                    used: experts.top_k,
                    bytes: ByteSize(experts.bytes),
                    on_device: if home > 0 { assignment.hot[index] } else { 0 },
                    in_ram: round(in_ram),
                    on_disk: round((1.0 - share - in_ram).max(0.0)),
                    hits: round(costs.curve.hits(share + in_ram)),
                }
            });
            let missing = experts.is_some_and(|experts| experts.on_disk > 0.0);
            let ffn = |class| matches!(class, TensorClass::DenseFfn | TensorClass::SharedExpert);
            let mode = match (missing, streamed.is_empty()) {
                (false, true) => PlacedMode::FullResident,
                (true, true) => PlacedMode::ExpertStreaming,
                (false, false) if streamed.iter().all(|matrix| ffn(matrix.class)) => {
                    PlacedMode::DenseFfnStreaming
                }
                _ => PlacedMode::MixedStreaming,
            };
            PlacedLayer {
                layer: load.id.map(|id| id.0),
                mode,
                home: self.place_name(home),
                resident: ByteSize(load.dense - bytes),
                streamed: ByteSize(bytes),
                experts,
            }
        };
        work.layers.iter().enumerate().map(layer).collect()
    }

    fn mode(&self, layers: &[PlacedLayer]) -> PlacedMode {
        let modes: BTreeSet<u8> = layers.iter().map(|layer| layer.mode as u8).collect();
        let any = |mode: PlacedMode| modes.contains(&(mode as u8));
        let (experts, ffn) = (any(PlacedMode::ExpertStreaming), any(PlacedMode::DenseFfnStreaming));
        match (experts, ffn, any(PlacedMode::MixedStreaming)) {
            (false, false, false) if self.is_sparse() => PlacedMode::SparseMoeMmap,
            (false, false, false) => PlacedMode::FullResident,
            (true, false, false) => PlacedMode::ExpertStreaming,
            (false, true, false) => PlacedMode::DenseFfnStreaming,
            _ => PlacedMode::MixedStreaming,
        }
    }

    /// Few experts are used and all of it is in RAM: then the page cache serves as well as memory of our own (decision
    /// 0010: past the memory there is, it loses to slots by far).
    fn is_sparse(&self) -> bool {
        let active = |layer: &super::workload::LayerLoad| {
            let experts = layer.experts.as_ref().map_or(0.0, |experts| experts.bytes as f64 * experts.used());
            layer.dense as f64 + experts
        };
        let active: f64 = self.work.layers.iter().map(active).sum();
        let used = self.work.experts.map_or(1.0, |(count, top_k)| f64::from(top_k) / f64::from(count));
        let in_ram = self.chosen.assignment.homes.iter().all(|&home| home == 0);
        in_ram && used < SPARSE_USE && active < SPARSE_ACTIVE * self.costs.ram as f64
    }

    fn tiers(&self) -> Vec<TierUse> {
        let Self { work, costs, chosen, .. } = self;
        let assignment = &chosen.assignment;
        let uses = assignment.uses(work, costs);
        let mut tiers = Vec::new();
        for (place, used) in uses.iter().enumerate() {
            let room = match place {
                0 => costs.ram_budget.map_or(costs.ram, |budget| budget + used.context()),
                place => costs.devices[place - 1].room,
            };
            // Experts that all fit are no cache.
            let cold = assignment.cold_experts(work);
            let (stay, cache) =
                if place == 0 && used.arena == cold { (used.arena, 0) } else { (0, used.arena) };
            tiers.push(TierUse {
                tier: self.place_name(place),
                room: Some(ByteSize(room)),
                weights: ByteSize(used.resident + stay),
                expert_cache: ByteSize(cache),
                ring: ByteSize(used.ring),
                context: ByteSize(used.context()),
            });
        }
        // The order of the profile.
        tiers[1..]
            .sort_by_key(|tier| self.machine.devices.iter().position(|device| device.name == tier.tier));
        let held: u64 = uses.iter().map(|used| used.resident + used.arena).sum();
        tiers.push(TierUse {
            tier: "disk".into(),
            room: None,
            weights: self.model.size().saturating_sub(ByteSize(held)),
            expert_cache: ByteSize::ZERO,
            ring: ByteSize::ZERO,
            context: ByteSize::ZERO,
        });
        tiers
    }

    fn estimate(&self, decode: &Decode) -> Estimate {
        let Self { work, costs, machine, request, chosen, .. } = self;
        let prompt = request.prompt.clamp(1, work.context.tokens.max(1));
        let prompt_time = prefill(&chosen.assignment, work, costs, machine, request.ubatch, prompt);
        let uses = chosen.assignment.uses(work, costs);
        let stays: u64 = uses.iter().map(|used| used.resident).sum();
        // A cache fills while the model runs; what fits whole is read before.
        let whole = chosen.assignment.arena == chosen.assignment.cold_experts(work);
        let stays = stays + if whole { chosen.assignment.arena } else { 0 };
        Estimate {
            decode_tok_s: round(1.0 / decode.total),
            prefill_tok_s: round(f64::from(prompt) / prompt_time.total),
            ttft_ms: round(prompt_time.total * 1e3),
            prompt_tokens: prompt,
            load_ms: round(stays as f64 / machine.disk().sequential() * 1e3),
            bound: self.bound(decode),
            read_per_token: ByteSize(decode.bytes_read as u64),
            hit_rate: work.experts.map(|_| round(decode.hits)),
            ceiling_tok_s: chosen.bound.map(|seconds| round(1.0 / seconds.min(decode.total))),
            terms: self.terms(decode),
        }
    }

    /// What computing at a place is bound by: its memory, unless unpacking is slower.
    fn place_bound(&self, place: usize) -> Bound {
        let Self { work, machine, costs, .. } = self;
        let types = work.layers.iter().flat_map(|layer| {
            layer.dense_types.iter().chain(layer.experts.iter().flat_map(|experts| &experts.types))
        });
        let Some(main) = types.max_by_key(|load| load.bytes) else { return Bound::Compute };
        let (rate, bandwidth) = match place {
            0 => (machine.host_decode_rate(&main.ty), host_bandwidth(machine)),
            place => {
                let device = &machine.devices[costs.devices[place - 1].index];
                (device.decode_rate(&main.ty), device.bandwidth())
            }
        };
        if rate >= MEMORY_BOUND * bandwidth { Bound::Memory } else { Bound::Compute }
    }

    fn bound(&self, decode: &Decode) -> Bound {
        if decode.reading() >= decode.computing() {
            return Bound::Disk;
        }
        let mut spent = vec![
            (Bound::Disk, decode.read_bound + decode.queued() + decode.rows),
            (Bound::Link, decode.hops),
        ];
        // Of the layers' slowest lanes, those that wait for the disk are the disk's.
        let lanes = (decode.lanes + decode.waits - decode.read_bound).max(0.0);
        let all: f64 = decode.experts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for place in 0..decode.dense.len() {
            let experts = lanes * decode.experts[place] / all;
            spent.push((self.place_bound(place), decode.dense[place] + experts));
        }
        let total = |bound| spent.iter().filter(|(of, _)| *of == bound).map(|(_, s)| s).sum::<f64>();
        let order = [Bound::Disk, Bound::Memory, Bound::Compute, Bound::Link];
        let most = order.into_iter().max_by(|&a, &b| total(a).total_cmp(&total(b)).then(b.cmp(&a)));
        most.expect("four of them")
    }

    fn terms(&self, decode: &Decode) -> Vec<Term> {
        let mut terms = Vec::new();
        let mut push = |kind, what: String, seconds: f64, resource, beside| {
            if seconds > 0.0 {
                terms.push(Term { what, kind, ms: round(seconds * 1e3), resource, beside });
            }
        };
        for place in 0..decode.dense.len() {
            let what = format!("dense weights and cache in {}", self.place_name(place));
            push(TermKind::Dense, what, decode.dense[place], self.place_bound(place), false);
        }
        push(
            TermKind::Experts,
            "experts, each layer's slowest lane".into(),
            decode.lanes,
            self.place_bound(0),
            false,
        );
        for place in (0..decode.experts.len()).filter(|_| decode.experts.len() > 1) {
            let what = format!("experts in {}", self.place_name(place));
            push(TermKind::Experts, what, decode.experts[place], self.place_bound(place), true);
        }
        push(
            TermKind::Waiting,
            "waiting for experts".into(),
            decode.waits + decode.queued(),
            Bound::Disk,
            false,
        );
        push(TermKind::Waiting, "rows of tables".into(), decode.rows, Bound::Disk, false);
        push(TermKind::Link, "handing over between processors".into(), decode.hops, Bound::Link, false);
        push(TermKind::Reading, "reading experts".into(), decode.expert_reads, Bound::Disk, true);
        push(TermKind::Reading, "reading matrices".into(), decode.matrix_reads, Bound::Disk, true);
        let behind = decode.total - decode.computing();
        push(TermKind::Waiting, "waiting for matrices".into(), behind, Bound::Disk, false);
        terms
    }

    fn notes(&self, decode: &Decode, layers: &[PlacedLayer]) -> Vec<String> {
        let Self { work, costs, chosen, machine, .. } = self;
        let mut notes = Vec::new();
        let cached = self.cached();
        if let Some((count, top_k)) = work.experts
            && layers.iter().any(|layer| layer.experts.is_some_and(|experts| experts.on_disk > 0.0))
        {
            let cycle: u64 = work
                .layers
                .iter()
                .filter_map(|layer| layer.experts.as_ref())
                .map(|experts| (experts.bytes as f64 * experts.used()) as u64)
                .sum();
            if chosen.assignment.arena < cycle {
                notes.push(format!(
                    "the expert cache of {} is less than the {} of one token's experts: `--cache-policy lfru` hits, LRU would not",
                    ByteSize(chosen.assignment.arena),
                    ByteSize(cycle)
                ));
            }
            let source = if self.request.hits.is_some() { "the given curve" } else { "the usual curve" };
            notes.push(format!(
                "{:.0} % of expert uses hit, by {source} for {top_k} of {count} experts with {:.0} % resident",
                decode.hits * 100.0,
                cached * 100.0
            ));
        }
        if machine.storage.is_empty() {
            notes.push("no storage was measured: 3 GB/s are assumed".into());
        }
        if machine.memory.bandwidth.is_empty() && machine.unified().is_none() {
            let rate = machine.memory_bandwidth(machine.cpu.cores) / 1e9;
            notes.push(format!("memory bandwidth was not measured: {rate:.0} GB/s are assumed"));
        }
        let uses = chosen.assignment.uses(work, costs);
        let taken = uses[0].weights() + uses[0].context();
        if taken > costs.ram {
            notes.push(format!(
                "weights and context take {}, but only {} of RAM can be used: the system may swap or end the process",
                ByteSize(taken),
                ByteSize(costs.ram)
            ));
        }
        notes
    }
}

/// The mode, hot lanes, and the layers' own modes where they differ.
fn summary(mode: PlacedMode, layers: &[PlacedLayer]) -> String {
    let mut out = mode.to_string();
    let lanes =
        |layer: &&PlacedLayer| layer.experts.is_some_and(|e| e.on_device > 0 && e.on_device < e.count);
    let devices: BTreeSet<&str> = layers.iter().filter(lanes).map(|layer| layer.home.as_str()).collect();
    if !devices.is_empty() {
        out += &format!(" with hot lanes on {}", devices.into_iter().collect::<Vec<_>>().join(", "));
    }
    let of = |mode: PlacedMode| layers.iter().filter(|layer| layer.mode == mode).count();
    let kinds = [
        PlacedMode::FullResident,
        PlacedMode::ExpertStreaming,
        PlacedMode::DenseFfnStreaming,
        PlacedMode::MixedStreaming,
    ];
    let parts: Vec<String> =
        kinds.into_iter().filter(|&k| of(k) > 0).map(|k| format!("{} {k}", of(k))).collect();
    if parts.len() > 1 {
        out += &format!(" (layers: {})", parts.join(", "));
    }
    out
}

/// Four digits are more than a model of a machine knows.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
