//! Planners: what is streamed and what lies on devices, by sets, by a greedy family of outlines, by a linear program.

pub(crate) mod choose;
pub(crate) mod complete;
pub(crate) mod greedy;
mod hot_slots;
mod kinds;
pub(crate) mod lp;
mod pin;
pub(crate) mod sets;

pub use choose::Planner;
pub use hot_slots::{HotLayer, hot_slots};
pub use sets::{Mode, Plan, auto_reserve, plan, plan_selection, token_cycle_warning};
