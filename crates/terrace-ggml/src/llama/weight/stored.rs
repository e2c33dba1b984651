//! Type and place of a tensor's bytes, separate from the tensor.

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

/// Reads bytes from an offset on into a slice.
pub type ReadAt<'a, E> = dyn FnMut(usize, &mut [u8]) -> Result<(), E> + 'a;

/// Bytes that are compared at once.
const PART: usize = 4 << 20;

/// True if the tensor's bytes are those that `read` writes into parts of its argument, given the offset of
/// the part; false if the tensor does not have `len` bytes. If `whole`, the tensor is fetched at once: a
/// tensor of which several devices hold slices can be read in whole matrices only.
///
/// # Errors
/// Errors of `read`.
///
/// # Safety
/// The tensor is the model's own, in a live buffer, and nothing is being computed. It must not be a copy:
/// ggml knows slices by the address of the tensor that they are slices of.
pub unsafe fn is_stored<E>(
    tensor: *const sys::ggml_tensor,
    (len, whole): (usize, bool),
    read: &mut ReadAt<'_, E>,
) -> Result<bool, E> {
    // SAFETY: a live tensor.
    if unsafe { sys::ggml_nbytes(tensor) } != len {
        return Ok(false);
    }
    let mut expected = vec![0; len.min(PART)];
    let fetched = if whole { len } else { PART };
    let mut own = Vec::new();
    for from in (0..len).step_by(fetched.max(1)) {
        let size = fetched.min(len - from);
        // Without memory for it, the tensor counts as another one.
        if own.try_reserve_exact(size.saturating_sub(own.len())).is_err() {
            return Ok(false);
        }
        own.resize(size, 0);
        // SAFETY: offset and length lie within the tensor; `own` has the same length.
        if unsafe { copies::get(tensor, from, &mut own) }.is_err() {
            return Ok(false);
        }
        for (offset, own) in (from..).step_by(PART).zip(own.chunks(PART)) {
            let expected = &mut expected[..own.len()];
            read(offset, expected)?;
            if own != expected {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
