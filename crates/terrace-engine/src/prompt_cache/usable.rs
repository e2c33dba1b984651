//! Number of tokens of a prompt that need not be evaluated.

/// The way in which a model remembers tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Keys and values of each token, which can be cut back to any length.
    Rows,
    /// The same, but some layers only look back on so many tokens, and keep no others.
    Windows(usize),
    /// States of some layers, which go forward only.
    States,
}

/// Held part of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Number of tokens.
    pub tokens: usize,
    /// The first position that layers with windows hold.
    pub whole_from: usize,
    /// Number of tokens of the checkpoint.
    pub checkpoint: Option<usize>,
}

/// Usable part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usable {
    /// Number of tokens.
    pub tokens: usize,
    /// True if the checkpoint has to be put back for that.
    pub from_checkpoint: bool,
}

/// Usable part of a sequence for a prompt of `prompt` tokens, if the first `common` tokens of the sequence are also its
/// own. The last token is always evaluated, because its logits are wanted.
pub fn usable(memory: Memory, held: Held, common: usize, prompt: usize) -> Usable {
    let whole = |tokens| Usable { tokens, from_checkpoint: false };
    if common == held.tokens && common < prompt {
        return whole(common);
    }
    let common = common.min(prompt.saturating_sub(1));
    let can_cut = match memory {
        Memory::Rows => true,
        // The next token looks back on positions that may be gone.
        Memory::Windows(window) => held.whole_from <= (common + 1).saturating_sub(window),
        Memory::States => false,
    };
    if can_cut {
        return whole(common);
    }
    let checkpoint = held.checkpoint.filter(|&tokens| tokens <= common);
    checkpoint.map_or(whole(0), |tokens| Usable { tokens, from_checkpoint: true })
}

/// Number of tokens that two sequences begin with.
pub fn common(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_back_as_far_as_it_can_be() {
        let of = |memory, whole_from, checkpoint, common, prompt| {
            let used = usable(memory, Held { tokens: 100, whole_from, checkpoint }, common, prompt);
            (used.tokens, used.from_checkpoint)
        };
        let (rows, windows, states) = (Memory::Rows, Memory::Windows(16), Memory::States);
        for memory in [rows, windows, states] {
            assert_eq!(of(memory, 84, Some(50), 100, 101), (100, false), "the conversation goes on");
            assert_eq!(of(memory, 84, None, 0, 10), (0, false));
            assert_eq!(of(memory, 0, None, 0, 1), (0, false));
        }
        assert_eq!(of(rows, 0, None, 60, 70), (60, false));
        assert_eq!(of(rows, 0, None, 100, 100), (99, false), "the last token is evaluated");
        // The window of the next token: 16 positions, with its own.
        assert_eq!(of(windows, 84, None, 99, 110), (99, false));
        assert_eq!(of(windows, 84, None, 98, 110), (0, false));
        assert_eq!(of(windows, 84, Some(50), 98, 110), (50, true));
        assert_eq!(of(windows, 84, Some(50), 49, 110), (0, false));
        assert_eq!(of(windows, 0, None, 60, 110), (60, false));
        assert_eq!(of(states, 0, Some(50), 100, 100), (50, true));
        assert_eq!(of(states, 0, Some(50), 49, 100), (0, false));
    }
}
