//! The journal of a sweep: one JSON object per line, so that an interrupted sweep resumes.

use super::error::SweepError;
use super::number;
use crate::divergence::DivergenceReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use terrace_model::identity::ModelIdentity;
use terrace_model::parse_reason;
use terrace_platform::lock;
use terrace_platform::own_file::{Form, OwnFile};

/// Version of the format.
const VERSION: u32 = 1;
pub const FILE: OwnFile = OwnFile::new("the journal of a sweep", Form::Begins(b"{\"sweep\""));
/// Largest journal, in bytes. A step takes half a kilobyte.
const MAX_BYTES: u64 = 1 << 30;

/// The first line: what is swept. Figures of sweeps with different headers are not comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub sweep: u32,
    pub model: ModelIdentity,
    pub text: TextIdentity,
    /// The base file; `None` means the model itself.
    pub base: Option<String>,
    /// The pattern of tensors and their grouping.
    pub subjects: String,
}

/// The identity of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextIdentity {
    pub tokens: usize,
    /// Checksum of the tokens, as little-endian 32-bit numbers.
    pub crc32: u32,
    /// Tokens in a chunk.
    pub context: usize,
    /// Number of chunks to evaluate; `None` means all.
    pub chunks: Option<usize>,
}

impl TextIdentity {
    /// Identifies a text by its tokens.
    pub fn of(tokens: &[i32], context: usize, chunks: Option<usize>) -> Self {
        let mut crc = crc32fast::Hasher::new();
        tokens.iter().for_each(|token| crc.update(&token.to_le_bytes()));
        Self { tokens: tokens.len(), crc32: crc.finalize(), context, chunks }
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    #[serde(with = "number")]
    pub perplexity: f64,
    pub perplexity_error: Option<f64>,
    /// Mean divergence from the base.
    #[serde(with = "number")]
    pub kld: f64,
    pub kld_error: Option<f64>,
    #[serde(with = "number")]
    pub kld_p99: f64,
    pub same_top: f64,
    /// Checksum over the likelihood and divergence of every position: equal only if all of them
    /// are.
    pub fingerprint: u32,
}

impl From<&DivergenceReport> for Figures {
    fn from(report: &DivergenceReport) -> Self {
        let mut crc = crc32fast::Hasher::new();
        for position in &report.compared {
            crc.update(&position.nll.to_le_bytes());
            crc.update(&position.kld.to_le_bytes());
        }
        let summary = &report.summary;
        Self {
            perplexity: summary.perplexity.value,
            perplexity_error: summary.perplexity.error,
            kld: summary.kld.value,
            kld_error: summary.kld.error,
            kld_p99: report.kld_percentiles.p99,
            same_top: summary.same_top.value,
            fingerprint: crc.finalize(),
        }
    }
}

/// A line after the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Record {
    /// The model as it was loaded.
    Baseline(Figures),
    /// A donor, before the first step.
    Donor {
        name: String,
        identity: ModelIdentity,
        /// Checksum of its tensors of all subjects; `None` in journals of earlier versions.
        crc32: Option<u32>,
    },
    /// The baseline was reproduced in every position.
    Same {
        /// The step before.
        after: String,
    },
    /// A subject with a donor's tensors.
    Step(Step),
    /// A subject whose tensors cannot be replaced by a donor's.
    Refused {
        /// Its name.
        subject: String,
        donor: String,
        reason: String,
    },
    /// All subjects, each as chosen.
    Mix(MixRecord),
}

/// A subject with a donor's tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub subject: String,
    pub donor: String,
    /// Types of the tensors in the donor.
    pub ty: String,
    /// Their size in the donor, in bytes.
    pub bytes: u64,
    /// The result.
    #[serde(flatten)]
    pub figures: Figures,
    /// Seconds for replacing and returning the tensors.
    pub swap_seconds: f64,
    /// Bytes read for that.
    pub swap_bytes: u64,
    /// Seconds for the measurement.
    pub seconds: f64,
}

/// All subjects, each as chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixRecord {
    /// Donors by subject; other subjects stay as loaded.
    pub choice: BTreeMap<String, String>,
    /// Size of all subjects in bytes.
    pub bytes: u64,
    /// Predicted divergence, assuming that single ones add up.
    #[serde(with = "number")]
    pub predicted: f64,
    /// The result.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A file of records, locked against other writers.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    pub records: Vec<Record>,
}

impl Journal {
    /// Opens or creates a journal. An incomplete last line is dropped.
    ///
    /// # Errors
    /// If the file is not a journal, belongs to another sweep, or is being written by another
    /// process.
    pub fn open(path: &Path, header: &Header) -> Result<Self, SweepError> {
        let io = |source| SweepError::Io { path: path.into(), source };
        FILE.check(path).map_err(io)?;
        let mut file = open(path).map_err(io)?;
        match lock::try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SweepError::Locked(path.into())),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 == MAX_BYTES {
            return Err(io(std::io::Error::other(format!("at most {MAX_BYTES} bytes are read"))));
        }
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole == 0 && !bytes.is_empty() && !bytes.starts_with(b"{\"sweep\"") {
            // Not even the beginning of a journal's first line.
            return Err(SweepError::Journal { path: path.into(), line: 1, reason: "missing header".into() });
        }
        let records = if whole == 0 { None } else { Some(parse(path, &bytes[..whole], header)?) };
        file.set_len(whole as u64).map_err(io)?;
        file.seek(SeekFrom::End(0)).map_err(io)?;
        let mut journal = Self { path: path.into(), file, records: Vec::new() };
        match records {
            Some(records) => journal.records = records,
            None => journal.line(header)?,
        }
        Ok(journal)
    }

    /// Adds a record, which is on disk when this returns.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&mut self, record: Record) -> Result<(), SweepError> {
        self.line(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// The baseline, if it has been measured.
    pub fn baseline(&self) -> Option<&Figures> {
        self.records.iter().find_map(|record| match record {
            Record::Baseline(figures) => Some(figures),
            _ => None,
        })
    }

    /// Records a donor's identity.
    ///
    /// # Errors
    /// [`SweepError::Other`] if another donor was used under this name.
    pub fn donor(&mut self, name: &str, identity: ModelIdentity, crc32: u32) -> Result<(), SweepError> {
        let known = self.records.iter().find_map(|record| match record {
            Record::Donor { name: known, identity, crc32 } if known == name => Some((identity, crc32)),
            _ => None,
        });
        match known {
            Some((known, content)) if *known == identity && content.is_none_or(|it| it == crc32) => Ok(()),
            Some(_) => Err(SweepError::Other { path: self.path.clone(), what: "donor of the same name" }),
            None => self.add(Record::Donor { name: name.to_owned(), identity, crc32: Some(crc32) }),
        }
    }

    /// All measured steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.records.iter().filter_map(|record| match record {
            Record::Step(step) => Some(step),
            _ => None,
        })
    }

    /// The step, if it has been measured.
    pub fn step(&self, subject: &str, donor: &str) -> Option<&Step> {
        self.steps().find(|step| step.subject == subject && step.donor == donor)
    }

    /// Returns true if the step is settled: measured or refused.
    pub fn has(&self, subject: &str, donor: &str) -> bool {
        let refused = |record: &Record| matches!(record, Record::Refused { subject: s, donor: d, .. } if s == subject && d == donor);
        self.step(subject, donor).is_some() || self.records.iter().any(refused)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), SweepError> {
        let mut line = serde_json::to_vec(value).expect("records are plain data");
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|source| SweepError::Io { path: self.path.clone(), source })
    }
}

impl Header {
    /// Makes a header of this version.
    pub fn new(model: ModelIdentity, text: TextIdentity, base: Option<String>, subjects: String) -> Self {
        Self { sweep: VERSION, model, text, base, subjects }
    }

    /// The difference; `None` if there is none.
    fn differs(&self, other: &Self) -> Option<&'static str> {
        [
            (self.sweep != other.sweep, "format version"),
            (self.model != other.model, "model"),
            (self.text != other.text, "text, context or number of chunks"),
            (self.base != other.base, "base"),
            (self.subjects != other.subjects, "choice of tensors"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// Opens the file to read and to add to.
#[expect(clippy::disallowed_methods, reason = "a journal is written in place, line by line")]
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn parse(path: &Path, bytes: &[u8], expected: &Header) -> Result<Vec<Record>, SweepError> {
    let mut records = Vec::new();
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let wrong = |e: serde_json::Error| SweepError::Journal {
            path: path.into(),
            line: index + 1,
            reason: parse_reason(&e),
        };
        if index == 0 {
            let header: Header = serde_json::from_slice(line).map_err(wrong)?;
            if let Some(what) = expected.differs(&header) {
                return Err(SweepError::Other { path: path.into(), what });
            }
        } else {
            records.push(serde_json::from_slice(line).map_err(wrong)?);
        }
    }
    Ok(records)
}
