//! Here is a model: make it smaller.
//!
//! llama.cpp chooses the types, ggml converts the rows, and the file equals what llama.cpp's own
//! quantiser would write, byte by byte. [`QuantizePlan::new`] determines the new type of each
//! tensor and checks everything that could go wrong; then [`QuantizePlan::write`] writes one file,
//! [`QuantizePlan::write_split`] one file per tensor, or [`QuantizePlan::write_on`] one per disk. A tensor is converted a few million
//! elements at a time (`convert`); files appear under their names when everything is done
//! (`output`).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod convert;
mod disks;
mod error;
mod fit;
mod metadata;
mod options;
mod output;
mod plan;
mod planned;
mod recipe;
mod shards;

pub use disks::Disk;
pub use error::QuantizeError;
pub use fit::Fit;
pub use metadata::{MetadataRule, ParseMetadataRuleError};
pub use options::QuantizeOptions;
pub use output::{FILE, QuantizeProgress, Written};
pub use plan::QuantizePlan;
pub use planned::PlannedTensor;
pub use recipe::{ParseTypeRuleError, RecipeError, TypeRule, TypeRules, read_recipe};
