//! A grid of settings with the time of each point, and where it hardly changes.

use crate::optimize::search::GAIN;
use std::fmt::Write;

/// An option with the values that are tried, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The option, without dashes.
    pub name: &'static str,
    pub values: Vec<String>,
}

/// All combinations of three axes; the last changes fastest.
#[derive(Debug)]
pub struct Grid {
    pub axes: [Axis; 3],
}

impl Grid {
    pub const fn new(axes: [Axis; 3]) -> Self {
        Self { axes }
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// The indices of a point's values.
    pub fn indices(&self, at: usize) -> [usize; 3] {
        let [_, b, c] = [0, 1, 2].map(|axis| self.axes[axis].values.len());
        [at / (b * c), at / c % b, at % c]
    }

    /// The point with these indices.
    pub fn at(&self, [i, j, k]: [usize; 3]) -> usize {
        let [_, b, c] = [0, 1, 2].map(|axis| self.axes[axis].values.len());
        (i * b + j) * c + k
    }

    /// The options of a point with their values.
    pub fn values(&self, at: usize) -> [(&'static str, &str); 3] {
        let indices = self.indices(at);
        [0, 1, 2].map(|axis| (self.axes[axis].name, self.axes[axis].values[indices[axis]].as_str()))
    }

    /// All points, each once, no two neighbours one after the other in a large grid.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        let len = self.len();
        let shares_none =
            |stride: &usize| (2..=*stride).all(|n| !(stride.is_multiple_of(n) && len.is_multiple_of(n)));
        let stride = (len * 5 / 13 + 1..len.max(2)).find(shares_none).unwrap_or(1);
        (0..len).map(move |index| index * stride % len)
    }
}

/// Flat parts of the curve, a line for each axis with several values: those whose best point is within
/// [`GAIN`] of the best of all.
pub fn describe(grid: &Grid, medians: &[Option<f64>]) -> Vec<String> {
    let Some(best) = medians.iter().flatten().copied().min_by(f64::total_cmp) else { return Vec::new() };
    let of = |(index, axis): (usize, &Axis)| {
        if axis.values.len() < 2 {
            return None;
        }
        let least = |value: usize| {
            let there = (0..grid.len()).filter(|&at| grid.indices(at)[index] == value);
            there.filter_map(|at| medians[at]).min_by(f64::total_cmp)
        };
        let all: Vec<(&str, Option<f64>)> =
            axis.values.iter().enumerate().map(|(at, value)| (value.as_str(), least(at))).collect();
        let near = |time: &Option<f64>| time.is_some_and(|time| time <= best * (1.0 + GAIN));
        let (flat, others): (Vec<_>, Vec<_>) = all.iter().partition(|(_, time)| near(time));
        let names =
            |list: &[&(&str, Option<f64>)]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let mut line = format!("--{}: ", axis.name);
        match flat.len() {
            1 => line += &format!("not flat, {} is best", names(&flat)),
            n if n == all.len() => line += &format!("flat, all within {:.0} %", GAIN * 100.0),
            _ => line += &format!("flat over {}", names(&flat)),
        }
        for (name, time) in others {
            match time {
                Some(time) => drop(write!(line, "; {name} costs {:.0} %", (time / best - 1.0) * 100.0)),
                None => drop(write!(line, "; {name} was not measured")),
            }
        }
        Some(line)
    };
    grid.axes.iter().enumerate().filter_map(of).collect()
}

/// A table in seconds for each value of the first axis, with a row for each of the second.
pub fn table(grid: &Grid, medians: &[Option<f64>]) -> String {
    let [slots, rows, columns] = &grid.axes;
    let mut text = String::new();
    for (i, share) in slots.values.iter().enumerate() {
        let _ = write!(text, "--{} {share}, s per run\n{:<14}", slots.name, rows.name);
        for depth in &columns.values {
            let _ = write!(text, "{:>16}", format!("{} {depth}", columns.name));
        }
        for (j, ahead) in rows.values.iter().enumerate() {
            let _ = write!(text, "\n{ahead:<14}");
            for k in 0..columns.values.len() {
                let time = medians[grid.at([i, j, k])];
                let _ =
                    write!(text, "{:>16}", time.map_or_else(|| "-".into(), |ms| format!("{:.3}", ms / 1e3)));
            }
        }
        text += "\n\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(lens: [usize; 3]) -> Grid {
        let axis =
            |name, len: usize| Axis { name, values: (0..len).map(|value| value.to_string()).collect() };
        Grid::new([axis("slots-share", lens[0]), axis("lookahead", lens[1]), axis("queue-depth", lens[2])])
    }

    #[test]
    fn it_is_said_where_the_curve_is_flat() {
        let grid = grid([2, 1, 3]);
        // Half the slots cost 50 %; of depths, only the first costs anything.
        let time = |at: usize| {
            let [share, _, depth] = grid.indices(at);
            Some(100.0 * [1.5, 1.0][share] * [1.2, 1.01, 1.0][depth])
        };
        let medians: Vec<_> = (0..grid.len()).map(time).collect();
        let lines = describe(&grid, &medians);
        assert_eq!(
            lines,
            [
                "--slots-share: not flat, 1 is best; 0 costs 50 %",
                "--queue-depth: flat over 1, 2; 0 costs 20 %"
            ]
        );
        let table = table(&grid, &medians);
        assert!(table.contains("--slots-share 0, s per run") && table.contains("0.120"), "{table}");
        // Points without a time.
        let some: Vec<_> =
            medians.iter().enumerate().map(|(at, time)| time.filter(|_| at != 3 && at != 0)).collect();
        assert!(describe(&grid, &some)[1].ends_with("; 0 was not measured"));
        assert_eq!(describe(&grid, &[None; 6]), Vec::<String>::new());
        assert!(describe(&grid, &[Some(5.0); 6])[0].ends_with("flat, all within 3 %"));
    }

    proptest! {
        #[test]
        fn each_point_comes_once(lens in [1usize..6, 1usize..6, 1usize..6]) {
            let grid = grid(lens);
            let mut order: Vec<usize> = grid.order().collect();
            order.sort_unstable();
            prop_assert_eq!(order, (0..grid.len()).collect::<Vec<_>>());
            for at in 0..grid.len() {
                prop_assert_eq!(grid.at(grid.indices(at)), at);
            }
        }
    }
}
