//! Decides where the weights of a model live on a machine.
//!
//! Pure functions over the plain description of a model file: no clock, no files, no threads, no
//! ggml; the same input gives the same plan. The caller describes the machine ([`MachineProfile`])
//! and what the user wants ([`Wishes`]). The result is a [`Plan`] with an estimate of its speed, or
//! an error with the reason and, for a lack of RAM, the smallest budget that would do.
//!
//! - [`plan()`]: the single entry point.
//! - [`model`]: what each tensor is for, and how much memory a context takes.
//! - [`machine`]: what a machine can do.
//! - [`advice`]: what would make a plan faster, and why a tensor lives where it does.
//! - [`parts`]: the parts of a plan; [`copies`]: copies of experts on devices.
//! - [`drafts`]: how many drafts of tokens pay.
//! - [`scaling`]: the plans of more and more workers.
//! - [`batches`]: how many sequences a batch has at a time, and how long it takes.
//! - [`mix`]: the types of tensors that cost least within a size.

pub mod advice;
pub mod batches;
pub mod drafts;
mod error;
mod finish;
mod hits;
pub mod machine;
pub mod mix;
pub mod model;
pub mod options;
mod place;
mod plan;
mod planners;
mod planning;
mod rules;
pub mod scaling;
mod wishes;

pub use error::{Need, PlanError};
pub use hits::{CacheHits, CacheShape, CurveError, Eviction, HitCurve, HotClass};
pub use machine::MachineProfile;
pub use model::{Managed, Selection, managed};
pub use options::{
    Budget, ByDevice, Expected, ExpectedSource, HotSize, HotSplit, KvChoice, Manage, PerDevice,
};
pub use plan::parts;
pub use plan::show::{TEXT_WIDTH, number as short_number, row as table_row};
pub use plan::tables::MIN_WIDTH;
pub use plan::{
    FileError, HotCopies, Mode, Note, OnDevices, PLAN_VERSION, ParsePlanError, Plan, PlanFile, Planner,
    ReadsReason, TransitSlots, Warning, token_cycle_warning,
};
pub use planners::copies;
pub use planning::{kv_types, plan};
pub use rules::{ParseRuleError, RuleError, RulePlace, TensorRule};
pub use wishes::{PrefillPaths, Wishes};
