//! The part of lanes in a node: choosing pairs, handing them over, and taking the results.

use super::balance::Returned;
use super::current::{LaneShare, Measured, Node};
use super::lane::{Job, bundle};
use super::lanes::{Lanes, Sending};
use super::layer::HotLayer;
use super::misses::NodePairs;
use super::parcels::Parcel;
use super::work::FinishedJob;
use std::ffi::c_void;
use std::time::{Duration, Instant};
use terrace_backend::BackendError;
use terrace_backend::Routing;
use terrace_backend::{MATRICES, PairRows};
use terrace_ggml::Tensor;
use terrace_store::{BlockId, Store, Use};

/// Bytes of rows, input and output together, that a job holds in main memory at most.
const JOB: usize = 128 << 20;

impl Lanes {
    /// Starts a node of the layer: pairs of some experts go to the lane. Returns whether there are
    /// any; [`Lanes::took`] and [`Lanes::awaits`] say which.
    pub(crate) fn begin(
        &mut self,
        index: usize,
        routing: &Routing,
        rows: PairRows<'_>,
        store: &Store,
    ) -> bool {
        self.reached = self.reached.max(Some(index));
        self.tokens = self.tokens.max(u32::try_from(routing.tokens()).unwrap_or(u32::MAX));
        for (i, &expert) in routing.touched().iter().enumerate() {
            self.cache.used(index, expert, routing.range(i).len() as u32);
        }
        self.node.sweep = routing.how() == Use::Sweep;
        self.node.prefill = self.is_prefill(self.node.sweep);
        self.node.parts.clear();
        self.node.parts.resize(routing.touched().len(), LaneShare::None);
        self.node.sent.clear();
        self.node.handed = 0;
        let works = self.layers[index].adopted.is_some();
        let [hot, sent] = match (works, self.node.sweep) {
            (false, _) => [0, 0],
            (true, true) => self.choose_of_prompt(index, routing),
            (true, false) => self.choose_of_token(index, routing, store),
        };
        self.node.pairs = [hot, sent];
        let cpu = routing.pairs() - hot - sent;
        let sides = self.layers[index].counts.of(self.node.prefill);
        sides.hot += hot as u64;
        sides.sent += sent as u64;
        sides.cold += cpu as u64;
        let has = |expert: &u32| self.cache.slot_of(index, *expert).is_some();
        let has = hot > 0 || routing.touched().iter().any(has);
        self.layers[index].tally.begin(hot + sent, cpu, works, has);
        if works {
            let (began, waited) = (Instant::now(), store.stalled());
            self.node.measured = Some(Measured { index, pairs: cpu, began, waited });
        }
        if hot + sent > 0 {
            self.hand_over(index, routing, rows);
        }
        hot + sent > 0
    }

    /// Returns true if the lane computes a touched expert of the current node, given by its index, with its
    /// copy.
    pub(crate) fn took(&self, touched: usize) -> bool {
        self.node.parts[touched] == LaneShare::Copy
    }

    /// Returns true if the lane waits for a touched expert's bytes, to compute it.
    pub(crate) fn awaits(&self, touched: usize) -> bool {
        self.node.parts[touched] == LaneShare::Sent
    }

    /// Hands over an expert that the lane waits for. `addresses` are those of the block's matrices,
    /// and `id` is the caller's number for it, which [`Lanes::has_read`] returns. The bytes stay until
    /// then, or until [`Lanes::has_read`] returns false and [`Lanes::end_sending`] was called.
    pub(crate) fn send(&mut self, touched: usize, id: usize, addresses: [usize; MATRICES]) {
        let index = self.node.busy.expect("a lane waits for the expert");
        let layer = &self.layers[index];
        let recipe = layer.adopted.as_ref().expect("a lane that computes has a recipe");
        let mut parcel = Parcel { id, sent: 0, addresses: [0; MATRICES] };
        for (&matrix, address) in recipe.first.iter().chain([&recipe.down]).zip(addresses) {
            parcel.addresses[matrix] = address;
        }
        parcel.sent = self.node.sent.iter().position(|&other| other == touched).expect("it is sent");
        let Some(parcels) = self.lanes[layer.lane].parcels() else { return };
        parcels.send(parcel);
        self.node.handed += 1;
        if self.node.handed == self.node.sent.len() {
            parcels.close();
        }
    }

    /// Appends the numbers of experts whose bytes the lane has read since the last call, after waiting
    /// for the first of them if asked. Returns false if the lane reads no more.
    pub(crate) fn has_read(&self, into: &mut Vec<usize>, wait: bool) -> bool {
        let Some(index) = self.node.busy else { return false };
        let lane = &self.lanes[self.layers[index].lane];
        lane.parcels().is_some_and(|parcels| parcels.copied(into, wait, || lane.is_lost()))
    }

    /// Takes back the experts that have not been copied. None of their bytes is read any more.
    pub(crate) fn end_sending(&self) {
        let Some(index) = self.node.busy.filter(|_| !self.node.sent.is_empty()) else { return };
        if let Some(parcels) = self.lanes[self.layers[index].lane].parcels() {
            parcels.give_up();
        }
    }

    /// Takes all experts with copies, or none if the round trip does not pay; and of the others, as many
    /// as pay to be copied for the node, those in RAM first. Returns the numbers of pairs of both.
    fn choose_of_token(&mut self, index: usize, routing: &Routing, store: &Store) -> [usize; 2] {
        let mut hot = 0;
        for (i, &expert) in routing.touched().iter().enumerate() {
            if self.cache.slot_of(index, expert).is_some() {
                self.node.parts[i] = LaneShare::Copy;
                hot += routing.range(i).len();
            }
        }
        if hot > 0 && !self.always && !self.layers[index].worth.pays(hot, routing.pairs()) {
            self.node.parts.fill(LaneShare::None);
            return [0, 0];
        }
        let sends = self.layers[index].transit > 0 && self.sending != Sending::Off && hot < routing.pairs();
        [hot, if sends { self.choose_misses(index, routing, store, hot) } else { 0 }]
    }

    /// Chooses the experts of a token that are copied to the lane for the node, of which it computes
    /// `hot` pairs with copies. Returns their number of pairs.
    fn choose_misses(&mut self, index: usize, routing: &Routing, store: &Store, hot: usize) -> usize {
        let Self { layers, estimates, node, bringer, sending, .. } = self;
        let Node { parts, order, sent, .. } = node;
        let layer = &layers[index];
        let pairs_of = |i: usize| routing.range(i).len();
        order.clear();
        order.extend((0..parts.len()).filter(|&i| parts[i] == LaneShare::None));
        // Those that have to be read arrive when the CPU has little left to do.
        order.sort_unstable_by_key(|&i| {
            (!layer.has_in_ram(routing.touched()[i], store), std::cmp::Reverse(pairs_of(i)), i)
        });
        let estimates = &mut estimates[layer.estimates];
        let few = NodePairs {
            hot,
            cold: routing.pairs() - hot,
            bytes: bundle(&layer.shapes).bytes(),
            copied: estimates.prompts.byte().or_else(|| bringer.byte()),
        };
        let chosen = match sending {
            Sending::Always => order.len(),
            _ => estimates.tokens.sends(few, order.iter().map(|&i| pairs_of(i))),
        };
        order[..chosen].iter().for_each(|&i| parts[i] = LaneShare::Sent);
        sent.extend((0..parts.len()).filter(|&i| parts[i] == LaneShare::Sent));
        order[..chosen].iter().map(|&i| pairs_of(i)).sum()
    }

    /// Takes as many experts as let lane and CPU be done at about the same time: those with copies
    /// first, then those that would have to be copied, each with the most pairs first. Returns the
    /// numbers of pairs of both.
    fn choose_of_prompt(&mut self, index: usize, routing: &Routing) -> [usize; 2] {
        let Self { layers, cache, node, estimates, .. } = self;
        let layer = &layers[index];
        let pairs_of = |i: usize| routing.range(i).len();
        let has_copy = |i: usize| cache.slot_of(index, routing.touched()[i]).is_some();
        let sending = if layer.transit == 0 { Sending::Off } else { self.sending };
        node.order.clear();
        let touched = 0..routing.touched().len();
        node.order.extend(touched.filter(|&i| sending != Sending::Off || has_copy(i)));
        if node.order.is_empty() {
            return [0, 0];
        }
        node.order.sort_unstable_by_key(|&i| (!has_copy(i), std::cmp::Reverse(pairs_of(i)), i));
        let mut split = estimates[layer.estimates].prompts.split(routing.pairs());
        let most = JOB / (2 * size_of::<f32>() * layer.out_width.max(1));
        let bytes = bundle(&layer.shapes).bytes();
        let mut taken = [0, 0];
        for &i in &node.order {
            let (pairs, copy) = (pairs_of(i), has_copy(i));
            if taken[0] + taken[1] + pairs > most {
                continue;
            }
            let bytes = if copy { 0 } else { bytes };
            let forced = if copy { self.always } else { sending == Sending::Always };
            if forced {
                split.add(pairs, bytes);
            }
            if forced || split.takes(pairs, bytes) {
                node.parts[i] = if copy { LaneShare::Copy } else { LaneShare::Sent };
                taken[usize::from(!copy)] += pairs;
            }
        }
        // In the order in which they will be asked for.
        let sent = (0..routing.touched().len()).filter(|&i| node.parts[i] == LaneShare::Sent);
        node.sent.extend(sent);
        taken
    }

    /// Gives the lane the pairs of the taken experts.
    fn hand_over(&mut self, index: usize, routing: &Routing, rows: PairRows<'_>) {
        let layer = &self.layers[index];
        let Node { sweep, parts, sent, outputs, places, busy, .. } = &mut self.node;
        let lane = &mut self.lanes[layer.lane];
        let job = lane.job();
        let chunked = *sweep || !sent.is_empty();
        (job.chunked, job.copied) = (chunked, 0);
        job.sizes.clone_from(&layer.sizes);
        let Job {
            layer: key, rows: job_rows, inputs, slots, experts, out, sent: ranges, copied, copies, ..
        } = job;
        job_rows.clear();
        inputs.clear();
        slots.clear();
        experts.clear();
        ranges.clear();
        copies.clear();
        outputs.clear();
        let [width, per_token, tokens, _] = rows.input.ne().map(|n| n.unsigned_abs() as usize);
        let shared = per_token * tokens == 1;
        if chunked {
            places.clear(per_token * tokens);
        }
        let row = |row: usize| row_of(rows.input, row, width, per_token);
        let at = |all: &[[i32; 2]], pair: usize, side: usize| all[pair][side].unsigned_abs() as usize;
        let hot = (0..parts.len()).filter(|&i| parts[i] == LaneShare::Copy);
        for i in hot.chain(sent.iter().copied()) {
            let expert = routing.touched()[i];
            let slot = match parts[i] {
                LaneShare::Copy => {
                    self.cache.slot_of(index, expert).expect("only experts with copies are taken")
                }
                // It gets one when its bytes are there.
                _ => 0,
            };
            let first = slots.len();
            for pair in routing.range(i) {
                slots.push(slot.cast_signed());
                experts.push(expert.cast_signed());
                outputs.push(at(rows.outputs, pair, 0));
                let from = at(rows.inputs, pair, 1);
                if chunked {
                    inputs.push(places.of(from, row(from), job_rows));
                } else if !shared {
                    job_rows.extend_from_slice(row(from));
                }
            }
            match parts[i] {
                LaneShare::Copy => *copied = slots.len(),
                _ => ranges.push(first..slots.len()),
            }
        }
        if shared && !chunked {
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
        let measured = self.node.measured.take();
        let cpu = self.note_cpu(measured);
        let Some(index) = self.node.busy.take() else {
            self.note_node(measured, cpu, store);
            return Ok(());
        };
        let outputs = &self.node.outputs;
        let layer = &mut self.layers[index];
        let asked = Instant::now();
        let job = match self.lanes[layer.lane].finish() {
            Ok(job) => job,
            Err(error) => {
                let lane = layer.lane;
                let [hot, sent] = self.node.pairs.map(|pairs| pairs as u64);
                let sides = layer.counts.of(self.node.prefill);
                (sides.hot, sides.sent) = (sides.hot - hot, sides.sent - sent);
                sides.cold += hot + sent;
                layer.tally.failed += 1;
                // Nothing is read from slots after this.
                if let Some(parcels) = self.lanes[lane].parcels() {
                    parcels.give_up();
                }
                self.joined(&FinishedJob { index, pairs: 0, computed: None }, asked, store);
                self.fail(lane, &error);
                return Err(error.into());
            }
        };
        let ended = FinishedJob { index, pairs: outputs.len(), computed: job.computed };
        let taking = Instant::now();
        let width = job.out.len() / outputs.len().max(1);
        for (row, values) in outputs.iter().zip(job.out.chunks_exact(width.max(1))) {
            // SAFETY: the caller's contract.
            unsafe {
                let to = output.cast::<u8>().add(row * stride).cast::<f32>();
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, width);
            }
        }
        let ((copying, bytes), took) = (job.copied_for_it(), job.took + taking.elapsed());
        self.sent_bytes += bytes;
        layer.count_sent(&job.copies, store);
        let done = Returned { pairs: outputs.len(), bytes, took, copying };
        let estimates = &mut self.estimates[layer.estimates];
        if self.node.sweep {
            estimates.prompts.returned(done);
        } else {
            if bytes == 0 {
                layer.worth.returned(job.took);
            }
            if layer.transit > 0 {
                estimates.tokens.returned(done);
            }
        }
        layer.tally.round_trips += job.took;
        let waited = self.joined(&ended, asked, store);
        self.note_node(measured, cpu, store);
        self.layers[index].tally.together += cpu + waited;
        Ok(())
    }

    /// Notes how long the CPU took for its pairs, and returns it.
    fn note_cpu(&mut self, measured: Option<Measured>) -> Duration {
        let Some(Measured { index, pairs, began, .. }) = measured else { return Duration::ZERO };
        let (layer, took) = (&mut self.layers[index], began.elapsed());
        match self.node.sweep {
            true => self.estimates[layer.estimates].prompts.computed(pairs, took),
            // What is sent has to be read as well, for fewer pairs.
            false if self.node.sent.is_empty() => layer.worth.computed(pairs, took),
            false => {}
        }
        layer.tally.cpu += took;
        took
    }

    /// Notes how long a token's node took, of which the CPU's part took `cpu`.
    fn note_node(&mut self, measured: Option<Measured>, cpu: Duration, store: &Store) {
        let Some(Measured { index, pairs, began, waited }) = measured else { return };
        let layer = &self.layers[index];
        if !self.node.sweep && layer.transit > 0 {
            let read = store.stalled().saturating_sub(waited);
            let (cpu, all) = (cpu.saturating_sub(read), began.elapsed().saturating_sub(read));
            self.estimates[layer.estimates].tokens.ended(pairs, cpu, all);
        }
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

impl HotLayer {
    /// Returns true if an expert's bytes are in RAM.
    fn has_in_ram(&self, expert: u32, store: &Store) -> bool {
        self.kept.is_some() || self.firsts.iter().all(|first| store.is_resident(BlockId(first.0 + expert)))
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
