//! A short look at a device that nothing is known of.

use super::choose::{Sample, choose};
use super::load::{Load, measure, touched};
use super::pattern::Pattern;
use crate::choice::{DirectChoice, IoChoice};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::{open_engine, open_files};
use crate::limits::{DEFAULT_DEPTH, DEFAULT_REQUEST};
use std::path::PathBuf;
use std::time::Duration;
use terrace_model::ByteSize;

/// What is tried, in KiB and requests, in rounds: what drifts drifts for all.
const TRIED: [(u64, u32); 4] = [(1024, 8), (256, 32), (1024, 32), (256, 128)];
/// Memory to read into, if the budget has it: more than caches hold.
const MEMORY: u64 = 128 << 20;
/// New requests of one combination are sent for this long.
const EACH: Duration = Duration::from_millis(8);
/// The reads take no longer than this, as far as that can be told before: the memory for them takes some 50 ms more.
const TOTAL: Duration = Duration::from_millis(200);
/// What is known to do well is given up for this much only: the machine may be busy with something else.
const SLACK: f64 = 0.15;

/// Scattered direct reads of the file by `io`, within the configuration's budget, on its clock and with its faults; what to
/// read with. `None` if the device is too slow to tell in time, or the budget too small.
pub(crate) fn probe(path: PathBuf, io: IoChoice, config: &StoreConfig) -> Result<Option<Sample>, StoreError> {
    let StoreConfig { budget, clock, .. } = config;
    let tried = TRIED.map(|(kib, depth)| (ByteSize::kib(kib), depth));
    let most = tried.iter().map(|(size, depth)| size.0 * u64::from(*depth)).max().unwrap_or(0);
    // Memory within the budget, whose own is not in use yet. What only some were tried for should not be kept.
    if most > budget.0 {
        return Ok(None);
    }
    let files = open_files(vec![path.clone()], DirectChoice::On)?;
    let failed = |source| StoreError::Open { path: path.clone(), source };
    let memory = touched(MEMORY.min(budget.0)).map_err(failed)?;
    // After the memory, which takes the longer the busier the machine is.
    let started = clock.now();
    let faults = config.faults.as_ref().map(|plan| (plan, clock));
    let sample = |(request_size, queue_depth)| Sample { request_size, queue_depth, gbps: 0.0 };
    let mut samples: Vec<Sample> = tried.into_iter().map(sample).collect();
    let (mut rounds, mut slowest) = (0, f64::INFINITY);
    'rounds: loop {
        let mut round = samples.clone();
        for sample in &mut round {
            let load = Load {
                pattern: Pattern::Scattered,
                file_len: files.all[0].len,
                request: sample.request_size.0,
                depth: sample.queue_depth,
                adjacent: 1,
                once: false,
                time: EACH,
            };
            // What is in flight has to arrive, whatever the time.
            let expected = EACH + Duration::from_secs_f64(load.in_flight() as f64 / (slowest * 1e9));
            if clock.now() - started + expected > TOTAL {
                break 'rounds;
            }
            let (engine, _) = open_engine(io, sample.queue_depth, faults, &files)?;
            let gbps = measure(engine, &memory, &load, clock).map_err(failed)?.gbps();
            if gbps == 0.0 {
                return Ok(None);
            }
            slowest = slowest.min(gbps);
            // Others only ever make it slower.
            sample.gbps = sample.gbps.max(gbps);
        }
        samples = round;
        rounds += 1;
    }
    tracing::debug!(took = ?(clock.now() - started), rounds, ?samples, "probed {}", path.display());
    Ok(if rounds == 0 { None } else { choose(&samples, (DEFAULT_REQUEST, DEFAULT_DEPTH), SLACK) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    /// Results come after so many milliseconds, however fast the machine is.
    fn slow(ms: u64, budget: ByteSize) -> StoreConfig {
        let faults = Some(format!("latency={ms}ms@1..").parse().expect("a plan of faults"));
        StoreConfig { budget, clock: Clock::still(), faults, ..StoreConfig::default() }
    }

    #[test]
    fn a_probe_is_short_and_stays_within_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 64 << 20]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let probed = |config: &StoreConfig| probe(path.clone(), IoChoice::Auto, config);
        // Not even with room for all but a page.
        assert_eq!(probed(&slow(1, ByteSize((32 << 20) - 4096))).unwrap(), None);
        let full = (DEFAULT_REQUEST, DEFAULT_DEPTH);
        // 32 MiB in 15 ms, or in 2; and 8 MiB in 40 ms: after two of them the time would not do for 32.
        for (ms, found) in [(2, Some(full)), (15, Some(full)), (40, None)] {
            let config = slow(ms, ByteSize::mib(32));
            let begin = config.clock.now();
            let sample = match probed(&config) {
                Err(StoreError::Direct { .. }) => return eprintln!("no direct I/O here"),
                sample => sample.unwrap(),
            };
            assert!(config.clock.now() - begin <= TOTAL, "{ms}: {:?}", config.clock.now() - begin);
            assert_eq!(sample.map(|sample| (sample.request_size, sample.queue_depth)), found, "{ms}");
            let expected = (32 << 20) as f64 / (ms as f64 * 1e6);
            assert!(sample.is_none_or(|sample| (sample.gbps / expected - 1.0).abs() < 0.01), "{sample:?}");
        }
    }
}
