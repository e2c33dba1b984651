//! Downloads of several processes at once, of which some are killed: a file in the cache is whole, or
//! not there. `crates/terrace-cli/src/source/hub/tests.rs` has what one download does.

use crate::common::{stderr, terrace};
use crate::stand_in::{Behaviour, REPO, StandIn, hex};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use terrace_testkit::{Spec, thorough};

const FILE: &str = "tiny.gguf";

fn start(hub: &StandIn, cache: &Path) -> Child {
    let mut command = terrace();
    command.env("HF_ENDPOINT", &hub.endpoint).env("HF_HUB_CACHE", cache);
    command.args(["inspect", &format!("hf:{REPO}:{FILE}")]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Asserts that a blob of the cache has the content that its name says, if it is there.
#[track_caller]
fn whole_or_missing(blob: &Path) {
    let Ok(content) = std::fs::read(blob) else { return };
    assert_eq!(Some(hex(&content).as_str()), blob.file_name().unwrap().to_str(), "{} bytes", content.len());
}

#[test]
fn three_processes_of_which_some_fail_or_are_killed_leave_a_whole_file() {
    let dir = TempDir::new().unwrap();
    let content =
        std::fs::read(terrace_testkit::write(&Spec::default(), dir.path().join(FILE)).unwrap()).unwrap();
    let mut random = fastrand::Rng::with_seed(39);
    for round in 0..thorough(4, 60) {
        let cache = TempDir::new().unwrap();
        let blob = cache.path().join("models--owner--tiny-GGUF/blobs").join(hex(&content));
        let behaviour = Behaviour {
            wrong: random.usize(0..2),
            longer: random.usize(0..3),
            cuts: (0..random.usize(0..3)).map(|_| random.usize(1..content.len())).collect(),
            pause: Some(Duration::from_millis(random.u64(1..25))),
            ..Behaviour::default()
        };
        let hub = StandIn::new(&[(FILE, content.clone())], behaviour);
        let mut processes: Vec<(Child, Option<u32>)> = Vec::new();
        // In steps of ten milliseconds: three starts, and up to two ends.
        let starts: Vec<u32> = (0..3).map(|_| random.u32(0..60)).collect();
        let mut step = 0;
        loop {
            for _ in starts.iter().filter(|&&start| start == step) {
                let killed = random.u32(0..3) < 2;
                let at = killed.then(|| step + random.u32(5..100));
                processes.push((start(&hub, cache.path()), at));
            }
            let mut running = processes.len() < starts.len();
            for (process, killed) in &mut processes {
                if *killed == Some(step) {
                    let _ = process.kill();
                }
                running |= process.try_wait().unwrap().is_none();
            }
            whole_or_missing(&blob);
            if !running {
                break;
            }
            step += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        for (process, killed) in processes {
            let output = process.wait_with_output().unwrap();
            let text = stderr(&output);
            let wrong = text.contains("error: ") && (text.contains("SHA-256") || text.contains("instead of"));
            assert!(output.status.success() || killed.is_some() || wrong, "round {round}: {text}");
        }
        // Whatever happened, the next one ends well.
        hub.behave(Behaviour::default());
        let output = start(&hub, cache.path()).wait_with_output().unwrap();
        assert!(output.status.success(), "round {round}: {}", stderr(&output));
        assert_eq!(std::fs::read(&blob).unwrap(), content, "round {round}");
    }
}
