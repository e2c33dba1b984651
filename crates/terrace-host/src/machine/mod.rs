//! The machine that this process runs on, as plans see it.
//!
//! What was measured before, what a quick probe finds now, defaults for the rest. Memory is always read again: what
//! others take, and what a control group leaves, changes from run to run.

mod bandwidth;
mod known;
mod measure;
mod merge;
mod probe;
mod stored;

pub use known::known_machine;
pub use measure::{MeasureError, MeasureOptions, MeasureProgress, MeasuredMachine, measure_machine};
pub use merge::merge as merge_profiles;
pub use stored::{Hardware, StoredProfile, StoredProfileError};

use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_store::UserDirs;

/// This machine as a plan of `model` needs it: [`known_machine`], and what was never measured is probed, for about 0.3 s
/// and once per process. [`MachineProfile::sources`] says where each rate comes from.
pub fn machine_profile(model: &ModelFile, user: &UserDirs) -> MachineProfile {
    let mut machine = known_machine(model, user);
    probe::fill(&mut machine, model);
    machine
}
