//! Clients' view of the experts.

use super::text::{Head, write};
use super::values::{Change, Values};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_backend::LayerUsage;
use terrace_engine::ExpertsSeen;
use terrace_model::learn::Reported;
use terrace_serving::ServingStatus;

/// The experts of a model, for any number of clients.
#[derive(Default)]
pub struct Board(Mutex<Values>);

impl Board {
    /// Changes after `since`, or everything; JSON. The values may be as old as `most`: if they are
    /// older, `look` gets the uses of the experts and their places. `state` says the rest.
    ///
    /// # Errors
    /// Those of `look` and `state`.
    pub fn event<E>(
        &self,
        since: Option<u64>,
        most: Duration,
        look: impl FnOnce() -> Result<(Vec<LayerUsage>, Arc<ExpertsSeen>), E>,
        state: impl FnOnce() -> Result<(ServingStatus, Reported), E>,
    ) -> Result<Change, E> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if values.at.is_none_or(|at| at.elapsed() >= most) {
            let (uses, seen) = look()?;
            values.update(uses, &seen);
            values.at = Some(Instant::now());
        }
        let (status, mode) = state()?;
        Ok(values.change(since, &status, mode))
    }
}

impl Values {
    /// Changes after `since`, or everything if that is of an earlier run.
    pub(super) fn change(&mut self, since: Option<u64>, status: &ServingStatus, mode: Reported) -> Change {
        let since = since.filter(|since| (self.first..=self.cursor).contains(since));
        if let Some((from, change)) = &self.written
            && (*from, change.cursor) == (since, self.cursor)
        {
            return change.clone();
        }
        let change =
            Change { cursor: self.cursor, text: write(self, since, &Head::of(self, status, mode)).into() };
        self.written = Some((since, change.clone()));
        change
    }
}
