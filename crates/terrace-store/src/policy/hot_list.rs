//! The policy `static`: the experts of a list stay, all others are evicted by LRU.

use super::heap::Heap;
use super::lists::Lists;
use super::{Policy, Population};
use crate::block::BlockId;
use crate::error::StoreError;
use std::collections::HashMap;
use std::path::Path;
use terrace_model::{ExpertId, LayerId};
use terrace_platform::input_file;

/// A list of experts, the hottest first.
///
/// Its text has a line for each expert, with the layer number and the expert number. Anything after
/// a `#` is a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotList(pub Vec<(LayerId, ExpertId)>);

/// The most bytes of a list: a million experts take half of it.
const MOST_BYTES: u64 = 16 << 20;

/// A line that is not an expert of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}` is not a layer number and an expert number")]
pub struct ParseHotListError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Text of the line.
    pub text: String,
}

impl std::str::FromStr for HotList {
    type Err = ParseHotListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut experts = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            let mut words = words.split_whitespace().map(str::parse::<u32>);
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(Ok(layer)), Some(Ok(expert)), None) => experts.push((LayerId(layer), ExpertId(expert))),
                _ => {
                    return Err(ParseHotListError { line: index + 1, text: line.chars().take(80).collect() });
                }
            }
        }
        Ok(Self(experts))
    }
}

impl std::fmt::Display for HotList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(layer, expert)| writeln!(f, "{layer} {expert}"))
    }
}

impl HotList {
    /// Reads a list from a file.
    ///
    /// # Errors
    /// [`StoreError::HotList`] if the file cannot be read or is not a list.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let failed = |reason: String| StoreError::HotList { path: path.to_owned(), reason };
        // A trace may name the list, so the path may be any.
        let text =
            input_file::read_regular_text(path, MOST_BYTES).map_err(|error| failed(error.to_string()))?;
        text.parse().map_err(|error: ParseHotListError| failed(error.to_string()))
    }
}

/// Evicts blocks that are not listed first, by LRU, then those of listed experts, the hottest last.
#[derive(Debug)]
pub struct Static {
    /// For each block, the inverse of its rank in the list; `None` if it is not listed.
    ranks: Box<[Option<u32>]>,
    listed: Heap<u32>,
    others: Lists,
}

impl Static {
    /// Makes a policy for the blocks of `population`. Listed experts that the model does not have
    /// are ignored.
    pub fn new(population: &Population, list: &HotList) -> Self {
        let mut ranks: HashMap<(LayerId, ExpertId), u32> = HashMap::new();
        for (rank, expert) in (0u32..).zip(&list.0) {
            ranks.entry(*expert).or_insert(u32::MAX - rank);
        }
        let blocks = population.blocks.len();
        Self {
            ranks: population
                .blocks
                .iter()
                .map(|block| ranks.get(&(block.layer?, block.expert?)).copied())
                .collect(),
            listed: Heap::new(blocks),
            others: Lists::new(blocks, 1),
        }
    }
}

impl Policy for Static {
    fn on_insert(&mut self, block: BlockId) {
        match self.ranks[block.index()] {
            Some(rank) => self.listed.insert(block.0, rank),
            None => self.others.append(0, block.0),
        }
    }

    fn on_hit(&mut self, block: BlockId) {
        if self.ranks[block.index()].is_none() {
            self.others.renew(0, block.0);
        }
    }

    fn on_evict(&mut self, block: BlockId) {
        match self.ranks[block.index()] {
            Some(_) => self.listed.remove(block.0),
            None => self.others.remove(0, block.0),
        }
    }

    fn victim(&mut self, _: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        let other = self.others.oldest_first(0).map(BlockId).find(|block| evictable(*block));
        other.or_else(|| self.listed.first(&mut |block| evictable(BlockId(block))).map(BlockId))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_and_errors_name_the_line() {
        let text = "# hot\n0 3\n\n1 0 # twice as hot\n";
        let list: HotList = text.parse().unwrap();
        assert_eq!(list.0, [(LayerId(0), ExpertId(3)), (LayerId(1), ExpertId(0))]);
        assert_eq!(list.to_string().parse(), Ok(list));
        for bad in ["0", "0 x", "0 1 2", "-1 2", "0 99999999999"] {
            let error = format!("0 1\n{bad}\n").parse::<HotList>().unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, bad));
        }
        for path in ["/nonexistent/list", "/dev/zero", "/"] {
            let error = HotList::read(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path), "{error}");
        }
    }

    #[test]
    fn listed_experts_go_last_the_hottest_of_all() {
        let population = Population::of_equals(4, 2);
        let list =
            HotList(vec![(LayerId(0), ExpertId(1)), (LayerId(0), ExpertId(0)), (LayerId(9), ExpertId(0))]);
        let mut policy = Static::new(&population, &list);
        (0..4).for_each(|block| policy.on_insert(BlockId(block)));
        policy.on_hit(BlockId(2));
        let mut order = Vec::new();
        while let Some(victim) = policy.victim(BlockId(0), &mut |_| true) {
            policy.on_evict(victim);
            order.push(victim.0);
        }
        assert_eq!(order, [3, 2, 0, 1]);
    }
}
