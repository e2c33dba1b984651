//! Divides a model's tensors among disks that are read together.

use crate::planned::PlannedTensor;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use terrace_model::{LayerId, split_layer};

/// A disk that gets a part of the model.
#[derive(Clone, Debug)]
pub struct Disk {
    /// A folder on it.
    pub folder: PathBuf,
    /// Its rate, in any unit: what counts is how the rates compare.
    pub rate: f64,
}

/// The load of a disk by reading a tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorLoad {
    /// The layer whose feed-forward weights, experts or dense ones, it belongs to: these are read together.
    pub layer: Option<LayerId>,
    pub bytes: u64,
}

impl From<&PlannedTensor> for TensorLoad {
    fn from(tensor: &PlannedTensor) -> Self {
        let name = &tensor.from.name;
        let fed = split_layer(name).is_some_and(|(_, rest)| rest.starts_with("ffn_"));
        Self { layer: tensor.from.layer().filter(|_| fed), bytes: tensor.size.bytes() }
    }
}

/// Returns the disk of each tensor, by its index. The tensors of a layer are divided so that all disks are done with
/// them as nearly at the same time as the largest-first rule gets (R. L. Graham, Bounds on Multiprocessing Timing
/// Anomalies, 1969); equal choices even out what the disks hold in all, as do the tensors of no layer.
///
/// # Panics
/// If there is no disk.
pub fn divide(parts: &[TensorLoad], rates: &[f64]) -> Vec<usize> {
    let mut groups: BTreeMap<Option<LayerId>, Vec<usize>> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        groups.entry(part.layer).or_default().push(index);
    }
    // Those of no layer come last.
    let others = groups.remove(&None).unwrap_or_default();
    let mut chosen = vec![0; parts.len()];
    let mut held = vec![0; rates.len()];
    for (is_layer, mut members) in groups.into_values().map(|group| (true, group)).chain([(false, others)]) {
        members.sort_by_key(|&index| Reverse(parts[index].bytes));
        let mut read = if is_layer { vec![0; rates.len()] } else { held.clone() };
        for index in members {
            let bytes = parts[index].bytes;
            let after = |of: &[u64], disk: usize| nanoseconds(of[disk] + bytes, rates[disk]);
            let best = (0..rates.len()).min_by_key(|&disk| (after(&read, disk), after(&held, disk)));
            let best = best.expect("at least one disk");
            chosen[index] = best;
            read[best] += bytes;
            held[best] += bytes;
        }
    }
    chosen
}

/// Whole units, so that equal times are equal.
fn nanoseconds(bytes: u64, rate: f64) -> u64 {
    (bytes as f64 / rate * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(layer: u32, bytes: u64) -> TensorLoad {
        TensorLoad { layer: Some(LayerId(layer)), bytes }
    }

    /// Bytes of a layer on each disk.
    fn loads(parts: &[TensorLoad], disks: &[usize], layer: u32, count: usize) -> Vec<u64> {
        let mut loads = vec![0; count];
        for (part, &disk) in parts.iter().zip(disks).filter(|(part, _)| part.layer == Some(LayerId(layer))) {
            loads[disk] += part.bytes;
        }
        loads
    }

    #[test]
    fn a_disk_twice_as_fast_gets_two_of_three_matrices() {
        let parts = [part(0, 100), part(0, 100), part(0, 100), part(1, 100), part(1, 100), part(1, 100)];
        let disks = divide(&parts, &[2e9, 1e9]);
        assert_eq!(loads(&parts, &disks, 0, 2), [200, 100]);
        assert_eq!(loads(&parts, &disks, 1, 2), [200, 100]);
    }

    #[test]
    fn equal_disks_take_turns_and_what_is_of_no_layer_evens_out() {
        let mut parts: Vec<TensorLoad> = (0..4).flat_map(|layer| [part(layer, 100); 3]).collect();
        parts.push(part(4, 100));
        parts.push(TensorLoad { layer: None, bytes: 100 });
        let disks = divide(&parts, &[1e9, 1e9]);
        let first = (0..4).map(|layer| loads(&parts, &disks, layer, 2)[0]).collect::<Vec<_>>();
        assert_eq!(first, [200, 100, 200, 100]);
        assert_eq!(disks.iter().filter(|&&disk| disk == 0).count(), 7);
    }

    proptest! {
        /// No division of a layer is done in less than half of the time, and every disk is used that can help.
        #[test]
        fn a_layer_is_done_nearly_as_soon_as_it_can_be(
            bytes in prop::collection::vec(1_000u64..100_000, 1..7),
            rates in prop::collection::vec(1e6f64..8e6, 1..4),
        ) {
            let parts: Vec<TensorLoad> = bytes.iter().map(|&bytes| part(0, bytes)).collect();
            let time = |disks: &[usize]| {
                let loads = loads(&parts, disks, 0, rates.len());
                loads.iter().zip(&rates).map(|(&bytes, rate)| bytes as f64 / rate).fold(0.0, f64::max)
            };
            let all = rates.len().pow(u32::try_from(parts.len()).unwrap());
            let division = |number: usize| -> Vec<usize> {
                (0..parts.len()).map(|at| number / rates.len().pow(at as u32) % rates.len()).collect()
            };
            let best = (0..all).map(|number| time(&division(number))).fold(f64::INFINITY, f64::min);
            // Largest first is at most twice the best on disks of several rates (Gonzalez, Ibarra, Sahni 1977).
            prop_assert!(time(&divide(&parts, &rates)) <= 2.0 * best + 1e-6);
        }
    }
}
