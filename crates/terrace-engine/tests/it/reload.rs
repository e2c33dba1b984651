//! Tensors of a loaded model are replaced: it then computes, bit for bit, the same as a fresh load
//! of the equivalent file, and after the originals are restored, the same as before.

use crate::reloading::{dir, from_file, load, options, original, trace, with, write};
use std::path::{Path, PathBuf};
use terrace_engine::{ReloadError, Replacement};
use terrace_model::ByteSize;
use terrace_plan::Manage;
use terrace_testkit::{Arch, Spec, WeightType};

const TYPES: [WeightType; 6] = [
    WeightType::Q8_0,
    WeightType::Q4_0,
    WeightType::IQ2_XS,
    WeightType::Q6_K,
    WeightType::IQ1_M,
    WeightType::F16,
];

/// One matrix of the model for each role.
fn one_of_each_role(model: &Path) -> Vec<String> {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let mut roles = std::collections::BTreeMap::new();
    for tensor in &file.tensors {
        let role = tensor.name.rsplit('.').nth(1).unwrap_or_default().to_owned();
        let plain = role.starts_with("attn_") || role.starts_with("ffn_") || role.starts_with("token_embd");
        let other = role.contains("norm") || role.contains("sinks") || role.contains("probs");
        if tensor.shape.dims() >= 2 && tensor.name.ends_with(".weight") && plain && !other {
            roles.insert(role, tensor.name.clone());
        }
    }
    roles.into_values().collect()
}

mod a_swapped_model_computes_what_the_equivalent_file_does {
    terrace_testkit::each_architecture!(super::replaced);
}

fn replaced(arch: Arch) {
    let dir = dir();
    let spec = Spec::new(arch);
    let base = write(&spec, dir.path().join("base.gguf"));
    let tensors = one_of_each_role(&base);
    assert!(tensors.len() >= 5, "{arch}: {tensors:?}");
    let streamed = if arch.is_moe() { Manage::Experts } else { Manage::Ffn };
    let donors: Vec<PathBuf> = tensors
        .iter()
        .zip(TYPES.into_iter().cycle())
        .map(|(tensor, ty)| write(&with(&spec, tensor, ty), dir.path().join(format!("{tensor}.gguf"))))
        .collect();
    for manage in [Manage::None, streamed, Manage::Mapped] {
        let mut engine = load(options(&base, manage));
        let before = trace(&mut engine);
        for (i, (tensor, donor)) in tensors.iter().zip(&donors).enumerate() {
            let label = format!("{arch}, --manage {manage}, {tensor}");
            let report = engine.swap(&[from_file(tensor, donor)]).unwrap();
            assert_eq!(report.swapped.len(), 1, "{label}: {report}");
            let swapped = trace(&mut engine);
            // A fresh load of mapped weights would give the same as one of resident weights.
            if manage != Manage::Mapped || i == 0 {
                let fresh = trace(&mut load(options(donor, manage)));
                assert!(swapped == fresh, "{label}: differs from a fresh load of the file ({report})");
            }
            let report = engine.swap(&[original(tensor)]).unwrap();
            assert_eq!(report.bytes(), ByteSize::ZERO, "{label}: restoring moves nothing");
        }
        assert!(trace(&mut engine) == before, "{arch}, --manage {manage}: not what was loaded");
        // All at once, and back.
        let all: Vec<Replacement> =
            tensors.iter().zip(&donors).map(|(tensor, donor)| from_file(tensor, donor)).collect();
        if let Err(error) = engine.swap(&all) {
            // A budget with little room for slots has no room for all of them. In this case swap
            // only streamed tensors, which need none.
            let budget = matches!(error, ReloadError::OverBudget { .. } | ReloadError::Backend(_));
            assert!(budget && manage == streamed, "{arch}, {manage}: {error}");
            assert!(trace(&mut engine) == before, "{arch}, {manage}: a refusal changes nothing");
            let streams = |swap: &&Replacement| swap.tensor.contains(".ffn_");
            engine.swap(&all.iter().filter(streams).cloned().collect::<Vec<_>>()).unwrap();
        }
        assert!(trace(&mut engine) != before, "{arch}, {manage}: the swap had no effect");
        let back: Vec<Replacement> = tensors.iter().map(|tensor| original(tensor)).collect();
        engine.swap(&back).unwrap();
        assert!(trace(&mut engine) == before, "{arch}, --manage {manage}: not what was loaded");
    }
}
