//! LoRA adapters: products of low rank, which llama.cpp adds to those with a model's weights.

use super::context::Context;
use super::load::Model;
use crate::cxx::{calls, guard_assertions};
use crate::log;
use llama_cpp_sys_2 as sys;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_platform::names;

/// Why an adapter was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// llama.cpp refused it.
    #[error("cannot load the adapter {}: {reason}", path.display())]
    Refused {
        path: PathBuf,
        /// Message that llama.cpp logged or threw.
        reason: String,
    },
    /// A path with a NUL byte.
    #[error("{0:?} contains a NUL byte")]
    Path(PathBuf),
}

/// An adapter of a model, which frees it.
#[derive(Debug)]
pub struct Adapter {
    ptr: NonNull<sys::llama_adapter_lora>,
    model: Arc<Model>,
}

// SAFETY: llama.cpp only reads adapters after loading, as it does models.
unsafe impl Send for Adapter {}

impl Adapter {
    /// Loads an adapter whose file was compared with the model's. Call it before contexts of the model are
    /// made: their graphs have room for it then.
    ///
    /// # Errors
    /// [`AdapterError`].
    pub fn load(model: &Arc<Model>, path: &Path) -> Result<Self, AdapterError> {
        let c_path = names::c_string(path).map_err(|_| AdapterError::Path(path.into()))?;
        let (adapter, lines) = log::capture(|| {
            // SAFETY: a live model, of which no other thread asks for adapters yet, and a path that ends
            // with a zero.
            guard_assertions(|| unsafe { calls::llama_adapter_lora_init(model.as_ptr(), c_path.as_ptr()) })
        });
        let (ptr, reason) = match adapter {
            Ok(ptr) => (NonNull::new(ptr), reason(&lines)),
            Err(thrown) => (None, thrown.to_string()),
        };
        let ptr = ptr.ok_or_else(|| AdapterError::Refused { path: path.into(), reason })?;
        Ok(Self { ptr, model: Arc::clone(model) })
    }
}

impl Context {
    /// Has later calls compute with these adapters of the context's model, each with its scale; 0 leaves
    /// it out. llama.cpp makes its graphs again if that is a change. If it throws, the next computation
    /// fails with that.
    ///
    /// # Panics
    /// If an adapter is of another model.
    pub fn set_adapters<'a>(&mut self, adapters: impl IntoIterator<Item = (&'a Adapter, f32)>) {
        let (mut pointers, mut scales) = (Vec::new(), Vec::new());
        for (adapter, scale) in adapters {
            assert!(self.is_of(&adapter.model), "an adapter of another model");
            pointers.push(adapter.ptr.as_ptr());
            scales.push(scale);
        }
        let context = self.as_ptr();
        // SAFETY: the context is alive; adapters live as long as its model, and llama.cpp copies both lists,
        // which have this length.
        let set = crate::cxx::guard(|| unsafe {
            calls::llama_set_adapters_lora(
                context,
                pointers.as_mut_ptr(),
                pointers.len(),
                scales.as_mut_ptr(),
            )
        });
        if let Err(thrown) = set {
            self.fail_next(thrown);
        }
    }
}

/// llama.cpp's reason for refusing a file.
fn reason(lines: &[String]) -> String {
    let line = lines.iter().find_map(|line| line.split_once("failed to apply lora adapter: "));
    match line.or_else(|| lines.last()?.split_once(": ")) {
        Some((_, reason)) => reason.to_owned(),
        None => "llama.cpp gave no reason".into(),
    }
}
