//! Calls into llama.cpp and ggml that may throw: a C++ exception ends as a [`CxxError`], and never
//! unwinds into Rust.
//!
//! [`guard`] runs a closure below `try` and `catch` in C++ (`guard.cpp`); within it, functions are
//! called as [`calls`] declares them: `extern "C-unwind"`, which an exception may leave through the
//! closure's frames. The bindings declare everything `extern "C"`, where that is undefined.
//! `clippy.toml` therefore forbids the bindings' declaration of each function in [`calls`], so that
//! no call of one can be written outside of it.
//!
//! Wrapped, because they throw by themselves or make containers whose size depends on the input:
//!
//! * loading, contexts, quantising: `llama_model_load_from_file`, `llama_init_from_model`,
//!   `llama_model_quantize`. They catch `std::exception` around the most of what they do, not
//!   around all of it (devices, parameters, logs);
//! * `llama_adapter_lora_init`, which catches what the file's contents cause and no more, and
//!   `llama_set_adapters_lora`, which makes a table of adapters;
//! * `llama_synchronize` and `ggml_backend_free`, which wait for devices;
//! * `llama_decode`: it reserves schedules and splits batches; all of `llama_memory_*` but the
//!   getter: some kinds of memory throw on states that they do not expect; and of
//!   `llama_state_seq_*`, which is called with data from files;
//! * text: `llama_tokenize`, `llama_token_to_piece`, `llama_model_chat_template`,
//!   `llama_model_meta_val_str`;
//! * samplers, templates and grammars: everything of llama.cpp's `common` (`src/common/*.cpp`);
//! * images: of `mtmd`, what loads, prepares, copies and encodes (it catches most of what it throws
//!   itself), and `llama_set_causal_attn`;
//! * computing: `ggml_backend_graph_compute`, `ggml_backend_synchronize`, and all of
//!   `ggml_backend_*_async`: the CPU backend allocates its work buffer, and devices' drivers throw
//!   what their libraries throw;
//! * copies that wait (`ggml_backend_tensor_set`, `ggml_backend_tensor_get`), by [`copies`];
//! * Terrace's own C++ over llama.cpp's internals (`memory_breakdown.cpp`, `tensor_map.cpp`,
//!   and of `hidden.cpp` what waits).
//!
//! A failed assertion (`GGML_ASSERT`) ends the process, unless the call is one that
//! [`guard_assertions`] runs: loading, making contexts, putting states back, text, samplers and the preparation of
//! images. These run on the calling
//! thread, and leave nothing that is used afterwards. Computing does not: ggml's threads wait for
//! each other in the middle of a graph.
//!
//! Not wrapped:
//!
//! * getters of fields, which cannot throw: `llama_n_ctx_seq`, `llama_n_seq_max`,
//!   `llama_model_n_*`, `llama_model_is_*`, `llama_model_has_decoder`, `llama_model_get_vocab`,
//!   `llama_get_memory`, `llama_*_default_params`, `llama_max_devices`, `llama_log_set`,
//!   `llama_batch_get_one`; `llama_vocab_*` look tokens up that callers have compared with the
//!   vocabulary's size;
//! * `llama_get_logits` reorders rows in place; `llama_get_logits_ith` catches what it throws;
//! * what only stores pointers and numbers: `llama_attach_threadpool`, `llama_detach_threadpool`,
//!   and `llama_set_adapter_cvec` without data;
//! * destructors (`llama_free`, `llama_model_free`, `common_sampler_free`...), which C++ does
//!   not let throw: a context of which a device has thrown is not freed, because that waits for it;
//! * `ggml.c`, `ggml-alloc.c` and `ggml-quants.c`, which are C: they assert, and that ends the
//!   process with a line, or the guarded call;
//! * `gguf_*`: the reader catches failures to allocate what the file says; setters, and handles of
//!   ggml's backends, allocate dozens of bytes, for which Rust would end the process, too;
//! * memory of devices: that of the CPU, of CUDA and of RPC does not throw, and ggml's Vulkan
//!   driver catches in its allocation.

pub mod calls;
pub mod copies;

use std::ffi::{CStr, c_char, c_int, c_void};

/// What llama.cpp threw.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CxxError {
    /// A `std::exception`, with its text.
    #[error("llama.cpp failed: {0}")]
    Exception(String),
    /// `std::bad_alloc`.
    #[error("llama.cpp failed: out of memory")]
    Memory,
    /// A failed assertion, with its file and line.
    #[error("an assertion of llama.cpp failed: {0}")]
    Assertion(String),
    /// Something that is not a `std::exception`.
    #[error("llama.cpp failed without a reason")]
    Other,
}

unsafe extern "C" {
    /// `guard.cpp`.
    fn terrace_guard(
        body: unsafe extern "C-unwind" fn(*mut c_void),
        data: *mut c_void,
        assertions: bool,
        what: *mut c_char,
        capacity: usize,
    ) -> c_int;
}

/// Longest text of an exception, in bytes, with its zero.
const MOST_TEXT: usize = 1024;

/// Runs `f`, which calls functions of [`calls`] and does nothing that panics (that would end the
/// process).
///
/// # Errors
/// [`CxxError`], if a C++ exception left `f`. Its other effects stay.
pub fn guard<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    guard_with(false, f)
}

/// Like [`guard`], and a failed assertion of llama.cpp is an error as well. `f` must not start
/// threads, and nothing that it has begun to change may be used after an error.
///
/// # Errors
/// As [`guard`], and [`CxxError::Assertion`].
pub fn guard_assertions<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    guard_with(true, f)
}

fn guard_with<R>(assertions: bool, f: impl FnOnce() -> R) -> Result<R, CxxError> {
    let mut task = (Some(f), None);
    let mut what = [0; MOST_TEXT];
    // SAFETY: `run` is called at most once, with the task, which lives until it is back; the text's
    // room is as long as is said.
    let code = unsafe {
        let data = (&raw mut task).cast();
        terrace_guard(entry(&task), data, assertions, what.as_mut_ptr(), what.len())
    };
    let text = || {
        // SAFETY: the text ends with a zero: what was copied does, and so does the empty one.
        let text = unsafe { CStr::from_ptr(what.as_ptr()) };
        text.to_string_lossy().into_owned()
    };
    match (code, task.1) {
        (0, Some(result)) => Ok(result),
        (1, _) => Err(CxxError::Exception(text())),
        (2, _) => Err(CxxError::Memory),
        (4, _) => Err(CxxError::Assertion(text())),
        _ => Err(CxxError::Other),
    }
}

/// The function that runs a task of this type.
fn entry<F: FnOnce() -> R, R>(_: &(Option<F>, Option<R>)) -> unsafe extern "C-unwind" fn(*mut c_void) {
    run::<F, R>
}

/// # Safety
/// `data` is the task, which nothing else touches meanwhile.
unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
    // SAFETY: by contract.
    let (f, result) = unsafe { &mut *data.cast::<(Option<F>, Option<R>)>() };
    *result = f.take().map(|f| f());
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C-unwind" {
        /// `throws.cpp`: throws the kind of that number; 0 throws nothing.
        fn terrace_throw(kind: c_int);
    }

    /// Counts its drops.
    struct Dropped<'a>(&'a mut u32);

    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            *self.0 += 1;
        }
    }

    #[test]
    fn each_kind_of_exception_is_an_error_and_frames_are_cleaned_up() {
        crate::llama::fatal::report_in_one_line();
        let mut dropped = 0;
        let mut throw = |kind| {
            let held = Dropped(&mut dropped);
            guard_with(kind == 5, move || {
                let _held = held;
                // SAFETY: no preconditions.
                unsafe { terrace_throw(kind) };
                7
            })
        };
        assert_eq!(throw(0), Ok(7));
        assert_eq!(throw(1), Err(CxxError::Exception("of kind 1".into())));
        assert_eq!(throw(2), Err(CxxError::Memory));
        assert_eq!(throw(3), Err(CxxError::Other));
        let CxxError::Exception(long) = throw(4).unwrap_err() else { panic!("a text was thrown") };
        assert_eq!(long, "x".repeat(MOST_TEXT - 1));
        let failed = "file.cpp:7: GGML_ASSERT(a/b > 0) failed";
        assert_eq!(throw(5), Err(CxxError::Assertion(failed.into())));
        assert_eq!(dropped, 6);
    }
}
