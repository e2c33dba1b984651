//! Terrace as a plug-in of another program: its ggml compared with what is known here, and devices
//! for it.

use super::buffer::{self, BufferType};
use super::device::{self, Device};
use super::registration::{c_string, leak_registry};
use crate::handles::{BufferTypeHandle, DeviceHandle};
use crate::pin::layout::{Layout, adopt, layout};
use crate::pin::{abi, hosts};
use crate::raw::owned::OwnedBackend;
use crate::tensor::adopt_numbers;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

/// Functions of which the presence in a host tells the layout of its structures: the version of its
/// interface does not.
#[derive(Clone, Copy, Debug)]
pub struct HostFunctions {
    /// `ggml_backend_buft_alloc_buffer_n`.
    pub lists_of_tensors: bool,
    /// `ggml_backend_tensor_set_2d`.
    pub copies_2d: bool,
}

/// Why the ggml of a host is not one of those that are known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostMismatch {
    /// No layout is known for the version of its interface and the functions that it has.
    #[error(
        "its ggml has backend API version {api}{}, which is not known here",
        if *copies_2d { "" } else { " and no copies in two dimensions" }
    )]
    Api {
        /// `GGML_BACKEND_API_VERSION`.
        api: c_int,
        /// Whether it has `ggml_backend_tensor_set_2d`.
        copies_2d: bool,
    },
    /// Tensors or graphs have other fields.
    #[error("its ggml has {what} of {theirs} bytes, not {ours}")]
    Size {
        /// What was compared.
        what: &'static str,
        /// Their size in the host.
        theirs: usize,
        /// Their size here.
        ours: usize,
    },
    /// Backends have other fields.
    #[error("its ggml has backend API version {api} with backends of a layout that is not known here")]
    Backend {
        /// `GGML_BACKEND_API_VERSION`.
        api: c_int,
    },
    /// An operation is not there.
    #[error("its ggml has no operation {name}")]
    Operation {
        /// Its name.
        name: &'static str,
    },
}

/// `GGML_OBJECT_SIZE`: what ggml keeps about each tensor and graph of a context.
const OBJECT: usize = 32;

/// Compares the ggml of this process, whose CPU backend is registered, with what is known here, and
/// makes devices and buffer types in its layout from now on.
///
/// # Errors
/// [`HostMismatch`]. Nothing of its structures has been read then but the version, which comes first
/// in all of them.
pub fn adopt_host(functions: HostFunctions) -> Result<(), HostMismatch> {
    // SAFETY: the CPU's registry starts with its API version.
    let api = unsafe { (*sys::ggml_backend_cpu_reg().cast::<abi::Reg>()).api_version };
    let layout = match (api, functions) {
        (1, HostFunctions { lists_of_tensors: false, copies_2d: false }) => {
            let optimise = backends_optimise().ok_or(HostMismatch::Backend { api })?;
            if optimise { Layout::OneOptimising } else { Layout::One }
        }
        (2, HostFunctions { lists_of_tensors: false, copies_2d: false }) => Layout::Plain,
        (2, HostFunctions { lists_of_tensors: false, copies_2d: true }) => Layout::Two,
        (3, HostFunctions { lists_of_tensors: true, copies_2d: true }) => Layout::Three,
        (_, HostFunctions { copies_2d, .. }) => return Err(HostMismatch::Api { api, copies_2d }),
    };
    // SAFETY: no preconditions.
    let overhead = unsafe { sys::ggml_tensor_overhead() };
    same_size("tensors", overhead, OBJECT + size_of::<sys::ggml_tensor>())?;
    let graphs_have_numbers = compare_graphs(true).is_ok();
    if !graphs_have_numbers {
        // Those of API version 3 have them.
        compare_graphs(layout == Layout::Three)?;
    }
    // SAFETY: numbers of the host's operations; names are static strings.
    let name_of = |number| unsafe { CStr::from_ptr(sys::ggml_op_name(number)) }.to_bytes();
    adopt_numbers(name_of).map_err(|name| HostMismatch::Operation { name })?;
    adopt(layout, graphs_have_numbers);
    Ok(())
}

/// Whether backends have a function that changes graphs, which neither functions of ggml nor the version
/// of its interface tell. A backend of the CPU does: its device comes after its functions. `None` if it
/// is in neither place.
fn backends_optimise() -> Option<bool> {
    // SAFETY: no preconditions; the backend is owned.
    let backend = OwnedBackend(NonNull::new(unsafe { sys::ggml_backend_cpu_init() })?);
    let device = DeviceHandle::cpu().as_raw();
    // SAFETY: both places lie in a backend of either layout: the second one is the context of the shorter.
    let is_at = |offset| unsafe {
        backend.0.as_ptr().cast::<u8>().add(offset).cast::<sys::ggml_backend_dev_t>().read() == device
    };
    match [offset_of!(hosts::Backend1, device), offset_of!(hosts::BackendPlain, device)].map(is_at) {
        [true, false] => Some(false),
        [false, true] => Some(true),
        _ => None,
    }
}

/// Compares sizes of graphs with those of graphs with or without a number.
fn compare_graphs(numbered: bool) -> Result<(), HostMismatch> {
    for (nodes, slots) in TABLES {
        // SAFETY: plain arithmetic in ggml.
        let overhead = unsafe { sys::ggml_graph_overhead_custom(nodes, false) };
        let ours = OBJECT + graph_bytes(nodes, slots, numbered).next_multiple_of(16);
        same_size("graphs", overhead, ours)?;
    }
    Ok(())
}

fn same_size(what: &'static str, theirs: usize, ours: usize) -> Result<(), HostMismatch> {
    if theirs == ours { Ok(()) } else { Err(HostMismatch::Size { what, theirs, ours }) }
}

/// Sizes of graphs in nodes, with the slots of their tables (`ggml_hash_size` of twice the nodes).
/// ggml pads to 16 bytes: the ends of these lie differently, so that 8 bytes more show in one.
const TABLES: [(usize, usize); 4] = [(1, 2), (2, 5), (4, 11), (8, 17)];

/// `ggml_graph_nbytes`: a graph with its arrays.
fn graph_bytes(nodes: usize, slots: usize, numbered: bool) -> usize {
    let pointer = size_of::<*mut sys::ggml_tensor>();
    let graph = if numbered { size_of::<abi::Graph>() } else { offset_of!(abi::Graph, uid) };
    let mut bytes = graph + 2 * nodes * pointer + slots * size_of::<i32>();
    bytes = bytes.next_multiple_of(pointer) + slots * pointer;
    bytes + slots.div_ceil(32) * size_of::<u32>()
}

/// A registry of devices of type ACCEL, which computes in host memory beside the CPU. It lives as
/// long as the process.
pub struct Accelerators {
    name: &'static str,
    devices: Vec<*mut abi::Device>,
}

impl Accelerators {
    /// Starts a registry in the layout of this process's ggml.
    pub fn new(name: &'static str) -> Self {
        Self { name, devices: Vec::new() }
    }

    /// Adds a device. Its default buffer type is the CPU's.
    pub fn device(mut self, name: &str, description: &str, device: Arc<dyn Device>) -> Self {
        let kind = layout().accelerator();
        self.devices.push(device::leak(c_string(name), c_string(description), kind, device));
        self
    }

    /// Makes a buffer type of the device that was added last. Of those with `default`, the first
    /// becomes the one that the host knows the device by.
    ///
    /// # Panics
    /// Before a device was added.
    pub fn buffer_type(
        &self,
        name: &str,
        default: bool,
        implementation: Arc<dyn BufferType>,
    ) -> BufferTypeHandle {
        let device = *self.devices.last().expect("buffer types belong to devices");
        let buffer_type = buffer::leak_type(name, device.cast(), implementation);
        if default {
            // SAFETY: made by `device::leak`, above.
            unsafe { device::set_buffer_type(device, buffer_type) };
        }
        buffer_type
    }

    /// The registry, as a host expects it from `ggml_backend_init`.
    pub fn finish(self) -> *mut c_void {
        leak_registry(self.name, self.devices).as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: HostFunctions = HostFunctions { lists_of_tensors: true, copies_2d: true };

    #[test]
    fn the_linked_ggml_is_known_and_another_is_refused_by_what_it_has() {
        assert_eq!(adopt_host(ALL), Ok(()));
        let refused = adopt_host(HostFunctions { lists_of_tensors: false, ..ALL }).unwrap_err();
        assert_eq!(refused.to_string(), "its ggml has backend API version 3, which is not known here");
        assert!(compare_graphs(false).is_err());
        let refused = adopt_host(HostFunctions { copies_2d: false, ..ALL }).unwrap_err();
        assert!(refused.to_string().contains("no copies in two dimensions"), "{refused}");
        let refused = same_size("graphs", 8, 16).unwrap_err();
        assert_eq!(refused.to_string(), "its ggml has graphs of 8 bytes, not 16");
    }

    /// Otherwise one more field of a graph would not show.
    #[test]
    fn eight_bytes_more_show_in_the_size_of_a_graph() {
        let padded = |more: usize, (nodes, slots): (usize, usize)| {
            (graph_bytes(nodes, slots, true) + more).next_multiple_of(16)
        };
        for table in TABLES {
            // SAFETY: plain arithmetic in ggml.
            let linked = unsafe { sys::ggml_graph_overhead_custom(table.0, false) };
            assert_eq!(linked, OBJECT + padded(0, table));
        }
        assert!(TABLES.iter().any(|&table| padded(8, table) != padded(0, table)));
    }
}
