//! What is measured: one question after the other, not every combination of everything.

use crate::choice::IoChoice;
use crate::measure::Pattern;
use serde::{Serialize, Serializer};
use std::fmt;
use terrace_model::ByteSize;

/// Request sizes, in KiB. 900 KiB is what an expert's matrix of a current model takes.
const SIZES: [u64; 6] = [4, 64, 256, 900, 1024, 4096];
/// Requests in flight.
const DEPTHS: [u32; 6] = [1, 4, 8, 16, 32, 64];
/// Where the question is another one.
const USUAL_DEPTH: u32 = 16;
/// How many neighbours are read as one.
const NEIGHBOURS: u32 = 4;

/// What a row is there to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How large should a request be?
    RequestSize,
    /// How many should be in flight?
    Depth,
    /// What does the page cache, cold, cost or give?
    Buffered,
    /// What remains beside computation, and of it?
    Compute,
    /// Are neighbouring extents better read as one?
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

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Why it is measured.
    pub question: Question,
    /// `Uring` or `Pread`.
    #[serde(serialize_with = "as_text")]
    pub engine: IoChoice,
    /// Whether around the page cache.
    pub direct: bool,
    /// The order.
    pub pattern: Pattern,
    /// Bytes per request.
    pub request_size: ByteSize,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Requests that lie side by side, one after the other, before the next place.
    pub adjacent: u32,
    /// Whether all cores compute meanwhile.
    pub compute: bool,
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Everything that can be measured in a file of `len` bytes, with these engines, and direct I/O if `direct`.
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
        // Small ones are what tables read by row are made of.
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
    // Those that compute stand together: the threads start once.
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
    // Both of a pair or none.
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
