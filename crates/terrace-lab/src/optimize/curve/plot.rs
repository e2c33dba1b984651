//! Draws a curve: a panel per share of the slots, a line per lookahead, over queue depths.

use super::flat::Grid;
use crate::palette::COLOURS;
use plotters::prelude::*;

/// In pixels.
const WIDTH: u32 = 900;
const PANEL: u32 = 240;
const HEAD: u32 = 40;

/// Draws the medians, in milliseconds by point.
pub fn draw(grid: &Grid, medians: &[Option<f64>], model: &str) -> String {
    let mut svg = String::new();
    // Drawing into a string should not fail, and the table has the same numbers.
    if let Err(error) = draw_into(&mut svg, grid, medians, model) {
        tracing::warn!("the curve is incomplete: {error}");
    }
    svg
}

fn draw_into(
    svg: &mut String,
    grid: &Grid,
    medians: &[Option<f64>],
    model: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let [slots, lookaheads, depths] = &grid.axes;
    let panels = u32::try_from(slots.values.len())?;
    let root = SVGBackend::with_string(svg, (WIDTH, HEAD + PANEL * panels)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&format!("Time of a run: {model}"), ("sans-serif", 20))?;
    let most = medians.iter().flatten().copied().fold(1.0, f64::max) / 1e3;
    let last = depths.values.len().saturating_sub(1).max(1);
    for (i, area) in root.split_evenly((slots.values.len(), 1)).iter().enumerate() {
        let mut chart = ChartBuilder::on(area)
            .caption(format!("--{} {}", slots.name, slots.values[i]), ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..last as f64, 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(depths.values.len())
            .x_desc(depths.name)
            .y_desc("seconds")
            .x_label_formatter(&|at| {
                let index = at.round() as usize;
                let is_value = (at - index as f64).abs() < 1e-9;
                depths.values.get(index).filter(|_| is_value).cloned().unwrap_or_default()
            })
            .draw()?;
        for (j, lookahead) in lookaheads.values.iter().enumerate() {
            let colour = COLOURS[j % COLOURS.len()].to_rgba();
            let points = (0..depths.values.len())
                .filter_map(|k| Some((k as f64, medians[grid.at([i, j, k])]? / 1e3)))
                .collect::<Vec<_>>();
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
                .label(format!("--{} {lookahead}", lookaheads.name))
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
    }
    root.present()?;
    Ok(())
}
