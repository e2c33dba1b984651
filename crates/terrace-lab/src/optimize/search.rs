//! Coordinate descent over settings; pure, with the times of runs as input.
//!
//! Starting from the defaults, one knob is turned after the other. A value is compared with the
//! best so far in alternating runs, so that drift affects both alike: once, and if the value was
//! faster, [`DUEL`] times each. It wins if its median is at least [`GAIN`] better, and by more than
//! the spread of either side's times. If it is better by less than the spread, [`LONG_DUEL`] runs
//! of each decide, without the slowest of each, which another program may have slowed down. Rounds
//! follow until one changes nothing or the time is over; at the end, the best is compared with the
//! defaults once more.

use std::fmt;

/// Runs of each side that decide.
pub const DUEL: usize = 3;
/// Runs of each side if the first ones do not decide.
const LONG_DUEL: usize = 5;
/// Maximum number of rounds: later ones only find noise.
const ROUNDS: usize = 3;
/// Share of the time that a value must save, or the difference is noise: medians of three runs of a
/// few seconds differ by 1 to 2 %.
pub const GAIN: f64 = 0.03;

/// A setting that cannot be derived from the model or the machine, with the values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The option, without dashes.
    pub name: &'static str,
    /// The default as it is printed.
    pub default: String,
    /// The other values.
    pub values: Vec<String>,
}

/// A value for each knob that is not at its default, in the order of the knobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(pub Vec<(&'static str, String)>);

impl Settings {
    /// The value of a knob. `None`: its default.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(knob, _)| *knob == name).map(|(_, value)| value.as_str())
    }

    /// The same settings with another value of a knob. `None`: its default.
    fn with(&self, knob: &Knob, value: Option<&str>) -> Self {
        let mut all = self.0.clone();
        all.retain(|(name, _)| *name != knob.name);
        all.extend(value.map(|value| (knob.name, value.to_owned())));
        Self(all)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.pad("defaults");
        }
        let words: Vec<String> = self.0.iter().map(|(name, value)| format!("--{name} {value}")).collect();
        f.pad(&words.join(" "))
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Its time in milliseconds.
    Took(f64),
    /// It failed, or generated other tokens.
    Unfit,
    /// There is no time left for it, or Ctrl-C was pressed.
    Over,
}

/// The verdict on a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It is the best so far.
    Better,
    /// It is not better.
    No,
    /// It cannot be used.
    Unfit,
    /// Its comparison was not completed.
    Over,
}

/// Runs settings, and is told the verdicts.
pub trait Trials {
    /// Why the search has no result.
    type Error;

    /// Runs once.
    ///
    /// # Errors
    /// What ends the search without a result.
    fn run(&mut self, settings: &Settings) -> Result<Outcome, Self::Error>;

    /// Reports a verdict; both medians are in milliseconds.
    fn judged(&mut self, settings: &Settings, time: Option<f64>, best: f64, verdict: Verdict);
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best settings.
    pub settings: Settings,
    /// Median time of [`DUEL`] runs with the defaults at the beginning, in milliseconds.
    pub default_ms: f64,
    /// Median time with the best settings when they won, in milliseconds.
    pub best_ms: f64,
    /// True if all values were tried.
    pub complete: bool,
}

/// Searches. A warm-up run must have happened before. `None` if there was no time for the defaults.
///
/// # Errors
/// As [`Trials::run`].
pub fn search<T: Trials>(knobs: &[Knob], trials: &mut T) -> Result<Option<Found>, T::Error> {
    let mut best = Settings::default();
    let mut times = Vec::new();
    for _ in 0..DUEL {
        match trials.run(&best)? {
            Outcome::Took(ms) => times.push(ms),
            Outcome::Unfit | Outcome::Over => return Ok(None),
        }
    }
    let default_ms = median(&times);
    let mut found = Found { settings: best.clone(), default_ms, best_ms: default_ms, complete: false };
    for _ in 0..ROUNDS {
        let before = best.clone();
        for knob in knobs {
            let now = best.get(knob.name).map(str::to_owned);
            let others = std::iter::once(None).chain(knob.values.iter().map(|value| Some(value.as_str())));
            for value in others {
                if value == best.get(knob.name) || value == now.as_deref() {
                    continue;
                }
                let challenger = best.with(knob, value);
                let duel = duel(&best, found.best_ms, &challenger, trials)?;
                trials.judged(&challenger, duel.time, duel.best, duel.verdict);
                match duel.verdict {
                    Verdict::Over => return Ok(Some(found)),
                    Verdict::Better => {
                        best = challenger;
                        found.settings = best.clone();
                        found.best_ms = duel.time.unwrap_or(found.best_ms);
                    }
                    Verdict::No | Verdict::Unfit => found.best_ms = duel.best,
                }
            }
        }
        if best == before {
            break;
        }
    }
    confirm(found, trials).map(Some)
}

/// Compares the best with the defaults once more: the times of the beginning may no longer hold.
fn confirm<T: Trials>(mut found: Found, trials: &mut T) -> Result<Found, T::Error> {
    found.complete = true;
    if found.settings == Settings::default() {
        return Ok(found);
    }
    let duel = duel(&Settings::default(), f64::INFINITY, &found.settings, trials)?;
    trials.judged(&found.settings, duel.time, duel.best, duel.verdict);
    match (duel.verdict, duel.time) {
        (Verdict::Better, Some(time)) => (found.default_ms, found.best_ms) = (duel.best, time),
        (Verdict::Over, _) => found.complete = false,
        _ => {
            found.settings = Settings::default();
            (found.default_ms, found.best_ms) = (duel.best, duel.best);
        }
    }
    Ok(found)
}

struct Duel {
    time: Option<f64>,
    best: f64,
    verdict: Verdict,
}

/// `best_ms` is the time of the best so far, reported if the best does not run again. It never
/// decides, because machines drift.
fn duel<T: Trials>(
    best: &Settings,
    best_ms: f64,
    challenger: &Settings,
    trials: &mut T,
) -> Result<Duel, T::Error> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let end = |theirs: &[f64], best, verdict| {
        let time = (!theirs.is_empty()).then(|| median(theirs));
        Ok(Duel { time, best, verdict })
    };
    for round in 1..=LONG_DUEL {
        match trials.run(challenger)? {
            Outcome::Took(ms) => theirs.push(ms),
            Outcome::Unfit => return end(&theirs, best_ms, Verdict::Unfit),
            Outcome::Over => return end(&theirs, best_ms, Verdict::Over),
        }
        match trials.run(best)? {
            Outcome::Took(ms) => ours.push(ms),
            Outcome::Unfit | Outcome::Over => return end(&theirs, best_ms, Verdict::Over),
        }
        if round == 1 && theirs[0] >= ours[0] {
            return end(&theirs, ours[0], Verdict::No);
        }
        if round == DUEL {
            if !is_less(&theirs, &ours) {
                break;
            }
            if is_clear(&theirs, &ours) {
                return end(&theirs, median(&ours), Verdict::Better);
            }
        }
    }
    let clear = theirs.len() == LONG_DUEL && is_clear(&without_slowest(&theirs), &without_slowest(&ours));
    end(&theirs, median(&ours), if clear { Verdict::Better } else { Verdict::No })
}

/// Returns true if the median is better by at least [`GAIN`].
fn is_less(theirs: &[f64], ours: &[f64]) -> bool {
    median(theirs) <= median(ours) * (1.0 - GAIN)
}

/// Returns true if it is also better by more than the spread of each side.
fn is_clear(theirs: &[f64], ours: &[f64]) -> bool {
    let spread = |times: &[f64]| {
        let (least, most) = times.iter().fold((f64::MAX, f64::MIN), |(a, b), t| (a.min(*t), b.max(*t)));
        most - least
    };
    is_less(theirs, ours) && median(ours) - median(theirs) > spread(theirs).max(spread(ours))
}

fn without_slowest(times: &[f64]) -> Vec<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.pop();
    sorted
}

/// The median of at least one number.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn knob(name: &'static str, values: &[&str]) -> Knob {
        Knob { name, default: "auto".into(), values: values.iter().map(|v| (*v).to_owned()).collect() }
    }

    /// A machine whose times are a function of the settings, multiplied with noise, for a number of
    /// runs.
    struct Machine<F> {
        time: F,
        noise: Vec<f64>,
        runs: usize,
        most: usize,
        verdicts: Vec<(String, Verdict)>,
    }

    impl<F: Fn(&Settings) -> Option<f64>> Machine<F> {
        fn new(time: F) -> Self {
            Self { time, noise: vec![1.0], runs: 0, most: usize::MAX, verdicts: Vec::new() }
        }
    }

    impl<F: Fn(&Settings) -> Option<f64>> Trials for Machine<F> {
        type Error = std::convert::Infallible;

        fn run(&mut self, settings: &Settings) -> Result<Outcome, Self::Error> {
            if self.runs == self.most {
                return Ok(Outcome::Over);
            }
            let noise = self.noise[self.runs % self.noise.len()];
            self.runs += 1;
            Ok((self.time)(settings).map_or(Outcome::Unfit, |ms| Outcome::Took(ms * noise)))
        }

        fn judged(&mut self, settings: &Settings, _: Option<f64>, _: f64, verdict: Verdict) {
            self.verdicts.push((settings.to_string(), verdict));
        }
    }

    fn knobs() -> Vec<Knob> {
        vec![knob("threads", &["1", "2", "4"]), knob("lookahead", &["off", "16MiB"])]
    }

    /// Two threads help; switching lookahead off helps only with two threads; four threads generate
    /// other tokens.
    fn time(settings: &Settings) -> Option<f64> {
        let threads = match settings.get("threads") {
            Some("1") => 1200.0,
            Some("2") => 800.0,
            Some("4") => return None,
            _ => 1000.0,
        };
        let off = settings.get("lookahead") == Some("off");
        Some(threads - if off && threads < 900.0 { 100.0 } else { 0.0 })
    }

    #[test]
    fn the_best_of_each_knob_is_found() {
        let mut machine = Machine::new(time);
        let found = search(&knobs(), &mut machine).unwrap().unwrap();
        assert_eq!(found.settings.to_string(), "--threads 2 --lookahead off");
        assert_eq!((found.default_ms, found.best_ms, found.complete), (1000.0, 700.0, true));
        let verdict =
            |name: &str| machine.verdicts.iter().find(|(n, _)| n == name).map(|(_, verdict)| *verdict);
        assert_eq!(verdict("--threads 1"), Some(Verdict::No));
        assert_eq!(verdict("--threads 4"), Some(Verdict::Unfit));
        assert_eq!(verdict("--threads 2"), Some(Verdict::Better));
        assert_eq!(Settings::default().to_string(), "defaults");
    }

    #[test]
    fn a_difference_has_to_be_larger_than_the_noise() {
        let (slow, fast) = ([1000.0, 1010.0, 990.0], [900.0, 910.0, 920.0]);
        assert!(is_clear(&fast, &slow) && !is_clear(&slow, &fast));
        assert!(!is_clear(&[980.0; 3], &slow), "less than what counts");
        assert!(!is_clear(&[900.0, 800.0, 1000.0], &slow), "it takes any time");
        let often = without_slowest(&[900.0, 2000.0, 910.0, 890.0, 905.0]);
        assert!(is_clear(&often, &without_slowest(&[1000.0, 1010.0, 995.0, 1005.0, 3000.0])));
    }

    #[test]
    fn when_time_is_over_the_best_so_far_stays() {
        for most in 0..40 {
            let mut machine = Machine { most, ..Machine::new(time) };
            let found = search(&knobs(), &mut machine).unwrap();
            assert!(machine.runs <= most);
            match found {
                None => assert!(most < DUEL),
                Some(found) => assert!(found.complete || machine.runs == most),
            }
        }
    }

    proptest! {
        /// Noise of 1.5 % in either direction never beats the defaults if no setting makes a
        /// difference.
        #[test]
        fn noise_does_not_win(noise in prop::collection::vec(0.985f64..1.015, 1..50)) {
            let mut machine = Machine { noise, ..Machine::new(|_| Some(1000.0)) };
            let found = search(&knobs(), &mut machine).unwrap().unwrap();
            prop_assert_eq!(found.settings, Settings::default());
            prop_assert!(found.complete);
        }

        /// A clearly better value wins in spite of noise.
        #[test]
        fn what_is_better_wins(noise in prop::collection::vec(0.985f64..1.015, 1..50)) {
            let mut machine = Machine { noise, ..Machine::new(time) };
            let found = search(&knobs(), &mut machine).unwrap().unwrap();
            prop_assert_eq!(found.settings.to_string(), "--threads 2 --lookahead off");
        }
    }
}
