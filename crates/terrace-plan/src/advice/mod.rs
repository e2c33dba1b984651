//! What to make of a plan: what would help, why a tensor lies where it lies, and machines that do not exist yet.

mod changes;
mod explain;
mod what_if;

pub use changes::{Advice, advise};
pub use explain::explain;
pub use what_if::{ParseWhatIfError, WhatIf};
