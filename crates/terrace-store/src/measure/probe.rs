//! A short probe of a device about which nothing is known.

use super::choose::{Sample, choose};
use super::load::{Load, measure, touched};
use super::pattern::Pattern;
use crate::choice::{DirectChoice, IoChoice};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::{open_engine, open_files};
use crate::limits::{DEFAULT_DEPTH, DEFAULT_REQUEST, QueueDepth};
use std::path::PathBuf;
use std::time::Duration;
use terrace_model::ByteSize;

/// The combinations to try, in KiB and requests. They are tried in rounds, so that drift affects
/// all alike.
const TRIED: [(u64, u32); 4] = [(1024, 8), (256, 32), (1024, 32), (256, 128)];
/// Bytes of memory to read into, if the budget allows: more than caches hold.
const MEMORY: u64 = 128 << 20;
/// Duration in which new requests of one combination are sent.
const EACH: Duration = Duration::from_millis(8);
/// Time limit for all reads, as far as it can be predicted. Allocating the memory takes about 50 ms
/// more.
const TOTAL: Duration = Duration::from_millis(200);
/// The defaults are only replaced by settings that are faster by this share: the machine may be
/// busy otherwise.
const SLACK: f64 = 0.15;

/// Probes scattered direct reads of the file by `io`, within the configuration's budget, on its
/// clock and with its faults, and returns the best settings. `None` if the device is too slow to be
/// measured in time, or the budget is too small.
pub(crate) fn probe(path: PathBuf, io: IoChoice, config: &StoreConfig) -> Result<Option<Sample>, StoreError> {
    let StoreConfig { budget, clock, .. } = config;
    let tried = TRIED.map(|(kib, depth)| (ByteSize::kib(kib), depth));
    let most = tried.iter().map(|(size, depth)| size.0 * u64::from(*depth)).max().unwrap_or(0);
    // The memory counts against the budget, which is not used yet. A result for only some of the
    // combinations should not be kept.
    if most > budget.0 {
        return Ok(None);
    }
    let files = open_files(vec![path.clone()], DirectChoice::On)?;
    let failed = |source| StoreError::Open { path: path.clone(), source };
    let memory = touched(MEMORY.min(budget.0)).map_err(failed)?;
    // The time starts after the allocation, which takes longer the busier the machine is.
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
                buffered: false,
                time: EACH,
            };
            // Requests in flight must complete, however long that takes.
            let expected = EACH + Duration::from_secs_f64(load.in_flight() as f64 / (slowest * 1e9));
            if clock.now() - started + expected > TOTAL {
                break 'rounds;
            }
            let (engine, _) = open_engine(io, QueueDepth::fixed(sample.queue_depth), faults, &files)?;
            let gbps = measure(engine, &memory, &load, clock).map_err(failed)?.gbps();
            if gbps == 0.0 {
                return Ok(None);
            }
            slowest = slowest.min(gbps);
            // Other load only makes it slower.
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

    /// Makes a configuration in which each result takes `ms` milliseconds, however fast the machine
    /// is.
    fn slow(ms: u64, budget: ByteSize) -> StoreConfig {
        let faults = Some(format!("latency={ms}ms@1..").parse().expect("a plan of faults"));
        StoreConfig { budget, clock: Clock::still(), faults, ..StoreConfig::default() }
    }

    #[test]
    fn a_probe_is_short_and_stays_within_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 64 << 20]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().sync_all().unwrap();
        let probed = |config: &StoreConfig| probe(path.clone(), IoChoice::Auto, config);
        // One page less than the budget that is needed.
        assert_eq!(probed(&slow(1, ByteSize((32 << 20) - 4096))).unwrap(), None);
        let full = (DEFAULT_REQUEST, DEFAULT_DEPTH);
        // 32 MiB take 2 or 15 ms; with 8 MiB in 40 ms, the time does not suffice for 32 MiB after
        // two of them.
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
