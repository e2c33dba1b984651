//! Synthetic models of many architectures, for tests and benchmarks.
//!
//! * [`Spec`] describes a model of one of the [`Arch`]itectures; [`write()`] makes its GGUF file,
//!   [`write_split`] its shards. The weights are random but well-behaved (finite logits, greedy
//!   text that varies), and the same spec makes the same bytes. The tokenizer is a byte-level BPE,
//!   so any text is a prompt.
//! * [`big`] writes files of benchmark size at the disk's speed, from pools of quantised blocks.
//! * [`write_table_rows`] fills rows of a table that is otherwise a hole in the file.
//! * [`write_adapter`] makes LoRA adapters of models.
//! * [`write_projector`] makes what turns images into embeddings.
//! * [`hostile`] makes broken files from good ones.
//! * [`mutated`] writes files as an attacker would.
//! * [`RoutingStats`] measures how skewed and how local a model's routing is.
//! * [`each_architecture`] and its siblings make one test for each subject.
//! * [`rpc`] runs a remote device on this machine.

#![allow(clippy::disallowed_methods, reason = "tests are told things by the environment")]

mod adapter;
pub mod big;
mod drawn;
mod each;
mod edited;
mod encoded;
mod error;
mod fill;
mod gguf_map;
pub mod hostile;
mod layout;
mod metadata;
mod mix;
mod mtp;
pub mod mutated;
mod picture;
mod pool;
mod projector;
mod random;
pub mod released;
mod routing;
pub mod rpc;
mod runner;
mod spec;
mod table;
mod tensor;
mod values;
mod vocab;
mod writer;

pub use adapter::{AdapterSpec, write_adapter};
pub use edited::{Edit, write_edited};
pub use error::Error;
pub use mix::Mix;
pub use mtp::MtpReads;
pub use picture::picture;
pub use projector::{ProjectorKind, ProjectorSpec, write_projector};
pub use routing::RoutingStats;
pub use runner::{needs_own_process, thorough};
pub use spec::{Arch, Routing, Spec};
pub use table::write_table_rows;
pub use terrace_ggml::quantize::WeightType;
pub use writer::{write, write_split};

// Whatever test writes a model has not its user's environment.
use terrace_test_env as _;
