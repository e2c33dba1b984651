//! Bounds of calls into C++ that has none of its own (`bounded.cpp`).

use std::ffi::c_void;

/// Bounds of a call.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Steps: allocations and KiB that are allocated, or half microseconds of computing, whichever is more.
    pub steps: u64,
    /// Bytes that are allocated and not freed.
    pub bytes: u64,
    /// Bytes of stack below the call's own, where it allocates.
    pub stack: u64,
}

/// Resources that a call has taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub steps: u64,
    /// Bytes that were allocated and not freed, less those that were freed of earlier calls.
    pub bytes: i64,
}

/// The resource of which a call took too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("it takes more than {0} steps")]
    Steps(u64),
    /// MiB of memory.
    #[error("it takes more than {0} MiB of memory")]
    Memory(u64),
    /// Calls within calls.
    #[error("it recurses too deeply")]
    Stack,
    /// MiB of memory, together with others.
    #[error("it and others like it take more than {0} MiB of memory")]
    Together(u64),
    /// Nothing: nobody waits for it any more.
    #[error("it was ended")]
    Ended,
}

/// `terrace_bounds` of `bounded.h`.
#[repr(C)]
pub(super) struct Raw {
    steps: u64,
    bytes: u64,
    stack: u64,
    ended: unsafe extern "C" fn(*const c_void) -> bool,
    data: *const c_void,
}

impl Raw {
    /// Bounds, for as long as `ended` lives.
    pub fn new<F: Fn() -> bool>(bounds: Bounds, ended: &F) -> Self {
        let Bounds { steps, bytes, stack } = bounds;
        Self { steps, bytes, stack, ended: is_ended::<F>, data: (&raw const *ended).cast() }
    }
}

/// # Safety
/// `data` is the closure of a [`Raw`].
unsafe extern "C" fn is_ended<F: Fn() -> bool>(data: *const c_void) -> bool {
    // SAFETY: by contract.
    unsafe { (*data.cast::<F>())() }
}

impl Bounds {
    /// The excess of a code that `terrace_guard` returns.
    pub(super) fn excess(&self, code: i32) -> Option<Excess> {
        match code {
            5 => Some(Excess::Steps(self.steps)),
            6 => Some(Excess::Memory(self.bytes >> 20)),
            7 => Some(Excess::Stack),
            8 => Some(Excess::Ended),
            _ => None,
        }
    }
}
