//! Measures matrix products.

use super::error::RatesError;
use super::pass::Pass;
use super::pass::{Run, keep, set};
use super::processor::Processor;
use crate::raw::scratch::ScratchContext;
use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::time::Duration;
use terrace_model::ByteSize;

/// Products with matrices of one type and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub ty: WeightType,
    /// Rows of a matrix (outputs).
    pub rows: u64,
    /// Columns of a matrix (inputs); whole blocks of the type.
    pub cols: u64,
    /// Tokens that are multiplied together.
    pub tokens: u32,
    /// Experts of a `MUL_MAT_ID`, each used by every token; `None` means a `MUL_MAT`.
    pub experts: Option<u32>,
}

impl Product {
    /// Bytes of the matrices of one node; `None` if the type has no such rows.
    pub fn bytes(&self) -> Option<u64> {
        let matrices = u64::from(self.experts.unwrap_or(1));
        self.ty.row_bytes(self.cols)?.checked_mul(self.rows)?.checked_mul(matrices)
    }
}

impl Processor {
    /// Times products that together go through at most `span` of the weights, for about `time` and
    /// at least twice. `None` if not even one such product fits, or the device does not support it.
    ///
    /// # Errors
    /// If there is no memory for the results, or the device fails.
    pub fn product(
        &mut self,
        product: &Product,
        span: ByteSize,
        time: Duration,
    ) -> Result<Option<Pass>, RatesError> {
        let Some(bytes) = product.bytes().filter(|&bytes| bytes > 0 && product.tokens > 0) else {
            return Ok(None);
        };
        // Multiples of an alignment that suits every device.
        let step = bytes.next_multiple_of(512);
        let count = span.bytes().min(self.bytes) / step;
        let matrices = u64::from(product.experts.unwrap_or(1));
        let tensors = usize::try_from(count).unwrap_or(0) * 2 + 2;
        let context = ScratchContext::new(tensors);
        let signed = |n: u64| i64::try_from(n).expect("a matrix's dimension");
        let (cols, rows) = (signed(product.cols), signed(product.rows));
        let (used, tokens) = (signed(matrices), i64::from(product.tokens));
        // SAFETY: the context has room for these tensors; shapes agree as MUL_MAT and MUL_MAT_ID
        // want them.
        let (input, ids, nodes) = unsafe {
            let input = keep(match product.experts {
                None => sys::ggml_new_tensor_2d(context.raw(), sys::GGML_TYPE_F32, cols, tokens),
                Some(_) => sys::ggml_new_tensor_3d(context.raw(), sys::GGML_TYPE_F32, cols, 1, tokens),
            });
            let ids = keep(sys::ggml_new_tensor_2d(context.raw(), sys::GGML_TYPE_I32, used, tokens));
            let mut nodes = Vec::new();
            for index in 0..count {
                let weights = sys::ggml_new_tensor_3d(context.raw(), product.ty.raw(), cols, rows, used);
                if !self.place(weights, index * step) {
                    break;
                }
                nodes.push(match product.experts {
                    None => sys::ggml_mul_mat(context.raw(), weights, input),
                    Some(_) => sys::ggml_mul_mat_id(context.raw(), weights, input, ids),
                });
            }
            (input, ids, nodes)
        };
        if nodes.is_empty() {
            return Ok(None);
        }
        let Some(run) = Run::new(self, &context, &nodes, tensors)? else { return Ok(None) };
        let values: Vec<f32> =
            (0..product.cols * u64::from(product.tokens)).map(|i| (i % 61) as f32 / 61.0 - 0.5).collect();
        // SAFETY: both have memory by now (ids only where the graph has them), of these shapes.
        unsafe {
            set(input, &values);
            if product.experts.is_some() {
                let chosen: Vec<i32> = (0..product.tokens)
                    .flat_map(|_| 0..i32::try_from(matrices).expect("from a u32"))
                    .collect();
                set(ids, &chosen);
            }
        }
        let seconds = run.time(self, time)?;
        let nodes = nodes.len() as u64;
        let weights = product.rows * product.cols * matrices * nodes;
        Ok(Some(Pass { bytes: bytes * nodes, flops: 2 * weights * u64::from(product.tokens), seconds }))
    }
}
