//! State that a model keeps of earlier tokens, and its form.

use super::load::Model;
use llama_cpp_sys_2 as sys;

impl Model {
    /// Number of tokens in the sliding window; 0 if no layer has one.
    pub fn sliding_window(&self) -> u32 {
        // SAFETY: the model is alive.
        u32::try_from(unsafe { sys::llama_model_n_swa(self.as_ptr()) }).unwrap_or(0)
    }

    /// Returns true if layers keep a state instead of keys and values. A state cannot be rolled back to an
    /// earlier token.
    pub fn has_states(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_is_recurrent(self.as_ptr()) || sys::llama_model_is_hybrid(self.as_ptr()) }
    }
}
