//! Terrace as a backend of ggml, which an unmodified llama.cpp loads: `GGML_BACKEND_PATH` is the path
//! of this library.
//!
//! ggml is not linked. `host` finds the ggml that loaded the library and makes every function that
//! `terrace-ggml` calls a jump into it; `guest` decides what of a model is streamed, `models` holds them, `model` plans one,
//! and `files` and `maps` tell which file a weight's bytes come from.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod attached;
mod control;
mod copies;
mod earlier_uses;
mod files;
mod guest;
mod host;
mod model;
mod models;
mod record;
mod reload;
mod report;
mod settings;

use models::Models;
use report::say;
use settings::Settings;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// A number for the order of a backend's builds, of which ggml takes the highest; 0 means that this
/// processor cannot run it.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> c_int {
    1
}

/// The first function that a host calls: passes on where it was called from, which tells whose ggml this is.
///
/// # Safety
/// The caller is a ggml whose list of backends has its CPU.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_init() -> *mut c_void {
    std::arch::naked_asm!("mov rdi, [rsp]", "jmp {init}", init = sym init)
}

/// The first function that a host calls: passes on where it was called from, which tells whose ggml this is.
///
/// # Safety
/// The caller is a ggml whose list of backends has its CPU.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_init() -> *mut c_void {
    std::arch::naked_asm!("mov x0, x30", "b {init}", init = sym init)
}

/// The registry of Terrace's devices; null if there are none in this process, which a line says. A
/// host may ask several times.
unsafe extern "C" fn init(caller: *const c_void) -> *mut c_void {
    /// The registry's address; 0 means that there is none.
    static REGISTRY: OnceLock<usize> = OnceLock::new();
    let start = || {
        let registry = start(caller).unwrap_or_else(|reason| {
            say(format_args!("not used: {reason}"));
            ptr::null_mut()
        });
        registry as usize
    };
    let registry = || {
        let registry = *REGISTRY.get_or_init(start);
        let other = registry != 0 && !host::is_first(caller);
        if other {
            say("not used: another ggml of this process uses it already");
        }
        if other { 0 } else { registry }
    };
    // The panic's message was printed.
    catch_unwind(registry).unwrap_or(0) as *mut c_void
}

#[expect(clippy::disallowed_methods, reason = "the settings of a plug-in are variables of its program")]
fn start(caller: *const c_void) -> Result<*mut c_void, String> {
    let (settings, lines) = Settings::read(&|name| std::env::var_os(name))?;
    host::adopt(caller).map_err(|error| error.to_string())?;
    lines.iter().for_each(say);
    terrace_ggml::log::leave_to_host();
    report::tell_warnings();
    let models = MODELS.get_or_init(|| Models::new(settings));
    terrace_platform::process::at_exit(at_exit);
    Ok(terrace_backend::register_guest(models))
}

/// The models of this process.
static MODELS: OnceLock<Arc<Models>> = OnceLock::new();

/// Writes what would be written when models are freed: not every program frees them.
extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        if let Some(models) = MODELS.get() {
            models.exit();
        }
        control::end();
    });
}
