//! A short look at a device that nothing is known of.

use super::{DEFAULT_DEPTH, DEFAULT_REQUEST, Sample, choose};
use crate::bench::{Load, Pattern, measure, touched};
use crate::config::{DirectChoice, IoChoice};
use crate::error::StoreError;
use crate::io::{open_engine, open_files};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;

/// What is tried, in KiB and requests, the fewest bytes in flight first: a slow device ends the probe early, and then
/// wants little in flight.
const TRIED: [(u64, u32); 8] =
    [(256, 8), (1024, 4), (256, 32), (1024, 8), (1024, 16), (256, 128), (1024, 32), (2048, 32)];
/// Memory to read into, if the budget has it: more than caches hold.
const MEMORY: u64 = 128 << 20;
/// New requests of one combination are sent for this long.
const EACH: Duration = Duration::from_millis(20);
/// The reads take no longer than this, as far as that can be told before: the memory for them takes some 50 ms more.
const TOTAL: Duration = Duration::from_millis(200);
/// Measurements this short are worth no more.
const SLACK: f64 = 0.08;

/// Scattered direct reads of the file; what to read with. `None` if the device is too slow to tell in time.
pub(super) fn probe(path: PathBuf, io: IoChoice, budget: ByteSize) -> Result<Option<Sample>, StoreError> {
    // Within the budget, whose memory is not in use yet.
    let tried = TRIED.map(|(kib, depth)| (ByteSize::kib(kib), depth)).into_iter();
    let tried: Vec<_> = tried.filter(|(size, depth)| size.0 * u64::from(*depth) <= budget.0).collect();
    let Some(most) = tried.iter().map(|(size, depth)| size.0 * u64::from(*depth)).max() else {
        return Ok(None);
    };
    let files = open_files(vec![path.clone()], DirectChoice::On)?;
    let failed = |source| StoreError::Open { path: path.clone(), source };
    let memory = touched(MEMORY.min(budget.0).max(most)).map_err(failed)?;
    // Behind the memory, which takes the longer the busier the machine is.
    let started = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    for (request_size, queue_depth) in tried {
        let load = Load {
            pattern: Pattern::Scattered,
            file_len: files.all[0].len,
            request: request_size.0,
            depth: queue_depth,
            adjacent: 1,
            once: false,
            time: EACH,
        };
        // What is in flight has to arrive, whatever the time.
        let slowest = samples.last().map_or(f64::INFINITY, |sample| sample.gbps);
        let expected = EACH + Duration::from_secs_f64(load.in_flight() as f64 / (slowest * 1e9));
        if started.elapsed() + expected > TOTAL {
            break;
        }
        let (engine, _) = open_engine(io, queue_depth, None, &files)?;
        let gbps = measure(engine, &memory, &load).map_err(failed)?.gbps();
        samples.push(Sample { request_size, queue_depth, gbps });
    }
    tracing::debug!(took = ?started.elapsed(), ?samples, "probed {}", path.display());
    Ok(if samples.len() < 4 { None } else { choose(&samples, (DEFAULT_REQUEST, DEFAULT_DEPTH), SLACK) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_short_and_stays_within_the_budget() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 64 << 20]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        assert_eq!(probe(path.clone(), IoChoice::Auto, ByteSize::mib(1)).unwrap(), None);
        let started = Instant::now();
        match probe(path, IoChoice::Auto, ByteSize::mib(8)) {
            // Only on a disk too slow for four combinations.
            Ok(None) => assert!(started.elapsed() > TOTAL / 2),
            Ok(Some(found)) => {
                assert!(found.gbps > 0.0 && found.request_size.0 * u64::from(found.queue_depth) <= 8 << 20);
            }
            Err(StoreError::Direct { .. }) => eprintln!("no direct I/O here"),
            Err(error) => panic!("{error}"),
        }
    }
}
