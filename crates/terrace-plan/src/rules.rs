//! The user's rules for single tensors: `REGEX=ram`, `REGEX=disk`, `REGEX=host`, `REGEX=DEVICE`.

use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Managed, Selection, is_matrix};
use crate::plan::Warning;
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
    /// On no device: in RAM, or streamed if the plan streams it.
    Host,
    /// On the device that ggml calls by this name.
    Device(String),
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRuleError {
    /// A part around the `=` is missing.
    #[error("expected REGEX=ram, REGEX=disk, REGEX=host or REGEX=DEVICE, got `{0}`")]
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
    Unused { rule: String },
    /// A tensor that matches cannot be streamed.
    #[error("`{rule}`: `{tensor}` cannot be streamed, because it is not a matrix of at least 64 KiB")]
    NotStreamed { rule: String, tensor: String },
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
            "host" => RulePlace::Host,
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

impl TensorRule {
    /// Returns whether it names a device.
    pub fn names_device(&self) -> bool {
        matches!(self.place, RulePlace::Device(_))
    }

    /// Returns the rule for a machine without devices.
    #[must_use]
    pub fn without_device(&self) -> Self {
        let place = if self.names_device() { RulePlace::Host } else { self.place.clone() };
        Self { place, ..self.clone() }
    }

    /// Returns whether it only keeps tensors off devices.
    pub fn is_host(&self) -> bool {
        self.place == RulePlace::Host
    }
}

impl fmt::Display for TensorRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            RulePlace::Ram => "ram",
            RulePlace::Disk => "disk",
            RulePlace::Host => "host",
            RulePlace::Device(name) => name,
        };
        write!(f, "{}={place}", self.pattern)
    }
}

/// Effects of rules beside the selection that they change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// The tensors that go to devices, by device.
    pub devices: BTreeMap<String, Selection>,
    /// Indices of those that stay off devices.
    pub host: Vec<usize>,
    /// Rules that would stream tensors which are too small for it, beside others.
    pub small: Vec<Warning>,
}

/// Changes a selection by rules. The first rule that matches a tensor decides, as in llama.cpp.
///
/// # Errors
/// If a rule matches nothing, or would only stream tensors that cannot be streamed.
pub fn apply_rules(
    rules: &[TensorRule],
    model: &ModelFile,
    selection: &mut Selection,
) -> Result<Placed, RuleError> {
    let classes = classify_all(model);
    let mut placed = Placed::default();
    // Of each rule: whether a tensor matches, how many it streams, those that are too small for it.
    let mut used = vec![false; rules.len()];
    let mut streams = vec![0_usize; rules.len()];
    let mut small: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    for (index, tensor) in model.tensors.iter().enumerate() {
        for (rule, used) in rules.iter().zip(&mut used) {
            *used |= rule.pattern.is_match(&tensor.name);
        }
        let Some(at) = rules.iter().position(|rule| rule.pattern.is_match(&tensor.name)) else { continue };
        match &rules[at].place {
            RulePlace::Ram => selection.remove(index),
            RulePlace::Disk => match streamable(model, &classes, index) {
                Some(managed) => {
                    selection.insert(std::iter::once(managed));
                    streams[at] += 1;
                }
                None => small[at].push(index),
            },
            RulePlace::Host => placed.host.push(index),
            RulePlace::Device(name) => {
                selection.remove(index);
                let managed = Managed { tensor: index, experts: experts(model, &classes, index) };
                placed.devices.entry(name.clone()).or_default().tensors.push(managed);
            }
        }
    }
    for (at, rule) in rules.iter().enumerate() {
        match small[at].first() {
            // llama.cpp's users give patterns for many models.
            _ if !used[at] && !rule.is_host() => return Err(RuleError::Unused { rule: rule.to_string() }),
            Some(&first) if streams[at] == 0 => {
                let tensor = model.tensors[first].name.clone();
                return Err(RuleError::NotStreamed { rule: rule.to_string(), tensor });
            }
            Some(_) => placed
                .small
                .push(Warning::SmallStayResident { rule: rule.to_string(), tensors: small[at].len() as u64 }),
            None => {}
        }
    }
    Ok(placed)
}

/// A tensor as a part of a selection; `None` if it cannot be streamed.
pub fn streamable(model: &ModelFile, classes: &[TensorClass], tensor: usize) -> Option<Managed> {
    let can = classes[tensor] == TensorClass::Expert || is_matrix(&model.tensors[tensor]);
    can.then(|| Managed { tensor, experts: experts(model, classes, tensor) })
}

fn experts(model: &ModelFile, classes: &[TensorClass], tensor: usize) -> Option<u32> {
    let count = u32::try_from(model.tensors[tensor].shape.0[2]).ok();
    count.filter(|_| classes[tensor] == TensorClass::Expert)
}
