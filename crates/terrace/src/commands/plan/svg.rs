//! Layers and tiers as an SVG drawing.

use super::picture::{Kind, share, tiers};
use std::fmt::Write;
use terrace_plan::Plan;
use terrace_plan::parts::Estimate;

/// In pixels: the width of a layer's column with its gap, the height of the largest layer, the
/// margin.
const COLUMN: usize = 10;
const GAP: usize = 2;
const HEIGHT: f64 = 200.0;
const MARGIN: usize = 40;
/// Room for the title above and the legend below.
const HEAD: usize = 60;
const FOOT: usize = 50;
/// Minimum width, for the title.
const LEAST_WIDTH: usize = 640;

/// Colours of the devices, in their order.
const DEVICES: [&str; 4] = ["#2e8b57", "#66b447", "#9acd32", "#20b2aa"];

/// A column per layer, with its bytes stacked by tier: devices at the bottom, the disk on top.
pub fn draw(plan: &Plan) -> String {
    let names = tiers(plan);
    let width = (plan.layers.len() * COLUMN + 2 * MARGIN).max(LEAST_WIDTH);
    let height = HEAD + HEIGHT as usize + FOOT;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    );
    let _ = writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>");
    let title = format!("{} on {}", plan.model.name, plan.machine);
    let speed = plan.estimate.as_ref().map_or_else(String::new, |estimate| {
        let Estimate { decode_tok_s, bound, prefill_tok_s, .. } = estimate;
        format!(": {decode_tok_s:.2} tok/s, bound by {bound}; prefill {prefill_tok_s:.0} tok/s")
    });
    let line = format!("{}{speed}", plan.summary);
    text(&mut out, MARGIN, 24, 15, &title);
    text(&mut out, MARGIN, 44, 12, &line);
    let most = plan.layers.iter().map(|layer| share(layer, "").1).fold(1.0, f64::max);
    for (index, layer) in plan.layers.iter().enumerate() {
        let mut bottom = HEAD as f64 + HEIGHT;
        for (place, name) in names.iter().enumerate() {
            let bar = share(layer, name).0 / most * HEIGHT;
            if bar <= 0.0 {
                continue;
            }
            bottom -= bar;
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{bottom:.1}\" width=\"{}\" height=\"{bar:.1}\" fill=\"{}\"/>",
                MARGIN + index * COLUMN,
                COLUMN - GAP,
                colour(name, place)
            );
        }
    }
    let foot = HEAD + HEIGHT as usize + 16;
    text(
        &mut out,
        MARGIN,
        foot,
        11,
        &format!("layers 0 to {}, and the head", plan.layers.len().saturating_sub(2)),
    );
    let mut x = MARGIN;
    for (place, name) in names.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>",
            foot + 12,
            colour(name, place)
        );
        text(&mut out, x + 14, foot + 21, 11, name);
        x += 40 + 7 * name.len();
    }
    out + "</svg>\n"
}

fn colour(tier: &str, place: usize) -> &'static str {
    match Kind::of(tier) {
        Kind::Device => DEVICES[place % DEVICES.len()],
        Kind::Ram => "#3b6ea8",
        Kind::Disk => "#d9a441",
    }
}

fn text(out: &mut String, x: usize, y: usize, size: usize, text: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{}</text>", escaped(text));
}

/// Escapes text from a file's header, which must not become markup.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
