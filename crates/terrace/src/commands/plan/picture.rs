//! Layers and tiers as a picture for the terminal.

use std::fmt::Write;
use terrace_plan::Plan;
use terrace_plan::parts::PlannedLayer;

/// From none to all of a layer's bytes.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// The kind of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Ram,
    Disk,
}

impl Kind {
    /// The kind of the tier with this name.
    pub fn of(tier: &str) -> Self {
        match tier {
            "ram" => Self::Ram,
            "disk" => Self::Disk,
            _ => Self::Device,
        }
    }

    /// The ANSI colour.
    const fn ansi(self) -> u8 {
        match self {
            Self::Device => 32,
            Self::Ram => 34,
            Self::Disk => 33,
        }
    }
}

/// The tiers, from the fastest to the disk.
pub fn tiers(plan: &Plan) -> Vec<&str> {
    let mut names: Vec<&str> = plan.tiers.iter().map(|tier| tier.tier.as_str()).collect();
    // Devices come before RAM.
    names.sort_by_key(|name| Kind::of(name) as u8);
    names
}

/// A layer's bytes in a tier, and its bytes in all tiers.
pub fn share(layer: &PlannedLayer, tier: &str) -> (f64, f64) {
    let (resident, streamed) = (layer.resident.bytes() as f64, layer.streamed.bytes() as f64);
    let mut held = if layer.home == tier { resident } else { 0.0 };
    let mut all = resident + streamed;
    if tier == "disk" {
        held += streamed;
    }
    if let Some(experts) = layer.experts {
        let bytes = experts.bytes.bytes() as f64;
        let on_device = f64::from(experts.on_device) / f64::from(experts.count);
        held += bytes
            * match tier {
                "disk" => experts.on_disk,
                "ram" => experts.in_ram,
                device if device == layer.home => on_device,
                _ => 0.0,
            };
        all += bytes;
    }
    (held, all)
}

/// A row per tier and a column per layer, darker where the tier has more of the layer's bytes. Where layers
/// are more than columns, several share one.
pub fn draw(plan: &Plan, width: usize, colours: bool) -> String {
    let layers = &plan.layers;
    let mut out = String::new();
    let label = plan.tiers.iter().map(|tier| tier.tier.len()).max().unwrap_or(0).max(4);
    let columns = layers.len().min(width.saturating_sub(label + 1)).max(1);
    for tier in tiers(plan) {
        let mut row = String::new();
        for column in 0..columns {
            let part = &layers[column * layers.len() / columns..(column + 1) * layers.len() / columns];
            let (held, all) = part
                .iter()
                .map(|layer| share(layer, tier))
                .fold((0.0, 0.0), |sum, (held, all)| (sum.0 + held, sum.1 + all));
            row.push(shade(if all > 0.0 { held / all } else { 0.0 }));
        }
        let row = row.trim_end();
        let _ = if colours {
            writeln!(out, "{tier:<label$} \x1b[{}m{row}\x1b[0m", Kind::of(tier).ansi())
        } else {
            writeln!(out, "{}", format!("{tier:<label$} {row}").trim_end())
        };
    }
    let last = layers.iter().filter_map(|layer| layer.layer).max().unwrap_or(0);
    let _ = writeln!(out, "{:<label$} layers 0 to {last} and the head; darker: more of its bytes", "");
    out
}

fn shade(share: f64) -> char {
    match share {
        share if share <= 0.005 => SHADES[0],
        share if share >= 0.995 => SHADES[4],
        share => SHADES[1 + ((share * 3.0) as usize).min(2)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_shows_and_nearly_all_is_not_all() {
        let shades: String = [0.0, 0.01, 0.4, 0.9, 0.99, 1.0].into_iter().map(shade).collect();
        assert_eq!(shades, " ░▒▓▓█");
    }
}
