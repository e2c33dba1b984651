//! How and where a tensor is stored, separate from the tensor.

use crate::cxx::copies;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ffi::c_void;
use std::ptr::NonNull;

/// The fields of a tensor that determine how and where it is stored.
#[derive(Clone, Copy)]
pub struct Stored {
    pub ty: sys::ggml_type,
    pub nb: [usize; 4],
    pub data: *mut c_void,
    pub buffer: *mut sys::ggml_backend_buffer,
    pub extra: *mut c_void,
}

impl Stored {
    /// Reads how a tensor is stored.
    ///
    /// # Safety
    /// The tensor is alive and not written to during the call.
    pub unsafe fn of(tensor: NonNull<sys::ggml_tensor>) -> Self {
        // SAFETY: as the caller says.
        let tensor = unsafe { tensor.as_ref() };
        let sys::ggml_tensor { type_: ty, nb, data, buffer, extra, .. } = *tensor;
        Self { ty, nb, data, buffer, extra }
    }

    /// Sets how a tensor is stored.
    ///
    /// # Safety
    /// The tensor is alive, and nothing else accesses it.
    pub unsafe fn write_to(&self, tensor: *mut sys::ggml_tensor) {
        // SAFETY: as the caller says.
        unsafe {
            (*tensor).type_ = self.ty;
            (*tensor).nb = self.nb;
            (*tensor).data = self.data;
            (*tensor).buffer = self.buffer;
            (*tensor).extra = self.extra;
        }
    }

    /// The same place with another type, in rows without gaps.
    pub fn retyped(self, ty: DataType, ne: [i64; 4]) -> Self {
        // SAFETY: table look-ups by a valid type.
        let (size, row) = unsafe { (sys::ggml_type_size(ty.0), sys::ggml_row_size(ty.0, ne[0])) };
        let [_, rows, matrices, _] = ne.map(|n| usize::try_from(n).expect("dimensions are not negative"));
        Self { ty: ty.0, nb: [size, row, row * rows, row * rows * matrices], ..self }
    }
}

/// Whether the tensor's bytes from `offset` on equal `bytes`; false if it has fewer.
///
/// # Safety
/// The tensor is in a live buffer, and nothing is being computed.
pub unsafe fn is_stored(tensor: &sys::ggml_tensor, offset: usize, bytes: &[u8]) -> bool {
    const PART: usize = 4 << 20;
    // SAFETY: a live tensor.
    let len = unsafe { sys::ggml_nbytes(tensor) };
    if offset.checked_add(bytes.len()).is_none_or(|end| end > len) {
        return false;
    }
    let mut part = vec![0; bytes.len().min(PART)];
    bytes.chunks(PART).enumerate().all(|(i, expected)| {
        let own = &mut part[..expected.len()];
        // SAFETY: offset and length lie within the tensor; `own` has the same length.
        unsafe { copies::get(tensor, offset + i * PART, own) }.is_ok() && own == expected
    })
}
