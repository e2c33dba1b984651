//! Makes ggml compute with the store's bytes.
//!
//! [`Terrace::install`] registers a ggml device. A model loaded within [`Terrace::loading`] has its weights in buffer
//! types of ours: managed ones, whose bytes come from the store when a graph needs them, resident ones, and mapped ones. The
//! backend sees the whole graph of a decode, finds what needs managed weights by the structure of the graph alone
//! (operations and operands, never a model's name), and runs everything on ggml's CPU kernels.

mod barrier;
mod buffers;
mod bus_error;
mod device;
mod error;
mod exec;
mod expert_kernels;
mod experts;
mod failure;
mod file_map;
mod fused;
mod hot;
mod kernels;
mod mapped;
mod matrices;
mod observer;
mod places;
mod products;
mod routing;
mod rows;
mod scratch;
mod skip;
mod trace;
mod usage;
mod weights;

pub use device::{LoadScope, Terrace};
pub use error::BackendError;
pub use file_map::FileMaps;
pub use fused::Foretold;
pub use hot::{HotLayerReport, HotReport, HotTotals, HotUpdate, LaneLayer, LanePlan, Lanes};
pub use observer::RoutingObserver;
pub use trace::TraceRecorder;
pub use usage::ExpertUsage;
pub use weights::{Cut, Layout, ManagedTensor, Weights};
