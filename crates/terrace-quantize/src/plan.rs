//! What each tensor becomes, and everything that could be wrong with that.

use crate::error::QuantizeError;
use crate::options::QuantizeOptions;
use crate::planned::{PlannedTensor, Unmet, importance_len, planned, unmet_by};
use crate::recipe::TypeRule;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use terrace_ggml::gguf;
use terrace_ggml::llama::{self, FileType, MixtureRequest};
use terrace_ggml::quantize::WeightType;
use terrace_ggml::quantize::imatrix::Imatrix;
use terrace_model::{ByteSize, FileIndex, ModelFile, TensorInfo};

/// What becomes of a model, tensor by tensor.
#[derive(Debug)]
pub struct QuantizePlan {
    /// What was read of it, and of donors.
    pub(crate) model: ModelFile,
    pub(crate) file_type: FileType,
    pub(crate) tensors: Vec<PlannedTensor>,
    pub(crate) imatrix: Option<(PathBuf, Imatrix)>,
    warnings: Vec<String>,
    /// What stands in the way of writing it, and not of knowing its size.
    unmet: Option<Unmet>,
    pub(crate) threads: usize,
}

impl QuantizePlan {
    /// Reads headers and importances, has llama.cpp choose, and checks that all of it can be done.
    ///
    /// # Errors
    /// [`QuantizeError`].
    pub fn new(options: &QuantizeOptions) -> Result<Self, QuantizeError> {
        let model = gguf::read(&options.input).map_err(Box::new)?;
        let imatrix = match &options.imatrix {
            Some(path) => Some((path.clone(), Imatrix::read(path).map_err(Box::new)?)),
            None => None,
        };
        let given = given_types(&model, &options.rules)?;
        let request = MixtureRequest {
            file_type: options.file_type,
            given: &given,
            pure: options.pure,
            importance: imatrix.is_some(),
        };
        let mixture = llama::choose(&options.input, &request)
            .map_err(|source| QuantizeError::Mixture { path: options.input.clone(), source })?;

        let mut by_name: BTreeMap<&str, &TensorInfo> =
            model.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let (mut tensors, mut unmet) = (Vec::new(), None);
        for choice in &mixture.choices {
            let Some(tensor) = by_name.remove(choice.tensor.as_str()) else {
                return Err(QuantizeError::Disagree {
                    path: options.input.clone(),
                    tensor: choice.tensor.clone(),
                });
            };
            if options.only.as_ref().is_none_or(|only| only.contains(&tensor.name)) {
                let imatrix = imatrix.as_ref().map(|(_, values)| values);
                let planned = planned(tensor, choice.to, options, imatrix)?;
                if unmet.is_none() {
                    unmet = unmet_by(&planned, options.file_type, imatrix);
                }
                tensors.push(planned);
            }
        }
        if let Some(name) = by_name.keys().next() {
            return Err(QuantizeError::Disagree { path: options.input.clone(), tensor: (*name).to_owned() });
        }
        if let Some(only) = &options.only
            && let Some(missing) = only.iter().find(|name| model.tensor(name).is_none())
        {
            return Err(QuantizeError::NoTensor(missing.clone()));
        }
        let warnings = warnings(&options.rules, &given, &tensors, &mixture.fallbacks);
        let (file_type, threads) = (options.file_type, options.threads.max(1));
        Ok(Self { model, file_type, tensors, imatrix, warnings, unmet, threads })
    }

    /// Takes a tensor's bytes from another file, as they are there: `donor` is its header, with a tensor of the name and shape.
    ///
    /// # Errors
    /// There is no such tensor here or there, or it has another shape.
    pub fn take_from(&mut self, tensor: &str, donor: &ModelFile) -> Result<(), QuantizeError> {
        let own = self.tensors.iter_mut().find(|planned| planned.from.name == tensor);
        let other = donor.tensor(tensor);
        let (Some(own), Some(other)) = (own, other) else {
            return Err(QuantizeError::NoTensor(tensor.to_owned()));
        };
        if own.from.shape != other.shape {
            return Err(QuantizeError::NoTensor(tensor.to_owned()));
        }
        let shard = &donor.shards[other.extent.file.index()];
        let known = self.model.shards.iter().position(|known| known.path == shard.path);
        let file = known.unwrap_or_else(|| {
            self.model.shards.push(shard.clone());
            self.model.shards.len() - 1
        });
        own.from = other.clone();
        own.from.extent.file = FileIndex(u32::try_from(file).expect("as many files as can be open"));
        own.to = None;
        own.size = other.size();
        Ok(())
    }

    /// All tensors, in the order in which they will be written.
    pub fn tensors(&self) -> &[PlannedTensor] {
        &self.tensors
    }

    /// What was asked for and will not be so.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether it could be written, not only be known.
    ///
    /// # Errors
    /// [`QuantizeError::NeedsImportance`].
    pub fn check(&self) -> Result<(), QuantizeError> {
        match self.unmet.clone() {
            Some(Unmet { tensor, to, given }) => Err(QuantizeError::NeedsImportance { tensor, to, given }),
            None => Ok(()),
        }
    }

    /// Bytes of these tensors as they are.
    pub fn old_size(&self) -> ByteSize {
        self.tensors.iter().map(|t| t.from.size()).sum()
    }

    /// Bytes of the tensors as they will be; headers and padding come on top.
    pub fn new_size(&self) -> ByteSize {
        self.tensors.iter().map(|t| t.size).sum()
    }

    /// Weights in these tensors.
    pub fn elements(&self) -> u64 {
        self.tensors.iter().map(|t| t.from.shape.elements()).sum()
    }

    pub(crate) fn importance(&self, tensor: &TensorInfo) -> Option<&[f32]> {
        let (_, values) = self.imatrix.as_ref()?;
        // Another length is an error by now, or that of a table of embeddings, for which llama.cpp goes without.
        values.get(&tensor.name).filter(|values| values.len() as u64 == importance_len(tensor))
    }
}

/// The first rule that matches, for each tensor that one matches.
fn given_types(model: &ModelFile, rules: &[TypeRule]) -> Result<Vec<(String, WeightType)>, QuantizeError> {
    let mut used = vec![false; rules.len()];
    let mut given = Vec::new();
    for tensor in &model.tensors {
        let mut matching = rules.iter().enumerate().filter(|(_, rule)| rule.matches(&tensor.name)).peekable();
        if let Some((_, first)) = matching.peek() {
            given.push((tensor.name.clone(), first.ty()));
        }
        matching.for_each(|(index, _)| used[index] = true);
    }
    match used.iter().position(|used| !used) {
        Some(unused) => Err(QuantizeError::UnusedRule { rule: rules[unused].to_string() }),
        None => Ok(given),
    }
}

/// Fallbacks, and rules that have no effect at all.
fn warnings(
    rules: &[TypeRule],
    given: &[(String, WeightType)],
    tensors: &[PlannedTensor],
    fallbacks: &[String],
) -> Vec<String> {
    let followed: BTreeSet<&str> = given
        .iter()
        .filter(|(name, ty)| tensors.iter().any(|t| t.from.name == *name && t.ty() == ty.name()))
        .map(|(name, _)| name.as_str())
        .collect();
    let idle = rules.iter().filter(|rule| {
        let mut decides = given.iter().filter(|(name, _)| {
            rules.iter().find(|r| r.matches(name)).is_some_and(|first| std::ptr::eq(first, *rule))
        });
        let mut any = false;
        let none = decides.all(|(name, _)| {
            any = true;
            !followed.contains(name.as_str())
        });
        any && none
    });
    let idle = idle
        .map(|rule| format!("`{rule}` has no effect: its tensors are not quantised, or not to this type"));
    idle.chain(fallbacks.iter().cloned()).collect()
}
