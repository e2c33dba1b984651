//! Here is a model and a machine: what lives where?
//!
//! Pure functions over the plain description of a model file: no clock, no files, no threads, no ggml; the same
//! input gives the same plan. What the machine has and what the user wants are numbers that the caller brings
//! ([`Machine`], [`Request`]); out comes a [`Plan`], or the reason and the smallest budget that would do.
//!
//! - [`classify`], [`expert_groups`]: what each tensor is for.
//! - [`Summary`]: a model for people and for `terrace inspect`.
//! - [`managed`], [`override_patterns`]: which tensors Terrace streams, and how llama.cpp is told.
//! - [`plan`]: budgets, slots, mode, warnings.
//! - [`place`]: a [`Placement`] on a measured machine ([`MachineProfile`]), with an estimate of its speed.
//! - [`mixes`]: types of tensors that cost least within a size.

mod advice;
mod error;
mod machine;
mod mix;
mod model;
mod place;
mod plan_table;
mod planners;
mod rules;
mod wishes;

pub use advice::{Advice, ParseWhatIfError, WhatIf, advise, explain};
pub use error::{Need, PlanError};
pub use machine::{
    CpuProfile, DeviceProfile, MachineProfile, MatmulRate, MemoryProfile, PROFILE_VERSION, PlanRate,
    ProfileError, ReadRate, StorageProfile, ThreadBandwidth, Unit,
};
pub use mix::{Mix, MixError, MixOption, least_cost, mixes};
pub use model::{
    ClassSummary, ContextSize, Count, DEFAULT_CONTEXT, ExpertGroup, MATRIX_MIN, Managed, Selection,
    ShardSummary, Summary, TensorClass, TypeSummary, auto_ubatch, classify, classify_all, context_size,
    context_tokens, expert_groups, managed, override_patterns, slot_size,
};
pub use place::{
    Bound, CurveError, Estimate, Given, HitCurve, HotClass, PLACEMENT_VERSION, PlaceError, PlaceRequest,
    PlacedContext, PlacedExperts, PlacedLayer, PlacedMode, PlacedModel, Placement, PlacementError,
    RealizeError, Term, TermKind, TierUse, assess, device_room, place,
};
pub use planners::{
    HotLayer, Mode, Plan, Planner, auto_reserve, hot_slots, plan, plan_selection, token_cycle_warning,
};
pub use rules::{ParseRuleError, RuleError, RulePlace, TensorRule, apply_rules};
pub use wishes::{Budget, Machine, Manage, ParseBudgetError, ParseManageError, Request};
