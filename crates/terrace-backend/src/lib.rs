//! Makes ggml compute with the store's bytes.
//!
//! [`Terrace::install`] registers a ggml device. A model loaded within [`Terrace::loading`] has its
//! weights in Terrace's buffer types: managed ones, whose bytes come from the store when a graph
//! needs them, resident ones, and mapped ones. The backend sees the whole graph of a decode, finds
//! the uses of managed weights from its structure alone (operations and operands, never a model's
//! name), and runs everything on ggml's CPU kernels.
//!
//! `graph` scans, rewrites and runs a graph; `moe` computes experts, `lanes` is what `terrace-lanes` does
//! for those with copies on devices, `kernels` products of weights that stay in memory; `memory` holds the weights, and
//! `observe` records routing. `layout`, `block`, `passes` and `routing` are types that these share.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod barrier;
mod block;
mod device;
mod error;
mod failure;
mod glu;
mod graph;
mod guest;
mod kernels;
mod lanes;
mod layout;
mod least;
mod lossy;
mod memory;
mod moe;
mod observe;
mod passes;
mod routing;
mod scratch;
mod sync;
mod tiles;
pub mod warm;

pub use block::{Block, MATRICES, Matrix, Place, Span, Step};
pub use device::{LoadScope, Terrace};
pub use error::BackendError;
pub use graph::bits::{KEYS, Unclear};
pub use guest::{Guest, register_guest};
pub use lanes::{AnyLanes, ExpertLanes, PairRows};
pub use layout::{Cut, Layout, LowTensor, ManagedTensor};
pub use least::least_slots;
pub use lossy::{LossyCounts, LossyRouting, SparedLayer};
pub use memory::file_map::FileMaps;
pub use memory::managed::Owner;
pub use memory::moving::MoveMapped;
pub use memory::places::Home;
pub use memory::weights::Weights;
pub use observe::foretold::Foretold;
pub use observe::observer::RoutingObserver;
pub use observe::pieces::{PieceCounts, PieceReport, Pieces};
pub use observe::places::ExpertPlace;
pub use observe::trace::TraceRecorder;
pub use observe::usage::{ExpertUsage, LayerUsage};
pub use passes::{PassKind, Passes, Prompts};
pub use routing::Routing;

use terrace_platform::own_file::{Form, OwnFile};

/// A routing trace, as [`TraceRecorder`] writes it.
pub const TRACE_FILE: OwnFile = OwnFile::new("a routing trace", Form::Begins(terrace_model::trace::MAGIC));

#[cfg(test)]
use terrace_test_env as _;
