//! Options of quantising.

use crate::recipe::TypeRule;
use std::collections::BTreeSet;
use std::path::PathBuf;
use terrace_ggml::llama::FileType;

#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The model; of a split model, its first file.
    pub input: PathBuf,
    /// The file type for which llama.cpp chooses the mixture.
    pub file_type: FileType,
    /// Types of single tensors; the first matching rule decides. Tensors that llama.cpp never
    /// quantises (norms, routers) stay.
    pub rules: Vec<TypeRule>,
    /// A file of importance values.
    pub imatrix: Option<PathBuf>,
    /// Whether all matrices without a rule get the file type's own type, instead of a mixture.
    pub pure: bool,
    /// Whether quantised weights may be quantised again.
    pub allow_requantize: bool,
    /// Only these tensors; the result is then not a model but a donor.
    pub only: Option<BTreeSet<String>>,
    /// Whether existing GGUF files that are no input may be replaced.
    pub overwrite: bool,
    /// Number of threads that convert.
    pub threads: usize,
}

impl QuantizeOptions {
    /// Makes options with llama.cpp's defaults.
    pub fn new(input: impl Into<PathBuf>, file_type: FileType) -> Self {
        Self {
            input: input.into(),
            file_type,
            rules: Vec::new(),
            imatrix: None,
            pure: false,
            allow_requantize: false,
            only: None,
            overwrite: false,
            threads: terrace_ggml::cpu::default_threads(),
        }
    }
}
