//! Sections of the configuration file, one for each model of a server.

use std::collections::BTreeMap;

/// A section of the configuration file, `[models.NAME]`: MODEL, and options as words of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// MODEL. `None`: the file of this name in the directory.
    pub model: Option<String>,
    /// Names and values of options.
    pub options: BTreeMap<String, String>,
}

/// The sections by name.
pub type Sections = BTreeMap<String, Section>;
