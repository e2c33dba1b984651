//! The description of this machine that plans are made for.
//!
//! Rates come from earlier measurements, from a quick probe, or are defaults. Memory is read in
//! every run, because other processes and control groups change how much of it is free.

mod bandwidth;
mod contention;
mod fast_rates;
mod kept_probe;
mod known;
mod lacking;
mod measure;
mod measure_fast;
mod measure_storage;
mod merge;
mod probe;
mod probe_round;
mod replicas;
mod stored;
mod workers;

pub use bandwidth::read_bandwidth;
pub use known::known_machine;
pub use measure::{MeasureError, MeasureOptions, MeasureProgress, MeasuredMachine, measure_machine};
pub use merge::merge as merge_profiles;
pub use probe::fill as probe_machine;
pub use replicas::read_together;
pub use stored::{FILE, Hardware, StoredProfile, StoredProfileError};
pub use workers::fill as probe_workers;

use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_plan::machine::Kernels;
use terrace_store::UserDirs;

/// Describes this machine for a plan of `model` that these kernels compute: as [`known_machine`], with rates that were never
/// measured from a probe of about 0.3 s, whose result `user` keeps. [`MachineProfile::sources`] says
/// where each rate comes from.
pub fn machine_profile(model: &ModelFile, user: &UserDirs, kernels: Kernels) -> MachineProfile {
    let mut machine = known_machine(model, user);
    machine.cpu.kernels = kernels;
    probe::fill(&mut machine, model, user);
    machine
}
