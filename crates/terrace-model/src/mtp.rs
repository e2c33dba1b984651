//! Layers after the model's own that predict the tokens after the next one (multi-token prediction).

use crate::ids::LayerId;
use crate::model::ModelFile;
use crate::mtp_support::{MtpSupport, MtpUse};
use std::ops::Range;

impl ModelFile {
    /// The key, under the architecture's prefix, of the number of MTP layers, which `block_count` counts.
    pub const MTP_LAYERS: &'static str = "nextn_predict_layers";

    /// The layers that are loaded on request only; empty if the file has none.
    pub fn mtp_layers(&self) -> Range<u32> {
        let number = |key| self.arch_u64(key).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let (all, last) = (number("block_count"), number(Self::MTP_LAYERS));
        let layers = all.saturating_sub(last)..all;
        // Some files name layers that are in another file.
        let there = self.tensor(&format!("blk.{}.nextn.eh_proj.weight", layers.start)).is_some();
        if self.mtp.is_some() && there { layers } else { 0..0 }
    }

    /// The use of the MTP layers; [`MtpUse::None`] if the file has none.
    pub fn mtp_use(&self) -> MtpUse {
        match self.mtp {
            Some(support) if !self.mtp_layers().is_empty() && self.has_graph(support) => support.how,
            _ => MtpUse::None,
        }
    }

    /// Returns whether llama.cpp has a graph of these MTP layers.
    fn has_graph(&self, support: MtpSupport) -> bool {
        let key = format!("{}.rope.dimension_sections", self.architecture());
        (support.sections || !self.metadata.contains_key(&key))
            && (support.several || self.mtp_layers().len() <= 1)
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

    fn model(support: Option<MtpSupport>, layers: u64, mtp: u64, tensors: &[&str]) -> ModelFile {
        let tensor = |name: &&str| TensorInfo {
            name: (*name).into(),
            ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
            shape: Shape([1; 4]),
            extent: Extent { file: FileIndex(0), offset: 0, len: 4 },
        };
        let number = |key: &str, n| (format!("m.{key}"), MetaValue::U64(n));
        let arch_of = ("general.architecture".to_owned(), MetaValue::Str("m".into()));
        ModelFile {
            shards: Vec::new(),
            version: 3,
            alignment: 32,
            metadata: [arch_of, number("block_count", layers), number(ModelFile::MTP_LAYERS, mtp)].into(),
            tensors: tensors.iter().map(tensor).collect(),
            mtp: support,
        }
    }

    const ONE: MtpSupport =
        MtpSupport { how: MtpUse::Drafts { whole: false }, several: false, sections: false };
    const SEVERAL: MtpSupport =
        MtpSupport { how: MtpUse::Drafts { whole: true }, several: true, sections: true };
    const STATES: MtpSupport = MtpSupport { how: MtpUse::States, ..SEVERAL };

    const TENSORS: [&str; 4] =
        ["output.weight", "blk.1.a.weight", "blk.2.a.weight", "blk.2.nextn.eh_proj.weight"];

    #[test]
    fn the_last_layers_are_left_out() {
        let mut model = model(Some(ONE), 3, 1, &TENSORS);
        assert_eq!((model.mtp_layers(), model.mtp_use()), (2..3, MtpUse::Drafts { whole: false }));
        model.leave_out_mtp(|_| false);
        let names: Vec<&str> = model.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, TENSORS[..2]);
        assert_eq!((model.mtp_layers(), model.mtp_use()), (0..0, MtpUse::None));
    }

    #[test]
    fn what_is_loaded_all_the_same_stays() {
        let mut model = model(Some(SEVERAL), 3, 1, &TENSORS);
        model.leave_out_mtp(|name| name == "blk.2.a.weight");
        assert_eq!((model.tensors.len(), model.mtp_use()), (3, MtpUse::None));
    }

    #[test]
    fn layers_without_a_graph_do_not_draft() {
        let tensors = ["blk.1.nextn.eh_proj.weight", "blk.2.nextn.eh_proj.weight"];
        assert_eq!(model(Some(ONE), 3, 2, &tensors).mtp_use(), MtpUse::None);
        assert_eq!(model(Some(SEVERAL), 3, 2, &tensors).mtp_use(), MtpUse::Drafts { whole: true });
        assert_eq!(model(Some(STATES), 3, 2, &tensors).mtp_use(), MtpUse::States);
        let mut seeing = model(Some(ONE), 3, 1, &tensors);
        assert_eq!(seeing.mtp_use(), MtpUse::Drafts { whole: false });
        seeing.metadata.insert("m.rope.dimension_sections".into(), MetaValue::Array(Vec::new()));
        assert_eq!(seeing.mtp_use(), MtpUse::None);
    }

    #[test]
    fn layers_of_other_models_stay() {
        for (support, layers, mtp) in [(Some(ONE), 3, 0), (None, 3, 1), (Some(ONE), 4, 1)] {
            let mut model = model(support, layers, mtp, &TENSORS);
            assert_eq!((model.mtp_layers(), model.mtp_use()), (0..0, MtpUse::None), "{support:?} {layers}");
            model.leave_out_mtp(|_| false);
            assert_eq!(model.tensors.len(), TENSORS.len());
        }
    }
}
