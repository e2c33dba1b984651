//! Advice on a plan: what would make it faster, why a tensor lives where it does, and what another
//! machine would change.

mod changes;
mod explain;
mod what_if;

pub use changes::{Advice, advise};
pub use explain::explain;
pub use what_if::{ParseWhatIfError, WhatIf};
