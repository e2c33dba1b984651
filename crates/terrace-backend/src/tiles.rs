//! Which products tiles of Terrace's own compute, where kernels may add in an order of their own.

use terrace_ggml::DataType;
use terrace_kernels::matmul::Product;
use terrace_kernels::{Isa, WeightType};

/// Least number of rows that tiles multiply. Fewer are multiplied by dot products, which do not unpack weights.
pub const TILED_FROM: usize = 8;

/// Types that tiles multiply, by ggml's numbers.
const TYPES: [(u32, WeightType); 13] = [
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
    (20, WeightType::Iq4Nl),
    (23, WeightType::Iq4Xs),
    (39, WeightType::Mxfp4),
];

/// The product by tiles with rows of `n` weights of a type, if there is one that is faster than ggml's kernels.
pub fn tile_of(ty: DataType, n: usize) -> Option<Product> {
    let isa = Some(Isa::best()).filter(|isa| *isa >= Isa::Avx2)?;
    let known = TYPES.iter().find(|(id, _)| DataType::from_id(*id) == Some(ty));
    known.and_then(|(_, ty)| Product::new(*ty, n, isa))
}
