//! Options of quantising.

use crate::metadata::MetadataRule;
use crate::recipe::TypeRule;
use std::collections::BTreeSet;
use std::path::PathBuf;
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::WeightType;

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
    /// If not empty, only tensors whose names contain one of these texts use importance values.
    pub include_weights: Vec<String>,
    /// Tensors whose names contain one of these texts use no importance values.
    pub exclude_weights: Vec<String>,
    /// True if the output head stays unchanged.
    pub leave_output: bool,
    /// Type of the output head, in place of the mixture's.
    pub output_type: Option<WeightType>,
    /// Type of the table of embeddings, in place of the mixture's.
    pub embedding_type: Option<WeightType>,
    /// Metadata that is replaced or added.
    pub metadata: Vec<MetadataRule>,
    /// True if all matrices without a rule get the file type's own type, instead of a mixture.
    pub pure: bool,
    /// True if quantised weights may be quantised again.
    pub allow_requantize: bool,
    /// Only these tensors; the result is then not a model but a donor.
    pub only: Option<BTreeSet<String>>,
    /// True if existing GGUF files that are no input may be replaced.
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
            include_weights: Vec::new(),
            exclude_weights: Vec::new(),
            leave_output: false,
            output_type: None,
            embedding_type: None,
            metadata: Vec::new(),
            pure: false,
            allow_requantize: false,
            only: None,
            overwrite: false,
            threads: terrace_ggml::cpu::default_threads(),
        }
    }
}
