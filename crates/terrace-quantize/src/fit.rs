//! Chooses the types with which a model fits a size: those whose errors are least in sum.
//!
//! The error of a type is measured on rows of each matrix: the squared difference to the original, weighted by
//! importance where there is some, as a share of the matrix. To first order a model's divergence is a sum of
//! these shares (Malinovskii et al., "Pushing the Limits of Large Language Model Quantization via the Linearity
//! Theorem", 2024, theorem 1; the coefficients of matrices are taken to be equal). What is exact is a
//! measurement on text: `terrace sweep`.

use crate::error::QuantizeError;
use crate::options::QuantizeOptions;
use crate::plan::QuantizePlan;
use crate::planned::PlannedTensor;
use crate::recipe::TypeRule;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::{self, WeightType};
use terrace_model::{ByteSize, TensorInfo};
use terrace_plan::mix::{MixOption, mixes};
use terrace_platform::file::Positioned;
use terrace_platform::input_file;

/// The types that are tried, where a row has whole blocks of them. Those that llama.cpp refuses without
/// importance values are left out where there are none.
const CANDIDATES: [WeightType; 14] = [
    WeightType::IQ2_XXS,
    WeightType::IQ2_S,
    WeightType::Q2_K,
    WeightType::IQ3_XXS,
    WeightType::IQ3_S,
    WeightType::Q3_K,
    WeightType::IQ4_XS,
    WeightType::Q4_K,
    WeightType::Q5_K,
    WeightType::Q6_K,
    WeightType::Q8_0,
    // For rows that are no multiple of 256.
    WeightType::IQ4_NL,
    WeightType::Q4_0,
    WeightType::Q5_0,
];
/// Weights of a matrix that are tried in each type.
const SAMPLE: u64 = 64 << 10;
/// Fewest rows that are tried.
const MIN_ROWS: u64 = 4;

/// Types that fit.
#[derive(Clone, Debug)]
pub struct Fit {
    /// A rule for each matrix.
    pub rules: Vec<TypeRule>,
    /// The type with the most bytes, for the model's metadata.
    pub file_type: FileType,
    /// Size of the file.
    pub size: ByteSize,
    /// Mean of the matrices' errors: squared, as shares of the matrices.
    pub error: f64,
}

/// A matrix, and what each type would cost.
struct Measured<'a> {
    tensor: &'a TensorInfo,
    options: Vec<(WeightType, MixOption)>,
}

impl Fit {
    /// Chooses a type for each matrix that the options' rules leave open, so that the file has at most `size`
    /// bytes. `progress` gets the number of matrices done and their total.
    ///
    /// # Errors
    /// [`QuantizeError`]; [`QuantizeError::NoFit`] if the smallest types are too large.
    pub fn new(
        options: &QuantizeOptions,
        size: ByteSize,
        progress: &mut (dyn FnMut(usize, usize) -> ControlFlow<()> + Send),
    ) -> Result<Self, QuantizeError> {
        // What Q8_0 converts is what there is a choice for.
        let largest = QuantizeOptions { file_type: named(WeightType::Q8_0), pure: true, ..options.clone() };
        let plan = QuantizePlan::new(&largest)?;
        let ruled = |name: &str| options.rules.iter().any(|rule| rule.matches(name));
        let open: Vec<&PlannedTensor> =
            plan.tensors().iter().filter(|tensor| tensor.to.is_some() && !ruled(&tensor.from.name)).collect();
        let open_bytes: ByteSize = open.iter().map(|tensor| tensor.size).sum();
        let fixed = plan.file_size()?.bytes().saturating_sub(open_bytes.bytes());
        let measured = measured(&plan, &open, progress)?;

        let groups: Vec<Vec<MixOption>> = measured
            .iter()
            .map(|matrix| matrix.options.iter().map(|(_, option)| *option).collect())
            .collect();
        let budget = size.bytes().saturating_sub(fixed);
        let found = mixes(&groups, budget, 1).map_err(|error| QuantizeError::no_fit(&error, fixed, size))?;
        let best = found.first().expect("at least one, or an error");

        let chosen = measured.iter().zip(&best.choice).map(|(matrix, &index)| {
            let (ty, option) = matrix.options[index];
            (matrix.tensor, ty, option.bytes)
        });
        let mut bytes = BTreeMap::<&str, (u64, WeightType)>::new();
        let mut rules = options.rules.clone();
        for (tensor, ty, size) in chosen {
            bytes.entry(ty.name()).or_insert((0, ty)).0 += size;
            rules.push(TypeRule::of_tensor(&tensor.name, ty));
        }
        let most = bytes.values().max_by_key(|(bytes, _)| *bytes).map(|(_, ty)| *ty);
        Ok(Self {
            rules,
            file_type: most.map_or(FileType::COPY, named),
            size: ByteSize(fixed + best.bytes),
            error: best.cost / measured.len().max(1) as f64,
        })
    }
}

/// The file type of most matrices in this type.
fn named(ty: WeightType) -> FileType {
    ty.name().to_uppercase().parse().expect("llama.cpp has a file type for each candidate")
}

/// Tries the types on rows of each matrix, on all threads.
fn measured<'a>(
    plan: &'a QuantizePlan,
    tensors: &[&'a PlannedTensor],
    progress: &mut (dyn FnMut(usize, usize) -> ControlFlow<()> + Send),
) -> Result<Vec<Measured<'a>>, QuantizeError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((0, progress));
    let failed = Mutex::new(None);
    let results: Vec<Mutex<Option<Measured<'a>>>> = tensors.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while failed.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(PlannedTensor { from: tensor, .. }) = tensors.get(index).copied() else { return };
            let result = options_of(plan, tensor).and_then(|options| {
                let (done, progress) = &mut *done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                match progress(*done, tensors.len()) {
                    ControlFlow::Continue(()) => Ok(Measured { tensor, options }),
                    ControlFlow::Break(()) => Err(QuantizeError::Cancelled),
                }
            });
            match result {
                Ok(measured) => {
                    *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(measured);
                }
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.threads.min(tensors.len()) {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results
            .into_iter()
            .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect()),
    }
}

/// The size and the error of a matrix in each type.
fn options_of(
    plan: &QuantizePlan,
    tensor: &TensorInfo,
) -> Result<Vec<(WeightType, MixOption)>, QuantizeError> {
    let columns = tensor.shape.0[0];
    let rows = tensor.shape.elements() / columns;
    let importance = plan.importance(tensor);
    let sample = Sample::read(plan, tensor)?;
    let mut options = Vec::new();
    for ty in CANDIDATES {
        if ty.wants_importance() && importance.is_none() {
            continue;
        }
        let Some(row) = ty.row_bytes(columns) else { continue };
        let cost = sample.error(ty, importance).map_err(|error| sample.damaged(plan, error.to_string()))?;
        options.push((ty, MixOption { bytes: row.saturating_mul(rows), cost }));
    }
    Ok(options)
}

/// Some rows of a tensor.
struct Sample<'a> {
    tensor: &'a TensorInfo,
    columns: usize,
    /// The matrix of each row, and the row's weights.
    rows: Vec<(usize, Vec<f32>)>,
}

impl<'a> Sample<'a> {
    /// Reads rows at equal distances.
    fn read(plan: &QuantizePlan, tensor: &'a TensorInfo) -> Result<Self, QuantizeError> {
        let columns = tensor.shape.0[0];
        let rows = tensor.shape.elements() / columns;
        let count = (SAMPLE / columns).max(MIN_ROWS).min(rows);
        let row_bytes = tensor.extent.len / rows;
        let path = &plan.model.shards[tensor.extent.file.index()].path;
        let unread = |offset| {
            let (path, tensor) = (path.clone(), tensor.name.clone());
            move |source| QuantizeError::Read { path, tensor, offset, source }
        };
        let (file, _) = input_file::open(path).map_err(unread(tensor.extent.offset))?;
        let mut this = Self { tensor, columns: in_memory(columns), rows: Vec::new() };
        let from = WeightType::from_id(tensor.ty.id);
        for number in 0..count {
            let row = number * rows / count;
            let offset = tensor.extent.offset + row * row_bytes;
            let mut bytes = vec![0; in_memory(row_bytes)];
            file.read_exact_at(&mut bytes, offset).map_err(unread(offset))?;
            let mut weights = vec![0.0; this.columns];
            let converted = from.is_some_and(|from| quantize::dequantize_into(from, &bytes, &mut weights));
            if !converted || weights.iter().any(|weight| !weight.is_finite()) {
                return Err(this.damaged(plan, "weights are not finite".into()));
            }
            this.rows.push((in_memory(row / tensor.shape.0[1]), weights));
        }
        Ok(this)
    }

    fn damaged(&self, plan: &QuantizePlan, reason: String) -> QuantizeError {
        let extent = self.tensor.extent;
        QuantizeError::Weights {
            path: plan.model.shards[extent.file.index()].path.clone(),
            tensor: self.tensor.name.clone(),
            offset: extent.offset,
            reason,
        }
    }

    /// The squared error of the rows in another type, as a share of their squares.
    fn error(&self, ty: WeightType, importance: Option<&[f32]>) -> Result<f64, quantize::QuantizeError> {
        let (mut error, mut all) = (0.0, 0.0);
        let mut back = vec![0.0; self.columns];
        for (matrix, weights) in &self.rows {
            let values = importance.map(|all| &all[matrix * self.columns..(matrix + 1) * self.columns]);
            let bytes = quantize::quantize(ty, weights, self.columns, values)?;
            quantize::dequantize_into(ty, &bytes, &mut back);
            for (column, (&weight, &rounded)) in weights.iter().zip(&back).enumerate() {
                let value = values.map_or(1.0, |values| f64::from(values[column]));
                let (weight, rounded) = (f64::from(weight), f64::from(rounded));
                error += value * (weight - rounded) * (weight - rounded);
                all += value * weight * weight;
            }
        }
        // Rows of zeros are exact in every type.
        Ok(if all > 0.0 { (error / all).min(f64::MAX) } else { 0.0 })
    }
}

fn in_memory(n: u64) -> usize {
    usize::try_from(n).expect("a few rows in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_candidate_has_a_file_type() {
        for ty in CANDIDATES {
            assert!(named(ty).id().is_some(), "{}", ty.name());
        }
    }
}
