//! The plan for one tensor, and checks that it is possible.

use crate::error::QuantizeError;
use crate::options::QuantizeOptions;
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::WeightType;
use terrace_ggml::quantize::imatrix::Imatrix;
use terrace_model::{ByteSize, TensorInfo};

/// A tensor that needs importance values and has none.
#[derive(Clone, Debug)]
pub struct Unmet {
    pub tensor: String,
    pub to: &'static str,
    pub given: bool,
}

/// A tensor and its new type.
#[derive(Clone, Debug)]
pub struct PlannedTensor {
    /// The tensor as it is.
    pub from: TensorInfo,
    /// Its new type; `None` means unchanged.
    pub to: Option<WeightType>,
    /// Its new size.
    pub size: ByteSize,
}

impl PlannedTensor {
    /// Name of its new type.
    pub fn ty(&self) -> &str {
        match self.to {
            Some(ty) => ty.name(),
            None => &self.from.ty.name,
        }
    }
}

/// Checks for problems that llama.cpp would find only in the middle of the work, or abort on.
pub fn planned(
    tensor: &TensorInfo,
    to: Option<WeightType>,
    options: &QuantizeOptions,
    imatrix: Option<&Imatrix>,
) -> Result<PlannedTensor, QuantizeError> {
    let Some(to) = to else {
        return Ok(PlannedTensor { from: tensor.clone(), to: None, size: tensor.size() });
    };
    let (name, from) = (|| tensor.name.clone(), || tensor.ty.name.clone());
    let Some(old) = WeightType::from_id(tensor.ty.id) else {
        return Err(QuantizeError::Unconvertible { tensor: name(), from: from(), to: to.name() });
    };
    if old.is_quantized() && !options.allow_requantize {
        let to_float = !to.is_quantized();
        return Err(QuantizeError::Requantize { tensor: name(), from: from(), to: to.name(), to_float });
    }
    let values = imatrix.and_then(|imatrix| imatrix.get(&tensor.name));
    let expected = importance_len(tensor);
    if let Some(found) =
        values.map(<[f32]>::len).filter(|&found| found as u64 != expected && !is_embedding(tensor))
    {
        return Err(QuantizeError::ImportanceSize { tensor: name(), expected, found });
    }
    let rows = tensor.shape.elements().checked_div(tensor.shape.0[0]).unwrap_or(0);
    let row = to.row_bytes(tensor.shape.0[0]);
    let size = row.and_then(|row| row.checked_mul(rows));
    let size =
        size.ok_or_else(|| QuantizeError::Unconvertible { tensor: name(), from: from(), to: to.name() })?;
    Ok(PlannedTensor { from: tensor.clone(), to: Some(to), size: ByteSize(size) })
}

/// True if importance values that the new type needs are missing.
pub fn unmet_by(planned: &PlannedTensor, file_type: FileType, imatrix: Option<&Imatrix>) -> Option<Unmet> {
    let (to, tensor) = (planned.to?, &planned.from);
    let values = imatrix.and_then(|imatrix| imatrix.get(&tensor.name));
    let usable = values.is_some_and(|values| values.len() as u64 == importance_len(tensor));
    let needed = !usable && needs_importance(tensor, to, file_type);
    needed.then(|| Unmet { tensor: tensor.name.clone(), to: to.name(), given: imatrix.is_some() })
}

/// Number of importance values: one per column of each matrix.
pub fn importance_len(tensor: &TensorInfo) -> u64 {
    let [columns, _, matrices, more] = tensor.shape.0;
    columns.saturating_mul(matrices).saturating_mul(more)
}

fn is_embedding(tensor: &TensorInfo) -> bool {
    ["token_embd.weight", "per_layer_token_embd.weight"].contains(&tensor.name.as_str())
}

/// llama.cpp's rule, and the requirement of ggml's quantisers.
fn needs_importance(tensor: &TensorInfo, to: WeightType, file_type: FileType) -> bool {
    if is_embedding(tensor) || tensor.name == "output.weight" {
        return to.needs_importance();
    }
    to.wants_importance() || (to == WeightType::Q2_K && file_type.name() == "Q2_K_S")
}
