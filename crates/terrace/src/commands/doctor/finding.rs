//! The findings of checks.

use serde::Serialize;
use std::fmt;

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Runs work, but slower than necessary or with less memory.
    Warn,
    /// Runs are impossible.
    Bad,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        })
    }
}

/// One finding, which is one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// Severity.
    pub level: Level,
    /// The finding.
    pub text: String,
    /// The advice.
    pub advice: Option<String>,
}

impl Finding {
    /// A finding without anything to do.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    /// A finding about something that could be better, with advice.
    pub fn warn(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, text: text.into(), advice: Some(advice.into()) }
    }

    /// A finding that makes runs impossible, with advice.
    pub fn bad(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Bad, text: text.into(), advice: Some(advice.into()) }
    }
}

/// The levels of findings, for tests.
#[cfg(test)]
pub fn levels(findings: &[Finding]) -> Vec<(&'static str, Level)> {
    findings.iter().map(|finding| (finding.check, finding.level)).collect()
}
