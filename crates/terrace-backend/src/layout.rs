//! Maps tensors to blocks: those that the store reads, and experts that stay in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use terrace_ggml::DataType;
use terrace_model::{ExpertId, Extent, LayerId, TensorInfo};
use terrace_store::{BlockId, BlockSpec};

/// Division of a managed tensor into blocks.
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

/// A tensor whose uses the backend finds in graphs: one that is streamed, or whose experts stay in
/// memory and may have copies on devices.
#[derive(Clone, Debug)]
pub struct ManagedTensor {
    /// Name in the file.
    pub name: String,
    /// Its extent in the file.
    pub extent: Extent,
    /// Element type.
    pub ty: DataType,
    /// Its division.
    pub cut: Cut,
    /// Its layer, if its name contains one.
    pub layer: Option<LayerId>,
    /// True if its bytes stay in memory. Its blocks are then names of experts only: the store does
    /// not have them.
    pub kept: bool,
    first: BlockId,
    low: Option<LowTensor>,
    /// Its extent and type at the load, of which `low` is a copy.
    loaded: (Extent, DataType),
}

/// A copy of a stack of experts in fewer bits, in another file.
#[derive(Clone, Copy, Debug)]
pub struct LowTensor {
    /// Its extent in that file.
    pub extent: Extent,
    /// Element type.
    pub ty: DataType,
    first: BlockId,
}

impl LowTensor {
    /// The block of an expert.
    pub fn block(&self, expert: u32) -> BlockId {
        BlockId(self.first.0 + expert)
    }
}

impl ManagedTensor {
    /// The block of an expert; for a whole tensor, use expert 0.
    pub fn block(&self, expert: u32) -> BlockId {
        BlockId(self.first.0 + expert)
    }

    /// Its copy in fewer bits; `None` if there is none, or not of the bytes that it has now.
    pub fn low(&self) -> Option<&LowTensor> {
        self.low.as_ref().filter(|_| self.loaded == (self.extent, self.ty))
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

/// The managed tensors of a model, in block order, followed by those whose experts stay in memory.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    tensors: Vec<ManagedTensor>,
    by_name: HashMap<String, u32>,
    /// Managed tensors with copies in fewer bits, in the order of the copies' blocks.
    low: Vec<u32>,
    /// Number of managed tensors, and of the blocks of these and of their copies.
    managed: usize,
    blocks: u32,
    /// Number of all blocks.
    all_blocks: u32,
}

impl Layout {
    /// Makes a layout of these tensors, with their cuts, in the given order.
    pub fn new<'a>(managed: impl IntoIterator<Item = (&'a TensorInfo, Cut)>) -> Self {
        let mut layout = Self::default();
        for (info, cut) in managed {
            layout.push(info, cut, false);
        }
        (layout.managed, layout.blocks) = (layout.tensors.len(), layout.all_blocks);
        layout
    }

    /// Adds copies of managed stacks of experts in fewer bits: for each tensor's name, the copy's extent
    /// and type. Their blocks follow the managed ones. Call before [`Layout::with_kept`].
    #[must_use]
    pub fn with_low<'a>(mut self, low: impl IntoIterator<Item = (&'a str, Extent, DataType)>) -> Self {
        for (name, extent, ty) in low {
            let Some(index) = self.index_of(name) else { continue };
            let tensor = &mut self.tensors[index as usize];
            let Cut::PerExpert { experts } = tensor.cut else { continue };
            tensor.low = Some(LowTensor { extent, ty, first: BlockId(self.blocks) });
            self.low.push(index);
            self.blocks += experts;
        }
        self.all_blocks = self.blocks;
        self
    }

    /// Returns true if some experts have copies in fewer bits.
    pub fn has_low(&self) -> bool {
        !self.low.is_empty()
    }

    /// The blocks of these copies.
    pub fn low_blocks(&self) -> Range<BlockId> {
        let end = BlockId(self.blocks);
        let first = self.low.first().and_then(|&index| self.tensors[index as usize].low.as_ref());
        first.map_or(end, |low| low.first)..end
    }

    /// Adds stacks of experts that stay in memory, each with its number of experts.
    pub fn with_kept<'a>(mut self, kept: impl IntoIterator<Item = (&'a TensorInfo, u32)>) -> Self {
        for (info, experts) in kept {
            self.push(info, Cut::PerExpert { experts }, true);
        }
        self
    }

    fn push(&mut self, info: &TensorInfo, cut: Cut, kept: bool) {
        let index = u32::try_from(self.tensors.len()).expect("GGUF tensors are counted in 32 bits here");
        let ty = DataType::from_id(info.ty.id).expect("the reader accepts known types only");
        self.by_name.insert(info.name.clone(), index);
        self.tensors.push(ManagedTensor {
            name: info.name.clone(),
            extent: info.extent,
            ty,
            cut,
            layer: info.layer(),
            kept,
            first: BlockId(self.all_blocks),
            low: None,
            loaded: (info.extent, ty),
        });
        self.all_blocks += match cut {
            Cut::Whole => 1,
            Cut::PerExpert { experts } => experts,
        };
    }

    /// The store's blocks, in order of their ids.
    pub fn blocks(&self) -> Vec<BlockSpec> {
        let mut specs = Vec::with_capacity(self.blocks as usize);
        for tensor in self.tensors() {
            let name: Arc<str> = tensor.name.as_str().into();
            let layer = tensor.layer;
            match tensor.cut {
                Cut::Whole => specs.push(BlockSpec { extent: tensor.extent, name, layer, expert: None }),
                Cut::PerExpert { .. } => specs.extend(tensor.parts().zip(0..).map(|((_, extent), e)| {
                    BlockSpec { extent, name: Arc::clone(&name), layer, expert: Some(ExpertId(e)) }
                })),
            }
        }
        for tensor in self.low.iter().map(|&index| &self.tensors[index as usize]) {
            let (Cut::PerExpert { experts }, Some(low)) = (tensor.cut, tensor.low) else { continue };
            let name: Arc<str> = tensor.name.as_str().into();
            specs.extend((0..experts).map(|expert| BlockSpec {
                extent: low.extent.part(u64::from(expert), u64::from(experts)),
                name: Arc::clone(&name),
                layer: tensor.layer,
                expert: Some(ExpertId(expert)),
            }));
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

    /// Changes the type of a tensor that stays in memory.
    pub(crate) fn retype(&mut self, index: u32, ty: DataType) {
        self.tensors[index as usize].ty = ty;
    }

    pub fn tensors(&self) -> &[ManagedTensor] {
        &self.tensors[..self.managed]
    }

    /// The managed tensors, followed by those whose experts stay in memory.
    pub fn all(&self) -> &[ManagedTensor] {
        &self.tensors
    }

    /// The tensors whose experts stay in memory.
    pub fn kept(&self) -> &[ManagedTensor] {
        &self.tensors[self.managed..]
    }

    /// The tensor of this name whose experts stay in memory, if there is one.
    pub(crate) fn kept_named(&self, name: &str) -> Option<&ManagedTensor> {
        let tensor = &self.tensors[self.index_of(name)? as usize];
        tensor.kept.then_some(tensor)
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }
}
