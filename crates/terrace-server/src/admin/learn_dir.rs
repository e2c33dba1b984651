//! The directory in which clients may save learn files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use terrace_model::learn::LearnFile;
use terrace_platform::input_file;

/// Maximum number of backups of a file.
const MOST_BACKUPS: u32 = 9_999;

/// The one file that clients may save.
pub struct LearnDir {
    dir: PathBuf,
    /// `None`: the model's name.
    name: Option<OsString>,
    /// One client at a time: each backs up what the one before it wrote.
    saving: Mutex<()>,
}

/// A saved file.
#[derive(Debug, PartialEq, Eq)]
pub struct Saved {
    pub path: PathBuf,
    /// The file that was there before.
    pub backup: Option<PathBuf>,
}

impl LearnDir {
    /// Saves files in `dir`, under this name.
    pub const fn new(dir: PathBuf, name: Option<OsString>) -> Self {
        Self { dir, name, saving: Mutex::new(()) }
    }

    /// Saves a learn file of the model with this file. An existing one is kept as `NAME.1.json`, or
    /// with the next number that is free.
    ///
    /// # Errors
    /// What is wrong, with the path; an existing file is then unchanged.
    pub fn save(&self, model: &Path, file: &LearnFile) -> Result<Saved, String> {
        let name = self.name.clone().unwrap_or_else(|| {
            let mut name = model.file_stem().unwrap_or("model".as_ref()).to_owned();
            name.push(".learned.json");
            name
        });
        let path = self.dir.join(name);
        let _one = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        // Before a backup is made of it.
        terrace_engine::learn::FILE
            .check_no_link(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let backup = backup(&path).map_err(|error| format!("{}: no backup: {error}", path.display()))?;
        terrace_engine::learn::write(&path, file).map_err(|error| error.to_string())?;
        Ok(Saved { path, backup })
    }
}

/// Gives an existing file a second name with the first free number. Returns that name.
fn backup(path: &Path) -> io::Result<Option<PathBuf>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    for number in 1..=MOST_BACKUPS {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!(".{number}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        let backup = path.with_file_name(name);
        let made = fs::hard_link(path, &backup).or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => Err(error),
            // Not every file system has second names.
            _ => copy(path, &backup),
        });
        match made {
            Ok(()) => return Ok(Some(backup)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {MOST_BACKUPS} already")))
}

#[expect(clippy::disallowed_methods, reason = "a new name, which nothing had")]
fn copy(path: &Path, backup: &Path) -> io::Result<()> {
    let mut to = File::create_new(backup)?;
    io::copy(&mut input_file::open(path)?.0, &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_there_are_kept_under_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let of = |experts| LearnFile { experts: Some(experts), ..LearnFile::default() };
        let saves = LearnDir::new(dir.path().to_owned(), None);
        let path = dir.path().join("tiny.learned.json");
        let model = Path::new("/models/tiny.gguf");
        assert_eq!(saves.save(model, &of(8)).unwrap(), Saved { path: path.clone(), backup: None });
        for number in 1..=3 {
            let backup = dir.path().join(format!("tiny.learned.{number}.json"));
            let saved = saves.save(model, &of(8 + number)).unwrap();
            assert_eq!(saved, Saved { path: path.clone(), backup: Some(backup.clone()) });
            assert_eq!(LearnFile::parse(&fs::read(&backup).unwrap()).unwrap().experts, Some(7 + number));
        }
        fs::remove_file(dir.path().join("tiny.learned.2.json")).unwrap();
        let saved = saves.save(model, &of(99)).unwrap();
        assert_eq!(saved.backup.unwrap(), dir.path().join("tiny.learned.2.json"), "the first free number");
        assert_eq!(LearnFile::parse(&fs::read(&path).unwrap()).unwrap().experts, Some(99));
    }

    #[test]
    fn names_without_an_end_have_backups_too() {
        let dir = tempfile::tempdir().unwrap();
        let saves = LearnDir::new(dir.path().to_owned(), Some("learned".into()));
        let model = Path::new("tiny.gguf");
        saves.save(model, &LearnFile::default()).unwrap();
        let saved = saves.save(model, &LearnFile::default()).unwrap();
        assert_eq!(saved.backup.unwrap(), dir.path().join("learned.1"));
        let gone = LearnDir::new(dir.path().join("none"), None);
        assert!(gone.save(model, &LearnFile::default()).unwrap_err().contains("none"));
    }
}
