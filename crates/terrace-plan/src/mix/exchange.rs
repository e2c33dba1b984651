//! Making mixes without a solver: greedily, and by exchanges.

use super::{Mix, MixOption};

/// With more groups than this, pairs are not tried, because their number grows with the square.
const MOST_PAIRED: usize = 300;

/// Starts with the smallest mix and repeats the change that gains most per byte, as long as one
/// fits.
pub fn greedy(groups: &[Vec<MixOption>], smallest: &Mix, budget: u64) -> Mix {
    let mut mix = smallest.clone();
    loop {
        let best = singles(groups, &mix)
            .filter(|change| change.fits(&mix, budget) && change.cost < 0.0)
            .max_by(|a, b| a.rate().total_cmp(&b.rate()));
        match best {
            Some(change) => change.apply(groups, &mut mix),
            None => return mix,
        }
    }
}

/// Changes one group, or makes one larger and another smaller, as long as that lowers the cost.
pub fn improved(groups: &[Vec<MixOption>], mut mix: Mix, budget: u64) -> Mix {
    loop {
        let cheapest = |a: &Change, b: &Change| a.cost.total_cmp(&b.cost);
        let single = singles(groups, &mix).filter(|change| change.fits(&mix, budget)).min_by(cheapest);
        let best = match single {
            Some(change) if change.gains(&mix) => Some(change),
            _ => pairs(groups, &mix).into_iter().filter(|change| change.fits(&mix, budget)).min_by(cheapest),
        };
        match best.filter(|change| change.gains(&mix)) {
            Some(change) => change.apply(groups, &mut mix),
            None => return mix,
        }
    }
}

/// Returns mixes that fit and differ in one group or in two, the cheapest first.
pub fn neighbours(groups: &[Vec<MixOption>], mix: &Mix, budget: u64) -> Vec<Mix> {
    let changed = |change: Change| {
        let mut other = mix.clone();
        change.apply(groups, &mut other);
        other
    };
    let all = singles(groups, mix).chain(pairs(groups, mix));
    let mut fitting: Vec<Change> = all.filter(|change| change.fits(mix, budget)).collect();
    fitting.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    // No caller measures more of them.
    fitting.truncate(64);
    fitting.into_iter().map(changed).collect()
}

/// Another option for one group or two, with the differences in bytes and cost.
#[derive(Clone, Copy, Debug)]
struct Change {
    first: (usize, usize),
    second: Option<(usize, usize)>,
    bytes: i128,
    cost: f64,
}

impl Change {
    fn fits(&self, mix: &Mix, budget: u64) -> bool {
        i128::from(mix.bytes) + self.bytes <= i128::from(budget)
    }

    /// Returns whether the gain exceeds rounding, so that improvements come to an end.
    fn gains(&self, mix: &Mix) -> bool {
        self.cost < -1e-12 * mix.cost.max(f64::MIN_POSITIVE)
    }

    /// Returns the gain per byte, infinite if no bytes are needed.
    fn rate(&self) -> f64 {
        if self.bytes <= 0 { f64::INFINITY } else { -self.cost / self.bytes as f64 }
    }

    fn apply(&self, groups: &[Vec<MixOption>], mix: &mut Mix) {
        for (group, option) in [Some(self.first), self.second].into_iter().flatten() {
            mix.choice[group] = option;
        }
        *mix = Mix::of(groups, std::mem::take(&mut mix.choice));
    }
}

fn singles<'a>(groups: &'a [Vec<MixOption>], mix: &'a Mix) -> impl Iterator<Item = Change> + 'a {
    groups.iter().enumerate().flat_map(move |(group, options)| {
        let now = options[mix.choice[group]];
        let others = options.iter().enumerate().filter(move |&(option, _)| option != mix.choice[group]);
        others.map(move |(option, other)| Change {
            first: (group, option),
            second: None,
            bytes: i128::from(other.bytes) - i128::from(now.bytes),
            cost: other.cost - now.cost,
        })
    })
}

fn pairs(groups: &[Vec<MixOption>], mix: &Mix) -> Vec<Change> {
    if groups.len() > MOST_PAIRED {
        return Vec::new();
    }
    let singles: Vec<Change> = singles(groups, mix).collect();
    let (cheaper, dearer): (Vec<&Change>, Vec<&Change>) =
        singles.iter().partition(|change| change.cost < 0.0);
    let pair = |up: &Change, down: &Change| Change {
        first: up.first,
        second: Some(down.first),
        bytes: up.bytes + down.bytes,
        cost: up.cost + down.cost,
    };
    let different = |up: &Change, down: &Change| up.first.0 != down.first.0;
    let of = |&up: &&Change| {
        let downs = dearer.iter().filter(move |down| different(up, down));
        downs.map(move |down| pair(up, down)).collect::<Vec<_>>()
    };
    cheaper.iter().flat_map(of).collect()
}
