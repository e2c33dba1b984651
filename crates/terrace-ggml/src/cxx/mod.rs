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
//! * samplers, templates and grammars: everything of llama.cpp's `common` (`pin/shims/*.cpp`);
//! * images: of `mtmd`, what loads, prepares, copies and encodes (it catches most of what it throws
//!   itself), and `llama_set_causal_attn`;
//! * starting devices: `ggml_backend_dev_init`; and ggml's functions for RPC, by pointers of their own
//!   (`devices/rpc`): both start threads, which `std::thread` throws about where the system has none;
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
//! * memory of devices: that of the CPU and of CUDA does not throw, and ggml's Vulkan driver catches in
//!   its allocation; that of RPC throws where it has to connect, which it has not as long as the
//!   connection to the server is in use (`devices/rpc/introduction.rs`).

//!
//! Allocations by the program's `operator new` in a call that [`guard_bounded`] runs are counted
//! (`bounded.cpp`), and the call is left by an exception when it takes more than it may, or when nobody
//! waits for it any more. llama.cpp's grammars have no bounds of their own, and allocate with every step.
//! Such a call must not be one of a device's driver, and leaves nothing behind that is used.

pub mod bounds;
pub mod copies;

pub(crate) use crate::pin::calls;
pub use bounds::Excess;

use bounds::{Bounds, Raw, Taken};

use std::ffi::{CStr, c_char, c_int, c_void};

/// An exception of llama.cpp.
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
    /// A bounded call took more than it may.
    #[error(transparent)]
    Excess(#[from] Excess),
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
        bounds: *const Raw,
        taken: *mut Taken,
        what: *mut c_char,
        capacity: usize,
    ) -> c_int;
    /// `guard.cpp`.
    fn terrace_may_throw(value: bool) -> bool;
}

/// While it lives, a failed assertion on this thread ends the process with a line. For calls from C++ into
/// Rust below [`guard_assertions`]: what is thrown must not unwind into Rust.
pub struct AssertionsEnd(bool);

impl AssertionsEnd {
    /// Assertions are not thrown from now on.
    pub fn begin() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { terrace_may_throw(false) })
    }
}

impl Drop for AssertionsEnd {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        unsafe { terrace_may_throw(self.0) };
    }
}

/// Longest text of an exception, in bytes, with its zero.
const MOST_TEXT: usize = 1024;

/// Runs `f`, which calls functions of [`calls`] and does nothing that panics (that would end the
/// process).
///
/// # Errors
/// [`CxxError`], if a C++ exception left `f`. Its other effects stay.
pub fn guard<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    guard_with(false, None, f)
}

/// Like [`guard`], and a failed assertion of llama.cpp is an error as well. `f` must not start
/// threads, and nothing that it has begun to change may be used after an error.
///
/// # Errors
/// As [`guard`], and [`CxxError::Assertion`].
pub fn guard_assertions<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    guard_with(true, None, f)
}

/// Like [`guard_assertions`], within bounds, and for as long as it has not `ended`, which is asked on this
/// thread every few dozen steps and must not panic. What was taken is told in any case.
///
/// # Errors
/// As [`guard_assertions`], and [`CxxError::Excess`].
pub fn guard_bounded<R, E: Fn() -> bool>(
    bounds: Bounds,
    ended: &E,
    f: impl FnOnce() -> R,
) -> (Result<R, CxxError>, Taken) {
    let (raw, mut taken) = (Raw::new(bounds, ended), Taken::default());
    let result = guard_with(true, Some((bounds, &raw, &mut taken)), f);
    (result, taken)
}

fn guard_with<R>(
    assertions: bool,
    bounded: Option<(Bounds, &Raw, &mut Taken)>,
    f: impl FnOnce() -> R,
) -> Result<R, CxxError> {
    let mut task = (Some(f), None);
    let mut what = [0; MOST_TEXT];
    let (bounds, raw, taken) = match bounded {
        Some((bounds, raw, taken)) => (Some(bounds), &raw const *raw, &raw mut *taken),
        None => (None, std::ptr::null(), std::ptr::null_mut()),
    };
    // SAFETY: `run` is called at most once, with the task, which lives until it is back; so do the bounds
    // and what they point to; the text's room is as long as is said.
    let code = unsafe {
        let data = (&raw mut task).cast();
        terrace_guard(entry(&task), data, assertions, raw, taken, what.as_mut_ptr(), what.len())
    };
    let text = || {
        // SAFETY: the text ends with a zero: what was copied does, and so does the empty one.
        let text = unsafe { CStr::from_ptr(what.as_ptr()) };
        text.to_string_lossy().into_owned()
    };
    if let Some(excess) = bounds.and_then(|bounds| bounds.excess(code)) {
        return Err(CxxError::Excess(excess));
    }
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
        /// `throws.cpp`: takes steps (1, 4), memory (2) or stack (3).
        fn terrace_take(kind: c_int, count: usize);
    }

    /// Counts its drops.
    struct Dropped<'a>(&'a mut u32);

    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            *self.0 += 1;
        }
    }

    #[test]
    fn assertions_are_not_thrown_through_calls_into_rust() {
        /// The state of this thread.
        fn may_throw() -> bool {
            AssertionsEnd::begin().0
        }
        let [before, within, inner, after] = guard_assertions(|| {
            let before = may_throw();
            let (within, inner) = crate::backend::parked::guard("a test", (true, false), || {
                (may_throw(), guard_assertions(may_throw).unwrap())
            });
            [before, within, inner, may_throw()]
        })
        .unwrap();
        assert_eq!([before, within, inner, after], [true, false, true, true]);
        assert!(!may_throw());
    }

    #[test]
    fn each_kind_of_exception_is_an_error_and_frames_are_cleaned_up() {
        crate::llama::fatal::report_in_one_line();
        let mut dropped = 0;
        let mut throw = |kind| {
            let held = Dropped(&mut dropped);
            guard_with(kind == 5, None, move || {
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

    #[test]
    fn a_bounded_call_is_left_when_it_takes_more_than_it_may() {
        let bounds = Bounds { steps: 100_000, bytes: 1 << 20, stack: 64 << 10 };
        let take = |kind, count, ended: &dyn Fn() -> bool| {
            // SAFETY: no preconditions.
            guard_bounded(bounds, &|| ended(), || unsafe { terrace_take(kind, count) })
        };
        let never = || false;
        let (done, taken) = take(1, 10_000, &never);
        assert_eq!(done, Ok(()));
        assert!(taken.steps >= 20_000 && taken.bytes == 0, "{taken:?}");
        for (kind, excess) in [
            (1, Excess::Steps(100_000)),
            (2, Excess::Memory(1)),
            (3, Excess::Stack),
            (4, Excess::Steps(100_000)),
        ] {
            let (result, taken) = take(kind, usize::MAX, &never);
            // An excess counts whatever was made of the exception.
            assert_eq!((result, taken.bytes), (Err(CxxError::Excess(excess)), 0), "{kind}");
        }
        let asked = std::cell::Cell::new(0);
        let soon = || asked.replace(asked.get() + 1) == 2;
        let (result, taken) = take(1, usize::MAX, &soon);
        assert_eq!(result, Err(CxxError::Excess(Excess::Ended)));
        assert!(taken.steps < 100_000, "{taken:?}");
        // The next call begins anew, and calls without bounds have none.
        assert_eq!(take(1, 10_000, &never).0, Ok(()));
        // SAFETY: no preconditions.
        assert_eq!(guard(|| unsafe { terrace_take(1, 200_000) }), Ok(()));
    }

    #[test]
    fn what_a_call_leaves_is_counted_and_so_is_its_end() {
        let bounds = Bounds { steps: 1 << 20, bytes: 64 << 20, stack: 1 << 20 };
        let mut kept = Vec::new();
        unsafe extern "C-unwind" {
            /// `throws.cpp`.
            fn terrace_keep(size: usize) -> *mut c_void;
            fn terrace_drop(kept: *mut c_void);
        }
        // SAFETY: no preconditions.
        let (made, taken) = guard_bounded(bounds, &|| false, || unsafe { terrace_keep(1 << 20) });
        kept.push(made.unwrap());
        assert!((1 << 20..2 << 20).contains(&taken.bytes) && taken.steps > 1024, "{taken:?}");
        // SAFETY: made above, dropped once.
        let (_, freed) = guard_bounded(bounds, &|| false, || unsafe { terrace_drop(kept.remove(0)) });
        assert_eq!(freed.bytes, -taken.bytes);
    }
}
