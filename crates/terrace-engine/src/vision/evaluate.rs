//! Evaluates images in place of tokens.

use super::Vision;
use super::error::VisionError;
use super::seen::Seen;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::session::Session;
use terrace_backend::PassKind;
use terrace_ggml::llama::{ContextError, Embedded};

impl Vision {
    /// Fills `embedded` with the embeddings of a session's next `n` tokens, which belong to one piece of
    /// an image; computes those of all of it, unless the session has them.
    fn embed(&self, session: &mut Session, n: usize, embedded: &mut Embedded) -> Result<(), EngineError> {
        let held = session.held;
        let (span, piece) = session.media.piece_of(held).expect("within an image");
        let two_way = self.projector.is_two_way();
        if session.seen.values.is_empty() || session.seen.at != span.at {
            let values = self.projector.encode(piece).map_err(VisionError::from)?;
            session.seen = Seen { at: span.at, values };
        }
        let width = self.projector.width();
        let (from, to) = (held - span.at, held - span.at + n);
        let first = u32::try_from(session.media.position(span.at)).expect("within the context");
        let places = piece.places(first).skip(from).take(n);
        let values = &session.seen.values[from * width..to * width];
        embedded.put(session.sequence, values, places, two_way, held + n == session.tokens.len());
        if to == span.tokens {
            session.seen = Seen::default();
        }
        Ok(())
    }
}

impl Engine {
    /// Returns true if all of an image has to be evaluated at once.
    pub(crate) fn reads_at_once(&self) -> bool {
        self.vision().is_some_and(|vision| vision.projector.is_two_way())
    }

    /// Evaluates the next `n` tokens of a session, which belong to one piece of an image.
    ///
    /// # Errors
    /// The outer one: its embeddings cannot be computed. The inner one: they cannot be evaluated.
    pub(crate) fn evaluate_image(
        &mut self,
        session: &mut Session,
        n: usize,
    ) -> Result<Result<(), ContextError>, EngineError> {
        let vision = self.vision().cloned().ok_or(VisionError::NoProjector)?;
        let mut embedded = std::mem::take(self.embedded());
        let put = vision.embed(session, n, &mut embedded);
        self.set_pass_kind(Some(PassKind::Prefill));
        let computed = put.map(|()| self.context().decode_embeddings(&mut embedded));
        self.set_pass_kind(None);
        if let Ok(computed) = &computed {
            self.note_decoded(computed.is_ok() && embedded.outputs() > 0);
        }
        *self.embedded() = embedded;
        computed
    }
}
