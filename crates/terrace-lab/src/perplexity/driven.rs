//! Measurements that another program asks for, by two files: it replaces files of the model, writes
//! `reload 7`, and waits until this process has written `done 3 7`.

use super::control::{Command, Control, State, Status, Verb};
use super::measure::Measure;
use super::reload_lines::{finds_something, reload};
use std::thread::sleep;
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::term::{print_failure, say, signals};
use terrace_engine::{Engine, ReloadReport};

/// Interval at which commands are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The files.
#[derive(Debug, PartialEq, Eq)]
pub struct Driven {
    /// Commands.
    pub control: Control,
    /// The state of this process.
    pub status: Status,
}

/// State of this process as the other program knows it.
struct Progress {
    /// The number of the measurement, from 1.
    measurement: usize,
    /// The number of the last command that was accepted; 0 before the first one.
    command: i64,
}

impl Driven {
    /// Measures, and again for each command, until one of them ends it. What fails is said, and the next
    /// command is awaited.
    ///
    /// # Errors
    /// Ctrl-C, or a command cannot be deleted.
    pub fn run(mut self, engine: &mut Engine, measure: &mut Measure<'_>) -> Result<(), CliError> {
        let mut reloaded = reload(engine).unwrap_or_else(|error| {
            print_failure(&error);
            ReloadReport::default()
        });
        self.control.clear()?;
        let (control, status) = (self.control.path().display(), self.status.path().display());
        say!("hot-swap signal mode: commands from {control}, state to {status}");
        let mut progress = Progress { measurement: 1, command: 0 };
        loop {
            self.publish(State::Computing, &progress);
            match measure(engine, progress.measurement - 1, &reloaded) {
                Ok(_) => {}
                Err(CliError::Interrupted) => return Err(CliError::Interrupted),
                Err(error) => print_failure(&error),
            }
            say!("hot-swap iteration {} finished, waiting for the next command", progress.measurement);
            self.publish(State::Done, &progress);
            match self.next(engine, &mut progress)? {
                Some(report) => reloaded = report,
                None => break,
            }
            progress.measurement += 1;
        }
        say!("hot-swap exit requested");
        self.publish(State::Exiting, &progress);
        Ok(())
    }

    /// Waits for a command that asks for a measurement, and returns what was reloaded for it. `None` if the
    /// process is to end.
    fn next(
        &mut self,
        engine: &mut Engine,
        progress: &mut Progress,
    ) -> Result<Option<ReloadReport>, CliError> {
        loop {
            let Command { verb, number } = self.command(progress.command)?;
            progress.command = number.unwrap_or(progress.command);
            match verb {
                Verb::Exit => return Ok(None),
                Verb::Compute => return Ok(Some(ReloadReport::default())),
                Verb::Unknown(word) => say!("unknown hot-swap command {word:?} ignored"),
                Verb::Reload => {
                    match signals::busy(|| reload(engine)) {
                        Ok(report) if finds_something(&report) => return Ok(Some(report)),
                        Ok(_) => say!("hot-swap reload requested, but no tensor has changed on disk"),
                        Err(error) => print_failure(&error),
                    }
                    if signals::interrupted() {
                        return Err(CliError::Interrupted);
                    }
                    self.publish(State::ReloadFailed, progress);
                }
            }
        }
    }

    /// Waits for a command that has no number, or one above `last`.
    fn command(&mut self, last: i64) -> Result<Command, CliError> {
        loop {
            match self.control.take()? {
                Some(Command { number: Some(number), .. }) if number <= last => {
                    say!("stale hot-swap command {number} ignored: the last one was {last}");
                }
                Some(command) => return Ok(command),
                None => sleep(POLL_INTERVAL),
            }
        }
    }

    fn publish(&self, state: State, progress: &Progress) {
        self.status.publish(state, progress.measurement, progress.command);
    }
}
