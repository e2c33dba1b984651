//! Storage of elements.

use llama_cpp_sys_2 as sys;

/// The type in which elements are stored, by ggml's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType(pub(crate) sys::ggml_type);

impl DataType {
    /// 32-bit floats.
    pub const F32: Self = Self(sys::GGML_TYPE_F32);
    /// 32-bit integers, the type of ids.
    pub const I32: Self = Self(sys::GGML_TYPE_I32);
    /// IEEE binary16.
    pub const F16: Self = Self(sys::GGML_TYPE_F16);
    /// bfloat16.
    pub const BF16: Self = Self(sys::GGML_TYPE_BF16);
    /// Blocks of 32 nibbles with a scale.
    pub const Q4_0: Self = Self(sys::GGML_TYPE_Q4_0);
    /// Blocks of 32 nibbles with a scale and a minimum.
    pub const Q4_1: Self = Self(sys::GGML_TYPE_Q4_1);
    /// Blocks of 32 numbers of 5 bits with a scale.
    pub const Q5_0: Self = Self(sys::GGML_TYPE_Q5_0);
    /// Blocks of 32 numbers of 5 bits with a scale and a minimum.
    pub const Q5_1: Self = Self(sys::GGML_TYPE_Q5_1);
    /// Blocks of 32 bytes with a scale.
    pub const Q8_0: Self = Self(sys::GGML_TYPE_Q8_0);
    /// Blocks of 32 indices into a table, with a scale.
    pub const IQ4_NL: Self = Self(sys::GGML_TYPE_IQ4_NL);
    /// K-quants of about 2.6 bits.
    pub const Q2_K: Self = Self(sys::GGML_TYPE_Q2_K);
    /// K-quants of about 3.4 bits.
    pub const Q3_K: Self = Self(sys::GGML_TYPE_Q3_K);
    /// K-quants of about 4.5 bits.
    pub const Q4_K: Self = Self(sys::GGML_TYPE_Q4_K);
    /// K-quants of about 5.5 bits.
    pub const Q5_K: Self = Self(sys::GGML_TYPE_Q5_K);
    /// K-quants of about 6.6 bits.
    pub const Q6_K: Self = Self(sys::GGML_TYPE_Q6_K);
    /// K-quant activations: 256 elements, 8 bits.
    pub const Q8_K: Self = Self(sys::GGML_TYPE_Q8_K);

    /// The type with ggml's number `id`, as used in GGUF files and [`terrace_model::TensorType`].
    pub fn from_id(id: u32) -> Option<Self> {
        (id < sys::GGML_TYPE_COUNT).then_some(Self(id))
    }

    /// Returns true if ggml computes up to seven columns of a product by the same dot products as one
    /// (`ggml_compute_forward_mul_mat`): no kernel of several columns (`llamafile/sgemm.cpp`), and no
    /// dot product of several rows.
    pub fn has_one_product(self) -> bool {
        let several = [
            sys::GGML_TYPE_F32,
            sys::GGML_TYPE_F16,
            sys::GGML_TYPE_BF16,
            sys::GGML_TYPE_Q8_0,
            sys::GGML_TYPE_Q4_0,
            sys::GGML_TYPE_Q5_0,
            sys::GGML_TYPE_IQ4_NL,
        ];
        // SAFETY: the table is static and indexed by a valid type.
        let rows = unsafe { (*sys::ggml_get_type_traits_cpu(self.0)).nrows };
        rows == 1 && !several.contains(&self.0)
    }

    /// Returns true if ggml's CPU backend multiplies by matrices of this type.
    pub fn is_multiplied(self) -> bool {
        // SAFETY: the table is static and indexed by a valid type.
        unsafe { (*sys::ggml_get_type_traits_cpu(self.0)).vec_dot }.is_some()
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        // SAFETY: a table look-up by a valid type.
        unsafe { sys::ggml_type_size(self.0) }
    }

    /// Elements of a block. A row consists of whole blocks.
    pub fn block_elements(self) -> u64 {
        // SAFETY: plain arithmetic over a valid type.
        unsafe { sys::ggml_blck_size(self.0) }.unsigned_abs()
    }
}
