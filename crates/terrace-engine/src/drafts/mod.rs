//! Speculation without loss: drafts of the next tokens, checked in one pass.
//!
//! A [`Drafter`] proposes tokens. A pass evaluates them after the token chosen last, each with the
//! bits of a pass of its own ([`Passes::Tokens`](terrace_backend::Passes::Tokens));
//! tokens are then chosen row by row, as without drafts, for as long as they are the drafts. The
//! [`Gate`] decides how many drafts pay.

mod contexts;
mod drafter;
mod gate;
mod model;
mod mtp;
mod mtp_text;
mod ngram;
mod open;
mod pass;
mod recorded;

pub use drafter::DraftCounts;
pub(crate) use drafter::{Drafter, Pass, Proposal};
pub use open::cannot_check;
pub(crate) use open::open;

use crate::drafts::gate::Gate;
use crate::error::EngineError;
use crate::unfit::NoDrafts;
use std::time::{Duration, Instant};
use terrace_backend::Unclear;
use terrace_ggml::llama::Hidden;

/// Tokens in a graph of what a source's context catches up with.
pub(crate) const DRAFT_UBATCH: u32 = 512;
/// Tokens to catch up with that count as part of a draft: those that were accepted, and the next one.
const FEW: usize = 32;

/// The source of an engine's drafts, and whether they are worth checking.
pub(crate) struct Drafts {
    drafter: Box<dyn Drafter>,
    gate: Gate,
    /// Maximum number of drafts in a pass.
    most: usize,
    ungated: bool,
    /// The drafts that the current pass checks.
    checked: Proposal,
    counts: DraftCounts,
    /// A bit for each number of tokens in a pass that is not to be computed.
    avoided: u32,
    /// The next pass is a plain one.
    plain: bool,
}

impl Drafts {
    fn new(drafter: Box<dyn Drafter>, most: usize, ungated: bool, eager: bool) -> Self {
        let (checked, counts) = (Proposal::default(), DraftCounts::default());
        let (gate, avoided, plain) = (Gate::new(most, eager), 0, true);
        Self { drafter, gate, most, ungated, checked, counts, avoided, plain }
    }

    /// The source of drafts.
    pub fn source(&self) -> String {
        self.drafter.name()
    }

    /// Which hidden states of passes the source has to see, if any.
    pub fn hidden(&self) -> Option<Hidden> {
        self.drafter.hidden()
    }

    /// Notes what a pass left.
    fn saw(&mut self, pass: &Pass<'_>) {
        if self.most > 0
            && let Err(error) = self.drafter.saw(pass)
        {
            self.fail(&error);
        }
    }

    /// The model's weights were replaced.
    pub fn forget(&mut self) {
        self.drafter.forget();
    }

    /// The source can propose nothing any more.
    fn fail(&mut self, error: &EngineError) {
        tracing::warn!("no more drafts from {}: {error}", self.drafter.name());
        self.most = 0;
    }

    /// Counts since the load.
    pub const fn counts(&self) -> DraftCounts {
        self.counts
    }

    /// Appends up to `most` tokens to `drafts` that may follow the tokens of a sequence, if it pays to
    /// check them.
    fn propose(&mut self, sequence: u32, tokens: &[i32], most: usize, drafts: &mut Vec<i32>) {
        self.checked = Proposal::default();
        let most = if std::mem::take(&mut self.plain) { 0 } else { most.min(self.most) };
        if self.gate.is_due() {
            self.gate.is_behind(self.drafter.behind(sequence, tokens));
        }
        let begun = Instant::now();
        let asked = if self.ungated { most } else { self.gate.asks(self.drafter.classes()).min(most) };
        if asked == 0 {
            return;
        }
        let proposal = match self.drafter.draft(sequence, tokens, asked, drafts) {
            Ok(proposal) => proposal,
            Err(error) => {
                self.fail(&error);
                drafts.clear();
                return;
            }
        };
        self.gate.drafted(drafts.len(), proposal.cost, begun.elapsed());
        if !self.ungated {
            drafts.truncate(self.gate.pays(proposal.class, drafts.len()));
        }
        while self.avoided >> (drafts.len() + 1) & 1 == 1 {
            drafts.pop();
        }
        self.checked = proposal;
    }

    /// Notes why passes of `tokens` tokens are not to be computed.
    fn avoid(&mut self, unclear: Unclear, tokens: usize) {
        self.plain = true;
        match unclear {
            Unclear::Unseen => {}
            Unclear::Tokens | Unclear::Experts => self.avoided |= 1 << tokens,
            Unclear::Graph | Unclear::Keys => {
                tracing::warn!("no more drafts: {}", NoDrafts::OtherGraph);
                self.most = 0;
            }
        }
    }

    /// Notes that a pass of `tokens` tokens took this long.
    fn passed(&mut self, tokens: usize, time: Duration) {
        self.gate.passed(tokens, time);
        self.counts.passes += 1;
    }

    /// Notes that of the `checked` drafts of a pass the first `accepted` were right. `all` tells that
    /// it was not the end of the text that ended them.
    fn accepted(&mut self, checked: usize, accepted: usize, all: bool) {
        self.counts.drafted += checked as u64;
        self.counts.accepted += accepted as u64;
        if all {
            self.gate.accepted(self.checked.class, checked, accepted);
        }
    }
}
