//! The description of a model file: shards, metadata, tensors and the location of their bytes.

use crate::bytesize::ByteSize;
use crate::ids::{FileIndex, LayerId};
use crate::mtp_support::MtpSupport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A contiguous run of bytes in one file of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Extent {
    /// The shard.
    pub file: FileIndex,
    /// Offset in bytes from the start of that file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Extent {
    /// Returns the `index`-th of `count` equal parts (an expert of an expert tensor, a row of a
    /// table).
    ///
    /// # Panics
    /// If the length is not a multiple of `count`, or `index` is out of range. Both are mistakes of
    /// the caller, not bad input.
    pub fn part(self, index: u64, count: u64) -> Self {
        assert!(
            index < count && self.len.is_multiple_of(count),
            "part {index} of {count} of {} bytes",
            self.len
        );
        let len = self.len / count;
        Self { offset: self.offset + index * len, len, ..self }
    }

    /// Returns the offset of the first byte after the extent.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// The element type of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TensorType {
    /// ggml's number of the type (`GGML_TYPE_*`).
    pub id: u32,
    /// ggml's name of the type (`q4_K`, `f16`, ...).
    pub name: String,
    /// Elements in a block.
    pub block_elements: u32,
    /// Bytes in a block.
    pub block_bytes: u32,
}

/// Lengths of the four dimensions, fastest first (ggml's `ne`). Dimensions that a file does not
/// list are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Shape(pub [u64; 4]);

impl Shape {
    /// Returns the number of dimensions, without trailing ones of length 1 (at least 1).
    pub fn dims(self) -> usize {
        (1..4).rev().find(|&d| self.0[d] != 1).map_or(1, |d| d + 1)
    }

    /// Returns the number of elements.
    pub fn elements(self) -> u64 {
        self.0.iter().product()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0[..self.dims()].iter().map(u64::to_string).collect();
        f.write_str(&dims.join("x"))
    }
}

/// One tensor of a model file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorInfo {
    /// Name in the file, unique among all shards (`blk.3.ffn_gate_exps.weight`).
    pub name: String,
    /// Type of the elements.
    pub ty: TensorType,
    /// Dimensions.
    pub shape: Shape,
    /// Location of the bytes.
    pub extent: Extent,
}

impl TensorInfo {
    /// Returns the `N` of a name `blk.N.…`. GGUF names every tensor of a layer like this, whatever
    /// the architecture.
    pub fn layer(&self) -> Option<LayerId> {
        let (number, _) = self.name.strip_prefix("blk.")?.split_once('.')?;
        number.parse().ok().map(LayerId)
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> ByteSize {
        ByteSize(self.extent.len)
    }
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shard {
    /// Path of the file.
    #[serde(serialize_with = "crate::path_text::serialize")]
    pub path: PathBuf,
    /// Length in bytes when the header was read.
    pub len: u64,
    /// Offset of the tensor data in bytes.
    pub data_offset: u64,
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MetaValue {
    /// Any unsigned or non-negative signed integer.
    U64(u64),
    /// A negative integer.
    I64(i64),
    /// A float of either width.
    F64(f64),
    /// A boolean.
    Bool(bool),
    Str(String),
    /// An array of at most [`ModelFile::MAX_ARRAY`] values.
    Array(Vec<MetaValue>),
    /// The length of an array that is too long to keep, such as a vocabulary.
    LongArray(u64),
}

/// The contents of a GGUF header, of all shards together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFile {
    /// The files, in shard order.
    pub shards: Vec<Shard>,
    /// GGUF version.
    pub version: u32,
    /// Alignment of tensor data in the files, in bytes.
    pub alignment: u64,
    /// The first shard's metadata.
    pub metadata: BTreeMap<String, MetaValue>,
    /// All tensors, in file order.
    pub tensors: Vec<TensorInfo>,
    /// llama.cpp's support of this architecture's MTP layers; `None` if it does not load them on request.
    #[serde(skip)]
    pub mtp: Option<MtpSupport>,
}

impl ModelFile {
    /// The key, under the architecture's prefix, of the number of experts used for each token.
    pub const EXPERTS_USED: &'static str = "expert_used_count";

    /// The name of the table of learned positions.
    pub const POSITIONS: &'static str = "position_embd.weight";

    /// Arrays of at most this many values are kept in [`ModelFile::metadata`].
    pub const MAX_ARRAY: usize = 1024;

    /// Returns `general.architecture`, or `?` if there is none.
    pub fn architecture(&self) -> &str {
        self.str("general.architecture").unwrap_or("?")
    }

    /// Returns a string from the metadata.
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.metadata.get(key)? {
            MetaValue::Str(s) => Some(s),
            _ => None,
        }
    }

    /// Returns a non-negative integer from the metadata.
    pub fn u64(&self, key: &str) -> Option<u64> {
        match self.metadata.get(key)? {
            MetaValue::U64(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns an integer under the architecture's prefix (`expert_count` →
    /// `qwen3moe.expert_count`): the largest one where the file has one for each layer.
    pub fn arch_u64(&self, key: &str) -> Option<u64> {
        let number = |value: &MetaValue| match value {
            MetaValue::U64(n) => Some(*n),
            _ => None,
        };
        match self.metadata.get(&format!("{}.{key}", self.architecture()))? {
            MetaValue::Array(values) => values.iter().filter_map(number).max(),
            value => number(value),
        }
    }

    /// Returns an integer under the architecture's prefix for a layer: the number of all layers, or the array's
    /// element.
    pub fn arch_u64_of(&self, key: &str, layer: LayerId) -> Option<u64> {
        match self.metadata.get(&format!("{}.{key}", self.architecture()))? {
            MetaValue::U64(n) => Some(*n),
            MetaValue::Array(values) => match values.get(layer.index())? {
                MetaValue::U64(n) => Some(*n),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the rows of the table of learned positions (`position_embd.weight`). `None` if the model has
    /// no such table. No sequence may be longer: llama.cpp asserts that each position has a row.
    pub fn positions(&self) -> Option<u32> {
        let table = self.tensor(Self::POSITIONS)?;
        Some(u32::try_from(table.shape.0[1]).unwrap_or(u32::MAX))
    }

    /// Has `experts` experts used for each token, in place of the file's own number.
    pub fn use_experts(&mut self, experts: u32) {
        let key = format!("{}.{}", self.architecture(), Self::EXPERTS_USED);
        self.metadata.insert(key, MetaValue::U64(experts.into()));
    }

    /// Returns the bytes of all tensors.
    pub fn size(&self) -> ByteSize {
        self.tensors.iter().map(TensorInfo::size).sum()
    }

    /// Finds a tensor by name. The search is linear: for set-up and messages, not for hot paths.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|t| t.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_numbers_come_from_gguf_names() {
        let tensor = |name: &str| TensorInfo {
            name: name.into(),
            ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
            shape: Shape([8, 4, 2, 1]),
            extent: Extent { file: FileIndex(0), offset: 64, len: 256 },
        };
        assert_eq!(tensor("blk.12.ffn_down.weight").layer(), Some(LayerId(12)));
        for other in ["output.weight", "blk.x.w", "blk.7", "v.blk.3.w"] {
            assert_eq!(tensor(other).layer(), None, "{other}");
        }
        assert_eq!(tensor("a").shape.to_string(), "8x4x2");
        assert_eq!(tensor("a").extent.part(1, 2), Extent { file: FileIndex(0), offset: 192, len: 128 });
    }
}
