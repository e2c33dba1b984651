//! Budgets that a plan accepts hold every graph.

use crate::budgets::minimum;
use crate::reloading::{dir, load, options, write};
use std::ops::ControlFlow;
use terrace_engine::Options;
use terrace_engine::options::MemoryOptions;
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{Arch, Spec};

/// A prompt's tokens and a few after it, where experts and whole matrices meet in few slots.
#[test]
fn everything_streams_through_the_smallest_slots() {
    for &arch in Arch::ALL.iter().filter(|arch| arch.is_moe()) {
        let dir = dir();
        // Two experts, both used: half of a bundle more or less is much of the slots.
        let spec = Spec { experts: 2, top_k: 2, ..Spec::new(arch) };
        let model = write(&spec, dir.path().join("model.gguf"));
        let answer = |options: Options| {
            let mut engine = load(options);
            let mut session = engine.session();
            let prompt: Vec<i32> = (0..10).map(|i| 3 + 7 * i).collect();
            let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
            engine.generate(&mut session, &prompt, Some(3), &Sampling::greedy(), go_on).map(|a| a.tokens)
        };
        let expected = answer(options(&model, Manage::None)).unwrap();
        let least = minimum(&model, Manage::All).bytes();
        for thirtieths in [0, 1, 2, 3, 4, 6, 9] {
            let ram_budget = Budget::Bytes(ByteSize(least + least * thirtieths / 30));
            let memory = MemoryOptions { stream: Manage::All, ram_budget, ..MemoryOptions::default() };
            let tokens = answer(Options { memory, ..options(&model, Manage::All) });
            let tokens = tokens.unwrap_or_else(|error| panic!("{arch}, {thirtieths} thirtieths: {error}"));
            assert_eq!(tokens, expected, "{arch}, {thirtieths} thirtieths");
        }
    }
}
