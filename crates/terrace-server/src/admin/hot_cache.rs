//! Learn files that are applied while the model runs, as by the hot cache of
//! adrianhoehne/llama.cpp.

use super::query;
use crate::advice::Reason;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::read;
use crate::request::off_thread;
use crate::response::json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json as object;
use std::sync::Arc;
use terrace_engine::ApplyError;
use terrace_lanes::Applied;
use terrace_model::learn::{LearnFile, MOST_BYTES};
use terrace_serving::Serving;
use tokio::sync::oneshot;

/// `POST /moe-hot-cache`: applies the learn file that is the body. With `"save_to_disk": true` in
/// it, it is then saved.
///
/// # Errors
/// No such model is served, the body is no learn file of this model, there are no copies, it may not be saved, or a device or
/// a disk fails.
pub async fn apply_body(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    request: Request,
) -> Result<Response, ApiError> {
    query::of_model(request.uri().query(), &ready)?;
    let (text, _share) = read(request, &app, MOST_BYTES).await?;
    if text.is_empty() {
        return Err(ApiError::request("MoE hot-cache JSON is missing"));
    }
    apply(&app, &ready, parsed(text).await?).await
}

/// `GET /moe-hot-cache`: as `POST`, of the body, of `?json=`, or of what is reported now. Saves
/// nothing, because web pages of other sites can send it.
///
/// # Errors
/// As [`apply_body`], and a browser sent it for another site's page.
pub async fn apply_current(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    request: Request,
) -> Result<Response, ApiError> {
    own_site(request.headers())?;
    let query = request.uri().query();
    query::of_model(query, &ready)?;
    let json = query::value(query, "json");
    let (body, _share) = read(request, &app, MOST_BYTES).await?;
    let wanted = match Some(body).filter(|body| !body.is_empty()).or(json) {
        Some(text) => parsed(text).await?,
        None => LearnRequest { file: ready.ask(Serving::reported)?, save: false },
    };
    if wanted.save {
        return Err(ApiError::field("save_to_disk", "GET saves nothing; send it as POST"));
    }
    apply(&app, &ready, wanted).await
}

/// Refuses a request that a browser says another site's page caused. Unlike a POST, it need not name
/// its origin.
fn own_site(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(ApiError::foreign_origin("other sites")),
    }
}

/// A learn file to apply.
struct LearnRequest {
    file: LearnFile,
    save: bool,
}

/// The field of a learn file that is not the file's own.
#[derive(Deserialize)]
struct Besides {
    #[serde(default)]
    save_to_disk: Option<bool>,
}

async fn parsed(text: Vec<u8>) -> Result<LearnRequest, ApiError> {
    off_thread(move || {
        let wrong = |error: String| ApiError::request(format!("Invalid MoE hot-cache JSON: {error}"));
        let file = LearnFile::parse(&text).map_err(|error| wrong(error.to_string()))?;
        let Besides { save_to_disk } =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        Ok(LearnRequest { file, save: save_to_disk.unwrap_or(false) })
    })
    .await
}

async fn apply(app: &Arc<App>, ready: &Arc<Ready>, wanted: LearnRequest) -> Result<Response, ApiError> {
    let LearnRequest { mut file, save } = wanted;
    // As a client of several models names the one that is served.
    file.model = file.model.filter(|name| *name != ready.name);
    // Whatever cannot be done is said before anything changes.
    if save && app.learn_dir.is_none() {
        return Err(ApiError::not_saved().with(app.advise(Reason::NoLearnDir)));
    }
    ready.ask(|serving| serving.check(&file))?.map_err(|misfit| refused(&misfit.into()))?;
    let (send, outcome) = oneshot::channel();
    let to_save = save.then(|| file.clone());
    ready.ask(|serving| {
        serving.apply(
            file,
            Box::new(move |outcome| {
                // The client may have disconnected.
                let _ = send.send(outcome);
            }),
        )
    })??;
    let applied = outcome.await.map_err(|_| ApiError::stopping())?.map_err(|error| refused(&error))?;
    let mut body = described(&applied);
    if let Some(file) = to_save {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        let saved = off_thread(move || {
            let dir = app.learn_dir.as_ref().ok_or_else(ApiError::not_saved)?;
            dir.save(&ready.facts.file, &file)
                .map_err(|error| ApiError::internal(format!("applied, but not saved: {error}")))
        });
        let saved = saved.await?;
        body["saved_to_disk"] = true.into();
        body["path"] = saved.path.to_string_lossy().into();
        body["backup_path"] = saved.backup.map(|path| path.to_string_lossy().into_owned()).into();
    }
    Ok(json(&body))
}

/// The changes, in the fields of the original. All candidates may be exchanged at once.
fn described(applied: &Applied) -> serde_json::Value {
    object!({
        "success": true,
        "active": true,
        "update_rate": 1.0,
        "exchanged": applied.exchanged,
        "candidates": applied.candidates,
        "max_exchange": applied.candidates,
        "hot_experts": applied.held,
        "layers_changed": applied.layers.len(),
        // Beyond the original.
        "layers": applied.layers.iter().map(|(layer, count)| (layer.0, *count)).collect::<Vec<(u32, u64)>>(),
        "saved_to_disk": false,
    })
}

fn refused(error: &ApplyError) -> ApiError {
    match error {
        ApplyError::Ended => ApiError::stopping(),
        ApplyError::Lost { .. } => ApiError::device_lost(error.to_string()),
        error if error.is_refusal() => {
            ApiError::request(format!("MoE hot-cache is not active or the expert list is invalid: {error}"))
        }
        error => ApiError::internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_apply_nothing() {
        let of = |site: &str| {
            own_site(&HeaderMap::from_iter([("sec-fetch-site".parse().unwrap(), site.parse().unwrap())]))
        };
        assert!(own_site(&HeaderMap::new()).is_ok() && of("same-origin").is_ok() && of("none").is_ok());
        assert!(of("cross-site").is_err() && of("same-site").is_err());
    }
}
