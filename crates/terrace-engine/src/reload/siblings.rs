//! Slices that belong together. When the last matrix of a feed-forward block gets another block
//! size, the borders between the devices' slices move for all weights of the block.

use super::registry::{Entry, Registry};
use crate::load::split::ffn_granularity;
use std::collections::BTreeSet;
use terrace_ggml::DataType;
use terrace_ggml::llama::{Context, Seat, Weight};
use terrace_model::Name;

/// The prefix (`blk.3.`) of a weight of a feed-forward block; `None` for other weights.
fn block_of(name: &str) -> Option<&str> {
    let of_block = Name::of(name).role.strip_prefix("ffn_")?;
    let of_block = of_block.strip_suffix("_exps").unwrap_or(of_block);
    let block = ["gate", "up", "gate_up", "down"].contains(&of_block);
    if block { name.split("ffn_").next() } else { None }
}

/// Returns true if this weight's type decides the borders of its block. It is swapped first, so that the
/// others are sliced by the new type.
pub fn is_last_matrix(name: &str) -> bool {
    name.ends_with(".ffn_down.weight") || name.ends_with(".ffn_down_exps.weight")
}

/// Slices the siblings of swapped tensors again, and those that were left behind by an earlier
/// reload. Returns the number of weights that were moved without being swapped themselves, and the
/// first one for which there was no memory: its block is noted in [`Registry::unsliced`].
pub fn resync(
    registry: &mut Registry,
    context: &mut Context,
    swapped: &[usize],
) -> (usize, Option<LeftBehind>) {
    let mut blocks: BTreeSet<String> = swapped
        .iter()
        .map(|&entry| &registry.entries[entry])
        .filter(|entry| entry.weights.iter().any(Weight::is_split))
        .filter_map(|entry| block_of(entry.name()).map(str::to_owned))
        .collect();
    blocks.append(&mut registry.unsliced);
    let (mut moved, mut left) = (0, None);
    for block in blocks {
        match resync_block(registry, context, swapped, &block) {
            Ok(n) => moved += n,
            Err(behind) => {
                registry.unsliced.insert(block);
                left.get_or_insert(behind);
            }
        }
    }
    (moved, left)
}

fn resync_block(
    registry: &mut Registry,
    context: &mut Context,
    swapped: &[usize],
    block: &str,
) -> Result<usize, LeftBehind> {
    let mut moved = 0;
    let members: Vec<usize> = (0..registry.entries.len())
        .filter(|&entry| block_of(registry.entries[entry].name()) == Some(block))
        .collect();
    let last = members.iter().copied().find(|&entry| is_last_matrix(registry.entries[entry].name()));
    let Some(last) = last else { return Ok(0) };
    let now = ffn_granularity(&registry.entries[last].current.info.ty);
    let loaded = ffn_granularity(&registry.entries[last].original.info.ty);
    for &member in &members {
        let entry = &mut registry.entries[member];
        if swapped.contains(&member) && entry.current != entry.original {
            entry.cut = Some(now);
        }
        let away = entry.weights.iter().any(|weight| weight.seat() == Seat::FallbackCpu);
        if entry.cut.unwrap_or(loaded) == now && !away {
            continue;
        }
        if entry.current == entry.original && now == loaded {
            entry.weights.iter_mut().for_each(|weight| weight.restore(context));
            entry.cut = None;
        } else {
            move_all(entry, context, Weight::put)?;
            entry.cut = Some(now);
        }
        moved += usize::from(!swapped.contains(&member));
    }
    // If a device has no room for one of them, it gets none.
    let fallen = |entry: &Entry| entry.weights.iter().any(|weight| weight.seat() == Seat::FallbackCpu);
    if members.iter().any(|&member| fallen(&registry.entries[member])) {
        for &member in &members {
            let entry = &mut registry.entries[member];
            if !fallen(entry) {
                move_all(entry, context, Weight::put_on_host)?;
                moved += usize::from(!swapped.contains(&member));
                entry.cut = Some(now);
            }
        }
    }
    Ok(moved)
}

/// A weight that could not be sliced again.
pub struct LeftBehind {
    pub tensor: String,
    pub source: std::io::Error,
}

/// Moves the tensor's weights with their current bytes.
fn move_all(
    entry: &mut Entry,
    context: &mut Context,
    mut place: impl FnMut(&mut Weight, &mut Context, DataType, terrace_ggml::memory::Pages),
) -> Result<(), LeftBehind> {
    for weight in &mut entry.weights {
        let tensor = || entry.original.info.name.clone();
        let bytes = weight.fetch().map_err(|source| LeftBehind { tensor: tensor(), source })?;
        let ty = weight.ty();
        place(weight, context, ty, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_block_are_known_by_their_roles() {
        assert_eq!(block_of("blk.3.ffn_down_exps.weight"), Some("blk.3."));
        assert_eq!(block_of("blk.12.ffn_gate.weight"), Some("blk.12."));
        assert_eq!(block_of("blk.12.ffn_up_exps.bias"), Some("blk.12."));
        assert_eq!(block_of("blk.12.ffn_gate_inp.weight"), None);
        assert_eq!(block_of("blk.12.ffn_up_shexp.weight"), None);
        assert_eq!(block_of("blk.12.attn_q.weight"), None);
    }
}
