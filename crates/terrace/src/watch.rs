//! `--watch`: the engine looks for changed tensors when the model's files change, and when SIGHUP comes.

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

/// How long a file must have been quiet. Whether it is complete is found out when it is read.
const QUIET: Duration = Duration::from_millis(200);

/// Watches until it is dropped.
pub struct Watch {
    _debouncer: Debouncer<RecommendedWatcher>,
}

impl Watch {
    /// Watches the engine's files, and says on stderr what came of each change.
    ///
    /// # Errors
    /// A directory that cannot be watched; a signal that cannot be handled.
    pub fn start(engine: &mut Engine) -> Result<Self, CliError> {
        let request = on_hangup(engine)?;
        let first = Arc::clone(&request);
        // As they are named, and as they are, where one of them is a link.
        let named: HashSet<PathBuf> = engine.files().into_iter().map(absolute).collect();
        let real = named.iter().filter_map(|path| path.canonicalize().ok());
        let files: HashSet<PathBuf> = real.chain(named.iter().cloned()).collect();
        // Files that are renamed into place are seen in their directory only.
        let directories: BTreeSet<PathBuf> =
            files.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        // Looking at a file is an event as well: only what has changed is looked at again.
        let mut seen: HashMap<PathBuf, Option<FileState>> = HashMap::new();
        let mut debouncer = new_debouncer(QUIET, move |events: DebounceEventResult| match events {
            Ok(events) => {
                for path in events.into_iter().map(|event| event.path).filter(|path| files.contains(path)) {
                    // None: there is no such file.
                    let now = file_state(&path).ok();
                    if seen.insert(path, now) != Some(now) {
                        request.store(true, Ordering::Relaxed);
                    }
                }
            }
            Err(error) => tracing::warn!("watching the model's files: {error}"),
        })
        .map_err(cannot_watch(Path::new("files")))?;
        for directory in &directories {
            debouncer
                .watcher()
                .watch(directory, RecursiveMode::NonRecursive)
                .map_err(cannot_watch(directory))?;
        }
        // What changed since the load began, nobody has seen.
        first.store(true, Ordering::Relaxed);
        Ok(Self { _debouncer: debouncer })
    }
}

/// Has the engine look for changed tensors when SIGHUP comes, or the flag is set, and says on stderr what came of it.
///
/// # Errors
/// A signal that cannot be handled.
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
