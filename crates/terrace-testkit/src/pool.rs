//! Pools of quantised blocks, from which large files are assembled without quantising all weights.

use crate::error::Error;
use crate::fill::{encode, quiet_rows, table_row, topics};
use crate::random::{hash, stream};
use crate::spec::Spec;
use crate::tensor::{Fill, Tensor};
use crate::vocab::Vocabulary;
use rand_distr::{Distribution, StandardNormal};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use terrace_ggml::quantize::WeightType;

/// Weights in a pool of matrix blocks: a few MB, made in a fraction of a second.
const MATRIX_WEIGHTS: usize = 1 << 22;
/// Weights in a pool of table rows. There are more of these, because tokens with equal rows are
/// equal to the model, and greedy text would repeat itself.
const TABLE_WEIGHTS: u64 = 1 << 25;

/// Matrices of the same type and standard deviation share a pool.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Key {
    ty: WeightType,
    std_bits: u32,
}

/// Blocks for a model's matrices.
#[derive(Default)]
pub(crate) struct Pools {
    matrices: HashMap<Key, Vec<u8>>,
}

impl Pools {
    /// Writes a tensor with bytes from pools; `None` if its values must be made one by one.
    pub fn write(
        &mut self,
        spec: &Spec,
        tensor: &Tensor,
        out: &mut impl Write,
    ) -> Result<Option<io::Result<()>>, Error> {
        match tensor.fill {
            _ if tensor.ty == WeightType::F32 => Ok(None),
            Fill::Normal { mean: 0.0, std } | Fill::Residual { std } => {
                let key = Key { ty: tensor.ty, std_bits: std.to_bits() };
                let pool = match self.matrices.entry(key) {
                    Entry::Occupied(pool) => pool.into_mut(),
                    Entry::Vacant(place) => place.insert(matrix_pool(spec, tensor, std)?),
                };
                Ok(Some(write_matrix(spec, tensor, pool, out)))
            }
            Fill::Embedding { .. } | Fill::Output { .. } => {
                let pool = table_pool(spec, tensor)?;
                Ok(Some(write_table(spec, tensor, &pool, out)))
            }
            _ => Ok(None),
        }
    }
}

fn matrix_pool(spec: &Spec, tensor: &Tensor, std: f32) -> Result<Vec<u8>, Error> {
    let row = tensor.row();
    let rows = (MATRIX_WEIGHTS / row).max(1);
    let mut rng = stream(spec.seed, &format!("pool {}", tensor.ty.name()), u64::from(std.to_bits()));
    let values: Vec<f32> =
        StandardNormal.sample_iter(&mut rng).take(rows * row).map(|x: f32| std * x).collect();
    encode(&tensor.name, tensor.ty, &values, row)
}

/// Writes a matrix. Every slice starts elsewhere in the pool, so no two experts of a tensor are
/// equal.
fn write_matrix(spec: &Spec, tensor: &Tensor, pool: &[u8], out: &mut impl Write) -> io::Result<()> {
    let block = tensor.ty.block_bytes() as usize;
    let blocks = pool.len() / block;
    let base = hash(&tensor.name, spec.seed) as usize % blocks;
    let mut stride = blocks * 5 / 8;
    while gcd(stride, blocks) != 1 {
        stride += 1;
    }
    let row_bytes = tensor.row_bytes() as usize;
    let quiet = quiet_rows(spec, tensor) * row_bytes;
    let zeros = vec![0u8; quiet];
    let slice = row_bytes * tensor.slice_rows();
    for index in 0..tensor.slices() {
        out.write_all(&zeros)?;
        let mut left = slice - quiet;
        let mut at = (base + index * stride) % blocks * block;
        while left > 0 {
            let len = left.min(pool.len() - at);
            out.write_all(&pool[at..at + len])?;
            left -= len;
            at = 0;
        }
    }
    Ok(())
}

/// Makes rows for each topic, one topic after another.
fn table_pool(spec: &Spec, tensor: &Tensor) -> Result<Vec<u8>, Error> {
    let rows = (TABLE_WEIGHTS / tensor.shape.0[0]).min(u64::from(spec.vocab));
    let each = (rows / topics(spec)).max(1);
    let mut bytes = Vec::new();
    for topic in 0..topics(spec) {
        let keys = topic * each..(topic + 1) * each;
        let values: Vec<f32> = keys.flat_map(|key| table_row(spec, tensor, key, topic)).collect();
        bytes.extend(encode(&tensor.name, tensor.ty, &values, tensor.row())?);
    }
    Ok(bytes)
}

fn write_table(spec: &Spec, tensor: &Tensor, pool: &[u8], out: &mut impl Write) -> io::Result<()> {
    let row = tensor.row_bytes() as usize;
    let topics = topics(spec);
    let each = pool.len() / row / topics as usize;
    let zeros = vec![0u8; row];
    for token in 0..tensor.slice_rows() as u64 {
        if matches!(tensor.fill, Fill::Output { .. }) && Vocabulary::is_control(token) {
            out.write_all(&zeros)?;
            continue;
        }
        // Embeddings and head choose the same row: these belong together.
        let within = hash("row", token) as usize % each;
        let at = ((token % topics) as usize * each + within) * row;
        out.write_all(&pool[at..at + row])?;
    }
    Ok(())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
