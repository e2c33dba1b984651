//! Runs what Terrace's threads share under many interleavings of their steps.
//!
//! The files that are checked are the real ones. Crates that link llama.cpp are not compiled, but
//! files of them that do without it are modules of this program. They import their atomics and locks
//! from `crate::sync`, which is [loom]'s here: it tries all interleavings, up to a number of
//! preemptions, and all results that Rust's memory model allows a load to have. The whole of
//! `terrace-store` is too large for that; it is compiled with [shuttle], which tries interleavings at
//! random.
//!
//! Each model is a function that starts a few threads and asserts what must hold. A deadlock is a
//! failure too, and so is a data race on a cell. `model-check [NAME...]` runs those of these names.
//! `LOOM_LOG=trace` and `LOOM_LOCATION=1` show how a failure came about; shuttle prints a schedule.
//!
//! [loom]: https://docs.rs/loom
//! [shuttle]: https://docs.rs/shuttle

#![allow(dead_code, reason = "a model uses a part of a file")]

mod models;
mod serving;
mod sync;

#[path = "../../crates/terrace-backend/src/barrier.rs"]
mod barrier;
#[path = "../../crates/terrace-lanes/src/handover.rs"]
mod handover;
#[path = "../../crates/terrace-store/src/lease.rs"]
mod lease;
#[path = "../../crates/terrace-backend/src/moe/fused/sequence.rs"]
mod sequence;
#[path = "../../crates/terrace-backend/src/moe/waves.rs"]
mod waves;

#[path = "../../crates/terrace-engine/src/reload/replacement.rs"]
#[expect(dead_code, reason = "the queue knows one of its types")]
mod replacement;

// What the queue knows of `terrace_engine` is here.
extern crate self as terrace_engine;

pub use replacement::Take;
pub type ReloadOutcome = ();

/// Numbers of `terrace_backend::block` and `terrace_store`'s name for a block.
mod block {
    pub const MATRICES: usize = 3;
    pub use terrace_store::BlockId;
}

use models::{Model, Search};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let models = models::all();
    if let Some(unknown) = wanted.iter().find(|name| models.iter().all(|model| model.name != **name)) {
        eprintln!("no model is called {unknown}");
        std::process::exit(2);
    }
    for model in models {
        if wanted.is_empty() || wanted.iter().any(|name| name == model.name) {
            let begin = Instant::now();
            let (tried, which) = check(&model);
            let seconds = begin.elapsed().as_secs_f64();
            println!("{:<28} {tried:>8} interleavings, {which}, {seconds:.1} s", model.name);
        }
    }
}

/// Tries interleavings of a model, and panics at one that fails. Returns how many, and which.
fn check(model: &Model) -> (usize, String) {
    let run = model.run;
    match model.search {
        Search::All => (search(None, run), "all".into()),
        Search::Preemptions(most) => (search(Some(most), run), format!("with up to {most} preemptions")),
        Search::Random(count) => {
            // The same ones in every run: half of them with few preemptions, at random steps.
            let few = shuttle::scheduler::PctScheduler::new_from_seed(SEED, 3, count / 2);
            let any = shuttle::scheduler::RandomScheduler::new_from_seed(SEED, count - count / 2);
            let tried = shuttle::Runner::new(few, config()).run(run);
            (tried + shuttle::Runner::new(any, config()).run(run), "at random".into())
        }
    }
}

const SEED: u64 = 20_261_122;

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    // It warns of memory orderings, which it does not model; loom does.
    config.silence_warnings = true;
    config
}

/// Has loom search with at most this many preemptions.
fn search(preemptions: Option<usize>, run: fn()) -> usize {
    let tried = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 100_000;
    let count = Arc::clone(&tried);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        run();
    });
    tried.load(Ordering::Relaxed)
}
