//! The measurements: one question after another, not every combination.

use crate::choice::IoChoice;
use crate::measure::Pattern;
use serde::{Serialize, Serializer};
use std::fmt;
use terrace_model::ByteSize;

/// Request sizes in KiB. An expert's matrix of a current model has about 900 KiB.
const SIZES: [u64; 6] = [4, 64, 256, 900, 1024, 4096];
/// Numbers of requests in flight.
const DEPTHS: [u32; 6] = [1, 4, 8, 16, 32, 64];
/// Requests in flight in measurements that answer other questions.
const USUAL_DEPTH: u32 = 16;
/// Number of adjacent extents that are read as one.
const NEIGHBOURS: u32 = 4;

/// The question that a row answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Request size.
    RequestSize,
    /// Queue depth.
    Depth,
    /// Gain or cost of a cold page cache.
    Buffered,
    /// Mutual slow-down of reads and computation.
    Compute,
    /// Are adjacent extents read faster as one?
    Coalescing,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RequestSize => "request size",
            Self::Depth => "requests in flight",
            Self::Buffered => "through the page cache",
            Self::Compute => "while computing",
            Self::Coalescing => "four adjacent extents, one by one and as one",
        })
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The question that it answers.
    pub question: Question,
    /// `Uring` or `Pread`.
    #[serde(serialize_with = "as_text")]
    pub engine: IoChoice,
    /// True if reads bypass the page cache.
    pub direct: bool,
    /// Order of the requests.
    pub pattern: Pattern,
    /// Bytes per request.
    pub request_size: ByteSize,
    /// Number of requests in flight.
    pub queue_depth: u32,
    /// Number of adjacent requests before the next place.
    pub adjacent: u32,
    /// True if all cores compute at the same time.
    pub compute: bool,
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Returns all measurements that are possible on a file of `len` bytes with these engines, and with
/// direct I/O if `direct`.
pub(super) fn cases(len: u64, engines: &[IoChoice], direct: bool) -> Vec<Case> {
    let mut all = Vec::new();
    let first = engines.first().copied();
    let case = |question, engine, kib: u64, queue_depth| Case {
        question,
        engine,
        direct,
        pattern: Pattern::Scattered,
        request_size: ByteSize::kib(kib),
        queue_depth,
        adjacent: 1,
        compute: false,
    };
    for pattern in [Pattern::Scattered, Pattern::Sequential] {
        for &engine in engines {
            for kib in SIZES {
                all.push(Case { pattern, ..case(Question::RequestSize, engine, kib, USUAL_DEPTH) });
            }
        }
    }
    for &engine in engines {
        // Tables that are read by row need small requests.
        for kib in [1024, 256, 4].into_iter().filter(|kib| *kib == 1024 || Some(engine) == first) {
            for depth in DEPTHS {
                all.push(case(Question::Depth, engine, kib, depth));
            }
        }
    }
    if direct {
        for pattern in [Pattern::Scattered, Pattern::Sequential] {
            for &engine in engines {
                for kib in [64, 900, 4096] {
                    let case = case(Question::Buffered, engine, kib, USUAL_DEPTH);
                    all.push(Case { pattern, direct: false, ..case });
                }
            }
        }
    }
    // Measurements with computation are consecutive, so that the threads start once.
    for compute in [false, true] {
        for &engine in engines {
            for direct in if direct { &[true, false][..] } else { &[false] } {
                let case = case(Question::Compute, engine, 900, 32);
                all.push(Case { direct: *direct, compute, ..case });
            }
        }
    }
    for kib in [64, 256, 1024] {
        let Some(engine) = first else { break };
        let apart = case(Question::Coalescing, engine, kib, 8 * NEIGHBOURS);
        all.push(Case { adjacent: NEIGHBOURS, ..apart });
        all.push(case(Question::Coalescing, engine, kib * u64::from(NEIGHBOURS), 8));
    }
    // Pairs are kept or dropped together.
    all.retain(|case| case.request_size.0 * u64::from(case.adjacent) <= len);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_asked_once_and_in_a_row() {
        let both = [IoChoice::Uring, IoChoice::Pread];
        let all = cases(1 << 30, &both, true);
        let mut questions: Vec<_> = all.iter().map(|case| case.question as u8).collect();
        questions.dedup();
        assert_eq!(questions, [0, 1, 2, 3, 4]);
        for (index, case) in all.iter().enumerate() {
            assert!(!all[..index].contains(case), "{case:?}");
            assert!(case.request_size.0.is_multiple_of(4096));
        }
        assert_eq!(all.iter().map(|case| u8::from(case.compute)).sum::<u8>(), 4);
    }

    #[test]
    fn what_cannot_be_measured_is_left_out() {
        let pread = cases(1 << 30, &[IoChoice::Pread], false);
        assert!(pread.iter().all(|case| case.engine == IoChoice::Pread && !case.direct));
        assert!(pread.iter().all(|case| case.question != Question::Buffered));
        let short = cases(300 << 10, &[IoChoice::Uring], true);
        assert!(!short.is_empty() && short.iter().all(|case| case.request_size <= ByteSize::kib(256)));
        assert_eq!(cases(4095, &[IoChoice::Uring], true), []);
    }
}
