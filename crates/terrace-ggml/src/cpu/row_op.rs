//! Operations that compute each row independently, taken from a graph and run on rows elsewhere.

use crate::cxx::copies;
use crate::pin::abi::{self, ComputeParams};
use crate::tensor::{Op, Tensor};
use llama_cpp_sys_2 as sys;
use std::ffi::c_void;

/// ggml's own function for a node's operation, with the node's parameters: same code, same
/// rounding.
#[derive(Clone, Copy)]
pub struct RowOp {
    forward: abi::Forward,
    node: sys::ggml_tensor,
    sources: [Option<sys::ggml_tensor>; 3],
}

/// A table with a row of floats for each expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Elements of a row.
    pub width: usize,
    /// All rows.
    pub values: Vec<f32>,
}

/// A replacement for one of the node's operands.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// Rows of floats.
    Rows {
        /// The first.
        data: *mut c_void,
        /// Bytes from one to the next.
        stride: usize,
    },
    /// The operand in the graph, unchanged.
    Unchanged,
    /// One 32-bit id for all rows.
    Id(*const i32),
}

impl RowOp {
    /// The node's operation, if it is GLU, UNARY, SQR, CLAMP, SCALE, MUL or ADD_ID.
    pub fn of(node: Tensor<'_>) -> Option<Self> {
        let forward: abi::Forward = match node.op() {
            Op::GLU => abi::ggml_compute_forward_glu,
            Op::UNARY => abi::ggml_compute_forward_unary,
            Op::SQR => abi::ggml_compute_forward_sqr,
            Op::CLAMP => abi::ggml_compute_forward_clamp,
            Op::SCALE => abi::ggml_compute_forward_scale,
            Op::MUL => abi::ggml_compute_forward_mul,
            Op::ADD_ID => abi::ggml_compute_forward_add_id,
            _ => return None,
        };
        if node.sources().count() > 3 {
            return None;
        }
        // SAFETY: the tensors are alive for the graph's call; plain copies.
        let sources = std::array::from_fn(|i| node.src(i).map(|source| unsafe { *source.as_ptr() }));
        // SAFETY: as above.
        Some(Self { forward, node: unsafe { *node.as_ptr() }, sources })
    }

    /// The operation, its parameters, and the number of elements in an output row.
    pub(crate) fn description(&self) -> (sys::ggml_op, [i32; 16], i64) {
        (self.node.op, self.node.op_params, self.node.ne[0])
    }

    /// Number of elements in a row of operand `i` (below 3); `None` if there is no such operand.
    pub fn operand_width(&self, i: usize) -> Option<usize> {
        self.sources[i].map(|source| source.ne[0].unsigned_abs() as usize)
    }

    /// The values of operand `i`, if it is a table that is the same in every graph, with a row of
    /// floats for each expert.
    pub fn table(&self, i: usize) -> Option<Table> {
        let tensor = self.sources[i]?;
        let [width, rows, rest @ ..] = tensor.ne.map(|n| n.unsigned_abs() as usize);
        // A copy of a tensor may be read from main memory alone: ggml knows slices on devices by the
        // address of the tensor that they are slices of.
        // SAFETY: a copy of a tensor that is alive for the graph's call, or of the model's; its buffer,
        // if it has one, is live.
        let plain = unsafe {
            sys::ggml_is_contiguous(&raw const tensor)
                && !tensor.buffer.is_null()
                && sys::ggml_backend_buffer_is_host(tensor.buffer)
        };
        if tensor.type_ != sys::GGML_TYPE_F32 || rest != [1, 1] || !plain {
            return None;
        }
        let mut values = vec![0f32; width * rows];
        // SAFETY: the tensor lies in a buffer, and has as many bytes.
        unsafe { copies::get(&raw const tensor, 0, &mut values) }.ok()?;
        Some(Table { width, values })
    }

    /// Number of elements in an output row.
    pub const fn width(&self) -> usize {
        self.node.ne[0].unsigned_abs() as usize
    }

    /// Computes `rows` rows with `operands` in place of the node's, and writes them to `dst`,
    /// `stride` bytes apart.
    ///
    /// # Safety
    /// Row operands and `dst` are valid for `rows` rows of the shapes of the graph's tensors;
    /// nothing else accesses `dst`; unchanged operands are computed and alive.
    pub unsafe fn run(&self, rows: usize, operands: [Operand; 3], dst: *mut c_void, stride: usize) {
        let mut node = self.node;
        set_rows(&mut node, rows, dst, stride);
        let mut sources = self.sources;
        for (i, (source, operand)) in sources.iter_mut().zip(operands).enumerate() {
            let Some(source) = source else { continue };
            match operand {
                Operand::Rows { data, stride } => set_rows(source, rows, data, stride),
                Operand::Unchanged => {}
                Operand::Id(id) => {
                    source.data = id.cast_mut().cast();
                    source.ne = [i64::try_from(rows).expect("rows of a batch"), 1, 1, 1];
                    // Every row uses the same id.
                    source.nb = [0; 4];
                }
            }
            node.src[i] = source;
        }
        let params = ComputeParams {
            ith: 0,
            nth: 1,
            wsize: 0,
            wdata: std::ptr::null_mut(),
            threadpool: std::ptr::null_mut(),
            use_ref: false,
        };
        // SAFETY: the function reads the operands' rows and writes dst's, all valid by the caller's
        // contract; these operations use neither the work buffer nor the pool.
        unsafe { (self.forward)(&raw const params, &raw mut node) };
    }
}

fn set_rows(tensor: &mut sys::ggml_tensor, rows: usize, data: *mut c_void, stride: usize) {
    tensor.data = data;
    tensor.ne[1] = i64::try_from(rows).expect("rows of a batch");
    (tensor.ne[2], tensor.ne[3]) = (1, 1);
    tensor.nb[1] = stride;
    (tensor.nb[2], tensor.nb[3]) = (rows * stride, rows * stride);
}
