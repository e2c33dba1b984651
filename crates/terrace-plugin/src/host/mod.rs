//! The program that loaded the plug-in, and its ggml.

mod stand_ins;
mod table;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use terrace_ggml::backend::{HostFunctions, HostMismatch, adopt_host, check_interface};
use terrace_platform::library::Loaded;

/// Why nothing can be done in a program.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its ggml lacks a function.
    #[error("its ggml has no {0}")]
    Missing(String),
    /// It has no CPU backend.
    #[error("its ggml has no CPU device")]
    NoCpu,
    /// Its ggml is not known.
    #[error(transparent)]
    Mismatch(#[from] HostMismatch),
}

/// Functions in ggml's core: `libggml-base`, or `libggml` for its list of devices.
const CORE: [&CStr; 27] = [
    c"ggml_backend_buffer_init",
    c"ggml_backend_buft_alloc_buffer",
    c"ggml_backend_buft_get_device",
    c"ggml_backend_buft_is_host",
    c"ggml_backend_buft_name",
    c"ggml_backend_cpu_buffer_type",
    c"ggml_backend_dev_backend_reg",
    c"ggml_backend_dev_by_type",
    c"ggml_backend_dev_memory",
    c"ggml_backend_dev_name",
    c"ggml_backend_dev_supports_buft",
    c"ggml_backend_dev_supports_op",
    c"ggml_backend_free",
    c"ggml_backend_graph_compute",
    c"ggml_backend_reg_dev_get",
    c"ggml_backend_tensor_get",
    c"ggml_blck_size",
    c"ggml_get_type_traits",
    c"ggml_graph_overhead_custom",
    c"ggml_is_contiguous",
    c"ggml_nbytes",
    c"ggml_op_name",
    c"ggml_tensor_overhead",
    c"ggml_threadpool_params_default",
    c"ggml_type_name",
    c"ggml_type_size",
    c"gguf_init_from_file",
];

/// Functions in the CPU backend.
const CPU: [&CStr; 15] = [
    c"ggml_backend_cpu_init",
    c"ggml_backend_cpu_set_abort_callback",
    c"ggml_backend_cpu_set_n_threads",
    c"ggml_backend_cpu_set_threadpool",
    c"ggml_compute_forward_add_id",
    c"ggml_compute_forward_clamp",
    c"ggml_compute_forward_glu",
    c"ggml_compute_forward_mul",
    c"ggml_compute_forward_scale",
    c"ggml_compute_forward_sqr",
    c"ggml_compute_forward_unary",
    c"ggml_cpu_init",
    c"ggml_get_type_traits_cpu",
    c"ggml_threadpool_free",
    c"ggml_threadpool_new",
];

/// Functions in ggml's core for copies of experts on devices, beside [`CORE`].
const COPIES: [&CStr; 39] = [
    c"ggml_backend_buffer_free",
    c"ggml_backend_buffer_get_alignment",
    c"ggml_backend_buffer_get_alloc_size",
    c"ggml_backend_buffer_get_base",
    c"ggml_backend_buffer_get_size",
    c"ggml_backend_buffer_is_host",
    c"ggml_backend_buffer_set_usage",
    c"ggml_backend_buft_get_alignment",
    c"ggml_backend_buft_get_alloc_size",
    c"ggml_backend_buft_get_max_size",
    c"ggml_backend_dev_buffer_type",
    c"ggml_backend_dev_count",
    c"ggml_backend_dev_description",
    c"ggml_backend_dev_get",
    c"ggml_backend_dev_get_props",
    c"ggml_backend_dev_host_buffer_type",
    c"ggml_backend_dev_init",
    c"ggml_backend_dev_type",
    c"ggml_backend_graph_compute_async",
    c"ggml_backend_reg_name",
    c"ggml_backend_supports_op",
    c"ggml_backend_synchronize",
    c"ggml_backend_tensor_alloc",
    c"ggml_backend_tensor_get_async",
    c"ggml_backend_tensor_set",
    c"ggml_backend_tensor_set_async",
    c"ggml_backend_view_init",
    c"ggml_build_forward_expand",
    c"ggml_free",
    c"ggml_graph_n_nodes",
    c"ggml_graph_node",
    c"ggml_init",
    c"ggml_mul_mat_id",
    c"ggml_new_graph_custom",
    c"ggml_new_tensor_2d",
    c"ggml_new_tensor_3d",
    c"ggml_op_desc",
    c"ggml_row_size",
    c"ggml_view_3d",
];

/// The first of [`COPIES`] that the program's ggml does not have.
static LACKS_FOR_COPIES: OnceLock<Option<&'static CStr>> = OnceLock::new();

/// The function that keeps devices from holding copies of experts, because the program's ggml does not
/// have it. `None` if it has all.
pub fn lacks_for_copies() -> Option<String> {
    let name = LACKS_FOR_COPIES.get().copied().flatten()?;
    Some(name.to_string_lossy().into_owned())
}

/// `GGML_BACKEND_DEVICE_TYPE_CPU`, in every version.
const CPU_TYPE: i32 = 0;

/// The library whose ggml this is a plug-in of.
static FIRST: OnceLock<Loaded> = OnceLock::new();

/// Returns true if `caller` lies in the same library as that of the first [`adopt`].
pub fn is_first(caller: *const c_void) -> bool {
    FIRST.get() == Some(&Loaded::of(caller))
}

/// Finds the functions of the ggml that `caller` lies in, and compares its structures with those that
/// are known.
///
/// # Errors
/// [`HostError`]: nothing of ggml may be called then.
pub fn adopt(caller: *const c_void) -> Result<(), HostError> {
    let core = FIRST.get_or_init(|| Loaded::of(caller));
    let missing = |name: &CStr| HostError::Missing(name.to_string_lossy().into_owned());
    let find = |library: &Loaded, name: &CStr| library.function(name).ok_or_else(|| missing(name));
    for name in CORE {
        find(core, name)?;
    }
    let by_type = find(core, c"ggml_backend_dev_by_type")?;
    let registry_of = find(core, c"ggml_backend_dev_backend_reg")?;
    let address_of = find(core, c"ggml_backend_reg_get_proc_address")?;
    // SAFETY: functions of these types in every version of ggml, with a device and its registry.
    let (registry, in_cpu) = unsafe {
        let device = stand_ins::call_with_number(by_type.as_ptr(), CPU_TYPE);
        if device.is_null() {
            return Err(HostError::NoCpu);
        }
        let registry = stand_ins::call_with_pointer(registry_of.as_ptr(), device);
        let name = c"ggml_backend_set_n_threads";
        (registry, stand_ins::call_with_name(address_of.as_ptr(), registry, name))
    };
    // SAFETY: the registry of a device of this ggml.
    unsafe { check_interface(registry)? };
    // The library of the CPU backend is the host's choice, and known to nobody else: one of its
    // functions says which it is.
    let cpu = Loaded::of(NonNull::new(in_cpu).ok_or(HostError::NoCpu)?.as_ptr());
    for name in CPU {
        find(&cpu, name)?;
    }
    stand_ins::CPU_REGISTRY.store(registry, Ordering::Release);
    for (index, name) in table::NAMES.into_iter().enumerate() {
        let own = || core.function(name).or_else(|| cpu.function(name)).map(NonNull::as_ptr);
        let address = stand_ins::instead_of(name).or_else(own);
        table::set(index, address.unwrap_or_else(|| stand_ins::without(name)));
    }
    let has = |name: &CStr| core.function(name).is_some();
    LACKS_FOR_COPIES.get_or_init(|| COPIES.into_iter().find(|name| !has(name)));
    Ok(adopt_host(HostFunctions {
        lists_of_tensors: has(c"ggml_backend_buft_alloc_buffer_n"),
        copies_2d: has(c"ggml_backend_tensor_set_2d"),
        copies_n: has(c"ggml_backend_tensor_set_n"),
    })?)
}
