//! Terrace in the process of another program, whose ggml loaded it as a backend.
//!
//! The program places each weight in the buffer type of the first device that can compute with it,
//! and asks devices of type ACCEL first. So there are two: one that computes, in the CPU's memory,
//! and one that never computes, whose memory is that of streamed weights. The first takes products with
//! streamed weights, and what lies between the products of an MoE block; with `--kernels fast` also attention and
//! prompts' products of any model. All else stays where the program computes it.

mod own_nodes;

use crate::graph::exec::Executor;
use crate::memory::host::{HostHome, HostType};
use crate::memory::loading::Loading;
use crate::memory::managed::{ManagedType, Owner};
use crate::memory::places::Places;
use own_nodes::{NewContext, NewContexts};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use terrace_ggml::backend::parked::{self, ParkedError};
use terrace_ggml::backend::{
    AbortCallback, Accelerators, Backend, ComputeError, Device, cpu_supports_buffer_type, cpu_supports_op,
};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::{Graph, Op, Tensor, cpu};

/// Decides what of another program's models is streamed.
pub trait Guest: Owner {
    /// Returns true if the weight, which the program is about to place and to use in `op`, is to be streamed.
    fn wants(&self, weight: Tensor<'_>, op: Op) -> bool;

    /// Returns true if weights of any model are streamed now.
    fn streams(&self) -> bool;

    /// Returns true if kernels may add in an order of their own, in any model.
    fn is_fast(&self) -> bool;

    /// Called when the program begins a load, before it measures what is free on its devices, and at
    /// other times: it asks where this device holds weights.
    fn placing(&self);

    /// Called when a context begins a graph, whether or not any part of it is this device's.
    fn announced(&self);

    /// Called when a context begins a graph, before any part of it that is this device's. Streamed weights can be replaced
    /// then.
    fn begins(&self);

    /// Called before each part of a graph.
    ///
    /// # Errors
    /// If graphs must not be computed, because their weights are not the program's.
    fn ready(&self) -> Result<(), ParkedError>;

    /// Tells the program's user why a graph could not be computed.
    fn failed(&self, error: &ParkedError);
}

/// Makes the devices, in the layout of this process's ggml
/// ([`adopt_host`](terrace_ggml::backend::adopt_host)). Returns the registry for `ggml_backend_init`.
/// Call it once.
pub fn register_guest<G: Guest>(guest: &Arc<G>) -> *mut c_void {
    let places = Arc::new(OnceLock::new());
    let contexts = NewContexts::default();
    let computing = Computing { guest: Arc::clone(guest), places: Arc::clone(&places), contexts };
    let storing = Storing { guest: Arc::clone(guest), managed: Arc::new(OnceLock::new()) };
    let known = Arc::clone(&storing.managed);
    let devices =
        Accelerators::new("TERRACE").device("TERRACE", "computes with streamed weights", Arc::new(computing));
    // Weights that stay in memory are the program's: these two are never used.
    let nothing = Arc::new(Loading::default());
    let on_host = |home| Arc::new(HostType { loading: Arc::clone(&nothing), home });
    let resident = devices.buffer_type("TERRACE_RAM", false, on_host(HostHome::Resident));
    let mapped = devices.buffer_type("TERRACE_MMAP", false, on_host(HostHome::Mapped));
    let devices = devices.device("TERRACE_DISK", "holds weights that are streamed", Arc::new(storing));
    let owner = Arc::clone(guest) as Arc<dyn Owner>;
    let managed = devices.buffer_type("TERRACE", true, Arc::new(ManagedType { owner }));
    known.get_or_init(|| managed);
    places.get_or_init(|| Places { managed, resident, mapped });
    devices.finish()
}

/// Computes with streamed weights, and with Terrace's own kernels.
struct Computing<G> {
    guest: Arc<G>,
    /// Set before the device is used.
    places: Arc<OnceLock<Places>>,
    contexts: NewContexts,
}

/// Operations between the first products of an MoE block and the last.
const BETWEEN: [Op; 7] = [Op::GLU, Op::UNARY, Op::SQR, Op::CLAMP, Op::SCALE, Op::MUL, Op::ADD_ID];

/// Most operations from a product to one that belongs to the same block.
const STEPS: usize = 4;

/// Returns true if `op` multiplies by a streamed weight, or follows a product with one.
fn belongs(op: Tensor<'_>, places: Places, steps: usize) -> bool {
    if op.sources().any(|source| places.managed_buffer(source).is_some()) {
        return true;
    }
    let between = op.op() != Op::NONE && (op.op().is_view() || BETWEEN.contains(&op.op()));
    steps > 0 && between && op.sources().any(|source| belongs(source, places, steps - 1))
}

impl<G: Guest> Device for Computing<G> {
    fn supports_op(&self, op: Tensor<'_>) -> bool {
        let Some(&places) = self.places.get() else { return false };
        // Weights are operations to the scheduler, too.
        op.op() == Op::NONE
            || (self.guest.is_fast() && self.contexts.takes(op))
            || (self.guest.streams() && belongs(op, places, STEPS) && cpu_supports_op(op))
    }

    fn supports_buffer_type(&self, buffer_type: BufferTypeHandle) -> bool {
        self.places.get().is_some_and(|places| places.managed == buffer_type)
            || cpu_supports_buffer_type(buffer_type)
    }

    fn init(&self) -> Result<Box<dyn Backend>, ParkedError> {
        let places = *self.places.get().ok_or("the device is not complete")?;
        let guest = Arc::clone(&self.guest);
        let (threads, abort) = (cpu::default_threads(), AbortCallback::default());
        let new = Some(self.contexts.begin());
        Ok(Box::new(Lazy { guest, places, threads, abort, executor: None, announced: true, new }))
    }
}

/// Makes the executor with the first graph: contexts of which nothing is computed here have none.
struct Lazy<G> {
    guest: Arc<G>,
    places: Places,
    threads: usize,
    abort: AbortCallback,
    executor: Option<Executor>,
    /// True if a graph was announced of which no part has come yet.
    announced: bool,
    /// Set until the context computes its first graph.
    new: Option<NewContext>,
}

impl<G: Guest> Backend for Lazy<G> {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        if std::mem::take(&mut self.announced) {
            self.guest.begins();
        }
        // Nobody takes the errors that the program saw as a status.
        drop(parked::take());
        let executor = self.executor.get_or_insert_with(|| {
            let mut executor = Executor::new(self.places, self.threads);
            executor.set_fast(self.guest.is_fast());
            executor.set_abort(self.abort);
            executor.set_threads(self.threads);
            executor
        });
        let ready = self.guest.ready().map_err(ComputeError::Failed);
        let result = ready.and_then(|()| executor.compute(graph));
        if let Err(ComputeError::Failed(error)) = &result {
            self.guest.failed(error);
        }
        result
    }

    fn set_threads(&mut self, threads: usize) {
        // llama.cpp does this whenever it has a graph computed.
        self.new = None;
        self.guest.announced();
        self.announced = true;
        self.threads = threads;
        if let Some(executor) = &mut self.executor {
            executor.set_threads(threads);
        }
    }

    fn set_abort(&mut self, abort: AbortCallback) {
        self.abort = abort;
        if let Some(executor) = &mut self.executor {
            executor.set_abort(abort);
        }
    }
}

/// Holds streamed weights. What uses them, the other device computes.
struct Storing<G> {
    guest: Arc<G>,
    /// Set before the device is used.
    managed: Arc<OnceLock<BufferTypeHandle>>,
}

impl<G: Guest> Device for Storing<G> {
    fn supports_op(&self, op: Tensor<'_>) -> bool {
        // Before it places a weight, the program makes an operation with it, and asks with the weight
        // in a buffer of this type that has no bytes.
        let is_asked = |operand: &Tensor<'_>| operand.buffer_type() == self.managed.get().copied();
        match op.sources().find(is_asked) {
            Some(weight) => weight.data().is_null() && self.guest.wants(weight, op.op()),
            None => op.op() == Op::NONE,
        }
    }

    fn supports_buffer_type(&self, buffer_type: BufferTypeHandle) -> bool {
        self.managed.get() == Some(&buffer_type)
    }

    fn placing(&self) {
        self.guest.placing();
    }

    fn init(&self) -> Result<Box<dyn Backend>, ParkedError> {
        Ok(Box::new(Idle))
    }
}

/// The backend of the device that computes nothing.
struct Idle;

impl Backend for Idle {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        let views = (0..graph.len()).all(|i| graph.node(i).op().is_view());
        if views { Ok(()) } else { Err(ComputeError::Failed("this device only holds weights".into())) }
    }

    fn set_threads(&mut self, _threads: usize) {}

    fn set_abort(&mut self, _abort: AbortCallback) {}
}
