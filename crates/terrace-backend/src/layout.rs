//! Maps managed tensors to blocks of the store.

use std::collections::HashMap;
use std::sync::Arc;
use terrace_ggml::DataType;
use terrace_model::{ExpertId, Extent, LayerId, TensorInfo};
use terrace_store::{BlockId, BlockSpec};

/// How a managed tensor is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One block for the whole matrix.
    Whole,
    /// One block per expert.
    PerExpert {
        /// Number of experts.
        experts: u32,
    },
}

/// A managed tensor.
#[derive(Clone, Debug)]
pub struct ManagedTensor {
    /// Name in the file.
    pub name: String,
    /// Its extent in the file.
    pub extent: Extent,
    /// Element type.
    pub ty: DataType,
    /// How it is cut.
    pub cut: Cut,
    /// Its layer, if its name contains one.
    pub layer: Option<LayerId>,
    first: BlockId,
}

impl ManagedTensor {
    /// The block of an expert; for a whole tensor, use expert 0.
    pub fn block(&self, expert: u32) -> BlockId {
        BlockId(self.first.0 + expert)
    }

    /// Its blocks, with their bytes.
    fn parts(&self) -> impl Iterator<Item = (BlockId, Extent)> {
        let count = match self.cut {
            Cut::Whole => 1,
            Cut::PerExpert { experts } => experts,
        };
        (0..count).map(move |i| (self.block(i), self.extent.part(u64::from(i), u64::from(count))))
    }
}

/// The managed tensors of a model, in block order.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    tensors: Vec<ManagedTensor>,
    by_name: HashMap<String, u32>,
    blocks: u32,
}

impl Layout {
    /// Makes a layout of these tensors, with their cuts, in the given order.
    pub fn new<'a>(managed: impl IntoIterator<Item = (&'a TensorInfo, Cut)>) -> Self {
        let mut layout = Self::default();
        for (info, cut) in managed {
            let index =
                u32::try_from(layout.tensors.len()).expect("GGUF tensors are counted in 32 bits here");
            let ty = DataType::from_id(info.ty.id).expect("the reader accepts known types only");
            layout.by_name.insert(info.name.clone(), index);
            layout.tensors.push(ManagedTensor {
                name: info.name.clone(),
                extent: info.extent,
                ty,
                cut,
                layer: info.layer(),
                first: BlockId(layout.blocks),
            });
            layout.blocks += match cut {
                Cut::Whole => 1,
                Cut::PerExpert { experts } => experts,
            };
        }
        layout
    }

    /// The store's blocks, in order of their ids.
    pub fn blocks(&self) -> Vec<BlockSpec> {
        let mut specs = Vec::with_capacity(self.blocks as usize);
        for tensor in &self.tensors {
            let name: Arc<str> = tensor.name.as_str().into();
            let layer = tensor.layer;
            match tensor.cut {
                Cut::Whole => specs.push(BlockSpec { extent: tensor.extent, name, layer, expert: None }),
                Cut::PerExpert { .. } => specs.extend(tensor.parts().zip(0..).map(|((_, extent), e)| {
                    BlockSpec { extent, name: Arc::clone(&name), layer, expert: Some(ExpertId(e)) }
                })),
            }
        }
        specs
    }

    /// Changes a tensor's extent and type. Returns its blocks with their new extents.
    pub(crate) fn change(
        &mut self,
        index: u32,
        extent: Extent,
        ty: DataType,
    ) -> impl Iterator<Item = (BlockId, Extent)> {
        let tensor = &mut self.tensors[index as usize];
        (tensor.extent, tensor.ty) = (extent, ty);
        tensor.parts()
    }

    /// The managed tensors.
    pub fn tensors(&self) -> &[ManagedTensor] {
        &self.tensors
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }
}
