//! Kept conversations in RAM.

use super::kept::Kept;
use super::usable::{Held, Memory, Usable, common, usable};
use crate::adapters::Scales;
use std::sync::Arc;

/// Conversations in RAM, of a limited number of bytes. The least recently used ones make room.
#[derive(Debug, Default)]
pub struct RamCache {
    limit: u64,
    used: u64,
    entries: Vec<Entry>,
    clock: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    /// When it was used last, by the cache's clock.
    used: u64,
}

impl RamCache {
    /// An empty cache of at most `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self { limit, used: 0, entries: Vec::new(), clock: 0, evicted: 0 }
    }

    /// Returns true if it keeps anything.
    pub const fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Its limit in bytes.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are used.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Number of conversations.
    pub fn conversations(&self) -> usize {
        self.entries.len()
    }

    /// Number of conversations that made room for others.
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The conversation that saves most of a prompt for the same adapters, and what can be used of it.
    pub fn find(&self, memory: Memory, prompt: &[i32], scales: &Scales) -> Option<(usize, Usable)> {
        let of = |entry: &Entry| of_kept(memory, &entry.kept, prompt);
        let same = self.entries.iter().enumerate().filter(|(_, entry)| entry.kept.scales == *scales);
        let all = same.map(|(index, entry)| (index, of(entry)));
        all.max_by_key(|(_, used)| used.tokens).filter(|(_, used)| used.tokens > 0)
    }

    /// Takes a conversation for use.
    pub fn get(&mut self, index: usize) -> Arc<Kept> {
        self.clock += 1;
        let entry = &mut self.entries[index];
        entry.used = self.clock;
        Arc::clone(&entry.kept)
    }

    /// Returns true if a conversation that begins with these tokens is kept, computed with these adapters.
    pub fn covers(&self, memory: Memory, tokens: &[i32], scales: &Scales) -> bool {
        self.entries.iter().filter(|entry| entry.kept.scales == *scales).any(
            |Entry { kept, .. }| match memory {
                Memory::Rows => kept.tokens.starts_with(tokens),
                // A longer one cannot be cut back to them.
                Memory::Windows(_) | Memory::States => kept.tokens == tokens,
            },
        )
    }

    /// Makes room for so many bytes beside `besides`, which are not conversations but count. False if
    /// there is not as much room at all.
    pub fn make_room(&mut self, bytes: u64, besides: u64) -> bool {
        let Some(most) = self.limit.checked_sub(bytes.saturating_add(besides)) else { return false };
        while self.used > most {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
            let Some((index, _)) = oldest else { break };
            self.used -= self.entries.swap_remove(index).kept.bytes();
            self.evicted += 1;
        }
        true
    }

    /// Adds a conversation, for which [`RamCache::make_room`] was called. It takes the place of those
    /// that it continues, if it can be cut back to them.
    pub fn insert(&mut self, memory: Memory, kept: Arc<Kept>) {
        self.clock += 1;
        self.entries.retain(|Entry { kept: before, .. }| {
            let continued = match memory {
                Memory::Rows => kept.tokens.starts_with(&before.tokens),
                Memory::Windows(_) | Memory::States => kept.tokens == before.tokens,
            };
            !(continued && kept.scales == before.scales)
        });
        self.entries.push(Entry { kept, used: self.clock });
        self.used = self.entries.iter().map(|entry| entry.kept.bytes()).sum();
    }

    /// Drops all conversations.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.used = 0;
    }
}

/// The part of a kept conversation that a prompt can use.
pub fn of_kept(memory: Memory, kept: &Kept, prompt: &[i32]) -> Usable {
    of_tokens(memory, &kept.tokens, kept.checkpoint_at(), prompt)
}

/// The same, of one whose tokens and checkpoint are known.
pub fn of_tokens(memory: Memory, tokens: &[i32], checkpoint: Option<usize>, prompt: &[i32]) -> Usable {
    let held = tokens.len();
    let whole_from = match memory {
        Memory::Windows(window) => held.saturating_sub(window),
        Memory::Rows | Memory::States => 0,
    };
    usable(memory, Held { tokens: held, whole_from, checkpoint }, common(tokens, prompt), prompt.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::llama::{State, StatePart};

    fn kept(tokens: &[i32], bytes: usize) -> Arc<Kept> {
        let state = State { part: StatePart::Whole, tokens: tokens.len() as u32, bytes: vec![0; bytes] };
        Arc::new(Kept { tokens: tokens.to_vec(), scales: Scales::default(), state, checkpoint: None })
    }

    fn none() -> Scales {
        Scales::default()
    }

    fn put(cache: &mut RamCache, memory: Memory, kept: &Arc<Kept>) -> bool {
        let room = cache.make_room(kept.bytes(), 0);
        if room {
            cache.insert(memory, Arc::clone(kept));
        }
        room
    }

    #[test]
    fn the_longest_common_prefix_is_found_and_the_least_recently_used_makes_room() {
        let rows = Memory::Rows;
        let all: Vec<_> = (0..4).map(|i| kept(&[1, 2, 10 + i, 20 + i], 1000)).collect();
        let mut cache = RamCache::new(3 * all[0].bytes());
        all[..3].iter().for_each(|kept| assert!(put(&mut cache, rows, kept)));
        let found = |cache: &RamCache, prompt: &[i32]| {
            let (index, used) = cache.find(rows, prompt, &none())?;
            Some((cache.entries[index].kept.tokens[2], used.tokens))
        };
        assert_eq!(found(&cache, &[1, 2, 11, 21, 5]), Some((11, 4)));
        assert_eq!(found(&cache, &[1, 2, 11, 21]), Some((11, 3)));
        assert_eq!(found(&cache, &[2]), None);
        let (first, _) = cache.find(rows, &[1, 2, 10, 20, 3], &none()).unwrap();
        cache.get(first);
        assert!(put(&mut cache, rows, &all[3]));
        assert_eq!((cache.conversations(), cache.evicted()), (3, 1));
        assert_eq!(found(&cache, &[1, 2, 10, 20, 3]), Some((10, 4)));
        assert_eq!(found(&cache, &[1, 2, 11, 21, 3]).unwrap().1, 2, "it was evicted");
        assert!(!put(&mut cache, rows, &kept(&[1], 5000)), "larger than the cache");
        assert_eq!(cache.conversations(), 3);
        // What else counts leaves less room.
        assert!(cache.make_room(0, 2 * all[0].bytes()) && cache.conversations() == 1);
        assert!(!cache.make_room(2, cache.limit() - 1));
    }

    #[test]
    fn a_conversation_takes_the_place_of_what_it_continues() {
        let (short, long) = (kept(&[1, 2], 10), kept(&[1, 2, 3], 10));
        for (memory, left) in [(Memory::Rows, 1), (Memory::States, 2), (Memory::Windows(1), 2)] {
            let mut cache = RamCache::new(10_000);
            assert!(put(&mut cache, memory, &short) && !cache.covers(memory, &[1, 2, 3], &none()));
            assert!(put(&mut cache, memory, &long) && put(&mut cache, memory, &long));
            assert_eq!(cache.conversations(), left);
            assert!(cache.covers(memory, &[1, 2], &none()) && cache.covers(memory, &[1, 2, 3], &none()));
            assert_eq!(cache.used(), cache.entries.iter().map(|entry| entry.kept.bytes()).sum::<u64>());
        }
    }

    #[test]
    fn what_was_computed_with_other_adapters_is_another_conversation() {
        let (plain, half) = (none(), Scales::new(&[0.5]));
        for memory in [Memory::Rows, Memory::States] {
            let mut cache = RamCache::new(10_000);
            let short = kept(&[1, 2], 10);
            let long =
                Arc::new(Kept { scales: half.clone(), ..Arc::into_inner(kept(&[1, 2, 3], 10)).unwrap() });
            assert!(put(&mut cache, memory, &short) && put(&mut cache, memory, &long));
            assert_eq!(cache.conversations(), 2, "neither continues the other");
            let found =
                |scales: &Scales| cache.find(memory, &[1, 2, 3, 4], scales).map(|(_, used)| used.tokens);
            assert_eq!((found(&plain), found(&half), found(&Scales::new(&[1.0]))), (Some(2), Some(3), None));
            assert!(cache.covers(memory, &[1, 2, 3], &half) && !cache.covers(memory, &[1, 2, 3], &plain));
        }
    }
}
