//! The steps of a sweep: replace, measure, return.

use super::donors::Donor;
use super::error::SweepError;
use super::journal::{Figures, Journal, Record, Step};
use super::subjects::{Subject, Subjects};
use crate::base_logits::BaseLogits;
use crate::chunks::PerplexityOptions;
use crate::divergence::divergence;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;
use terrace_engine::Engine;
use terrace_engine::{ReloadError, ReloadReport, Replacement, Source};
use terrace_model::ModelFile;

/// Number of steps after which the baseline has to be reproduced.
const CHECK_EVERY: usize = 16;

/// The operations that a sweep needs of a model.
pub trait SweepModel {
    /// Replaces tensors, all or none.
    ///
    /// # Errors
    /// If tensors cannot be replaced, or files cannot be read.
    fn swap(&mut self, replacements: &[Replacement]) -> Result<ReloadReport, ReloadError>;

    /// Compares the model with the base. `progress` gets the number of chunks done and to do, and
    /// may end the measurement.
    ///
    /// # Errors
    /// The engine's.
    fn measure(
        &mut self,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Figures, SweepError>;

    /// A tensor that is not as loaded; `None` if all are.
    fn foreign(&self) -> Option<String>;
}

/// A loaded model, with the text and base that it is measured on.
pub struct EngineModel<'e> {
    pub engine: &'e mut Engine,
    /// The text.
    pub tokens: &'e [i32],
    /// Its division into chunks.
    pub options: PerplexityOptions,
    pub base: BaseLogits,
    loaded: Vec<terrace_engine::Provenance>,
}

impl<'e> EngineModel<'e> {
    /// Takes the engine's current tensors as the loaded ones.
    pub fn new(
        engine: &'e mut Engine,
        tokens: &'e [i32],
        options: PerplexityOptions,
        base: BaseLogits,
    ) -> Self {
        let loaded = engine.provenance();
        Self { engine, tokens, options, base, loaded }
    }
}

impl SweepModel for EngineModel<'_> {
    fn swap(&mut self, replacements: &[Replacement]) -> Result<ReloadReport, ReloadError> {
        self.engine.swap(replacements)
    }

    fn measure(
        &mut self,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Figures, SweepError> {
        let report = divergence(self.engine, self.tokens, &self.options, &mut self.base, &mut |at| {
            progress(at.done, at.chunks)
        })?;
        Ok(Figures::from(&report))
    }

    fn foreign(&self) -> Option<String> {
        let now = self.engine.provenance();
        let mut changed = self.loaded.iter().zip(&now).filter(|(loaded, now)| loaded != now);
        changed.next().map(|(loaded, _)| loaded.info.name.clone())
    }
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepProgress<'p> {
    /// Steps done, including those of earlier runs.
    pub done: usize,
    /// Steps to do.
    pub steps: usize,
    /// The current measurement.
    pub what: &'p str,
    /// Chunks done in this measurement.
    pub chunk: usize,
    /// Chunks to do in this measurement.
    pub chunks: usize,
}

/// Called with progress; may end the sweep.
pub type OnProgress<'f> = &'f mut dyn FnMut(&SweepProgress<'_>) -> ControlFlow<()>;

/// A sweep, and its journal.
pub struct Sweep<'s> {
    /// The model's header.
    pub model: &'s ModelFile,
    /// The tensors to change.
    pub subjects: &'s Subjects,
    /// The files with other types.
    pub donors: &'s [Donor],
    /// A file with copies of the subjects' own tensors, for the step that must change nothing.
    pub copies: &'s Path,
    /// The measurements so far.
    pub journal: &'s mut Journal,
}

impl Sweep<'_> {
    /// Measures what the journal lacks: the baseline, a step that replaces tensors by copies of
    /// themselves, every subject with every donor, and the baseline again. Tensors that cannot be
    /// replaced are recorded with the reason.
    ///
    /// # Errors
    /// [`SweepError`]; earlier measurements are in the journal.
    pub fn run(&mut self, model: &mut dyn SweepModel, progress: OnProgress<'_>) -> Result<(), SweepError> {
        let cells = self.cells();
        let steps = cells.len();
        let known =
            |journal: &Journal| cells.iter().filter(|(s, d, ..)| journal.has(&s.name, &d.name)).count();
        let mut done = known(self.journal);
        // Checked first, so that hours of measuring are not spent on other files than those in the
        // journal.
        for donor in self.donors {
            let what = format!("reading {}", donor.name);
            let mut told = || progress(&SweepProgress { done, steps, what: &what, chunk: 0, chunks: 1 });
            let crc32 = donor.checksum(self.subjects, &mut told)?;
            self.journal.donor(&donor.name, donor.identity(), crc32)?;
        }
        let mut measure = |model: &mut dyn SweepModel, what: &str, done: usize| {
            model.measure(&mut |chunk, chunks| progress(&SweepProgress { done, steps, what, chunk, chunks }))
        };
        let now = measure(model, "baseline", done)?;
        match self.journal.baseline() {
            Some(_) => self.same("resuming", &now)?,
            None => self.journal.add(Record::Baseline(now))?,
        }
        let first = &self.subjects.0[0];
        model.swap(&replacements(first, self.copies))?;
        let copied = measure(model, "sanity check with a copy", done)?;
        restore(model, &first.tensors)?;
        self.same(&format!("swapping in a copy of {}", first.name), &copied)?;

        let mut unchecked = 0;
        for (subject, donor, bytes, ty) in &cells {
            if self.journal.has(&subject.name, &donor.name) {
                continue;
            }
            let there = match model.swap(&replacements(subject, &donor.path)) {
                Ok(report) => report,
                Err(ReloadError::Refused(refusals)) => {
                    let reason = refusals.first().map_or_else(String::new, ToString::to_string);
                    let (subject, donor) = (subject.name.clone(), donor.name.clone());
                    self.journal.add(Record::Refused { subject, donor, reason })?;
                    done += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let begin = Instant::now();
            let figures = measure(model, &format!("{} {ty}", subject.name), done);
            let seconds = begin.elapsed().as_secs_f64();
            let back = restore(model, &subject.tensors)?;
            self.journal.add(Record::Step(Step {
                subject: subject.name.clone(),
                donor: donor.name.clone(),
                ty: ty.clone(),
                bytes: *bytes,
                figures: figures?,
                swap_seconds: there.seconds + back.seconds,
                swap_bytes: there.bytes().bytes() + back.bytes().bytes(),
                seconds,
            }))?;
            (done, unchecked) = (done + 1, unchecked + 1);
            if unchecked == CHECK_EVERY || done == steps {
                let now = measure(model, "baseline again", done)?;
                self.same(&format!("{unchecked} steps, the last with {}", subject.name), &now)?;
                unchecked = 0;
            }
        }
        Ok(())
    }

    /// Each subject with each donor that has it, with size and types there.
    fn cells(&self) -> Vec<(Subject, Donor, u64, String)> {
        let of_donor = |donor: &Donor| {
            let cell = |subject: &Subject| {
                let (bytes, ty) = donor.has(subject, self.model)?;
                Some((subject.clone(), donor.clone(), bytes, ty))
            };
            self.subjects.0.iter().filter_map(cell).collect::<Vec<_>>()
        };
        self.donors.iter().flat_map(of_donor).collect()
    }

    /// Checks and records that the baseline was reproduced.
    fn same(&mut self, after: &str, now: &Figures) -> Result<(), SweepError> {
        let was = self.journal.baseline().expect("the baseline comes first");
        if was.fingerprint != now.fingerprint {
            let (now, was) = (now.perplexity, was.perplexity);
            return Err(SweepError::NotRestored { after: after.to_owned(), now, was });
        }
        self.journal.add(Record::Same { after: after.to_owned() })
    }
}

/// Replacements of a subject's tensors by those in a file.
pub fn replacements(subject: &Subject, file: &Path) -> Vec<Replacement> {
    let one = |name: &String| Replacement { tensor: name.clone(), from: Source::File(file.to_owned()) };
    subject.tensors.iter().map(one).collect()
}

/// Returns tensors to what was loaded, and checks that all tensors are.
pub fn restore(model: &mut dyn SweepModel, tensors: &[String]) -> Result<ReloadReport, SweepError> {
    let back: Vec<Replacement> =
        tensors.iter().map(|name| Replacement { tensor: name.clone(), from: Source::Original }).collect();
    let report = model.swap(&back)?;
    match model.foreign() {
        Some(tensor) => Err(SweepError::NotReturned(tensor)),
        None => Ok(report),
    }
}
