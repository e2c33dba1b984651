//! The experts of a loaded model as its operator sees and steers them: where they are, how often
//! they were used, and which ones devices shall have.

mod apply;
mod seen;
mod used;
mod window;

pub use apply::{ApplyError, ApplyOutcome};
pub use seen::{ExpertsSeen, LayerSeen};
pub use used::ExpertsUsed;
pub use used::Mark;
pub use window::Window;
