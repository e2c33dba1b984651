//! LoRA adapters for models that exist.

use crate::error::Error;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf;
use terrace_ggml::gguf::write::Header;
use terrace_ggml::quantize::WeightType;
use terrace_model::Shape;

/// An adapter to make. Its bytes depend only on this and on the model's header.
#[derive(Clone, Copy, Debug)]
pub struct AdapterSpec<'a> {
    /// The weights that it changes, by their names.
    pub weights: &'a [&'a str],
    /// Seed of the values.
    pub seed: u64,
    /// Rank of the factors.
    pub rank: u64,
    /// Its scale beside the rank; 0: none.
    pub alpha: f32,
    /// Texts in its metadata, in place of its own.
    pub texts: &'a [(&'a str, &'a str)],
}

impl Default for AdapterSpec<'_> {
    fn default() -> Self {
        Self { weights: &[], seed: 1, rank: 2, alpha: 2.0, texts: &[] }
    }
}

/// Writes an adapter of `model` to `path`, replacing an existing file, and returns the path. What it adds
/// is large enough to change a tiny model's text.
///
/// # Errors
/// The model is not one or lacks a weight, or the file cannot be written.
pub fn write_adapter(spec: &AdapterSpec<'_>, model: &Path, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let path = path.as_ref().to_owned();
    let no_model = |reason| Error::NotGguf { path: model.to_owned(), reason, offset: 0 };
    let file = gguf::read(model).map_err(|_| no_model("not a model"))?;
    let mut header = Header::new();
    let own = [
        ("general.architecture", file.architecture()),
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
    ];
    let mut fill = || {
        for (key, text) in own.iter().chain(spec.texts) {
            header.set(key, *text)?;
        }
        header.set("adapter.lora.alpha", spec.alpha)
    };
    fill().map_err(Error::header(&path))?;
    let mut lengths = Vec::new();
    for weight in spec.weights {
        let shape = file.tensor(weight).ok_or_else(|| no_model("no such weight"))?.shape;
        let [from, to, experts, _] = shape.0;
        // Rows of a table are looked up in the first factor.
        let factors = match weight.ends_with("token_embd.weight") {
            true => [("lora_a", [spec.rank, to, 1, 1]), ("lora_b", [spec.rank, from, 1, 1])],
            false => [("lora_a", [from, spec.rank, experts, 1]), ("lora_b", [spec.rank, to, experts, 1])],
        };
        for (suffix, shape) in factors {
            let name = format!("{weight}.{suffix}");
            let index =
                header.add_tensor(&name, WeightType::F32, Shape(shape)).map_err(Error::header(&path))?;
            lengths.push((index, shape.iter().product::<u64>()));
        }
    }
    let mut bytes = header.to_bytes();
    let begin = bytes.len() as u64;
    for (index, length) in lengths {
        let at = begin + header.tensor_offset(index);
        bytes.resize(usize::try_from(at).unwrap_or(usize::MAX), 0);
        let values = (0..length).map(|i| 0.05 * ((i.wrapping_mul(spec.seed) % 7) as f32 - 3.0));
        bytes.extend(values.flat_map(f32::to_le_bytes));
    }
    // The last tensor is padded, too.
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    std::fs::write(&path, bytes).map_err(Error::io(&path))?;
    Ok(path)
}
