//! Values of tensors that no model has been trained for.

use crate::random::stream;
use rand_distr::{Distribution, StandardNormal};
use terrace_model::Shape;

/// Values that keep logits finite: norms around 1, decays below 0, everything else of the size that
/// keeps a product's.
pub fn values(name: &str, shape: &Shape, seed: u64) -> Vec<f32> {
    let count = shape.0.iter().product::<u64>() as usize;
    let (mean, std) = match name {
        _ if name.contains("ssm_a") => (-1.0, 0.1),
        _ if name.contains("norm") || name.contains("rope_f") || name.contains("scale") => (1.0, 0.1),
        _ if shape.0[1] > 1 => (0.0, 1.0 / (shape.0[0] as f32).sqrt()),
        _ => (0.0, 0.1),
    };
    let normal = StandardNormal.sample_iter(stream(seed, name, 0)).take(count);
    normal.map(|x: f32| mean + std * x).collect()
}
