//! The cost of a prompt: many tokens at once.

use super::assignment::Assignment;
use super::batch::{BatchCosts, ExpertBatch};
use super::costs::Costs;
use super::workload::Workload;
use crate::hits::HitCurve;

/// Seconds for a prompt, and their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Seconds for the whole prompt.
    pub total: f64,
    /// Seconds of computing and transferring.
    pub computing: f64,
    /// Seconds of reading, which overlaps with computing.
    pub reading: f64,
}

/// Steps of searching the best division of experts: each halves what is left of the range.
const DIVISIONS: u32 = 24;

/// A layer's experts in one graph.
#[derive(Clone, Copy, Debug)]
struct ExpertTimes {
    /// Seconds of computing and transferring.
    computing: f64,
    /// Seconds of reading what is missing.
    reading: f64,
}

impl ExpertTimes {
    fn longer(&self) -> f64 {
        self.computing.max(self.reading)
    }

    /// Returns the seconds of `experts` experts that are read one after the other and computed as they
    /// arrive: nothing is computed beside reading the first one, or nothing read beside computing the last.
    fn in_turn(&self, experts: f64) -> f64 {
        self.longer() + self.computing.min(self.reading) / experts.max(1.0)
    }
}

impl Assignment {
    /// Estimates the seconds for the prompt, with caches as a warm run leaves them.
    ///
    /// A matrix costs the longer of reading it from its memory once per ubatch, and its arithmetic.
    /// Experts that are not resident are read once per ubatch if it uses them. Reading overlaps
    /// with computing the same layer, but for the first expert, and matrices are read ahead. Weights in RAM are copied to a
    /// device for the graph if ggml does that, and computed with there otherwise. Where a device has
    /// copies of a part of a layer's experts, or transit slots for those that stream, it computes as
    /// many of its experts, and of others that are sent to it, as make the layer shortest. Places take turns otherwise, and activations of all
    /// tokens are transferred between them. On the CPU, attention and the operations between products
    /// count as well; on devices they do not.
    pub fn prefill(&self, work: &Workload, costs: &Costs) -> Prefill {
        let mut out = Prefill::default();
        for batch in &costs.batches {
            let once = self.pass(work, costs, batch);
            out.total += once.total * batch.times;
            out.computing += once.computing * batch.times;
            out.reading += once.reading * batch.times;
        }
        out
    }

    /// Returns the seconds that plans minimise: of the expected prompt, and of the expected number
    /// of generated tokens.
    pub fn seconds(&self, work: &Workload, costs: &Costs) -> f64 {
        self.prefill(work, costs).total + costs.output * self.decode(work, costs).total
    }

    fn pass(&self, work: &Workload, costs: &Costs, batch: &BatchCosts) -> Prefill {
        let cold = self.cold_experts(work);
        let cached = if cold == 0 { 1.0 } else { (self.arena as f64 / cold as f64).min(1.0) };
        let sends = self.transit(work, costs);
        let (mut layers, mut reading, mut computing) = (0.0, 0.0, 0.0);
        let trip = |place: usize| if place == 0 { 0.0 } else { batch.transfers[place - 1].experts };
        for (index, layer) in batch.layers.iter().enumerate() {
            let home = self.homes[index];
            computing += layer.dense[home];
            layers += layer.dense[home];
            let (Some(experts), Some(load)) = (&layer.experts, &work.layers[index].experts) else { continue };
            let share = if home > 0 { f64::from(self.hot[index]) / f64::from(load.count) } else { 0.0 };
            let kept = self.kept[index];
            let alone = (share == 0.0 && cached < 1.0).then(|| costs.lane_without_copies(home)).flatten();
            let sends = alone.is_some() || home > 0 && share > 0.0 && sends[home - 1];
            let at = At { place: alone.unwrap_or(home), share, kept, cached, trip: trip(home), sends };
            let times = expert_times(experts, costs, at);
            computing += times.computing;
            layers += times.in_turn(experts.used);
            reading += times.reading;
        }
        let route = self.route(work, costs.devices.len() + 1);
        let moves = route.between(batch.transfers.iter().copied(), batch.moved.described);
        computing += moves;
        layers += moves;
        reading += costs.stream.iter().zip(&self.streamed).filter(|(_, s)| **s).map(|(s, _)| s).sum::<f64>();
        if self.tables_streamed {
            reading += batch.rows;
            layers += batch.rows;
        }
        Prefill { total: layers.max(reading), computing, reading }
    }
}

/// Placement of a layer's experts.
#[derive(Clone, Copy)]
struct At {
    /// The layer's home, or the device that its experts can be sent to.
    place: usize,
    /// Share of the experts that its home has, if that is a device.
    share: f64,
    /// True if all are in RAM, not in slots, although home has copies of some.
    kept: bool,
    /// Share of the others that is in RAM.
    cached: f64,
    /// Seconds for transferring the graph's activations from home to experts in RAM, and their results
    /// back.
    trip: f64,
    /// True if experts can be sent there.
    sends: bool,
}

/// Returns the times of a layer's experts, by the way that runs compute them.
fn expert_times(experts: &ExpertBatch, costs: &Costs, at: At) -> ExpertTimes {
    let At { place, share, kept, cached, trip, sends } = at;
    if place > 0 && share >= 1.0 {
        return ExpertTimes { computing: experts.lanes[place].seconds(1.0, 1.0), reading: 0.0 };
    }
    let mut times = if (share > 0.0 || sends) && costs.paths.copies {
        let mut times = divided(experts, &costs.curve, at);
        if kept {
            // In RAM, ggml's own offload is the alternative, and runs take the faster one.
            times.computing = times.computing.min(experts.in_ram(true));
        }
        times
    } else {
        // Other experts of which a device has copies pass through slots, which are not memory that
        // ggml copies from, even if these hold all.
        let computing = experts.in_ram((share == 0.0 || kept) && cached >= 1.0);
        ExpertTimes { computing, reading: experts.read * (1.0 - cached * (1.0 - share)) }
    };
    if kept {
        times.reading = 0.0;
    }
    times.computing += trip;
    times
}

/// Returns the times of a layer with a lane: the lane and the CPU compute at the same time, and the CPU waits for reads. The lane computes the hottest experts, as many as make the layer
/// shortest: with copies, or sent to it.
fn divided(experts: &ExpertBatch, curve: &HitCurve, at: At) -> ExpertTimes {
    let At { place, share, kept, cached, sends, .. } = at;
    // Seconds of the lane, and of the CPU and reads, if the lane computes the share `taken`.
    let sides = |taken: f64| {
        let uses = curve.hits(taken);
        let lane = experts.on_lane(place, uses, taken, (taken - share).max(0.0));
        let cpu = experts.lanes[0].seconds(1.0 - uses, 1.0 - taken);
        // What the lane leaves of its copies is not in RAM, unless all are.
        let left = if kept { 0.0 } else { (share - taken).max(0.0) };
        let missing = (1.0 - share) * (1.0 - cached) + left;
        (lane, cpu, experts.read * missing)
    };
    let mut best: Option<ExpertTimes> = None;
    let mut lane_is_shorter = |taken: f64| {
        let (lane, cpu, reading) = sides(taken);
        let times = ExpertTimes { computing: lane.max(cpu), reading };
        if best.as_ref().is_none_or(|best| times.longer() < best.longer()) {
            best = Some(times);
        }
        lane < cpu.max(reading)
    };
    let most = if sends && experts.sending.is_some() { 1.0 } else { share };
    let all_copies = lane_is_shorter(share);
    if !all_copies || most > share {
        // The lane's seconds rise with what it takes, and the others fall.
        let (mut low, mut high) = if all_copies { (share, most) } else { (0.0, share) };
        for _ in 0..DIVISIONS {
            let middle = f64::midpoint(low, high);
            if lane_is_shorter(middle) { low = middle } else { high = middle }
        }
    }
    best.expect("at least one division")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::batch::Products;

    /// Experts that take the CPU 100 s and a device 10, with 2 s for reading them there; sending all
    /// takes `bus` seconds, and activations 4.
    fn experts(bus: f64, read: f64) -> ExpertBatch {
        let lanes = vec![Products::of([(100.0, 20.0)]), Products::of([(10.0, 2.0)])];
        ExpertBatch {
            count: 100,
            lanes,
            offload: None,
            pairs: vec![4.0],
            sending: Some(vec![bus]),
            read,
            used: 100.0,
        }
    }

    fn at(share: f64, sends: bool) -> At {
        At { place: 1, share, kept: false, cached: 1.0, trip: 0.0, sends }
    }

    #[test]
    fn both_sides_of_the_best_division_take_as_long() {
        let curve = HitCurve::uniform();
        // Of x experts, the lane takes (10 + 4) x + bus (x - copies), and the CPU 100 (1 - x).
        for (bus, copies, best) in [
            (86.0, 0.0, 50.0),
            (86.0, 0.5, 28.5),
            (1e9, 0.25, 75.0),
            (0.0, 0.1, 12.281),
            // Some copies are left to the CPU, which has their experts in RAM only then.
            (86.0, 0.95, 12.281),
        ] {
            let seconds = divided(&experts(bus, 0.0), &curve, at(copies, true)).longer();
            assert!((seconds - best).abs() < 0.01, "{bus}, {copies}: {seconds}");
        }
        assert_eq!(divided(&experts(0.0, 0.0), &curve, at(0.25, false)).longer(), 75.0);
        // Reading 2 s for each hundredth that is not in RAM.
        let left = divided(&experts(86.0, 200.0), &curve, at(0.95, true)).longer();
        assert!((left - (14.0 * 0.95_f64)).abs() < 0.9 && left > 12.3, "{left}");
    }

    #[test]
    fn the_first_expert_is_waited_for() {
        let times = |computing, reading| ExpertTimes { computing, reading };
        assert_eq!(times(8.0, 4.0).in_turn(8.0), 8.5);
        assert_eq!(times(4.0, 8.0).in_turn(8.0), 8.5);
        assert_eq!(times(8.0, 0.0).in_turn(8.0), 8.0);
        // All of it, if it is the only one.
        assert_eq!(times(3.0, 4.0).in_turn(0.5), 7.0);
    }

    #[test]
    fn no_division_is_shorter() {
        for curve in [HitCurve::uniform(), HitCurve::typical(128, 8), HitCurve::typical(32, 4)] {
            for (bus, copies) in [(30.0, 0.0), (30.0, 0.2), (200.0, 0.1), (5.0, 0.6)] {
                let batch = experts(bus, 0.0);
                let best = divided(&batch, &curve, at(copies, true)).longer();
                let side = |taken: f64| {
                    let uses = curve.hits(taken);
                    let lane = batch.on_lane(1, uses, taken, (taken - copies).max(0.0));
                    lane.max(batch.lanes[0].seconds(1.0 - uses, 1.0 - taken))
                };
                let least = (0..=1000).map(|step| side(f64::from(step) / 1000.0));
                let least = least.fold(f64::INFINITY, f64::min);
                assert!(best <= least * (1.0 + 1e-6), "{bus}, {copies}: {best}, {least}");
                // Neither more copies nor a faster bus makes it longer.
                let more = divided(&batch, &curve, at(copies + 0.05, true)).longer();
                let faster = divided(&experts(bus / 2.0, 0.0), &curve, at(copies, true)).longer();
                assert!(more.max(faster) <= best * (1.0 + 1e-6), "{bus}, {copies}");
            }
        }
    }
}
