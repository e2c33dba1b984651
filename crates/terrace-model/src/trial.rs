//! The common part of choices by measured prices: averages that forget, time that trials may take, and a
//! choice between two ways of doing the same.

/// A running average that forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    value: f64,
    seen: u64,
}

impl Average {
    /// Adds a value, of which the average takes this part. The first one is the average.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.value += if self.seen == 0 { value } else { (value - self.value) * weight };
        self.seen = self.seen.saturating_add(1);
    }

    /// The average; `None` before the first value.
    pub fn get(self) -> Option<f64> {
        (self.seen > 0).then_some(self.value)
    }

    /// Number of values.
    pub const fn seen(self) -> u64 {
        self.seen
    }
}

/// The time, in seconds, that trials of what does not seem to pay may take. It is earned as a share of
/// other time, so that knowing better has a bounded price.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    credit: f64,
}

impl Allowance {
    /// Adds time.
    pub fn earn(&mut self, seconds: f64) {
        self.credit += seconds;
    }

    /// Returns whether there is so much left.
    pub fn affords(self, seconds: f64) -> bool {
        self.credit >= seconds
    }

    /// Takes time, also more than there is: what a trial takes is known after it.
    pub fn spend(&mut self, seconds: f64) {
        self.credit -= seconds;
    }

    /// Lets what is above this lapse: what was not needed for long is not spent at once.
    pub fn keep_at_most(&mut self, seconds: f64) {
        self.credit = self.credit.min(seconds);
    }
}

/// Parameters of a comparison of two ways.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Number of times that each is taken before they are compared. All but the last of these times are not
    /// measured: a way's first time makes graphs and buffers.
    pub first: u32,
    /// The part of a new price in its average.
    pub weight: f64,
    /// The share of all time that the slower way may take in addition.
    pub share: f64,
}

/// A choice between two ways, 0 and 1, of doing the same amount of work, by what each took. The slower one is
/// tried again as far as its allowance goes, so the choice follows what changes.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    terms: Terms,
    taken: [u32; 2],
    /// Seconds per unit of work.
    prices: [Average; 2],
    allowance: Allowance,
}

impl Trial {
    /// Begins without any price.
    pub const fn new(terms: Terms) -> Self {
        let none = Average { value: 0.0, seen: 0 };
        Self { terms, taken: [0; 2], prices: [none; 2], allowance: Allowance { credit: 0.0 } }
    }

    /// The way for this amount of work: one that is not known yet, the slower one if a trial of it is due, or
    /// the faster one.
    pub fn choose(&mut self, amount: f64) -> usize {
        if let Some(new) = (0..2).find(|&way| self.taken[way] < self.terms.first) {
            return new;
        }
        let [zero, one] = self.prices.map(|price| price.get().unwrap_or(0.0));
        let faster = usize::from(one < zero);
        let loss = (zero - one).abs() * amount;
        if loss > 0.0 && self.allowance.affords(loss) {
            self.allowance.keep_at_most(0.0);
            return 1 - faster;
        }
        faster
    }

    /// A way was taken for this amount of work, and took so many seconds.
    pub fn took(&mut self, way: usize, amount: f64, seconds: f64) {
        self.allowance.earn(seconds * self.terms.share);
        self.taken[way] = self.taken[way].saturating_add(1);
        if self.taken[way] >= self.terms.first {
            self.prices[way].add(seconds / amount, self.terms.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TERMS: Terms = Terms { first: 2, weight: 0.25, share: 1.0 / 64.0 };

    /// Takes a trial's choices with these prices. Returns how often each way was taken, and the seconds.
    fn run(trial: &mut Trial, times: usize, prices: [f64; 2]) -> ([usize; 2], f64) {
        let (mut taken, mut seconds) = ([0; 2], 0.0);
        for _ in 0..times {
            let way = trial.choose(10.0);
            let took = prices[way] * 10.0;
            trial.took(way, 10.0, took);
            taken[way] += 1;
            seconds += took;
        }
        (taken, seconds)
    }

    #[test]
    fn averages_begin_with_the_first_value_and_forget_it() {
        let mut average = Average::default();
        assert_eq!((average.get(), average.seen()), (None, 0));
        average.add(8.0, 0.5);
        assert_eq!(average.get(), Some(8.0));
        average.add(4.0, 0.5);
        assert_eq!((average.get(), average.seen()), (Some(6.0), 2));
    }

    #[test]
    fn the_first_times_are_of_both_ways_and_only_the_last_is_measured() {
        let mut trial = Trial::new(TERMS);
        let mut ways = Vec::new();
        for seconds in [100.0, 1.0, 100.0, 2.0] {
            let way = trial.choose(1.0);
            trial.took(way, 1.0, seconds);
            ways.push(way);
        }
        assert_eq!(ways, [0, 0, 1, 1]);
        assert_eq!(trial.prices.map(Average::get), [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn a_choice_follows_what_changes() {
        let mut trial = Trial::new(TERMS);
        assert!(run(&mut trial, 600, [1.0, 2.0]).0[0] > 580);
        assert!(run(&mut trial, 600, [3.0, 2.0]).0[1] > 500);
        assert!(run(&mut trial, 600, [1.0, 2.0]).0[0] > 500);
    }

    proptest! {
        #[test]
        fn averages_stay_among_their_values(
            values in proptest::collection::vec(0.0f64..1e6, 1..50),
            weight in 0.01f64..=1.0,
        ) {
            let mut average = Average::default();
            values.iter().for_each(|&value| average.add(value, weight));
            let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
            let value = average.get().unwrap();
            prop_assert!(value >= least - 1e-6 && value <= most + 1e-6, "{value}");
        }

        /// Whoever asks first never spends more than was earned.
        #[test]
        fn allowances_bound_what_is_spent(
            steps in proptest::collection::vec((0.0f64..1.0, 0.0f64..5.0, proptest::bool::ANY), 0..200),
        ) {
            let (mut allowance, mut earned, mut spent) = (Allowance::default(), 0.0, 0.0);
            for (earn, cost, lapse) in steps {
                allowance.earn(earn);
                earned += earn;
                if allowance.affords(cost) {
                    allowance.spend(cost);
                    spent += cost;
                }
                if lapse {
                    allowance.keep_at_most(cost);
                }
                prop_assert!(spent <= earned + 1e-9, "{spent} of {earned}");
            }
        }

        /// The slower way costs no more than its share, apart from its first times.
        #[test]
        fn trials_cost_no_more_than_their_share(
            prices in (0.01f64..10.0, 0.01f64..10.0),
            times in 10usize..2000,
        ) {
            let prices = [prices.0, prices.1];
            let (taken, seconds) = run(&mut Trial::new(TERMS), times, prices);
            let (best, worst) = (prices[0].min(prices[1]), prices[0].max(prices[1]));
            let first = 10.0 * (worst - best) * f64::from(TERMS.first);
            let bound = best * 10.0 * times as f64 + first + seconds * TERMS.share;
            prop_assert!(seconds <= bound + 1e-6, "{seconds} of {bound}: {taken:?}");
        }
    }
}
