//! OpenAI's files: what batches read and write.

use crate::admin::query;
use crate::app::App;
use crate::batch::{FileObject, Shelf};
use crate::error::ApiError;
use crate::request::off_thread;
use crate::response::json;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartRejection};
use axum::extract::{Multipart, Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use serde_json::json as object;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use terrace_platform::input_file;
use terrace_store::part_file::PartFile;
use tokio::time::timeout;

/// Largest file in bytes, as OpenAI's for batches.
const MAX_BYTES: u64 = 200 << 20;
/// Longest value of another field, in bytes.
const MAX_VALUE: usize = 1024;
/// The only purpose that files can have.
const PURPOSE: &str = "batch";
/// Entries of a page of a list, unless it is asked for others.
const PAGE: usize = 20;
/// Most of them.
const MAX_PAGE: usize = 10_000;
/// Bytes that are sent at a time.
const PART: usize = 64 << 10;

/// `POST /v1/files`.
///
/// # Errors
/// The form has no file, or one that is too large, or it cannot be written.
pub async fn upload(
    State(app): State<Arc<App>>,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    let shelf = shelf(&app)?;
    let mut form = form.map_err(|error| ApiError::request(error.body_text()))?;
    let (mut purpose, mut content) = (None, None);
    loop {
        let next = timeout(app.limits.body, form.next_field()).await.map_err(|_| ApiError::slow_body())?;
        let Some(mut field) = next.map_err(|error| ApiError::request(error.body_text()))? else { break };
        match field.name() {
            Some("purpose") => purpose = Some(value(&app, &mut field).await?),
            Some("file") => content = Some(read(&app, &shelf, &mut field).await?),
            _ => drop(value(&app, &mut field).await?),
        }
    }
    let purpose = purpose.ok_or_else(|| ApiError::missing("purpose"))?;
    if purpose != PURPOSE {
        let message = format!("`purpose` is {purpose}, but files are for `{PURPOSE}` only");
        return Err(ApiError::field("purpose", message));
    }
    let (part, mut file) = content.ok_or_else(|| ApiError::missing("file"))?;
    file.purpose = purpose;
    let file = off_thread(move || shelf.add_file(part, file).map_err(not_written)).await?;
    Ok(json(&file))
}

/// A value of a form.
async fn value(app: &App, field: &mut Field<'_>) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    while let Some(part) = chunk(app, field).await? {
        bytes.extend_from_slice(&part);
        if bytes.len() > MAX_VALUE {
            return Err(ApiError::request("a field of the form is too long"));
        }
    }
    String::from_utf8(bytes).map_err(|_| ApiError::request("a field of the form is not UTF-8"))
}

/// The content of a file, which is written as it comes.
async fn read(app: &App, shelf: &Shelf, field: &mut Field<'_>) -> Result<(PartFile, FileObject), ApiError> {
    let name = field.file_name().unwrap_or("file").to_owned();
    let mut file = FileObject::new(0, name, String::new());
    let part = shelf.begin_file(&file.id).map_err(not_written)?;
    while let Some(bytes) = chunk(app, field).await? {
        file.bytes += bytes.len() as u64;
        if file.bytes > MAX_BYTES {
            return Err(ApiError::too_large(MAX_BYTES as usize));
        }
        // Into the page cache: this takes no longer than it took to receive.
        part.file().write_all(&bytes).map_err(not_written)?;
    }
    Ok((part, file))
}

async fn chunk(app: &App, field: &mut Field<'_>) -> Result<Option<Bytes>, ApiError> {
    let chunk = timeout(app.limits.body, field.chunk()).await.map_err(|_| ApiError::slow_body())?;
    chunk.map_err(|error| ApiError::request(error.body_text()))
}

/// `GET /v1/files`.
///
/// # Errors
/// A parameter is wrong.
pub async fn list(State(app): State<Arc<App>>, RawQuery(parameters): RawQuery) -> Result<Response, ApiError> {
    let mut files = shelf(&app)?.files();
    if let Some(purpose) = query::value(parameters.as_deref(), "purpose") {
        files.retain(|file| file.purpose.as_bytes() == purpose);
    }
    if query::value(parameters.as_deref(), "order").is_some_and(|order| order == b"asc") {
        files.reverse();
    }
    page(files, |file| &file.id, parameters.as_deref(), MAX_PAGE)
}

/// `GET /v1/files/{id}`.
///
/// # Errors
/// There is no such file.
pub async fn file(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    Ok(json(&found(&*shelf(&app)?, &id)?))
}

/// `DELETE /v1/files/{id}`.
///
/// # Errors
/// There is no such file, or a batch needs it.
pub async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let shelf = shelf(&app)?;
    found(&shelf, &id)?;
    let gone = {
        let id = id.clone();
        off_thread(move || shelf.delete_file(&id).map_err(not_written)).await?
    };
    if !gone {
        return Err(ApiError::in_use(&format!("a batch that is not done reads the file `{id}`")));
    }
    Ok(json(&object!({"id": id, "object": "file", "deleted": true})))
}

/// `GET /v1/files/{id}/content`.
///
/// # Errors
/// There is no such file, or it cannot be read.
pub async fn content(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let shelf = shelf(&app)?;
    let file = found(&shelf, &id)?;
    let path = shelf.content(&file.id);
    let (content, bytes) = off_thread(move || {
        input_file::open(&path)
            .map_err(|error| ApiError::internal(format!("the file cannot be read: {error}")))
    })
    .await?;
    let parts = stream::unfold(Some(content), |content| async move {
        let content = content?;
        let read = tokio::task::spawn_blocking(move || part(content)).await;
        match read {
            Ok(Ok((bytes, _))) if bytes.is_empty() => None,
            Ok(Ok((bytes, content))) => Some((Ok(bytes), Some(content))),
            Ok(Err(error)) => Some((Err(error), None)),
            Err(_) => Some((Err(io::Error::other("the thread ended")), None)),
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}

fn part(mut content: File) -> io::Result<(Bytes, File)> {
    let mut bytes = vec![0; PART];
    let read = content.read(&mut bytes)?;
    bytes.truncate(read);
    Ok((bytes.into(), content))
}

/// The files and batches.
///
/// # Errors
/// The server has none.
pub(super) fn shelf(app: &App) -> Result<Arc<Shelf>, ApiError> {
    app.shelf.clone().ok_or_else(ApiError::no_batches)
}

/// A file that there is.
///
/// # Errors
/// There is none.
pub(super) fn found(shelf: &Shelf, id: &str) -> Result<FileObject, ApiError> {
    shelf.file(id).ok_or_else(|| ApiError::no_object("file", id))
}

/// A failure to keep something.
pub(super) fn not_written(error: io::Error) -> ApiError {
    ApiError::internal(format!("the server's directory for batches cannot be used: {error}"))
}

/// The page of a list that a query asks for by `limit` and `after`.
///
/// # Errors
/// A parameter is wrong.
pub(super) fn page<T: Serialize>(
    all: Vec<T>,
    id: impl Fn(&T) -> &str,
    parameters: Option<&str>,
    most: usize,
) -> Result<Response, ApiError> {
    let text = |name| query::value(parameters, name).map(|text| String::from_utf8_lossy(&text).into_owned());
    let limit = match text("limit") {
        None => PAGE.min(most),
        Some(limit) => {
            limit.parse().ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(|| {
                ApiError::field("limit", format!("`limit` must be a number from 1 to {most}"))
            })?
        }
    };
    let begin = match text("after") {
        None => 0,
        Some(after) => {
            let at = all.iter().position(|one| id(one) == after);
            at.ok_or_else(|| ApiError::field("after", format!("`after` is no id in this list: {after}")))? + 1
        }
    };
    let data = &all[begin..all.len().min(begin + limit)];
    Ok(json(&object!({
        "object": "list",
        "data": data,
        "first_id": data.first().map(&id),
        "last_id": data.last().map(&id),
        "has_more": begin + data.len() < all.len(),
    })))
}
