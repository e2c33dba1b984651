//! Divides the memory of all models: pure functions.

use super::Needs;
use std::cmp::Reverse;
use std::time::Instant;
use terrace_engine::SlotsMemory;
use terrace_model::ByteSize;

/// Step for a model that is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It gets this much memory.
    Take(ByteSize),
    /// Models that stream are to give back this much of what their slots may take.
    Shrink(ByteSize),
    /// Another one is to be unloaded first.
    Evict,
    /// It has to wait for memory that others are about to give, or use.
    Wait,
    /// It can never be loaded.
    Never,
}

/// The memory of all models.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it.
    pub all: ByteSize,
    /// Memory without a model.
    pub free: ByteSize,
    /// Memory that loaded models can give back and still work.
    pub spare: ByteSize,
    /// The weights of all loaded models.
    pub weights: ByteSize,
}

/// Decides about a model that is not loaded. `idle`: whether a model could be unloaded now; `others`:
/// whether there are others with memory at all.
pub fn room(needs: Needs, memory: Memory, idle: bool, others: bool) -> Room {
    let Memory { all: total, free, spare, weights } = memory;
    let (all, least) = (needs.weights + needs.context, needs.least + needs.context);
    if least > total {
        return Room::Never;
    }
    if all <= free {
        return Room::Take(all);
    }
    if all <= free + spare {
        return Room::Shrink(all.saturating_sub(free));
    }
    // More memory is worth more to it than to a model without requests.
    if idle {
        return Room::Evict;
    }
    // While others have requests, it gets a share by its size.
    let of_all = u128::from(needs.weights.bytes()) * u128::from(total.bytes());
    let share = of_all / u128::from((needs.weights + weights).bytes().max(1));
    let share = ByteSize(u64::try_from(share).unwrap_or(u64::MAX)).max(least).min(all);
    if free >= share || free >= least && spare == ByteSize::ZERO {
        return Room::Take(free);
    }
    if free + spare >= least {
        return Room::Shrink(share.saturating_sub(free).min(spare));
    }
    if others { Room::Wait } else { Room::Never }
}

/// Models by name, each with its slots.
pub type Shares = Vec<(String, Share)>;

/// Models by name, each with a new limit of its slots.
pub type Limits = Vec<(String, ByteSize)>;

/// The slots of a loaded model.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub slots: SlotsMemory,
    /// Number of requests that are being answered.
    pub running: usize,
    pub used: Instant,
}

impl Share {
    /// Memory that it can give back and still work.
    pub const fn spare(&self) -> ByteSize {
        self.slots.limit.saturating_sub(self.slots.least)
    }
}

/// Takes `bytes` back from the slots of these models: first from those without requests, and of these
/// from the one that has gone unused for the longest. Returns the limits that change.
pub fn take_back(mut shares: Shares, bytes: ByteSize) -> Limits {
    shares.sort_by_key(|(_, share)| (share.running > 0, share.used));
    divided(shares, bytes, Share::spare, |limit, part| limit.saturating_sub(part))
}

/// Gives `free` bytes to the slots that were made smaller, first to those of the model that was used last.
/// Returns the limits that change.
pub fn hand_out(mut shares: Shares, free: ByteSize) -> Limits {
    shares.sort_by_key(|(_, share)| Reverse(share.used));
    let lacks = |share: &Share| share.slots.most.saturating_sub(share.slots.limit);
    divided(shares, free, lacks, |limit, part| limit + part)
}

/// Divides `bytes` among the models in this order, to each as much as it `takes`. Returns the limits that
/// change.
fn divided(
    shares: Shares,
    bytes: ByteSize,
    takes: impl Fn(&Share) -> ByteSize,
    change: impl Fn(ByteSize, ByteSize) -> ByteSize,
) -> Limits {
    let mut left = bytes;
    let limit = |(name, share): (String, Share)| {
        let part = takes(&share).min(left);
        left = left.saturating_sub(part);
        (part > ByteSize::ZERO).then(|| (name, change(share.slots.limit, part)))
    };
    shares.into_iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const fn gib(n: u64) -> ByteSize {
        ByteSize(n << 30)
    }

    #[test]
    fn memory_is_given_to_what_is_asked_for() {
        let needs = |weights, least| Needs { weights: gib(weights), least: gib(least), context: gib(1) };
        let (small, large) = (needs(5, 1), needs(20, 4));
        for (needs, free, spare, idle, others, expected) in [
            (small, 12, 0, false, false, Room::Take(gib(6))),
            (small, 6, 0, true, true, Room::Take(gib(6))),
            // Slots shrink before a model is unloaded, where that is enough.
            (small, 5, 1, true, true, Room::Shrink(gib(1))),
            // Others without requests give way to a model that fits, and to one that streams.
            (small, 5, 0, true, true, Room::Evict),
            (large, 6, 0, true, true, Room::Evict),
            (large, 6, 3, true, true, Room::Evict),
            // While others have requests, it gets what is left, or waits.
            (large, 6, 0, false, true, Room::Take(gib(6))),
            (large, 4, 0, false, true, Room::Wait),
            // Its share of 12 is 8: 20 of 30 GiB of weights are its own.
            (large, 6, 4, false, true, Room::Shrink(gib(2))),
            (large, 8, 2, false, true, Room::Take(gib(8))),
            (large, 4, 1, false, true, Room::Shrink(gib(1))),
            (large, 3, 1, false, true, Room::Wait),
            (large, 12, 0, false, false, Room::Take(gib(12))),
            (needs(100, 50), 12, 0, true, true, Room::Never),
        ] {
            let memory = Memory { all: gib(12), free: gib(free), spare: gib(spare), weights: gib(10) };
            assert_eq!(room(needs, memory, idle, others), expected, "{needs:?}, {free} and {spare} free");
        }
    }

    fn share(least: u64, limit: u64, running: usize, age: u64) -> Share {
        let [least, most, limit, held] = [least, 10, limit, 0].map(ByteSize);
        let slots = SlotsMemory { least, most, limit, held };
        let used = Instant::now().checked_sub(Duration::from_secs(age)).expect("a recent time");
        Share { slots, running, used }
    }

    #[test]
    fn slots_give_back_and_get_again() {
        let shares = [("a", share(2, 8, 1, 9)), ("b", share(4, 6, 0, 1)), ("c", share(1, 10, 0, 5))];
        let shares = shares.map(|(name, share)| (name.to_owned(), share)).to_vec();
        let limits = |divide: fn(Shares, ByteSize) -> Limits, bytes| divide(shares.clone(), ByteSize(bytes));
        let expected = |limits: &[(&str, u64)]| {
            limits.iter().map(|&(name, limit)| (name.to_owned(), ByteSize(limit))).collect::<Vec<_>>()
        };
        assert_eq!(limits(take_back, 4), expected(&[("c", 6)]));
        assert_eq!(limits(take_back, 12), expected(&[("c", 1), ("b", 4), ("a", 7)]));
        assert_eq!(limits(take_back, 99), expected(&[("c", 1), ("b", 4), ("a", 2)]));
        assert_eq!(limits(take_back, 0), expected(&[]));
        assert_eq!(limits(hand_out, 3), expected(&[("b", 9)]));
        assert_eq!(limits(hand_out, 99), expected(&[("b", 10), ("a", 10)]));
    }
}
