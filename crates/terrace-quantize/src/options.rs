//! What is asked for.

use crate::recipe::TypeRule;
use std::collections::BTreeSet;
use std::path::PathBuf;
use terrace_ggml::llama::FileType;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The model (of a split one, its first file).
    pub input: PathBuf,
    /// What llama.cpp's mixture is chosen for.
    pub file_type: FileType,
    /// Types of single tensors; the first rule that matches decides. What llama.cpp never quantises (norms, routers) stays.
    pub rules: Vec<TypeRule>,
    /// A file of importances.
    pub imatrix: Option<PathBuf>,
    /// No mixture: all matrices without a rule get the file type's own type.
    pub pure: bool,
    /// Weights that are quantised already may be so again.
    pub allow_requantize: bool,
    /// These tensors alone; the result is no model then, but a donor for one.
    pub only: Option<BTreeSet<String>>,
    /// Threads that convert.
    pub threads: usize,
}

impl QuantizeOptions {
    /// As llama.cpp does it by default.
    pub fn new(input: impl Into<PathBuf>, file_type: FileType) -> Self {
        Self {
            input: input.into(),
            file_type,
            rules: Vec::new(),
            imatrix: None,
            pure: false,
            allow_requantize: false,
            only: None,
            threads: terrace_ggml::cpu::default_threads(),
        }
    }
}
