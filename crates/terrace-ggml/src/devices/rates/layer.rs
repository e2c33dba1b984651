//! Measures the time of a layer apart from reading its weights.

use super::error::RatesError;
use super::pass::{Run, keep, set};
use super::processor::Processor;
use crate::raw::scratch::ScratchContext;
use llama_cpp_sys_2 as sys;
use std::ptr::null_mut;
use std::time::Duration;

/// Elements of a row, so few that only starting and joining the nodes takes time.
const WIDTH: i64 = 64;
/// Elements of one attention head; two of them make the width.
const HEAD: i64 = WIDTH / 2;
/// Tokens that attention looks back at.
const PAST: i64 = 32;
/// Layers of the longer and of the shorter graph. Their difference excludes the start of a graph.
const LAYERS: [usize; 2] = [18, 2];
/// Upper bound for the tensors of a layer.
const TENSORS: usize = 48;

impl Processor {
    /// Seconds that the nodes of a layer take for one token when there is nothing to read:
    /// attention and a gated feed-forward network on tensors of some hundred bytes. 0 if the device
    /// cannot compute them.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub fn layer_overhead(&mut self, time: Duration) -> Result<f64, RatesError> {
        let [many, few] = LAYERS;
        let (Some(long), Some(short)) = (self.layers(many, time / 2)?, self.layers(few, time / 2)?) else {
            return Ok(0.0);
        };
        // On a busy machine the short graph may have taken longer.
        Ok(((long - short) / (many - few) as f64).max(long / many as f64 / 8.0))
    }

    /// Seconds for a graph of `count` layers.
    fn layers(&mut self, count: usize, time: Duration) -> Result<Option<f64>, RatesError> {
        let tensors = count * TENSORS + 16;
        let context = ScratchContext::new(tensors);
        let c = context.raw();
        // SAFETY: the context has room for these tensors (TENSORS for each layer), and shapes agree
        // as ggml wants them.
        unsafe {
            let weight = |rows: i64| {
                let tensor = sys::ggml_new_tensor_2d(c, sys::GGML_TYPE_F32, WIDTH, rows);
                self.place(tensor, 0).then_some(tensor)
            };
            let (Some(square), Some(row)) = (weight(WIDTH), weight(1)) else { return Ok(None) };
            let mut hidden = keep(sys::ggml_new_tensor_2d(c, sys::GGML_TYPE_F32, WIDTH, 1));
            let position = keep(sys::ggml_new_tensor_1d(c, sys::GGML_TYPE_I32, 1));
            let cache = |kind| keep(sys::ggml_new_tensor_3d(c, kind, HEAD, PAST, 2));
            let (keys, values) = (cache(sys::GGML_TYPE_F16), cache(sys::GGML_TYPE_F16));
            let first = hidden;
            let mut nodes = Vec::with_capacity(2 * count + 1);
            for _ in 0..count {
                let normed = sys::ggml_mul(c, sys::ggml_rms_norm(c, hidden, 1e-5), row);
                let heads = |tensor| sys::ggml_reshape_3d(c, tensor, HEAD, 2, 1);
                let turned = |tensor| {
                    let head = i32::try_from(HEAD).expect("a small constant");
                    sys::ggml_rope_ext(
                        c,
                        tensor,
                        position,
                        null_mut(),
                        head,
                        0,
                        0,
                        1e4,
                        1.0,
                        0.0,
                        1.0,
                        32.0,
                        1.0,
                    )
                };
                let query = turned(heads(sys::ggml_mul_mat(c, square, normed)));
                let key = turned(heads(sys::ggml_mul_mat(c, square, normed)));
                let value = heads(sys::ggml_mul_mat(c, square, normed));
                // The new row of the caches.
                let into = |cache: *mut sys::ggml_tensor, tensor| {
                    let (head, past) = ((*cache).nb[2], (*cache).nb[1]);
                    let slot = sys::ggml_view_3d(c, cache, HEAD, 2, 1, head, past, 0);
                    sys::ggml_cpy(c, tensor, slot)
                };
                nodes.extend([into(keys, key), into(values, value)]);
                let query = sys::ggml_permute(c, query, 0, 2, 1, 3);
                let attended = sys::ggml_flash_attn_ext(c, query, keys, values, null_mut(), 1.0, 0.0, 0.0);
                let attended = sys::ggml_reshape_2d(c, attended, WIDTH, 1);
                let joined = sys::ggml_mul_mat(c, square, attended);
                let after = sys::ggml_add(c, joined, hidden);
                let normed = sys::ggml_mul(c, sys::ggml_rms_norm(c, after, 1e-5), row);
                let gate = sys::ggml_mul_mat(c, square, normed);
                let up = sys::ggml_mul_mat(c, square, normed);
                let down = sys::ggml_mul_mat(c, square, sys::ggml_swiglu_split(c, gate, up));
                hidden = sys::ggml_add(c, down, after);
            }
            nodes.push(hidden);
            let Some(run) = Run::new(self, &context, &nodes, tensors)? else { return Ok(None) };
            set(first, &[0.5f32; WIDTH as usize]);
            set(position, &[7i32]);
            let zeros = [0u16; (HEAD * PAST * 2) as usize];
            set(keys, &zeros);
            set(values, &zeros);
            run.time(self, time).map(Some)
        }
    }
}
