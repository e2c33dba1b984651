//! Chooses the slot for a job, and where the first tokens of its prompt come from.

use super::Worker;
use crate::queue::Request;
use crate::slot::Slot;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_engine::prompt_cache::Kept;
use terrace_engine::prompt_cache::usable::{Held, Memory, common, usable};
use terrace_engine::{Media, Scales};

/// A slot is chosen for its contents if they save at least one in this many tokens of the prompt;
/// otherwise the least recently used slot is taken, since nearly all prompts begin with the same
/// few tokens. llama.cpp's server uses the same share. What is kept elsewhere has to save as much
/// more than a slot does.
const WORTH: usize = 10;

/// The source of a prompt's reused prefix.
pub enum From {
    /// The slot, if it holds any.
    Slot,
    /// A conversation in RAM.
    Kept(Arc<Kept>),
    /// A conversation in a file, which has to be read first.
    Disk(PathBuf),
}

impl Worker {
    /// The slot for a job, and where the first tokens of its prompt come from: of `read`, which was
    /// in a file, or, if `may_read`, from another file.
    pub(super) fn slot_for(
        &mut self,
        request: &Request,
        read: Option<Arc<Kept>>,
        may_read: bool,
    ) -> (usize, From) {
        let (prompt, media): (&[i32], _) = (&request.job.prompt, request.job.prompt.media());
        let reuse = request.job.reuses();
        let wanted = |index: usize| request.job.slot.is_none_or(|slot| slot == index);
        let idle = || self.slots.iter().enumerate().filter(|&(index, slot)| slot.is_idle() && wanted(index));
        let scales = &request.job.scales;
        let reusable = |slot| if reuse { self.reusable(slot, prompt, media, scales) } else { 0 };
        let (best, held) =
            idle().map(|(i, slot)| (i, reusable(slot))).max_by_key(|&(_, held)| held).expect("an idle slot");
        let (oldest, _) = idle().min_by_key(|(_, slot)| slot.used).expect("an idle slot");
        let worth = |tokens: usize| tokens > 0 && tokens * WORTH >= prompt.len();
        let elsewhere = if reuse { self.elsewhere(prompt, scales, read, may_read) } else { None };
        match elsewhere {
            Some((tokens, from)) if worth(tokens.saturating_sub(held)) => (oldest, from.take(self)),
            _ if worth(held) => (best, From::Slot),
            _ => (oldest, From::Slot),
        }
    }

    /// The kept conversation that saves most of a prompt, and how much of it.
    fn elsewhere(
        &self,
        prompt: &[i32],
        scales: &Scales,
        read: Option<Arc<Kept>>,
        may_read: bool,
    ) -> Option<(usize, Place)> {
        let memory = self.memory;
        let in_ram = self.kept.ram.find(memory, prompt, scales);
        let in_ram = in_ram.map(|(index, used)| (used.tokens, Place::Ram(index)));
        let disk = self.kept.disk.as_ref().filter(|_| may_read && self.engine.epoch() == 0);
        let on_disk = disk.and_then(|disk| disk.find(prompt, scales));
        let on_disk = on_disk.map(|(path, used)| (used.tokens, Place::Disk(path)));
        let read = read.filter(|kept| kept.scales == *scales).map(|kept| {
            let used = terrace_engine::prompt_cache::of_kept(memory, &kept, prompt);
            (used.tokens, Place::Read(kept))
        });
        // Of equal ones the last is taken: RAM before a file that has to be read.
        [on_disk, read, in_ram].into_iter().flatten().max_by_key(|(tokens, _)| *tokens)
    }

    /// Number of tokens that a prompt and what is held both begin with, up to which the latter can be cut
    /// back. Images that are the same have the same numbers in place of tokens.
    pub(super) fn shared(&self, held: &[i32], prompt: &[i32], media: &Media) -> usize {
        // The prompt's last token is evaluated in any case.
        let same = media.whole(common(held, prompt).min(prompt.len().saturating_sub(1)));
        let same = self.in_whole_parts(same);
        // Windows are counted in positions.
        let windows = matches!(self.memory, Memory::Windows(_)) && media.shifts();
        if windows { same.min(media.first().unwrap_or(same)) } else { same }
    }

    /// Number of prompt tokens that need not be evaluated in this slot with these adapters.
    pub(super) fn reusable(&self, slot: &Slot, prompt: &[i32], media: &Media, scales: &Scales) -> usize {
        let session = &slot.session;
        if session.scales != *scales {
            return 0;
        }
        let first = match self.memory {
            Memory::Windows(_) => self.engine.first_position(session.sequence),
            Memory::Rows | Memory::States => Some(0),
        };
        let held = Held {
            tokens: session.held,
            // Nothing is there, if no position is.
            whole_from: first.map_or(usize::MAX, |first| session.whole_from.max(first as usize)),
            checkpoint: slot.checkpoint.as_ref().map(|state| state.tokens as usize),
        };
        usable(self.memory, held, self.shared(&session.tokens[..session.held], prompt, media), prompt.len())
            .tokens
    }
}

/// The store of a saved conversation.
enum Place {
    Ram(usize),
    Read(Arc<Kept>),
    Disk(PathBuf),
}

impl Place {
    fn take(self, worker: &mut Worker) -> From {
        match self {
            Self::Ram(index) => From::Kept(worker.kept.ram.get(index)),
            Self::Read(kept) => From::Kept(kept),
            Self::Disk(path) => From::Disk(path),
        }
    }
}
