//! Observing tensors of a graph during its computation.

use crate::backend::parked;
use crate::cxx::copies;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_void};

/// Is shown selected tensors of a context's graphs. ggml's scheduler cuts a graph after each
/// selected tensor; a context without an observer runs its graphs whole.
pub trait Observer: Send {
    /// True to show the tensor of this name. Called for every node of every graph.
    fn wants(&mut self, name: &[u8]) -> bool;

    /// Receives the values of a selected tensor: rows of `width` floats.
    fn computed(&mut self, name: &[u8], width: usize, rows: &[f32]);
}

/// An observer as llama.cpp's callback data. llama.cpp keeps its address.
pub struct Observing {
    observer: Box<dyn Observer>,
    /// Reused: the values being shown.
    rows: Vec<f32>,
}

impl Observing {
    /// Makes `observer` ready for llama.cpp.
    pub fn new(observer: Box<dyn Observer>) -> Self {
        Self { observer, rows: Vec::new() }
    }

    /// llama.cpp's callback: called with `ask` before the graph is cut, and again when the node is
    /// computed.
    ///
    /// # Safety
    /// `data` points to an `Observing` that nothing else uses; `tensor` is a live tensor, computed
    /// unless `ask`.
    pub unsafe extern "C" fn call(tensor: *mut sys::ggml_tensor, ask: bool, data: *mut c_void) -> bool {
        parked::guard("an observer", false, || {
            // SAFETY: the caller's contract; ggml zero-terminates names within the tensor.
            let (this, name, ty) = unsafe {
                let name = CStr::from_ptr((&raw const (*tensor).name).cast()).to_bytes();
                (&mut *data.cast::<Self>(), name, (*tensor).type_)
            };
            if ask {
                return ty == sys::GGML_TYPE_F32 && this.observer.wants(name);
            }
            // SAFETY: a computed F32 tensor, contiguous like the copy. All its bytes are read with
            // ggml's own function.
            let width = unsafe {
                if !sys::ggml_is_contiguous(tensor) {
                    return true;
                }
                let bytes = sys::ggml_nbytes(tensor);
                this.rows.clear();
                this.rows.resize(bytes / size_of::<f32>(), 0.0);
                if copies::get(tensor, 0, &mut this.rows).is_err() {
                    // Ends the computation.
                    return false;
                }
                (*tensor).ne[0]
            };
            this.observer.computed(name, usize::try_from(width).unwrap_or(1).max(1), &this.rows);
            // False would end the computation.
            true
        })
    }
}
