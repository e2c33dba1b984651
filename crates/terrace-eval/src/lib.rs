//! Here is a text: how well does the model predict it?
//!
//! [`perplexity`] computes what llama.cpp's tool of that name computes; [`divergence`] compares
//! with the predictions of another model in a file ([`BaseLogits`]), and [`lossy_cost`] with the model's own
//! without loss; [`hellaswag`] lets the model
//! choose between endings. A [`Calibrator`] finds layers that change little, and [`sweep`] the cost
//! of each tensor's type. All of them need one thing of the engine: the logits of given tokens
//! ([`terrace_engine::Logits`]).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod base_logits;
mod chunks;
mod divergence;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod hellaswag;
mod layers;
mod lossy;
mod perplexity;
mod stats;
pub mod sweep;
mod threads;

pub use base_logits::{BaseLogits, BaseLogitsError, BaseLogitsFault, FILE as BASE_LOGITS_FILE, LogitsFile};
pub use chunks::{Chunks, PerplexityOptions};
pub use divergence::{
    Compared, DivergenceProgress, DivergenceReport, DivergenceSummary, Estimate, Percentiles, divergence,
};
pub use error::EvalError;
pub use hellaswag::{
    HELLASWAG_SEQUENCES, HellaSwagAnswer, HellaSwagError, HellaSwagProgress, HellaSwagReport, HellaSwagTask,
    Score, hellaswag,
};
pub use layers::{CalibrationPass, Calibrator};
pub use lossy::{LossyBase, lossy_base, lossy_cost};
pub use perplexity::{PerplexityProgress, PerplexityReport, perplexity, save_logits};
