//! Copies of models with other texts in their metadata.

use crate::error::Error;
use crate::gguf_map::{ENTRY_COUNT_AT, STRING, map};
use std::fs;
use std::path::Path;

const ARCHITECTURE: &str = "general.architecture";

/// Writes a copy of the model `from`, which is small enough to be held in memory, with these texts
/// as values of these keys. Another architecture's name renames the keys of its hyperparameters, too.
///
/// # Errors
/// [`Error::NotGguf`]: `from` is not a GGUF file of version 3 with an architecture; [`Error::Io`].
pub fn write_edited(from: &Path, to: &Path, texts: &[(&str, &str)]) -> Result<(), Error> {
    let good = fs::read(from).map_err(Error::io(from))?;
    let layout = map(&good).map_err(Error::not_gguf(from))?;
    let named = layout.entries.iter().find(|entry| entry.key == ARCHITECTURE);
    let named = named.ok_or(("no architecture", 0)).map_err(Error::not_gguf(from))?;
    let old = String::from_utf8_lossy(&good[named.value_at() + 8..named.end]).into_owned();
    let text_of = |key: &str| texts.iter().find(|(name, _)| *name == key).map(|(_, text)| *text);
    let new = text_of(ARCHITECTURE).unwrap_or(&old);

    let mut out = good[..ENTRY_COUNT_AT].to_vec();
    let kept = layout.entries.iter().filter(|entry| text_of(&entry.key).is_none());
    out.extend((kept.clone().count() as u64 + texts.len() as u64).to_le_bytes());
    for (key, text) in texts {
        put_text(&mut out, key);
        out.extend(STRING.to_le_bytes());
        put_text(&mut out, text);
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
