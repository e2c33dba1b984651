//! Measures the mixes that should cost least within a size, since divergences of single tensors do
//! not quite add up.

use super::error::SweepError;
use super::journal::{MixRecord, Record};
use super::run::{OnProgress, Sweep, SweepModel, SweepProgress, replacements, restore};
use super::subjects::Subject;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use terrace_engine::Replacement;
use terrace_model::ByteSize;
use terrace_plan::mix::{MixOption, mixes};

/// A choice of donors for some subjects; the others stay as loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct MixCandidate {
    /// Donors by subject.
    pub choice: BTreeMap<String, String>,
    /// Size of all subjects in bytes.
    pub bytes: u64,
    /// Predicted divergence, assuming that single ones add up.
    pub predicted: f64,
}

/// An option for a subject: as loaded, or with a donor's tensors.
struct Tried<'s> {
    donor: Option<&'s str>,
    bytes: u64,
    /// Change of the model's divergence; negative if the donor is closer to the base than the
    /// model.
    change: f64,
}

/// The cost of each option: how much worse it is than the best one.
fn costs(options: &[Tried<'_>]) -> Vec<MixOption> {
    let best = options.iter().map(|option| option.change).fold(f64::INFINITY, f64::min);
    options.iter().map(|option| MixOption { bytes: option.bytes, cost: option.change - best }).collect()
}

impl Sweep<'_> {
    /// The best `count` mixes, judged by single steps, whose tensors together with everything not
    /// swept fit `budget`. Mixes that take one donor throughout, or none, are added if they fit, so
    /// that the result is never worse than those.
    ///
    /// # Errors
    /// [`SweepError::Mix`] if none fits.
    pub fn candidates(&self, budget: ByteSize, count: usize) -> Result<Vec<MixCandidate>, SweepError> {
        let fixed = self.fixed_bytes();
        let steps = self.options();
        let groups: Vec<Vec<MixOption>> = steps.iter().map(|steps| costs(steps)).collect();
        let left = budget.bytes().saturating_sub(fixed);
        let found = mixes(&groups, left, count).map_err(|error| match error {
            // Counted over the whole model, as the budget is.
            terrace_plan::mix::MixError::NoneFits { smallest, .. } => {
                terrace_plan::mix::MixError::NoneFits { smallest: smallest + fixed, budget: budget.bytes() }
            }
            other => other,
        })?;
        let mut candidates: Vec<MixCandidate> =
            found.iter().map(|mix| self.candidate(&mix.choice, &steps)).collect();
        let donors = std::iter::once(None).chain(self.donors.iter().map(|donor| Some(donor.name.as_str())));
        for donor in donors {
            let everywhere =
                |options: &Vec<Tried<'_>>| options.iter().position(|option| option.donor == donor);
            let Some(choice) = steps.iter().map(everywhere).collect::<Option<Vec<usize>>>() else { continue };
            let uniform = self.candidate(&choice, &steps);
            if uniform.bytes <= left && !candidates.contains(&uniform) {
                candidates.push(uniform);
            }
        }
        Ok(candidates)
    }

    /// Measures the candidates that have not been measured. Returns all records, best first.
    ///
    /// # Errors
    /// [`SweepError`].
    pub fn mixes(
        &mut self,
        candidates: &[MixCandidate],
        model: &mut dyn SweepModel,
        progress: OnProgress<'_>,
    ) -> Result<Vec<MixRecord>, SweepError> {
        let mut measured = Vec::new();
        for (done, candidate) in candidates.iter().enumerate() {
            let known = self.journal.records.iter().find_map(|record| match record {
                Record::Mix(mix) if mix.choice == candidate.choice => Some(mix.clone()),
                _ => None,
            });
            let record = match known {
                Some(known) => known,
                None => {
                    let what = format!("mix {} of {}", done + 1, candidates.len());
                    let steps = candidates.len();
                    let record = self.measure_mix(candidate, model, &mut |chunk, chunks| {
                        progress(&SweepProgress { done, steps, what: &what, chunk, chunks })
                    })?;
                    self.journal.add(Record::Mix(record.clone()))?;
                    record
                }
            };
            measured.push(record);
        }
        measured.sort_by(|a, b| a.figures.kld.total_cmp(&b.figures.kld));
        Ok(measured)
    }

    /// Size of all tensors that are not swept, in bytes.
    fn fixed_bytes(&self) -> u64 {
        self.model.size().bytes() - self.subjects.0.iter().map(|subject| subject.bytes).sum::<u64>()
    }

    /// The options of each subject: as loaded, and every measured step.
    fn options(&self) -> Vec<Vec<Tried<'_>>> {
        let baseline = self.baseline();
        let of = |subject: &Subject| {
            let donors = self.donors.iter().filter_map(|donor| self.journal.step(&subject.name, &donor.name));
            // A step with an infinite divergence is never chosen.
            let steps = donors.filter(|step| step.figures.kld.is_finite()).map(|step| Tried {
                donor: Some(step.donor.as_str()),
                bytes: step.bytes,
                change: step.figures.kld - baseline,
            });
            std::iter::once(Tried { donor: None, bytes: subject.bytes, change: 0.0 }).chain(steps).collect()
        };
        self.subjects.0.iter().map(of).collect()
    }

    fn baseline(&self) -> f64 {
        self.journal.baseline().map_or(0.0, |figures| figures.kld)
    }

    /// Makes a candidate from the chosen option of each subject.
    fn candidate(&self, choice: &[usize], options: &[Vec<Tried<'_>>]) -> MixCandidate {
        let chosen = || options.iter().zip(choice).map(|(options, &option)| &options[option]);
        let named = self.subjects.0.iter().zip(chosen());
        MixCandidate {
            choice: named
                .filter_map(|(subject, option)| Some((subject.name.clone(), option.donor?.to_owned())))
                .collect(),
            bytes: chosen().map(|option| option.bytes).sum(),
            predicted: self.baseline() + chosen().map(|option| option.change).sum::<f64>(),
        }
    }

    fn measure_mix(
        &self,
        candidate: &MixCandidate,
        model: &mut dyn SweepModel,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<MixRecord, SweepError> {
        let mut there: Vec<Replacement> = Vec::new();
        for subject in &self.subjects.0 {
            let donor = candidate.choice.get(&subject.name);
            if let Some(donor) = donor.and_then(|name| self.donors.iter().find(|donor| donor.name == *name)) {
                there.extend(replacements(subject, &donor.path));
            }
        }
        model.swap(&there)?;
        let figures = model.measure(progress)?;
        let tensors: Vec<String> = there.into_iter().map(|replacement| replacement.tensor).collect();
        restore(model, &tensors)?;
        let MixCandidate { choice, bytes, predicted } = candidate.clone();
        Ok(MixRecord { choice, bytes, predicted, figures })
    }
}
