//! A plot of divergence by layer, with a panel per donor and a line per role.

use super::Swept;
use crate::palette::COLOURS;
use plotters::prelude::*;
use std::collections::BTreeMap;
use terrace_eval::sweep::Donor;

/// In pixels.
const WIDTH: u32 = 900;
const PANEL: u32 = 260;
const HEAD: u32 = 40;
/// End of an axis of divergences that are all zero: the labels of a shorter one overflow.
const SHORTEST_AXIS: f64 = 1e-9;

/// Layers and divergences, by role.
type Lines<'s> = BTreeMap<&'s str, Vec<(u32, f64)>>;

/// Draws the plot, without subjects that belong to no layer.
pub fn draw(swept: &Swept, model: &str) -> String {
    let mut svg = String::new();
    let panels: Vec<(&Donor, Lines<'_>)> = swept
        .donors
        .iter()
        .map(|donor| (donor, lines(swept, donor)))
        .filter(|(_, lines)| !lines.is_empty())
        .collect();
    let height = HEAD + PANEL * u32::try_from(panels.len()).unwrap_or(1);
    // Drawing into a string should not fail, and a sweep is of use without its plot.
    if let Err(error) = draw_into(&mut svg, height, &panels, model) {
        tracing::warn!("the plot is incomplete: {error}");
    }
    svg
}

fn draw_into(
    svg: &mut String,
    height: u32,
    panels: &[(&Donor, Lines<'_>)],
    model: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&format!("Cost of types: {model}"), ("sans-serif", 20))?;
    let areas = root.split_evenly((panels.len().max(1), 1));
    for ((donor, lines), area) in panels.iter().zip(&areas) {
        let points = || lines.values().flatten();
        let last = points().map(|&(layer, _)| layer).fold(1, u32::max);
        let most = points().map(|&(_, kld)| kld).fold(SHORTEST_AXIS, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(&donor.name, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(70)
            .build_cartesian_2d(0..last, 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("layer")
            .y_desc("KL divergence")
            .y_label_formatter(&|kld| format!("{kld:.2e}"))
            .draw()?;
        for (index, (role, points)) in lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()].to_rgba();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
                .label(*role)
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
    }
    root.present()?;
    Ok(())
}

fn lines<'s>(swept: &'s Swept, donor: &Donor) -> Lines<'s> {
    let mut lines = Lines::new();
    for subject in &swept.subjects.0 {
        if let (Some(layer), Some(step)) = (subject.layer, swept.journal.step(&subject.name, &donor.name)) {
            lines.entry(subject.role.as_str()).or_default().push((layer, step.figures.kld));
        }
    }
    lines
}
