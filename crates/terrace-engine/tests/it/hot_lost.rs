//! RPC servers whose devices have copies of experts end while a model runs: the CPU takes over, and
//! no token changes.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, trace, with, with_copies, write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use terrace_engine::{Engine, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::Manage;
use terrace_store::UserDirs;
use terrace_testkit::{Arch, Spec, WeightType};

fn spec(arch: Arch) -> Spec {
    Spec { expert_ff: 768, expert_type: WeightType::Q8_0, ..Spec::new(arch) }
}

fn plain(model: &Path) -> Engine {
    load(reloading::options(model, Manage::Experts))
}

const MEMORY: ByteSize = ByteSize::mib(256);
const TOKENS: usize = 60;

/// Generates greedy tokens. Calls `at` after each.
fn tokens(engine: &mut Engine, at: &mut dyn FnMut(usize)) -> Vec<i32> {
    let mut session = engine.session();
    let prompt = engine.tokenize("The water goes down", true, false).unwrap();
    let mut count = 0;
    let sink = &mut |_: &[u8]| {
        count += 1;
        at(count);
        ControlFlow::Continue(())
    };
    engine.generate(&mut session, &prompt, Some(TOKENS), &Sampling::greedy(), sink).unwrap().tokens
}

/// Number of pairs that devices have computed.
fn hot(engine: &Engine) -> u64 {
    engine.hot_experts().unwrap().totals.hot
}

fn assert_gone(engine: &Engine) {
    let report = engine.hot_experts().unwrap();
    let gone = |problem: &Option<String>| problem.as_ref().is_some_and(|text| text.contains("has ended"));
    assert!(report.layers.iter().all(|layer| gone(&layer.problem) && layer.held == 0), "{report:?}");
    assert_eq!(report.totals.memory, ByteSize::ZERO);
}

#[test]
fn a_server_that_ends_between_two_tokens() {
    let (dir, mut servers) = (dir(), servers(1, MEMORY));
    let model = write(&spec(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = tokens(&mut plain(&model), &mut |_| {});
    let mut engine = load(with_copies(&model, &servers));
    assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    assert!(hot(&engine) > 0);
    let got = tokens(&mut engine, &mut |count| {
        if count == TOKENS / 2 {
            servers.clear();
        }
    });
    assert_eq!(got, golden);
    assert_gone(&engine);
    // It is never used again.
    let used = hot(&engine);
    assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    assert_eq!(hot(&engine), used);
}

mod a_server_that_ends_at_any_time {
    terrace_testkit::each!(super::any_time: first = 1, second = 2, third = 3, fourth = 4);
}

/// One of three servers that share each layer ends, most likely in the middle of a node.
fn any_time(seed: u64) {
    let (dir, mut servers) = (dir(), servers(3, MEMORY));
    let model = write(&spec(Arch::GptOss), dir.path().join("model.gguf"));
    let golden = tokens(&mut plain(&model), &mut |_| {});
    let mut engine = load(with_copies(&model, &servers));
    assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    let after = Duration::from_micros(seed * (u64::from(std::process::id()) * 7919) % 200_000);
    let end = std::thread::spawn(move || {
        std::thread::sleep(after);
        drop(servers.remove(1));
        servers
    });
    while engine.hot_experts().unwrap().layers[0].device.contains("RPC1") {
        assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    }
    let _others = end.join().unwrap();
    let used = hot(&engine);
    assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    assert!(hot(&engine) > used, "the other devices go on");
}

#[test]
fn a_server_that_ends_before_slots_are_made_anew() {
    let (dir, mut servers) = (dir(), servers(1, MEMORY));
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let down = "blk.1.ffn_down_exps.weight";
    let donor = write(&with(&spec, down, WeightType::Q4_K), dir.path().join("donor.gguf"));
    let (before, after) = (trace(&mut plain(&base)), trace(&mut plain(&donor)));
    let mut engine = load(with_copies(&base, &servers));
    assert_eq!(trace(&mut engine).tokens, before.tokens);
    servers.pop();
    // The new tensor is used, but gets no copies any more.
    engine.swap(&[from_file(down, &donor)]).unwrap();
    assert!(trace(&mut engine) == after);
    assert_gone(&engine);
    engine.swap(&[original(down)]).unwrap();
    assert!(trace(&mut engine) == before);
}

/// The loss is noticed only when the server's memory is freed.
#[test]
fn a_server_that_ends_before_the_model_is_given_back() {
    let (dir, mut servers) = (dir(), servers(2, MEMORY));
    let model = write(&spec(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let mut engine = load(with_copies(&model, &servers));
    let golden = tokens(&mut engine, &mut |_| {});
    servers.pop();
    drop(engine);
    // This process no longer uses that device, and a model that needs none runs.
    let mut again = plain(&model);
    assert_eq!(tokens(&mut again, &mut |_| {}), golden);
    let left = terrace_ggml::devices::devices().into_iter().filter(|device| device.is_remote());
    assert_eq!(left.map(|device| device.name()).collect::<Vec<_>>(), ["RPC0"]);
}

/// The last step of a load fills slots with the experts that earlier runs used.
#[test]
fn a_server_that_ends_while_slots_are_filled() {
    let (dir, mut servers) = (dir(), servers(1, MEMORY));
    let model = write(&spec(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let warm = |options: Options| Options {
        user: UserDirs { config: None, cache: Some(dir.path().join("cache")) },
        ..options
    };
    let mut first = load(warm(reloading::options(&model, Manage::Experts)));
    let golden = tokens(&mut first, &mut |_| {});
    drop(first);
    let mut weights = None;
    let engine = Engine::load(warm(with_copies(&model, &servers)), &mut |told| {
        // Weights come first, with a different total.
        if told.total != *weights.get_or_insert(told.total) {
            servers.clear();
        }
        ControlFlow::Continue(())
    });
    let mut engine = engine.unwrap();
    assert!(servers.is_empty(), "no slots were filled");
    assert_eq!(tokens(&mut engine, &mut |_| {}), golden);
    assert_gone(&engine);
}
