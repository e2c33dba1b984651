//! The steps of a load: header, what drafts do not change, scene and plan, store, device, model, resident
//! weights, context, and what runs beside it. `Engine::load` takes them one by one, and hands what each makes
//! to the next; `terrace plan` takes those up to the plan.

pub mod beside;
pub mod context;
mod context_ask;
pub mod devices;
mod draft_memory;
pub mod drafts;
mod given;
pub mod header;
pub mod hot;
mod hot_asked;
mod hot_division;
pub mod key;
mod mtp;
mod plan_file;
mod planned;
pub mod progress;
pub mod report;
pub mod scene;
pub mod split;
pub mod verify;
pub mod weights;
mod wishes;

pub use context_ask::{HeaderModel, measured_contexts};
pub use hot::{HotDevice, HotPlan, HotTransit};
pub use planned::{Planned, plan_run};
pub use progress::LoadProgress;
pub use scene::PlannedMachine;
pub use wishes::{kernels_of, wishes_of};
