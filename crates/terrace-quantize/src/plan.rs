//! Plans the new type of each tensor, and checks everything that could go wrong.

use crate::error::QuantizeError;
use crate::metadata::MetadataRule;
use crate::options::QuantizeOptions;
use crate::planned::{PlannedTensor, Unmet, importance_len, planned, unmet_by};
use crate::recipe::TypeRule;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use terrace_ggml::gguf;
use terrace_ggml::llama::{self, FileType, MixtureRequest};
use terrace_ggml::quantize::WeightType;
use terrace_ggml::quantize::imatrix::Imatrix;
use terrace_model::{ByteSize, FileIndex, ModelFile, Slices, TensorInfo, listed};

/// The new types of a model's tensors.
#[derive(Debug)]
pub struct QuantizePlan {
    /// The model's header, with files of donors added.
    pub(crate) model: ModelFile,
    pub(crate) file_type: FileType,
    pub(crate) tensors: Vec<PlannedTensor>,
    pub(crate) imatrix: Option<(PathBuf, Imatrix)>,
    warnings: Vec<String>,
    /// A requirement that prevents writing the result, but not knowing its size.
    unmet: Option<Unmet>,
    pub(crate) threads: usize,
    pub(crate) overwrite: bool,
    pub(crate) metadata: Vec<MetadataRule>,
}

impl QuantizePlan {
    /// Reads headers and importance values, lets llama.cpp choose the types, and checks that
    /// everything can be done.
    ///
    /// # Errors
    /// [`QuantizeError`].
    pub fn new(options: &QuantizeOptions) -> Result<Self, QuantizeError> {
        let model = gguf::read(&options.input).map_err(Box::new)?;
        let mut imatrix = match &options.imatrix {
            Some(path) => Some((path.clone(), Imatrix::read(path).map_err(Box::new)?)),
            None => None,
        };
        if let Some((_, values)) = &mut imatrix {
            let has = |name: &str, parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
            values.retain(|name| {
                let included = options.include_weights.is_empty() || has(name, &options.include_weights);
                included && !has(name, &options.exclude_weights)
            });
        }
        // As llama-quantize, which has then no importance matrix.
        imatrix = imatrix.filter(|(_, values)| !values.is_empty());
        let blank = imatrix.as_mut().map(|(_, values)| fill_blank(values, &model)).unwrap_or_default();
        let given = given_types(&model, &options.rules)?;
        let request = MixtureRequest {
            file_type: options.file_type,
            given: &given,
            pure: options.pure,
            importance: imatrix.is_some(),
            leave_output: options.leave_output,
            output: options.output_type,
            embeddings: options.embedding_type,
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
        let mut warnings = warnings(&options.rules, &given, &tensors, &mixture.fallbacks);
        let converted = |name: &str| tensors.iter().any(|t| t.to.is_some() && t.from.name == name);
        warnings.extend(blank_warning(blank.into_iter().filter(|(name, _)| converted(name)).collect()));
        let (file_type, threads) = (options.file_type, options.threads.max(1));
        let (overwrite, metadata) = (options.overwrite, options.metadata.clone());
        Ok(Self { model, file_type, tensors, imatrix, warnings, unmet, threads, overwrite, metadata })
    }

    /// Takes a tensor's bytes unchanged from another file. `donor` is its header, with a tensor of
    /// the same name and shape.
    ///
    /// # Errors
    /// [`QuantizeError::NoTensor`] if either file lacks the tensor, or the shapes differ.
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

    /// All tensors, in the order of writing.
    pub fn tensors(&self) -> &[PlannedTensor] {
        &self.tensors
    }

    /// Requests that have no effect or are changed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Checks that the result can also be written.
    ///
    /// # Errors
    /// [`QuantizeError::NeedsImportance`].
    pub fn check(&self) -> Result<(), QuantizeError> {
        match self.unmet.clone() {
            Some(Unmet { tensor, to, given }) => Err(QuantizeError::NeedsImportance { tensor, to, given }),
            None => Ok(()),
        }
    }

    /// Current size of these tensors.
    pub fn old_size(&self) -> ByteSize {
        self.tensors.iter().map(|t| t.from.size()).sum()
    }

    /// New size of these tensors, without headers and padding.
    pub fn new_size(&self) -> ByteSize {
        self.tensors.iter().map(|t| t.size).sum()
    }

    /// Number of weights in these tensors.
    pub fn elements(&self) -> u64 {
        self.tensors.iter().map(|t| t.from.shape.elements()).sum()
    }

    pub(crate) fn importance(&self, tensor: &TensorInfo) -> Option<&[f32]> {
        let (_, values) = self.imatrix.as_ref()?;
        // Any other length has been refused, except for embedding tables, for which llama.cpp uses
        // no importance values.
        values.get(&tensor.name).filter(|values| values.len() as u64 == importance_len(tensor))
    }
}

/// Fills importance values that are all zero for a matrix. Returns these matrices, by tensors.
fn fill_blank(imatrix: &mut Imatrix, model: &ModelFile) -> Vec<(String, Slices)> {
    let blank = model.tensors.iter().map(|tensor| {
        let numbers = imatrix.fill_blank(&tensor.name, tensor.shape.0[0]);
        (tensor.name.clone(), Slices::of_tensor(tensor, numbers))
    });
    blank.filter(|(_, slices)| !slices.numbers.is_empty()).collect()
}

/// The warning about such matrices.
fn blank_warning(blank: Vec<(String, Slices)>) -> Option<String> {
    const NAMED: usize = 6;
    let one = |(name, slices): &(String, Slices)| match slices.is_all() {
        true => name.clone(),
        false => format!("{name} ({slices})"),
    };
    let named: Vec<String> = blank.iter().map(one).collect();
    (!named.is_empty()).then(|| {
        format!(
            "the importance matrix has only zeros for these, which are quantised as if it had no data for them: {}",
            listed(&named, NAMED)
        )
    })
}

/// The type of the first matching rule, for each tensor that a rule matches.
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
    match rules.iter().zip(used).find(|(rule, used)| !used && !rule.is_optional()) {
        Some((unused, _)) => Err(QuantizeError::UnusedRule { rule: unused.to_string() }),
        None => Ok(given),
    }
}

/// Warnings about fallbacks, and about rules without any effect.
fn warnings(
    rules: &[TypeRule],
    given: &[(String, WeightType)],
    tensors: &[PlannedTensor],
    fallbacks: &[String],
) -> Vec<String> {
    let followed: BTreeSet<(&str, &str)> = tensors.iter().map(|t| (t.from.name.as_str(), t.ty())).collect();
    // For each rule, whether it decides about any tensor, and whether that has an effect.
    let mut effects = vec![(false, false); rules.len()];
    for (name, ty) in given {
        if let Some(first) = rules.iter().position(|rule| rule.matches(name)) {
            effects[first].0 = true;
            effects[first].1 |= followed.contains(&(name.as_str(), ty.name()));
        }
    }
    let idle = rules.iter().zip(effects).filter(|(_, effect)| matches!(effect, (true, false)));
    let idle = idle.map(|(rule, _)| rule);
    let idle = idle
        .map(|rule| format!("`{rule}` has no effect: its tensors are not quantised, or not to this type"));
    idle.chain(unmatched(rules, given)).chain(fallbacks.iter().cloned()).collect()
}

/// A warning about rules of recipes that match no tensor.
fn unmatched(rules: &[TypeRule], given: &[(String, WeightType)]) -> Option<String> {
    let idle = |rule: &&TypeRule| rule.is_optional() && !given.iter().any(|(name, _)| rule.matches(name));
    let idle: Vec<String> = rules.iter().filter(idle).map(|rule| format!("`{rule}`")).collect();
    let shown = idle.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    match idle.len() {
        0 => None,
        1 => Some(format!("{shown} matches no tensor")),
        count @ ..=3 => Some(format!("{count} rules match no tensor: {shown}")),
        count => Some(format!("{count} rules match no tensor: {shown}, ...")),
    }
}
