//! Scaling of a model over workers: the plans of all of them, by the
//! same cost model.

mod worker;

pub use worker::Link;

use crate::error::PlanError;
use crate::machine::MachineProfile;
use crate::place::assignment::Assignment;
use crate::place::decode::Decode;
use crate::place::describe::Placed;
use crate::place::round::round;
use crate::plan::Mode;
use crate::plan::parts::{Bound, Estimate};
use crate::planning::Planning;
use crate::wishes::Wishes;
use serde::Serialize;
use terrace_model::{ByteSize, ModelFile};

/// A machine with the model's file, and workers.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// The machine with the file.
    pub home: &'a MachineProfile,
    /// Each of the workers, which lends its accelerators, or its processor and RAM if it has none.
    pub worker: &'a MachineProfile,
    /// The link between home and each worker.
    pub link: Link,
    /// Their price.
    pub prices: Prices,
}

/// Prices per hour, in any currency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prices {
    /// Of the machine with the file.
    pub home: f64,
    pub worker: f64,
}

/// Result for a number of workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Number of workers.
    pub workers: u32,
    /// Number of clients that are answered at the same time.
    pub clients: u32,
    /// Number of workers with layers or experts.
    pub used: usize,
    /// Layers on workers, the output head included, and all layers.
    pub layers_away: usize,
    /// See `layers_away`.
    pub layers: usize,
    /// Share of the routed experts that workers have.
    pub experts_away: f64,
    /// The mode of weights at home.
    pub mode: Mode,
    /// Generated tokens per second of all clients together.
    pub decode_tok_s: f64,
    /// Prompt tokens per second.
    pub prefill_tok_s: f64,
    /// Milliseconds from a prompt to its first token.
    pub ttft_ms: f64,
    /// Bytes per generated token that are read from disk.
    pub read_per_token: ByteSize,
    /// Bytes per generated token over all links.
    pub link_per_token: ByteSize,
    /// Bytes per token of the prompt over all links.
    pub link_per_prompt_token: ByteSize,
    /// Bytes of weights that workers get when the model is loaded.
    pub sent_at_load: ByteSize,
    /// The resource with the largest part of a generated token's time.
    pub bound: Bound,
    /// Shares of that time.
    pub busy: Busy,
    /// Price of a million generated tokens, their prompts included; `None` without prices.
    pub per_million: Option<f64>,
}

/// Shares of the time of a generated token during which something is busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Busy {
    /// The processor and the RAM of home, and its own accelerators.
    pub home: f64,
    /// All workers together: they take turns.
    pub workers: f64,
    /// The busiest worker.
    pub worker: f64,
    /// Links, with their latency.
    pub links: f64,
    pub disk: f64,
}

/// Plans a model on a fleet with `workers` workers.
///
/// # Errors
/// As [`plan`](crate::plan()); also if a machine's description cannot be used.
pub fn scaled(
    model: &ModelFile,
    fleet: &Fleet<'_>,
    wishes: &Wishes,
    workers: u32,
) -> Result<Point, PlanError> {
    fleet.home.check()?;
    fleet.worker.check()?;
    let machine = fleet.machine(model, workers);
    wishes.check_devices(&machine)?;
    let planning = Planning::of(model, &machine, wishes)?;
    let (plan, assignment) = planning.run()?;
    let Some(estimate) = &plan.estimate else { return Err(PlanError::NoLayers) };
    let Planning { work, costs, .. } = &planning;
    let decode = assignment.decode(work, costs);
    let placed = Placed {
        model,
        machine: &planning.machine,
        work,
        costs,
        assignment: &assignment,
        experts_stream: false,
    };
    let prompt = costs.batches.iter().map(|batch| batch.times * placed.over_links(&batch.moved));
    let per_prompt_token = prompt.sum::<f64>() / f64::from(estimate.prompt_tokens.max(1));
    let of_workers = Shares { planning: &planning, decode: &decode };
    let (used, sent) = of_workers.held(&assignment);
    Ok(Point {
        workers,
        clients: wishes.clients.max(1),
        used,
        layers_away: assignment.homes.iter().filter(|&&home| of_workers.worker(home).is_some()).count(),
        layers: assignment.homes.len(),
        experts_away: of_workers.experts(&assignment),
        mode: plan.mode,
        decode_tok_s: estimate.decode_tok_s,
        prefill_tok_s: estimate.prefill_tok_s,
        ttft_ms: estimate.ttft_ms,
        read_per_token: estimate.read_per_token,
        link_per_token: estimate.link_per_token,
        link_per_prompt_token: ByteSize(per_prompt_token as u64),
        sent_at_load: sent,
        bound: estimate.bound,
        busy: of_workers.busy(),
        per_million: fleet.prices.per_million(workers, estimate),
    })
}

impl Prices {
    /// Returns the price of a million generated tokens, with the time of their prompts.
    fn per_million(&self, workers: u32, estimate: &Estimate) -> Option<f64> {
        let hour = self.home + self.worker * f64::from(workers);
        let seconds = estimate.answer_ms / 1e3 / f64::from(estimate.output_tokens.max(1));
        (hour > 0.0).then(|| round(hour / 3600.0 * seconds * 1e6))
    }
}

/// Who is busy for how long with a token.
struct Shares<'a> {
    planning: &'a Planning<'a>,
    decode: &'a Decode,
}

impl Shares<'_> {
    /// Returns the worker to which a place belongs; `None` for places at home.
    fn worker(&self, place: usize) -> Option<&str> {
        let device = self.planning.costs.devices.get(place.checked_sub(1)?)?;
        self.planning.machine.devices[device.index].address.as_deref()
    }

    /// Returns the number of workers that hold something, and the bytes of it.
    fn held(&self, assignment: &Assignment) -> (usize, ByteSize) {
        let Planning { work, costs, .. } = self.planning;
        let uses = assignment.uses(work, costs);
        let there = (0..uses.len()).filter(|&place| uses[place].weights() > 0);
        let mut there: Vec<(&str, u64)> =
            there.filter_map(|place| Some((self.worker(place)?, uses[place].weights()))).collect();
        let bytes = there.iter().map(|(_, bytes)| bytes).sum();
        there.sort_unstable();
        there.dedup_by_key(|(worker, _)| *worker);
        (there.len(), ByteSize(bytes))
    }

    /// Returns the share of the experts' bytes that workers have.
    fn experts(&self, assignment: &Assignment) -> f64 {
        let layers = self.planning.work.layers.iter().enumerate();
        let (mut away, mut all) = (0.0, 0.0);
        for (layer, experts) in layers.filter_map(|(at, load)| Some((at, load.experts.as_ref()?))) {
            all += experts.bytes as f64;
            if self.worker(assignment.homes[layer]).is_some() {
                away += experts.bytes as f64 * f64::from(assignment.hot[layer]) / f64::from(experts.count);
            }
        }
        if all > 0.0 { round(away / all) } else { 0.0 }
    }

    fn busy(&self) -> Busy {
        let decode = self.decode;
        let seconds = |place: usize| decode.dense[place] + decode.experts[place];
        let (mut home, mut away) = (0.0, std::collections::BTreeMap::<&str, f64>::new());
        for place in 0..decode.dense.len() {
            match self.worker(place) {
                None => home += seconds(place),
                Some(worker) => *away.entry(worker).or_default() += seconds(place),
            }
        }
        // Sums of nothing are negative zeros.
        let share = |seconds: f64| round(seconds.max(0.0) / decode.total.max(f64::MIN_POSITIVE)) + 0.0;
        Busy {
            home: share(home),
            workers: share(away.values().sum()),
            worker: share(away.values().copied().fold(0.0, f64::max)),
            links: share(decode.hops),
            disk: share(decode.reading()),
        }
    }
}
