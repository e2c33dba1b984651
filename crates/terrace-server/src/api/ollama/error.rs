//! Errors in Ollama's form.

use crate::error::ApiError;
use serde_json::{Value, json as object};

/// Ollama's error object, which is only the text.
pub fn error_object(error: &ApiError) -> Value {
    object!({"error": error.message()})
}
