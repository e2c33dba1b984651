//! Changes what requests get that set nothing.

use crate::advice::Reason;
use crate::api::settings::settings;
use crate::app::{App, LoadedModel};
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::Body;
use crate::request::{off_thread, sampling};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use serde_json::json as object;
use std::sync::Arc;

/// `POST /props`: samplers, `seed` and `n_predict`, as in requests. What is not named stays as it is.
///
/// # Errors
/// Clients may not change it, or a field is not valid.
pub async fn set_props(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    if !app.props_change {
        let reason = "clients may not change this server's properties";
        return Err(ApiError::not_allowed(reason).with(app.advise(Reason::NoProps)));
    }
    let changed = off_thread(move || {
        let mut fields = body.fields()?;
        let seed = fields.has("seed");
        let sampling = sampling::sampling(&mut fields, &app, &ready)?;
        let n_max = sampling::n_max(&mut fields, &app, &["n_predict", "max_tokens"])?;
        fields.finish()?;
        app.set_defaults(sampling, seed, n_max);
        let params = settings(&AnswerSettings::of(&app, &ready), false, &ready);
        Ok(json(&object!({"success": true, "default_generation_settings": {"params": params}})))
    });
    changed.await
}
