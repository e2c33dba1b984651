//! ggml's private vtables in other releases than the pinned one: those that hosts of the plug-in have, and trees that
//! Terrace is built with (`LLAMA=`).
//!
//! `tests/abi.rs` compares them with the copies of the header in `headers/`.

use llama_cpp_sys_2 as sys;
use std::ffi::{c_char, c_void};
use sys::{
    ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_backend_buffer_usage, ggml_backend_dev_t,
    ggml_backend_t, ggml_cgraph, ggml_guid_t, ggml_status, ggml_tensor,
};

type SetAsync = unsafe extern "C" fn(ggml_backend_t, *mut ggml_tensor, *const c_void, usize, usize);
type GetAsync = unsafe extern "C" fn(ggml_backend_t, *const ggml_tensor, *mut c_void, usize, usize);

/// `struct ggml_backend_buffer_type_i` of API version 2, which has no functions for lists of tensors.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferTypeInterface2 {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> *const c_char>,
    pub alloc_buffer:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, usize) -> ggml_backend_buffer_t>,
    pub get_alignment: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub get_max_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub get_alloc_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *const ggml_tensor) -> usize>,
    pub is_host: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> bool>,
}

/// `struct ggml_backend_buffer_type` of API version 2.
#[repr(C)]
pub struct BufferType2 {
    pub iface: BufferTypeInterface2,
    pub device: ggml_backend_dev_t,
    pub context: *mut c_void,
}

/// `struct ggml_backend_buffer_i` before ggml copied in two dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferInterfacePlain {
    pub free_buffer: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
    pub get_base: Option<unsafe extern "C" fn(ggml_backend_buffer_t) -> *mut c_void>,
    pub init_tensor: Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor) -> ggml_status>,
    pub memset_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, u8, usize, usize)>,
    pub set_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, *const c_void, usize, usize)>,
    pub get_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *const ggml_tensor, *mut c_void, usize, usize)>,
    pub cpy_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *const ggml_tensor, *mut ggml_tensor) -> bool>,
    pub clear: Option<unsafe extern "C" fn(ggml_backend_buffer_t, u8)>,
    pub reset: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
}

/// `struct ggml_backend_buffer` before ggml copied in two dimensions.
#[repr(C)]
pub struct BufferPlain {
    pub iface: BufferInterfacePlain,
    pub buft: ggml_backend_buffer_type_t,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: ggml_backend_buffer_usage,
}

/// `struct ggml_backend_i` before ggml copied in two dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BackendInterfacePlain {
    pub get_name: Option<unsafe extern "C" fn(ggml_backend_t) -> *const c_char>,
    pub free: Option<unsafe extern "C" fn(ggml_backend_t)>,
    pub set_tensor_async: Option<SetAsync>,
    pub get_tensor_async: Option<GetAsync>,
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
    pub graph_optimize: Option<unsafe extern "C" fn(ggml_backend_t, *mut ggml_cgraph)>,
}

/// `struct ggml_backend` before ggml copied in two dimensions.
#[repr(C)]
pub struct BackendPlain {
    pub guid: ggml_guid_t,
    pub iface: BackendInterfacePlain,
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
type SetTensorN = unsafe extern "C" fn(
    ggml_backend_buffer_t,
    *const *mut ggml_tensor,
    *const *const c_void,
    *const usize,
    *const usize,
    usize,
);
type GetTensorN = unsafe extern "C" fn(
    ggml_backend_buffer_t,
    *const *const ggml_tensor,
    *const *mut c_void,
    *const usize,
    *const usize,
    usize,
);

/// `struct ggml_backend_buffer_i` since ggml copies several tensors.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferInterfaceSeveral {
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
    pub set_tensor_n: Option<SetTensorN>,
    pub get_tensor_n: Option<GetTensorN>,
    pub cpy_tensor_n: Option<
        unsafe extern "C" fn(
            ggml_backend_buffer_t,
            *const *const ggml_tensor,
            *const *mut ggml_tensor,
            usize,
        ) -> bool,
    >,
}

/// `struct ggml_backend_buffer` since ggml copies several tensors.
#[repr(C)]
pub struct BufferSeveral {
    pub iface: BufferInterfaceSeveral,
    pub buft: ggml_backend_buffer_type_t,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: ggml_backend_buffer_usage,
}
