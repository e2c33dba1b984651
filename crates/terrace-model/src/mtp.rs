//! Layers after the model's own that predict the tokens after the next one (multi-token prediction).

use crate::ids::LayerId;
use crate::model::ModelFile;
use std::ops::Range;

/// How MTP layers are used, by architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpUse {
    /// llama.cpp computes drafts with them.
    Drafts {
        /// Whether the last layer is computed for all tokens of a prompt anyway, so that what it gives
        /// for them costs nothing.
        whole: bool,
    },
    /// They would draft, but the model keeps states, which cannot be rolled back to the last right draft.
    States,
    /// There are none, or none that draft.
    None,
}

/// The architectures of the pinned llama.cpp whose MTP layers are loaded on request only, most of them
/// whole. Those of all others are loaded, or ignored, whatever is asked for.
const ON_REQUEST: [(&str, MtpUse); 16] = [
    ("bailingmoe3", MtpUse::States),
    ("cohere2moe", MtpUse::Drafts { whole: true }),
    ("deepseek2", MtpUse::Drafts { whole: false }),
    ("deepseek32", MtpUse::Drafts { whole: false }),
    // No model of it was seen to run.
    ("deepseek4", MtpUse::None),
    ("glm-dsa", MtpUse::Drafts { whole: false }),
    ("glm4moe", MtpUse::Drafts { whole: false }),
    ("glm5-next", MtpUse::States),
    ("hy_v3", MtpUse::Drafts { whole: true }),
    // No model of it was seen to run.
    ("mimo2", MtpUse::None),
    ("nemotron_h_moe", MtpUse::States),
    ("qwen35", MtpUse::States),
    ("qwen35moe", MtpUse::States),
    ("qwen3next", MtpUse::States),
    ("qwen4exp", MtpUse::States),
    ("step35", MtpUse::Drafts { whole: true }),
];

impl ModelFile {
    /// The key, under the architecture's prefix, of the number of MTP layers, which `block_count` counts.
    pub const MTP_LAYERS: &'static str = "nextn_predict_layers";

    /// The layers that are loaded on request only; empty if the file has none.
    pub fn mtp_layers(&self) -> Range<u32> {
        let number = |key| self.arch_u64(key).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let (all, last) = (number("block_count"), number(Self::MTP_LAYERS));
        let layers = all.saturating_sub(last)..all;
        let on_request = ON_REQUEST.iter().any(|(name, _)| *name == self.architecture());
        // Some files name layers that are in another file.
        let there = self.tensor(&format!("blk.{}.nextn.eh_proj.weight", layers.start)).is_some();
        if on_request && there { layers } else { 0..0 }
    }

    /// How the MTP layers are used; [`MtpUse::None`] if the file has none.
    pub fn mtp_use(&self) -> MtpUse {
        let known = ON_REQUEST.iter().find(|(name, _)| *name == self.architecture());
        match known {
            Some(&(_, how)) if !self.mtp_layers().is_empty() && self.draft_with(how) => how,
            _ => MtpUse::None,
        }
    }

    /// Whether llama.cpp has a graph of the MTP layers: of some architectures not for positions in several
    /// dimensions, nor for several layers.
    fn draft_with(&self, how: MtpUse) -> bool {
        const ONE: [&str; 5] = ["cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe"];
        let arch = self.architecture();
        let sections = || self.metadata.contains_key(&format!("{arch}.rope.dimension_sections"));
        let missing = arch == "glm4moe" && sections() || ONE.contains(&arch) && self.mtp_layers().len() > 1;
        how == MtpUse::States || !missing
    }

    /// Leaves out the tensors of MTP layers that are not `loaded`, by their names.
    pub fn leave_out_mtp(&mut self, loaded: impl Fn(&str) -> bool) {
        let layers = self.mtp_layers();
        let left_out = |layer: Option<LayerId>| layer.is_some_and(|layer| layers.contains(&layer.0));
        self.tensors.retain(|tensor| !left_out(tensor.layer()) || loaded(&tensor.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FileIndex;
    use crate::model::{Extent, MetaValue, Shape, TensorInfo, TensorType};

    fn model(arch: &str, layers: u64, mtp: u64, tensors: &[&str]) -> ModelFile {
        let tensor = |name: &&str| TensorInfo {
            name: (*name).into(),
            ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
            shape: Shape([1; 4]),
            extent: Extent { file: FileIndex(0), offset: 0, len: 4 },
        };
        let number = |key: &str, n| (format!("{arch}.{key}"), MetaValue::U64(n));
        let arch_of = ("general.architecture".to_owned(), MetaValue::Str(arch.into()));
        ModelFile {
            shards: Vec::new(),
            version: 3,
            alignment: 32,
            metadata: [arch_of, number("block_count", layers), number(ModelFile::MTP_LAYERS, mtp)].into(),
            tensors: tensors.iter().map(tensor).collect(),
        }
    }

    const TENSORS: [&str; 4] =
        ["output.weight", "blk.1.a.weight", "blk.2.a.weight", "blk.2.nextn.eh_proj.weight"];

    #[test]
    fn the_last_layers_are_left_out() {
        let mut model = model("glm4moe", 3, 1, &TENSORS);
        assert_eq!((model.mtp_layers(), model.mtp_use()), (2..3, MtpUse::Drafts { whole: false }));
        model.leave_out_mtp(|_| false);
        let names: Vec<&str> = model.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, TENSORS[..2]);
        assert_eq!((model.mtp_layers(), model.mtp_use()), (0..0, MtpUse::None));
    }

    #[test]
    fn what_is_loaded_all_the_same_stays() {
        let mut model = model("hy_v3", 3, 1, &TENSORS);
        model.leave_out_mtp(|name| name == "blk.2.a.weight");
        assert_eq!((model.tensors.len(), model.mtp_use()), (3, MtpUse::None));
    }

    #[test]
    fn layers_without_a_graph_do_not_draft() {
        let tensors = ["blk.1.nextn.eh_proj.weight", "blk.2.nextn.eh_proj.weight"];
        assert_eq!(model("glm4moe", 3, 2, &tensors).mtp_use(), MtpUse::None);
        assert_eq!(model("step35", 3, 2, &tensors).mtp_use(), MtpUse::Drafts { whole: true });
        assert_eq!(model("qwen35moe", 3, 2, &tensors).mtp_use(), MtpUse::States);
        let mut seeing = model("glm4moe", 3, 1, &tensors);
        assert_eq!(seeing.mtp_use(), MtpUse::Drafts { whole: false });
        seeing.metadata.insert("glm4moe.rope.dimension_sections".into(), MetaValue::Array(Vec::new()));
        assert_eq!(seeing.mtp_use(), MtpUse::None);
    }

    #[test]
    fn layers_of_other_models_stay() {
        for (arch, layers, mtp) in [("glm4moe", 3, 0), ("qwen3moe", 3, 1), ("glm4moe", 4, 1)] {
            let mut model = model(arch, layers, mtp, &TENSORS);
            assert_eq!((model.mtp_layers(), model.mtp_use()), (0..0, MtpUse::None), "{arch} {layers}");
            model.leave_out_mtp(|_| false);
            assert_eq!(model.tensors.len(), TENSORS.len());
        }
    }
}
