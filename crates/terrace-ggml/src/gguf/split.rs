//! Split models: the other shards are found by the first one's name, and all must belong to one
//! model.

use super::error::GgufError;
use super::file::read_file;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_model::{FileIndex, MetaValue, ModelFile, printable};
use terrace_platform::names;

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Adds the tensors and files of the other shards to the model read from `first`, if it is split.
pub fn add_siblings(first: &Path, model: &mut ModelFile) -> Result<(), GgufError> {
    let number = model.u64(NO).unwrap_or(0);
    let count = model.u64(COUNT).unwrap_or(1);
    if number != 0 {
        return Err(not_first(first, number, count));
    }
    if count <= 1 {
        return Ok(());
    }
    // llama.cpp reads both as 16-bit numbers and writes five digits.
    if count > u64::from(u16::MAX) {
        return Err(GgufError::Absurd {
            path: first.into(),
            what: "number of shards",
            place: format!("metadata `{COUNT}`"),
            offset: 0,
            value: count,
            limit: u16::MAX.into(),
        });
    }
    let Some(prefix) = prefix(first, 0, count) else {
        return Err(GgufError::ShardName { path: first.into(), count, expected: ending(0, count) });
    };

    let mut owners: HashMap<String, FileIndex> =
        model.tensors.iter().map(|t| (t.name.clone(), t.extent.file)).collect();
    for number in 1..count {
        let path = sibling(&prefix, number, count);
        let index = FileIndex(u32::try_from(number).expect("shards are counted in 16 bits"));
        let file = read_file(&path, index).map_err(|e| match e {
            GgufError::Missing { path } => {
                GgufError::MissingShard { path, number: number + 1, count, first: first.into() }
            }
            other => other,
        })?;
        check_same_model(first, model, &path, number, &file.metadata)?;
        for tensor in &file.tensors {
            if let Some(other) = owners.insert(tensor.name.clone(), index) {
                return Err(GgufError::DuplicateTensor {
                    path,
                    tensor: printable(&tensor.name),
                    other: model.shards[other.index()].path.clone(),
                });
            }
        }
        model.shards.push(file.shard);
        model.tensors.extend(file.tensors);
    }

    let found = model.tensors.len() as u64;
    match model.u64(TENSORS) {
        Some(expected) if expected != found => {
            Err(GgufError::TensorCount { path: first.into(), count, found, expected })
        }
        _ => Ok(()),
    }
}

/// The shard's own numbers must match the first one's, and all metadata that both have must agree.
/// (Shards written by llama.cpp have no other metadata; models can then be told apart only by the
/// names and the number of their tensors.)
fn check_same_model(
    first: &Path,
    model: &ModelFile,
    path: &Path,
    number: u64,
    metadata: &std::collections::BTreeMap<String, MetaValue>,
) -> Result<(), GgufError> {
    let foreign = |key: &str, found: Option<&MetaValue>, expected: &MetaValue| GgufError::ForeignShard {
        path: path.into(),
        first: first.into(),
        key: printable(key),
        found: found.map_or("missing".into(), show),
        expected: show(expected),
    };
    let own = metadata.get(NO);
    if own != Some(&MetaValue::U64(number)) {
        return Err(foreign(NO, own, &MetaValue::U64(number)));
    }
    for key in [COUNT, TENSORS] {
        if let Some(expected) = model.metadata.get(key)
            && metadata.get(key) != Some(expected)
        {
            return Err(foreign(key, metadata.get(key), expected));
        }
    }
    for (key, found) in metadata {
        // Each file has its own alignment.
        let compared = key != NO && key != "general.alignment";
        if let Some(expected) = model.metadata.get(key)
            && compared
            && expected != found
        {
            return Err(foreign(key, Some(found), expected));
        }
    }
    Ok(())
}

/// A metadata value, short enough for a message.
fn show(value: &MetaValue) -> String {
    match value {
        MetaValue::U64(n) => n.to_string(),
        MetaValue::I64(n) => n.to_string(),
        MetaValue::F64(n) => n.to_string(),
        MetaValue::Bool(b) => b.to_string(),
        MetaValue::Str(s) => {
            let short: String = s.chars().take(60).collect();
            format!("`{}`", printable(&short))
        }
        MetaValue::Array(values) => format!("an array of {}", values.len()),
        MetaValue::LongArray(len) => format!("an array of {len}"),
    }
}

fn not_first(path: &Path, number: u64, count: u64) -> GgufError {
    let first = match prefix(path, number, count) {
        Some(prefix) => sibling(&prefix, 0, count).display().to_string(),
        None => format!("the file named `…{}`", ending(0, count)),
    };
    GgufError::NotFirstShard { path: path.into(), number: number.saturating_add(1), count, first }
}

/// The ending of a shard's name in llama.cpp's scheme. `number` counts from 0, names count from 1.
fn ending(number: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", number.saturating_add(1))
}

/// The part of the path before the ending.
fn prefix(path: &Path, number: u64, count: u64) -> Option<OsString> {
    names::strip_suffix(path.as_os_str(), &ending(number, count)).map(OsString::from)
}

fn sibling(prefix: &OsString, number: u64, count: u64) -> PathBuf {
    let mut path = prefix.clone();
    path.push(ending(number, count));
    path.into()
}
