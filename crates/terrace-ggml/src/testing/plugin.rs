//! Loads a backend as an unmodified llama.cpp does, into this process's ggml.

use crate::devices;
use llama_cpp_sys_2 as sys;
use std::path::Path;
use terrace_platform::library::Object;
use terrace_platform::names;

/// Loads the library at `path`, and returns the names of the devices that have been added.
///
/// # Panics
/// If ggml refuses it.
pub fn load(path: &Path) -> Vec<String> {
    let names = || devices::devices().iter().map(|device| device.name()).collect::<Vec<_>>();
    let before = names();
    let path = names::c_string(path).expect("a path has no NUL");
    // SAFETY: a C string; no load runs beside.
    let registry = unsafe { sys::ggml_backend_load(path.as_ptr()) };
    assert!(!registry.is_null(), "ggml refuses {path:?}");
    names().into_iter().filter(|name| !before.contains(name)).collect()
}

/// The address of the registry that the library at `path` returns when it is asked; 0 if there is none.
/// ggml does not know it afterwards.
///
/// # Panics
/// If it is no library, or no backend.
pub fn registry_of(path: &Path) -> usize {
    let library = Object::open(path).expect("a library");
    let init = library.symbol(c"ggml_backend_init").expect("a backend");
    // SAFETY: libraries stay loaded. A backend has a function of this name and type.
    unsafe {
        let init: unsafe extern "C" fn() -> sys::ggml_backend_reg_t = std::mem::transmute(init);
        init() as usize
    }
}
