//! Headers of GGUF files: the bounded walk, ggml's reader after it, and what `inspect` and `plan`
//! compute from them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_fuzz::{Scratch, file_model, machine};
use terrace_ggml::gguf;
use terrace_model::identity::ModelIdentity;
use terrace_plan::model::{Summary, expert_groups, override_patterns};
use terrace_plan::{Wishes, plan};

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

fuzz_target!(|data: &[u8]| {
    let path = SCRATCH.write("model.gguf", data);
    let length = gguf::header_len(&path);
    let one = gguf::read_one(&path);
    if let Ok(one) = &one {
        file_model(one);
        assert!(length.as_ref().is_ok_and(|&length| length <= data.len() as u64), "{length:?}");
    }
    let model = match gguf::read(&path) {
        Ok(model) => model,
        Err(error) => return assert!(!error.to_string().contains(char::is_control), "{error}"),
    };
    file_model(&model);
    let _ = (ModelIdentity::of(&model).to_string(), expert_groups(&model));
    let summary = Summary::of(&model);
    let _ = (summary.to_string(), serde_json::to_string(&summary).expect("plain data"));
    let Ok(plan) = plan(&model, &machine(), &Wishes::default()) else { return };
    assert!(plan.resident.bytes() + plan.slots.bytes() <= plan.budget.bytes(), "{plan}");
    let _ = (format!("{plan:#}"), plan.tables(80).to_string());
    let _ = override_patterns(&model, &plan.managed);
});
