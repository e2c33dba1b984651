//! The order of a sweep's steps and their evaluation, with a fake model that only records its
//! swaps.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_engine::{Refusal, ReloadError, ReloadReport, Replacement, Source};
use terrace_eval::sweep::{
    Donor, Figures, Grouping, Header, Journal, Record, Step, Subjects, Sweep, SweepError, SweepModel,
    TextIdentity, make_donor,
};
use terrace_ggml::gguf;
use terrace_ggml::quantize::WeightType;
use terrace_model::identity::ModelIdentity;
use terrace_model::{ByteSize, ModelFile};
use terrace_testkit::{Arch, Spec};

/// A model whose costs add up by layer and type. Single tensors can refuse a swap or fail to be
/// restored.
#[derive(Default)]
struct Fake {
    copies: PathBuf,
    now: BTreeMap<String, PathBuf>,
    swaps: usize,
    refuses: Option<&'static str>,
    stays: Option<&'static str>,
    /// After this many swaps, figures no longer return to their original values although provenance
    /// does.
    drifts_after: Option<usize>,
}

impl Fake {
    fn cost(&self) -> f64 {
        let one = |(tensor, path): (&String, &PathBuf)| {
            let ty = path.file_stem().unwrap().to_str().unwrap();
            let per_type = [("q6_K", 0.001), ("q4_K", 0.01), ("q2_K", 0.1)];
            let layer = if tensor.starts_with("blk.0.") { 5.0 } else { 1.0 };
            per_type.iter().find(|(name, _)| *name == ty).map_or(0.0, |(_, cost)| cost * layer)
        };
        let drift = self.drifts_after.is_some_and(|swaps| self.swaps > swaps);
        self.now.iter().map(one).sum::<f64>() + if drift { 1.0 } else { 0.0 }
    }
}

impl SweepModel for Fake {
    fn swap(&mut self, replacements: &[Replacement]) -> Result<ReloadReport, ReloadError> {
        if let Some(refused) = replacements
            .iter()
            .find(|r| Some(r.tensor.as_str()) == self.refuses && r.from != Source::Original)
        {
            let refusal = Refusal { tensor: refused.tensor.clone(), path: None, reason: "no kernel".into() };
            return Err(ReloadError::Refused(vec![refusal]));
        }
        self.swaps += 1;
        for Replacement { tensor, from } in replacements {
            match from {
                Source::Original if self.stays == Some(tensor) => {}
                Source::Original => drop(self.now.remove(tensor)),
                Source::File(path) => drop(self.now.insert(tensor.clone(), path.clone())),
            }
        }
        Ok(ReloadReport::default())
    }

    fn measure(
        &mut self,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Figures, SweepError> {
        if progress(1, 1).is_break() {
            return Err(SweepError::Cancelled);
        }
        let kld = self.cost();
        Ok(Figures {
            perplexity: 10.0 + kld,
            perplexity_error: None,
            kld,
            kld_error: Some(1e-6),
            kld_p99: kld,
            same_top: 1.0,
            fingerprint: (kld * 1e6).round() as u32,
        })
    }

    fn foreign(&self) -> Option<String> {
        self.now.iter().find(|(_, path)| **path != self.copies).map(|(tensor, _)| tensor.clone())
    }
}

struct Setup {
    dir: TempDir,
    model: ModelFile,
    subjects: Subjects,
    donors: Vec<Donor>,
    copies: PathBuf,
}

fn setup(grouping: Grouping) -> Setup {
    let dir = TempDir::new().unwrap();
    let spec = Spec { layers: 2, expert_ff: 256, ..Spec::new(Arch::Qwen3Moe) }.with_type(WeightType::F16);
    let path = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let model = gguf::read(&path).unwrap();
    let pattern = regex::Regex::new(Subjects::DEFAULT_PATTERN).unwrap();
    let subjects = Subjects::of(&model, &pattern, grouping).unwrap();
    let make = |ty: WeightType| {
        let out = dir.path().join(format!("{}.gguf", ty.name()));
        make_donor(&path, Some(ty), &subjects, None, &out, &mut |_| ControlFlow::Continue(())).unwrap();
        Donor::open(ty.name(), out).unwrap()
    };
    let donors = [WeightType::Q6_K, WeightType::Q4_K, WeightType::Q2_K].map(make).into();
    let copies = dir.path().join("copies.gguf");
    Setup { dir, model, subjects, donors, copies }
}

impl Setup {
    fn header(&self) -> Header {
        let text = TextIdentity::of(&[1, 2, 3], 512, Some(2));
        Header::new(ModelIdentity::of(&self.model), text, None, "ffn".into())
    }

    fn journal(&self) -> Result<Journal, SweepError> {
        Journal::open(&self.file(), &self.header())
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("sweep.jsonl")
    }

    fn fake(&self) -> Fake {
        Fake { copies: self.copies.clone(), ..Fake::default() }
    }

    /// Runs until `most` measurements have been started.
    fn run(&self, model: &mut Fake, journal: &mut Journal, most: usize) -> Result<usize, SweepError> {
        let mut begun = 0;
        let (subjects, donors, copies) = (&self.subjects, &self.donors, self.copies.as_path());
        let mut sweep = Sweep { model: &self.model, subjects, donors, copies, journal };
        sweep.run(model, &mut |at| {
            begun += usize::from(!at.what.starts_with("reading"));
            if begun > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(begun)
    }
}

#[test]
fn every_subject_meets_every_donor_and_sweeps_go_on() {
    let setup = setup(Grouping::Tensor);
    assert_eq!(setup.subjects.0.len(), 6, "three matrices of experts in each of two layers");
    let mut model = setup.fake();
    let mut journal = setup.journal().unwrap();
    let ended = setup.run(&mut model, &mut journal, 7).unwrap_err();
    assert!(matches!(ended, SweepError::Cancelled), "{ended}");
    assert_eq!(journal.steps().count(), 5, "the baseline and the copy were measured as well");
    drop(journal);

    // The file is truncated in the middle of a line.
    let text = fs::read(setup.file()).unwrap();
    fs::write(setup.file(), &text[..text.len() - 9]).unwrap();
    let mut journal = setup.journal().unwrap();
    assert_eq!(journal.steps().count(), 4);
    let begun = setup.run(&mut setup.fake(), &mut journal, usize::MAX).unwrap();
    assert_eq!(journal.steps().count(), 18);
    assert_eq!(
        begun,
        14 + 3,
        "earlier steps are not measured again; the baseline, the copy, and the baseline at the end are"
    );
    for (subject, donor) in setup.subjects.0.iter().flat_map(|s| setup.donors.iter().map(move |d| (s, d))) {
        let step = journal.step(&subject.name, &donor.name).unwrap();
        assert_eq!(step.ty, donor.name);
        assert_eq!(step.bytes, donor.model.tensor(&subject.name).unwrap().extent.len);
    }
    assert!(matches!(journal.records.last(), Some(Record::Same { .. })));

    // Nothing is left to do.
    let begun = setup.run(&mut setup.fake(), &mut journal, usize::MAX).unwrap();
    assert_eq!(begun, 2);

    // Nothing is measured with a donor whose contents have changed at the same size.
    let donor = &setup.donors[1];
    let tensor = donor.model.tensor(&setup.subjects.0[4].name).unwrap();
    let mut bytes = fs::read(&donor.path).unwrap();
    bytes[usize::try_from(tensor.extent.end() - 1).unwrap()] ^= 1;
    fs::write(&donor.path, bytes).unwrap();
    let error = setup.run(&mut setup.fake(), &mut journal, 0).unwrap_err();
    assert!(error.to_string().ends_with("made with a different donor of the same name"), "{error}");
}

#[test]
fn a_model_that_is_not_restored_is_noticed() {
    let setup = setup(Grouping::Layer);
    assert_eq!(setup.subjects.0.len(), 2);
    let mut model = Fake { stays: Some("blk.1.ffn_up_exps.weight"), ..setup.fake() };
    let error = setup.run(&mut model, &mut setup.journal().unwrap(), usize::MAX).unwrap_err();
    assert!(
        matches!(&error, SweepError::NotReturned(tensor) if tensor == "blk.1.ffn_up_exps.weight"),
        "{error}"
    );

    let mut model = Fake { drifts_after: Some(5), ..setup.fake() };
    let error = setup.run(&mut model, &mut setup.journal().unwrap(), usize::MAX).unwrap_err();
    assert!(matches!(&error, SweepError::NotRestored { after, .. } if after.contains("blk.1")), "{error}");

    // A copy changes the figures.
    let mut model = Fake { drifts_after: Some(0), ..setup.fake() };
    let error = setup.run(&mut model, &mut setup.journal().unwrap(), usize::MAX).unwrap_err();
    assert!(matches!(&error, SweepError::NotRestored { after, .. } if after.contains("copy")), "{error}");
}

#[test]
fn what_is_refused_is_noted_and_left_out_of_mixes() {
    let setup = setup(Grouping::Tensor);
    let refused = "blk.0.ffn_down_exps.weight";
    // The first subject is used for the step that changes nothing, so it must not be this one.
    assert_ne!(setup.subjects.0[0].name, refused);
    let mut model = Fake { refuses: Some(refused), ..setup.fake() };
    let mut journal = setup.journal().unwrap();
    setup.run(&mut model, &mut journal, usize::MAX).unwrap();
    assert_eq!(journal.steps().count(), 15);
    let noted = journal
        .records
        .iter()
        .filter(|r| matches!(r, Record::Refused { reason, .. } if reason.contains("no kernel")));
    assert_eq!(noted.count(), 3);

    let all: u64 = setup.model.size().bytes();
    let (subjects, donors, copies) = (&setup.subjects, &setup.donors, setup.copies.as_path());
    let mut sweep = Sweep { model: &setup.model, subjects, donors, copies, journal: &mut journal };
    let tight = sweep.candidates(ByteSize(1000), 1).unwrap_err();
    let SweepError::Mix(terrace_plan::mix::MixError::NoneFits { smallest, .. }) = tight else {
        panic!("{tight}")
    };
    let least = &sweep.candidates(ByteSize(smallest), 1).unwrap()[0];
    assert!(least.choice.values().all(|donor| donor == "q2_K") && least.choice.len() == 5, "{least:?}");

    // Half of the possible saving: layer 0 costs five times as much, so layer 1 is quantised first.
    let budget = ByteSize(all - (all - smallest) / 2);
    let candidates = sweep.candidates(budget, 3).unwrap();
    assert_eq!(
        candidates.len(),
        3,
        "none uses one donor for everything: one tensor refuses, and F16 does not fit"
    );
    assert!(!candidates[0].choice.contains_key(refused));
    let mixes = sweep.mixes(&candidates, &mut model, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(mixes.windows(2).all(|two| two[0].figures.kld <= two[1].figures.kld));
    assert!((mixes[0].figures.kld - mixes[0].predicted).abs() < 1e-9, "these costs are additive");
    let roomy = sweep.candidates(ByteSize(all), 1).unwrap();
    assert_eq!(roomy.len(), 1, "the model as it was loaded");
    assert!(roomy[0].choice.is_empty() && roomy[0].predicted == 0.0);
    assert!(model.now.is_empty());
    let measured = model.swaps;
    let again = sweep.mixes(&candidates, &mut model, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((again, model.swaps), (mixes, measured), "known mixes are not measured again");
}

#[test]
fn journals_of_other_sweeps_are_refused() {
    let setup = setup(Grouping::Tensor);
    let held = setup.journal().unwrap();
    assert!(matches!(setup.journal(), Err(SweepError::Locked(_))));
    drop(held);
    let other = Header { subjects: "attn".into(), ..setup.header() };
    let error = Journal::open(&setup.file(), &other).unwrap_err();
    assert!(matches!(error, SweepError::Other { what: "choice of tensors", .. }), "{error}");
    let mut journal = setup.journal().unwrap();
    journal.donor("q4", ModelIdentity::of(&setup.model), 1).unwrap();
    journal.donor("q4", ModelIdentity::of(&setup.model), 1).unwrap();
    let error = journal.donor("q4", setup.donors[0].identity(), 1).unwrap_err();
    assert!(error.to_string().contains("donor of the same name"), "{error}");
    let error = journal.donor("q4", ModelIdentity::of(&setup.model), 2).unwrap_err();
    assert!(matches!(error, SweepError::Other { what: "donor of the same name", .. }), "{error}");
    drop(journal);

    // Any other file is neither mistaken for a journal nor truncated.
    for (bytes, line) in [(&b"a letter"[..], 1), (b"a letter\n", 1), (b"{\"sweep\":2}\n", 1)] {
        let file = setup.dir.path().join("other.txt");
        fs::write(&file, bytes).unwrap();
        let error = Journal::open(Path::new(&file), &setup.header()).unwrap_err();
        let named = matches!(&error, SweepError::Journal { line: found, .. } if *found == line);
        assert!(named || error.to_string().contains("is not the journal of a sweep"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
    // An incomplete header is rewritten.
    fs::write(setup.file(), b"{\"sweep\":1,\"mod").unwrap();
    assert!(setup.journal().unwrap().records.is_empty());
}

#[test]
fn a_type_that_breaks_the_model_does_not_break_the_journal() {
    let setup = setup(Grouping::Tensor);
    let figures = Figures {
        perplexity: f64::INFINITY,
        perplexity_error: None,
        kld: f64::INFINITY,
        kld_error: Some(f64::NAN),
        kld_p99: f64::INFINITY,
        same_top: 0.0,
        fingerprint: 1,
    };
    let (subject, donor) = (setup.subjects.0[0].name.clone(), setup.donors[0].name.clone());
    let step = Step {
        subject,
        donor,
        ty: "q2_K".into(),
        bytes: 1,
        figures,
        swap_seconds: 0.5,
        swap_bytes: 2,
        seconds: 1.5,
    };
    setup.journal().unwrap().add(Record::Step(step.clone())).unwrap();
    let journal = setup.journal().unwrap();
    let read = journal.step(&step.subject, &step.donor).unwrap();
    assert_eq!((read.figures.kld, read.figures.perplexity), (f64::INFINITY, f64::INFINITY));
    // A mix without it is found all the same.
    let all = setup.subjects.0.iter().map(|subject| subject.bytes).sum::<u64>() + setup.model.size().bytes();
    let mut journal = journal;
    let Setup { model, subjects, donors, copies, .. } = &setup;
    let sweep = Sweep { model, subjects, donors, copies, journal: &mut journal };
    let found = sweep.candidates(ByteSize(all), 2).unwrap();
    assert!(found.iter().all(|mix| mix.predicted.is_finite()), "{found:?}");
}
