//! Why a model file was refused: one variant per reason. Each message is one line with the file,
//! the place and the numbers.

use std::io;
use std::path::PathBuf;
use terrace_model::ImpossibleNumber;

/// Why a GGUF file, or a set of shards, could not be read. Strings that come from the file are
/// escaped.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The path does not exist.
    #[error("{}: no such file", path.display())]
    Missing { path: PathBuf },
    /// The path is a directory.
    #[error("{}: is a directory, not a GGUF file", path.display())]
    Directory { path: PathBuf },
    /// The path is a pipe, a socket or a device: it cannot be read at offsets.
    #[error("{}: is not a regular file", path.display())]
    NotRegular { path: PathBuf },
    /// The file cannot be opened or read.
    #[error("{}: cannot be read at offset {offset}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        /// Byte offset of the failed read, 0 where opening failed.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("{}: is empty (0 bytes)", path.display())]
    Empty { path: PathBuf },
    /// The magic number is not that of a GGUF file.
    #[error("{}: is not a GGUF file: it starts with {found} instead of \"GGUF\"", path.display())]
    NotGguf {
        path: PathBuf,
        /// The first bytes as text and numbers.
        found: String,
    },
    /// ggml's reader does not support the GGUF version.
    #[error("{}: GGUF version {found} is not supported ({hint})", path.display())]
    Version {
        path: PathBuf,
        /// The file's version.
        found: u32,
        /// Which versions are supported, or what the version suggests.
        hint: &'static str,
    },
    /// The file ends within its header, metadata or tensor table.
    #[error(
        "{}: truncated in {place}: {needs} bytes needed at offset {offset}, but the file has only {file_len}",
        path.display()
    )]
    Truncated {
        path: PathBuf,
        /// The header, a metadata pair or a tensor.
        place: String,
        /// File offset of the missing bytes.
        offset: u64,
        /// Number of bytes needed.
        needs: u64,
        /// The file's length.
        file_len: u64,
    },
    /// A count or a length beyond that of any model.
    #[error("{}: absurd {what} in {place} at offset {offset}: {value} (limit {limit})", path.display())]
    Absurd {
        path: PathBuf,
        /// The counted things.
        what: &'static str,
        /// The header, a metadata pair or a tensor.
        place: String,
        /// File offset of the number.
        offset: u64,
        /// The number.
        value: u64,
        /// The largest one accepted.
        limit: u64,
    },
    /// A header field is malformed.
    #[error("{}: malformed {place} at offset {offset}: {reason}", path.display())]
    Malformed {
        path: PathBuf,
        /// The header, a metadata pair or a tensor.
        place: String,
        /// File offset.
        offset: u64,
        /// The fault.
        reason: String,
    },
    /// ggml's reader refused the file.
    #[error("{}: refused by ggml's reader: {reason}", path.display())]
    Refused {
        path: PathBuf,
        /// The most specific line that the reader logged.
        reason: String,
    },
    /// The metadata does not say which architecture the model has, so nothing can run it.
    #[error("{}: is not a model: it has no `general.architecture`", path.display())]
    NoArchitecture { path: PathBuf },
    /// This ggml does not know the tensor type, or no longer supports it.
    #[error("{}: tensor `{tensor}` has unknown type {ty} (at offset {offset})", path.display())]
    UnknownType {
        path: PathBuf,
        tensor: String,
        /// The type's number.
        ty: u32,
        /// File offset of the number.
        offset: u64,
    },
    /// A tensor has no elements.
    #[error("{}: tensor `{tensor}` has size 0 in dimension {dim} (at offset {offset})", path.display())]
    ZeroDim {
        path: PathBuf,
        tensor: String,
        /// The dimension, counted from the fastest (0).
        dim: u32,
        /// File offset of the number.
        offset: u64,
    },
    /// The bytes of an expert tensor are not a whole number per expert.
    #[error("{}: expert tensor `{tensor}` has {bytes} bytes, which is not a multiple of its {experts} experts", path.display())]
    ExpertSplit {
        path: PathBuf,
        tensor: String,
        bytes: u64,
        /// The model's expert count.
        experts: u64,
    },
    /// A number in the metadata contradicts another one.
    #[error("{}: impossible metadata: {number}", path.display())]
    Impossible { path: PathBuf, number: ImpossibleNumber },
    /// Another GGUF file begins behind the file's last tensor.
    #[error("{}: another GGUF file begins at offset {offset}: files were joined one after the other", path.display())]
    Joined {
        path: PathBuf,
        /// Offset of the other file.
        offset: u64,
    },
    /// The file ends before the tensor's last byte.
    #[error(
        "{}: truncated in the data of tensor `{tensor}`: its {len} bytes at offset {offset} end at {}, but the file has only {file_len}",
        path.display(),
        u128::from(*offset) + u128::from(*len)
    )]
    DataTruncated {
        path: PathBuf,
        /// The first incomplete tensor.
        tensor: String,
        /// File offset of its data.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The file's length.
        file_len: u64,
    },
    /// A file of a split model is missing.
    #[error("{}: no such file: shard {number} of {count} of {}", path.display(), first.display())]
    MissingShard {
        /// Its expected path.
        path: PathBuf,
        /// Its number, counted from 1.
        number: u64,
        /// Number of shards.
        count: u64,
        /// The first shard.
        first: PathBuf,
    },
    /// A shard other than the first was given.
    #[error("{}: is shard {number} of {count} of a split model: give the first one, {first}", path.display())]
    NotFirstShard {
        path: PathBuf,
        /// Its number, counted from 1.
        number: u64,
        /// Number of shards.
        count: u64,
        /// Path or name of the first shard.
        first: String,
    },
    /// The names of the other shards cannot be derived from the first one's.
    #[error("{}: is the first of {count} shards, so its name must end with `{expected}`", path.display())]
    ShardName {
        path: PathBuf,
        /// Number of shards.
        count: u64,
        /// The expected ending of the name.
        expected: String,
    },
    /// A shard belongs to another model, or to the same model split differently.
    #[error("{}: belongs to another model than {}: `{key}` is {found}, expected {expected}", path.display(), first.display())]
    ForeignShard {
        /// The shard.
        path: PathBuf,
        /// The first shard.
        first: PathBuf,
        /// The metadata key that differs.
        key: String,
        /// Its value in the shard.
        found: String,
        /// Its value according to the first shard.
        expected: String,
    },
    /// Two shards hold a tensor of the same name.
    #[error("{}: tensor `{tensor}` is already in {}: shards of different models?", path.display(), other.display())]
    DuplicateTensor {
        /// The later shard.
        path: PathBuf,
        tensor: String,
        /// The earlier shard.
        other: PathBuf,
    },
    /// The shards hold more or fewer tensors than the first shard says.
    #[error("{}: its {count} shards hold {found} tensors, but `split.tensors.count` says {expected}", path.display())]
    TensorCount {
        /// The first shard.
        path: PathBuf,
        /// Number of shards.
        count: u64,
        /// Tensors found.
        found: u64,
        /// Tensors according to the first shard.
        expected: u64,
    },
}
