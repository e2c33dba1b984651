//! The user's rules for single tensors: `REGEX=ram`, `REGEX=disk`, `REGEX=DEVICE`.

use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Managed, Selection, is_matrix};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use terrace_model::ModelFile;

/// Gives a place to the tensors whose names match an expression anywhere.
#[derive(Clone, Debug)]
pub struct TensorRule {
    pattern: Regex,
    place: RulePlace,
}

impl TensorRule {
    /// The place.
    pub const fn place(&self) -> &RulePlace {
        &self.place
    }
}

/// A place that a rule can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulePlace {
    /// Resident in RAM.
    Ram,
    /// Streamed from disk.
    Disk,
    /// On the device that ggml calls by this name.
    Device(String),
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRuleError {
    /// A part around the `=` is missing.
    #[error("expected REGEX=ram, REGEX=disk or REGEX=DEVICE, got `{0}`")]
    Form(String),
    /// The part before the `=` is not a regular expression.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Pattern {
        /// The given text.
        pattern: String,
        /// The library's message, in one line.
        reason: String,
    },
}

/// Why a rule cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No tensor matches.
    #[error("`{rule}` matches no tensor of this model")]
    Unused {
        /// The rule.
        rule: String,
    },
    /// A tensor that matches cannot be streamed.
    #[error("`{rule}`: `{tensor}` cannot be streamed, because it is not a matrix of at least 64 KiB")]
    NotStreamed {
        /// The rule.
        rule: String,
        /// The tensor.
        tensor: String,
    },
}

impl FromStr for TensorRule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pattern, place) = text.rsplit_once('=').ok_or_else(|| ParseRuleError::Form(text.into()))?;
        if pattern.is_empty() || place.is_empty() {
            return Err(ParseRuleError::Form(text.into()));
        }
        let place = match place {
            "ram" => RulePlace::Ram,
            "disk" => RulePlace::Disk,
            name => RulePlace::Device(name.into()),
        };
        let read = Regex::new(pattern).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").into();
            ParseRuleError::Pattern { pattern: pattern.into(), reason }
        })?;
        Ok(Self { pattern: read, place })
    }
}

impl fmt::Display for TensorRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            RulePlace::Ram => "ram",
            RulePlace::Disk => "disk",
            RulePlace::Device(name) => name,
        };
        write!(f, "{}={place}", self.pattern)
    }
}

/// Changes a selection by rules. The first rule that matches a tensor decides, as in llama.cpp.
/// Returns the tensors that go to devices, by device.
///
/// # Errors
/// If a rule matches nothing, or would stream a tensor that cannot be streamed.
pub fn apply_rules(
    rules: &[TensorRule],
    model: &ModelFile,
    selection: &mut Selection,
) -> Result<BTreeMap<String, Selection>, RuleError> {
    let classes = classify_all(model);
    let mut used = vec![false; rules.len()];
    let mut devices: BTreeMap<String, Selection> = BTreeMap::new();
    for (index, (tensor, &class)) in model.tensors.iter().zip(&classes).enumerate() {
        for (rule, used) in rules.iter().zip(&mut used) {
            *used |= rule.pattern.is_match(&tensor.name);
        }
        let Some(rule) = rules.iter().find(|rule| rule.pattern.is_match(&tensor.name)) else { continue };
        let is_expert = class == TensorClass::Expert;
        let experts = u32::try_from(tensor.shape.0[2]).ok().filter(|_| is_expert);
        let managed = Managed { tensor: index, experts };
        let place = selection.tensors.binary_search_by_key(&index, |m| m.tensor);
        match (&rule.place, place) {
            (RulePlace::Ram, Ok(at)) => drop(selection.tensors.remove(at)),
            (RulePlace::Disk, Err(at)) if is_expert || is_matrix(tensor) => {
                selection.tensors.insert(at, managed);
            }
            (RulePlace::Disk, Err(_)) => {
                return Err(RuleError::NotStreamed { rule: rule.to_string(), tensor: tensor.name.clone() });
            }
            (RulePlace::Device(name), place) => {
                if let Ok(at) = place {
                    selection.tensors.remove(at);
                }
                devices.entry(name.clone()).or_default().tensors.push(managed);
            }
            (RulePlace::Ram, Err(_)) | (RulePlace::Disk, Ok(_)) => {}
        }
    }
    match used.iter().position(|used| !used) {
        Some(unused) => Err(RuleError::Unused { rule: rules[unused].to_string() }),
        None => Ok(devices),
    }
}
