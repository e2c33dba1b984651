//! By what learn files are recognised.

use terrace_platform::own_file::{Form, OwnFile};

/// A learn file, or the record of a model.
pub const FILE: OwnFile = OwnFile::new(
    "a learn file",
    Form::JsonKeysOfOneOf(&[&["schema", "layers"], &["format", "version", "model", "experts"]]),
);
