//! What the user says about single tensors: `REGEX=ram`, `REGEX=disk`, `REGEX=DEVICE`.

use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Managed, Selection, is_matrix};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use terrace_model::ModelFile;

/// A place for the tensors whose names an expression is found in.
#[derive(Clone, Debug)]
pub struct TensorRule {
    pattern: Regex,
    place: RulePlace,
}

/// A place that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulePlace {
    /// In RAM for good.
    Ram,
    /// Streamed from disk.
    Disk,
    /// On a device, by ggml's name of it.
    Device(String),
}

/// Text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRuleError {
    /// No `=`.
    #[error("expected REGEX=ram, REGEX=disk or REGEX=DEVICE, got `{0}`")]
    Form(String),
    /// Not an expression.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Pattern {
        /// What was given.
        pattern: String,
        /// The library's words, one line.
        reason: String,
    },
}

/// A rule that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Nothing has such a name.
    #[error("`{rule}` matches no tensor of this model")]
    Unused {
        /// The rule.
        rule: String,
    },
    /// A tensor that cannot come from disk.
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

/// Changes a selection by rules, of which the first that matches a tensor decides, as in llama.cpp. Returns the tensors
/// that are to lie on devices, by device.
///
/// # Errors
/// [`RuleError`]: rules that match nothing, or want streamed what cannot be.
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
