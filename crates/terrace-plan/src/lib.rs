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

mod class;
mod context;
mod error;
mod experts;
mod hot;
mod manage;
mod metadata;
mod mix;
mod overrides;
mod patterns;
mod pin;
mod place;
mod plan;
mod profile;
mod request;
mod show;
mod summary;
mod working_set;

pub use class::{TensorClass, classify, classify_all};
pub use context::{ContextSize, DEFAULT_CONTEXT, auto_ubatch, context_size, context_tokens};
pub use error::{Need, PlanError};
pub use experts::{ExpertGroup, expert_groups};
pub use hot::{HotLayer, hot_slots};
pub use manage::{MATRIX_MIN, Managed, Selection, managed};
pub use metadata::Count;
pub use mix::{Mix, MixError, MixOption, least_cost, mixes};
pub use overrides::{ParseRuleError, RuleError, RulePlace, TensorRule, apply_rules};
pub use patterns::override_patterns;
pub use place::{
    Advice, Bound, CurveError, Estimate, Given, HitCurve, HotClass, PLACEMENT_VERSION, ParseWhatIfError,
    PlaceError, PlaceRequest, PlacedContext, PlacedExperts, PlacedLayer, PlacedMode, PlacedModel, Placement,
    PlacementError, Planner, RealizeError, Term, TermKind, TierUse, WhatIf, advise, assess, device_room,
    explain, place,
};
pub use plan::{Mode, Plan, auto_reserve, plan, plan_selection, token_cycle_warning};
pub use profile::{
    CpuProfile, DeviceProfile, MachineProfile, MatmulRate, MemoryProfile, PROFILE_VERSION, PlanRate,
    ProfileError, ReadRate, StorageProfile, ThreadBandwidth, Unit,
};
pub use request::{Budget, Machine, Manage, ParseBudgetError, ParseManageError, Request};
pub use summary::{ClassSummary, ShardSummary, Summary, TypeSummary};
pub use working_set::slot_size;
