//! Blocks ordered by a changing key: a binary heap with an index of its blocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The block is not in the heap.
const NONE: u32 = u32::MAX;

/// A heap with the smallest key first. A change costs O(log n), and does not allocate once the heap
/// has its size.
#[derive(Debug)]
pub struct Heap<K> {
    nodes: Vec<(K, u32)>,
    /// The index of each block in `nodes`.
    places: Box<[u32]>,
    /// Buffer of a search: nodes whose parents were not wanted.
    frontier: BinaryHeap<Reverse<(K, u32, u32)>>,
}

impl<K: Copy + Ord> Heap<K> {
    /// Makes an empty heap for blocks `0..blocks`.
    pub fn new(blocks: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(blocks),
            places: vec![NONE; blocks].into(),
            frontier: BinaryHeap::new(),
        }
    }

    /// Returns whether the block is in the heap.
    pub fn contains(&self, block: u32) -> bool {
        self.places[block as usize] != NONE
    }

    /// Adds `block`, which must not be in the heap.
    pub fn insert(&mut self, block: u32, key: K) {
        debug_assert!(!self.contains(block), "block {block} is in already");
        self.nodes.push((key, block));
        self.rise(self.nodes.len() - 1);
    }

    /// Changes the key of `block`, which must be in the heap.
    pub fn set(&mut self, block: u32, key: K) {
        let at = self.places[block as usize] as usize;
        self.nodes[at].0 = key;
        let at = self.rise(at);
        self.sink(at);
    }

    /// Removes `block`, which must be in the heap.
    pub fn remove(&mut self, block: u32) {
        let at = self.places[block as usize] as usize;
        self.nodes.swap_remove(at);
        self.places[block as usize] = NONE;
        if at < self.nodes.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    /// Returns the first block that is `wanted`, in the order of keys, and of numbers for equal
    /// keys. Costs O(k log k) if k blocks are checked.
    pub fn first(&mut self, wanted: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut frontier = std::mem::take(&mut self.frontier);
        frontier.clear();
        let entry = |at: usize| self.nodes.get(at).map(|&(key, block)| Reverse((key, block, at as u32)));
        frontier.extend(entry(0));
        let mut found = None;
        while let Some(Reverse((_, block, at))) = frontier.pop() {
            if wanted(block) {
                found = Some(block);
                break;
            }
            frontier.extend(entry(2 * at as usize + 1));
            frontier.extend(entry(2 * at as usize + 2));
        }
        self.frontier = frontier;
        found
    }

    /// Moves the node up to its position, and returns that.
    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.nodes[at] < self.nodes[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        self.places[self.nodes[at].1 as usize] = at as u32;
        at
    }

    /// Moves the node down to its position.
    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(mut least) = (left < self.nodes.len()).then_some(left) else { break };
            if right < self.nodes.len() && self.nodes[right] < self.nodes[left] {
                least = right;
            }
            if self.nodes[at] <= self.nodes[least] {
                break;
            }
            self.swap(at, least);
            at = least;
        }
        self.places[self.nodes[at].1 as usize] = at as u32;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.nodes.swap(a, b);
        self.places[self.nodes[a].1 as usize] = a as u32;
        self.places[self.nodes[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a map that is sorted on demand.
        #[test]
        fn equals_a_sorted_map(steps in prop::collection::vec((0u32..20, 0u8..4, 0u64..30), 1..300)) {
            let mut heap = Heap::new(20);
            let mut map: BTreeMap<u32, u64> = BTreeMap::new();
            for (block, action, key) in steps {
                match (action, map.contains_key(&block)) {
                    (0 | 1, false) => {
                        heap.insert(block, key);
                        map.insert(block, key);
                    }
                    (0 | 1, true) => {
                        heap.set(block, key);
                        map.insert(block, key);
                    }
                    (2, true) => {
                        heap.remove(block);
                        map.remove(&block);
                    }
                    _ => {}
                }
                let mut order: Vec<(u64, u32)> = map.iter().map(|(block, key)| (*key, *block)).collect();
                order.sort_unstable();
                let mut seen = Vec::new();
                prop_assert_eq!(heap.first(&mut |block| { seen.push(block); false }), None);
                prop_assert_eq!(seen, order.iter().map(|entry| entry.1).collect::<Vec<_>>());
                let odd = order.iter().map(|entry| entry.1).find(|block| block % 2 == 1);
                prop_assert_eq!(heap.first(&mut |block| block % 2 == 1), odd);
                prop_assert_eq!(heap.contains(block), map.contains_key(&block));
            }
        }
    }
}
