//! Tests of whole models that answer several callers.

#![allow(clippy::print_stderr, reason = "a test says what it measured")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adapters;
mod disk_faults;
mod drafts;
mod kept;
mod lockstep;
mod scored;
mod served;
mod serving;
mod serving_pace;
mod serving_prompts;
mod serving_reload;
mod serving_slots;
mod serving_together;
mod vision;

// The engine's tests load the same models.
#[path = "../../../terrace-engine/tests/it/budgets.rs"]
#[expect(dead_code, reason = "the engine's tests use the rest")]
mod budgets;
#[path = "../../../terrace-engine/tests/it/bundled.rs"]
mod bundled;
#[path = "../../../terrace-engine/tests/it/made.rs"]
mod made;
#[path = "../../../terrace-engine/tests/it/reloading.rs"]
#[expect(dead_code, reason = "the engine's tests use the rest")]
mod reloading;
