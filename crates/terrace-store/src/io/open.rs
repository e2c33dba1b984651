//! Opening the I/O engine: the requested one, or the one that the kernel allows.

use super::engine::IoEngine;
use super::faults::FaultPlan;
use super::faulty::Faulty;
use super::files::Files;
use super::pread::{self, PreadPool};
use super::uring::{self, Uring};
use crate::choice::IoChoice;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::limits::QueueDepth;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Opens the requested engine for `files`, with room for `depth` requests. Also returns why it is
/// this engine. Injected delays pass on the clock.
pub(crate) fn open_engine(
    choice: IoChoice,
    depth: QueueDepth,
    faults: Option<(&FaultPlan, &Clock)>,
    files: &Files,
) -> Result<(Box<dyn IoEngine>, String), StoreError> {
    let handles: Arc<[File]> = files.handles()?.into();
    let ring = || Ok(Box::new(Uring::new(Arc::clone(&handles), depth.most)?) as Box<dyn IoEngine>);
    let pool = || Ok(Box::new(PreadPool::new(Arc::clone(&handles), depth)?) as Box<dyn IoEngine>);
    let (engine, reason) = choose(choice, ring, pool)?;
    Ok(match faults {
        Some((plan, clock)) => {
            let align = usize::try_from(files.align).expect("at most a page");
            let reason = format!("{reason}; faults injected: {plan}");
            (Box::new(Faulty::new(engine, plan.clone(), align, depth.most, clock.clone())), reason)
        }
        None => (engine, reason),
    })
}

/// Makes the chosen engine by one of the two functions.
fn choose(
    choice: IoChoice,
    ring: impl FnOnce() -> io::Result<Box<dyn IoEngine>>,
    pool: impl FnOnce() -> io::Result<Box<dyn IoEngine>>,
) -> Result<(Box<dyn IoEngine>, String), StoreError> {
    let pool = || pool().map_err(|source| StoreError::Engine { engine: pread::NAME, source });
    match choice {
        IoChoice::Pread => Ok((pool()?, "pread, as requested".into())),
        IoChoice::Uring => match ring() {
            Ok(ring) => Ok((ring, "io_uring, as requested".into())),
            Err(source) => Err(StoreError::Engine { engine: uring::NAME, source }),
        },
        IoChoice::Auto => match ring() {
            Ok(ring) => Ok((ring, "io_uring works".into())),
            Err(error) => {
                tracing::debug!(%error, "no io_uring");
                Ok((pool()?, format!("pread, because io_uring is not available: {error}")))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_io_uring_the_pool_reads_unless_io_uring_was_asked_for() {
        for refusal in [io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied] {
            let no_ring = || Err(refusal.into());
            let pool =
                || Ok(Box::new(PreadPool::new(Arc::new([]), QueueDepth::fixed(1))?) as Box<dyn IoEngine>);
            let (engine, reason) = choose(IoChoice::Auto, no_ring, pool).unwrap();
            assert_eq!(engine.name(), pread::NAME);
            assert!(reason.contains(&io::Error::from(refusal).to_string()), "{reason}");
            match choose(IoChoice::Uring, no_ring, pool) {
                Err(StoreError::Engine { engine, source }) => {
                    assert_eq!((engine, source.kind()), (uring::NAME, refusal));
                }
                _ => panic!("an explicit choice must not be replaced"),
            }
        }
    }
}
