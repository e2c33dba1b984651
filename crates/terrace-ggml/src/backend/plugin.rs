//! Terrace as a plug-in of another program: its ggml compared with what is known here, and devices
//! for it.

use super::buffer::{self, BufferType};
use super::device::{self, Device};
use super::registration::{c_string, leak_registry};
use crate::handles::BufferTypeHandle;
use crate::pin::abi;
use crate::pin::layout::{Functions, Interface, Layout, adopt};
use crate::tensor::adopt_numbers;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;

/// Why the ggml of a host is not one of those that are known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostMismatch {
    /// The version of its interface is no longer supported.
    #[error(
        "this llama.cpp is too old: its ggml has backend API version {api}, and Terrace needs {OLDEST} (as in ggml 0.9.4)"
    )]
    Old {
        /// `GGML_BACKEND_API_VERSION`.
        api: c_int,
    },
    /// No layout is known for the version of its interface and the functions that it has.
    #[error(
        "its ggml has backend API version {api}{}, which is not known here",
        if *copies_2d { "" } else { " and no copies in two dimensions" }
    )]
    Api {
        /// `GGML_BACKEND_API_VERSION`.
        api: c_int,
        /// True if it has `ggml_backend_tensor_set_2d`.
        copies_2d: bool,
    },
    /// Tensors or graphs have other fields.
    #[error("its ggml has {what} of {theirs} bytes, not {ours}")]
    Size {
        /// The compared value.
        what: &'static str,
        /// Their size in the host.
        theirs: usize,
        /// Their size here.
        ours: usize,
    },
    /// An operation is not there.
    #[error("its ggml has no operation {name}")]
    Operation { name: &'static str },
}

/// The oldest version of the interface of which a layout is known.
const OLDEST: c_int = 2;

/// `GGML_OBJECT_SIZE`: what ggml keeps about each tensor and graph of a context.
const OBJECT: usize = 32;

/// Checks that the interface of a host's ggml is not too old, before its functions are looked for.
///
/// # Errors
/// [`HostMismatch::Old`].
///
/// # Safety
/// `registry` is one of a ggml, of any version.
pub unsafe fn check_interface(registry: *const c_void) -> Result<(), HostMismatch> {
    // SAFETY: registries of all versions begin with that of their interface.
    match unsafe { (*registry.cast::<abi::Reg>()).api_version } {
        api @ ..OLDEST => Err(HostMismatch::Old { api }),
        _ => Ok(()),
    }
}

/// Compares the ggml of this process, whose CPU backend is registered, with what is known here, and
/// makes devices and buffer types in its layout from now on.
///
/// # Errors
/// [`HostMismatch`]. Nothing of its structures has been read then but the version, which comes first
/// in all of them.
pub fn adopt_host(has: Functions) -> Result<(), HostMismatch> {
    // SAFETY: the CPU's registry starts with its API version.
    let api = unsafe { (*sys::ggml_backend_cpu_reg().cast::<abi::Reg>()).api_version };
    let layout = layout_of(Interface { api, has })?;
    // SAFETY: no preconditions.
    let overhead = unsafe { sys::ggml_tensor_overhead() };
    same_size("tensors", overhead, OBJECT + size_of::<sys::ggml_tensor>())?;
    let graphs_have_numbers = compare_graphs(true).is_ok();
    if !graphs_have_numbers {
        // Those of API version 3 have them.
        compare_graphs(layout.api_version() >= 3)?;
    }
    // SAFETY: numbers of the host's operations; names are static strings.
    let name_of = |number| unsafe { CStr::from_ptr(sys::ggml_op_name(number)) }.to_bytes();
    adopt_numbers(name_of).map_err(|name| HostMismatch::Operation { name })?;
    adopt(layout, graphs_have_numbers);
    Ok(())
}

fn layout_of(interface: Interface) -> Result<Layout, HostMismatch> {
    let Interface { api, has } = interface;
    let unknown = || match api {
        ..OLDEST => HostMismatch::Old { api },
        _ => HostMismatch::Api { api, copies_2d: has.copies_2d },
    };
    Layout::of(interface).ok_or_else(unknown)
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
        let kind = sys::GGML_BACKEND_DEVICE_TYPE_ACCEL;
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
    use crate::pin::layout::LINKED_INTERFACE;

    const ALL: Functions = Functions { lists_of_tensors: true, copies_2d: true, copies_n: true };
    const PLAIN: Functions = Functions { lists_of_tensors: false, copies_2d: false, copies_n: false };

    #[test]
    fn the_linked_ggml_is_known_and_another_is_refused_by_what_it_has() {
        let Interface { api, has } = LINKED_INTERFACE;
        assert_eq!(adopt_host(has), Ok(()));
        let other = Functions { lists_of_tensors: !has.lists_of_tensors, ..has };
        let refused = adopt_host(other).unwrap_err().to_string();
        assert_eq!(refused, format!("its ggml has backend API version {api}, which is not known here"));
        assert!(compare_graphs(false).is_err());
        let refused = adopt_host(Functions { copies_2d: false, lists_of_tensors: true, ..has }).unwrap_err();
        assert!(refused.to_string().contains("no copies in two dimensions"), "{refused}");
        let refused = same_size("graphs", 8, 16).unwrap_err();
        assert_eq!(refused.to_string(), "its ggml has graphs of 8 bytes, not 16");
    }

    #[test]
    fn layouts_follow_from_what_a_ggml_has() {
        let layout = |api, has| layout_of(Interface { api, has });
        assert_eq!(layout(2, PLAIN), Ok(Layout::Plain));
        assert_eq!(layout(2, Functions { copies_2d: true, ..PLAIN }), Ok(Layout::Two));
        assert_eq!(layout(3, Functions { copies_n: false, ..ALL }), Ok(Layout::Three));
        assert_eq!(layout(3, ALL), Ok(Layout::Several));
        assert_eq!(layout(4, ALL), Err(HostMismatch::Api { api: 4, copies_2d: true }));
    }

    #[test]
    fn a_host_that_is_too_old_says_what_is_needed() {
        for has in [ALL, PLAIN] {
            let refused = layout_of(Interface { api: 1, has }).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "this llama.cpp is too old: its ggml has backend API version 1, and Terrace needs 2 (as in ggml 0.9.4)"
            );
        }
        // A version is all that is read.
        for (api, expected) in [(1, Err(HostMismatch::Old { api: 1 })), (2, Ok(())), (3, Ok(()))] {
            // SAFETY: a registry without functions; zeros are a value of all other fields.
            let registry = abi::Reg { api_version: api, ..unsafe { std::mem::zeroed() } };
            // SAFETY: as above.
            assert_eq!(unsafe { check_interface((&raw const registry).cast()) }, expected);
        }
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
