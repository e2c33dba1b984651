//! Evaluates a text after the load, so that the uses of its experts are known before the first
//! answer.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::generate::Evaluated;
use crate::vision::Media;
use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::Duration;
use terrace_ggml::llama::Batch;
use terrace_lanes::Lanes;

/// Interval at which a warm-up that waits for the writer of a file checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Engine {
    /// Evaluates as many tokens of `text` as fit the context, then forgets them. Empty slots on
    /// devices get the experts that it used most.
    ///
    /// # Errors
    /// [`EngineError`], as for a prompt; [`EngineError::Cancelled`] after an interrupt.
    pub fn warm_up(&mut self, text: &str) -> Result<(), EngineError> {
        let mut tokens = self.tokenize(text, true, false)?;
        tokens.truncate(self.context_size());
        if tokens.is_empty() {
            return Ok(());
        }
        let mut session = self.session();
        self.hand_to(&mut session);
        session.append(&tokens, &Media::default());
        let mut batch = Batch::default();
        loop {
            match self.evaluate(&mut session, &mut batch, usize::MAX, 0)? {
                Evaluated::Part => {}
                Evaluated::All => break,
                Evaluated::Again => sleep(POLL_INTERVAL),
                Evaluated::Interrupted => return Err(EngineError::Cancelled),
            }
        }
        self.reset();
        self.fill_copies()?;
        self.save_learned();
        Ok(())
    }

    /// Fills empty slots on devices with the experts used most so far.
    fn fill_copies(&mut self) -> Result<(), EngineError> {
        let (Some(weights), Some(usage)) = (self.weights(), self.expert_usage()) else { return Ok(()) };
        let (mut store, mut lanes) = (weights.store(), Lanes::of(weights));
        let Some(lanes) = lanes.get_mut() else { return Ok(()) };
        for layer in usage.layers().filter(|layer| layer.calls > 0) {
            let used = self.shapes().iter().find(|shape| shape.layer == layer.layer.0);
            lanes.assume(layer.layer, &layer.all, used.map_or(1, |shape| shape.used));
        }
        lanes.fill(None, &mut store, &mut |_| ControlFlow::Continue(()))?;
        Ok(())
    }
}
