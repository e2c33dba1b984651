//! Greedy tokens with the plug-in are those without, and it takes no more than its budget.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::llama::{Context, ContextParams, FlashAttention, LoadParams, Model, Token, Weight};
use terrace_ggml::testing::params::context_params;
use terrace_ggml::testing::plugin;
use terrace_testkit::{Arch, Spec};

const PROMPT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, and void; \
and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters.";

/// The library, which cargo builds for its tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("a test has a path");
    let folder = tests.parent().expect("in a folder");
    let name = format!("{}terrace_plugin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = [folder.join(&name), folder.join("..").join(&name)].into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {name} in {}", folder.display()))
}

pub fn bundled() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf").canonicalize().unwrap()
}

/// Sets a variable that the plug-in reads when it is loaded.
pub fn set(name: &str, value: &str) {
    terrace_testkit::needs_own_process();
    // SAFETY: a test has a process of its own, and no thread of it reads the environment now.
    unsafe { std::env::set_var(name, value) };
}

/// Loads the plug-in, and returns the names of its devices. It listens nowhere, and keeps nothing
/// from run to run, unless the test says so.
#[allow(clippy::disallowed_methods, reason = "a test has an environment of its own")]
pub fn plug_in() -> Vec<String> {
    for name in ["TERRACE_CONTROL", "TERRACE_WARM_START"] {
        if std::env::var_os(name).is_none() {
            set(name, "off");
        }
    }
    plugin::load(&library())
}

/// Logits of the prompt and of eight greedy tokens, bit for bit.
pub fn trace(model: &Arc<Model>) -> Vec<Vec<u32>> {
    trace_in(model, |_| {})
}

/// The same, in a context that is prepared first.
pub fn trace_in(model: &Arc<Model>, prepare: impl FnOnce(&mut Context)) -> Vec<Vec<u32>> {
    let params = ContextParams {
        threads: 1,
        threads_batch: 1,
        flash_attention: FlashAttention::On,
        ..context_params(256)
    };
    trace_of(model, &params, prepare)
}

/// The same, in a context with these parameters.
pub fn trace_with(model: &Arc<Model>, params: &ContextParams) -> Vec<Vec<u32>> {
    trace_of(model, params, |_| {})
}

fn trace_of(model: &Arc<Model>, params: &ContextParams, prepare: impl FnOnce(&mut Context)) -> Vec<Vec<u32>> {
    let mut tokens = model.vocab().tokenize(PROMPT, true, false).unwrap();
    let mut context = Context::new(Arc::clone(model), params, Arc::new(AtomicBool::new(false))).unwrap();
    prepare(&mut context);
    let mut rows = Vec::new();
    for _ in 0..9 {
        context.decode(&mut tokens).unwrap();
        let logits = context.logits().unwrap();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        rows.push(logits.iter().map(|logit| logit.to_bits()).collect());
        tokens = vec![Token(i32::try_from(best).unwrap())];
    }
    rows
}

pub fn load(path: &Path, read: bool) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadParams { read, ..LoadParams::default() }).unwrap())
}

/// Where the model's weights are, by the names of their buffer types.
pub fn places(model: &Arc<Model>) -> BTreeSet<String> {
    Weight::all(model).iter().map(|weight| weight.place().to_owned()).collect()
}

/// A host asks again for each option that names devices.
#[test]
fn the_same_devices_are_returned_each_time() {
    terrace_testkit::needs_own_process();
    let (first, again) = (plugin::registry_of(&library()), plugin::registry_of(&library()));
    assert!(first != 0 && first == again);
}

#[test]
fn a_setting_that_means_nothing_is_refused() {
    set("TERRACE_RAM_BUDGET", "lots");
    assert_eq!(plugin::registry_of(&library()), 0);
}

#[test]
fn experts_are_streamed_with_the_same_logits() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    let expected = trace(&load(&bundled(), false));
    let added = plug_in();
    assert_eq!(added, ["TERRACE", "TERRACE_DISK"]);
    for read in [false, true] {
        let model = load(&bundled(), read);
        assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
        assert!(trace(&model) == expected, "with mapping {}", !read);
    }
}

#[test]
fn what_fits_is_left_to_the_host() {
    set("TERRACE_RAM_BUDGET", "1GiB");
    let before = places(&load(&bundled(), false));
    plug_in();
    let model = load(&bundled(), false);
    assert_eq!(places(&model), before);
    assert_eq!(trace(&model).len(), 9);
}

/// Names, types and shapes of their tensors do not tell these models apart.
#[test]
fn models_of_one_shape_are_streamed_side_by_side_and_after_each_other() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let write = |seed| {
        let spec = Spec { layers: 2, seed, ..Spec::new(Arch::Mixtral) };
        terrace_testkit::write(&spec, dir.path().join(format!("{seed}.gguf"))).unwrap()
    };
    let files = [write(1), write(2)];
    let size = std::fs::metadata(&files[0]).unwrap().len();
    set("TERRACE_STREAM", "experts");
    set("TERRACE_RAM_BUDGET", &(size * 3 / 5).to_string());
    let expected = files.each_ref().map(|file| trace(&load(file, false)));
    assert!(expected[0] != expected[1]);
    plug_in();

    let streamed = |file: &Path, read| {
        let model = load(file, read);
        assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
        model
    };
    let first = streamed(&files[0], false);
    // The program's descriptors of what it loads next come after those that the plug-in keeps.
    let before: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    // The budget is taken, so it gets as little as it can do with.
    let second = streamed(&files[1], true);
    assert!(trace(&second) == expected[1] && trace(&first) == expected[0]);
    drop(first);
    let again = streamed(&files[0], true);
    assert!(trace(&again) == expected[0] && trace(&second) == expected[1]);
    drop((again, second));
    assert!(trace(&streamed(&files[1], false)) == expected[1]);
    drop(before);
}
