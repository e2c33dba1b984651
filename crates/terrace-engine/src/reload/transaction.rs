//! One transaction: find, check, stage and swap, repeated while a file is being written.

use super::error::ReloadError;
use super::find::Search;
use super::registry::Registry;
use super::report::ReloadReport;
use super::{apply, budget, check, stage};
use crate::engine::Engine;
use crate::options::OnReload;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits between tries while a file is being written, about 3 s in total.
const WAITS: [Duration; 6] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

impl Engine {
    /// Runs one transaction over the result of `find`.
    pub(super) fn transaction(
        &mut self,
        mut find: impl FnMut(&mut Registry) -> Result<Search, ReloadError>,
    ) -> Result<ReloadReport, ReloadError> {
        let begin = Instant::now();
        let mut waits = WAITS.iter();
        loop {
            let result = self.attempt(&mut find, begin);
            match result {
                Err(error) if error.may_pass() => match waits.next() {
                    Some(wait) => sleep(*wait),
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    fn attempt(
        &mut self,
        find: &mut impl FnMut(&mut Registry) -> Result<Search, ReloadError>,
        begin: Instant,
    ) -> Result<ReloadReport, ReloadError> {
        let keep = self.reloads().then == OnReload::Keep;
        let parts = self.reload_parts();
        let found = find(parts.registry)?;
        let accepted = check::accepted(parts.registry, found)?;
        let swapped = stage::staged(parts.registry, parts.weights, accepted)
            .and_then(|staged| apply::swap(parts.registry, parts.weights, parts.context, staged));
        budget::settle(parts.registry.budget.as_ref(), parts.weights, parts.registry.own_memory());
        let mut report = swapped?;
        report.cleared = !report.swapped.is_empty() && !keep;
        if report.cleared {
            self.reset();
        }
        report.epoch = self.epoch();
        report.seconds = begin.elapsed().as_secs_f64();
        Ok(report)
    }
}
