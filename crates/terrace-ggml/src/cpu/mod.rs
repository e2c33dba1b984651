//! ggml's CPU backend with a thread pool of its own: the kernels that Terrace computes with.

pub mod blocked;
pub mod row_op;

use crate::backend::device::AbortCallback;
use crate::tensor;
use crate::tensor::{DataType, Graph, Tensor};
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a run of nodes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// All nodes computed.
    Done,
    /// The stop flag was seen.
    Stopped,
    /// ggml reported a failure (out of memory for its work buffer).
    Failed(i32),
}

/// An instance of the CPU backend and its threads.
pub struct CpuBackend {
    backend: NonNull<sys::ggml_backend>,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    threads: usize,
    /// Boxed: ggml keeps its address.
    stop: Box<Stop>,
}

/// What can end a run early.
#[derive(Default)]
struct Stop {
    flag: AtomicBool,
    abort: AbortCallback,
}

// SAFETY: the backend and the pool have no thread affinity of their own; `&mut self` makes their use exclusive.
unsafe impl Send for CpuBackend {}

unsafe extern "C" fn must_stop(data: *mut c_void) -> bool {
    // SAFETY: `data` is the boxed Stop of the CpuBackend, which outlives its runs and changes between them only.
    let stop = unsafe { &*data.cast::<Stop>() };
    stop.flag.load(Ordering::Relaxed) || stop.abort.requested()
}

impl CpuBackend {
    /// Makes a backend with `threads` threads, the caller's among them.
    ///
    /// # Panics
    /// If ggml cannot allocate a few hundred bytes.
    pub fn new(threads: usize) -> Self {
        // SAFETY: no arguments; returns an owned backend.
        let backend =
            NonNull::new(unsafe { sys::ggml_backend_cpu_init() }).expect("memory for a backend handle");
        let mut this = Self { backend, pool: None, threads: 0, stop: Box::default() };
        this.set_abort(AbortCallback::default());
        this.set_threads(threads);
        this
    }

    /// ggml's handle, valid as long as `self`.
    pub(crate) fn raw(&self) -> sys::ggml_backend_t {
        self.backend.as_ptr()
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Rebuilds the pool for `threads` threads, if that changes anything.
    pub fn set_threads(&mut self, threads: usize) {
        let threads = threads.clamp(1, 512);
        if threads == self.threads {
            return;
        }
        let n = c_int::try_from(threads).expect("clamped");
        // SAFETY: default parameters for n threads; the old pool is detached before it is freed, and no run is in
        // progress because of `&mut self`.
        unsafe {
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), std::ptr::null_mut());
            if let Some(old) = self.pool.take() {
                sys::ggml_threadpool_free(old.as_ptr());
            }
            let mut params = sys::ggml_threadpool_params_default(n);
            self.pool = NonNull::new(sys::ggml_threadpool_new(&raw mut params));
            let pool = self.pool.map_or(std::ptr::null_mut(), NonNull::as_ptr);
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), pool);
            sys::ggml_backend_cpu_set_n_threads(self.backend.as_ptr(), n);
        }
        self.threads = threads;
    }

    /// The flag that ends a run after the current node when it is set. Stays set until cleared.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stop.flag
    }

    /// A function that is asked between nodes as well.
    pub fn set_abort(&mut self, abort: AbortCallback) {
        self.stop.abort = abort;
        // SAFETY: `backend` is a CPU backend; Stop is boxed and lives until after the backend is freed.
        unsafe {
            let stop = (&raw const *self.stop).cast_mut().cast();
            sys::ggml_backend_cpu_set_abort_callback(self.backend.as_ptr(), Some(must_stop), stop);
        }
    }

    /// Computes nodes `[from, to)` of the graph.
    pub fn run(&mut self, graph: &Graph<'_>, from: usize, to: usize) -> RunStatus {
        if from == to {
            return RunStatus::Done;
        }
        let mut view = graph.view(from, to);
        // SAFETY: the view shares the live graph's arrays and is used within this call only.
        let status = unsafe {
            sys::ggml_backend_graph_compute(self.backend.as_ptr(), (&raw mut view).cast::<sys::ggml_cgraph>())
        };
        match status {
            sys::GGML_STATUS_SUCCESS => RunStatus::Done,
            sys::GGML_STATUS_ABORTED => RunStatus::Stopped,
            other => RunStatus::Failed(other),
        }
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // SAFETY: both are owned by self and not in use; the pool is detached first.
        unsafe {
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), std::ptr::null_mut());
            sys::ggml_backend_free(self.backend.as_ptr());
            if let Some(pool) = self.pool.take() {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

/// A type's dot product and conversions, as ggml's CPU kernels use them.
#[derive(Clone, Copy)]
pub struct Kernels {
    vec_dot: unsafe extern "C" fn(c_int, *mut f32, usize, *const c_void, usize, *const c_void, usize, c_int),
    activation: DataType,
    /// None where activations stay F32.
    from_float: Option<unsafe extern "C" fn(*const f32, *mut c_void, i64)>,
    activation_block: (usize, usize),
}

impl Kernels {
    /// The kernels for weights of type `ty`; `None` if ggml cannot multiply by it.
    pub fn of(ty: DataType) -> Option<Self> {
        // SAFETY: both tables are static and indexed by a valid type (DataType's invariant). What the kernels look up, 16-bit
        // floats among it, is filled in by the first call of ggml_cpu_init, and it may be called again.
        unsafe {
            sys::ggml_cpu_init();
            let weight = &*sys::ggml_get_type_traits_cpu(ty.0);
            let activation = DataType(weight.vec_dot_type);
            let plain = &*sys::ggml_get_type_traits(activation.0);
            let convert = &*sys::ggml_get_type_traits_cpu(activation.0);
            Some(Self {
                vec_dot: weight.vec_dot?,
                activation,
                from_float: convert.from_float,
                activation_block: (usize::try_from(plain.blck_size).ok()?, plain.type_size),
            })
        }
    }

    /// The type that activations are converted to before the dot product.
    pub fn activation_type(&self) -> DataType {
        self.activation
    }

    /// Bytes of `n` activations in that type.
    pub fn activation_bytes(&self, n: usize) -> usize {
        n / self.activation_block.0 * self.activation_block.1
    }

    /// Elements per block of activations.
    pub fn activation_block(&self) -> usize {
        self.activation_block.0
    }

    /// Converts `n` floats (a multiple of the block) to the activation type.
    ///
    /// # Safety
    /// `from` is valid for `n` floats, `to` for `activation_bytes(n)` bytes, and they do not overlap.
    pub unsafe fn convert(&self, from: *const f32, to: *mut c_void, n: usize) {
        let n = i64::try_from(n).expect("a row's length");
        match self.from_float {
            // SAFETY: the caller's contract is from_float's.
            Some(convert) => unsafe { convert(from, to, n) },
            // SAFETY: only F32 has no from_float: a plain copy.
            None => unsafe {
                std::ptr::copy_nonoverlapping(from, to.cast::<f32>(), n.unsigned_abs() as usize)
            },
        }
    }

    /// Dot product of one weight row and one converted activation row of `n` elements.
    ///
    /// # Safety
    /// `weights` and `activations` are valid for rows of `n` elements in their types.
    pub unsafe fn dot(&self, n: c_int, weights: *const c_void, activations: *const c_void) -> f32 {
        let mut sum = 0.0f32;
        // SAFETY: the caller's contract; one row each, strides unused (nrc = 1), as ggml's MUL_MAT_ID calls it.
        unsafe { (self.vec_dot)(n, &raw mut sum, 0, weights, 0, activations, 0, 1) };
        sum
    }
}

/// Converts rows of weights to floats, as GET_ROWS does.
#[derive(Clone, Copy)]
pub struct ToFloat(Option<unsafe extern "C" fn(*const c_void, *mut f32, i64)>);

impl ToFloat {
    /// The conversion for type `ty`; `None` if ggml has none.
    pub fn of(ty: DataType) -> Option<Self> {
        if ty == DataType::F32 {
            return Some(Self(None));
        }
        // SAFETY: the table is static and indexed by a valid type (DataType's invariant).
        unsafe { (*sys::ggml_get_type_traits(ty.0)).to_float }.map(|f| Self(Some(f)))
    }

    /// Converts `n` elements.
    ///
    /// # Safety
    /// `from` is valid for `n` elements of the type, `to` for `n` floats; they do not overlap.
    pub unsafe fn convert(self, from: *const c_void, to: *mut f32, n: usize) {
        match self.0 {
            // SAFETY: the caller's contract.
            Some(convert) => unsafe { convert(from, to, i64::try_from(n).expect("a row's length")) },
            // SAFETY: the caller's contract; F32 to F32.
            None => unsafe { std::ptr::copy_nonoverlapping(from.cast::<f32>(), to, n) },
        }
    }
}

/// Number of threads that suits compute on this machine when the user names none: physical cores are not told apart
/// here, so it is what the process may run on.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Instruction sets that ggml's kernels were compiled for, by the names that compilers give them.
pub fn built_features() -> Vec<&'static str> {
    // SAFETY: functions without arguments that say what they were compiled with.
    let all = unsafe {
        [
            ("avx", sys::ggml_cpu_has_avx()),
            ("avx2", sys::ggml_cpu_has_avx2()),
            ("f16c", sys::ggml_cpu_has_f16c()),
            ("fma", sys::ggml_cpu_has_fma()),
            ("avxvnni", sys::ggml_cpu_has_avx_vnni()),
            ("avx512f", sys::ggml_cpu_has_avx512()),
            ("avx512vbmi", sys::ggml_cpu_has_avx512_vbmi()),
            ("avx512vnni", sys::ggml_cpu_has_avx512_vnni()),
            ("avx512bf16", sys::ggml_cpu_has_avx512_bf16()),
            ("neon", sys::ggml_cpu_has_neon()),
            ("dotprod", sys::ggml_cpu_has_dotprod()),
            ("i8mm", sys::ggml_cpu_has_matmul_int8()),
            ("sve", sys::ggml_cpu_has_sve()),
        ]
    };
    all.into_iter().filter(|(_, has)| *has != 0).map(|(name, _)| name).collect()
}

/// Re-exported for signatures of custom nodes.
pub type RawTensor = sys::ggml_tensor;

/// A node as a custom function gets it.
///
/// # Safety
/// To be called inside a [`tensor::CustomFn`] with its first argument only.
pub unsafe fn custom_node<'g>(raw: *mut RawTensor) -> Tensor<'g> {
    // SAFETY: ggml passes the live node to the custom function.
    unsafe { tensor::Tensor::from_raw(raw) }
}
