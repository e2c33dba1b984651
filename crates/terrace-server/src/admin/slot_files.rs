//! Contents of server slots, saved in files of one directory and restored from there, as by
//! llama-server.

use super::query;
use crate::advice::Reason;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, Fields};
use crate::request::off_thread;
use crate::response::json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path as PathOf, RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json as object};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use terrace_engine::prompt_cache::{CacheKey, FILE, read_file, write_file};
use terrace_platform::input_file;
use terrace_serving::{SlotError, SlotOutcome, SlotWork};
use tokio::sync::oneshot;

/// Longest name of a file, in bytes: file systems allow no more, and the file is written under a
/// longer one first.
const MOST_NAME: usize = 200;

/// `POST /slots/{id}?action=save|restore|erase`.
///
/// # Errors
/// There is no such slot, no directory, no such file, or the file is of another model.
pub async fn slot_action(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    id: Result<PathOf<String>, PathRejection>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, ApiError> {
    let PathOf(id) = id.map_err(|error| ApiError::request(error.body_text()))?;
    let id: usize = id.parse().map_err(|_| ApiError::request("the slot's number is not a number"))?;
    if id >= ready.facts.slots {
        let last = ready.facts.slots - 1;
        return Err(ApiError::request(format!("there is no slot {id}: the last one is {last}")));
    }
    let begun = Instant::now();
    let action = query::value(query.as_deref(), "action").unwrap_or_default();
    let answer = match &action[..] {
        b"erase" => {
            let SlotOutcome::Erased(tokens) = with_slot(&ready, id, SlotWork::Erase).await? else {
                return Err(ApiError::internal("the slot was not emptied"));
            };
            object!({"id_slot": id, "n_erased": tokens})
        }
        b"save" | b"restore" => {
            let (name, path) = file(&app, &body)?;
            let key = Arc::new(ready.ask(|serving| serving.cache_key())?.ok_or_else(ApiError::no_key)?);
            let state = SlotFile { ready, id, name, path, key, begun };
            if action == b"save" { state.save().await? } else { state.restore().await? }
        }
        _ => return Err(ApiError::request("`action` must be save, restore or erase")),
    };
    Ok(json(&answer))
}

/// A slot and a file that holds, or will hold, what is in it.
struct SlotFile {
    ready: Arc<Ready>,
    id: usize,
    name: String,
    path: PathBuf,
    key: Arc<CacheKey>,
    begun: Instant,
}

impl SlotFile {
    async fn save(self) -> Result<Value, ApiError> {
        let Self { ready, id, name, path, key, begun } = self;
        let (named, target) = (name.clone(), path.clone());
        off_thread(move || {
            // The name is a client's: neither another file nor one that a link leads to is replaced.
            FILE.check_no_link(&target).map_err(|reason| not_saved(&named, &reason))
        })
        .await?;
        let SlotOutcome::Copied(kept) = with_slot(&ready, id, SlotWork::Copy).await? else {
            return Err(ApiError::internal("the slot was not copied"));
        };
        off_thread(move || {
            let tokens = kept.tokens().len();
            let written = terrace_store::replace_own_file_with(&path, &FILE, |file: &mut File| {
                let mut out = BufWriter::new(file);
                write_file(&mut out, &key, &kept)?;
                out.flush()
            });
            written.map_err(|error| ApiError::internal(format!("cannot save {name}: {error}")))?;
            let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
            Ok(object!({
                "id_slot": id,
                "filename": name,
                "n_saved": tokens,
                "n_written": bytes,
                "timings": {"save_ms": begun.elapsed().as_secs_f64() * 1e3},
            }))
        })
        .await
    }

    async fn restore(self) -> Result<Value, ApiError> {
        let Self { ready, id, name, path, key, begun } = self;
        let context = ready.facts.context;
        let named = name.clone();
        let (kept, bytes) = off_thread(move || {
            let refused =
                |reason: String| ApiError::field("filename", format!("cannot restore {named}: {reason}"));
            input_file::open_no_link(&path).map_err(|error| refused(error.to_string()))?;
            let kept = read_file(&path, &key, context).map_err(refused)?;
            Ok((kept, fs::metadata(&path).map_or(0, |meta| meta.len())))
        })
        .await?;
        let SlotOutcome::Put(tokens) = with_slot(&ready, id, SlotWork::Put(Box::new(kept))).await? else {
            return Err(ApiError::internal("the slot was not filled"));
        };
        Ok(object!({
            "id_slot": id,
            "filename": name,
            "n_restored": tokens,
            "n_read": bytes,
            "timings": {"restore_ms": begun.elapsed().as_secs_f64() * 1e3},
        }))
    }
}

fn not_saved(name: &str, reason: &std::io::Error) -> ApiError {
    ApiError::field("filename", format!("cannot save {name}: {reason}"))
}

/// Does something with a slot once no request uses it.
async fn with_slot(ready: &Ready, id: usize, work: SlotWork) -> Result<SlotOutcome, ApiError> {
    let (send, outcome) = oneshot::channel();
    ready.ask(|serving| {
        serving.with_slot(
            id,
            work,
            Box::new(move |outcome| {
                // The client may have disconnected.
                let _ = send.send(outcome);
            }),
        )
    })??;
    outcome.await.map_err(|_| ApiError::stopping())?.map_err(|error| match error {
        SlotError::NoSlot { .. } | SlotError::Empty(_) => ApiError::request(error.to_string()),
        SlotError::State(error) => ApiError::internal(error.to_string()),
    })
}

/// The file that a request names, in the configured directory.
fn file(app: &App, body: &Body) -> Result<(String, PathBuf), ApiError> {
    let Some(dir) = &app.slot_dir else {
        return Err(ApiError::no_slot_dir().with(app.advise(Reason::NoSlotDir)));
    };
    let mut fields: Fields = body.fields()?;
    let name = fields.text("filename")?;
    fields.finish()?;
    let name = name.ok_or_else(|| ApiError::missing("filename"))?;
    let path = path(dir, &name).ok_or_else(|| {
        let message = "`filename` must be a plain name: letters, digits and `._- `, not beginning with a dot";
        ApiError::field("filename", message)
    })?;
    Ok((name, path))
}

/// The path of a file of that name; `None` if that could be anything but a file of the directory.
fn path(dir: &Path, name: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_alphanumeric() || "._- ".contains(c);
    let fine = !name.is_empty() && name.len() <= MOST_NAME && !name.starts_with(['.', ' ', '-']);
    (fine && name.chars().all(plain)).then(|| dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_the_directory() {
        let dir = Path::new("/slots");
        for name in ["slot1.bin", "chat of monday", "Gespräch_2.kept", "a..b"] {
            assert_eq!(path(dir, name).unwrap().parent(), Some(dir), "{name}");
        }
        let long = "x".repeat(MOST_NAME + 1);
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "../x",
            "a/b",
            "/etc/passwd",
            "a\\b",
            "a\0b",
            "a\nb",
            "-rf",
            " x",
            &long,
        ] {
            assert_eq!(path(dir, name), None, "{name:?}");
        }
    }
}
