//! A graph of tensors, borrowed for a call.

use super::node::Tensor;
use crate::pin::{abi, layout};
use llama_cpp_sys_2 as sys;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::num::NonZeroU64;

/// A compute graph, borrowed from ggml's scheduler for one call.
pub struct Graph<'g> {
    raw: *mut abi::Graph,
    owner: PhantomData<&'g ()>,
}

/// Place of a graph's nodes within the whole graph of which it may be a piece. ggml's
/// scheduler computes the pieces of a graph in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the whole graph's table.
    pub(crate) whole: usize,
    /// Addresses of the first node's entry in the list, and of the one after the last.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    /// Returns true if both belong to the same graph, and `earlier` comes before this.
    pub fn is_after(self, earlier: Self) -> bool {
        self.whole == earlier.whole && self.start >= earlier.end
    }

    /// Returns true if there are no nodes between the two.
    pub fn follows(self, earlier: Self) -> bool {
        self.whole == earlier.whole && self.start == earlier.end
    }
}

impl<'g> Graph<'g> {
    /// # Safety
    /// `raw` points to a graph of the pinned ggml that outlives `'g` and is not computed elsewhere
    /// during it.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_cgraph) -> Self {
        Self { raw: raw.cast(), owner: PhantomData }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        // SAFETY: `from_raw`'s contract.
        usize::try_from(unsafe { (*self.raw).n_nodes }).unwrap_or(0)
    }

    /// Returns true if there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Node `i`, in execution order.
    ///
    /// # Panics
    /// If `i` is not below [`Graph::len`].
    pub fn node(&self, i: usize) -> Tensor<'g> {
        assert!(i < self.len());
        // SAFETY: `from_raw`'s contract; `i` is within n_nodes.
        unsafe { Tensor::from_raw(*(*self.raw).nodes.add(i)) }
    }

    /// A number that no other graph has, and that the graph keeps as long as its nodes stay
    /// unchanged; `None` if it has none.
    pub fn uid(&self) -> Option<NonZeroU64> {
        if !layout::graphs_have_numbers() {
            return None;
        }
        // SAFETY: `from_raw`'s contract; the field is there.
        NonZeroU64::new(unsafe { (*self.raw).uid })
    }

    /// Place of its nodes.
    pub fn place(&self) -> Place {
        // SAFETY: `from_raw`'s contract. Only addresses are taken. A view has the tables of the
        // whole graph, and a part of its list of nodes.
        let (whole, nodes) = unsafe { ((*self.raw).visited_hash_set.keys.addr(), (*self.raw).nodes) };
        Place { whole, start: nodes.addr(), end: nodes.wrapping_add(self.len()).addr() }
    }

    /// Number of uses of the tensor as an operand of the graph's nodes; `None` if the graph does not
    /// record it.
    pub fn uses(&self, tensor: Tensor<'_>) -> Option<usize> {
        // SAFETY: `from_raw`'s contract: the graph's arrays are alive. The table has `size` keys, a
        // bit per key that tells whether it is used, and a count per key (`ggml_hash_find` and
        // `ggml_node_get_use_count` in `ggml-impl.h`).
        unsafe {
            let table = (*self.raw).visited_hash_set;
            if (*self.raw).use_counts.is_null() || table.size == 0 {
                return None;
            }
            let key = tensor.as_ptr();
            let mut at = (key as usize >> 4) % table.size;
            for _ in 0..table.size {
                if *table.used.add(at / 32) >> (at % 32) & 1 == 0 {
                    return None;
                }
                if *table.keys.add(at) == key {
                    return usize::try_from(*(*self.raw).use_counts.add(at)).ok();
                }
                at = (at + 1) % table.size;
            }
            None
        }
    }

    /// Nodes `[from, to)` as a graph that shares everything else, like ggml's own
    /// `ggml_graph_view`.
    pub(crate) fn view(&self, from: usize, to: usize) -> abi::Graph {
        assert!(from <= to && to <= self.len());
        // SAFETY: `from_raw`'s contract. The last field may not be there.
        let (use_counts, visited_hash_set, order) =
            unsafe { ((*self.raw).use_counts, (*self.raw).visited_hash_set, (*self.raw).order) };
        abi::Graph {
            size: 0,
            n_nodes: c_int::try_from(to - from).expect("a part of an int's range"),
            n_leafs: 0,
            // SAFETY: `from_raw`'s contract; `from` is within the array of n_nodes pointers.
            nodes: unsafe { (*self.raw).nodes.add(from) },
            grads: std::ptr::null_mut(),
            grad_accs: std::ptr::null_mut(),
            leafs: std::ptr::null_mut(),
            use_counts,
            visited_hash_set,
            order,
            uid: 0,
        }
    }
}
