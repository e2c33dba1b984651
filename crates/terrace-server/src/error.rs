//! Errors of requests: a status, and OpenAI's error object.

use crate::library::LibraryError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use terrace_engine::{ChatTemplateError, EngineError, ReloadError, Unfit, VisionError};
use terrace_ggml::vision::ImageError;
use terrace_ggml::{CxxError, Excess};
use terrace_model::{ByteSize, printable};
use terrace_serving::Refused;

/// Why a request is not answered.
#[derive(Debug)]
pub struct ApiError {
    /// The status of the response.
    pub status: StatusCode,
    /// The kind of error, as OpenAI names it.
    kind: &'static str,
    /// A code for programs.
    code: Option<&'static str>,
    /// The field that is wrong.
    param: Option<String>,
    message: String,
    /// Seconds after which the client may try again.
    retry_after: Option<u32>,
    /// Tokens of a prompt that does not fit, and of the context.
    tokens: Option<(usize, usize)>,
}

/// Seconds until a client that found the queue full may try again: a guess, since the length of
/// answers is not known.
const RETRY_FULL: u32 = 2;
/// Maximum size of a message in bytes, because it may quote text of the client.
const MESSAGE: usize = 1000;
/// Seconds until a client may try again while the model is loading.
const RETRY_LOADING: u32 = 1;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        // One line, whatever text of the client it quotes: it goes to logs and terminals, too.
        let message = printable(&shortened(message.into()));
        Self { status, kind, code: None, param: None, message, retry_after: None, tokens: None }
    }

    /// The request as a whole is wrong.
    pub fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field of the request is wrong.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(shortened(param.into())), ..Self::request(message) }
    }

    /// A field that is needed is not there.
    pub fn missing(place: &str) -> Self {
        Self::field(place, format!("`{place}` is missing"))
    }

    /// A field is unknown or not supported.
    pub fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::field(param, message) }
    }

    /// The key is missing or wrong.
    pub fn unauthorized() -> Self {
        Self::without_key(
            "a valid API key is required: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        )
    }

    /// The key for changes is missing or wrong.
    pub fn unauthorized_change() -> Self {
        Self::without_key(
            "this changes the server's state, so its admin key is required: send it as `Authorization: Bearer KEY`",
        )
    }

    fn without_key(message: &str) -> Self {
        let error = Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message);
        Self { code: Some("invalid_api_key"), ..error }
    }

    /// The key is valid, but not for changes.
    pub fn not_admin() -> Self {
        let message = "this changes the server's state, so its admin key is required";
        let error = Self::new(StatusCode::FORBIDDEN, "permission_error", message);
        Self { code: Some("admin_key_required"), ..error }
    }

    /// The request comes from a web page of another site.
    pub fn foreign_origin(origin: &str) -> Self {
        let message = format!("web pages from {origin} may not use this server");
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// The request was sent to a name that is not the server's.
    pub fn foreign_host(host: &str) -> Self {
        let message = format!("{host} is not a name of this server");
        let error = Self::new(StatusCode::FORBIDDEN, "permission_error", message);
        Self { code: Some("unknown_host"), ..error }
    }

    /// There is no such endpoint.
    pub fn not_found(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", format!("no such endpoint: {path}"))
    }

    /// There is no such model.
    pub fn no_model(name: &str) -> Self {
        let error = Self::new(StatusCode::NOT_FOUND, "not_found_error", format!("no such model: `{name}`"));
        Self { code: Some("model_not_found"), param: Some("model".into()), ..error }
    }

    /// The endpoint does not accept this method.
    pub fn method_not_allowed(method: &str, path: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid_request_error",
            format!("{path} does not accept {method}"),
        )
    }

    /// The body exceeds the limit, in bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request body exceeds {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// The body is compressed in a way that is not known.
    pub fn unknown_coding(coding: &str) -> Self {
        let message = format!("the request body has the content encoding `{coding}`, but only gzip is known");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// The model is not loaded yet.
    pub fn loading() -> Self {
        let error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "the model is still loading");
        Self { code: Some("loading"), retry_after: Some(RETRY_LOADING), ..error }
    }

    /// The model is not loaded, and this request does not load it.
    pub fn not_loaded(name: &str) -> Self {
        let message = format!("the model `{name}` is not loaded");
        let error = Self::new(StatusCode::NOT_FOUND, "not_found_error", message);
        Self { code: Some("model_not_loaded"), param: Some("model".into()), ..error }
    }

    /// The server has one model, which stays loaded.
    pub fn only_model(name: &str) -> Self {
        let message = format!("`{name}` is this server's only model, and stays loaded");
        let error = Self::new(StatusCode::CONFLICT, "conflict_error", message);
        Self { code: Some("only_model"), param: Some("model".into()), ..error }
    }

    /// Running answers of other models have the memory that a model needs.
    pub fn no_memory(name: &str) -> Self {
        let message = format!("running requests of other models use the memory that `{name}` needs");
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("no_memory"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// A model cannot be loaded: there is something wrong with its file, or with what is asked of it.
    pub fn unloadable(name: &str, file: Option<&str>, why: &str) -> Self {
        let file = file.filter(|file| !why.contains(file)).map(|file| format!(" ({file})"));
        let message = format!("`{name}`{} cannot be loaded: {why}", file.unwrap_or_default());
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request_error", message);
        Self { code: Some("model_unloadable"), param: Some("model".into()), ..error }
    }

    /// A model needs more memory than all models have together.
    pub fn too_large_a_model(name: &str, needs: ByteSize, memory: ByteSize) -> Self {
        let message =
            format!("`{name}` needs at least {needs} of RAM, but all models together have {memory}");
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request_error", message);
        Self { code: Some("model_too_large"), param: Some("model".into()), ..error }
    }

    /// The server is shutting down.
    pub fn stopping() -> Self {
        let error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "the server is shutting down");
        Self { code: Some("stopping"), ..error }
    }

    /// The answer ended early because the server is shutting down.
    pub fn cut_short() -> Self {
        let message = "the server is shutting down, and the response is incomplete";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("stopping"), ..error }
    }

    /// The answer to a batch's request ended early because a client's needed its slot.
    pub fn displaced() -> Self {
        let message = "the slot was needed for a request that comes first";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("displaced"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// The prompt does not fit the context. The type and the words are those of llama.cpp's server, the
    /// code is OpenAI's: clients look for one of them, and shorten the conversation.
    pub fn context_exceeded(tokens: usize, at_least: bool, context: usize) -> Self {
        let at_least = if at_least { "at least " } else { "" };
        let message = format!(
            "request ({at_least}{tokens} tokens) exceeds the available context size ({context} tokens)"
        );
        let error = Self::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        Self { code: Some("context_length_exceeded"), tokens: Some((tokens, context)), ..error }
    }

    /// The answer exceeded the time limit.
    pub fn timed_out() -> Self {
        let message = "the response exceeded the server's time limit; request fewer tokens";
        let error = Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message);
        Self { code: Some("timeout"), ..error }
    }

    /// Other requests' bodies take up the memory for bodies.
    pub fn busy() -> Self {
        let message = "too many large requests are being read";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("busy"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// Other clients have all connections.
    pub fn crowded() -> Self {
        let message = "too many clients are connected";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("too_many_connections"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// The process of a model ended before its answer did.
    pub fn model_lost() -> Self {
        let error = Self::internal("the model's process ended, and the response is incomplete");
        Self { code: Some("model_lost"), ..error }
    }

    /// The system gives no process or thread for the work.
    pub fn no_process(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("no_process"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// The body was not complete in time.
    pub fn slow_body() -> Self {
        let message = "the request body was not complete within the server's time limit";
        let error = Self::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message);
        Self { code: Some("slow_body"), ..error }
    }

    /// The client does not read its answer.
    pub fn slow_client() -> Self {
        let message = "the response was ended because the client read it too slowly";
        let error = Self::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message);
        Self { code: Some("slow_client"), ..error }
    }

    /// No directory for learn files is configured.
    pub fn not_saved() -> Self {
        let message = "this server has no directory for learn files, so nothing is saved or applied";
        let error = Self::new(StatusCode::FORBIDDEN, "permission_error", message);
        Self { code: Some("no_learn_dir"), param: Some("save_to_disk".into()), ..error }
    }

    /// No directory for slots is configured.
    pub fn no_slot_dir() -> Self {
        let message = "this server has no directory for what slots hold, so nothing is saved or restored";
        Self::not_supported("no_slot_dir", message)
    }

    /// No directory for batches is configured.
    pub fn no_batches() -> Self {
        let message = "this server has no directory for files and batches";
        Self::not_supported("no_batch_dir", message)
    }

    /// There is no such file, or the like.
    pub fn no_object(kind: &str, id: &str) -> Self {
        let error =
            Self::new(StatusCode::NOT_FOUND, "invalid_request_error", format!("no such {kind}: `{id}`"));
        Self { param: Some("id".into()), ..error }
    }

    /// Something is being used, or is not used any more.
    pub fn in_use(message: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict_error", message)
    }

    /// The server was not started to do this.
    pub fn not_allowed(message: &str) -> Self {
        let error = Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message);
        Self { code: Some("not_allowed"), ..error }
    }

    /// Another model is being downloaded.
    pub fn pulling() -> Self {
        let message = "another model is being downloaded";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        Self { code: Some("pulling"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// The contents of slots belong to no state of the model that a file could name.
    pub fn no_key() -> Self {
        let message = "tensors were replaced since the load, so what slots hold fits no file of the model";
        Self { code: Some("tensors_replaced"), ..Self::request(message) }
    }

    /// The model, or the server as it was started, cannot do this.
    pub fn not_supported(code: &'static str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message);
        Self { code: Some(code), ..error }
    }

    /// Texts are not embedded.
    pub fn no_embeddings() -> Self {
        Self::not_supported("no_embeddings", "this server does not embed texts")
    }

    /// All slots are in use.
    pub fn no_slot() -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "no slot available");
        Self { code: Some("no_slot"), retry_after: Some(RETRY_FULL), ..error }
    }

    /// A device ended while experts were copied to it.
    pub fn device_lost(message: impl Into<String>) -> Self {
        Self { code: Some("device_lost"), ..Self::internal(message) }
    }

    /// A device that held weights of the model has been unloaded. With `restarts`, the model is loaded again.
    pub fn weights_lost(restarts: bool) -> Self {
        let end = if restarts { "the model is being reloaded" } else { "the server ends" };
        Self::device_lost(format!("a device that held weights of the model is lost; {end}"))
    }

    /// The server failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// A grammar takes too much, by itself or together with those of other requests.
    fn excess(excess: Excess, message: String) -> Self {
        match excess {
            Excess::Together(_) => {
                let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
                Self { code: Some("busy"), retry_after: Some(RETRY_FULL), ..error }
            }
            _ => Self { code: Some("grammar_too_ambiguous"), ..Self::request(message) },
        }
    }

    /// Adds a hint, if there is one.
    pub fn with(mut self, advice: Option<String>) -> Self {
        if let Some(advice) = advice {
            self.message = format!("{} ({advice})", self.message);
        }
        self
    }

    /// OpenAI's error object. Clients show only the message, so it contains everything.
    pub fn body(&self) -> Value {
        let mut error =
            json!({"message": self.message, "type": self.kind, "param": self.param, "code": self.code});
        if let Some((prompt, context)) = self.tokens {
            error["n_prompt_tokens"] = prompt.into();
            error["n_ctx"] = context.into();
        }
        json!({ "error": error })
    }

    /// Tokens of a prompt that does not fit, and of the context.
    pub const fn tokens(&self) -> Option<(usize, usize)> {
        self.tokens
    }

    /// The code for programs, if there is one.
    pub const fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// The message, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Shortens a text to [`MESSAGE`] bytes.
fn shortened(mut text: String) -> String {
    if text.len() > MESSAGE {
        text.truncate(text.floor_char_boundary(MESSAGE));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, crate::response::json(&self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For APIs whose errors have another form.
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::Full { .. } => Self {
                code: Some("queue_full"),
                retry_after: Some(RETRY_FULL),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
            },
            Refused::EmptyPrompt | Refused::UnknownToken { .. } => Self::field("prompt", message),
            Refused::TooLong { prompt, context } => Self::context_exceeded(prompt, false, context),
            Refused::Sampling(CxxError::Excess(excess)) => Self::excess(excess, message),
            Refused::Sampling(_) | Refused::TooMuch { .. } => Self::request(message),
            Refused::NotGenerative => Self::not_supported("not_generative", message),
            Refused::NotEmbedding => Self::no_embeddings(),
            Refused::Stopped => Self::stopping(),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Tokenize(error) => Self::request(error.to_string()),
            EngineError::Unfollowable(_) => Self::field("grammar", error.to_string()),
            EngineError::TextTooLong { least, context, .. } => Self::context_exceeded(least, true, context),
            EngineError::Grammar(excess) => Self::excess(excess, error.to_string()),
            EngineError::Unfit(Unfit::EmbeddingsTooLarge { .. }) => {
                let error =
                    Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", error.to_string());
                Self { code: Some("no_memory"), ..error }
            }
            EngineError::Vision(VisionError::Image(ImageError::Encode(_) | ImageError::Cxx(_))) => {
                Self::internal(error.to_string())
            }
            EngineError::Vision(error) => Self::request(error.to_string()),
            error => Self::internal(error.to_string()),
        }
    }
}

impl From<ChatTemplateError> for ApiError {
    fn from(error: ChatTemplateError) -> Self {
        let message = error.to_string();
        match error {
            ChatTemplateError::Refused(_) => Self::field("messages", message),
            ChatTemplateError::NoTools => Self::field("tools", message),
            ChatTemplateError::Schema(_) => Self::field("json_schema", message),
            ChatTemplateError::Grammar(_) => Self::field("grammar", message),
            ChatTemplateError::Process(_) => Self::no_process(message),
            _ => Self::field("messages", format!("{message} (use /v1/completions for plain text)")),
        }
    }
}

impl From<LibraryError> for ApiError {
    fn from(error: LibraryError) -> Self {
        let message = error.to_string();
        match error {
            LibraryError::Name(_) => Self::field("model", message),
            LibraryError::Missing(_) => {
                let error = Self::new(StatusCode::NOT_FOUND, "not_found_error", message);
                Self { code: Some("model_not_found"), param: Some("model".into()), ..error }
            }
            LibraryError::InUse => {
                let error = Self::new(StatusCode::CONFLICT, "conflict_error", message);
                Self { code: Some("in_use"), ..error }
            }
            LibraryError::Failed(_) => Self::internal(message),
        }
    }
}

impl From<&ReloadError> for ApiError {
    fn from(error: &ReloadError) -> Self {
        let error = Self::new(StatusCode::CONFLICT, "conflict_error", error.to_string());
        Self { code: Some("reload_refused"), ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_when_to_come_again() {
        let full = ApiError::from(Refused::Full { waiting: 3 }).into_response();
        assert_eq!(full.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(full.headers().contains_key(header::RETRY_AFTER));
        assert!(ApiError::loading().into_response().headers().contains_key(header::RETRY_AFTER));
        assert!(!ApiError::request("x").into_response().headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn messages_are_short_whatever_they_quote() {
        let long = "ä".repeat(1 << 20);
        let error = ApiError::unsupported(&long, format!("unknown field `{long}`"));
        assert!(error.body().to_string().len() < 3 * MESSAGE, "{}", error.message().len());
        assert!(error.message().starts_with("unknown field `ä"));
    }

    #[test]
    fn messages_are_one_line_whatever_they_quote() {
        let error = ApiError::unsupported("a\nb", "unknown field `a\nb\u{1b}[2J`");
        assert_eq!(error.message(), "unknown field `a\\nb\\u{1b}[2J`");
        assert_eq!(error.body()["error"]["param"], "a\nb");
    }

    #[test]
    fn the_object_has_all_of_openais_fields() {
        let body = ApiError::field("temperature", "too hot").body();
        let keys: Vec<&String> = body["error"].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 4, "{keys:?}");
        assert_eq!(body["error"]["param"], "temperature");
        assert_eq!(body["error"]["code"], Value::Null);
    }
}
