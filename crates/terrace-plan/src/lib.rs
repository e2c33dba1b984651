//! Here is a model and a machine: what lives where?
//!
//! Pure functions over the plain description of a model file: no clock, no files, no threads, no ggml; the same
//! input gives the same plan. What the machine has ([`MachineProfile`]) and what the user wants ([`Wishes`]) are numbers that
//! the caller brings; out comes a [`Plan`] with an estimate of its speed, or the reason and the smallest budget that would do.
//!
//! - [`plan()`]: the one entry.
//! - [`model`]: what each tensor is for, and what a context takes.
//! - [`machine`]: what a machine can do.
//! - [`advice`]: what to make of a plan.
//! - [`parts`]: what a plan is made of; [`copies`]: copies of experts on devices.
//! - [`mix`]: types of tensors that cost least within a size.

pub mod advice;
mod error;
mod finish;
pub mod machine;
pub mod mix;
pub mod model;
mod place;
mod plan;
mod planners;
mod planning;
mod rules;
mod wishes;

pub use error::{Need, PlanError};
pub use machine::MachineProfile;
pub use model::{Managed, Selection, managed};
pub use plan::parts;
pub use plan::{
    FileError, HotCopies, Mode, Note, OnDevices, PLAN_VERSION, ParsePlanError, Plan, PlanFile, Planner,
    ReadsReason, Warning, token_cycle_warning,
};
pub use planners::copies;
pub use planning::{kv_types, plan};
pub use rules::{ParseRuleError, RuleError, RulePlace, TensorRule};
pub use wishes::{
    Budget, CurveError, HitCurve, HotClass, KvChoice, Manage, ParseBudgetError, ParseManageError, Wishes,
};
