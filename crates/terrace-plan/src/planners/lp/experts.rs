//! The experts of a group of layers: where they are, and who computes them.

use super::phase::Phase;
use super::program::Program;
use super::variables::{Divided, Held, Lanes, TIME, Variant};
use crate::hits::HotClass;
use crate::machine::default_rates;
use crate::place::batch::BatchCosts;
use crate::place::costs::Costs;
use good_lp::{Expression, Variable, constraint, variable};

impl Program {
    /// Adds the variables of a group's experts at one home: how many are on the device and in RAM,
    /// by class.
    pub fn held(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        shared: &Option<Vec<Variable>>,
        weights: &mut [Expression],
        variant: Variant,
    ) -> Held {
        let &Lanes { place, n, most, count, bytes, .. } = lanes;
        let zero = || Expression::from(0.0);
        let mut held = Held { uses: zero(), share: zero(), both: zero(), hits: zero() };
        for (index, class) in costs.curve.classes().iter().enumerate() {
            let width = class.experts * most;
            let slope = class.uses / class.experts;
            let mut both = zero();
            if place > 0 {
                let z = self.vars.add(variable().min(0.0).max(width));
                held.uses += slope * z;
                held.share += z;
                both += z;
            }
            // Without devices the group uses the shared cache.
            match shared {
                Some(cache) => both += count * cache[index],
                None => both += self.vars.add(variable().min(0.0).max(width)),
            }
            held.hits += slope * both.clone();
            held.both += both.clone();
            if variant.misses {
                self.rows.push(constraint!(both.clone() <= class.experts * n));
            } else {
                self.rows.push(constraint!(both.clone() == class.experts * n));
            }
            self.arena += bytes * both;
        }
        self.arena -= bytes * held.share.clone();
        if place > 0 {
            weights[place] += bytes * held.share.clone();
            self.on_device[place - 1] += held.share.clone();
            self.expert_layers[place - 1] += n;
        }
        held
    }

    /// Adds the times of a group's experts at one home to a phase: of the slowest processor, of
    /// transfers, and of reading missing experts.
    pub fn experts(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        held: &Held,
        phase: &mut Phase<'_>,
        variant: Variant,
    ) {
        let &Lanes { layer, place, n, .. } = lanes;
        let Held { uses, share, both, hits } = held;
        let slowest = self.vars.add(variable().min(0.0));
        // The device that computes some: the home, or that of transit slots.
        let lane = costs.lane_without_copies(place).filter(|_| variant.misses);
        let lane = lane.or(Some(place).filter(|&place| place > 0));
        let divided = phase.of.zip(lane).filter(|_| costs.paths.copies);
        let divided = divided.and_then(|(batch, lane)| self.divided(costs, lanes, held, batch, lane));
        let sent = match (phase.of, lane) {
            (None, Some(lane)) => self.sent(costs, lanes, held, lane),
            _ => Expression::from(0.0),
        };
        let mut least = |of: Expression| self.rows.push(constraint!(slowest >= TIME * of));
        let missed = match phase.of {
            None => {
                let cost = &costs.layers[layer];
                least(cost.experts[0] * (n - uses.clone() - sent.clone()));
                if let Some(lane) = lane {
                    let sending = cost.sending.get(lane - 1).map_or(0.0, |sending| sending.all);
                    least(cost.experts[lane] * (uses.clone() + sent.clone()) + sending * sent);
                }
                let missed = cost.miss * (n - hits.clone());
                // A part may be read before, on a guess.
                least(missed.clone() - cost.ahead * n);
                if cost.ahead > 0.0 {
                    least((1.0 - default_rates::GUESSED) * missed.clone());
                }
                missed
            }
            Some(batch) => {
                let experts = batch.layers[layer].experts.as_ref().expect("a layer with experts");
                // ggml copies memory that is not slots.
                let in_ram = experts.in_ram(!variant.misses);
                if let (Some(Divided { uses, all, bus }), Some(lane)) = (divided, lane) {
                    // Activations that cross the bus are left out: none do if all experts are there.
                    let bounds = experts.bounds(lane);
                    least(bounds.uses * uses + bus.clone());
                    least(bounds.held * all.clone() + bus);
                    // A layer whose copies are not used takes as long as in RAM.
                    least(bounds.rest_uses.min(in_ram) * (n - uses));
                    least(bounds.rest_held.min(in_ram) * (n - all));
                } else if place == 0 {
                    least(in_ram * n);
                } else {
                    // Where the home has some, others pass through slots.
                    let in_ram = in_ram.min(experts.in_ram(false));
                    let there = experts.lanes[place].seconds(1.0, 1.0).min(in_ram);
                    least(in_ram * (n - share.clone()) + there * share.clone());
                }
                experts.read * (n - both.clone())
            }
        };
        if phase.of.is_some() {
            least(missed.clone());
        }
        phase.computing += slowest;
        phase.reading += TIME * missed;
        if place > 0 {
            phase.computing += phase.transfers[place - 1].experts * TIME * (n - share.clone());
        }
    }

    /// Adds the variable of a token's experts that are sent to the lane at a device: the uses of experts
    /// in RAM, if it has copies or transit slots without them.
    fn sent(&mut self, costs: &Costs, lanes: &Lanes, held: &Held, lane: usize) -> Expression {
        let &Lanes { layer, most, .. } = lanes;
        if costs.layers[layer].sending.is_empty() {
            return Expression::from(0.0);
        }
        let sent = self.vars.add(variable().min(0.0).max(most));
        self.rows.push(constraint!(sent + held.uses.clone() <= held.hits.clone()));
        self.only_with_slots(costs, lanes, held, lane, sent);
        sent.into()
    }

    /// Without copies, nothing is sent to a device that has no transit slots beside everything else.
    fn only_with_slots(&mut self, costs: &Costs, lanes: &Lanes, held: &Held, lane: usize, sent: Variable) {
        if !costs.devices[lane - 1].alone {
            self.rows.push(constraint!(sent <= lanes.experts * held.share.clone()));
        }
    }

    /// Adds the variables of a graph's division of experts between the lane at a device and the CPU. The
    /// lane computes with copies, not more than it has, and with what is sent to it if it has transit
    /// slots, and has no more uses than as many of the hottest experts.
    fn divided(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        held: &Held,
        batch: &BatchCosts,
        lane: usize,
    ) -> Option<Divided> {
        let &Lanes { layer, n, most, .. } = lanes;
        let device = lane - 1;
        let experts = batch.layers[layer].experts.as_ref()?;
        let mut add = || self.vars.add(variable().min(0.0).max(most));
        let (uses, copies) = (add(), add());
        let (mut all, mut bus) = (Expression::from(copies), Expression::from(0.0));
        if let Some(sending) = &experts.sending {
            let sent = add();
            all += sent;
            bus += sending[device] * sent;
            self.only_with_slots(costs, lanes, held, lane, sent);
        }
        self.rows.push(constraint!(copies <= held.share.clone()));
        self.rows.push(constraint!(all.clone() <= n));
        let mut below = HotClass { experts: 0.0, uses: 0.0 };
        for class in costs.curve.classes() {
            let slope = class.uses / class.experts;
            let line = (below.uses - slope * below.experts) * n + slope * all.clone();
            self.rows.push(constraint!(uses <= line));
            below = HotClass { experts: below.experts + class.experts, uses: below.uses + class.uses };
        }
        Some(Divided { uses, all, bus })
    }
}
