//! Values of options, and the lists and recipes that are files of such values. What can be shown
//! reads back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::LazyLock;
use terrace_engine::Utf8Stream;
use terrace_eval::HellaSwagTask;
use terrace_eval::sweep::Grouping;
use terrace_fuzz::{Scratch, machine, model};
use terrace_ggml::llama::FileType;
use terrace_host::pressure::Adapt;
use terrace_model::{ByteSize, KvTypes, SizeChoice};
use terrace_plan::advice::WhatIf;
use terrace_plan::options::MemoryOptions;
use terrace_plan::{Budget, KvChoice, Manage, TensorRule, Wishes, plan};
use terrace_quantize::{TypeRule, read_recipe};
use terrace_store::tools::replay::ReplayPolicy;
use terrace_store::{DirectChoice, FaultPlan, HotList, IoChoice, PolicyKind};

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

fuzz_target!(|data: &[u8]| {
    utf8(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        near(size);
    }
    for value in [text.parse::<SizeChoice>().ok(), text.parse::<Budget>().ok().and_then(choice)] {
        if let Some(SizeChoice::Bytes(size)) = value {
            near(size);
        }
    }
    reads_back::<KvTypes>(text);
    reads_back::<KvChoice>(text);
    reads_back::<Manage>(text);
    reads_back::<FaultPlan>(text);
    reads_back::<HotList>(text);
    reads_back::<IoChoice>(text);
    reads_back::<DirectChoice>(text);
    reads_back::<PolicyKind>(text);
    reads_back::<ReplayPolicy>(text);
    reads_back::<FileType>(text);
    reads_back::<Adapt>(text);
    reads_back::<Grouping>(text);
    reads_back::<TypeRule>(text);
    reads_back::<TensorRule>(text);
    if let Ok(rule) = text.parse::<TensorRule>() {
        let wishes = Wishes {
            memory: MemoryOptions { override_tensor: vec![rule], ..MemoryOptions::default() },
            ..Wishes::default()
        };
        let _ = plan(&model(), &machine(), &wishes).map(|plan| plan.tables(80).to_string());
    }
    if let Ok(what_if) = text.parse::<WhatIf>() {
        let changed = what_if.apply(&machine());
        if changed.check().is_ok() {
            let _ = plan(&model(), &changed, &Wishes::default()).map(|plan| plan.tables(80).to_string());
        }
    }
    if let Ok(tasks) = HellaSwagTask::parse(text) {
        let count = tasks.len();
        assert_eq!(HellaSwagTask::select(tasks, count / 2).len(), count / 2);
    }
    recipe(text);
    let _ = terrace_server::nearest(text, ["ram-budget", "ctx", "threads"].into_iter());
});

fn choice(budget: Budget) -> Option<SizeChoice> {
    match budget {
        Budget::Auto => None,
        Budget::Bytes(size) => Some(SizeChoice::Bytes(size)),
    }
}

/// A value that was read is shown as something that reads back as the same.
fn reads_back<T: FromStr<Err: Display> + Display>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let shown = value.to_string();
            match shown.parse::<T>() {
                Ok(again) => assert_eq!(again.to_string(), shown, "{text}"),
                Err(error) => panic!("{text} is shown as {shown}, but {error}"),
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

/// Sizes are shown with two decimals, and read back as near as that.
fn near(size: ByteSize) {
    let shown = size.to_string();
    let again: ByteSize =
        shown.parse().unwrap_or_else(|error| panic!("{size:?} is shown as {shown}: {error}"));
    let (a, b) = (size.bytes() as f64, again.bytes() as f64);
    assert!((a - b).abs() <= a.max(b) * 0.005 + 1.0, "{size:?} is shown as {shown}, which is {again:?}");
}

/// A recipe has as many rules as it has lines that are neither empty nor comments.
fn recipe(text: &str) {
    let path = SCRATCH.write("recipe", text.as_bytes());
    let Ok(rules) = read_recipe(&path) else { return };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(rules.len(), lines.count());
    for rule in rules {
        let _ = rule.matches("blk.1.ffn_up_exps.weight");
    }
}

/// Bytes that arrive in pieces of any length become the same text as all of them at once.
fn utf8(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let mut stream = Utf8Stream::default();
    let pieces = data.chunks(usize::from(cut).max(1));
    let text: String = pieces.map(|piece| stream.push(piece)).collect();
    assert_eq!(text + &stream.finish(), String::from_utf8_lossy(data));
}
