//! Keeps conversations when others take their slots, and puts them back.

use super::Worker;
use super::reuse::From;
use crate::job::Event;
use crate::queue::Request;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_engine::Media;
use terrace_engine::prompt_cache::Kept;
use terrace_engine::prompt_cache::usable::Memory;
use terrace_engine::steps::Mark;
use terrace_ggml::llama::{State, StateError, StatePart};

/// Conversations of fewer tokens are not kept: they are computed in no time, or in one graph anyway.
const LEAST: usize = 32;

/// Time that an idle worker waits for a file before it checks for other work.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time within which what is left is written when the worker ends.
const FAREWELL: Duration = Duration::from_secs(10);

impl Worker {
    /// Puts a job into a slot, with as much of its prompt as is held there or kept elsewhere. A job
    /// whose prompt is in a file waits until that is read.
    pub(super) fn begin(&mut self, request: Request, read: Option<Arc<Kept>>) {
        // With a slot of its own to wait for, it would wait twice.
        let may_read = read.is_none() && request.job.slot.is_none();
        let (index, from) = self.slot_for(&request, read, may_read);
        if let From::Disk(path) = from {
            let disk = self.kept.disk.as_mut().expect("a file of it was found");
            disk.read(path.clone());
            self.reading.push((path, request));
            return;
        }
        let prompt: &[i32] = &request.job.prompt;
        let session = &self.slots[index].session;
        let scales = &request.job.scales;
        let reuses = request.job.reuses() && session.scales == *scales;
        let media = request.job.prompt.media().clone();
        let same = if reuses { self.shared(&session.tokens[..session.held], prompt, &media) } else { 0 };
        let reused = match from {
            From::Kept(kept) => {
                self.keep(index, 0);
                self.put_back(index, &kept, prompt, media)
            }
            From::Slot | From::Disk(_) => {
                let stays =
                    if same > 0 { self.reusable(&self.slots[index], prompt, &media, scales) } else { 0 };
                self.keep(index, stays);
                // The images of what stays are the prompt's own.
                self.slots[index].session.media = media;
                self.cut(index, same, prompt.len())
            }
        };
        self.begun += 1;
        let (begun, mark, lost) = (self.begun, Mark::of(&self.engine), self.engine.lossy_counts());
        let interrupt = self.engine.interrupt_flag();
        let slot = &mut self.slots[index];
        slot.begin(request, reused, begun, mark, lost, interrupt);
        let prompt_tokens = slot.session.tokens.len();
        self.note_shared();
        let epoch = self.engine.epoch();
        self.tell(index, Event::Started { prompt_tokens, reused, epoch });
    }

    /// Keeps what a slot holds, if most of it is about to be lost: only its first `stays` tokens stay.
    pub(super) fn keep(&mut self, index: usize, stays: usize) {
        let held = self.slots[index].session.held;
        if 2 * stays < held {
            self.copy(index);
        }
    }

    /// Copies what a slot holds, if it is of the current weights and not kept yet. Returns whether it
    /// was copied.
    fn copy(&mut self, index: usize) -> bool {
        let (memory, besides) = (self.memory, self.checkpoint_bytes());
        let Self { engine, kept, slots, .. } = self;
        let slot = &mut slots[index];
        let held = slot.session.held;
        let current = slot.session.epoch == engine.epoch();
        if held < LEAST || !current || !kept.lacks(memory, &slot.session.tokens[..held], &slot.session.scales)
        {
            return false;
        }
        let begin = Instant::now();
        let copied = engine.copy_size(&slot.session, StatePart::Whole).and_then(|size| {
            let checkpoint = slot.checkpoint.as_ref().map_or(0, |state| state.bytes.len() as u64);
            // Room for the table's entry as well.
            let fits = kept.ram.make_room(size + checkpoint + size_of::<Kept>() as u64, besides);
            if !fits && kept.disk.as_ref().is_none_or(|disk| !disk.has_room()) {
                return Ok(None);
            }
            Ok(Some((engine.copy_session(&slot.session, slot.checkpoint.clone())?, fits)))
        });
        match copied {
            Ok(Some((copy, fits))) => {
                kept.counts.kept += 1;
                kept.counts.copied_bytes += copy.bytes();
                kept.counts.copy_seconds += begin.elapsed().as_secs_f64();
                let copy = Arc::new(copy);
                if let Some(disk) = kept.disk.as_mut().filter(|_| engine.epoch() == 0) {
                    disk.write(&copy);
                }
                if fits {
                    kept.ram.insert(memory, copy);
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!("a conversation is not kept: {error}");
                false
            }
        }
    }

    /// Puts a kept conversation into a slot, as far as a prompt can use it. Returns the number of
    /// tokens that are then held.
    fn put_back(&mut self, index: usize, conversation: &Kept, prompt: &[i32], media: Media) -> usize {
        let begin = Instant::now();
        if self.put_whole(index, conversation).is_err() {
            return 0;
        }
        let same = self.shared(&conversation.tokens, prompt, &media);
        self.slots[index].session.media = media;
        let reused = self.cut(index, same, prompt.len());
        self.kept.counts.copied_bytes += conversation.bytes();
        self.kept.counts.copy_seconds += begin.elapsed().as_secs_f64();
        if reused > 0 {
            self.kept.counts.restored += 1;
            self.kept.counts.restored_tokens += reused as u64;
        }
        reused
    }

    /// Puts a kept conversation into a slot, in place of what it holds.
    ///
    /// # Errors
    /// llama.cpp refused it; all slots may be empty then.
    pub(super) fn put_whole(&mut self, index: usize, conversation: &Kept) -> Result<(), StateError> {
        let slot = &mut self.slots[index];
        (slot.checkpoint, slot.offered) = (None, false);
        match self.engine.put_session(&mut slot.session, conversation) {
            Ok(()) => {
                slot.checkpoint.clone_from(&conversation.checkpoint);
                Ok(())
            }
            Err(error) => {
                self.emptied(&error);
                Err(error)
            }
        }
    }

    /// Cuts what a slot holds back to what a prompt can use of its first `same` tokens.
    fn cut(&mut self, index: usize, same: usize, prompt: usize) -> usize {
        let slot = &mut self.slots[index];
        let cut = self.engine.cut_session(&mut slot.session, slot.checkpoint.as_ref(), same, prompt);
        match cut {
            Ok(held) => {
                slot.checkpoint.take_if(|state| state.tokens as usize > held);
                held
            }
            Err(error) => self.emptied(&error),
        }
    }

    /// Notes that the context is empty, because llama.cpp refused what was put back. Returns 0: that
    /// many tokens are held.
    pub(super) fn emptied(&mut self, error: &StateError) -> usize {
        tracing::warn!("a kept conversation cannot be used, and all of it is computed again: {error}");
        self.engine.reset();
        for slot in &mut self.slots {
            slot.checkpoint = None;
            self.totals.recomputed_tokens += slot.forget() as u64;
        }
        0
    }

    /// Copies what cannot be cut back, before the last part of a prompt, which has at most `most`
    /// tokens: another answer to the same prompt can begin there.
    pub(super) fn checkpoint(&mut self, index: usize, most: usize) {
        let last = self.slots[index].session.left() <= most;
        let Self { engine, kept, slots, .. } = self;
        let slot = &slots[index];
        let held = slot.session.held;
        let at = slot.checkpoint.as_ref().map(|state| state.tokens as usize);
        let wanted = self.memory != Memory::Rows && kept.ram.is_on() && slot.is_new();
        // The context cannot be cut back to a place within an image.
        let divides = slot.session.media.whole(held) != held;
        if !wanted || !last || divides || held < LEAST || at == Some(held) {
            return;
        }
        let others: u64 = slots.iter().filter_map(|slot| slot.checkpoint.as_ref()).map(bytes).sum();
        let own = slot.checkpoint.as_ref().map_or(0, bytes);
        let begin = Instant::now();
        let copied = engine.copy_size(&slot.session, StatePart::Uncuttable).and_then(|size| {
            if !kept.ram.make_room(size, others - own) {
                return Ok(None);
            }
            engine.copy_part(&slot.session, StatePart::Uncuttable).map(Some)
        });
        match copied {
            Ok(copy) => {
                kept.counts.copied_bytes += copy.as_ref().map_or(0, bytes);
                kept.counts.copy_seconds += begin.elapsed().as_secs_f64();
                slots[index].checkpoint = copy;
            }
            Err(error) => tracing::debug!("no checkpoint: {error}"),
        }
    }

    /// Bytes of the slots' checkpoints.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.checkpoint.as_ref()).map(bytes).sum()
    }

    /// Has what idle slots hold written to disk, one slot in each call. Returns whether there was
    /// one.
    pub(super) fn write_behind(&mut self) -> bool {
        let Some(disk) = &self.kept.disk else { return false };
        if !disk.has_room() || self.engine.epoch() != 0 {
            return false;
        }
        let unwritten = self.slots.iter().position(|slot| {
            let session = &slot.session;
            slot.is_idle()
                && !slot.offered
                && session.held >= LEAST
                && !disk.covers(&session.tokens[..session.held], &session.scales)
        });
        let Some(index) = unwritten else { return false };
        let slot = &mut self.slots[index];
        slot.offered = true;
        // No room in RAM is taken for it: what is in a slot needs no copy there.
        match self.engine.copy_session(&slot.session, slot.checkpoint.clone()) {
            Ok(copy) => {
                let disk = self.kept.disk.as_mut().expect("looked at above");
                disk.write(&Arc::new(copy));
                true
            }
            Err(error) => {
                tracing::debug!("a conversation is not kept: {error}");
                false
            }
        }
    }

    /// Begins jobs whose files were read, and waits for one for a moment if there is nothing else to
    /// do. Returns whether jobs wait for files.
    pub(super) fn read_back(&mut self, idle: bool) -> bool {
        let Some(disk) = &mut self.kept.disk else { return false };
        let waits = !self.reading.is_empty();
        for (path, read) in disk.settle(if idle && waits { POLL_INTERVAL } else { Duration::ZERO }) {
            self.kept.counts.disk_read += u64::from(read.is_some());
            let here = |(of, _): &mut (_, Request)| *of == path;
            let requests: Vec<_> = self.reading.extract_if(.., here).map(|(_, request)| request).collect();
            for request in requests {
                // Without it, the prompt is evaluated, or begins as another file does.
                self.begin(request, read.clone());
            }
        }
        waits
    }

    /// Has everything written that the slots hold.
    pub(super) fn write_all(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < FAREWELL {
            if !self.write_behind() {
                match &mut self.kept.disk {
                    Some(disk) if !disk.has_room() => drop(disk.settle(POLL_INTERVAL)),
                    _ => return,
                }
            }
        }
    }
}

fn bytes(state: &State) -> u64 {
    state.bytes.len() as u64
}
