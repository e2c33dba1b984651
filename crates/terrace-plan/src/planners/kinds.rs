//! Kinds of layers: a program over kinds is small even if one over layers is not.

use crate::model::class::TensorClass;
use crate::place::costs::Costs;
use crate::place::workload::Workload;
use std::collections::BTreeMap;

/// A group of equal layers.
pub struct Group {
    /// Index of one of the layers.
    pub layer: usize,
    /// Number of layers.
    pub count: usize,
    /// The matrices of a layer: one by one if the group is a single layer, otherwise by class.
    pub items: Vec<Item>,
}

/// Matrices of a layer that are streamed together.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub class: TensorClass,
    pub bytes: u64,
    pub seconds: f64,
    pub largest: u64,
    /// See [`Costs::idle`].
    pub idle: f64,
    /// Index in [`Workload::matrices`] of the first of them.
    pub matrix: usize,
}

fn items(work: &Workload, costs: &Costs, layer: usize, by_class: bool) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for (matrix, of) in work.matrices.iter().enumerate().filter(|(_, matrix)| matrix.layer == layer) {
        let (class, bytes, seconds) = (of.class, of.bytes, costs.stream[matrix]);
        let idle = costs.idle[matrix];
        match items.iter_mut().find(|item| by_class && item.class == class) {
            Some(item) => {
                item.bytes += bytes;
                item.seconds += seconds;
                item.largest = item.largest.max(bytes);
                item.idle += idle;
            }
            None => items.push(Item { class, bytes, seconds, largest: bytes, idle, matrix }),
        }
    }
    items
}

/// Groups layers that hold and cost the same.
pub fn grouped(work: &Workload, costs: &Costs) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let numbers =
        |items: &[Item]| -> Vec<(u64, u64)> { items.iter().map(|i| (i.bytes, i.largest)).collect() };
    for layer in 0..work.layers.len() {
        let items = items(work, costs, layer, true);
        let same = |group: &&mut Group| {
            let (a, b) = (&work.layers[group.layer], &work.layers[layer]);
            costs.layers[group.layer] == costs.layers[layer]
                && costs.batches.iter().all(|batch| batch.layers[group.layer] == batch.layers[layer])
                && (a.dense, a.cache, &a.experts) == (b.dense, b.cache, &b.experts)
                && numbers(&group.items) == numbers(&items)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.count += 1,
            None => groups.push(Group { layer, count: 1, items }),
        }
    }
    groups
}

/// Merges groups with the same numbers of experts into one, represented by the layer of median
/// size. The head stays alone.
pub fn merged(work: &Workload, groups: Vec<Group>) -> Vec<Group> {
    type Key = (bool, Option<(u32, u32)>);
    let mut kinds: BTreeMap<Key, Vec<Group>> = BTreeMap::new();
    for group in groups {
        let load = &work.layers[group.layer];
        let experts = load.experts.as_ref().map(|experts| (experts.count, experts.top_k));
        kinds.entry((load.id.is_none(), experts)).or_default().push(group);
    }
    let size = |group: &Group| {
        let load = &work.layers[group.layer];
        load.dense + load.experts.as_ref().map_or(0, |experts| experts.bytes)
    };
    let stand_in = |mut kind: Vec<Group>| {
        kind.sort_by_key(|group| (size(group), group.layer));
        let count = kind.iter().map(|group| group.count).sum();
        let middle = kind.swap_remove(kind.len() / 2);
        Group { count, ..middle }
    };
    kinds.into_values().map(stand_in).collect()
}

/// Makes a group of each layer, with each matrix as an item.
pub fn single(work: &Workload, costs: &Costs) -> Vec<Group> {
    let group = |layer| Group { layer, count: 1, items: items(work, costs, layer, false) };
    (0..work.layers.len()).map(group).collect()
}
