//! Types that weights can be stored in.

use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use terrace_model::TensorType;

/// A type that weights can be stored in and that [`quantize`](crate::quantize::quantize) can
/// produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightType(sys::ggml_type);

macro_rules! weight_types {
    ($($name:ident = $ggml:ident),* $(,)?) => {
        impl WeightType {
            $(pub const $name: Self = Self(sys::$ggml);)*
            /// Every type that [`quantize`](crate::quantize::quantize) can produce.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

weight_types! {
    F32 = GGML_TYPE_F32, F16 = GGML_TYPE_F16, BF16 = GGML_TYPE_BF16,
    Q4_0 = GGML_TYPE_Q4_0, Q4_1 = GGML_TYPE_Q4_1, Q5_0 = GGML_TYPE_Q5_0, Q5_1 = GGML_TYPE_Q5_1,
    Q8_0 = GGML_TYPE_Q8_0, MXFP4 = GGML_TYPE_MXFP4, NVFP4 = GGML_TYPE_NVFP4,
    Q1_0 = GGML_TYPE_Q1_0, Q2_0 = GGML_TYPE_Q2_0,
    Q2_K = GGML_TYPE_Q2_K, Q3_K = GGML_TYPE_Q3_K, Q4_K = GGML_TYPE_Q4_K, Q5_K = GGML_TYPE_Q5_K,
    Q6_K = GGML_TYPE_Q6_K, TQ1_0 = GGML_TYPE_TQ1_0, TQ2_0 = GGML_TYPE_TQ2_0,
    IQ1_S = GGML_TYPE_IQ1_S, IQ1_M = GGML_TYPE_IQ1_M, IQ2_XXS = GGML_TYPE_IQ2_XXS,
    IQ2_XS = GGML_TYPE_IQ2_XS, IQ2_S = GGML_TYPE_IQ2_S, IQ3_XXS = GGML_TYPE_IQ3_XXS,
    IQ3_S = GGML_TYPE_IQ3_S, IQ4_NL = GGML_TYPE_IQ4_NL, IQ4_XS = GGML_TYPE_IQ4_XS,
}

impl WeightType {
    /// The type with ggml's number, if [`quantize`](crate::quantize::quantize) can produce it.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.0 == id)
    }

    /// The type with ggml's name, upper or lower case (`q4_K`, `Q4_K`, `f16`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// ggml's number of the type.
    pub const fn id(self) -> u32 {
        self.0
    }

    pub(crate) const fn raw(self) -> sys::ggml_type {
        self.0
    }

    /// ggml's name of the type.
    pub fn name(self) -> &'static str {
        // SAFETY: `self.0` is one of ggml's constants, for which the table holds a static C string.
        let name = unsafe { CStr::from_ptr(sys::ggml_type_name(self.0)) };
        name.to_str().expect("ggml's type names are ASCII")
    }

    /// Elements in a block.
    pub fn block_elements(self) -> u64 {
        // SAFETY: a table look-up by a constant that is in range.
        let elements = unsafe { sys::ggml_blck_size(self.0) };
        elements.try_into().expect("block sizes are small and positive")
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> u64 {
        // SAFETY: a table look-up by a constant that is in range.
        let bytes = unsafe { sys::ggml_type_size(self.0) };
        bytes as u64
    }

    /// Bytes of a row of `elements`; `None` if the row is not a whole number of blocks or has 2^64
    /// bytes or more.
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        let block = self.block_elements();
        if !elements.is_multiple_of(block) {
            return None;
        }
        (elements / block).checked_mul(self.block_bytes())
    }

    /// Returns true if [`quantize`](crate::quantize::quantize) requires an importance value per column.
    pub fn needs_importance(self) -> bool {
        // SAFETY: a comparison of the number with constants.
        unsafe { sys::ggml_quantize_requires_imatrix(self.0) }
    }

    /// Returns true if llama.cpp's quantiser refuses this type for most tensors without importance values,
    /// because the result would be garbage.
    pub fn wants_importance(self) -> bool {
        let poor = [Self::IQ3_XXS, Self::IQ2_XXS, Self::IQ2_XS, Self::IQ2_S, Self::IQ1_M, Self::IQ1_S];
        poor.contains(&self) || self.needs_importance()
    }

    /// Returns true if elements are stored in blocks with scales instead of as floats.
    pub fn is_quantized(self) -> bool {
        // SAFETY: a table look-up by a constant that is in range.
        unsafe { sys::ggml_is_quantized(self.0) }
    }

    /// The type's description as plain data.
    pub fn describe(self) -> TensorType {
        TensorType {
            id: self.0,
            name: self.name().to_owned(),
            block_elements: self.block_elements().try_into().expect("block sizes are small"),
            block_bytes: self.block_bytes().try_into().expect("block sizes are small"),
        }
    }
}
