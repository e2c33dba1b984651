//! The tensors of a model, one by one.

use serde_json::{Value, json};
use std::fmt::Write;
use terrace_model::ModelFile;

/// A line for each tensor, in the order of the file.
pub fn table(model: &ModelFile) -> String {
    let longest = model.tensors.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0).max("tensor".len());
    let mut text = format!("{:<longest$}  {:<8} {:>24} {:>12}  file", "tensor", "type", "shape", "bytes");
    for tensor in &model.tensors {
        let (name, ty, bytes) = (&tensor.name, &tensor.ty.name, tensor.size().to_string());
        let shape =
            dimensions(tensor.shape.0).map(|length| length.to_string()).collect::<Vec<_>>().join(" x ");
        let file = tensor.extent.file.0;
        let name = terrace_model::printable(name);
        let _ = write!(text, "\n{name:<longest$}  {ty:<8} {shape:>24} {bytes:>12}  {file}");
    }
    text
}

/// The same for programs.
pub fn json(model: &ModelFile) -> Value {
    let tensor = |tensor: &terrace_model::TensorInfo| {
        json!({
            "name": tensor.name, "type": tensor.ty.name, "shape": dimensions(tensor.shape.0).collect::<Vec<_>>(),
            "bytes": tensor.extent.len, "file": tensor.extent.file.0, "offset": tensor.extent.offset,
        })
    };
    model.tensors.iter().map(tensor).collect()
}

/// The lengths up to the last that is not 1.
fn dimensions(all: [u64; 4]) -> impl Iterator<Item = u64> {
    let count = all.iter().rposition(|length| *length != 1).map_or(1, |last| last + 1);
    all.into_iter().take(count)
}
