//! ggml's private vtables, declared by hand.
//!
//! `ggml-backend-impl.h` is not part of llama-cpp-sys-2's bindings. These declarations follow the
//! header of the pinned release field by field; `tests/abi.rs` compiles a C program against that
//! header and compares every size and offset, and [`crate::backend::prepare`] refuses a host of
//! another API version.

use llama_cpp_sys_2 as sys;
use std::ffi::{c_char, c_int, c_void};
use sys::{
    ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_backend_buffer_usage, ggml_backend_dev_props,
    ggml_backend_dev_t, ggml_backend_dev_type, ggml_backend_reg_t, ggml_backend_t, ggml_cgraph, ggml_guid_t,
    ggml_status, ggml_tensor,
};

/// The `GGML_BACKEND_API_VERSION` that these declarations describe; tests compare it.
#[cfg(feature = "testing")]
pub const API_VERSION: c_int = 3;

/// `struct ggml_backend_buffer_type_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferTypeInterface {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> *const c_char>,
    pub alloc_buffer:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, usize) -> ggml_backend_buffer_t>,
    pub alloc_buffer_n: Option<
        unsafe extern "C" fn(
            ggml_backend_buffer_type_t,
            *mut *mut ggml_tensor,
            c_int,
        ) -> ggml_backend_buffer_t,
    >,
    pub get_alignment: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub get_max_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub get_alloc_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *const ggml_tensor) -> usize>,
    pub get_alloc_size_n:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *mut *mut ggml_tensor, c_int) -> usize>,
    pub is_host: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> bool>,
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
pub struct BufferType {
    pub iface: BufferTypeInterface,
    pub device: ggml_backend_dev_t,
    pub context: *mut c_void,
}

type SetTensor2d = unsafe extern "C" fn(
    ggml_backend_buffer_t,
    *mut ggml_tensor,
    *const c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);
type GetTensor2d = unsafe extern "C" fn(
    ggml_backend_buffer_t,
    *const ggml_tensor,
    *mut c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);

/// `struct ggml_backend_buffer_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferInterface {
    pub free_buffer: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
    pub get_base: Option<unsafe extern "C" fn(ggml_backend_buffer_t) -> *mut c_void>,
    pub init_tensor: Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor) -> ggml_status>,
    pub memset_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, u8, usize, usize)>,
    pub set_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, *const c_void, usize, usize)>,
    pub get_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *const ggml_tensor, *mut c_void, usize, usize)>,
    pub set_tensor_2d: Option<SetTensor2d>,
    pub get_tensor_2d: Option<GetTensor2d>,
    pub cpy_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *const ggml_tensor, *mut ggml_tensor) -> bool>,
    pub clear: Option<unsafe extern "C" fn(ggml_backend_buffer_t, u8)>,
    pub reset: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
}

/// `struct ggml_backend_buffer`.
#[repr(C)]
pub struct Buffer {
    pub iface: BufferInterface,
    pub buft: ggml_backend_buffer_type_t,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: ggml_backend_buffer_usage,
}

type SetAsync = unsafe extern "C" fn(ggml_backend_t, *mut ggml_tensor, *const c_void, usize, usize);
type GetAsync = unsafe extern "C" fn(ggml_backend_t, *const ggml_tensor, *mut c_void, usize, usize);
type Set2dAsync =
    unsafe extern "C" fn(ggml_backend_t, *mut ggml_tensor, *const c_void, usize, usize, usize, usize, usize);
type Get2dAsync =
    unsafe extern "C" fn(ggml_backend_t, *const ggml_tensor, *mut c_void, usize, usize, usize, usize, usize);

/// `struct ggml_backend_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BackendInterface {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_t) -> *const c_char>,
    pub free: Option<unsafe extern "C" fn(ggml_backend_t)>,
    pub set_tensor_async: Option<SetAsync>,
    pub get_tensor_async: Option<GetAsync>,
    pub set_tensor_2d_async: Option<Set2dAsync>,
    pub get_tensor_2d_async: Option<Get2dAsync>,
    pub cpy_tensor_async: Option<
        unsafe extern "C" fn(ggml_backend_t, ggml_backend_t, *const ggml_tensor, *mut ggml_tensor) -> bool,
    >,
    pub synchronize: Option<unsafe extern "C" fn(ggml_backend_t)>,
    pub graph_plan_create: Option<unsafe extern "C" fn(ggml_backend_t, *const ggml_cgraph) -> *mut c_void>,
    pub graph_plan_free: Option<unsafe extern "C" fn(ggml_backend_t, *mut c_void)>,
    pub graph_plan_update: Option<unsafe extern "C" fn(ggml_backend_t, *mut c_void, *const ggml_cgraph)>,
    pub graph_plan_compute: Option<unsafe extern "C" fn(ggml_backend_t, *mut c_void) -> ggml_status>,
    pub graph_compute: Option<unsafe extern "C" fn(ggml_backend_t, *mut ggml_cgraph) -> ggml_status>,
    pub event_record: Option<unsafe extern "C" fn(ggml_backend_t, *mut c_void)>,
    pub event_wait: Option<unsafe extern "C" fn(ggml_backend_t, *mut c_void)>,
    pub graph_optimize: Option<unsafe extern "C" fn(ggml_backend_t, *mut ggml_cgraph, *mut c_void)>,
}

/// `struct ggml_backend`.
#[repr(C)]
pub struct Backend {
    pub guid: ggml_guid_t,
    pub iface: BackendInterface,
    pub device: ggml_backend_dev_t,
    pub context: *mut c_void,
}

/// `struct ggml_backend_device_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceInterface {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> *const c_char>,
    pub get_description: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> *const c_char>,
    pub get_memory: Option<unsafe extern "C" fn(ggml_backend_dev_t, *mut usize, *mut usize)>,
    pub get_type: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> ggml_backend_dev_type>,
    pub get_props: Option<unsafe extern "C" fn(ggml_backend_dev_t, *mut ggml_backend_dev_props)>,
    pub init_backend: Option<unsafe extern "C" fn(ggml_backend_dev_t, *const c_char) -> ggml_backend_t>,
    pub get_buffer_type: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> ggml_backend_buffer_type_t>,
    pub get_host_buffer_type: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> ggml_backend_buffer_type_t>,
    pub buffer_from_host_ptr:
        Option<unsafe extern "C" fn(ggml_backend_dev_t, *mut c_void, usize, usize) -> ggml_backend_buffer_t>,
    pub supports_op: Option<unsafe extern "C" fn(ggml_backend_dev_t, *const ggml_tensor) -> bool>,
    pub supports_buft: Option<unsafe extern "C" fn(ggml_backend_dev_t, ggml_backend_buffer_type_t) -> bool>,
    pub offload_op: Option<unsafe extern "C" fn(ggml_backend_dev_t, *const ggml_tensor) -> bool>,
    pub event_new: Option<unsafe extern "C" fn(ggml_backend_dev_t) -> *mut c_void>,
    pub event_free: Option<unsafe extern "C" fn(ggml_backend_dev_t, *mut c_void)>,
    pub event_synchronize: Option<unsafe extern "C" fn(ggml_backend_dev_t, *mut c_void)>,
}

/// `struct ggml_backend_device`.
#[repr(C)]
pub struct Device {
    pub iface: DeviceInterface,
    pub reg: ggml_backend_reg_t,
    pub context: *mut c_void,
}

/// `struct ggml_backend_reg_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegInterface {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_reg_t) -> *const c_char>,
    pub get_device_count: Option<unsafe extern "C" fn(ggml_backend_reg_t) -> usize>,
    pub get_device: Option<unsafe extern "C" fn(ggml_backend_reg_t, usize) -> ggml_backend_dev_t>,
    pub get_proc_address: Option<unsafe extern "C" fn(ggml_backend_reg_t, *const c_char) -> *mut c_void>,
}

/// `struct ggml_backend_reg`.
#[repr(C)]
pub struct Reg {
    pub api_version: c_int,
    pub iface: RegInterface,
    pub context: *mut c_void,
}

/// The fields of `struct ggml_cgraph` (`ggml-impl.h`). Up to ggml 0.9 there is no `uid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Graph {
    pub size: c_int,
    pub n_nodes: c_int,
    pub n_leafs: c_int,
    pub nodes: *mut *mut ggml_tensor,
    pub grads: *mut *mut ggml_tensor,
    pub grad_accs: *mut *mut ggml_tensor,
    pub leafs: *mut *mut ggml_tensor,
    pub use_counts: *mut i32,
    pub visited_hash_set: HashSet,
    pub order: c_int,
    pub uid: u64,
}

/// `struct ggml_hash_set` (`ggml-impl.h`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HashSet {
    pub size: usize,
    pub used: *mut u32,
    pub keys: *mut *mut ggml_tensor,
}

/// `struct ggml_custom_op_params` (`ggml-impl.h`): what a `GGML_OP_CUSTOM` node keeps in
/// `op_params`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CustomOpParams {
    pub fun: Option<unsafe extern "C" fn(*mut ggml_tensor, c_int, c_int, *mut c_void)>,
    pub n_tasks: c_int,
    pub userdata: *mut c_void,
}

/// `struct ggml_compute_params` (`ggml-cpu-impl.h`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ComputeParams {
    pub ith: c_int,
    pub nth: c_int,
    pub wsize: usize,
    pub wdata: *mut c_void,
    pub threadpool: *mut c_void,
    pub use_ref: bool,
}

/// ggml's function for an operation (`ggml-cpu/ops.h`).
pub type Forward = unsafe extern "C" fn(*const ComputeParams, *mut ggml_tensor);

unsafe extern "C" {
    // Operations on rows. Thread `ith` of `nth` computes its part of the rows.
    pub fn ggml_compute_forward_glu(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_unary(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_sqr(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_clamp(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_scale(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_mul(params: *const ComputeParams, dst: *mut ggml_tensor);
    pub fn ggml_compute_forward_add_id(params: *const ComputeParams, dst: *mut ggml_tensor);

    /// Wraps a vtable and a context as a buffer; freed by `ggml_backend_buffer_free`.
    pub fn ggml_backend_buffer_init(
        buft: ggml_backend_buffer_type_t,
        iface: BufferInterface,
        context: *mut c_void,
        size: usize,
    ) -> ggml_backend_buffer_t;

    /// Adds a registry and its devices to ggml's global list. Implemented in C++, but declared with
    /// C linkage (`GGML_API`).
    pub fn ggml_backend_register(reg: ggml_backend_reg_t);

    /// ggml's blocked MUL_MAT_ID for one expert (`ggml-cpu/tiled/tiled.h`). If it returns false,
    /// the caller computes with `vec_dot`. Its rounding differs from `vec_dot`'s, so exact results
    /// require the same choice as stock llama.cpp makes.
    pub fn ggml_compute_forward_mul_mat_id_tiled(
        params: *const ComputeParams,
        dst: *mut ggml_tensor,
        cur_a: i64,
        cne1: i64,
        expert_rows: *const i32,
        scratch: *mut c_char,
    ) -> bool;

    /// Bytes of scratch memory that the blocked path needs over all threads; 0 if it does not apply
    /// to this node.
    pub fn ggml_tiled_wdata_size(n_tasks: c_int, dst: *mut ggml_tensor) -> usize;
}
