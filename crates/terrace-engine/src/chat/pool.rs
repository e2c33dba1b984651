//! Workers' processes that wait for the next question.

use super::ask::{Ask, Source};
use super::error::ChatTemplateError;
use super::process::Process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of processes that are kept for the next question. Each takes some megabytes.
const KEPT: usize = 8;

/// Processes that have parsed a template, or none, and wait.
#[derive(Debug)]
pub(super) struct Pool {
    source: Option<Ask<'static>>,
    idle: Mutex<Vec<Process>>,
}

impl Pool {
    /// Processes that parse this template first.
    pub(super) fn new(source: Option<Source>) -> Self {
        Self { source: source.map(Ask::Parse), idle: Mutex::default() }
    }

    /// Takes a process that waits, or starts one. It comes back when the lease is dropped, if it is
    /// alive.
    ///
    /// # Errors
    /// There is no process, or the template is refused.
    pub(super) fn lease(self: &Arc<Self>) -> Result<Leased, ChatTemplateError> {
        let idle = std::iter::from_fn(|| self.idle().pop()).find(Process::is_usable);
        let process = idle.map_or_else(|| self.start().map(|(process, _)| process), Ok)?;
        Ok(Leased { process: Some(process), pool: Arc::clone(self) })
    }

    /// Starts a process, which then waits. Returns what it says of the template.
    ///
    /// # Errors
    /// As [`Pool::lease`].
    pub(super) fn begin(&self) -> Result<String, ChatTemplateError> {
        let (process, told) = self.start()?;
        self.idle().push(process);
        Ok(told)
    }

    fn start(&self) -> Result<(Process, String), ChatTemplateError> {
        let mut process = Process::start()?;
        let told = self.source.as_ref().map_or_else(|| Ok(String::new()), |source| process.ask(source))?;
        Ok((process, told))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process in use.
#[derive(Debug)]
pub(super) struct Leased {
    /// `None` after an error that it did not survive.
    process: Option<Process>,
    pool: Arc<Pool>,
}

impl Leased {
    /// See [`Process::ask`].
    ///
    /// # Errors
    /// Its errors.
    pub(super) fn ask(&mut self, ask: &Ask<'_>) -> Result<String, ChatTemplateError> {
        let Some(process) = &mut self.process else {
            return Err(ChatTemplateError::Process("it has ended".into()));
        };
        let told = process.ask(ask);
        if told.as_ref().is_err_and(|error| !error.is_harmless()) {
            self.process = None;
        }
        told
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let Some(process) = self.process.take().filter(Process::is_alive) else { return };
        let mut idle = self.pool.idle();
        if idle.len() < KEPT {
            idle.push(process);
        }
    }
}
