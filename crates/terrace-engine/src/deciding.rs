//! Whether a load needs to know more of the machine and of the model than their descriptions say.

use crate::context_ask::HeaderModel;
use crate::machine::{known_machine, machine_profile};
use crate::options::{Mode, Options};
use terrace_ggml::llama::SplitMode;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::{Budget, MachineProfile, Manage, auto_reserve};

/// Models below this size are not worth a probe, which itself takes up to 128 MiB for a moment: that would be most of what a
/// small model's run has resident.
const WORTH_PROBING: ByteSize = ByteSize::gib(1);

/// The machine as the decision needs it: where everything fits, or llama.cpp does as it does, there is none, and nobody has to
/// wait for a probe.
pub fn machine_for(file: &ModelFile, options: &Options, available: ByteSize) -> MachineProfile {
    let machine = if decides(file, options, available) { machine_profile(file) } else { known_machine(file) };
    match options.split_mode {
        SplitMode::Layer => machine,
        SplitMode::Tensor => machine.with_split_devices(),
    }
}

/// What llama.cpp says of contexts, where a decision hangs on how much memory they leave.
pub fn header_model(file: &ModelFile, options: &Options, available: ByteSize) -> Option<HeaderModel> {
    if decides(file, options, available) { HeaderModel::read(&options.model) } else { None }
}

/// Whether there is anything to decide that is worth a look at the machine.
fn decides(file: &ModelFile, options: &Options, available: ByteSize) -> bool {
    let room = match options.ram_budget {
        Budget::Auto => available.saturating_sub(auto_reserve(available)),
        Budget::Bytes(budget) => budget,
    };
    let auto = options.manage == Manage::Auto && options.plan.is_none();
    let fits = auto && file.size() <= room;
    options.mode == Mode::Terrace && !fits && file.size() >= WORTH_PROBING
}
