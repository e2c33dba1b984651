//! Experts by layer: a line for each layer, a cell for each expert or for several.

use super::seen::{DEVICE, Layer, RAM, READING, Seen};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

/// From unused to the most used of the layer.
const SHADES: [&str; 5] = ["·", "░", "▒", "▓", "█"];
/// Columns beside the cells: the layer's number, and the share that its device computed.
const BESIDE: usize = 12;

/// Place of an expert: on a device rather than in RAM, in RAM rather than on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Disk,
    Reading,
    Ram,
    Device,
}

impl Kind {
    const fn of(place: u8) -> Self {
        match () {
            () if place & DEVICE != 0 => Self::Device,
            () if place & RAM != 0 => Self::Ram,
            () if place & READING != 0 => Self::Reading,
            () => Self::Disk,
        }
    }

    pub const fn colour(self) -> Color {
        match self {
            Self::Device => Color::Green,
            Self::Ram => Color::Blue,
            Self::Reading => Color::Yellow,
            Self::Disk => Color::DarkGray,
        }
    }

    /// Its letter where there are no colours: a capital if it is used more than the layer's mean.
    const fn letter(self, hot: bool) -> &'static str {
        match (self, hot) {
            (Self::Device, true) => "D",
            (Self::Device, false) => "d",
            (Self::Ram, true) => "R",
            (Self::Ram, false) => "r",
            (Self::Reading, _) => "~",
            (Self::Disk, true) => ":",
            (Self::Disk, false) => ".",
        }
    }
}

/// Number of experts that share a cell, with this many columns.
pub fn each(seen: &Seen, width: usize) -> usize {
    let most = seen.layers.iter().map(|layer| layer.experts).max().unwrap_or(1);
    most.div_ceil(width.saturating_sub(BESIDE).max(1)).max(1)
}

pub fn line(seen: &Seen, layer: &Layer, each: usize, colours: bool) -> Line<'static> {
    let of = layer.start..layer.start + layer.experts;
    let (heat, places) = (&seen.heat[of.clone()], &seen.places[of]);
    let cells = heat.chunks(each).zip(places.chunks(each));
    let cells: Vec<(f64, Kind)> = cells
        .map(|(heat, places)| {
            let kind = places.iter().map(|place| Kind::of(*place)).max().unwrap_or(Kind::Disk);
            (heat.iter().sum(), kind)
        })
        .collect();
    let most = cells.iter().map(|(heat, _)| *heat).fold(1.0, f64::max);
    let mean = cells.iter().map(|(heat, _)| *heat).sum::<f64>() / cells.len().max(1) as f64;
    let mut spans = vec![Span::raw(format!("{:>4} ", layer.number))];
    for (heat, kind) in cells {
        spans.push(if colours {
            let level = (heat.ln_1p() / most.ln_1p() * 4.0).ceil().clamp(0.0, 4.0);
            Span::styled(SHADES[level as usize], Style::new().fg(kind.colour()))
        } else {
            Span::raw(kind.letter(heat > mean))
        });
    }
    let [all, hot] = layer.pairs;
    spans.push(Span::raw(match (layer.lost, layer.slots) {
        (true, _) => "  lost".to_owned(),
        (false, 0) => String::new(),
        (false, _) => format!(" {:>4.0} %", hot as f64 / all.max(1) as f64 * 100.0),
    }));
    Line::from(spans)
}
