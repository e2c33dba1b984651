use super::*;
use proptest::prelude::*;

/// A model and a text: what tokens cost at a strength.
#[derive(Clone, Copy, Debug)]
struct Plant {
    /// The cost at a strength is this times a power of the strength in units of the budget.
    factor: f64,
    slope: f64,
    /// The spread of single tokens' costs: the standard deviation of their logarithm.
    spread: f64,
    busy: f64,
}

/// Costs of all tokens, in units of the budget, and the strength after each.
fn run(plant: Plant, tokens: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let budget = 0.02;
    let mut state = seed | 1;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / (1_u64 << 31) as f64
    };
    let mut controller = Controller::new(budget);
    let (mut costs, mut strengths) = (Vec::new(), Vec::new());
    for _ in 0..tokens {
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        // Of mean 1.
        let noise = (plant.spread * normal - plant.spread * plant.spread / 2.0).exp();
        let strength = controller.strength();
        let kld = budget * plant.factor * (strength / budget).powf(plant.slope) * noise;
        let carried = kld * (CARRIED - 1.0);
        if controller.count() == Turn::Measure {
            controller.measured(kld, plant.busy);
            costs.push(carried / budget);
        } else {
            costs.push((carried + kld) / budget);
        }
        strengths.push(strength);
    }
    (costs, strengths)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn plants(spread: std::ops::Range<f64>) -> impl Strategy<Value = Plant> {
    (-2.0_f64..2.0, 0.6_f64..1.6, spread, 0.0_f64..1.0).prop_map(|(factor, slope, spread, busy)| Plant {
        factor: factor.exp(),
        slope,
        spread,
        busy,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn steady_costs_meet_the_budget_after_200_tokens(plant in plants(0.0..0.4), seed: u64) {
        let (costs, _) = run(plant, 1000, seed);
        let after = mean(&costs[200..400]);
        prop_assert!((0.6..1.1).contains(&after), "{after}");
        for window in costs.windows(1000) {
            prop_assert!(mean(window) < 1.05, "{}", mean(window));
        }
    }

    /// Single tokens' costs differ as those of the texts that were measured, whose standard deviation is 1.3 times
    /// their mean.
    #[test]
    fn erratic_costs_rarely_exceed_the_budget_by_a_fifth(plant in plants(0.9..1.1), seed: u64) {
        let runs: Vec<f64> =
            (0..100).map(|more| mean(&run(plant, 1000, seed.wrapping_add(more * 7919)).0)).collect();
        let over = runs.iter().filter(|&&mean| mean > 1.2).count();
        prop_assert!(over <= 10, "{over} of 100: {:.2}", mean(&runs));
        prop_assert!((0.6..1.0).contains(&mean(&runs)), "{:.2}", mean(&runs));
    }

    #[test]
    fn nothing_is_spent_at_first_and_strengths_stay_within_bounds(plant in plants(0.0..2.0), seed: u64) {
        let (_, strengths) = run(plant, 300, seed);
        prop_assert!(strengths[..4].iter().all(|&strength| strength == 0.02 / 64.0));
        // Where nothing is lost for a while, what comes after follows what was before.
        let lossy: Vec<f64> = strengths.iter().copied().filter(|&strength| strength > 0.0).collect();
        for pair in lossy.windows(2) {
            prop_assert!(pair[1] <= pair[0] * RISE && pair[1] >= pair[0] / FALL);
            prop_assert!((0.02 / 64.0..=MOST_STRENGTH).contains(&pair[1]));
        }
    }
}

#[test]
fn what_was_measured_is_what_is_reported() {
    let mut controller = Controller::new(0.1);
    let mut count = |kld: f64, busy: f64| {
        let mut tokens = 1;
        while controller.count() != Turn::Measure {
            tokens += 1;
        }
        controller.measured(kld, busy);
        (tokens, controller.clone())
    };
    let (tokens, after) = count(0.04, 0.0);
    assert_eq!((tokens, after.tokens(), after.measurements()), (4, 4, 1));
    assert!((after.spent() - 0.04 * (CARRIED * 4.0 - 1.0) / 4.0).abs() < 1e-12, "{}", after.spent());
    let first = (0..23).map(|_| count(0.02, 1.0).0).max();
    assert_eq!(first, Some(FIRST_EVERY), "the first 96 tokens");
    while count(0.02, 1.0).1.tokens() < 1000 {}
    let later = [1.0, 0.0, 0.5, 1.0].map(|busy| count(0.02, busy).0);
    assert_eq!(later, [EVERY[1], EVERY[1], EVERY[0], 40], "each is told by the one before");
    let (_, after) = count(f64::NAN, 0.0);
    assert!(after.spent().is_finite());
    assert_eq!(after.strength(), 0.0);
}

#[test]
fn single_measurements_stand_for_few_tokens_at_first() {
    let mut controller = Controller::new(0.1);
    while controller.tokens() < 2000 {
        let before = controller.tokens;
        while controller.count() != Turn::Measure {}
        let every = controller.tokens() - before;
        assert!(every <= 4.max(before / 16 + 1), "{every} after {before}");
        controller.measured(0.02, 1.0);
    }
}

#[test]
fn nothing_is_lost_while_more_than_the_budget_is_spent() {
    let mut controller = Controller::new(0.02);
    while controller.count() != Turn::Measure {}
    controller.measured(0.5, 1.0);
    let mut paused = 4;
    while controller.spent() > 0.02 {
        assert_eq!(controller.strength(), 0.0, "after {paused} tokens");
        paused += 1;
        let turn = controller.count();
        let left = controller.spent() > 0.02;
        assert_eq!(turn, if left { Turn::Continue } else { Turn::Change });
    }
    assert_eq!((controller.tokens(), controller.measurements()), (paused, 1));
    // 0.5 nats on 4 tokens, of which one is exact.
    assert_eq!(paused, (0.5 * (CARRIED * 4.0 - 1.0) / 0.02_f64).ceil() as u64);
    assert!(controller.strength() > 0.0);
}

/// A text that suddenly costs more is noticed.
#[test]
fn a_text_that_costs_more_gets_less_strength() {
    let mut controller = Controller::new(0.02);
    let mut costs = Vec::new();
    for token in 0..3000 {
        let factor = if token < 1000 { 0.5 } else { 4.0 };
        let kld = controller.strength() * factor;
        if controller.count() == Turn::Measure {
            controller.measured(kld, 0.5);
        }
        costs.push(kld);
    }
    assert!(mean(&costs) < 0.02 * 1.05, "{}", mean(&costs));
    assert!(mean(&costs[1000..2000]) < 0.02 * 1.4, "{}", mean(&costs[1000..2000]));
    assert!(mean(&costs[2000..]) > 0.02 * 0.5, "{}", mean(&costs[2000..]));
}
