//! The pieces of graphs that devices' own backends compute between two of Terrace's, counted by the
//! layers around them.
//!
//! ggml's scheduler passes them to the devices by itself. What Terrace sees is the time from the
//! end of one of its own pieces to the start of the next one of the same graph, and after its last
//! piece to the time when logits are there. That includes the scheduler's copies of activations, and
//! of weights in main memory if a device computes with these.

use std::time::{Duration, Instant};
use terrace_model::LayerId;
use terrace_store::Store;
use terrace_store::timeline::{Track, What};

/// Maximum number of counters: some for each layer. Pieces without one are not counted.
const MAX_COUNTERS: usize = 4096;

/// Devices of whole layers, and the pieces that were computed there.
#[derive(Debug, Default)]
pub struct Pieces {
    devices: Vec<String>,
    /// The device of each layer, by its index in `devices`; `None` for layers that no device
    /// holds.
    homes: Vec<Option<usize>>,
    /// True if a device holds the output head, and so computes after Terrace's last piece.
    head: bool,
    /// When Terrace's last piece was computed, and the layer of its last node.
    last: Option<(Instant, Option<LayerId>)>,
    totals: Vec<Total>,
    counts: PieceCounts,
}

/// Counts of Terrace's own pieces since the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Pieces computed.
    pub computed: u64,
    /// Pieces of graphs that were new, and so had to be taken apart before.
    pub scanned: u64,
}

/// The borders of a piece: the layers of the nodes before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borders {
    /// Layer of the last node before; `None` if that is of no layer.
    pub after: Option<LayerId>,
    /// Layer of the first node after; `None` if that is of no layer.
    pub before: Option<LayerId>,
}

#[derive(Debug)]
struct Total {
    borders: Borders,
    pieces: u64,
    time: Duration,
}

/// The pieces of a device between the same layers, since the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceReport {
    /// The device that holds the layers, or the one that computes with weights in main memory.
    pub device: String,
    /// The first layer that has nodes in the piece, as far as the nodes around it tell.
    pub first: u32,
    pub last: u32,
    /// Number of times that it was computed.
    pub pieces: u64,
    /// Time from the end of the piece before to the start of the piece after.
    pub time: Duration,
}

impl Pieces {
    /// Makes counters for a model. `homes` is the device of each layer, if one holds it as a whole;
    /// `head` tells whether one holds the output head; `others` are devices that may compute large
    /// batches with weights in main memory.
    pub fn new(homes: &[Option<String>], head: bool, others: &[String]) -> Self {
        let mut devices: Vec<String> = Vec::new();
        let mut index_of = |name: &str| {
            devices.iter().position(|other| other == name).unwrap_or_else(|| {
                devices.push(name.to_owned());
                devices.len() - 1
            })
        };
        let homes = homes.iter().map(|home| home.as_deref().map(&mut index_of)).collect();
        for name in others {
            index_of(name);
        }
        Self { devices, homes, head, ..Self::default() }
    }

    /// Notes that one of Terrace's pieces was computed.
    pub(crate) fn ended(&mut self, at: Instant, layer: Option<LayerId>) {
        self.last = Some((at, layer));
        self.counts.computed += 1;
    }

    /// Notes that a new piece was taken apart.
    pub(crate) fn scanned(&mut self) {
        self.counts.scanned += 1;
    }

    /// Counts of Terrace's own pieces.
    pub const fn counts(&self) -> PieceCounts {
        self.counts
    }

    /// Notes that logits are there, or that they are not waited for: Terrace's last piece was the
    /// last of its graph. Call after each call of llama.cpp that computes.
    pub fn returned(&mut self, waited: bool, store: &mut Store) {
        let Some((from, after)) = self.last.take() else { return };
        if self.head && waited {
            self.add(Borders { after, before: None }, from, Instant::now(), store);
        }
    }

    /// Counts a piece, and records it in the timeline.
    pub(crate) fn add(&mut self, borders: Borders, from: Instant, to: Instant, store: &mut Store) {
        self.count(borders, to.saturating_duration_since(from));
        if let Some(timeline) = store.timeline_mut() {
            let Borders { after, before } = borders;
            let device = self.device_of(borders).unwrap_or(self.devices.len());
            timeline.between(from, to, track(device), What::Piece { after, before });
        }
    }

    fn count(&mut self, borders: Borders, time: Duration) {
        if let Some(total) = self.totals.iter_mut().find(|total| total.borders == borders) {
            total.pieces += 1;
            total.time += time;
        } else if self.totals.len() < MAX_COUNTERS {
            self.totals.push(Total { borders, pieces: 1, time });
        }
    }

    /// The device (by index) of a piece; `None` if several may have computed it.
    fn device_of(&self, borders: Borders) -> Option<usize> {
        let (first, last) = self.layers(borders);
        let held = (first..=last).find_map(|layer| *self.homes.get(layer as usize)?);
        held.or((self.devices.len() == 1).then_some(0))
    }

    /// The first and the last layer of a piece.
    fn layers(&self, Borders { after, before }: Borders) -> (u32, u32) {
        let end = u32::try_from(self.homes.len()).unwrap_or(u32::MAX).saturating_sub(1);
        match (after, before) {
            (Some(after), Some(before)) if after == before => (after.0, before.0),
            // A piece with the end of a layer and the start of the next one.
            (Some(after), Some(before)) if after.0 + 1 >= before.0 => {
                (before.0.min(after.0), after.0.max(before.0))
            }
            _ => {
                let first = after.map_or(0, |after| after.0 + 1);
                let last = before.map_or(end, |before| before.0.saturating_sub(1));
                (first.min(last), first.max(last))
            }
        }
    }

    /// The totals, in the order of layers.
    pub fn report(&self) -> Vec<PieceReport> {
        let mut all: Vec<PieceReport> = self
            .totals
            .iter()
            .map(|total| {
                let (first, last) = self.layers(total.borders);
                let device = self.device_of(total.borders).map_or("devices", |device| &self.devices[device]);
                PieceReport { device: device.to_owned(), first, last, pieces: total.pieces, time: total.time }
            })
            .collect();
        all.sort_by_key(|piece| (piece.first, piece.last));
        // Different nodes may be the borders of the same layers, as in prompts and single tokens.
        all.dedup_by(|next, kept| {
            let same = (&next.device, next.first, next.last) == (&kept.device, kept.first, kept.last);
            if same {
                kept.pieces += next.pieces;
                kept.time += next.time;
            }
            same
        });
        all
    }

    /// Names the devices' tracks in the timeline that is being recorded.
    pub fn name_tracks(&self, store: &mut Store) {
        let Some(timeline) = store.timeline_mut() else { return };
        for (index, device) in self.devices.iter().enumerate() {
            timeline.name(track(index), format!("layers on {device}"));
        }
        timeline.name(track(self.devices.len()), "layers on devices".to_owned());
    }
}

fn track(device: usize) -> Track {
    Track::Device(u32::try_from(device).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn borders(after: Option<u32>, before: Option<u32>) -> Borders {
        Borders { after: after.map(LayerId), before: before.map(LayerId) }
    }

    #[test]
    fn layers_lie_between_the_nodes_around_them() {
        let gpu = |index: u32| Some(format!("GPU{index}"));
        let homes = [None, None, gpu(0), gpu(0), gpu(1), None];
        let pieces = Pieces::new(&homes, false, &["GPU2".to_owned()]);
        let of = |after, before| pieces.layers(borders(after, before));
        assert_eq!(of(Some(1), None), (2, 5));
        assert_eq!(of(None, None), (0, 5));
        assert_eq!(of(Some(1), Some(4)), (2, 3));
        assert_eq!(of(Some(1), Some(3)), (2, 2));
        assert_eq!(of(Some(1), Some(2)), (1, 2), "the end of one and the start of the other");
        assert_eq!(of(Some(3), Some(3)), (3, 3), "within a layer");
        assert_eq!(of(None, Some(0)), (0, 0), "before the first layer");
        let device = |after, before| pieces.device_of(borders(after, before));
        assert_eq!(device(Some(1), Some(4)), Some(0));
        assert_eq!(device(Some(3), Some(5)), Some(1));
        assert_eq!(device(Some(0), Some(1)), None, "any of three");
        let one = Pieces::new(&[None, None], false, &["GPU2".to_owned()]);
        assert_eq!(one.device_of(borders(Some(0), Some(1))), Some(0));
        assert_eq!(Pieces::default().layers(borders(None, None)), (0, 0));
    }

    #[test]
    fn pieces_of_the_same_layers_are_added_up() {
        let mut pieces = Pieces::new(&[None, Some("GPU0".into()), Some("GPU0".into())], true, &[]);
        let time = Duration::from_millis(3);
        for borders in [borders(Some(0), None), borders(None, None), borders(Some(0), None)] {
            pieces.count(borders, time);
        }
        let report = pieces.report();
        let of = |index: usize| (report[index].first, report[index].last, report[index].pieces);
        assert_eq!((report.len(), of(0), of(1)), (2, (0, 2, 1), (1, 2, 2)));
        assert_eq!(report.iter().map(|piece| piece.time).sum::<Duration>(), 3 * time);
    }
}
