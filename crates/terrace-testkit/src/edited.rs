//! Copies of models with other texts and numbers in their metadata.

use crate::error::Error;
use crate::gguf_map::{ENTRY_COUNT_AT, STRING, UINT32, map};
use std::fs;
use std::path::Path;

const ARCHITECTURE: &str = "general.architecture";

/// A value in a model's metadata.
#[derive(Clone, Copy, Debug)]
pub enum Edit<'a> {
    Text(&'a str),
    /// A number of 32 bits.
    Number(u32),
}

impl<'a> From<&'a str> for Edit<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// Writes a copy of the model `from`, which is small enough to be held in memory, with these values
/// of these keys. Another architecture's name renames the keys of its hyperparameters, too.
///
/// # Errors
/// [`Error::NotGguf`]: `from` is not a GGUF file of version 3 with an architecture; [`Error::Io`].
pub fn write_edited<'a, E>(from: &Path, to: &Path, edits: &[(&str, E)]) -> Result<(), Error>
where
    E: Copy + Into<Edit<'a>>,
{
    let good = fs::read(from).map_err(Error::io(from))?;
    let layout = map(&good).map_err(Error::not_gguf(from))?;
    let named = layout.entries.iter().find(|entry| entry.key == ARCHITECTURE);
    let named = named.ok_or(("no architecture", 0)).map_err(Error::not_gguf(from))?;
    let old = String::from_utf8_lossy(&good[named.value_at() + 8..named.end]).into_owned();
    let edit_of = |key: &str| edits.iter().find(|(name, _)| *name == key).map(|&(_, edit)| edit.into());
    let new = match edit_of(ARCHITECTURE) {
        Some(Edit::Text(new)) => new,
        _ => &old,
    };

    let mut out = good[..ENTRY_COUNT_AT].to_vec();
    let kept = layout.entries.iter().filter(|entry| edit_of(&entry.key).is_none());
    out.extend((kept.clone().count() as u64 + edits.len() as u64).to_le_bytes());
    for &(key, edit) in edits {
        put_text(&mut out, key);
        match edit.into() {
            Edit::Text(text) => {
                out.extend(STRING.to_le_bytes());
                put_text(&mut out, text);
            }
            Edit::Number(number) => {
                out.extend(UINT32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
        }
    }
    for entry in kept {
        match entry.key.strip_prefix(&*old).filter(|rest| rest.starts_with('.')) {
            Some(rest) => put_text(&mut out, &format!("{new}{rest}")),
            None => put_text(&mut out, &entry.key),
        }
        out.extend(&good[entry.type_at..entry.end]);
    }
    let tensors = layout.tensors.first().map_or(layout.header_end, |tensor| tensor.start);
    out.extend(&good[tensors..layout.header_end]);
    out.resize(out.len().next_multiple_of(layout.alignment), 0);
    out.extend(&good[layout.data_at..]);
    fs::write(to, out).map_err(Error::io(to))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
