//! Keeps a quality budget: chooses how much is lost from what the losses so far were measured to cost.
//!
//! A *strength* is the cost, in nats per token, that settings are expected to have
//! ([`LossySettings::at`](super::LossySettings::at)). The model and the text at hand cost more or less: by a
//! factor, which is the ratio of what was measured to what was expected, with old measurements fading. The next
//! strength is what the budget permits, divided by this factor. What earlier tokens left of the budget, or
//! overdrew, is given to later ones, or taken from them. Once tokens have cost more than the whole budget, nothing is
//! lost until they have not.

/// Tokens of the beginning, in which every [`FIRST_EVERY`]th one is measured.
const FIRST_TOKENS: u64 = 96;
const FIRST_EVERY: u32 = 4;
/// Later, every so many are: the fewer the disk is busy with tokens, the more. Fewer by [`WITH_LOW`] where experts are read in
/// fewer bits, since a measured token reads these, too.
const EVERY: [u32; 2] = [32, 48];
const WITH_LOW: f64 = 2.0;
/// The most tokens, as a share of all so far, that a measurement stands for: single tokens cost up to ten times the mean.
const MOST_OF_ALL: f64 = 1.0 / 16.0;
/// The share of the budget that is aimed at. Measurements are samples, so the true mean is above the
/// measured one half of the time.
const AIM: f64 = 0.8;
/// Divergence of a token in units of the one that is measured, which compares two passes over the same keys and
/// values: those of earlier tokens have errors of their own, which no pass can show. Measured on two texts with a
/// trained model (`docs/benchmarks/quality.md`).
const CARRIED: f64 = 1.5;
/// The same where experts are read in fewer bits: then next to all keys and values have errors.
const CARRIED_WITH_LOW: f64 = 1.9;
/// Strength of the first settings as a share of the budget: next to nothing is lost.
const FIRST_STRENGTH: f64 = 1.0 / 64.0;
/// Factor by which a measurement can raise the strength at most, and lower it.
const RISE: f64 = 4.0;
const FALL: f64 = 4.0;
/// Weight that a measurement keeps with each later one.
const FADING: f64 = 1.0 - 1.0 / 96.0;
/// Tokens over which what is left of the budget is spent, and what was overdrawn is saved: as many as there were so far, within
/// these bounds. By chance, a single measurement can stand for hundreds of budgets.
const HORIZON: [f64; 2] = [400.0, 2000.0];
/// The most that tokens are given, in units of what is aimed at.
const MOST_GIVEN: f64 = 1.5;
/// The largest strength: beyond it, everything that is not in memory is substituted or dropped.
const MOST_STRENGTH: f64 = 2.0;
/// A measurement counts for at most so many times the expected cost: few tokens cost more than that, and their number in a sample
/// is chance. Without a limit, measurements would scatter up to twice as much. The next one follows soon, since the text may be
/// another one now.
const LIMIT: f64 = 5.0;
/// All measurements count for more instead: for so many times as much, about what two texts needed at three strengths (1.1 to 1.3).
/// After so many measurements, what this model and text need has the same weight.
const ABOVE_LIMIT: f64 = 1.15;
const ABOVE_LIMIT_MEASUREMENTS: f64 = 24.0;
/// The most times the expected cost that this is learnt from.
const MOST_ABOVE: f64 = 30.0;
/// Measurements that count as they are, because the expected cost is not known yet.
const UNLIMITED: u64 = 4;
/// The divergence of passes whose logits are not numbers.
const MOST_KLD: f64 = 20.0;

/// A controller of one budget. Its choices follow from the measurements alone.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Mean divergence per token, in nats.
    budget: f64,
    strength: f64,
    /// See [`CARRIED`] and [`WITH_LOW`].
    carried: f64,
    fewer: f64,
    /// Faded sums of what was measured, and of the strengths that it was measured at.
    measured: f64,
    expected: f64,
    /// Sums of what was measured, in units of the expected costs, with and without the limit.
    limited: f64,
    unlimited: f64,
    /// What all tokens cost, by the measurements, in nats.
    spent: f64,
    tokens: u64,
    measurements: u64,
    /// Tokens since the last measured one, and the number at which the next is measured.
    since: u32,
    every: u32,
}

/// The step that follows a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing: the next token is computed as this one.
    Continue,
    /// The token is measured.
    Measure,
    /// The strength is another one now.
    Change,
}

impl Controller {
    /// Makes a controller of a budget in nats per token, which is above 0.
    pub fn new(budget: f64) -> Self {
        let strength = (budget * FIRST_STRENGTH).min(MOST_STRENGTH);
        Self {
            budget,
            strength,
            carried: CARRIED,
            fewer: 1.0,
            measured: 0.0,
            expected: 0.0,
            limited: 0.0,
            unlimited: 0.0,
            spent: 0.0,
            tokens: 0,
            measurements: 0,
            since: 0,
            every: FIRST_EVERY,
        }
    }

    /// The controller of a model some of whose experts are read in fewer bits.
    pub fn with_low(self) -> Self {
        Self { carried: CARRIED_WITH_LOW, fewer: WITH_LOW, ..self }
    }

    /// Strength of the settings for the next token; at 0, nothing is lost.
    pub const fn strength(&self) -> f64 {
        if self.is_overdrawn() { 0.0 } else { self.strength }
    }

    /// The budget, in nats per token.
    pub const fn budget(&self) -> f64 {
        self.budget
    }

    /// Mean divergence of the tokens up to the last measured one, in nats per token.
    pub fn spent(&self) -> f64 {
        if self.tokens > 0 { self.spent / self.tokens as f64 } else { 0.0 }
    }

    /// Number of tokens computed with this budget.
    pub fn tokens(&self) -> u64 {
        self.tokens + u64::from(self.since)
    }

    /// Number of tokens that were computed exactly as well.
    pub const fn measurements(&self) -> u64 {
        self.measurements
    }

    /// Returns true if the next token is to be measured.
    pub const fn measures_next(&self) -> bool {
        !self.is_overdrawn() && self.since.saturating_add(1) >= self.every
    }

    /// Counts a token that was computed with the settings of [`Self::strength`].
    pub const fn count(&mut self) -> Turn {
        if self.is_overdrawn() {
            self.tokens += 1;
            return if self.is_overdrawn() { Turn::Continue } else { Turn::Change };
        }
        let turn = if self.measures_next() { Turn::Measure } else { Turn::Continue };
        self.since = self.since.saturating_add(1);
        turn
    }

    /// Takes the divergence, in nats, of the prediction of the token counted last from the exact one, which
    /// is used in its place. `busy`: the share of the time since the last measurement in which the disk
    /// was read, 0 to 1.
    pub fn measured(&mut self, kld: f64, busy: f64) {
        let (kld, surprising) =
            if kld.is_nan() { (MOST_KLD, true) } else { self.counted(kld.clamp(0.0, MOST_KLD)) };
        let tokens = f64::from(std::mem::take(&mut self.since));
        self.spent += kld * self.in_all(tokens);
        self.tokens += tokens as u64;
        self.measurements += 1;
        self.measured = self.measured * FADING + kld;
        self.expected = self.expected * FADING + self.strength;
        self.every = if self.tokens < FIRST_TOKENS || surprising {
            FIRST_EVERY
        } else {
            let [least, most] = EVERY.map(f64::from);
            let every = (least + (most - least) * busy.clamp(0.0, 1.0)) * self.fewer;
            every.min(self.tokens as f64 * MOST_OF_ALL).round() as u32
        };
        let aim = self.budget * AIM;
        let left = aim * self.tokens as f64 - self.spent;
        let horizon = (self.tokens as f64).clamp(HORIZON[0], HORIZON[1]);
        let given = (aim + left / horizon).clamp(0.0, aim * MOST_GIVEN);
        let factor = self.measured / self.expected;
        let every = f64::from(self.every);
        let wanted = if factor > 0.0 { given * every / self.in_all(every) / factor } else { f64::INFINITY };
        self.strength =
            wanted.clamp(self.strength / FALL, self.strength * RISE).clamp(self.least(), MOST_STRENGTH);
    }

    /// Returns the divergence that a measured one counts for, and whether it is above the limit.
    fn counted(&mut self, kld: f64) -> (f64, bool) {
        let usual = self.strength * self.measured / self.expected;
        if self.measurements < UNLIMITED || usual <= 0.0 {
            return (kld, false);
        }
        let times = kld / usual;
        self.limited = self.limited * FADING + times.min(LIMIT);
        self.unlimited = self.unlimited * FADING + times.min(MOST_ABOVE);
        let known = ABOVE_LIMIT_MEASUREMENTS;
        let above = (ABOVE_LIMIT * known + self.unlimited) / (known + self.limited);
        (times.min(LIMIT) * usual * above, times > LIMIT)
    }

    /// The cost of `tokens` tokens in units of what is measured at the last of them, which is then exact except for
    /// what is carried.
    fn in_all(&self, tokens: f64) -> f64 {
        (self.carried * tokens - 1.0).max(0.0)
    }

    /// Returns true if the tokens so far cost more than the budget.
    const fn is_overdrawn(&self) -> bool {
        self.spent > self.budget * self.tokens as f64
    }

    /// The least strength, from which it rises again.
    fn least(&self) -> f64 {
        (self.budget * FIRST_STRENGTH).min(MOST_STRENGTH)
    }
}

#[cfg(test)]
mod tests;
