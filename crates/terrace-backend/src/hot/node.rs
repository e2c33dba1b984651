//! The part of lanes in a node: choosing pairs, handing them over, and taking the results.

use super::balance::Returned;
use super::lane::Job;
use super::lanes::Lanes;
use super::work::Ended;
use crate::error::BackendError;
use crate::routing::Routing;
use std::ffi::c_void;
use std::time::{Duration, Instant};
use terrace_ggml::Tensor;
use terrace_store::{Store, Use};

/// Bytes of rows, input and output together, that a job holds in main memory at most.
const JOB: usize = 128 << 20;
/// Marks input rows that are not part of the job.
const NOT_THERE: u32 = u32::MAX;

/// The node that is being computed. Reused for its buffers.
#[derive(Default)]
pub(super) struct Node {
    /// The layer that a lane is computing.
    busy: Option<usize>,
    /// Whether it is part of a prefill.
    sweep: bool,
    /// By touched expert, whether the lane computes it.
    taken: Vec<bool>,
    /// Touched experts that have copies, those with the most pairs first.
    order: Vec<usize>,
    /// Output rows, in the order of the job's pairs.
    outputs: Vec<usize>,
    /// For each row of the input, its place among the job's.
    places: Vec<u32>,
    /// The layer of which the CPU is computing a part, its number of pairs, and when it began.
    measured: Option<(usize, usize, Instant)>,
}

/// Where the rows of a node's pairs are.
#[derive(Clone, Copy)]
pub struct PairRows<'a> {
    pub input: Tensor<'a>,
    /// For each pair of the routing, its row of the input (second).
    pub inputs: &'a [[i32; 2]],
    /// For each pair of the routing, its row of the output (first).
    pub outputs: &'a [[i32; 2]],
}

impl Lanes {
    /// Starts a node of the layer: pairs of some experts that have copies go to the lane. Returns
    /// whether there are any; [`Lanes::took`] says which.
    pub(crate) fn begin(&mut self, index: usize, routing: &Routing, rows: PairRows<'_>) -> bool {
        self.reached = self.reached.max(Some(index));
        self.tokens = self.tokens.max(u32::try_from(routing.tokens()).unwrap_or(u32::MAX));
        for (i, &expert) in routing.touched().iter().enumerate() {
            self.cache.used(index, expert, routing.range(i).len() as u32);
        }
        self.node.sweep = routing.how() == Use::Sweep;
        self.node.taken.clear();
        self.node.taken.resize(routing.touched().len(), false);
        let works = self.layers[index].adopted.is_some();
        let hot = match (works, self.node.sweep) {
            (false, _) => 0,
            (true, true) => self.choose_of_prompt(index, routing),
            (true, false) => {
                self.decoding = true;
                self.choose_of_token(index, routing)
            }
        };
        let (there, here) = self.layers[index].counts.sides(self.node.sweep);
        *there += hot as u64;
        *here += (routing.pairs() - hot) as u64;
        let has = |expert: &u32| self.cache.slot_of(index, *expert).is_some();
        let has = hot > 0 || routing.touched().iter().any(has);
        self.layers[index].tally.begin(hot, routing.pairs() - hot, works, has);
        if works {
            self.node.measured = Some((index, routing.pairs() - hot, Instant::now()));
        }
        if hot > 0 {
            self.hand_over(index, routing, rows);
        }
        hot > 0
    }

    /// Whether the lane computes a touched expert of the current node, given by its index.
    pub(crate) fn took(&self, touched: usize) -> bool {
        self.node.taken[touched]
    }

    /// Takes all experts with copies, or none if the round trip does not pay. Returns their number of
    /// pairs.
    fn choose_of_token(&mut self, index: usize, routing: &Routing) -> usize {
        let mut hot = 0;
        for (i, &expert) in routing.touched().iter().enumerate() {
            self.node.taken[i] = self.cache.slot_of(index, expert).is_some();
            hot += if self.node.taken[i] { routing.range(i).len() } else { 0 };
        }
        if hot > 0 && !self.always && !self.layers[index].worth.pays(hot, routing.pairs()) {
            self.node.taken.fill(false);
            return 0;
        }
        hot
    }

    /// Takes as many of the experts with copies as let lane and CPU be done at about the same time,
    /// those with the most pairs first. Returns their number of pairs.
    fn choose_of_prompt(&mut self, index: usize, routing: &Routing) -> usize {
        let layer = &self.layers[index];
        let pairs_of = |i: usize| routing.range(i).len();
        let order = &mut self.node.order;
        order.clear();
        let touched = routing.touched().iter().enumerate();
        order.extend(
            touched.filter(|(_, expert)| self.cache.slot_of(index, **expert).is_some()).map(|(i, _)| i),
        );
        if order.is_empty() {
            return 0;
        }
        order.sort_unstable_by_key(|&i| (std::cmp::Reverse(pairs_of(i)), i));
        let mut split = self.balances[layer.balance].2.split(routing.pairs());
        let most = JOB / (2 * size_of::<f32>() * layer.out_width.max(1));
        let mut hot = 0;
        for &i in order.iter() {
            let pairs = pairs_of(i);
            if hot + pairs > most {
                continue;
            }
            if self.always {
                split.add(pairs, 0);
            }
            if self.always || split.takes(pairs, 0) {
                self.node.taken[i] = true;
                hot += pairs;
            }
        }
        hot
    }

    /// Gives the lane the pairs of the taken experts.
    fn hand_over(&mut self, index: usize, routing: &Routing, rows: PairRows<'_>) {
        let layer = &self.layers[index];
        let Node { sweep, taken, outputs, places, busy, .. } = &mut self.node;
        let lane = &mut self.lanes[layer.lane];
        let job = lane.job();
        let Job { layer: key, rows: job_rows, inputs, slots, experts, out, .. } = job;
        job_rows.clear();
        inputs.clear();
        slots.clear();
        experts.clear();
        outputs.clear();
        let [width, per_token, tokens, _] = rows.input.ne().map(|n| n.unsigned_abs() as usize);
        let shared = per_token * tokens == 1;
        if *sweep {
            places.clear();
            places.resize(per_token * tokens, NOT_THERE);
        }
        let row = |row: usize| row_of(rows.input, row, width, per_token);
        let at = |all: &[[i32; 2]], pair: usize, side: usize| all[pair][side].unsigned_abs() as usize;
        let touched = routing.touched().iter().enumerate();
        for (i, &expert) in touched.filter(|(i, _)| taken[*i]) {
            let slot = self.cache.slot_of(index, expert).expect("only experts with copies are taken");
            for pair in routing.range(i) {
                slots.push(slot.cast_signed());
                experts.push(expert.cast_signed());
                outputs.push(at(rows.outputs, pair, 0));
                let from = at(rows.inputs, pair, 1);
                if *sweep {
                    if places[from] == NOT_THERE {
                        places[from] = u32::try_from(job_rows.len() / width).expect("rows of a batch");
                        job_rows.extend_from_slice(row(from));
                    }
                    inputs.push(places[from]);
                } else if !shared {
                    job_rows.extend_from_slice(row(from));
                }
            }
        }
        if shared {
            job_rows.extend_from_slice(row(0));
        }
        *key = Some(layer.key);
        out.resize(outputs.len() * layer.out_width, 0.0);
        lane.start();
        *busy = Some(index);
    }

    /// Ends the node: waits for the lane, and copies its rows into the output, whose rows are
    /// `stride` bytes apart.
    ///
    /// # Errors
    /// Errors of the lane. The CPU then has to compute its pairs, and computes the layer alone from
    /// now on.
    ///
    /// # Safety
    /// `output` is valid for the output rows of the pairs that were handed over, in which nothing
    /// else writes or reads meanwhile.
    pub(crate) unsafe fn finish(
        &mut self,
        output: *mut c_void,
        stride: usize,
        store: &mut Store,
    ) -> Result<(), BackendError> {
        let cpu = self.note_cpu();
        let Some(index) = self.node.busy.take() else { return Ok(()) };
        let outputs = &self.node.outputs;
        let layer = &mut self.layers[index];
        let asked = Instant::now();
        let job = match self.lanes[layer.lane].finish() {
            Ok(job) => job,
            Err(error) => {
                let (pairs, lane) = (outputs.len() as u64, layer.lane);
                let (there, here) = layer.counts.sides(self.node.sweep);
                *there -= pairs;
                *here += pairs;
                layer.tally.failed += 1;
                self.joined(&Ended { index, pairs: 0, computed: None }, asked, store);
                self.fail(lane, &error);
                return Err(error.into());
            }
        };
        let ended = Ended { index, pairs: outputs.len(), computed: job.computed };
        let copying = Instant::now();
        let width = job.out.len() / outputs.len().max(1);
        for (row, values) in outputs.iter().zip(job.out.chunks_exact(width.max(1))) {
            // SAFETY: the caller's contract.
            unsafe {
                let to = output.cast::<u8>().add(row * stride).cast::<f32>();
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, width);
            }
        }
        match self.node.sweep {
            true => {
                let (pairs, took) = (outputs.len(), job.took + copying.elapsed());
                self.balances[layer.balance].2.returned(Returned { pairs, took, ..Returned::default() });
            }
            false => layer.worth.returned(job.took),
        }
        layer.tally.round_trips += job.took;
        let waited = self.joined(&ended, asked, store);
        self.layers[index].tally.together += cpu + waited;
        Ok(())
    }

    /// Notes how long the CPU took for its pairs, and returns it.
    fn note_cpu(&mut self) -> Duration {
        let Some((index, pairs, begin)) = self.node.measured.take() else { return Duration::ZERO };
        let (layer, took) = (&mut self.layers[index], begin.elapsed());
        match self.node.sweep {
            true => self.balances[layer.balance].2.computed(pairs, took),
            false => layer.worth.computed(pairs, took),
        }
        layer.tally.cpu += took;
        took
    }

    /// Ends a run, perhaps within a node.
    pub(crate) fn end(&mut self) {
        self.node.measured = None;
        if let Some(index) = self.node.busy.take() {
            // The run has already failed or was stopped.
            let lane = &mut self.lanes[self.layers[index].lane];
            lane.abandon();
            let _ = lane.finish();
        }
    }
}

/// A row of activations.
fn row_of<'g>(input: Tensor<'g>, row: usize, width: usize, per_token: usize) -> &'g [f32] {
    let [_, slot_stride, token_stride, _] = input.nb();
    let offset = row % per_token * slot_stride + row / per_token * token_stride;
    // SAFETY: the input is an F32 tensor with dense rows that was computed before the node, and the
    // row is one of its rows.
    unsafe { std::slice::from_raw_parts(input.data().cast::<u8>().add(offset).cast::<f32>(), width) }
}
