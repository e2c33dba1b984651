//! Displaying the layers as a table.

use super::Plan;
use super::mode::Mode;
use super::parts::{PlannedExperts, PlannedLayer};
use super::show::TEXT_WIDTH;
use std::fmt;
use terrace_model::ByteSize;

/// A column of the table, aligned to the left or the right.
struct Column {
    title: &'static str,
    width: usize,
    right: bool,
    values: Vec<String>,
}

impl Plan {
    /// Writes a row for each group of layers. Columns without values are left out; in less than 80
    /// columns titles are shorter, and the part of layers on devices that never moves is left out.
    pub(super) fn layer_table(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let groups = self.groups();
        let devices = self.layers.iter().any(|layer| layer.home != "ram");
        let sum = |of: fn(&PlannedLayer) -> ByteSize| {
            groups.iter().map(|group| size(group.iter().map(of).sum())).collect::<Vec<_>>()
        };
        let first = |of: fn(&PlannedLayer) -> String| groups.iter().map(|group| of(&group[0])).collect();
        let left = |title, width, values| Column { title, width, right: false, values };
        let right = |title, values| Column { title, width: 11, right: true, values };

        let mut columns = vec![left("layers", 8, groups.iter().map(|group| names(group)).collect())];
        if devices {
            columns.push(left("on", 8, first(|layer| layer.home.clone())));
        }
        columns.push(left("what", 15, first(|layer| what(layer.mode).into())));
        if !devices || width >= TEXT_WIDTH {
            columns.push(right("dense", sum(|layer| layer.resident)));
        }
        columns.push(right("streamed", sum(|layer| layer.streamed)));
        columns.push(right("experts", sum(|layer| layer.experts.map_or(ByteSize::ZERO, |e| e.bytes))));
        if self.layers.iter().any(|layer| layer.experts.is_some()) {
            let title = if width >= TEXT_WIDTH { "  device/RAM/disk" } else { "  dev/RAM/disk" };
            let values = first(|layer| layer.experts.map_or_else(String::new, shares));
            columns.push(left(title, title.len(), values));
        }
        columns.retain(|column| column.values.iter().any(|value| value != "-"));

        let titles = columns.iter().map(|column| column.cell(column.title)).collect::<String>();
        writeln!(f, "{}", titles.trim_end())?;
        for line in 0..groups.len() {
            let cells = columns.iter().map(|column| column.cell(&column.values[line])).collect::<String>();
            writeln!(f, "{}", cells.trim_end())?;
        }
        Ok(())
    }

    /// Groups consecutive layers with the same home, mode and shares.
    pub fn groups(&self) -> Vec<&[PlannedLayer]> {
        let key = |layer: &PlannedLayer| {
            let experts = layer.experts.map(|e| (e.on_device, e.in_ram.to_bits(), e.on_disk.to_bits()));
            (layer.home.clone(), layer.mode as u8, experts, layer.layer.is_none())
        };
        let mut groups: Vec<&[PlannedLayer]> = Vec::new();
        // Layers of which only every second or so streams matrices are one group, too.
        let streams = |layer: &PlannedLayer| layer.streamed > ByteSize::ZERO;
        let alike = |a: &PlannedLayer, b: &PlannedLayer| {
            key(a) == key(b)
                || (a.home == b.home
                    && a.layer.is_some()
                    && b.layer.is_some()
                    && a.experts.is_none()
                    && b.experts.is_none()
                    && (streams(a) || streams(b)))
        };
        let mut start = 0;
        for end in 1..=self.layers.len() {
            if end == self.layers.len() || !alike(&self.layers[end - 1], &self.layers[end]) {
                groups.push(&self.layers[start..end]);
                start = end;
            }
        }
        groups
    }
}

impl Column {
    fn cell(&self, value: &str) -> String {
        let &Self { width, right, .. } = self;
        if right { format!("{value:>width$}") } else { format!("{value:<width$}") }
    }
}

fn size(size: ByteSize) -> String {
    if size == ByteSize::ZERO { "-".into() } else { size.to_string() }
}

const fn what(mode: Mode) -> &'static str {
    match mode {
        Mode::FullResident | Mode::Mapped => "in memory",
        Mode::ExpertStreaming => "experts stream",
        Mode::DenseFfnStreaming => "FFN streams",
        Mode::MixedStreaming => "streams",
    }
}

fn shares(experts: PlannedExperts) -> String {
    let device = f64::from(experts.on_device) / f64::from(experts.count) * 100.0;
    format!("  {device:.0}/{:.0}/{:.0} %", experts.in_ram * 100.0, experts.on_disk * 100.0)
}

fn names(group: &[PlannedLayer]) -> String {
    match (group.first().and_then(|layer| layer.layer), group.last().and_then(|layer| layer.layer)) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (Some(first), _) => first.to_string(),
        _ => "head".into(),
    }
}
