//! Plain Rust in small cases, which an interpreter can run (`scripts/miri`).

use crate::{attention, glu, matmul};
use terrace_kernels::attention::Shape;
use terrace_kernels::{CacheType, Isa, WeightType};

#[test]
fn products_of_every_type() {
    for ty in WeightType::ALL {
        matmul::Case::new(ty, ty.block(), 2, 2).check_with(&[Isa::Scalar]);
    }
    // More than a panel, and more than a part of a row.
    matmul::Case::new(WeightType::Q4_1, 544, 33, 1).check_with(&[Isa::Scalar]);
    matmul::Case::new(WeightType::F16, 160, 33, 1).check_with(&[Isa::Scalar]);
}

#[test]
fn attention_of_every_type() {
    for (i, keys) in CacheType::ALL.into_iter().enumerate() {
        let values = CacheType::ALL[(i + 1) % CacheType::ALL.len()];
        let shape = Shape { values, ..attention::shape(2, 2, 1, 70, 32, keys) };
        attention::check_with(attention::plain(shape), &[Isa::Scalar]);
    }
    // More than a partition.
    attention::check_with(
        attention::plain(attention::shape(1, 1, 2, 260, 32, CacheType::F16)),
        &[Isa::Scalar],
    );
}

#[test]
fn gated_units() {
    glu::Inputs::new(21, 3.0, [true, false], 1).check_with(&[Isa::Scalar]);
}
