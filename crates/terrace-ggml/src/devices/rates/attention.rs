//! Measures attention.

use super::error::RatesError;
use super::pass::{Pass, Run, keep, set};
use super::processor::Processor;
use crate::raw::scratch::ScratchContext;
use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::time::Duration;

/// Attention of one token over a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Type of keys and values.
    pub ty: WeightType,
    pub heads: u64,
    pub kv_heads: u64,
    /// Values of a query, a key and a value.
    pub length: u64,
    pub positions: u64,
}

impl Attention {
    /// Bytes of keys and values; `None` if the type has no such rows.
    pub fn bytes(&self) -> Option<u64> {
        self.ty.row_bytes(self.length)?.checked_mul(self.kv_heads * self.positions * 2)
    }
}

impl Processor {
    /// Times attention over caches that together are most of the weights, for about `time` and at least twice. `None`
    /// if not even one such cache fits, or the device does not support it.
    ///
    /// # Errors
    /// If there is no memory for the results, or the device fails.
    pub fn attention(&mut self, attention: &Attention, time: Duration) -> Result<Option<Pass>, RatesError> {
        let Some(bytes) = attention.bytes().filter(|&bytes| bytes > 0) else { return Ok(None) };
        let step = (bytes / 2).next_multiple_of(512);
        let count = self.bytes / (2 * step);
        let tensors = usize::try_from(count).unwrap_or(0) * 5 + 1;
        let context = ScratchContext::new(tensors);
        let signed = |n: u64| i64::try_from(n).expect("a dimension");
        let Attention { ty, heads, kv_heads, length, positions } = *attention;
        let scale = 1.0 / (length as f32).sqrt();
        // SAFETY: the context has room for these tensors, whose shapes agree as FLASH_ATTN_EXT wants them.
        let (queries, nodes) = unsafe {
            let c = context.raw();
            let queries =
                keep(sys::ggml_new_tensor_3d(c, sys::GGML_TYPE_F32, signed(length), 1, signed(heads)));
            let mut nodes = Vec::new();
            for index in 0..count {
                // As llama.cpp keeps them: all heads of a position lie side by side.
                let rows = || {
                    sys::ggml_new_tensor_3d(c, ty.raw(), signed(length), signed(kv_heads), signed(positions))
                };
                let (keys, values) = (rows(), rows());
                if !self.place(keys, 2 * index * step) || !self.place(values, (2 * index + 1) * step) {
                    break;
                }
                let keys = sys::ggml_permute(c, keys, 0, 2, 1, 3);
                let values = sys::ggml_permute(c, values, 0, 2, 1, 3);
                let none = std::ptr::null_mut();
                nodes.push(sys::ggml_flash_attn_ext(c, queries, keys, values, none, scale, 0.0, 0.0));
            }
            (queries, nodes)
        };
        if nodes.is_empty() {
            return Ok(None);
        }
        let Some(run) = Run::new(self, &context, &nodes, tensors)? else { return Ok(None) };
        let values: Vec<f32> = (0..length * heads).map(|i| (i % 61) as f32 / 61.0 - 0.5).collect();
        // SAFETY: it has memory by now, of this shape.
        unsafe { set(queries, &values) };
        let seconds = run.time(self, time)?;
        let nodes = nodes.len() as u64;
        Ok(Some(Pass { bytes: bytes * nodes, flops: 4 * length * heads * positions * nodes, seconds }))
    }
}
