//! Here is a model: make a smaller one of it.
//!
//! llama.cpp chooses the types, ggml converts the rows, and the file is what llama.cpp's own quantiser would write, byte
//! by byte. [`QuantizePlan::new`] finds out what each tensor becomes, and everything that could be wrong with that; then
//! [`QuantizePlan::write`] makes one file of it, [`QuantizePlan::write_split`] one per tensor. Between them: a tensor is
//! converted a few million elements at a time (`convert`), files appear under their names when all is done (`output`).

mod convert;
mod error;
mod options;
mod output;
mod plan;
mod planned;
mod recipe;

pub use error::QuantizeError;
pub use options::QuantizeOptions;
pub use output::{QuantizeProgress, Written};
pub use plan::QuantizePlan;
pub use planned::PlannedTensor;
pub use recipe::{ParseTypeRuleError, RecipeError, TypeRule, read_recipe};
