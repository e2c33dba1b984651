//! Cost of a token with an assignment.

use super::assignment::Assignment;
use super::costs::Costs;
use super::sending::Uses;
use super::workload::Workload;

/// Seconds of a token, and their parts. With several clients: of a graph with a token of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decode {
    /// The whole token: the longer of computing (including waits) and reading.
    pub total: f64,
    /// Computing everything except routed experts, by place.
    pub dense: Vec<f64>,
    /// Computing routed experts, by place; places compute in parallel.
    pub experts: Vec<f64>,
    /// Computing routed experts, at each layer's slowest place only.
    pub lanes: f64,
    /// Waiting for experts that are still being read after the others are computed.
    pub waits: f64,
    /// The part of `lanes + waits` in layers where reading experts takes longer than computing
    /// them.
    pub read_bound: f64,
    /// Transferring activations between processors.
    pub hops: f64,
    /// Waiting for rows of tables.
    pub rows: f64,
    /// Reading experts.
    pub expert_reads: f64,
    /// Reading matrices, which overlaps with everything else but `idle`.
    pub matrix_reads: f64,
    /// Computing the head, if it is in RAM: the next token's matrices are read after it.
    pub idle: f64,
    /// Extra computing time while experts are read.
    pub delays: f64,
    /// Number of bytes read.
    pub bytes_read: f64,
    /// Share of expert uses that hit, in any tier.
    pub hits: f64,
}

impl Assignment {
    /// Computes the seconds of a token when the caches are warm.
    ///
    /// A layer computes its dense part, then its experts, in parallel on all places that have some or
    /// are sent some, while missing experts are read ([`Costs::layer`]). Matrices are read ahead in a
    /// known order, so they only count if all reading together, and the head, which nothing is read
    /// beside, takes longer than all layers together. But if experts are read, too, these queue behind
    /// the matrices that are read ahead, and all of that adds to their waits.
    pub fn decode(&self, work: &Workload, costs: &Costs) -> Decode {
        let places = costs.devices.len() + 1;
        let mut out = Decode { dense: vec![0.0; places], experts: vec![0.0; places], ..Decode::default() };
        let cold = self.cold_experts(work);
        let cached = if cold == 0 { 1.0 } else { (self.arena as f64 / cold as f64).min(1.0) };
        let (mut used_bytes, mut hit_bytes) = (0.0, 0.0);
        let sends = self.transit(work, costs);
        for (index, cost) in costs.layers.iter().enumerate() {
            let home = self.homes[index];
            out.dense[home] += cost.dense[home];
            let Some(experts) = &work.layers[index].experts else { continue };
            let on_device =
                if home > 0 { f64::from(self.hot[index]) / f64::from(experts.count) } else { 0.0 };
            let device_uses = costs.curve.hits(on_device);
            let hits = costs.hits(on_device, cached);
            let at = match self.hot[index] {
                hot if home == 0 || hot == 0 => costs.lane_without_copies(home).filter(|_| cached < 1.0),
                hot => Some(home).filter(|_| sends[home - 1] && hot < experts.count),
            };
            let sides = match at {
                Some(place) => {
                    let experts = cost.touched * f64::from(experts.count);
                    let uses = Uses { copies: device_uses, in_ram: hits - device_uses, experts };
                    cost.with_sent(place, uses)
                }
                None => cost.with_copies(home, device_uses),
            };
            out.experts[0] += sides.host;
            out.experts[at.unwrap_or(home)] += sides.lane;
            let lane = sides.longer();
            let read = cost.miss * (1.0 - hits);
            out.expert_reads += read;
            let both = costs.layer(index, lane, read, hits);
            out.lanes += lane;
            out.waits += both - lane;
            // Where all experts are there, rounding remains.
            if both > lane * (1.0 + 1e-9) {
                out.read_bound += both;
            }
            let bytes = experts.bytes as f64 * cost.touched;
            used_bytes += bytes;
            hit_bytes += bytes * hits;
        }
        let route = self.route(work, places);
        let transfers = || costs.devices.iter().map(|device| device.transfers);
        out.hops = route.between(transfers(), costs.moved.described) + route.experts(transfers());
        out.hits = if used_bytes > 0.0 { hit_bytes / used_bytes } else { 1.0 };
        out.bytes_read = used_bytes - hit_bytes;
        out.delays = out.expert_reads * costs.delay;
        out.idle = if self.homes.last() == Some(&0) { costs.idle.iter().sum() } else { 0.0 };
        for (index, matrix) in work.matrices.iter().enumerate().filter(|(index, _)| self.streamed[*index]) {
            out.matrix_reads += costs.stream[index];
            out.idle -= costs.idle[index];
            out.bytes_read += matrix.bytes as f64;
        }
        if self.tables_streamed {
            out.rows = costs.rows;
            out.bytes_read += work.tables.iter().map(|table| table.row as f64).sum::<f64>();
        }
        out.total = out.computing().max(out.reading());
        out
    }
}

impl Decode {
    /// Returns the seconds of all layers in sequence, including their waits.
    pub fn computing(&self) -> f64 {
        let layers = self.dense.iter().sum::<f64>() + self.lanes + self.waits + self.delays;
        layers + self.queued() + self.hops + self.rows
    }

    /// Returns the seconds that reads of experts queue behind matrices that are read ahead.
    pub fn queued(&self) -> f64 {
        if self.expert_reads > 0.0 { self.matrix_reads } else { 0.0 }
    }

    /// Returns the seconds that the disk is busy, or idle until the head is computed.
    pub fn reading(&self) -> f64 {
        self.expert_reads + self.matrix_reads + self.rows + self.idle.max(0.0)
    }
}
