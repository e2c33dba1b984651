//! The results as an SVG drawing: speed, shares of the time, and price by the number of workers.

use super::show::Report;
use plotters::prelude::*;
use std::collections::BTreeSet;
use terrace_lab::palette::COLOURS;
use terrace_plan::scaling::Point;

/// End of an axis of values that are all zero: the labels of a shorter one overflow.
const SHORTEST_AXIS: f64 = 1e-9;
/// In pixels.
const WIDTH: u32 = 900;
const PANEL: u32 = 270;
const HEAD: u32 = 40;

/// A line: its label, and its points by number of workers.
type Curve = (String, Vec<(u32, f64)>);

/// A panel: its title, the label of its axis, and its lines.
struct Panel {
    title: String,
    axis: &'static str,
    lines: Vec<Curve>,
}

/// Draws the plot for a model of this name.
pub fn draw(name: &str, report: &Report) -> String {
    let panels = panels(report);
    let mut svg = String::new();
    let height = HEAD + PANEL * u32::try_from(panels.len()).unwrap_or(1);
    // Drawing into a string should not fail, and the table is of use without its plot.
    if let Err(error) =
        draw_into(&mut svg, height, &panels, &format!("{name} over {}", report.link()), &report.points)
    {
        tracing::warn!("the plot is incomplete: {error}");
    }
    svg
}

fn panels(report: &Report) -> Vec<Panel> {
    let clients: BTreeSet<u32> = report.points.iter().map(|point| point.clients).collect();
    let by_clients = |of: fn(&Point) -> f64| -> Vec<Curve> {
        clients.iter().map(|&n| (named(n), line(&report.points, n, of))).collect()
    };
    let mut panels = vec![
        Panel {
            title: "generated tokens, all clients together".into(),
            axis: "tokens/s",
            lines: by_clients(|point| point.decode_tok_s),
        },
        Panel {
            title: "tokens of a prompt".into(),
            axis: "tokens/s",
            lines: vec![(
                "one prompt".into(),
                line(&report.points, clients.first().copied().unwrap_or(1), |point| point.prefill_tok_s),
            )],
        },
    ];
    let ends = [clients.first(), clients.last()].into_iter().flatten().copied();
    for n in ends.collect::<BTreeSet<u32>>() {
        let of = |name: &str, share: fn(&Point) -> f64| (name.to_owned(), line(&report.points, n, share));
        panels.push(Panel {
            title: format!("shares of a generated token's time, {}", named(n)),
            axis: "%",
            lines: vec![
                of("home", |point| point.busy.home * 100.0),
                of("all workers", |point| point.busy.workers * 100.0),
                of("busiest worker", |point| point.busy.worker * 100.0),
                of("links", |point| point.busy.links * 100.0),
                of("disk", |point| point.busy.disk * 100.0),
            ],
        });
    }
    if report.points.iter().any(|point| point.per_million.is_some()) {
        panels.push(Panel {
            title: "price of a million generated tokens, their prompts included".into(),
            axis: "price",
            lines: by_clients(|point| point.per_million.unwrap_or(0.0)),
        });
    }
    panels
}

fn named(clients: u32) -> String {
    if clients == 1 { "1 client".into() } else { format!("{clients} clients") }
}

fn line(points: &[Point], clients: u32, of: fn(&Point) -> f64) -> Vec<(u32, f64)> {
    points.iter().filter(|point| point.clients == clients).map(|point| (point.workers, of(point))).collect()
}

/// Position of a number of workers: doublings have equal distances, and 0 is beside 1.
fn place(workers: u32) -> f64 {
    if workers == 0 { -1.0 } else { f64::from(workers).log2() }
}

fn draw_into(
    svg: &mut String,
    height: u32,
    panels: &[Panel],
    title: &str,
    points: &[Point],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 20))?;
    let places = || points.iter().map(|point| place(point.workers));
    let (left, right) = (places().fold(f64::INFINITY, f64::min), places().fold(0.0, f64::max));
    for (panel, area) in panels.iter().zip(root.split_evenly((panels.len(), 1))) {
        let most = panel.lines.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(70)
            .build_cartesian_2d(left - 0.1..right + 0.1, 0.0..most.max(SHORTEST_AXIS) * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels((right - left) as usize + 2)
            .x_label_formatter(&|at| match at.round() {
                at if at < 0.0 => "0".into(),
                at => format!("{:.0}", at.exp2()),
            })
            .x_desc("workers")
            .y_desc(panel.axis)
            .draw()?;
        for (index, (label, points)) in panel.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()].to_rgba();
            let points = points.iter().map(|&(workers, value)| (place(workers), value));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
                .label(label)
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
    }
    root.present()?;
    Ok(())
}
