//! Budgets for streaming, by what a model's plan says.

use std::path::Path;
use terrace_model::ByteSize;
use terrace_plan::options::MemoryOptions;
use terrace_plan::{Budget, MachineProfile, Manage, Wishes};

/// What a model takes in RAM, in bytes.
struct Needs {
    minimum: u64,
    resident: u64,
    /// One expert of each MoE layer.
    experts: u64,
}

impl Needs {
    fn of(model: &Path, manage: Manage) -> Self {
        let file = terrace_ggml::gguf::read(model).unwrap();
        let all = ByteSize::gib(1 << 20);
        let wishes = Wishes {
            memory: MemoryOptions {
                stream: manage,
                ram_budget: Budget::Bytes(all),
                ..MemoryOptions::default()
            },
            mapping: false,
            ..Wishes::default()
        };
        let machine = MachineProfile::unmeasured("m", 2, all, all);
        let plan = terrace_plan::plan(&file, &machine, &wishes).unwrap();
        let groups = terrace_plan::model::expert_groups(&file);
        Self {
            minimum: plan.minimum.bytes(),
            resident: plan.resident.bytes(),
            experts: groups.iter().map(|group| group.bundle.bytes()).sum(),
        }
    }
}

/// The smallest budget that a plan accepts.
pub fn minimum(model: &Path, manage: Manage) -> ByteSize {
    ByteSize(Needs::of(model, manage).minimum)
}

/// Room for the resident weights and two experts of each MoE layer, or the minimum budget if that
/// is larger.
pub fn two_bundles(model: &Path, manage: Manage) -> ByteSize {
    let needs = Needs::of(model, manage);
    ByteSize(needs.minimum.max(needs.resident + 2 * needs.experts))
}

/// Room for the resident weights and two experts of each layer at their largest type.
pub fn with_larger_types(model: &Path, manage: Manage) -> ByteSize {
    let needs = Needs::of(model, manage);
    let most = (4 * needs.minimum).min(needs.resident + 4 * needs.experts);
    ByteSize(most.max(2 * needs.minimum))
}
