//! Layers and experts as a grid of heat.

use std::fmt::Write;
use terrace_model::learn::LearnFile;

/// Maximum number of columns in a terminal; with more experts, several share a column.
const WIDTH: usize = 96;
/// From no use to the most.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
/// Their ANSI colours.
const COLOURS: [u8; 5] = [90, 34, 36, 33, 31];
/// Uses of an expert, as multiples of an even share, from which each shade begins.
const STEPS: [f64; 4] = [0.0, 0.5, 1.0, 2.0];

/// The uses of all layers' experts.
pub struct Grid {
    pub rows: Vec<Row>,
    /// Number of columns: experts of the layer that has most.
    pub experts: usize,
}

/// A layer.
pub struct Row {
    pub layer: u32,
    /// Uses by expert, as multiples of an even share; 0 of experts that were not used.
    pub heat: Vec<f64>,
    /// Number of experts that were used.
    pub used: usize,
    /// The share of the uses that a tenth and a quarter of the experts have, the most used ones.
    pub share: [f64; 2],
}

impl Grid {
    /// Makes the grid of a file.
    pub fn of(file: &LearnFile) -> Self {
        let last = file.layers.iter().filter_map(|layer| layer.experts.last());
        let known = last.map(|uses| uses.expert + 1).max().unwrap_or(0);
        let experts = file.experts.unwrap_or(0).max(known);
        let rows = file.layers.iter().map(|layer| {
            let counts = layer.counts(experts);
            let all: f64 = counts.iter().map(|&count| count as f64).sum();
            let mut heat: Vec<f64> =
                counts.iter().map(|&count| count as f64 / all.max(1.0) * counts.len() as f64).collect();
            let shown = heat.clone();
            heat.sort_by(|a, b| b.total_cmp(a));
            let share = |part: usize| {
                heat[..heat.len().div_ceil(part).min(heat.len())].iter().sum::<f64>()
                    / heat.len().max(1) as f64
            };
            let used = counts.iter().filter(|count| **count > 0).count();
            Row { layer: layer.layer, used, share: [share(10), share(4)], heat: shown }
        });
        Self { rows: rows.collect(), experts: experts as usize }
    }

    /// The grid as text: a line for each layer.
    pub fn text(&self, colours: bool) -> String {
        let each = self.experts.div_ceil(WIDTH).max(1);
        let columns = self.experts.div_ceil(each);
        let mut out =
            format!("{:>5}  {:columns$}  {:>5}  {:>7}  {:>7}\n", "layer", "", "used", "top 10%", "top 25%");
        for row in &self.rows {
            let _ = write!(out, "{:>5}  ", row.layer);
            let mut last = None;
            for part in row.heat.chunks(each) {
                let level = level(part.iter().sum::<f64>() / part.len() as f64);
                if colours && last != Some(level) {
                    let _ = write!(out, "\u{1b}[{}m", COLOURS[level]);
                    last = Some(level);
                }
                out.push(SHADES[level]);
            }
            if colours {
                out.push_str("\u{1b}[0m");
            }
            let [tenth, quarter] = row.share.map(|share| share * 100.0);
            let _ = writeln!(out, "  {:>5}  {tenth:>6.1}%  {quarter:>6.1}%", row.used);
        }
        let _ = write!(
            out,
            "{} none  {} less than half of an even share  {} less than all  {} up to twice  {} more",
            SHADES[0], SHADES[1], SHADES[2], SHADES[3], SHADES[4]
        );
        if each > 1 {
            let _ = write!(out, "; {each} experts share a column");
        }
        out
    }
}

/// The shade of an expert with these uses, as a multiple of an even share.
pub fn level(heat: f64) -> usize {
    if heat <= STEPS[0] { 0 } else { STEPS.iter().skip(1).filter(|&&step| heat >= step).count() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::learn::{ExpertUses, LearnLayer};

    #[test]
    fn shades_follow_shares() {
        for (heat, expected) in [(0.0, 0), (0.1, 1), (0.5, 2), (0.99, 2), (1.0, 3), (2.0, 4), (9.0, 4)] {
            assert_eq!(level(heat), expected, "{heat}");
        }
        let uses = |expert, cold| ExpertUses { expert, hot: 0, cold };
        let layer = LearnLayer { layer: 7, experts: vec![uses(0, 30), uses(3, 10)], ..LearnLayer::default() };
        let file = LearnFile { experts: Some(4), layers: vec![layer], ..LearnFile::default() };
        let grid = Grid::of(&file);
        assert_eq!((grid.rows[0].heat.as_slice(), grid.rows[0].used), (&[3.0, 0.0, 0.0, 1.0][..], 2));
        assert_eq!(grid.rows[0].share, [0.75, 0.75]);
        let text = grid.text(false);
        assert_eq!(text.lines().nth(1), Some("    7  █··▓      2    75.0%    75.0%"), "{text}");
        assert!(!text.contains('\u{1b}') && grid.text(true).contains("\u{1b}[31m█\u{1b}[90m··"), "{text}");
        // Many experts share columns.
        let wide = Grid::of(&LearnFile { experts: Some(500), ..file });
        assert!(wide.text(false).ends_with("; 6 experts share a column"));
        assert_eq!(Grid::of(&LearnFile::default()).rows.len(), 0);
    }
}
