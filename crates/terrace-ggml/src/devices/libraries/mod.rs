//! Backends of ggml in libraries of their own (`libggml-vulkan.so`), loaded into this process.
//!
//! ggml and its CPU backend are linked into the program, which exports ggml's functions
//! (`crates/terrace/build.rs`): a library's calls of `ggml_*` bind to them, because the program comes
//! first in the order of look-up. The `libggml-base` that a library names as a dependency is loaded
//! as well; of it, only the version is used.
//!
//! A library is refused before any call through its tables of functions unless its ggml has the
//! version and the layout of this one: the version of the backends' interface (`api_version`) stayed
//! the same over changes of the layout.

mod error;
mod layout;

pub use error::LibraryError;
pub use layout::version;

use crate::cxx::guard;
use crate::devices::registry;
use crate::handles::DeviceHandle;
use crate::log;
use crate::pin::abi;
use crate::pin::layout::layout;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use terrace_platform::library::Object;

/// A backend that was loaded.
#[derive(Debug)]
pub struct LoadedBackend {
    /// ggml's name of it (`Vulkan`).
    pub name: String,
    /// The ggml that it was built for: version and commit.
    pub version: String,
    pub devices: Vec<DeviceHandle>,
}

/// Loads the library at `path` and registers its devices with ggml, for the life of the process.
///
/// # Errors
/// [`LibraryError`]. Nothing is registered then.
pub fn load_backend(path: &Path) -> Result<LoadedBackend, LibraryError> {
    type Init = unsafe extern "C-unwind" fn() -> sys::ggml_backend_reg_t;
    type Score = unsafe extern "C-unwind" fn() -> c_int;

    let own = || path.to_owned();
    /// Sources of the versions of loaded backends.
    static BASES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    // A driver says what it finds.
    log::to_tracing();
    let mut bases = BASES.lock().unwrap_or_else(PoisonError::into_inner);
    let beside = layout::compare_beside(path)?;
    let object = Object::open(path).map_err(|reason| LibraryError::Open { path: own(), reason })?;
    let init =
        object.symbol(c"ggml_backend_init").ok_or_else(|| LibraryError::NotABackend { path: own() })?;
    let base = layout::base_of(&object);
    let version = match beside {
        Some(version) => version,
        // That of another library, which the linker took for the one that this library needs.
        None if base.as_ref().is_some_and(|base| bases.contains(base)) => {
            return Err(LibraryError::NoVersion { path: own(), ours: version() });
        }
        None => layout::compare(&object, path)?,
    };
    let start = |reason| LibraryError::Start { path: own(), reason };
    if let Some(score) = object.symbol(c"ggml_backend_score") {
        // SAFETY: what a backend of ggml offers under this name has this type (`ggml-backend-impl.h`).
        let score: Score = unsafe { std::mem::transmute(score.as_ptr()) };
        // SAFETY: no preconditions; the library is loaded.
        if guard(|| unsafe { score() }).map_err(start)? == 0 {
            return Err(LibraryError::Unsupported { path: own() });
        }
    }
    bases.extend(base);
    // SAFETY: as for the score.
    let init: Init = unsafe { std::mem::transmute(init.as_ptr()) };
    // SAFETY: as for the score.
    let registry = NonNull::new(guard(|| unsafe { init() }).map_err(start)?)
        .ok_or_else(|| LibraryError::NoDriver { path: own() })?;
    // SAFETY: a registry of every version starts with the version of its interface.
    let theirs = unsafe { (*registry.as_ptr().cast::<abi::Reg>()).api_version };
    let ours = layout().api_version();
    if theirs != ours {
        return Err(LibraryError::Api { path: own(), theirs, ours });
    }
    // SAFETY: a registry of this ggml's layout, which lives as long as its library, which stays.
    unsafe {
        let name = sys::ggml_backend_reg_name(registry.as_ptr());
        if !sys::ggml_backend_reg_by_name(name).is_null() {
            let backend = CStr::from_ptr(name).to_string_lossy().into_owned();
            return Err(LibraryError::Known { path: own(), backend });
        }
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        registry::add(registry.as_ptr());
        let count = sys::ggml_backend_reg_dev_count(registry.as_ptr());
        let devices = (0..count).map(|index| sys::ggml_backend_reg_dev_get(registry.as_ptr(), index));
        let devices = devices.filter_map(NonNull::new).map(DeviceHandle).collect();
        Ok(LoadedBackend { name, version, devices })
    }
}
