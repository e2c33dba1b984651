//! Mapped models whose files are not in the page cache.

use crate::exactness::{difference, options, run};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_backend::FileMaps;
use terrace_engine::options::MemoryOptions;
use terrace_engine::{Engine, Mode, Options};
use terrace_plan::Manage;
use terrace_platform::file::{Advice, advise};
use terrace_testkit::{Arch, Spec};

fn cached_share(path: &Path) -> f64 {
    FileMaps::open(&[path.to_owned()]).unwrap().cached_share().unwrap()
}

/// Takes a file out of the page cache.
fn evict(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    advise(&file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn a_model_that_is_read_while_it_computes_is_exact() {
    terrace_testkit::needs_own_process();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let stock = run(Options { mode: Mode::Stock { repack: false }, ..options(&model) }).0;
    evict(&model);
    let before = cached_share(&model);
    let memory = MemoryOptions { stream: Manage::Mapped, ..options(&model).memory };
    let mapped = Options { memory, ..options(&model) };
    let got = run(mapped.clone()).0;
    assert!(got == stock, "{}", difference(&got, &stock));

    // All of the model comes into memory, even if nothing is computed.
    evict(&model);
    let engine = Engine::load(mapped, &mut |_| ControlFlow::Continue(())).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while cached_share(&model) < 0.95 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(cached_share(&model) >= 0.95, "{} before, {} now", before, cached_share(&model));
    drop(engine);
}
