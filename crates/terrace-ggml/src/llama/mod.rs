//! llama.cpp's models, contexts, vocabularies and samplers as owned handles, and its choice of
//! quantisation types.

mod adapter;
mod batch;
mod context;
mod ctype;
mod embedded;
mod embeddings;
pub(crate) mod fatal;
mod file_type;
mod fim;
mod held;
mod load;
mod load_params;
mod memory;
mod mixture;
mod observer;
mod pooling;
mod sampler;
mod sampler_memory;
mod sampling;
#[cfg(feature = "cli")]
mod sampling_values;
mod specials;
mod stack;
mod state;
mod token;
mod vocab;
mod weight;

pub use adapter::{Adapter, AdapterError};
pub use batch::Batch;
pub use context::{CacheType, Context, ContextError, ContextParams, FlashAttention, Hidden};
pub use ctype::is_space;
pub use embedded::Embedded;
pub use embeddings::PairTokens;
pub use fatal::{on_loss, print_last_with, report_in_one_line};
pub use file_type::{FileType, ParseFileTypeError};
pub use fim::FimTokens;
pub use load::{LoadError, Model};
pub use load_params::LoadParams;
pub use mixture::{Choice, Mixture, MixtureError, MixtureRequest, choose};
pub use observer::Observer;
pub use pooling::Pooling;
pub use sampler::{Candidates, Sampler};
pub use sampling::{Grammar, Purpose, SamplerKind, Sampling, Thoughts, Trigger};
pub use state::{State, StateError, StatePart};
pub use token::Token;
pub use vocab::{TokenizeError, TokenizeReason, Vocab};
pub use weight::{Prepared, Seat, Weight};
