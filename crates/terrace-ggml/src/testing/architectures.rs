//! The architectures that the pinned llama.cpp knows, and the tensors that it creates for a model
//! of given metadata. Models of all architectures can be made with it, without a list of tensors
//! for each.

use crate::cxx::{CxxError, calls, guard};
use crate::gguf::write::Header;
use crate::log;
use llama_cpp_sys_2 as sys;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use terrace_model::Shape;

/// Shapes of a model's tensors, by name.
pub type Shapes = BTreeMap<String, Shape>;

/// Why there is no model of this metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapesError {
    /// llama.cpp refuses the metadata.
    #[error("llama.cpp makes no model of it: {0}")]
    Refused(String),
    /// llama.cpp threw.
    #[error(transparent)]
    Cxx(#[from] CxxError),
}

/// Returns the names of all architectures, as in `general.architecture`, in alphabetic order.
///
/// # Errors
/// llama.cpp threw.
pub fn architectures() -> Result<Vec<String>, CxxError> {
    // SAFETY: with no room, nothing is written.
    let count = guard(|| unsafe { calls::terrace_architectures(std::ptr::null_mut(), 0) })?;
    let mut names = vec![std::ptr::null(); count];
    // SAFETY: the room is as long as is said.
    guard(|| unsafe { calls::terrace_architectures(names.as_mut_ptr(), names.len()) })?;
    // SAFETY: each is a constant C string of llama.cpp's.
    let name = |name: &*const _| unsafe { CStr::from_ptr(*name) }.to_string_lossy().into_owned();
    let mut names: Vec<String> = names.iter().map(name).filter(|name| name != "(unknown)").collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the tensors that llama.cpp creates for a model of this metadata, optional ones and layers that are
/// loaded on request included.
/// It allocates them for the time of the call.
///
/// # Errors
/// [`ShapesError`]. For some architectures, metadata that lack a key end the process in an
/// assertion of llama.cpp's.
pub fn shapes(metadata: &Header) -> Result<Shapes, ShapesError> {
    let mut shapes = Shapes::new();
    // SAFETY: returns plain values.
    let mut params = unsafe { sys::llama_model_default_params() };
    params.load_mtp = true;
    // An empty list: no device, whichever the machine has.
    let mut devices = [std::ptr::null_mut()];
    params.devices = devices.as_mut_ptr();
    let data = (&raw mut shapes).cast::<c_void>();
    let (model, lines) = log::capture(|| {
        // SAFETY: the context, the list of devices and the map live during the call; `on_tensor`
        // gets the map, which nothing else touches meanwhile.
        guard(|| unsafe {
            calls::llama_model_init_from_user(metadata.as_ptr(), Some(on_tensor), data, params)
        })
    });
    let model = model?;
    if model.is_null() {
        return Err(ShapesError::Refused(lines.join("; ")));
    }
    // SAFETY: owned, freed once.
    unsafe { sys::llama_model_free(model) };
    Ok(shapes)
}

/// Called by llama.cpp for each tensor, in place of reading its data.
unsafe extern "C" fn on_tensor(tensor: *mut sys::ggml_tensor, data: *mut c_void) {
    // SAFETY: llama.cpp passes a live tensor; its name is terminated within the array.
    let (name, ne) = unsafe { (CStr::from_ptr((*tensor).name.as_ptr()), (*tensor).ne) };
    // SAFETY: `data` is the map of the current call to `shapes`.
    let shapes = unsafe { &mut *data.cast::<Shapes>() };
    shapes.insert(name.to_string_lossy().into_owned(), Shape(ne.map(i64::unsigned_abs)));
}
