//! Chooses a token's experts from their scores and from what is in memory, and leaves some out.

use super::LossyRouting;

/// A token's choice. Reused from node to node.
#[derive(Default)]
pub struct Choice {
    /// The scores that are compared.
    scores: Vec<f32>,
    /// All experts: the chosen ones first, then the others, both by descending score.
    order: Vec<u32>,
    /// For each expert in the order of scores, whether it is in memory.
    here: Vec<bool>,
    chosen: Vec<u32>,
    is_chosen: Vec<bool>,
    shares: Vec<f32>,
}

impl Choice {
    /// Chooses `top_k` of the experts with these scores, of which the logarithm is compared if they are
    /// the `probabilities` of a softmax. Returns how many of them have not one of the `top_k` highest
    /// scores. If none is substituted, the order is that of the scores alone.
    pub fn choose(
        &mut self,
        scores: impl Iterator<Item = f32>,
        probabilities: bool,
        top_k: usize,
        routing: &LossyRouting,
        mut is_here: impl FnMut(u32) -> bool,
    ) -> usize {
        let Self { scores: compared, order, here, chosen, is_chosen, .. } = self;
        compared.clear();
        compared.extend(scores.map(|score| if probabilities { score.ln() } else { score }));
        let all = compared.len();
        let top_k = top_k.min(all);
        order.clear();
        order.extend(0..all as u32);
        let score = |expert: u32| compared[expert as usize];
        order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let bonus = routing.prior * range_of(compared);
        // Not only for speed: the bonus of scores without a range would be no number.
        if bonus.is_nan() || bonus <= 0.0 {
            return 0;
        }
        here.clear();
        here.extend(order.iter().map(|&expert| is_here(expert)));
        let kept = (routing.keep as usize).min(top_k);
        is_chosen.clear();
        is_chosen.resize(all, false);
        is_chosen[..kept].fill(true);
        // Experts in memory, and all others, are each in order.
        let (mut near, mut far) = (kept, kept);
        for _ in kept..top_k {
            near = next(here, near, true);
            far = next(here, far, false);
            let take_near = near < all && (far == all || score(order[near]) + bonus >= score(order[far]));
            let taken = if take_near { &mut near } else { &mut far };
            is_chosen[*taken] = true;
            *taken += 1;
        }
        let substituted = is_chosen[top_k..].iter().filter(|chosen| **chosen).count();
        if substituted > 0 {
            chosen.clear();
            for wanted in [true, false] {
                let places = (0..all).filter(|&place| is_chosen[place] == wanted);
                chosen.extend(places.map(|place| order[place]));
            }
            std::mem::swap(order, chosen);
        }
        substituted
    }

    /// All experts, those chosen first.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Leaves out experts that are not in memory and have little weight, but never the best: the best
    /// one takes their places, with no weight. The other weights grow such that their sum stays; if they
    /// are `logits` of a softmax, that does it. Returns the number of those left out.
    pub fn drop(
        &mut self,
        ids: &mut [i32],
        weights: &mut [f32],
        logits: bool,
        routing: &LossyRouting,
        mut is_here: impl FnMut(u32) -> bool,
    ) -> usize {
        let Some(best) = (0..weights.len()).rev().max_by(|&a, &b| weights[a].total_cmp(&weights[b])) else {
            return 0;
        };
        shares(weights, logits, &mut self.shares);
        let least = routing.drop / weights.len() as f32;
        let (mut left_out, mut rest) = (0, 1.0);
        for place in 0..ids.len() {
            let share = self.shares[place];
            if place == best || share >= least || share.is_nan() || is_here(ids[place].cast_unsigned()) {
                continue;
            }
            ids[place] = ids[best];
            weights[place] = if logits { f32::NEG_INFINITY } else { 0.0 };
            rest -= share;
            left_out += 1;
        }
        if left_out > 0 && !logits {
            weights.iter_mut().for_each(|weight| *weight /= rest);
        }
        left_out
    }

    /// Lists the experts that may be read in fewer bits: those of little weight, except for the
    /// [`LossyRouting::low_keep`] of the highest weights. The arguments are those that
    /// [`Choice::drop`] has left; experts that were left out are not listed.
    pub fn light(
        &mut self,
        ids: &[i32],
        weights: &[f32],
        logits: bool,
        routing: &LossyRouting,
        light: &mut Vec<u32>,
    ) {
        light.clear();
        shares(weights, logits, &mut self.shares);
        let least = routing.low / weights.len() as f32;
        for (place, (&id, &share)) in ids.iter().zip(&self.shares).enumerate() {
            // In the place of an expert that was left out is the best one's id.
            let left_out = ids.iter().zip(weights).any(|(&same, &more)| same == id && more > weights[place]);
            if left_out {
                continue;
            }
            let better = weights.iter().enumerate().filter(|&(other, &weight)| {
                weight > weights[place] || (weight == weights[place] && other < place)
            });
            if share < least && better.count() >= routing.low_keep as usize {
                light.push(id.cast_unsigned());
            }
        }
    }
}

/// The shares of weights in their sum, or in that of their softmax.
pub fn shares(weights: &[f32], logits: bool, shares: &mut Vec<f32>) {
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    shares.clear();
    shares.extend(weights.iter().map(|&weight| if logits { (weight - most).exp() } else { weight }));
    let sum: f32 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// The difference of the highest and the lowest finite score.
fn range_of(scores: &[f32]) -> f32 {
    let finite = || scores.iter().copied().filter(|score| score.is_finite());
    let (most, least) = (finite().fold(f32::NEG_INFINITY, f32::max), finite().fold(f32::INFINITY, f32::min));
    most - least
}

/// The first place from `from` on whose expert is in memory, or is not.
fn next(here: &[bool], from: usize, wanted: bool) -> usize {
    (from..here.len()).find(|&place| here[place] == wanted).unwrap_or(here.len())
}

#[cfg(test)]
mod tests;
