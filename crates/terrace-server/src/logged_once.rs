//! Warnings about requests, each once: clients send the same fields with every request.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Maximum number of different warnings; clients choose the names in them.
const MAX_WARNINGS: usize = 100;

/// The warnings that were logged.
#[derive(Debug, Default)]
pub struct LoggedOnce(Mutex<BTreeSet<String>>);

impl LoggedOnce {
    /// Logs the fields among these that were not logged before.
    pub fn warn_of_ignored(&self, fields: &[String]) {
        let new: Vec<&str> = fields.iter().filter(|field| self.is_new(field)).map(String::as_str).collect();
        if !new.is_empty() {
            tracing::warn!("requests have unknown fields, which are ignored: {}", new.join(", "));
        }
    }

    /// Logs the keywords of schemas among these that were not logged before.
    pub fn warn_of_unenforced(&self, keywords: &[String]) {
        let new: Vec<&str> = keywords.iter().filter(|one| self.is_new(one)).map(String::as_str).collect();
        if !new.is_empty() {
            tracing::warn!("answers need not follow these keywords of JSON schemas: {}", new.join(", "));
        }
    }

    /// Logs the sentences that were not logged before.
    pub fn warn_of_adjusted(&self, sentences: &[String]) {
        for sentence in sentences.iter().filter(|sentence| self.is_new(sentence)) {
            tracing::warn!("{sentence}");
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < MAX_WARNINGS && logged.insert(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_new_once_and_there_is_a_limit() {
        let logged = LoggedOnce::default();
        assert!(logged.is_new("a") && logged.is_new("b") && !logged.is_new("a"));
        let new = (0..1000).filter(|number| logged.is_new(&number.to_string())).count();
        assert_eq!(new, MAX_WARNINGS - 2);
    }
}
