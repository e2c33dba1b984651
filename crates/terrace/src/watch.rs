//! `--watch`: the engine looks for changed tensors when the model's files change, and on SIGHUP.

use crate::error::CliError;
use notify_debouncer_mini::notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_mini::{DebounceEventResult, Debouncer, new_debouncer};
use signal_hook::consts::SIGHUP;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_engine::Engine;
use terrace_model::identity::FileState;
use terrace_store::identity::file_state;

/// How long a file must have been unchanged. Whether it is complete shows when it is read.
const QUIET: Duration = Duration::from_millis(200);

/// Watches the model's files until it is dropped.
pub struct Watch {
    _debouncer: Debouncer<RecommendedWatcher>,
}

impl Watch {
    /// Watches the engine's files, and prints the outcome of each reload on stderr.
    ///
    /// # Errors
    /// A directory cannot be watched, or a signal cannot be handled.
    pub fn start(engine: &mut Engine) -> Result<Self, CliError> {
        let request = on_hangup(engine)?;
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
                    let now = file_state(&path).ok();
                    if seen.insert(path, now) != Some(now) {
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

/// Lets the engine look for changed tensors on SIGHUP or when the returned flag is set, and print
/// the outcome on stderr.
///
/// # Errors
/// A signal cannot be handled.
pub fn on_hangup(engine: &mut Engine) -> Result<Arc<AtomicBool>, CliError> {
    let request = engine.reload_request();
    engine.on_reloads(|outcome| match outcome {
        Ok(report) if report.is_empty() => {}
        Ok(report) => eprintln!("{report}"),
        Err(error) => eprintln!("warning: {error}"),
    });
    signal_hook::flag::register(SIGHUP, Arc::clone(&request)).map_err(CliError::io("SIGHUP"))?;
    Ok(request)
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn cannot_watch(path: &Path) -> impl FnOnce(notify_debouncer_mini::notify::Error) -> CliError {
    let what = format!("cannot watch {}", path.display());
    move |error| CliError::Io { what, source: std::io::Error::other(error.to_string()) }
}
