//! A sequence of tokens, and how much of it the context holds.

use crate::adapters::Scales;
use crate::vision::{Media, Prompted, Seen};
use std::ops::Range;
use terrace_ggml::llama::{Batch, Context, Token};

/// A sequence of tokens, and how many of them have keys and values in the engine's context. There
/// may be several sessions ([`Engine::session`](crate::Engine::session)); one whose context another
/// session has taken is evaluated again when it continues.
#[derive(Debug, Default)]
pub struct Session {
    /// Distinguishes sessions that use the same sequence.
    pub id: u64,
    /// The sequence's number in the context.
    pub sequence: u32,
    /// The adapters that its keys and values are computed with.
    pub scales: Scales,
    /// Its tokens: first those that are held, then those to evaluate.
    pub tokens: Vec<i32>,
    /// Which of them are embeddings of images.
    pub media: Media,
    /// The embeddings of the image that is evaluated in parts.
    pub(crate) seen: Seen,
    /// Number of tokens with keys and values in the context.
    pub held: usize,
    /// Number of tokens that were held when their keys and values were lost: they are evaluated
    /// again, and stay if that is interrupted.
    pub known: usize,
    /// Layers with windows hold nothing of positions before this one, which others may hold.
    pub whole_from: usize,
    /// Tokens before this index are evaluated in batches, later ones one by one.
    pub batched: usize,
    /// Tokens before this index leave logits, not only the last one.
    pub scored: usize,
    /// The row of the last evaluated token among those that its pass has left.
    pub row: usize,
    /// The epoch of the oldest keys and values.
    pub epoch: u64,
    /// Drafts that are evaluated after the tokens.
    pub drafts: Vec<i32>,
    /// Number of drafts that were chosen since they were evaluated.
    pub confirmed: usize,
}

impl Session {
    /// All tokens, of prompts and answers.
    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Makes an empty session.
    pub fn new(sequence: u32) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Appends a prompt, to be evaluated in batches.
    pub fn append(&mut self, prompt: &[i32], media: &Media) {
        self.media.append(media, self.tokens.len());
        self.tokens.extend_from_slice(prompt);
        self.batched = self.tokens.len();
    }

    /// Replaces the tokens by a prompt that begins with the first `held` of them.
    pub fn put(&mut self, prompt: Prompted, held: usize) {
        let Prompted { tokens, media } = prompt;
        (self.batched, self.tokens, self.held, self.known) = (tokens.len(), tokens, held, 0);
        (self.media, self.scored) = (media, 0);
    }

    /// Returns true if a prompt has to be evaluated, or tokens held before a reload again.
    pub const fn wants_prefill(&self) -> bool {
        self.held < self.batched
    }

    /// Returns true if nothing is left to evaluate.
    pub const fn is_evaluated(&self) -> bool {
        self.held == self.tokens.len()
    }

    /// Number of tokens that are left to evaluate in batches.
    pub const fn left(&self) -> usize {
        self.batched.saturating_sub(self.held)
    }

    /// Number of tokens to evaluate next: up to `ubatch` of a prompt, all of them text or of one piece
    /// of an image; otherwise one.
    pub fn next(&self, ubatch: usize) -> usize {
        if !self.wants_prefill() {
            return 1;
        }
        let border = self.media.span_of(self.held).map(|span| span.end());
        let border = border.or_else(|| self.media.next(self.held)).unwrap_or(self.batched);
        (border.min(self.batched) - self.held).min(ubatch)
    }

    /// Returns true if the next tokens are of an image.
    pub fn is_at_image(&self) -> bool {
        self.media.span_of(self.held).is_some()
    }

    /// The position of the token at `index` in the context.
    fn position(&self, index: usize) -> u32 {
        u32::try_from(self.media.position(index)).expect("within the context")
    }

    /// Returns true if the next tokens leave logits, each.
    pub const fn wants_scores(&self) -> bool {
        self.held < self.scored
    }

    /// Adds the next `n` tokens and all drafts to a batch. Logits are requested for the session's last
    /// token, for those that are to be scored, and for drafts.
    pub fn add_to(&self, batch: &mut Batch, n: usize) {
        for (place, &token) in self.tokens.iter().enumerate().skip(self.held).take(n) {
            let position = self.position(place);
            let wanted = place < self.scored || place + 1 == self.tokens.len();
            batch.push(Token(token), position, [self.sequence], wanted);
        }
        for (&draft, place) in self.drafts.iter().zip(self.tokens.len()..) {
            let position = self.position(place);
            batch.push(Token(draft), position, [self.sequence], true);
        }
    }

    /// Fills a batch up behind the next tokens of a session without images, to these places after those that
    /// are held. What is computed for them is to be dropped.
    pub fn fill_up(&self, batch: &mut Batch, places: Range<usize>) {
        let last = self.tokens[self.held + places.start - 1];
        for place in places {
            batch.push(Token(last), self.position(self.held + place), [self.sequence], false);
        }
    }

    /// Confirms the next draft if it is the token chosen last, which is held already. Returns its row.
    pub fn confirm(&mut self) -> Option<usize> {
        let next = self.drafts.get(self.confirmed)?;
        let right = self.held + 1 == self.tokens.len() && self.tokens.last() == Some(next);
        right.then(|| {
            self.held += 1;
            self.confirmed += 1;
            self.confirmed
        })
    }

    /// Notes that the next `n` tokens were evaluated in `epoch`.
    pub fn evaluated(&mut self, n: usize, epoch: u64) {
        if self.held == 0 {
            self.epoch = epoch;
        }
        self.row = if self.wants_scores() { n - 1 } else { 0 };
        self.held += n;
    }

    /// Cuts its part of the context back to `held` tokens, fewer if that divides an image, or to none
    /// if that is impossible. Returns the number of tokens that are then held.
    pub fn cut(&mut self, context: &mut Context, held: usize) -> usize {
        let held = self.media.whole(held);
        // Cut even if it should hold no more: a failed computation may have left some of its
        // tokens.
        let cut = held > 0
            && context.truncate(self.sequence, self.position(held))
            // A state that could not be put back has emptied the context.
            && context.last_position(self.sequence).is_some();
        if !cut {
            context.truncate(self.sequence, 0);
        }
        self.held = if cut { held } else { 0 };
        if self.held == 0 {
            self.whole_from = 0;
        }
        self.held
    }

    /// Notes that its keys and values are gone: tokens are evaluated again in batches, except the
    /// last `chosen`, which follow one by one. Returns the number of tokens that were held.
    pub fn forget(&mut self, chosen: usize) -> usize {
        self.batched = self.tokens.len() - chosen;
        self.known = self.known.max(self.held);
        self.whole_from = 0;
        std::mem::take(&mut self.held)
    }

    /// Drops the tokens that were not evaluated.
    pub fn settle(&mut self) {
        self.tokens.truncate(self.held.max(self.known));
        self.batched = self.tokens.len();
        self.media.settle(self.batched);
        self.seen = Seen::default();
    }

    /// Drops all tokens. Those in the context are already gone, or will be cut.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.media = Media::default();
        (self.held, self.known, self.batched, self.whole_from, self.scored) = (0, 0, 0, 0, 0);
    }

    /// Notes that its part of the context now holds these tokens; where images are among them, is for the
    /// caller to say.
    pub fn hold(&mut self, tokens: &[i32], whole_from: usize, epoch: u64) {
        self.media = Media::default();
        self.tokens.clear();
        self.tokens.extend_from_slice(tokens);
        (self.held, self.known, self.batched, self.scored) = (tokens.len(), 0, tokens.len(), 0);
        (self.whole_from, self.epoch) = (whole_from, epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(session: &Session, n: usize) -> usize {
        let mut batch = Batch::default();
        session.add_to(&mut batch, n);
        batch.outputs()
    }

    #[test]
    fn scored_tokens_leave_a_row_each_until_all_are_evaluated() {
        let mut session = Session::new(0);
        let prompt = || Prompted::from((0..7).collect::<Vec<i32>>());
        session.put(prompt(), 0);
        assert_eq!((rows(&session, 3), rows(&session, 7)), (0, 1));
        session.scored = 7;
        assert_eq!(rows(&session, 3), 3);
        session.evaluated(3, 0);
        assert_eq!((session.row, session.wants_scores()), (2, true));
        // What was lost is scored again.
        session.forget(0);
        assert_eq!(rows(&session, 7), 7);
        session.evaluated(7, 0);
        assert_eq!((session.row, session.wants_scores(), session.wants_prefill()), (6, false, false));
        session.tokens.push(8);
        assert_eq!(rows(&session, 1), 1);
        session.evaluated(1, 0);
        assert_eq!(session.row, 0);
        session.put(prompt(), 0);
        assert_eq!(rows(&session, 7), 1);
    }

    #[test]
    fn text_and_images_are_evaluated_apart() {
        let mut session = Session::new(0);
        let media = Media::of_spans(&[(2, 5, 3), (7, 2, 2)]);
        session.put(Prompted { tokens: vec![0; 12], media }, 0);
        let mut parts = Vec::new();
        while session.wants_prefill() {
            let n = session.next(4);
            parts.push((session.is_at_image(), n, session.position(session.held)));
            session.evaluated(n, 0);
        }
        let expected = [(false, 2, 0), (true, 4, 2), (true, 1, 2), (true, 2, 5), (false, 3, 7)];
        assert_eq!(parts, expected);
        assert_eq!((session.next(4), session.is_at_image()), (1, false));
    }
}
