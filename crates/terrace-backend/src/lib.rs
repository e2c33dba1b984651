//! Makes ggml compute with the store's bytes.
//!
//! [`Terrace::install`] registers a ggml device. A model loaded within [`Terrace::loading`] has its weights in two
//! buffer types: managed ones, whose bytes come from the store when a graph needs them, and resident ones. The
//! backend sees the whole graph of a decode, finds what needs managed weights by the structure of the graph alone
//! (operations and operands, never a model's name), and runs everything on ggml's CPU kernels.

mod barrier;
mod buffers;
mod device;
mod error;
mod exec;
mod expert_kernels;
mod experts;
mod matrices;
mod routing;
mod rows;
mod scratch;
mod trace;
mod weights;

pub use device::{LoadScope, Terrace};
pub use error::BackendError;
pub use trace::TraceRecorder;
pub use weights::{Cut, Layout, ManagedTensor, Weights};
