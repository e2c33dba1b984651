//! Tensors and graphs as ggml passes them to a backend: borrowed for the duration of a call.

mod data_type;
mod divided;
mod graph;
mod node;
mod op;
mod weight_type;

pub use data_type::DataType;
pub use divided::{Along, Divided, Division, readable_mask};
pub use graph::{Graph, Place};
pub use node::{CustomFn, SavedOp, Tensor};
pub(crate) use op::adopt_numbers;
pub use op::{GluOp, Op};
pub use weight_type::WeightType;
