//! Which products tiles of Terrace's own compute, where kernels may add in an order of their own.

use terrace_ggml::DataType;
use terrace_kernels::matmul::Product;
use terrace_kernels::{Isa, WeightType};

/// Least number of rows for which a panel of weights is unpacked; fewer are multiplied by dot products.
const PANEL_FROM: usize = 8;
/// The same of matrices of BF16 and, without products of bytes in one instruction, of Q8_0, for which ggml has kernels of several rows.
const BF16_FROM: usize = 128;
const NARROW_Q8_0_FROM: usize = 32;

/// Types that tiles multiply, by ggml's numbers.
const TYPES: [(u32, WeightType); 22] = [
    (1, WeightType::F16),
    (2, WeightType::Q4_0),
    (3, WeightType::Q4_1),
    (6, WeightType::Q5_0),
    (7, WeightType::Q5_1),
    (8, WeightType::Q8_0),
    (10, WeightType::Q2K),
    (11, WeightType::Q3K),
    (12, WeightType::Q4K),
    (13, WeightType::Q5K),
    (14, WeightType::Q6K),
    (16, WeightType::Iq2Xxs),
    (17, WeightType::Iq2Xs),
    (18, WeightType::Iq3Xxs),
    (19, WeightType::Iq1S),
    (20, WeightType::Iq4Nl),
    (21, WeightType::Iq3S),
    (22, WeightType::Iq2S),
    (23, WeightType::Iq4Xs),
    (29, WeightType::Iq1M),
    (30, WeightType::Bf16),
    (39, WeightType::Mxfp4),
];

/// Least number of rows that tiles multiply. All numbers below it have the bits of the same kernels, so that a token has
/// those that it has alone.
pub const fn tiled_from(tile: &Product) -> usize {
    if tile.multiplies_few() { 1 } else { PANEL_FROM }
}

/// The product with weights whose rows are interleaved, or not; `None` if it gains nothing by that.
pub fn in_layout(tile: Product, interleaved: bool) -> Option<Product> {
    if interleaved { tile.with_interleaved().filter(|tile| !tile.has_dots()) } else { Some(tile) }
}

/// The product by tiles with experts whose rows are `n` weights of a type, for [`tiled_from`] rows of activations and
/// more, if it is faster than ggml's: dot products, and its blocked kernels for K-quants.
pub fn expert_tile(ty: DataType, n: usize) -> Option<Product> {
    if Isa::best() == Isa::Scalar {
        return None;
    }
    let known = TYPES.iter().find(|(id, _)| DataType::from_id(*id) == Some(ty));
    known.and_then(|(_, ty)| Product::fastest(*ty, n))
}

/// The product by tiles with a whole matrix, for `rows` rows of activations, if it is faster than ggml's kernels, of
/// which there are more than for experts.
pub fn matrix_tile(ty: DataType, n: usize, rows: usize) -> Option<Product> {
    let product = expert_tile(ty, n)?;
    let isa = Isa::best();
    let from = match product.ty() {
        WeightType::F16 => return None,
        WeightType::Bf16 if !isa.has_bf16() => return None,
        WeightType::Bf16 => BF16_FROM,
        WeightType::Q8_0 if !isa.multiplies_bytes() => NARROW_Q8_0_FROM,
        _ => tiled_from(&product),
    };
    (rows >= from).then_some(product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::quantize::{WeightType as GgmlType, dequantize_into};
    use terrace_kernels::matmul::{Column, PANEL};

    /// Each weight of random blocks, as products with a row of activations that is one at its place give it, is what ggml
    /// reads.
    #[test]
    fn weights_are_those_that_ggml_reads() {
        const LENGTH: usize = 256;
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for (id, ty) in TYPES.into_iter().filter(|(_, ty)| !ty.is_float()) {
            let of_ggml = GgmlType::from_id(id).unwrap();
            let (mut rows, mut weights) = (Vec::new(), vec![0.0; LENGTH * PANEL]);
            for expected in weights.chunks_exact_mut(LENGTH) {
                // Until no scale is infinite, or no number.
                let row = loop {
                    let row: Vec<u8> = (0..ty.row_bytes(LENGTH)).map(|_| random()).collect();
                    assert!(dequantize_into(of_ggml, &row, expected), "{ty:?}");
                    if expected.iter().all(|weight| weight.abs() < 1e30) {
                        break row;
                    }
                };
                rows.extend(row);
            }
            let product = Product::fastest(ty, LENGTH).unwrap();
            let bytes = product.activation_bytes();
            let mut inputs = vec![0u64; (bytes * LENGTH).div_ceil(8)];
            let mut outs = vec![0.0f32; PANEL * LENGTH];
            let mut scratch = vec![0u64; Product::scratch_bytes() / 8 + 8];
            let columns: Vec<Column> = (0..LENGTH)
                .map(|i| {
                    let mut one = [0.0; LENGTH];
                    one[i] = 1.0;
                    let to = inputs.as_mut_ptr().cast::<u8>().wrapping_add(i * bytes);
                    // SAFETY: the buffer has room for all rows.
                    unsafe { product.quantise(one.as_ptr(), to) };
                    Column { input: to, out: outs.as_mut_ptr().wrapping_add(i * PANEL) }
                })
                .collect();
            let panel = scratch.as_mut_ptr().cast::<u8>();
            let panel = panel.wrapping_add(panel.align_offset(64));
            // SAFETY: the buffers have the sizes of the product.
            unsafe { product.run(rows.as_ptr(), ty.row_bytes(LENGTH), 0..PANEL, &columns, panel) };
            for (row, expected) in weights.chunks_exact(LENGTH).enumerate() {
                let largest = expected.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
                for (i, expected) in expected.iter().enumerate() {
                    let ours = outs[i * PANEL + row];
                    // Blocks of 32 activations have a scale of 16 bits.
                    let error = if ty.block() == 32 { 1e-3 } else { 1e-5 };
                    assert!((ours - expected).abs() <= error * largest, "{ty:?}: {ours}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn matrices_are_tiled_where_that_is_faster() {
        if Isa::best() == Isa::Scalar {
            return;
        }
        let tiled = |ty, rows| matrix_tile(ty, 256, rows).is_some();
        let few = Isa::best().multiplies_bytes() || matches!(Isa::best(), Isa::Avx2 | Isa::Avx512);
        assert!(!tiled(DataType::F16, 512) && expert_tile(DataType::F16, 256).is_some());
        assert_eq!(tiled(DataType::BF16, 128), Isa::best().has_bf16());
        assert!(!tiled(DataType::BF16, 127) && expert_tile(DataType::BF16, 256).is_some());
        assert_eq!(tiled(DataType::Q8_0, 8), Isa::best().multiplies_bytes());
        assert!(tiled(DataType::Q8_0, 32) && tiled(DataType::Q4_0, 8));
        assert_eq!(tiled(DataType::Q4_0, 1), few);
        assert!(tiled(DataType::Q4_K, 8));
        assert_eq!(tiled(DataType::Q4_K, 1), few);
        let iq2_xxs = DataType::from_id(16).unwrap();
        assert!(tiled(iq2_xxs, 8) && expert_tile(iq2_xxs, 256).is_some());
        assert!(!tiled(DataType::F32, 512) && expert_tile(DataType::F32, 256).is_none());
    }
}
