//! The file of `--prompt-cache`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use terrace_cli::error::CliError;
use terrace_cli::term::signals;
use terrace_engine::prompt_cache::{FILE, read_file, write_file};
use terrace_engine::{Engine, Session};

/// Puts as much of the file's conversation into the session as the prompt begins with. Returns the
/// number of tokens that need not be evaluated. A file that cannot be used costs a warning.
///
/// # Errors
/// The engine cannot put it back.
pub fn recall(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[i32],
    file: &Path,
) -> Result<usize, CliError> {
    let Some(key) = engine.cache_key().cloned().filter(|_| file.exists()) else { return Ok(0) };
    match read_file(file, &key, engine.context_size()) {
        Ok(kept) => Ok(signals::busy(|| engine.recall(session, &kept, prompt))?),
        Err(reason) => {
            tracing::warn!("--prompt-cache {}: {reason}; the prompt is computed", file.display());
            Ok(0)
        }
    }
}

/// Writes what the context holds of the session.
///
/// # Errors
/// The file cannot be written.
pub fn keep(engine: &mut Engine, session: &Session, file: &Path) -> Result<(), CliError> {
    let Some(key) = engine.cache_key().cloned() else {
        tracing::warn!("--prompt-cache {}: not written, since tensors were replaced", file.display());
        return Ok(());
    };
    let kept = engine.keep(session)?;
    let written = terrace_store::replace_own_file_with(file, &FILE, |to: &mut File| {
        let mut out = BufWriter::new(to);
        write_file(&mut out, &key, &kept)?;
        out.flush()
    });
    written.map_err(|source| CliError::Io { what: file.display().to_string(), source })
}
