//! Tensors that several devices hold a slice of each (matrices shared by devices): where llama.cpp cuts them.
//!
//! The slices of one feed-forward block are cut at the same borders, which are multiples of the block size of its last
//! matrix; attention's at multiples of whole groups of heads and of the block size of its output matrix
//! (`llama_meta_device_get_split_state` in the pinned release).

use crate::error::EngineError;
use crate::unfit::Unfit;
use terrace_model::Name;
use terrace_model::{ModelFile, TensorInfo, TensorType};

/// Borders are multiples of this at least, for the kernels' sake.
const FASTER: u64 = 128;

/// What the borders of a feed-forward block are multiples of, given the type of its last matrix.
pub fn ffn_granularity(down: &TensorType) -> u64 {
    lcm(u64::from(down.block_elements), FASTER)
}

/// Rows of the query of one group of heads; the unit that attention is cut in. None for models that do not say.
pub fn head_group(model: &ModelFile) -> Option<u64> {
    let heads = model.arch_u64("attention.head_count").filter(|heads| *heads > 0)?;
    let groups = model.arch_u64("attention.head_count_kv").filter(|groups| *groups > 0).unwrap_or(heads);
    let width = model
        .arch_u64("attention.key_length")
        .or_else(|| Some(model.arch_u64("embedding_length")? / heads))?;
    Some(heads / groups * width)
}

/// What the borders of attention are multiples of, given the type of its output matrix.
pub fn attention_granularity(group: u64, devices: u64, output: &TensorType) -> u64 {
    let mut block = u64::from(output.block_elements);
    while block < FASTER && block * devices < group {
        block *= 2;
    }
    lcm(group, block)
}

/// Whether each of the devices gets a part of `len` with borders at multiples of `granularity`.
pub fn has_parts(len: u64, granularity: u64, devices: u64) -> bool {
    let border = |device: u64| (len * device / devices) / granularity * granularity;
    (1..devices).all(|device| border(device) > border(device - 1)) && len > border(devices - 1)
}

/// Whether the model's tensors can be cut for so many devices.
///
/// # Errors
/// The first tensor of which one would have nothing, which llama.cpp cannot do.
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
