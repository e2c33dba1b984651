//! The Terrace device, as llama.cpp sees it.

use crate::graph::exec::Executor;
use crate::memory::host::{HostHome, HostType};
use crate::memory::loading::Loading;
use crate::memory::managed::{ManagedType, Owner};
use crate::memory::places::{Home, Places};
use crate::memory::weights::Weights;
use crate::memory::{asked, offer};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::backend::{ApiVersionMismatch, Backend, Device, Processor, cpu_supports_op, prepare};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::llama::Weight;
use terrace_ggml::{Tensor, cpu};

/// Terrace in this process: made once, and used by every model that is loaded with it.
pub struct Terrace {
    places: Places,
    processor: Processor,
    loading: Arc<Loading>,
    one_load: Mutex<()>,
}

/// While this lives, weights that llama.cpp places belong to one model. There is one load at a
/// time.
pub struct LoadScope<'a> {
    loading: &'a Loading,
    _exclusive: MutexGuard<'a, ()>,
}

impl Drop for LoadScope<'_> {
    fn drop(&mut self) {
        self.loading.end();
    }
}

static INSTALLED: OnceLock<Terrace> = OnceLock::new();

struct TerraceDevice {
    /// Set before the device is used.
    places: Arc<OnceLock<Places>>,
}

impl Terrace {
    /// Makes the device, once. Models that are loaded with it as their
    /// [`LoadParams::processor`](terrace_ggml::llama::LoadParams) compute through it what no other
    /// device does; to all others, it does not exist.
    ///
    /// # Errors
    /// [`ApiVersionMismatch`] if this process's ggml has another backend API.
    pub fn install() -> Result<&'static Self, ApiVersionMismatch> {
        static INSTALLING: Mutex<()> = Mutex::new(());
        let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(terrace) = INSTALLED.get() {
            return Ok(terrace);
        }
        let loading = Arc::new(Loading::default());
        let known = Arc::new(OnceLock::new());
        let device = Arc::new(TerraceDevice { places: Arc::clone(&known) });
        let mut registration =
            prepare("TERRACE", "streams weights between storage, RAM and devices", device)?;
        let on_host = |home| Arc::new(HostType { loading: Arc::clone(&loading), home });
        let owner = Arc::clone(&loading) as Arc<dyn Owner>;
        let managed = registration.buffer_type("TERRACE", Arc::new(ManagedType { owner }));
        let resident = registration.buffer_type("TERRACE_RAM", on_host(HostHome::Resident));
        let mapped = registration.buffer_type("TERRACE_MMAP", on_host(HostHome::Mapped));
        let places = Places { managed, resident, mapped };
        known.get_or_init(|| places);
        let processor = registration.finish();
        Ok(INSTALLED.get_or_init(|| Self { places, processor, loading, one_load: Mutex::new(()) }))
    }

    /// Place that the load gave a weight of any model, whether or not it uses this device.
    pub fn home(weight: &Weight) -> Home {
        let ours = INSTALLED.get().and_then(|terrace| terrace.places.home(weight));
        ours.unwrap_or_else(|| Home::elsewhere(weight))
    }

    /// Offers streamed matrices to devices that compute large batches. The caller looks for
    /// [parked](terrace_ggml::backend::parked) errors after each graph, where reads for these leave
    /// theirs.
    pub fn offer_matrices(&self) {
        offer::begin();
    }

    /// The device, for loads.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// Buffer type of managed weights.
    pub fn managed(&self) -> BufferTypeHandle {
        self.places.managed
    }

    /// Buffer type of resident weights.
    pub fn resident(&self) -> BufferTypeHandle {
        self.places.resident
    }

    /// Buffer type of mapped weights.
    pub fn mapped(&self) -> BufferTypeHandle {
        self.places.mapped
    }

    /// Opens a scope in which the weights that are placed belong to `weights`.
    pub fn loading(&self, weights: Arc<Weights>) -> LoadScope<'_> {
        let exclusive = self.one_load.lock().unwrap_or_else(PoisonError::into_inner);
        self.loading.begin(weights);
        LoadScope { loading: &self.loading, _exclusive: exclusive }
    }
}

impl Device for TerraceDevice {
    fn supports_op(&self, op: Tensor<'_>) -> bool {
        asked::asked_for(op, self.places.get());
        // Managed operands are host memory by the time the kernels see them.
        cpu_supports_op(op)
    }

    fn supports_buffer_type(&self, buffer_type: BufferTypeHandle) -> bool {
        let is_managed = self.places.get().is_some_and(|places| places.managed == buffer_type);
        let supported = is_managed || buffer_type.is_host();
        asked::asked_for_buffers(buffer_type, self.places.get());
        supported
    }

    fn init(&self) -> Result<Box<dyn Backend>, ParkedError> {
        let places = *self.places.get().ok_or("the device is not complete")?;
        Ok(Box::new(Executor::new(places, cpu::default_threads())))
    }
}
