//! The buffer types of weights that stay in memory: in anonymous memory, or in a mapping of the
//! model's files.

use super::addresses::{STEP, addresses, no_memory};
use super::loading::Loading;
use super::offer;
use super::weights::Weights;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::backend::{Buffer, BufferType};
use terrace_ggml::memory::{Pages, SLACK};

/// Place of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HostHome {
    /// In anonymous memory, which the store's engine fills after the load.
    Resident,
    /// In the page cache. ggml gives each tensor an address in a reserved range, and the tensor is
    /// then pointed at its bytes in a mapping.
    Mapped,
}

/// Buffer type of weights from which ggml computes in place.
pub struct HostType {
    pub loading: Arc<Loading>,
    pub home: HostHome,
}

impl BufferType for HostType {
    fn is_host(&self) -> bool {
        !offer::is_withheld()
    }

    fn takes(&self, _: Tensor<'_>) -> bool {
        // Later, llama.cpp puts an adapter's tensors beside the weights that they are for: they are in no
        // file that was planned.
        self.loading.is_loading()
    }

    fn alloc_size(&self, tensor: Tensor<'_>) -> usize {
        match self.home {
            HostHome::Resident => tensor.bytes(),
            HostHome::Mapped => STEP,
        }
    }

    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, ParkedError> {
        let weights = self.loading.current()?;
        let pages = match self.home {
            HostHome::Resident => Pages::new(size + SLACK).map_err(|_| no_memory(size))?,
            HostHome::Mapped => addresses(size)?,
        };
        Ok(Box::new(HostBuffer { pages, home: self.home, weights, kept: AtomicBool::new(false) }))
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if *self.kept.get_mut() {
            self.weights.forget_kept();
        }
        let base = self.pages.base() as usize;
        let addresses = match self.home {
            HostHome::Resident => base..base + usize::try_from(self.pages.size().bytes()).unwrap_or(0),
            // A mapped model has no other weights in memory.
            HostHome::Mapped => 0..usize::MAX,
        };
        self.weights.interleaved().forget(addresses);
    }
}

/// A buffer of resident weights, or of reserved addresses for mapped ones.
pub struct HostBuffer {
    pages: Pages,
    home: HostHome,
    /// Keeps the files mapped.
    weights: Arc<Weights>,
    /// True if the weights remember tensors in this buffer.
    kept: AtomicBool,
}

impl HostBuffer {
    /// The model's weights.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }
}

impl Buffer for HostBuffer {
    fn base(&self) -> *mut c_void {
        self.pages.base()
    }

    fn init_tensor(&self, tensor: Tensor<'_>) -> Result<(), ParkedError> {
        // Views already have the address of what they view, which was initialised before them.
        if tensor.storage() == tensor {
            match self.home {
                HostHome::Resident => self.weights.add_resident(tensor),
                HostHome::Mapped => {
                    tensor.set_data(self.weights.mapped_address(&tensor.name(), tensor.bytes())?);
                    self.weights.add_mapped(tensor);
                }
            }
            if self.weights.add_kept(tensor) {
                self.kept.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn set_tensor(&self, _tensor: Tensor<'_>, _source: *const c_void, _offset: usize, _len: usize) {
        // Resident: reading through the loader's mapping would fault 4 KiB at a time and fill the
        // page cache; `Weights::fill_resident` reads the same bytes in large requests once all
        // tensors are placed. Mapped: the tensor already points at the bytes offered.
    }

    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize) {
        // A view's bytes are part of its storage's.
        let (storage, skip) = (tensor.storage().data() as usize, tensor.view_offset());
        // SAFETY: ggml checks that offset + len lies within the tensor, whose bytes lie in these
        // pages or in a mapping that `weights` keeps (`init_tensor`), and passes a target of `len`
        // writable bytes elsewhere.
        unsafe {
            let to = std::slice::from_raw_parts_mut(target.cast::<u8>(), len);
            self.weights.interleaved().read(storage, skip + offset, to);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
