//! Quantises rows of f32 into any of ggml's weight types, and converts them back.

pub mod damage;
pub mod imatrix;
mod survey;

pub use crate::tensor::WeightType;
pub use survey::Survey;

use crate::cpu::ToFloat;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;

/// Why rows could not be quantised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantizeError {
    /// The row is not a whole number of blocks.
    #[error("a row of {row} elements is not a whole number of {ty} blocks of {block}")]
    Row {
        /// Elements in a row.
        row: usize,
        /// The requested type.
        ty: &'static str,
        /// Elements in its block.
        block: u64,
    },
    /// The weights are not a whole number of rows.
    #[error("{len} weights are not a whole number of rows of {row}")]
    Rows {
        /// Weights given.
        len: usize,
        /// Elements in a row.
        row: usize,
    },
    /// The type needs importance values and there are none, or their number is not the row's
    /// length.
    #[error("{ty} takes {row} importance values, but {given} were given")]
    Importance {
        /// The requested type.
        ty: &'static str,
        /// Elements in a row.
        row: usize,
        /// Values given (0: none).
        given: usize,
    },
    /// An importance value is negative, infinite or NaN.
    #[error("importance {value} of column {column} is negative or not finite")]
    ImportanceValue { column: usize, value: String },
    /// A weight is NaN or infinite, on which ggml's quantisers abort or produce garbage.
    #[error("weight {index} is {value}, which is not finite")]
    NotFinite {
        /// Index of the weight.
        index: usize,
        /// `NaN`, `inf` or `-inf`.
        value: String,
    },
}

/// Quantises whole rows of `row` elements into `ty`.
///
/// `importance` has one value per column, as in an imatrix; 0 means that the column does not
/// matter. Most types do not require it, see [`WeightType::needs_importance`]. Returns the bytes of
/// the rows in order.
pub fn quantize(
    ty: WeightType,
    weights: &[f32],
    row: usize,
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, QuantizeError> {
    let row_bytes = ty.row_bytes(row as u64).filter(|_| row > 0);
    let row_bytes =
        row_bytes.ok_or_else(|| QuantizeError::Row { row, ty: ty.name(), block: ty.block_elements() })?;
    let len = usize::try_from(row_bytes).expect("a row in memory") * (weights.len() / row);
    let mut bytes = vec![0u8; len];
    quantize_into(ty, weights, row, importance, &mut bytes)?;
    Ok(bytes)
}

/// As [`quantize`], but writes to `bytes`, which must have the length of the result.
pub fn quantize_into(
    ty: WeightType,
    weights: &[f32],
    row: usize,
    importance: Option<&[f32]>,
    bytes: &mut [u8],
) -> Result<(), QuantizeError> {
    let name = ty.name();
    let row_error = || QuantizeError::Row { row, ty: name, block: ty.block_elements() };
    let row_bytes = ty.row_bytes(row as u64).filter(|_| row > 0).ok_or_else(row_error)?;
    let rows = weights.len() / row;
    if !weights.len().is_multiple_of(row) || bytes.len() as u64 != rows as u64 * row_bytes {
        return Err(QuantizeError::Rows { len: weights.len(), row });
    }
    let given = importance.map_or(0, <[f32]>::len);
    if given != row && (importance.is_some() || ty.needs_importance()) {
        return Err(QuantizeError::Importance { ty: name, row, given });
    }
    let unusable = |v: f32| !v.is_finite() || v < 0.0;
    if let Some((column, value)) =
        importance.unwrap_or_default().iter().enumerate().find(|&(_, &v)| unusable(v))
    {
        return Err(QuantizeError::ImportanceValue { column, value: value.to_string() });
    }
    if let Some((index, value)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite()) {
        return Err(QuantizeError::NotFinite { index, value: value.to_string() });
    }
    if rows == 0 {
        return Ok(());
    }
    // SAFETY: `weights` holds `rows * row` floats and `bytes` `rows` rows of the type, as checked
    // above; the importance is null or `row` floats; ggml_quantize_chunk handles the type.
    let written = unsafe {
        sys::ggml_quantize_chunk(
            ty.raw(),
            weights.as_ptr(),
            bytes.as_mut_ptr().cast(),
            0,
            rows as i64,
            row as i64,
            importance.map_or(std::ptr::null(), <[f32]>::as_ptr),
        )
    };
    debug_assert_eq!(written, bytes.len());
    Ok(())
}

/// Converts whole blocks of `ty` to f32. `weights` must have exactly the length of the result.
/// Returns false if ggml has no such conversion or the lengths do not match.
pub fn dequantize_into(ty: WeightType, bytes: &[u8], weights: &mut [f32]) -> bool {
    let blocks = bytes.len() as u64 / ty.block_bytes();
    let whole = (bytes.len() as u64).is_multiple_of(ty.block_bytes());
    let convert = DataType::from_id(ty.id()).and_then(ToFloat::of);
    let Some(convert) = convert.filter(|_| whole && blocks * ty.block_elements() == weights.len() as u64)
    else {
        return false;
    };
    // SAFETY: `bytes` holds as many elements of the type as `weights` has room for, as checked
    // above; a shared and a mutable slice do not overlap.
    unsafe { convert.convert(bytes.as_ptr().cast(), weights.as_mut_ptr(), weights.len()) };
    true
}

/// Returns true if the bytes are whole blocks of the type without NaN or infinite scales, as ggml checks
/// them.
pub fn is_valid(ty: WeightType, bytes: &[u8]) -> bool {
    // SAFETY: the pointer and length are those of a slice; ggml reads no further and checks the
    // length itself.
    unsafe { sys::ggml_validate_row_data(ty.raw(), bytes.as_ptr().cast(), bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37).sin() * 0.1).collect()
    }

    #[test]
    fn types_make_valid_blocks_of_the_right_length() {
        let importance: Vec<f32> = (0..256).map(|i| 1.0 + (i % 7) as f32).collect();
        // For these, ggml searches neighbours in the grids for seconds before it quantises the
        // first block.
        let slow = [WeightType::IQ1_S, WeightType::IQ1_M, WeightType::IQ2_XS, WeightType::IQ2_S];
        for &ty in WeightType::ALL.iter().filter(|ty| !slow.contains(ty)) {
            let bytes = quantize(ty, &wave(512), 256, Some(&importance)).unwrap();
            assert_eq!(bytes.len() as u64, 2 * ty.row_bytes(256).unwrap(), "{}", ty.name());
            assert!(is_valid(ty, &bytes), "{}", ty.name());
            let mut back = vec![0.0; 512];
            assert!(dequantize_into(ty, &bytes, &mut back), "{}", ty.name());
            let error: f32 = wave(512).iter().zip(&back).map(|(a, b)| (a - b).abs()).sum::<f32>() / 512.0;
            assert!(error < 0.05, "{}: {error}", ty.name());
            assert!(!dequantize_into(ty, &bytes, &mut back[1..]), "{}", ty.name());
            assert_eq!(WeightType::from_name(ty.name()), Some(ty));
            assert_eq!(WeightType::from_id(ty.id()), Some(ty));
        }
    }

    #[test]
    fn refuses_what_ggml_would_abort_on() {
        let w = wave(512);
        assert!(matches!(quantize(WeightType::Q4_K, &w, 128, None), Err(QuantizeError::Row { .. })));
        assert!(matches!(quantize(WeightType::Q4_K, &w, 0, None), Err(QuantizeError::Row { .. })));
        assert!(matches!(quantize(WeightType::Q8_0, &w[..100], 64, None), Err(QuantizeError::Rows { .. })));
        assert!(matches!(
            quantize(WeightType::IQ2_XXS, &w, 256, None),
            Err(QuantizeError::Importance { given: 0, .. })
        ));
        let broken = vec![f32::NAN; 256];
        assert!(matches!(
            quantize(WeightType::Q4_K, &broken, 256, None),
            Err(QuantizeError::NotFinite { index: 0, .. })
        ));
    }
}
