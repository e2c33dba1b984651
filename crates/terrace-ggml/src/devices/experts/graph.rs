//! A block for a number of pairs, as a graph for the device.

use super::error::ExpertDeviceError;
use super::recipe::{Recipe, RowSpan, Source, Step};
use super::slots::{Slots, Tables, op_name};
use crate::cxx::{CxxError, calls, guard};
use crate::raw::owned::{OwnedBackend, OwnedBuffer};
use crate::raw::scratch::ScratchContext;
use llama_cpp_sys_2 as sys;
use terrace_model::ByteSize;

/// Rows that experts are applied to.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// Activations: rows of the block's input.
    pub rows: &'a [f32],
    /// The row of each pair. Empty if there is a row for each pair in order, or one that all of them
    /// share.
    pub inputs: &'a [u32],
    /// The slot of each pair.
    pub slots: &'a [i32],
    /// The expert of each pair, for its biases.
    pub experts: &'a [i32],
}

/// A graph whose tensors all have memory.
pub struct BlockGraph {
    graph: *mut sys::ggml_cgraph,
    input: *mut sys::ggml_tensor,
    slots: *mut sys::ggml_tensor,
    /// Null without biases.
    experts: *mut sys::ggml_tensor,
    output: *mut sys::ggml_tensor,
    _context: ScratchContext,
}

impl BlockGraph {
    /// Makes the graph for `pairs` pairs, each with a row of its own or all sharing one. It still
    /// has to be [placed](Self::place).
    pub fn new(
        weights: &Slots,
        tables: Option<&Tables>,
        recipe: &Recipe,
        (pairs, shared): (usize, bool),
    ) -> Self {
        let tensors = 5 + 2 * (recipe.first.len() + 4 * recipe.steps.len() + 2);
        let context = ScratchContext::new(tensors);
        let c = context.raw();
        let inner = i64::try_from(weights.inner(recipe.first[0])).expect("a matrix's dimension");
        let pairs = i64::try_from(pairs).expect("pairs of a batch");
        // Either one token that uses all slots, or one token per slot.
        let (used, tokens) = if shared { (pairs, 1) } else { (1, pairs) };
        // SAFETY: the context has room for these tensors; shapes agree as MUL_MAT_ID wants them,
        // and as the model's graph has them from row to row.
        unsafe {
            let input = sys::ggml_new_tensor_3d(c, sys::GGML_TYPE_F32, inner, 1, tokens);
            let slots = sys::ggml_new_tensor_2d(c, sys::GGML_TYPE_I32, used, tokens);
            let experts = match tables {
                Some(_) => sys::ggml_new_tensor_2d(c, sys::GGML_TYPE_I32, used, tokens),
                None => std::ptr::null_mut(),
            };
            let mut values: Vec<_> = recipe
                .first
                .iter()
                .map(|&matrix| sys::ggml_mul_mat_id(c, weights.tensor(matrix), input, slots))
                .collect();
            for step in &recipe.steps {
                values.push(node(c, &values, step, tables, experts));
            }
            let output =
                sys::ggml_mul_mat_id(c, weights.tensor(recipe.down), part(c, &values, recipe.middle), slots);
            let graph = sys::ggml_new_graph_custom(c, tensors.max(16), false);
            sys::ggml_build_forward_expand(graph, output);
            Self { graph, input, slots, experts, output, _context: context }
        }
    }

    /// Gives all tensors memory in `buffer`, which graphs share, since only one runs at a time.
    /// Returns the bytes that they take.
    pub fn place(
        &self,
        backend: &OwnedBackend,
        buffer: &OwnedBuffer,
        device: &str,
    ) -> Result<usize, ExpertDeviceError> {
        let failed = |status| ExpertDeviceError::Failed { device: device.into(), status };
        let mut next = 0usize;
        // SAFETY: live handles; tensors of the graph that are nowhere get places within the buffer,
        // at its alignment, and views their storage's.
        unsafe {
            let raw = buffer.0.as_ptr();
            let base = sys::ggml_backend_buffer_get_base(raw).cast::<u8>();
            let (alignment, room) =
                (sys::ggml_backend_buffer_get_alignment(raw), sys::ggml_backend_buffer_get_size(raw));
            let nodes = (0..sys::ggml_graph_n_nodes(self.graph)).map(|i| sys::ggml_graph_node(self.graph, i));
            let inputs = [self.input, self.slots, self.experts].into_iter().filter(|input| !input.is_null());
            for tensor in inputs.chain(nodes) {
                if !sys::ggml_backend_supports_op(backend.0.as_ptr(), tensor) {
                    let op = op_name(tensor);
                    return Err(ExpertDeviceError::Unsupported { device: device.into(), op });
                }
                let status = if (*tensor).view_src.is_null() {
                    let size = sys::ggml_backend_buffer_get_alloc_size(raw, tensor);
                    let at = next.next_multiple_of(alignment);
                    next = at + size;
                    if next > room {
                        let bytes = ByteSize(next as u64);
                        return Err(ExpertDeviceError::Memory { device: device.into(), bytes });
                    }
                    sys::ggml_backend_tensor_alloc(raw, tensor, base.wrapping_add(at).cast())
                } else {
                    sys::ggml_backend_view_init(tensor)
                };
                if status != sys::GGML_STATUS_SUCCESS {
                    return Err(failed(status));
                }
            }
        }
        Ok(next)
    }

    /// Starts computing the pairs, whose rows are in their order, and returns ggml's status. What is
    /// copied in the background ends with [`BlockGraph::finish`], or if this fails.
    ///
    /// # Errors
    /// What the device's driver threw.
    ///
    /// # Safety
    /// The slices stay as they are until the end of [`BlockGraph::finish`].
    pub unsafe fn start(
        &mut self,
        backend: &OwnedBackend,
        pairs: Pairs<'_>,
    ) -> Result<sys::ggml_status, CxxError> {
        let backend = backend.0.as_ptr();
        let Pairs { rows, slots, experts, .. } = pairs;
        // SAFETY: live tensors.
        unsafe {
            assert_eq!(sys::ggml_nbytes(self.input), size_of_val(rows));
            assert_eq!(sys::ggml_nbytes(self.slots), size_of_val(slots));
            assert!(self.experts.is_null() || sys::ggml_nbytes(self.experts) == size_of_val(experts));
        }
        // SAFETY: live handles, tensors with memory; sizes are checked. What is copied in the
        // background is borrowed until it has ended (the caller's contract).
        let started = guard(|| unsafe {
            let bytes = size_of_val(rows);
            calls::ggml_backend_tensor_set_async(backend, self.input, rows.as_ptr().cast(), 0, bytes);
            let bytes = size_of_val(slots);
            calls::ggml_backend_tensor_set_async(backend, self.slots, slots.as_ptr().cast(), 0, bytes);
            if !self.experts.is_null() {
                let bytes = size_of_val(experts);
                calls::ggml_backend_tensor_set_async(
                    backend,
                    self.experts,
                    experts.as_ptr().cast(),
                    0,
                    bytes,
                );
            }
            calls::ggml_backend_graph_compute_async(backend, self.graph)
        });
        if !matches!(started, Ok(sys::GGML_STATUS_SUCCESS)) {
            settle(backend);
        }
        started
    }

    /// Waits for what was started, and copies the results.
    ///
    /// # Errors
    /// What the device's driver threw.
    pub fn finish(&mut self, backend: &OwnedBackend, out: &mut [f32]) -> Result<(), CxxError> {
        let backend = backend.0.as_ptr();
        // SAFETY: a live tensor.
        unsafe { assert_eq!(sys::ggml_nbytes(self.output), size_of_val(out)) };
        // SAFETY: live handles, a tensor with memory; its size is checked. What is copied in the
        // background is borrowed until the end of the wait.
        guard(|| unsafe {
            let bytes = size_of_val(out);
            calls::ggml_backend_tensor_get_async(backend, self.output, out.as_mut_ptr().cast(), 0, bytes);
            calls::ggml_backend_synchronize(backend);
        })
        .inspect_err(|_| settle(backend))
    }
}

/// Waits until what was begun has ended, so that its borrows may end.
fn settle(backend: sys::ggml_backend_t) {
    // SAFETY: a live handle.
    drop(guard(|| unsafe { calls::ggml_backend_synchronize(backend) }));
}

/// Makes a step's node.
///
/// # Safety
/// The context has room for the node and its views; the values are its, with the rows that the step
/// wants.
unsafe fn node(
    c: *mut sys::ggml_context,
    values: &[*mut sys::ggml_tensor],
    step: &Step,
    tables: Option<&Tables>,
    experts: *mut sys::ggml_tensor,
) -> *mut sys::ggml_tensor {
    // SAFETY: the caller's contract; a step has no more operands than a tensor has places for.
    unsafe {
        let [_, used, tokens, _] = (*values[0]).ne;
        let node = sys::ggml_new_tensor_3d(c, sys::GGML_TYPE_F32, step.width, used, tokens);
        (*node).op = step.op;
        (*node).op_params = step.params;
        for (place, source) in (*node).src.iter_mut().zip(&step.sources) {
            *place = match *source {
                Source::Part(of) => part(c, values, of),
                Source::Table(table) => tables.expect("a recipe with tables").tensor(table),
                Source::Expert => experts,
            };
        }
        node
    }
}

/// A value's rows, or a view of part of each row.
///
/// # Safety
/// As [`node`].
unsafe fn part(
    c: *mut sys::ggml_context,
    values: &[*mut sys::ggml_tensor],
    part: RowSpan,
) -> *mut sys::ggml_tensor {
    let value = values[part.value];
    let width = i64::try_from(part.width).expect("a row's length");
    // SAFETY: the caller's contract; the view lies within the value's rows.
    unsafe {
        let [all, used, tokens, _] = (*value).ne;
        if (part.skip, width) == (0, all) {
            return value;
        }
        let [_, row, token, _] = (*value).nb;
        sys::ggml_view_3d(c, value, width, used, tokens, row, token, part.skip * size_of::<f32>())
    }
}
