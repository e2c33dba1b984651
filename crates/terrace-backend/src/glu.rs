//! Which gated linear units kernels of Terrace's own compute, where kernels may add in an order of their own: those that
//! ggml computes element by element.

use terrace_ggml::{DataType, GluOp, Op, Tensor};
use terrace_kernels::glu::{Activation, Glu};

/// A gated linear unit of a graph.
#[derive(Clone, Copy)]
pub struct Unit {
    pub glu: Glu,
    /// Number of elements of a result.
    pub width: usize,
    /// The node's operand that holds the gates, that which holds what they multiply, and the first element of each.
    pub inputs: [(usize, usize); 2],
}

impl Unit {
    /// The unit that a node is, if kernels of Terrace's own compute it.
    pub fn of(node: Tensor<'_>) -> Option<Self> {
        if node.op() != Op::GLU {
            return None;
        }
        let activation = match node.glu_op() {
            GluOp::GEGLU => Activation::Gelu,
            GluOp::GEGLU_QUICK => Activation::GeluQuick,
            GluOp::SWIGLU_OAI => {
                Activation::SwigluOai { alpha: node.float_param(2), limit: node.float_param(3) }
            }
            _ => return None,
        };
        let of_floats =
            |tensor: Tensor<'_>| tensor.ty() == DataType::F32 && tensor.nb()[0] == size_of::<f32>();
        let width = node.ne()[0].unsigned_abs() as usize;
        let inputs = match (node.src(1), node.int_param(1)) {
            (Some(_), _) => [(0, 0), (1, 0)],
            (None, 0) => [(0, 0), (0, width)],
            (None, _) => [(0, width), (0, 0)],
        };
        let known = of_floats(node) && node.sources().all(of_floats);
        known.then(|| Self { glu: Glu::new(activation), width, inputs })
    }
}
