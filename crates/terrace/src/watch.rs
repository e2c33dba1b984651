//! `--watch`: the engine looks for changed tensors when the model's files change, and on SIGHUP.

use notify_debouncer_mini::notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_mini::{DebounceEventResult, Debouncer, new_debouncer};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::term::terminal::Terminal;
use terrace_cli::term::{say, signals};
use terrace_engine::Engine;
use terrace_model::identity::FileState;
use terrace_platform::signals::set_on_hangup;
use terrace_store::identity::{file_state, now};

/// Time for which a file must have been unchanged. Whether it is complete shows when it is read.
const QUIET: Duration = Duration::from_millis(200);

/// SIGHUP, handled from before the model is loaded: a load takes long, and the signal would end the
/// program.
pub struct Hangups(Arc<AtomicBool>);

impl Hangups {
    /// Handles SIGHUP from now on. One that tells that the terminal has closed ends the program's work as
    /// Ctrl-C does, unless another process watches for that.
    ///
    /// # Errors
    /// The signal cannot be handled.
    pub fn handle(watched: bool) -> Result<Self, CliError> {
        // First, because it changes with the handler.
        let terminal = if watched { None } else { Terminal::of_process() };
        let came = Arc::new(AtomicBool::new(false));
        set(&came)?;
        if let Some(terminal) = terminal {
            signals::end_with(terminal)?;
        }
        Ok(Self(came))
    }

    /// Lets the engine look for changed tensors on SIGHUP, also on one that came during the load, and
    /// print the outcome on stderr. The returned flag has the same effect when it is set.
    ///
    /// # Errors
    /// The signal cannot be handled.
    pub fn reload(self, engine: &mut Engine) -> Result<Arc<AtomicBool>, CliError> {
        let request = engine.reload_request();
        engine.on_reloads(|outcome| match outcome {
            Ok(report) if report.is_empty() => {}
            Ok(report) => say!("{report}"),
            Err(error) => say!("warning: {error}"),
        });
        // In this order, so that no signal is lost between the two flags.
        set(&request)?;
        if self.0.load(Ordering::SeqCst) {
            request.store(true, Ordering::SeqCst);
        }
        Ok(request)
    }
}

fn set(flag: &Arc<AtomicBool>) -> Result<(), CliError> {
    set_on_hangup(Arc::clone(flag)).map_err(CliError::io("SIGHUP"))
}

/// Watches the model's files until it is dropped.
pub struct Watch {
    _debouncer: Debouncer<RecommendedWatcher>,
}

impl Watch {
    /// Watches the engine's files, and prints the outcome of each reload on stderr.
    ///
    /// # Errors
    /// A directory cannot be watched, or the signal cannot be handled.
    pub fn start(engine: &mut Engine, hangups: Hangups) -> Result<Self, CliError> {
        let request = hangups.reload(engine)?;
        let first = Arc::clone(&request);
        // The paths as given, and with links resolved.
        let named: HashSet<PathBuf> = engine.files().into_iter().map(absolute).collect();
        let real = named.iter().filter_map(|path| path.canonicalize().ok());
        let files: HashSet<PathBuf> = real.chain(named.iter().cloned()).collect();
        // A file that is renamed into place only shows as an event of its directory.
        let directories: BTreeSet<PathBuf> =
            files.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        // Opening a file is an event as well, so events count only if the file's state has changed.
        let mut seen: HashMap<PathBuf, Option<FileState>> = HashMap::new();
        let mut debouncer = new_debouncer(QUIET, move |events: DebounceEventResult| match events {
            Ok(events) => {
                for path in events.into_iter().map(|event| event.path).filter(|path| files.contains(path)) {
                    // `None`: there is no such file.
                    let state = file_state(&path).ok();
                    let settled = state.is_none_or(|state| state.is_settled(now()));
                    if seen.insert(path, state) != Some(state) || !settled {
                        request.store(true, Ordering::Relaxed);
                    }
                }
            }
            Err(error) => tracing::warn!("cannot watch the model's files: {error}"),
        })
        .map_err(cannot_watch(Path::new("the model's files")))?;
        for directory in &directories {
            debouncer
                .watcher()
                .watch(directory, RecursiveMode::NonRecursive)
                .map_err(cannot_watch(directory))?;
        }
        // Changes between the start of the load and now went unseen.
        first.store(true, Ordering::Relaxed);
        Ok(Self { _debouncer: debouncer })
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn cannot_watch(path: &Path) -> impl FnOnce(notify_debouncer_mini::notify::Error) -> CliError {
    let what = format!("cannot watch {}", path.display());
    move |error| CliError::Io { what, source: std::io::Error::other(error.to_string()) }
}
