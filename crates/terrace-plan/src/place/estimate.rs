//! The expected speed of an assignment.

use super::costs::host_bandwidth;
use super::decode::Decode;
use super::describe::Placed;
use super::range;
use super::round::round;
use super::transfers::Moved;
use crate::options::Expected;
use crate::plan::parts::{Bound, DraftGain, Estimate, PlannedLayer, Ranges, Term, TermKind};
use crate::plan::warning::Note;
use terrace_model::ByteSize;

/// A product that reaches this share of the memory bandwidth is bound by it.
const MEMORY_BOUND: f64 = 0.6;

/// Assumptions of an estimate.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The workload that plans minimise.
    pub expected: Expected,
    /// True if the hit curve was given.
    pub hits_given: bool,
    /// A lower bound of the seconds per token of any plan.
    pub bound: Option<f64>,
    pub drafts: Option<DraftGain>,
}

impl Placed<'_> {
    /// Makes the estimate.
    pub fn estimate(&self, terms: Terms, layers: &[PlannedLayer]) -> Estimate {
        let Self { work, costs, machine, assignment, .. } = self;
        let decode = &assignment.decode(work, costs);
        let Expected { prompt, output, source } = terms.expected;
        let prompt = prompt.clamp(1, work.context.tokens.max(1));
        let prompt_time = assignment.prefill(work, costs);
        let uses = assignment.uses(work, costs);
        let stays: u64 = uses.iter().map(|used| used.resident).sum();
        // A cache fills while the model runs; experts that all fit are read at load.
        let whole = assignment.arena == assignment.cold_experts(work);
        let stays = stays + if whole { assignment.arena } else { 0 };
        let decode_tok_s = costs.clients / decode.total;
        let prefill_tok_s = f64::from(prompt) / prompt_time.total;
        let ttft_ms = prompt_time.total * 1e3;
        let prefill = range::PREFILL.of(machine);
        Estimate {
            decode_tok_s: round(decode_tok_s),
            ranges: Some(Ranges {
                decode_tok_s: range::DECODE.of(machine).rate(decode_tok_s),
                prefill_tok_s: prefill.rate(prefill_tok_s),
                ttft_ms: prefill.time(ttft_ms),
            }),
            prefill_tok_s: round(prefill_tok_s),
            ttft_ms: round(ttft_ms),
            prompt_tokens: prompt,
            output_tokens: output,
            expected: source,
            answer_ms: round((prompt_time.total + costs.output * decode.total) * 1e3),
            load_ms: round(stays as f64 / machine.disk().sequential() * 1e3),
            cold: None,
            bound: self.bound(decode),
            read_per_token: ByteSize((decode.bytes_read / costs.clients) as u64),
            link_per_token: ByteSize((self.over_links(&costs.moved) / costs.clients) as u64),
            hit_rate: work.experts.map(|_| round(decode.hits)),
            ceiling_tok_s: terms.bound.map(|seconds| round(costs.clients / seconds.min(decode.total))),
            drafts: terms.drafts,
            terms: self.terms(decode),
            notes: self.notes(decode, terms, layers),
        }
    }

    /// Returns the bytes that a graph moves to other machines and back.
    pub fn over_links(&self, moved: &Moved) -> f64 {
        let Self { work, costs, machine, assignment, .. } = self;
        let route = assignment.route(work, costs.devices.len() + 1);
        let remote = |index: usize| machine.devices[index].address.is_some();
        let devices = (1..).zip(&costs.devices).filter(|(_, device)| remote(device.index));
        devices.map(|(place, _)| route.bytes(place, moved)).sum()
    }

    /// Returns what limits computing at a place: its memory, unless unpacking is slower.
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
            (Bound::Disk, decode.read_bound + decode.queued() + decode.rows + decode.delays),
            (Bound::Link, decode.hops),
        ];
        // The time of layers that wait for the disk counts for the disk.
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
            let what = format!("dense weights and cache, {}", self.place_name(place));
            push(TermKind::Dense, what, decode.dense[place], self.place_bound(place), false);
        }
        push(
            TermKind::Experts,
            "experts, slowest processor of each layer".into(),
            decode.lanes,
            self.place_bound(0),
            false,
        );
        for place in (0..decode.experts.len()).filter(|_| decode.experts.len() > 1) {
            let what = format!("experts, {}", self.place_name(place));
            push(TermKind::Experts, what, decode.experts[place], self.place_bound(place), true);
        }
        push(
            TermKind::Waiting,
            "waiting for experts".into(),
            decode.waits + decode.queued() + decode.delays,
            Bound::Disk,
            false,
        );
        push(TermKind::Waiting, "rows of tables".into(), decode.rows, Bound::Disk, false);
        push(TermKind::Link, "transfers between processors".into(), decode.hops, Bound::Link, false);
        push(TermKind::Reading, "reading experts".into(), decode.expert_reads, Bound::Disk, true);
        push(TermKind::Reading, "reading matrices".into(), decode.matrix_reads, Bound::Disk, true);
        let behind = decode.total - decode.computing();
        push(TermKind::Waiting, "waiting for matrices".into(), behind, Bound::Disk, false);
        terms
    }

    fn notes(&self, decode: &Decode, terms: Terms, layers: &[PlannedLayer]) -> Vec<Note> {
        let Self { work, assignment, machine, .. } = self;
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
            if assignment.arena < cycle {
                let (cache, token) = (ByteSize(assignment.arena), ByteSize(cycle));
                notes.push(Note::CacheBelowToken { cache, token });
            }
            notes.push(Note::ExpectedHits {
                hits: round(decode.hits),
                given: terms.hits_given,
                used: top_k,
                experts: count,
                resident: round(cached),
            });
        }
        if machine.storage.is_empty() {
            notes.push(Note::StorageUnmeasured);
        }
        if let Some(device) = machine.unified() {
            let offloads = machine.offloading().is_some_and(|offloading| offloading.name == device.name);
            let device = device.name.clone();
            notes.push(match self.costs.paths.offload.filter(|_| offloads) {
                Some(tokens) => Note::UnifiedBatches { device, tokens },
                None => Note::UnifiedUnused { device },
            });
        }
        if machine.memory.bandwidth.is_empty() {
            let bytes_per_s = machine.memory_bandwidth(machine.cpu.cores);
            notes.push(Note::BandwidthUnmeasured { bytes_per_s });
        }
        notes
    }
}
