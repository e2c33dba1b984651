//! Texts that the engine embeds.

use super::claim::Claim;
use crate::advice::Reason;
use crate::app::{App, Ready};
use crate::error::ApiError;
use std::sync::Arc;
use terrace_serving::{EmbedJob, Embedded};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Submits texts, and waits for what the engine makes of them. When this is dropped, because the
/// client disconnects, the job leaves the queue or ends at its next graph.
///
/// # Errors
/// The job is refused or fails, or takes longer than the time limit.
pub async fn embed(app: &App, ready: &Arc<Ready>, job: EmbedJob) -> Result<Embedded, ApiError> {
    let deadline = app.timeout.map(|timeout| Instant::now() + timeout);
    let (send, receive) = oneshot::channel();
    let done = Box::new(move |outcome| {
        // The client may have left.
        let _ = send.send(outcome);
    });
    let ticket = ready.ask(|serving| serving.embed(job.with(ready.scales()), done))??;
    let _claim = Claim::new(ticket, deadline);
    let mut loss = ready.loss();
    let coming = async {
        tokio::select! {
            biased;
            outcome = receive => outcome.map_err(|_| ApiError::stopping()),
            Ok(_) = loss.wait_for(|lost| *lost) => Err(ApiError::weights_lost(app.restarts)),
        }
    };
    let timed_out = |_| ApiError::timed_out().with(ready.advise(Reason::TimeLimit));
    let outcome = match deadline {
        None => coming.await?,
        Some(deadline) => timeout_at(deadline, coming).await.map_err(timed_out)??,
    };
    outcome.map_err(|error| {
        let advice = ready.advise(Reason::Engine(&error));
        ApiError::from(error).with(advice)
    })
}
