//! What sessions hold of a context.

use crate::reloading::{dir, load, options};
use std::ops::ControlFlow;
use terrace_ggml::llama::Sampling;
use terrace_plan::Manage;
use terrace_testkit::{Arch, Spec};

/// A context that was emptied holds nothing of a session, although tokens can be removed from it.
#[test]
fn an_emptied_context_holds_nothing() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    for arch in [Arch::Qwen3Moe, Arch::Qwen3Next] {
        let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
        let mut engine = load(options(&model, Manage::Experts));
        let mut session = engine.session();
        let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, &[5, 6, 7, 8], Some(1), &Sampling::greedy(), keep_going).unwrap();
        assert_eq!(session.cut(engine.context(), 4), 4, "{arch}");
        engine.context().clear();
        assert_eq!(session.cut(engine.context(), 4), 0, "{arch}");
    }
}
