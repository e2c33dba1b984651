//! Files and batches as OpenAI's clients see them, and as they are kept.

use crate::app::unix_seconds;
use crate::response::random_id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Beginning of the names of files and of batches.
const FILE: &str = "file-";
const BATCH: &str = "batch_";

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileObject {
    pub id: String,
    object: FileKind,
    pub bytes: u64,
    pub created_at: u64,
    expires_at: Option<u64>,
    pub filename: String,
    pub purpose: String,
    status: Processed,
    status_details: Option<String>,
}

/// The only kind of a file object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FileKind {
    #[serde(rename = "file")]
    File,
}

/// The only status of a file: it is there when its object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Processed {
    #[serde(rename = "processed")]
    Processed,
}

impl FileObject {
    /// A new file.
    pub fn new(bytes: u64, filename: String, purpose: String) -> Self {
        Self {
            id: random_id(FILE),
            object: FileKind::File,
            bytes,
            created_at: unix_seconds(),
            expires_at: None,
            filename,
            purpose,
            status: Processed::Processed,
            status_details: None,
        }
    }
}

/// Status of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has not begun.
    Validating,
    /// Its file is no batch.
    Failed,
    InProgress,
    /// All requests have answers, and files are written.
    Finalizing,
    Completed,
    /// It ends, and what has been answered is written.
    Cancelling,
    Cancelled,
}

impl Status {
    /// Returns true if nothing more happens.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Completed | Self::Cancelled)
    }
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchObject {
    pub id: String,
    object: BatchKind,
    pub endpoint: String,
    /// Name of the model.
    pub model: String,
    pub errors: Option<BatchErrors>,
    pub input_file_id: String,
    pub completion_window: String,
    pub status: Status,
    pub output_file_id: Option<String>,
    pub error_file_id: Option<String>,
    pub created_at: u64,
    pub in_progress_at: Option<u64>,
    expires_at: Option<u64>,
    pub finalizing_at: Option<u64>,
    pub completed_at: Option<u64>,
    pub failed_at: Option<u64>,
    expired_at: Option<u64>,
    pub cancelling_at: Option<u64>,
    pub cancelled_at: Option<u64>,
    pub request_counts: Counts,
    pub metadata: Option<Map<String, Value>>,
}

/// The only kind of a batch object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum BatchKind {
    #[serde(rename = "batch")]
    Batch,
}

/// Requests of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub total: usize,
    /// Requests that were answered.
    pub completed: usize,
    pub failed: usize,
}

/// Why a batch failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchErrors {
    object: ListKind,
    pub data: Vec<LineError>,
}

/// The only kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ListKind {
    #[serde(rename = "list")]
    List,
}

/// An error in a line, or in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineError {
    pub code: String,
    /// From 1.
    pub line: Option<usize>,
    pub message: String,
    pub param: Option<String>,
}

impl BatchErrors {
    /// A list of these.
    pub const fn new(data: Vec<LineError>) -> Self {
        Self { object: ListKind::List, data }
    }
}

impl BatchObject {
    /// A new batch.
    pub fn new(
        endpoint: String,
        model: String,
        input_file_id: String,
        completion_window: String,
        metadata: Option<Map<String, Value>>,
    ) -> Self {
        Self {
            id: random_id(BATCH),
            object: BatchKind::Batch,
            endpoint,
            model,
            errors: None,
            input_file_id,
            completion_window,
            status: Status::Validating,
            output_file_id: None,
            error_file_id: None,
            created_at: unix_seconds(),
            in_progress_at: None,
            expires_at: None,
            finalizing_at: None,
            completed_at: None,
            failed_at: None,
            expired_at: None,
            cancelling_at: None,
            cancelled_at: None,
            request_counts: Counts::default(),
            metadata,
        }
    }

    /// Changes its status, from now on.
    pub fn enter(&mut self, status: Status) {
        self.status = status;
        let at = match status {
            Status::Validating => return,
            Status::Failed => &mut self.failed_at,
            Status::InProgress => &mut self.in_progress_at,
            Status::Finalizing => &mut self.finalizing_at,
            Status::Completed => &mut self.completed_at,
            Status::Cancelling => &mut self.cancelling_at,
            Status::Cancelled => &mut self.cancelled_at,
        };
        at.get_or_insert_with(unix_seconds);
    }
}
