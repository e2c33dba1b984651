//! The files that a command line names to be written, checked before anything is computed: none of them
//! is a file that the command reads, and none replaces a file of another kind.

use crate::args::Output;
use crate::error::CliError;
use crate::source;
use clap::ArgMatches;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use terrace_platform::file::FileId;
use terrace_platform::own_file::{Form, OwnFile};

/// A drawing, as [`crate::whole_file::write_svg`] marks it.
pub const SVG: OwnFile = OwnFile::new("a drawing of Terrace", Form::Begins(SVG_MARK.as_bytes()));
/// The beginning of a drawing.
pub const SVG_MARK: &str = "<svg data-generator=\"terrace\" ";
/// The table of a sweep.
pub const SWEEP_TABLE: OwnFile =
    OwnFile::new("the table of a sweep", Form::Begins(b"subject,layer,role,donor,type,bytes,base_bytes,"));
/// The table of a sweep for another program.
pub const ASSIGN_TABLE: OwnFile = OwnFile::new("a table of divergences by type", Form::Begins(b"QTYPE,"));
/// The recipe of a sweep.
pub const SWEEP_RECIPE: OwnFile =
    OwnFile::new("the recipe of a sweep", Form::Begins(b"# the least divergence within "));
/// A page of the manual.
pub const MAN_PAGE: OwnFile = OwnFile::new(
    "a page of Terrace's manual",
    Form::Begins(b".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH terrace"),
);
/// A conversation that was saved.
pub const CONVERSATION: OwnFile = OwnFile::new("a conversation of Terrace", Form::JsonKeys(&["messages"]));
/// Logits of a prompt's last token, which are plain numbers.
pub const LAST_LOGITS: OwnFile = OwnFile::new("empty", Form::Unmarked);
/// A model where none is replaced.
pub const NEW_MODEL: OwnFile = OwnFile::new("empty", Form::Unmarked);
/// Reports of a process with the plug-in, which writes them.
pub const PROCESS_STATS: OwnFile = OwnFile::new(
    "statistics of a process",
    Form::JsonKeys(&["version", "process", "program", "models", "freed"]),
);

/// Longest value that is tried as a path, in bytes: Linux allows no longer paths.
const MAX_PATH: usize = 4096;

/// The files that a command line names.
#[derive(Debug, Default)]
pub struct Written {
    outputs: Vec<Output>,
    /// Every other value that names a regular file, with all files of a split model.
    inputs: Vec<PathBuf>,
}

impl Written {
    /// Collects the files from the values of all options and arguments, wherever they were set.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut this = Self::default();
        let mut next = Some(matches);
        while let Some(matches) = next {
            for id in matches.ids() {
                match matches.try_get_many::<Output>(id.as_str()) {
                    Ok(outputs) => this.outputs.extend(outputs.into_iter().flatten().cloned()),
                    // A value of another type.
                    Err(_) => {
                        let values = matches.try_get_raw(id.as_str()).ok().flatten();
                        values.into_iter().flatten().for_each(|value| this.add_inputs(value));
                    }
                }
            }
            next = matches.subcommand().map(|(_, matches)| matches);
        }
        this
    }

    /// Adds the files that a value names as a whole, or in parts such as `NAME=FILE` and `FILE:SCALE`.
    fn add_inputs(&mut self, value: &OsStr) {
        if value.len() > MAX_PATH {
            return;
        }
        self.add_input(Path::new(value));
        let Some(text) = value.to_str() else { return };
        if text.starts_with("hf:") {
            source::local(Some(value)).iter().for_each(|path| self.add_input(path));
        }
        for (at, _) in text.match_indices(['=', ',', ':']) {
            self.add_input(Path::new(&text[at + 1..]));
            self.add_input(Path::new(&text[..at]));
        }
        text.split(['=', ',', ':']).for_each(|part| self.add_input(Path::new(part)));
    }

    fn add_input(&mut self, path: &Path) {
        if path.is_file() {
            self.inputs.push(path.to_owned());
            self.inputs.extend(other_shards(path));
        }
    }

    /// Checks that every file may be written.
    ///
    /// # Errors
    /// [`CliError::Io`] with the path and the reason.
    pub fn check(&self) -> Result<(), CliError> {
        let read: Vec<_> = self.inputs.iter().filter_map(|path| FileId::at(path)).collect();
        for (index, output) in self.outputs.iter().enumerate() {
            let refuse =
                |reason: io::Error| CliError::io(format!("cannot write {}", output.display()))(reason);
            let there = output.metadata().ok();
            if there.as_ref().is_some_and(|meta| meta.is_dir()) && output.folder {
                continue;
            }
            if there.as_ref().is_some_and(|meta| !meta.is_file() && !meta.is_dir()) && output.special {
                continue;
            }
            if FileId::at(output).is_some_and(|file| read.contains(&file)) {
                return Err(refuse(io::Error::other("the command reads this file, so it does not write it")));
            }
            output.kind.check(output).map_err(refuse)?;
            if self.outputs[..index].iter().any(|other| place(other) == place(output)) {
                return Err(refuse(io::Error::other("two outputs have this path")));
            }
        }
        Ok(())
    }
}

/// The path with its folder as the system names it.
fn place(path: &Path) -> PathBuf {
    let folder = terrace_store::part_file::folder(path).canonicalize();
    folder.map_or_else(|_| path.to_owned(), |folder| folder.join(path.file_name().unwrap_or_default()))
}

/// The files of a split model, if the name is that of one of them.
fn other_shards(path: &Path) -> Vec<PathBuf> {
    let shards = || {
        let (first, count) = path.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = first.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(number) && digits(count)).then_some(())?;
        let all = 1..=count.parse::<u32>().ok()?;
        let path_of = |number| path.with_file_name(format!("{prefix}-{number:05}-of-{count}.gguf"));
        // Names of shards that do not exist are not collected, and the first gap ends the search.
        Some(all.map(path_of).take_while(|path| path.is_file()).collect())
    };
    shards().unwrap_or_default()
}

#[cfg(test)]
#[path = "written_tests.rs"]
mod tests;
