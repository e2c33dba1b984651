//! The kind and version that a JSON file states.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use terrace_model::{parse_reason, printable};

/// A kind of files, which name it in `format` and `version`.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// For messages: `not ...`.
    pub what: &'static str,
    /// The value of `format`.
    pub format: &'static str,
    /// The value of `version`: the only one that can be read.
    pub version: u32,
}

/// Why a file that is kept between runs could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct KeptFileError {
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl KeptFileError {
    /// Makes an error of the system or of what is read.
    pub fn new(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.into(), reason: reason.to_string() }
    }
}

impl FileKind {
    /// Parses a file of this kind. Its kind is read first, because the rest of another version may
    /// have another form.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let unreadable = |error: serde_json::Error| format!("not {}: {}", self.what, parse_reason(&error));
        let Head { format, version } = serde_json::from_slice(json).map_err(unreadable)?;
        if format != self.format || version != self.version {
            let Self { format: ours, version: our, .. } = self;
            let theirs = printable(&format);
            return Err(format!("it is `{theirs}` version {version}, not `{ours}` version {our}"));
        }
        serde_json::from_slice(json).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_kind_is_parsed() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Rest {
            n: u8,
        }
        let kind = FileKind { what: "a test", format: "terrace-test", version: 2 };
        let parse = |json: &str| kind.parse::<Rest>(json.as_bytes());
        assert_eq!(parse(r#"{"format": "terrace-test", "version": 2, "n": 3}"#), Ok(Rest { n: 3 }));
        let other = parse(r#"{"format": "terrace-test", "version": 3, "m": 3}"#).unwrap_err();
        assert_eq!(other, "it is `terrace-test` version 3, not `terrace-test` version 2");
        let lines = parse(r#"{"format": "a\nb", "version": 1}"#).unwrap_err();
        assert_eq!(lines, r"it is `a\nb` version 1, not `terrace-test` version 2");
        for wrong in ["", "[]", "{}", r#"{"format": "terrace-test", "version": 2}"#] {
            assert!(parse(wrong).unwrap_err().starts_with("not a test: "), "{wrong}");
        }
    }
}
