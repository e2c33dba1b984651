//! The grid of layers and experts as an SVG drawing, for light and dark pages.

use super::grid::{Grid, level};
use crate::commands::plan::escaped;
use std::fmt::Write;

/// In pixels: the distance of cells, and their size; the margins.
const STEP: usize = 9;
const CELL: usize = 8;
const LEFT: usize = 48;
const TOP: usize = 44;
const BOTTOM: usize = 36;
/// Minimum width, for the legend.
const LEAST_WIDTH: usize = 560;

/// Meanings of the shades, from the least.
const MEANINGS: [&str; 5] = ["none", "&lt; half of an even share", "&lt; even share", "&lt; twice", "more"];

/// Colours in light and dark: text, background, and shades from no use to the most.
const STYLE: &str = "svg{--t:#24292f;--p:#fff;--s0:#eceff3;--s1:#cfe0f3;--s2:#86b6e4;--s3:#3d7fc4;--s4:#123f7a}\
@media(prefers-color-scheme:dark){svg{--t:#d5dae1;--p:#14171c;--s0:#20252d;--s1:#1d3a5c;--s2:#2c639c;--s3:#5a9fe0;--s4:#d3e8ff}}\
text{fill:var(--t);font:11px sans-serif}.p{fill:var(--p)}.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}";

/// A row for each layer and a column for each expert.
pub fn draw(grid: &Grid, title: &str) -> String {
    let width = (LEFT + grid.experts * STEP + 16).max(LEAST_WIDTH);
    let height = TOP + grid.rows.len() * STEP + BOTTOM;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{0}</title><style>{STYLE}</style><rect class=\"p\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{0}</text>",
        escaped(title)
    );
    let last = grid.experts.saturating_sub(1);
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">experts 0 to {last}</text>", TOP - 8);
    // One path for each shade keeps a grid of 50,000 cells small.
    for shade in 0..MEANINGS.len() {
        let mut path = String::new();
        for (y, row) in grid.rows.iter().enumerate() {
            for (x, _) in row.heat.iter().enumerate().filter(|(_, heat)| level(**heat) == shade) {
                let (x, y) = (LEFT + x * STEP, TOP + y * STEP);
                let _ = write!(path, "M{x} {y}h{CELL}v{CELL}h-{CELL}z");
            }
        }
        let _ = writeln!(out, "<path class=\"s{shade}\" d=\"{path}\"/>");
    }
    // Numbers of layers, as many as have room.
    for (y, row) in grid.rows.iter().enumerate().filter(|(y, _)| y % 2 == 0) {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 6,
            TOP + y * STEP + CELL,
            row.layer
        );
    }
    let mut x = LEFT;
    let y = height - 14;
    for (shade, meaning) in MEANINGS.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect class=\"s{shade}\" x=\"{x}\" y=\"{}\" width=\"{CELL}\" height=\"{CELL}\"/><text x=\"{}\" y=\"{y}\">{meaning}</text>",
            y - CELL,
            x + 12
        );
        x += 36 + 6 * meaning.len();
    }
    out + "</svg>\n"
}
