//! The two files by which another program drives a loop: one with its commands, which are taken and deleted,
//! and one with the state of this process. The protocol is that of ik_llama.cpp's llama-perplexity.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_platform::{file, input_file};

/// Most bytes of a command.
const MAX_FILE: u64 = 4096;
/// Pause before the state is written again after a failure.
const AGAIN: Duration = Duration::from_millis(20);
/// Time between two messages about a state that cannot be written.
const REMIND: Duration = Duration::from_secs(10);

/// A command, with its number if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The verb.
    pub verb: Verb,
    /// Commands with numbers are taken in ascending order, each one once.
    pub number: Option<i64>,
}

/// Verb of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Replace the tensors that have changed, and measure.
    Reload,
    /// Measure.
    Compute,
    /// End.
    Exit,
    /// A word that means nothing.
    Unknown(String),
}

impl Command {
    /// The command in the text; `None` if it is not complete, because its line has no end.
    fn parse(text: &str) -> Option<Self> {
        if !text.contains('\n') {
            return None;
        }
        let mut words = text.split_whitespace();
        let verb = match words.next().unwrap_or_default() {
            "reload" => Verb::Reload,
            "compute" => Verb::Compute,
            "exit" | "quit" | "stop" => Verb::Exit,
            other => Verb::Unknown(other.to_owned()),
        };
        let number = words.next().and_then(|word| word.parse().ok()).filter(|number| *number >= 0);
        Some(Self { verb, number })
    }
}

/// The file with commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Control {
    path: PathBuf,
    /// The last failure, which is said once.
    failed: Option<String>,
}

impl Control {
    pub fn new(path: OsString) -> Self {
        Self { path: path.into(), failed: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes a command that was left by an earlier process.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub fn clear(&self) -> Result<(), CliError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(CliError::io(self.path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    /// Takes the command, if there is a complete one, and deletes its file.
    ///
    /// # Errors
    /// The file cannot be deleted, so that the command would come again.
    pub fn take(&mut self) -> Result<Option<Command>, CliError> {
        let bytes = match input_file::read_regular(&self.path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.say_once(&error);
                return Ok(None);
            }
        };
        self.failed = None;
        let command = Command::parse(&String::from_utf8_lossy(&bytes));
        if command.is_some() {
            self.clear()?;
        }
        Ok(command)
    }

    fn say_once(&mut self, error: &io::Error) {
        if error.kind() == ErrorKind::NotFound {
            return;
        }
        let text = error.to_string();
        if self.failed.as_ref() != Some(&text) {
            tracing::warn!("cannot read {}: {text}", self.path.display());
            self.failed = Some(text);
        }
    }
}

/// State of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A measurement is running.
    Computing,
    /// It has ended, and the next command is awaited.
    Done,
    /// Nothing could be reloaded, and the next command is awaited.
    ReloadFailed,
    /// The process ends.
    Exiting,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Done => "done",
            Self::ReloadFailed => "reload_failed",
            Self::Exiting => "exiting",
        }
    }
}

/// The file with the state.
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    path: PathBuf,
}

impl Status {
    pub fn new(path: OsString) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the state, the number of the measurement and the number of the last command that was
    /// accepted. Tries until it succeeds: the other program waits for this line.
    pub fn publish(&self, state: State, measurement: usize, command: i64) {
        let line = format!("{} {measurement} {command}\n", state.name());
        let mut said = Instant::now();
        while let Err(error) = self.write(&line) {
            if said.elapsed() >= REMIND {
                said = Instant::now();
                say!("hotswap: still trying to write the state to {}: {error}", self.path.display());
            }
            sleep(AGAIN);
        }
    }

    /// Readers see the old line or the new one, never a part.
    #[expect(clippy::disallowed_methods, reason = "a line for another program, of which nothing is kept")]
    fn write(&self, line: &str) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".tmp");
        std::fs::File::create(&new)?.write_all(line.as_bytes())?;
        file::replace(Path::new(&new), &self.path)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Verb, Option<i64>)> {
        Command::parse(text).map(|command| (command.verb, command.number))
    }

    #[test]
    fn a_command_is_a_line_with_an_end() {
        assert_eq!(parsed("reload 3\n"), Some((Verb::Reload, Some(3))));
        assert_eq!(parsed("compute\r\n"), Some((Verb::Compute, None)));
        for word in ["exit", "quit", "stop"] {
            assert_eq!(parsed(&format!("  {word}   12 \n")), Some((Verb::Exit, Some(12))));
        }
        assert_eq!(parsed("reload x\n"), Some((Verb::Reload, None)));
        assert_eq!(parsed("reload -1\n"), Some((Verb::Reload, None)));
        assert_eq!(parsed("jump 4\n"), Some((Verb::Unknown("jump".into()), Some(4))));
        for incomplete in ["", "reload", "reload 3"] {
            assert_eq!(parsed(incomplete), None, "{incomplete:?}");
        }
    }

    #[test]
    fn a_command_is_taken_once_it_is_complete() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("control");
        let mut control = Control::new(path.clone().into());
        assert_eq!(control.take().unwrap(), None);
        std::fs::write(&path, "reload 1").unwrap();
        assert_eq!(control.take().unwrap(), None);
        assert!(path.exists());
        std::fs::write(&path, "reload 1\n").unwrap();
        assert_eq!(control.take().unwrap(), Some(Command { verb: Verb::Reload, number: Some(1) }));
        assert!(!path.exists());
    }

    #[test]
    fn a_state_is_written_as_soon_as_it_can_be() {
        let dir = tempfile::TempDir::new().unwrap();
        let folder = dir.path().join("later");
        let path = folder.join("status");
        let status = Status::new(path.clone().into());
        let writer = std::thread::spawn(move || status.publish(State::ReloadFailed, 2, 7));
        sleep(3 * AGAIN);
        assert!(!writer.is_finished());
        std::fs::create_dir(&folder).unwrap();
        writer.join().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "reload_failed 2 7\n");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
}
