//! One transaction: find, check, stage and swap, tried again while a file is being written.

use super::error::ReloadError;
use super::find::Search;
use super::registry::Registry;
use super::reloads::Tries;
use super::report::{EarlierReload, ReloadReport};
use super::{apply, budget, check, stage};
use crate::engine::Engine;
use crate::options::OnReload;
use std::thread::sleep;
use std::time::Instant;

impl Engine {
    /// Runs one transaction over the result of `find`. Sleeps while a file is being written, so it
    /// is only for callers that have nothing else to do.
    pub(super) fn transaction(
        &mut self,
        mut find: impl FnMut(&mut Registry) -> Result<Search, ReloadError>,
    ) -> Result<ReloadReport, ReloadError> {
        let mut tries = Tries::new();
        loop {
            match self.attempt(&mut find, tries.begin) {
                Err(error) if error.may_pass() && tries.again() => sleep(tries.wait()),
                other => return other,
            }
        }
    }

    /// Tries a transaction once. `begin` is when the first try began.
    pub(super) fn attempt(
        &mut self,
        find: &mut dyn FnMut(&mut Registry) -> Result<Search, ReloadError>,
        begin: Instant,
    ) -> Result<ReloadReport, ReloadError> {
        let keep = self.reloads().then == OnReload::Keep;
        let parts = self.reload_parts();
        let found = find(parts.registry)?;
        if let Some(weights) = parts.weights {
            // Copies of a file that has changed are copies of what it was.
            found.seen.iter().for_each(|(path, _)| weights.store().drop_replicas(path));
        }
        let mut accepted = check::accepted(parts.registry, found)?;
        let refused = std::mem::take(&mut accepted.refused);
        let verifies = parts.registry.verifies;
        let swapped = stage::staged(parts.registry, parts.weights, parts.context, accepted)
            .and_then(|staged| if verifies { staged.hash(parts.weights) } else { Ok(staged) })
            .and_then(|staged| apply::swap(parts.registry, parts.weights, parts.context, staged));
        budget::settle(parts.registry.budget.as_ref(), parts.weights, parts.registry.own_memory());
        let (mut report, left) = swapped?;
        report.refused = refused;
        if !report.swapped.is_empty() {
            self.drop_embedder();
            if let Some(drafts) = self.drafts_mut() {
                drafts.forget();
            }
        }
        report.cleared = !report.swapped.is_empty() && !keep;
        if report.cleared {
            self.reset();
        }
        report.epoch = self.epoch();
        report.seconds = begin.elapsed().as_secs_f64();
        let last = &mut self.reloads().last;
        if report.is_empty() {
            report.earlier = last.map(|(at, epoch, tensors)| EarlierReload {
                epoch,
                tensors,
                seconds_ago: at.elapsed().as_secs_f64(),
            });
        } else {
            *last = Some((Instant::now(), report.epoch, report.swapped.len()));
        }
        left.map_or(Ok(report), Err)
    }
}
