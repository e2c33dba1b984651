//! The subjects of a sweep: tensors, or groups of tensors that change together.

use super::error::SweepError;
use regex::Regex;
use std::fmt;
use std::str::FromStr;
use terrace_model::{ModelFile, TensorInfo};

/// Which tensors change together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each tensor alone.
    #[default]
    Tensor,
    /// All tensors of a layer.
    Layer,
}

impl FromStr for Grouping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tensor" => Ok(Self::Tensor),
            "layer" => Ok(Self::Layer),
            _ => Err("expected tensor (one at a time) or layer (all of a layer together)".into()),
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tensor => "tensor",
            Self::Layer => "layer",
        })
    }
}

/// Tensors that change together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The tensor's name, or `blk.N`.
    pub name: String,
    /// Their layer; `None` for a table or an output head.
    pub layer: Option<u32>,
    /// Their role: the name without layer and suffix.
    pub role: String,
    /// Names of the tensors.
    pub tensors: Vec<String>,
    /// Their size in the model, in bytes.
    pub bytes: u64,
}

/// All subjects of a sweep, in the model's order.
#[derive(Clone, Debug)]
pub struct Subjects(pub Vec<Subject>);

impl Subjects {
    /// The default pattern: feed-forward matrices and experts.
    pub const DEFAULT_PATTERN: &str = r"\.ffn_(gate|up|down|gate_up)(_exps|_shexp|_chexps)?\.weight$";

    /// Lists the matrices whose names match `pattern`.
    ///
    /// # Errors
    /// [`SweepError::NoSubjects`].
    pub fn of(model: &ModelFile, pattern: &Regex, grouping: Grouping) -> Result<Self, SweepError> {
        let matrix =
            |t: &&TensorInfo| t.shape.dims() > 1 && t.name.ends_with(".weight") && pattern.is_match(&t.name);
        let mut subjects: Vec<Subject> = Vec::new();
        for tensor in model.tensors.iter().filter(matrix) {
            let layer = tensor.layer().map(|layer| layer.0);
            let name = match (grouping, layer) {
                (Grouping::Layer, Some(layer)) => format!("blk.{layer}"),
                _ => tensor.name.clone(),
            };
            match subjects.iter_mut().find(|subject| subject.name == name) {
                Some(subject) => {
                    subject.tensors.push(tensor.name.clone());
                    subject.bytes += tensor.extent.len;
                }
                None => subjects.push(Subject {
                    role: if name == tensor.name { role(&tensor.name) } else { "layer".into() },
                    name,
                    layer,
                    tensors: vec![tensor.name.clone()],
                    bytes: tensor.extent.len,
                }),
            }
        }
        if subjects.is_empty() {
            return Err(SweepError::NoSubjects(pattern.to_string()));
        }
        subjects.sort_by_key(|subject| subject.layer.map_or((1, 0), |layer| (0, layer)));
        Ok(Self(subjects))
    }

    /// Names of all their tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|subject| subject.tensors.iter().map(String::as_str))
    }
}

/// `blk.3.ffn_down_exps.weight` → `ffn_down_exps`.
fn role(name: &str) -> String {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    in_layer.map_or(name, |(_, role)| role).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_names_without_layers() {
        assert_eq!(role("blk.12.ffn_down_exps.weight"), "ffn_down_exps");
        assert_eq!(role("output.weight"), "output");
        let pattern = Regex::new(Subjects::DEFAULT_PATTERN).unwrap();
        for name in ["blk.0.ffn_up.weight", "blk.7.ffn_gate_up_exps.weight", "blk.7.ffn_down_shexp.weight"] {
            assert!(pattern.is_match(name), "{name}");
        }
        for name in ["blk.0.ffn_gate_inp.weight", "blk.0.ffn_norm.weight", "blk.0.attn_q.weight"] {
            assert!(!pattern.is_match(name), "{name}");
        }
    }
}
