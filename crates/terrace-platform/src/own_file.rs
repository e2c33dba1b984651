//! Kinds of files that Terrace writes, and when such a file may take the place of another one.
//!
//! A path to write may be a slip: the model itself, a link to it, a text of the user's. So an existing
//! file is replaced only if its beginning shows that it is of the kind that is about to be written.

use crate::input_file;
use crate::json_keys::has_keys;
use std::fs::Metadata;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of an existing file that are looked at.
const BEGINNING: u64 = 64 << 10;

/// A kind of file that Terrace writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// Name of the kind with its article, for messages.
    pub name: &'static str,
    /// The form by which an existing file is recognised.
    pub form: Form,
}

/// The form by which files of a kind are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The file begins with these bytes.
    Begins(&'static [u8]),
    /// The file is a JSON object with these keys.
    JsonKeys(&'static [&'static str]),
    /// The file is of one of these kinds.
    OneOf(&'static [&'static OwnFile]),
    /// The file is a JSON object with the keys of one of these lists.
    JsonKeysOfOneOf(&'static [&'static [&'static str]]),
    /// Nothing shows what such a file is, so none is replaced unless it is empty.
    Unmarked,
}

impl OwnFile {
    /// Makes a kind.
    pub const fn new(name: &'static str, form: Form) -> Self {
        Self { name, form }
    }

    /// Checks that a file of this kind may be put at `path`, following links: there is none, it is
    /// empty, or it is of this kind and not write-protected.
    ///
    /// # Errors
    /// The reason, without the path, or the system's.
    pub fn check(&self, path: &Path) -> io::Result<()> {
        let Some(meta) = existing(path)? else { return Ok(()) };
        if !meta.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // The rights of folders alone decide whether a name can be taken over, so this is asked here.
        if meta.permissions().readonly() {
            return Err(io::Error::other("the file exists and is write-protected"));
        }
        if meta.len() == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let (file, _) = input_file::open(path)?;
        file.take(BEGINNING).read_to_end(&mut bytes)?;
        if self.recognises(&bytes) {
            return Ok(());
        }
        let name = self.name;
        Err(io::Error::other(format!("the file exists and is not {name}, so it is not replaced")))
    }

    /// Checks as [`OwnFile::check`] does, and refuses symbolic links.
    ///
    /// # Errors
    /// As [`OwnFile::check`].
    pub fn check_no_link(&self, path: &Path) -> io::Result<()> {
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => Err(io::Error::other("a symbolic link")),
            _ => self.check(path),
        }
    }

    /// Returns true if a file that begins with these bytes is of this kind.
    pub fn recognises(&self, bytes: &[u8]) -> bool {
        match self.form {
            Form::Begins(mark) => bytes.starts_with(mark),
            Form::JsonKeys(keys) => has_keys(bytes, keys),
            Form::JsonKeysOfOneOf(lists) => lists.iter().any(|keys| has_keys(bytes, keys)),
            Form::OneOf(kinds) => kinds.iter().any(|kind| kind.recognises(bytes)),
            Form::Unmarked => false,
        }
    }
}

/// The file at `path`; `None` means that there is none, or a link to none.
fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    match path.metadata() {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TRACE: OwnFile = OwnFile::new("a trace", Form::Begins(b"TRACE"));

    #[test]
    fn only_files_of_the_kind_and_empty_ones_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let reason = || TRACE.check(&path).map_err(|error| error.to_string());
        assert_eq!(reason(), Ok(()));
        for (bytes, may) in [("", true), ("TRACE1", true), ("TRAC", false), ("my text", false)] {
            fs::write(&path, bytes).unwrap();
            let expected = "the file exists and is not a trace, so it is not replaced";
            assert_eq!(reason(), if may { Ok(()) } else { Err(expected.to_owned()) }, "{bytes}");
        }
        fs::write(&path, "TRACE1").unwrap();
        let mut rights = fs::metadata(&path).unwrap().permissions();
        rights.set_readonly(true);
        fs::set_permissions(&path, rights).unwrap();
        assert_eq!(reason(), Err("the file exists and is write-protected".to_owned()));
        assert_eq!(TRACE.check(dir.path()).unwrap_err().to_string(), "not a regular file");
    }
}
