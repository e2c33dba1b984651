//! Requests: their fields become jobs for the engine.

pub mod body;
mod inert;
pub mod prompt;
pub mod sampling;

use crate::error::ApiError;

/// Has something done that may take its time: one thread answers all clients.
///
/// # Errors
/// What `work` comes to, or an internal error if it panics.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("an error of Terrace itself; the server's log has it")))
}
