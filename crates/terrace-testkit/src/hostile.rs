//! Makes broken files from good ones.
//!
//! Each [`Defect`] is one mistake in an otherwise good file that is small enough to be held in
//! memory. Readers must refuse all of these files with an error, without a crash, an endless loop,
//! or an allocation as large as the file claims.

use crate::error::Error;
use crate::gguf_map::{ARRAY, ENTRY_COUNT_AT, Entry, Map, STRING, TENSOR_COUNT_AT, map};
use std::fs;
use std::path::{Path, PathBuf};

macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// A mistake in a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Defect {
            $($(#[$doc])* $variant),*
        }

        impl Defect {
            /// All defects.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the stem of the broken file's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }
    };
}

defects! {
    /// No bytes.
    Empty = "empty",
    /// Text, longer than a header.
    Text = "text",
    /// A wrong magic number.
    Magic = "magic",
    /// Version 0.
    VersionZero = "version-0",
    /// Version 99.
    VersionFuture = "version-99",
    /// Version 3 in big-endian bytes.
    VersionSwapped = "version-big-endian",
    /// The file ends within the counts.
    CutInHeader = "cut-in-header",
    /// The file ends within the metadata.
    CutInMetadata = "cut-in-metadata",
    /// The file ends within the tensor table.
    CutInTensors = "cut-in-tensor-table",
    /// The file ends within the data.
    CutInData = "cut-in-data",
    /// The last 32 bytes are missing.
    CutAtEnd = "cut-at-end",
    /// 2^62 tensors.
    TensorCount = "tensor-count",
    /// One tensor more than the file has.
    TensorCountByOne = "tensor-count-by-one",
    /// 2^62 metadata entries.
    MetadataCount = "metadata-count",
    /// A key of 2^62 bytes.
    KeyLength = "key-length",
    /// A string value of 2^62 bytes.
    StringLength = "string-length",
    /// An array of 2^61 elements.
    ArrayLength = "array-length",
    /// A metadata value of an unknown type.
    ValueType = "value-type",
    /// An array of an unknown type.
    ArrayType = "array-type",
    /// An array of arrays.
    ArrayOfArrays = "array-of-arrays",
    /// A key that occurs twice.
    DuplicateKey = "duplicate-key",
    NoArchitecture = "no-architecture",
    /// An architecture that does not exist.
    UnknownArchitecture = "unknown-architecture",
    /// Alignment 0.
    AlignmentZero = "alignment-0",
    /// Alignment 3.
    AlignmentOdd = "alignment-3",
    /// A tensor name of 2^62 bytes.
    NameLength = "name-length",
    /// Two tensors with the same name.
    DuplicateTensor = "duplicate-tensor",
    /// A tensor of 2^31 dimensions.
    Dimensions = "dimensions",
    /// A tensor whose number of elements is beyond 2^64.
    ShapeOverflow = "shape-overflow",
    /// A tensor with a negative dimension.
    ShapeNegative = "shape-negative",
    /// A tensor whose rows are not whole blocks.
    ShapeNotBlocks = "shape-not-blocks",
    /// A type id that never existed.
    TypeUnknown = "type-unknown",
    /// A type id that was removed from ggml.
    TypeRemoved = "type-removed",
    /// A tensor's offset is not aligned.
    OffsetMisaligned = "offset-misaligned",
    /// Two tensors at one offset.
    OffsetOverlap = "offset-overlap",
    /// A tensor's offset is beyond the file's end.
    OffsetBeyond = "offset-beyond",
    /// A tensor's offset is just below 2^64.
    OffsetOverflow = "offset-overflow",
}

const HUGE: u64 = 1 << 62;

/// Makes a broken file at `to` from the good one at `from`.
///
/// # Errors
/// [`Error::NotGguf`] if the good file is not a GGUF file, or lacks what the defect damages (a
/// string, an array, two tensors with names of equal length, a quantised tensor); [`Error::Io`].
pub fn make(defect: Defect, from: &Path, to: &Path) -> Result<(), Error> {
    let good = fs::read(from).map_err(Error::io(from))?;
    let layout = map(&good).map_err(Error::not_gguf(from))?;
    let bad = spoil(defect, good, &layout).map_err(Error::not_gguf(from))?;
    fs::write(to, bad).map_err(Error::io(to))
}

/// Makes a broken file for each defect in `dir`, which is created if missing. Files are named by
/// their defects.
///
/// # Errors
/// The same as [`make`].
pub fn write_all(from: &Path, dir: &Path) -> Result<Vec<(Defect, PathBuf)>, Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let made = Defect::ALL.iter().map(|&defect| {
        let to = dir.join(format!("{}.gguf", defect.name()));
        make(defect, from, &to)?;
        Ok((defect, to))
    });
    made.collect()
}

type Unmet = (&'static str, usize);

fn spoil(defect: Defect, mut file: Vec<u8>, layout: &Map) -> Result<Vec<u8>, Unmet> {
    let last = layout.tensors.last().ok_or(("a tensor is needed", 0))?;
    match defect {
        Defect::Empty => file.clear(),
        Defect::Text => file = b"This is a README, not a model. ".repeat(64),
        Defect::Magic => file[..4].copy_from_slice(b"GGML"),
        Defect::VersionZero => put(&mut file, 4, 0u32.to_le_bytes()),
        Defect::VersionFuture => put(&mut file, 4, 99u32.to_le_bytes()),
        Defect::VersionSwapped => put(&mut file, 4, 3u32.to_be_bytes()),
        Defect::CutInHeader => file.truncate(ENTRY_COUNT_AT - 3),
        Defect::CutInMetadata => {
            let end = layout.tensors[0].start;
            file.truncate(ENTRY_COUNT_AT + 8 + (end - ENTRY_COUNT_AT - 8) / 2);
        }
        Defect::CutInTensors => file.truncate((layout.tensors[0].start + layout.header_end) / 2),
        Defect::CutInData => file.truncate((layout.data_at + file.len()) / 2),
        Defect::CutAtEnd => file.truncate(file.len() - 32),
        Defect::TensorCount => put(&mut file, TENSOR_COUNT_AT, HUGE.to_le_bytes()),
        Defect::TensorCountByOne => {
            put(&mut file, TENSOR_COUNT_AT, (layout.tensors.len() as u64 + 1).to_le_bytes());
        }
        Defect::MetadataCount => put(&mut file, ENTRY_COUNT_AT, HUGE.to_le_bytes()),
        Defect::KeyLength => put(&mut file, layout.entries[0].start, HUGE.to_le_bytes()),
        Defect::StringLength => put(&mut file, of_type(layout, STRING)?.value_at(), HUGE.to_le_bytes()),
        Defect::ArrayLength => {
            put(&mut file, of_type(layout, ARRAY)?.value_at() + 4, (HUGE / 2).to_le_bytes())
        }
        Defect::ValueType => put(&mut file, layout.entries[0].type_at, 77u32.to_le_bytes()),
        Defect::ArrayType => put(&mut file, of_type(layout, ARRAY)?.value_at(), 77u32.to_le_bytes()),
        Defect::ArrayOfArrays => put(&mut file, of_type(layout, ARRAY)?.value_at(), ARRAY.to_le_bytes()),
        Defect::DuplicateKey => {
            let first = &layout.entries[0];
            let copy = file[first.start..first.end].to_vec();
            file = with_entry(&file, layout, &copy);
        }
        Defect::NoArchitecture => {
            let entry = of_key(layout, "general.architecture")?;
            put(&mut file, entry.type_at - 4, *b"tuer");
        }
        Defect::UnknownArchitecture => {
            let entry = of_key(layout, "general.architecture")?;
            file[entry.value_at() + 8..entry.end].fill(b'z');
        }
        Defect::AlignmentZero => file = with_entry(&file, layout, &alignment(0)),
        Defect::AlignmentOdd => file = with_entry(&file, layout, &alignment(3)),
        Defect::NameLength => put(&mut file, last.start, HUGE.to_le_bytes()),
        Defect::DuplicateTensor => {
            let (one, other) = same_length_names(layout)?;
            file.copy_within(
                layout.tensors[one].start..layout.tensors[one].dims_at,
                layout.tensors[other].start,
            );
        }
        Defect::Dimensions => put(&mut file, last.dims_at, (1u32 << 31).to_le_bytes()),
        Defect::ShapeOverflow => {
            for dim in 0..dims(&file, last.dims_at) {
                put(&mut file, last.dims_at + 4 + 8 * dim, HUGE.to_le_bytes());
            }
        }
        Defect::ShapeNegative => put(&mut file, last.dims_at + 4, (-256i64).to_le_bytes()),
        Defect::ShapeNotBlocks => {
            // The blocks of types 0 and 1, f32 and f16, are single elements.
            let quantised = |at: usize| file[at..at + 4] != [0; 4] && file[at..at + 4] != [1, 0, 0, 0];
            let tensor = layout.tensors.iter().find(|t| quantised(t.type_at));
            let tensor = tensor.ok_or(("a quantised tensor is needed", layout.header_end))?;
            put(&mut file, tensor.dims_at + 4, 33u64.to_le_bytes());
        }
        Defect::TypeUnknown => put(&mut file, last.type_at, 9999u32.to_le_bytes()),
        Defect::TypeRemoved => put(&mut file, last.type_at, 4u32.to_le_bytes()),
        Defect::OffsetMisaligned => shift(&mut file, last.offset_at, 1),
        Defect::OffsetOverlap => put(&mut file, last.offset_at, [0; 8]),
        Defect::OffsetBeyond => {
            let beyond = (file.len() as u64).next_multiple_of(32) + (1 << 30);
            put(&mut file, last.offset_at, beyond.to_le_bytes());
        }
        Defect::OffsetOverflow => put(&mut file, last.offset_at, (u64::MAX - 31).to_le_bytes()),
    }
    Ok(file)
}

fn put<const N: usize>(file: &mut [u8], at: usize, bytes: [u8; N]) {
    file[at..at + N].copy_from_slice(&bytes);
}

fn shift(file: &mut [u8], at: usize, by: u64) {
    let old = u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    put(file, at, (old + by).to_le_bytes());
}

fn dims(file: &[u8], at: usize) -> usize {
    u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize
}

fn of_type(layout: &Map, type_id: u32) -> Result<&Entry, Unmet> {
    let found = layout.entries.iter().find(|entry| entry.type_id == type_id);
    found.ok_or(("a string and an array are needed in the metadata", ENTRY_COUNT_AT))
}

fn of_key<'a>(layout: &'a Map, key: &str) -> Result<&'a Entry, Unmet> {
    layout.entries.iter().find(|entry| entry.key == key).ok_or(("an architecture is needed", ENTRY_COUNT_AT))
}

fn same_length_names(layout: &Map) -> Result<(usize, usize), Unmet> {
    let tensors = &layout.tensors;
    let pairs = (0..tensors.len()).flat_map(|a| (a + 1..tensors.len()).map(move |b| (a, b)));
    let mut fitting = pairs.filter(|&(a, b)| tensors[a].name.len() == tensors[b].name.len());
    fitting.next().ok_or(("two tensor names of equal length are needed", layout.header_end))
}

fn alignment(value: u32) -> Vec<u8> {
    let key = b"general.alignment";
    let mut entry = (key.len() as u64).to_le_bytes().to_vec();
    entry.extend(key);
    entry.extend(4u32.to_le_bytes());
    entry.extend(value.to_le_bytes());
    entry
}

/// Adds a metadata entry after the others, and moves the data to the new end of the header.
fn with_entry(file: &[u8], layout: &Map, entry: &[u8]) -> Vec<u8> {
    let table_at = layout.tensors[0].start;
    let mut out = [&file[..table_at], entry, &file[table_at..layout.header_end]].concat();
    put(&mut out, ENTRY_COUNT_AT, (layout.entries.len() as u64 + 1).to_le_bytes());
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(&file[layout.data_at..]);
    out
}

/// Copies the shards of a model to `dir` without the second one. Returns the first shard's path.
///
/// # Errors
/// [`Error::Io`].
pub fn missing_shard(shards: &[PathBuf], dir: &Path) -> Result<PathBuf, Error> {
    let keep = shards.iter().enumerate().filter(|(no, _)| *no != 1);
    copy_shards(keep.map(|(_, path)| (path.as_path(), path.as_path())), dir)
}

/// Copies the shards of a model to `dir`, with the last shard of another model. Returns the first
/// shard's path.
///
/// # Errors
/// [`Error::Io`].
pub fn mixed_shards(shards: &[PathBuf], other: &[PathBuf], dir: &Path) -> Result<PathBuf, Error> {
    let last = shards.len().saturating_sub(1);
    let from = |(no, path): (usize, &PathBuf)| {
        if no == last { other.get(no).unwrap_or(path).clone() } else { path.clone() }
    };
    let sources: Vec<PathBuf> = shards.iter().enumerate().map(from).collect();
    copy_shards(sources.iter().map(PathBuf::as_path).zip(shards.iter().map(PathBuf::as_path)), dir)
}

/// Copies the shards of a model to `dir`, with the second and third under each other's names.
/// Returns the first shard's path.
///
/// # Errors
/// [`Error::Io`].
pub fn swapped_shards(shards: &[PathBuf], dir: &Path) -> Result<PathBuf, Error> {
    let mut sources = shards.to_vec();
    if sources.len() > 2 {
        sources.swap(1, 2);
    }
    copy_shards(sources.iter().map(PathBuf::as_path).zip(shards.iter().map(PathBuf::as_path)), dir)
}

/// Copies each source to `dir` under the other path's file name.
fn copy_shards<'a>(shards: impl Iterator<Item = (&'a Path, &'a Path)>, dir: &Path) -> Result<PathBuf, Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let mut first = None;
    for (source, named) in shards {
        let to = dir.join(named.file_name().unwrap_or_default());
        fs::copy(source, &to).map_err(Error::io(source))?;
        first.get_or_insert(to);
    }
    Ok(first.unwrap_or_else(|| dir.to_owned()))
}
