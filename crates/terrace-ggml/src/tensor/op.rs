//! Operations of ggml's graph language.

use llama_cpp_sys_2 as sys;
use std::ffi::CStr;

/// An operation of ggml's graph language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(pub(crate) sys::ggml_op);

impl Op {
    /// No operation: the node is skipped.
    pub const NONE: Self = Self(sys::GGML_OP_NONE);
    /// `dst = src0ᵀ · src1`.
    pub const MUL_MAT: Self = Self(sys::GGML_OP_MUL_MAT);
    /// `dst = src0ᵀ · src1` with a matrix per row, chosen by ids (`src2`).
    pub const MUL_MAT_ID: Self = Self(sys::GGML_OP_MUL_MAT_ID);
    /// Rows of `src0` at the indices in `src1`, as F32.
    pub const GET_ROWS: Self = Self(sys::GGML_OP_GET_ROWS);
    /// Sum, with rows or elements repeated where `src1` is smaller.
    pub const ADD: Self = Self(sys::GGML_OP_ADD);
    /// Rows divided by their root mean square.
    pub const RMS_NORM: Self = Self(sys::GGML_OP_RMS_NORM);
    /// Softmax.
    pub const SOFT_MAX: Self = Self(sys::GGML_OP_SOFT_MAX);
    /// A gated activation (SwiGLU and the like).
    pub const GLU: Self = Self(sys::GGML_OP_GLU);
    /// An activation (SiLU, GELU and the like).
    pub const UNARY: Self = Self(sys::GGML_OP_UNARY);
    /// Element-wise square.
    pub const SQR: Self = Self(sys::GGML_OP_SQR);
    /// Element-wise limits.
    pub const CLAMP: Self = Self(sys::GGML_OP_CLAMP);
    /// Product with a constant.
    pub const SCALE: Self = Self(sys::GGML_OP_SCALE);
    /// Element-wise product.
    pub const MUL: Self = Self(sys::GGML_OP_MUL);
    /// Sum with the row of `src1` that an id (`src2`) selects: an expert's bias.
    pub const ADD_ID: Self = Self(sys::GGML_OP_ADD_ID);
    /// A custom function, run on all threads.
    pub const CUSTOM: Self = Self(sys::GGML_OP_CUSTOM);

    /// Whether the node computes nothing (views, reshapes and the like).
    pub const fn is_view(self) -> bool {
        matches!(
            self.0,
            sys::GGML_OP_NONE
                | sys::GGML_OP_RESHAPE
                | sys::GGML_OP_VIEW
                | sys::GGML_OP_PERMUTE
                | sys::GGML_OP_TRANSPOSE
        )
    }

    /// ggml's name of the operation.
    pub fn name(self) -> &'static str {
        // SAFETY: any value that ggml puts into a node's `op` is below GGML_OP_COUNT, and the names
        // are static strings.
        unsafe { CStr::from_ptr(sys::ggml_op_name(self.0)) }.to_str().unwrap_or("?")
    }
}
