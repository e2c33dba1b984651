//! A pass with drafts: proposed before it, confirmed row by row after it.

use crate::drafts::{DraftCounts, Drafts, Pass};
use crate::engine::Engine;
use crate::session::Session;
use std::time::Duration;
use terrace_backend::{KEYS, Passes};

impl Engine {
    /// Counts of drafts since the load; `None` without drafts.
    pub fn draft_counts(&self) -> Option<DraftCounts> {
        self.drafts().map(Drafts::counts)
    }

    /// The source of drafts; `None` without drafts.
    pub fn draft_source(&self) -> Option<String> {
        self.drafts().map(Drafts::source)
    }

    /// Adds drafts to a session of which only the token chosen last is left to evaluate. `most`: how
    /// many tokens may still be chosen after the next one.
    pub(crate) fn propose(&mut self, session: &mut Session, most: usize) {
        if !session.media.is_empty() {
            // Drafters read tokens.
            return;
        }
        let context = self.context_size();
        let Some(drafts) = self.drafts_mut() else { return };
        let place = session.held;
        let in_block = KEYS - 1 - place % KEYS;
        let most = most.min(in_block).min(context.saturating_sub(place + 1));
        if place + 1 == session.tokens.len() && most > 0 {
            let Session { sequence, tokens, drafts: proposed, .. } = session;
            drafts.propose(*sequence, tokens, most, proposed);
        }
    }

    /// Has the next pass of `tokens` tokens computed as if each were alone; one token is alone anyway,
    /// and shows how. With 0, passes are computed as usual again.
    pub fn compute_alone(&mut self, tokens: usize) {
        let Some(weights) = self.weights() else { return };
        weights.compute_as(if tokens == 0 { Passes::One } else { Passes::Tokens(tokens) });
        // How work is dealt to threads decides about the last bits, too.
        let (one, several) = (self.plan().threads, self.plan().threads_batch);
        if one != several && tokens != 1 {
            self.context().set_threads(one, if tokens > 1 { one } else { several });
        }
    }

    /// Shows the source of drafts what the pass left that has evaluated the next `n` tokens of a session
    /// and its drafts.
    pub(crate) fn show_pass(&mut self, session: &Session, n: usize) {
        let width = self.model().embedding_width();
        let (Some(drafts), context) = self.drafts_and_context() else { return };
        if drafts.hidden().is_none() || !session.media.is_empty() {
            return;
        }
        let hidden = match context.hidden() {
            Ok(hidden) => hidden,
            Err(error) => return drafts.fail(&error.into()),
        };
        let from = session.held;
        // All tokens have left one, or those that left logits: the last token among others.
        let (rows, all) = (hidden.len() / width, n + session.drafts.len());
        let last = from + n == session.tokens.len();
        let kept = if rows == all { rows } else { usize::from(last && rows > 0) };
        let hidden = &hidden[(rows - kept) * width..];
        let mut tokens = &session.tokens[..from + n];
        let with_drafts;
        if !session.drafts.is_empty() {
            with_drafts = [tokens, &session.drafts].concat();
            tokens = &with_drafts;
        }
        drafts.saw(&Pass { sequence: session.sequence, tokens, from, hidden });
    }

    /// Notes how long a pass took that evaluated a chosen token and drafts.
    pub(crate) fn note_pass(&mut self, tokens: usize, time: Duration) {
        if let Some(drafts) = self.drafts_mut() {
            drafts.passed(tokens, time);
        }
    }

    /// Takes back a pass with drafts if its tokens may not have the bits that they have alone. Returns
    /// whether it did; the next pass is then a plain one.
    pub(crate) fn take_back(&mut self, session: &mut Session) -> bool {
        let tokens = session.drafts.len() + 1;
        let Some(unclear) = self.weights().and_then(|weights| weights.take_unclear()) else { return false };
        if tokens == 1 {
            return false;
        }
        session.drafts.clear();
        let held = session.held;
        session.cut(self.context(), held);
        if let Some(drafts) = self.drafts_mut() {
            drafts.avoid(unclear, tokens);
        }
        true
    }

    /// Drops the drafts that were not confirmed, and what the context holds of them. `ended`: the text
    /// ended, so that nothing is known of those left.
    pub fn settle_drafts(&mut self, session: &mut Session, ended: bool) {
        let (checked, accepted) = (session.drafts.len(), session.confirmed);
        if checked == 0 {
            return;
        }
        (session.confirmed, _) = (0, session.drafts.drain(..));
        if accepted < checked {
            let held = session.held;
            session.cut(self.context(), held);
        }
        if let Some(drafts) = self.drafts_mut() {
            drafts.accepted(checked, accepted, !ended || accepted == checked);
        }
    }
}
