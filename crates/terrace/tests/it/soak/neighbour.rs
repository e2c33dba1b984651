//! Other processes that take memory for some seconds and free it for some: as readings that the
//! server is told, or for real.

use super::MIB;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_host::{available_memory, cgroup_memory_limit};
use terrace_model::ByteSize;

/// What a real neighbour leaves free: less than the reserve of the server.
const LEFT: u64 = 64 * MIB;
/// The largest limit within which memory is taken.
const MAX_MEMORY: ByteSize = ByteSize::gib(4);
const TAKEN: Duration = Duration::from_secs(6);
/// Slots grow after ten seconds of calm, in steps of two seconds.
const FREE: Duration = Duration::from_secs(24);

/// How memory becomes short.
pub enum Neighbour {
    /// A file of readings.
    Simulated(PathBuf),
    /// This process takes what is left within the limit of its control group, which is the
    /// server's, too.
    Real,
}

impl Neighbour {
    /// A real one if `SOAK_NEIGHBOUR` is set.
    pub fn new(dir: &Path, length: Duration) -> Self {
        if std::env::var_os("SOAK_NEIGHBOUR").is_some() {
            let limit = cgroup_memory_limit();
            assert!(
                limit.is_some_and(|limit| limit <= MAX_MEMORY),
                "needs a limit of at most {MAX_MEMORY}, not {limit:?}"
            );
            return Self::Real;
        }
        let path = dir.join("readings");
        std::fs::write(&path, readings(length)).unwrap();
        Self::Simulated(path)
    }

    /// The server's arguments.
    pub fn args(&self) -> Vec<&str> {
        match self {
            Self::Simulated(path) => vec!["--simulated-memory", path.to_str().unwrap()],
            Self::Real => Vec::new(),
        }
    }

    /// Takes and frees memory until `stop`, if it is a real one.
    pub fn run(&self, stop: &AtomicBool) {
        let wait = |time: Duration| {
            let begin = Instant::now();
            while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        while matches!(self, Self::Real) && !stop.load(Ordering::Relaxed) {
            let bytes = available_memory().bytes().saturating_sub(LEFT);
            let taken = vec![1_u8; usize::try_from(bytes).unwrap()];
            wait(TAKEN);
            assert!(std::hint::black_box(taken).iter().step_by(4096).all(|&byte| byte == 1));
            wait(FREE);
        }
    }
}

/// Readings, 500 a second.
fn readings(length: Duration) -> String {
    let mut text = String::from("8MiB\n");
    let cycles = length.as_secs() / 8 + 1;
    for cycle in 0..cycles {
        let taken = ["20MiB", "16MiB", "12MiB pressed", "18MiB pressed"][cycle as usize % 4];
        for (reading, seconds) in [(taken, 3), ("64MiB", 5)] {
            (0..seconds * 500).for_each(|_| writeln!(text, "{reading}").unwrap());
        }
    }
    text + "64MiB\n"
}
