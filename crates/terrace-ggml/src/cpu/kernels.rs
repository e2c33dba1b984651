//! Dot products and conversions of single rows.

use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};

/// A type's dot product and conversions, as ggml's CPU kernels use them.
#[derive(Clone, Copy)]
pub struct Kernels {
    vec_dot: unsafe extern "C" fn(c_int, *mut f32, usize, *const c_void, usize, *const c_void, usize, c_int),
    activation: DataType,
    /// `None` if activations stay F32.
    from_float: Option<unsafe extern "C" fn(*const f32, *mut c_void, i64)>,
    activation_block: (usize, usize),
}

impl Kernels {
    /// The kernels for weights of type `ty`; `None` if ggml cannot multiply by it.
    pub fn of(ty: DataType) -> Option<Self> {
        // SAFETY: both tables are static and indexed by a valid type (DataType's invariant). What
        // the kernels look up, 16-bit floats among it, is filled in by the first call of
        // ggml_cpu_init, and it may be called again.
        unsafe {
            sys::ggml_cpu_init();
            let weight = &*sys::ggml_get_type_traits_cpu(ty.0);
            let activation = DataType(weight.vec_dot_type);
            let plain = &*sys::ggml_get_type_traits(activation.0);
            let convert = &*sys::ggml_get_type_traits_cpu(activation.0);
            Some(Self {
                vec_dot: weight.vec_dot?,
                activation,
                from_float: convert.from_float,
                activation_block: (usize::try_from(plain.blck_size).ok()?, plain.type_size),
            })
        }
    }

    /// The type that activations are converted to before the dot product.
    pub fn activation_type(&self) -> DataType {
        self.activation
    }

    /// Bytes of `n` activations in that type.
    pub fn activation_bytes(&self, n: usize) -> usize {
        n / self.activation_block.0 * self.activation_block.1
    }

    /// Elements per block of activations.
    pub fn activation_block(&self) -> usize {
        self.activation_block.0
    }

    /// Converts `n` floats (a multiple of the block) to the activation type.
    ///
    /// # Safety
    /// `from` is valid for `n` floats, `to` for `activation_bytes(n)` bytes, and they do not
    /// overlap.
    pub unsafe fn convert(&self, from: *const f32, to: *mut c_void, n: usize) {
        let n = i64::try_from(n).expect("a row's length");
        match self.from_float {
            // SAFETY: the caller's contract is from_float's.
            Some(convert) => unsafe { convert(from, to, n) },
            // SAFETY: only F32 has no from_float: a plain copy.
            None => unsafe {
                std::ptr::copy_nonoverlapping(from, to.cast::<f32>(), n.unsigned_abs() as usize)
            },
        }
    }

    /// Dot product of one weight row and one converted activation row of `n` elements.
    ///
    /// # Safety
    /// `weights` and `activations` are valid for rows of `n` elements in their types.
    pub unsafe fn dot(&self, n: c_int, weights: *const c_void, activations: *const c_void) -> f32 {
        let mut sum = 0.0f32;
        // SAFETY: the caller's contract; one row each, strides unused (nrc = 1), as ggml's
        // MUL_MAT_ID calls it.
        unsafe { (self.vec_dot)(n, &raw mut sum, 0, weights, 0, activations, 0, 1) };
        sum
    }
}

/// Converts rows of weights to floats, as GET_ROWS does.
#[derive(Clone, Copy)]
pub struct ToFloat(Option<unsafe extern "C" fn(*const c_void, *mut f32, i64)>);

impl ToFloat {
    /// The conversion for type `ty`; `None` if ggml has none.
    pub fn of(ty: DataType) -> Option<Self> {
        if ty == DataType::F32 {
            return Some(Self(None));
        }
        // SAFETY: the table is static and indexed by a valid type (DataType's invariant).
        unsafe { (*sys::ggml_get_type_traits(ty.0)).to_float }.map(|f| Self(Some(f)))
    }

    /// Converts `n` elements.
    ///
    /// # Safety
    /// `from` is valid for `n` elements of the type, `to` for `n` floats; they do not overlap.
    pub unsafe fn convert(self, from: *const c_void, to: *mut f32, n: usize) {
        match self.0 {
            // SAFETY: the caller's contract.
            Some(convert) => unsafe { convert(from, to, i64::try_from(n).expect("a row's length")) },
            // SAFETY: the caller's contract; F32 to F32.
            None => unsafe { std::ptr::copy_nonoverlapping(from.cast::<f32>(), to, n) },
        }
    }
}
