//! Observers of graphs that fail.

use crate::reloading::{dir, options, write};
use std::ops::ControlFlow;
use terrace_engine::Engine;
use terrace_ggml::llama::{Observer, Sampling};
use terrace_plan::Manage;
use terrace_testkit::{Arch, Spec};

/// Panics at the first tensor of the second layer.
struct Panics;

impl Observer for Panics {
    fn wants(&mut self, name: &[u8]) -> bool {
        name == b"l_out-1"
    }

    fn computed(&mut self, _: &[u8], _: usize, _: &[f32]) {
        panic!("seen enough");
    }
}

/// llama.cpp takes a graph that an observer ends for a computed one.
#[test]
fn a_panic_of_an_observer_is_an_error_and_no_answer() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let options = options(&model, Manage::None);
    let mut engine =
        Engine::load_observed(options, Some(Box::new(Panics)), &mut |_| ControlFlow::Continue(())).unwrap();
    let mut session = engine.session();
    let answer = engine.generate(&mut session, &[5, 6, 7, 8], Some(2), &Sampling::greedy(), &mut |_| {
        ControlFlow::Continue(())
    });
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("an observer: seen enough"), "{error}");
}
