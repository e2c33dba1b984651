//! llama.cpp's cuts of tensors of which several devices hold a slice each.
//!
//! All weights of a feed-forward block are cut at the same borders, which are multiples of the
//! block size of its last matrix. Those of attention are cut at multiples of whole groups of heads
//! and of the block size of its output matrix (`llama_meta_device_get_split_state` in the pinned
//! release).

use crate::error::EngineError;
use crate::unfit::Unfit;
use terrace_model::Name;
use terrace_model::{ModelFile, TensorInfo, TensorType};
use terrace_plan::model::{Count, over_layers};

/// Borders are at least multiples of this, which suits the kernels.
const FASTER: u64 = 128;

/// Granularity of the borders of a feed-forward block, in elements, given the type of its last
/// matrix.
pub fn ffn_granularity(down: &TensorType) -> u64 {
    lcm(u64::from(down.block_elements), FASTER)
}

/// Rows of the query of one group of heads, the unit in which attention is cut. `None` if the
/// model's metadata does not say, or says something else for each layer.
pub fn head_group(model: &ModelFile) -> Option<u64> {
    let same = |key: &str| match over_layers(model, key)? {
        Count::Same(number) => Some(number).filter(|number| *number > 0),
        Count::Range { .. } => None,
    };
    let heads = same("attention.head_count")?;
    let groups = match over_layers(model, "attention.head_count_kv") {
        Some(Count::Range { .. }) => return None,
        _ => same("attention.head_count_kv").unwrap_or(heads),
    };
    let width = same("attention.key_length").or_else(|| Some(model.arch_u64("embedding_length")? / heads))?;
    Some(heads / groups * width)
}

/// Granularity of the borders of attention, in elements, given the type of its output matrix.
pub fn attention_granularity(group: u64, devices: u64, output: &TensorType) -> u64 {
    let mut block = u64::from(output.block_elements);
    while block < FASTER && block * devices < group {
        block *= 2;
    }
    lcm(group, block)
}

/// Returns true if each device gets a part of `len` elements if borders are multiples of `granularity`.
pub fn has_parts(len: u64, granularity: u64, devices: u64) -> bool {
    let border = |device: u64| (len * device / devices) / granularity * granularity;
    (1..devices).all(|device| border(device) > border(device - 1)) && len > border(devices - 1)
}

/// Checks that the model's tensors can be sliced for this many devices.
///
/// # Errors
/// [`Unfit::EmptySlice`] for the first tensor of which one device would get nothing: llama.cpp
/// cannot handle that.
pub fn check(model: &ModelFile, devices: u64) -> Result<(), EngineError> {
    let empty = |tensor: &TensorInfo, granularity| Unfit::EmptySlice {
        tensor: tensor.name.clone(),
        devices,
        granularity,
    };
    for tensor in &model.tensors {
        let name = Name::of(&tensor.name);
        let width = tensor.shape.0[0];
        match (name.role, name.kind) {
            ("ffn_down" | "ffn_down_exps", "weight") => {
                let granularity = ffn_granularity(&tensor.ty);
                if !has_parts(width, granularity, devices) {
                    return Err(empty(tensor, granularity).into());
                }
            }
            ("attn_output", "weight") => {
                let Some(group) = head_group(model) else { continue };
                let granularity = attention_granularity(group, devices, &tensor.ty);
                if !has_parts(width, granularity, devices) {
                    return Err(empty(tensor, granularity).into());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_between_rounded_borders() {
        assert!(has_parts(512, 256, 2));
        assert!(!has_parts(256, 256, 2), "the first border is at 0");
        assert!(has_parts(768, 256, 2), "256 and 512");
        assert!(has_parts(768, 256, 3));
        assert!(!has_parts(768, 256, 4));
        assert!(has_parts(4096, 128, 3));
        assert!(has_parts(100, 1, 1));
    }

    #[test]
    fn granularities_are_common_multiples() {
        assert_eq!([lcm(32, 128), lcm(256, 128), lcm(1, 128), lcm(96, 128)], [128, 256, 128, 384]);
    }
}
