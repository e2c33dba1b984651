//! Reads and writes learn files.

use super::kind::FILE;
use super::shapes;
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::{LearnOptions, Mode, Options};
use std::io::Write;
use std::path::{Path, PathBuf};
use terrace_backend::warm::{read_learned, to_record};
use terrace_model::ModelFile;
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::{LearnFile, Reported};
use terrace_store::part_file::PartFile;

/// Reads a learn file, or the record of a model.
///
/// # Errors
/// [`EngineError::File`] with the system's reason, or what is wrong with the text.
pub fn read(path: &Path) -> Result<LearnFile, EngineError> {
    existing(path)?.ok_or_else(|| wrong(path, "no such file").into())
}

/// Writes a learn file, replacing an existing one once everything is written.
///
/// # Errors
/// [`EngineError::File`] with the system's reason.
pub fn write(path: &Path, file: &LearnFile) -> Result<(), EngineError> {
    write_text(path, &file.to_text())
}

/// Checks that a learn file, read from `path`, can be of this model.
///
/// # Errors
/// [`EngineError::File`] with what does not fit.
pub fn check(path: &Path, file: &LearnFile, model: &ModelFile) -> Result<(), EngineError> {
    let fits = file.check(&ModelIdentity::of(model).name, &shapes(model));
    fits.map_err(|misfit| wrong(path, misfit).into())
}

/// Notes in a learn file which model it is of.
pub fn named(file: LearnFile, model: &ModelFile) -> LearnFile {
    file.of_model(&ModelIdentity::of(model).name, &shapes(model))
}

/// Writes the record of a model as Terrace keeps it, with the uses of a learn file that fits it.
///
/// # Errors
/// [`EngineError::File`] with the system's reason, also if the model's file cannot be read, or what
/// does not fit.
pub fn write_record(path: &Path, model: &ModelFile, file: &LearnFile) -> Result<(), EngineError> {
    check(path, file, model)?;
    let text = to_record(model, &shapes(model), file).map_err(|error| wrong(path, error))?;
    write_text(path, &text)
}

fn write_text(path: &Path, text: &str) -> Result<(), EngineError> {
    let written =
        PartFile::create(path, &FILE).and_then(|part| part.finish(|out| out.write_all(text.as_bytes())));
    written.map_err(|source| FileError::unwritten(FileRole::LearnOutput, path.to_owned(), &source))?;
    Ok(())
}

/// The file's contents; `None` if there is no file.
fn existing(path: &Path) -> Result<Option<LearnFile>, EngineError> {
    Ok(read_learned(path).map_err(|reason| wrong(path, reason))?)
}

fn wrong(path: &Path, reason: impl ToString) -> FileError {
    FileError { role: FileRole::Learn, path: path.to_owned(), reason: reason.to_string() }
}

/// The learn files of a run.
#[derive(Debug, Default)]
pub struct LearnFiles {
    /// Uses to start from.
    pub first: Option<LearnFile>,
    /// The file, if one is written.
    pub output: Option<LearnOutput>,
}

impl LearnFiles {
    /// Reads the file to start from, and checks that the other can be written.
    ///
    /// # Errors
    /// [`EngineError::File`]: a file is of another model, wrong, or cannot be written; or the run
    /// counts nothing.
    pub fn for_run(options: &Options, model: &ModelFile) -> Result<Self, EngineError> {
        let LearnOptions { learned, learn_to, learn_mode, auto_learn, warmup_prompt: _ } = &options.learn;
        let learned = learned.as_deref();
        let output = learn_to.as_deref().or(learned.filter(|_| *auto_learn));
        if let (Some(path), Some(reason)) = (output.or(learned), uncounted(options, model)) {
            return Err(wrong(path, reason).into());
        }
        let first = learned.map(|path| Self::first(path, model, *auto_learn));
        let first = first.transpose()?.flatten();
        let output = output.map(|path| LearnOutput::open(path, *learn_mode)).transpose()?;
        // A file that is learnt on its own goes on from what it holds.
        let output = output.map(|output| match *auto_learn && learn_to.is_none() {
            true => LearnOutput { before: first.clone(), ..output },
            false => output,
        });
        Ok(Self { first, output })
    }

    /// The uses to start from; `None` if they are still to be learnt. A file that is not what it
    /// should be is not overwritten either: it may be something else.
    fn first(path: &Path, model: &ModelFile, learns: bool) -> Result<Option<LearnFile>, EngineError> {
        // Scripts of the original make the file before it is learnt.
        if learns && path.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Ok(None);
        }
        match existing(path)? {
            None if learns => Ok(None),
            None => Err(wrong(path, "no such file").into()),
            Some(file) => {
                check(path, &file, model)?;
                match (file.layers.is_empty(), learns) {
                    (false, _) => Ok(Some(file)),
                    (true, true) => Ok(None),
                    (true, false) => Err(wrong(path, "no uses of experts in it").into()),
                }
            }
        }
    }
}

/// Why the run counts no uses of experts.
fn uncounted(options: &Options, model: &ModelFile) -> Option<&'static str> {
    match options.mode {
        Mode::Stock { .. } => Some("plain llama.cpp counts no uses of experts"),
        Mode::Terrace if shapes(model).is_empty() => Some("the model has no experts"),
        Mode::Terrace => None,
    }
}

/// A learn file that is written while a model runs.
#[derive(Clone, Debug)]
pub struct LearnOutput {
    pub path: PathBuf,
    /// Detail of its reports.
    pub reported: Reported,
    /// Uses of earlier runs, of which half are added.
    pub before: Option<LearnFile>,
}

impl LearnOutput {
    fn open(path: &Path, reported: Reported) -> Result<Self, EngineError> {
        PartFile::create(path, &FILE)
            .map_err(|source| FileError::unwritten(FileRole::LearnOutput, path.to_owned(), &source))?;
        Ok(Self { path: path.to_owned(), reported, before: None })
    }
}
