//! Here is a model and a machine: what lives where?
//!
//! Pure functions over the plain description of a model file: no clock, no files, no threads, no ggml; the same
//! input gives the same plan. What the machine has ([`MachineProfile`]) and what the user wants ([`Wishes`]) are numbers that
//! the caller brings; out comes a [`Plan`] with an estimate of its speed, or the reason and the smallest budget that would do.
//!
//! - [`plan()`]: the one entry.
//! - [`classify`], [`expert_groups`]: what each tensor is for.
//! - [`Summary`]: a model for people and for `terrace inspect`.
//! - [`managed`], [`override_patterns`]: sets of tensors, and how llama.cpp is told.
//! - [`advise`], [`explain`], [`WhatIf`]: what to make of a plan.
//! - [`mixes`]: types of tensors that cost least within a size.

mod advice;
mod error;
mod finish;
mod machine;
mod mix;
mod model;
mod place;
mod plan;
mod planners;
mod planning;
mod rules;
mod wishes;

pub use advice::{Advice, ParseWhatIfError, WhatIf, advise, explain};
pub use error::{Need, PlanError};
pub use machine::{
    CpuProfile, DeviceProfile, MachineProfile, MatmulRate, MemoryProfile, PROFILE_VERSION, PlanRate,
    ProfileError, ReadRate, StorageProfile, ThreadBandwidth, Unit, auto_reserve, device_room,
};
pub use mix::{Mix, MixError, MixOption, least_cost, mixes};
pub use model::{
    ClassSummary, ContextSize, Count, DEFAULT_CONTEXT, ExpertGroup, MATRIX_MIN, Managed, Selection,
    ShardSummary, Summary, TensorClass, TypeSummary, auto_ubatch, classify, classify_all, context_size,
    context_tokens, expert_groups, managed, override_patterns, slot_size,
};
pub use plan::{
    Bound, Estimate, FileError, HotCopies, Mode, Note, OnDevices, PLAN_VERSION, ParsePlanError, Plan,
    PlanFile, PlannedContext, PlannedExperts, PlannedLayer, PlannedModel, ReadsReason, Term, TermKind,
    TierUse, Warning, token_cycle_warning,
};
pub use planners::{HotLayer, Planner, hot_slots};
pub use planning::{kv_types, plan};
pub use rules::{ParseRuleError, RuleError, RulePlace, TensorRule, apply_rules};
pub use wishes::{
    Budget, CurveError, HitCurve, HotClass, KvChoice, Manage, ParseBudgetError, ParseManageError, Wishes,
};
