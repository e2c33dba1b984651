//! OpenAI's files and batches.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_FOUND, NOT_JSON, NOT_PROVIDED, SERVER};
use super::fields::{Maybe, Nullable, Object, Whole};
use super::operation::Operation;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// `POST /v1/files`.
pub fn upload() -> Operation {
    Operation::new(
        "Uploads a file of requests for a batch, as a form with `file` and `purpose`.",
        "The file.",
    )
    .json::<FileObject>()
    .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, SERVER, NOT_PROVIDED])
}

/// `GET /v1/files`.
pub fn files() -> Operation {
    paged(Operation::new("Lists files, the newest first.", "The files."))
        .query("purpose", "Only files of this purpose.", json!({"type": "string"}))
        .query("order", "`asc`: the oldest first.", json!({"enum": ["asc", "desc"]}))
        .json::<Files>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, SERVER, NOT_PROVIDED])
}

/// `GET /v1/files/{id}`.
pub fn file() -> Operation {
    of_one(Operation::new("Describes a file.", "The file.")).json::<FileObject>()
}

/// `GET /v1/files/{id}/content`.
pub fn content() -> Operation {
    of_one(Operation::new("Sends what a file holds.", "The content."))
        .content::<Value>("application/octet-stream")
}

/// `DELETE /v1/files/{id}`.
pub fn delete() -> Operation {
    of_one(Operation::new("Deletes a file, unless a batch that is not done reads it.", "It is gone."))
        .json::<Deleted>()
        .errors(ErrorForm::OpenAi, &[&[409]])
}

/// `POST /v1/batches`.
pub fn create() -> Operation {
    Operation::new(
        "Answers a file of requests, behind all other requests and one batch after the other.",
        "The batch.",
    )
    .body::<BatchRequest>()
    .json::<Batch>()
    .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_FOUND, NOT_JSON, SERVER, NOT_PROVIDED])
}

/// `GET /v1/batches`.
pub fn batches() -> Operation {
    paged(Operation::new("Lists batches, the newest first.", "The batches."))
        .json::<Batches>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, SERVER, NOT_PROVIDED])
}

/// `GET /v1/batches/{id}`.
pub fn batch() -> Operation {
    of_one(Operation::new("Tells how far a batch is.", "The batch.")).json::<Batch>()
}

/// `POST /v1/batches/{id}/cancel`.
pub fn cancel() -> Operation {
    of_one(Operation::new("Ends a batch; what has been answered is written.", "The batch."))
        .json::<Batch>()
        .errors(ErrorForm::OpenAi, &[&[409]])
}

fn of_one(operation: Operation) -> Operation {
    operation
        .path("id", None, json!({"type": "string"}))
        .errors(ErrorForm::OpenAi, &[KEYED, NOT_FOUND, SERVER, NOT_PROVIDED])
}

fn paged(operation: Operation) -> Operation {
    operation.query("limit", "Most entries.", json!({"type": "integer", "minimum": 1})).query(
        "after",
        "Id of the entry before the first one.",
        json!({"type": "string"}),
    )
}

#[derive(JsonSchema)]
struct FileObject {
    id: String,
    #[schemars(extend("const" = "file"))]
    object: String,
    bytes: Whole,
    created_at: Whole,
    expires_at: Nullable<Whole>,
    filename: String,
    #[schemars(extend("enum" = ["batch", "batch_output"]))]
    purpose: String,
    #[schemars(extend("const" = "processed"))]
    status: String,
    status_details: Nullable<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Files {
    #[serde(flatten)]
    list: Page,
    data: Vec<FileObject>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Batches {
    #[serde(flatten)]
    list: Page,
    data: Vec<Batch>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Page {
    #[schemars(extend("const" = "list"))]
    object: String,
    first_id: Nullable<String>,
    last_id: Nullable<String>,
    has_more: bool,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Deleted {
    id: String,
    #[schemars(extend("const" = "file"))]
    object: String,
    deleted: bool,
}

#[derive(JsonSchema)]
struct BatchRequest {
    input_file_id: String,
    #[schemars(extend("enum" = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]))]
    endpoint: String,
    /// Has no effect: batches take as long as they take.
    completion_window: String,
    metadata: Option<Object>,
    /// Has no effect: files stay until they are deleted.
    output_expires_after: Option<Object>,
}

#[derive(JsonSchema)]
struct Batch {
    id: String,
    #[schemars(extend("const" = "batch"))]
    object: String,
    endpoint: String,
    model: String,
    /// Why it failed.
    errors: Nullable<BatchErrors>,
    input_file_id: String,
    completion_window: String,
    #[schemars(extend("enum" = ["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]))]
    status: String,
    /// The answers, in the order of the requests.
    output_file_id: Nullable<String>,
    /// The requests that failed, in the order of the requests.
    error_file_id: Nullable<String>,
    created_at: Whole,
    in_progress_at: Nullable<Whole>,
    expires_at: Nullable<Whole>,
    finalizing_at: Nullable<Whole>,
    completed_at: Nullable<Whole>,
    failed_at: Nullable<Whole>,
    expired_at: Nullable<Whole>,
    cancelling_at: Nullable<Whole>,
    cancelled_at: Nullable<Whole>,
    request_counts: RequestCounts,
    metadata: Nullable<Object>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct RequestCounts {
    total: Whole,
    completed: Whole,
    failed: Whole,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct BatchErrors {
    #[schemars(extend("const" = "list"))]
    object: String,
    data: Vec<LineError>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct LineError {
    code: String,
    line: Nullable<Whole>,
    message: String,
    #[serde(default)]
    param: Maybe<Nullable<String>>,
}
