//! When nothing was being read: from the end of all reads that were asked for until the next one is asked for.

use super::{Span, Track, What};
use terrace_model::LayerId;

/// The spans in which no request was in flight, between the first and the last. `layer_of` returns the layer
/// of a request.
pub(super) fn idle(spans: &[Span], layer_of: impl Fn(&What) -> Option<LayerId>) -> Vec<Span> {
    let mut reads: Vec<&Span> = spans.iter().filter(|span| matches!(span.track, Track::Read(_))).collect();
    reads.sort_by_key(|span| span.start);
    let mut idle = Vec::new();
    let mut last: Option<&Span> = None;
    for read in reads {
        if let Some(last) = last.filter(|last| last.end < read.start) {
            let what = What::Idle { after: layer_of(&last.what), before: layer_of(&read.what) };
            idle.push(Span { track: Track::Idle, start: last.end, end: read.start, what });
        }
        if last.is_none_or(|last| last.end < read.end) {
            last = Some(read);
        }
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purpose::Purpose;
    use proptest::prelude::*;
    use terrace_model::ByteSize;

    fn read(slot: u32, start: u64, end: u64) -> Span {
        let what = What::Read { block: None, bytes: ByteSize(u64::from(slot)), purpose: Purpose::Decode };
        Span { track: Track::Read(slot), start, end, what }
    }

    fn layer(what: &What) -> Option<LayerId> {
        match what {
            What::Read { bytes, .. } => Some(LayerId(bytes.bytes() as u32)),
            _ => None,
        }
    }

    #[test]
    fn gaps_are_named_by_the_layers_around_them() {
        let spans = [read(1, 0, 10), read(2, 5, 30), read(1, 12, 20), read(3, 40, 50), read(4, 50, 60)];
        let idle = idle(&spans, layer);
        let [gap] = idle[..] else { panic!("{idle:?}") };
        assert_eq!((gap.start, gap.end), (30, 40));
        assert_eq!(gap.what, What::Idle { after: Some(LayerId(2)), before: Some(LayerId(3)) });
    }

    proptest! {
        #[test]
        fn each_moment_is_idle_or_has_a_read(
            reads in prop::collection::vec((0u64..60, 0u64..9), 1..20),
        ) {
            let spans: Vec<Span> = reads.iter().map(|&(start, len)| read(0, start, start + len)).collect();
            let idle = idle(&spans, layer);
            let within = |at: u64, spans: &[Span]| spans.iter().any(|span| span.start <= at && at < span.end);
            let first = spans.iter().map(|span| span.start).min().unwrap();
            let last = spans.iter().map(|span| span.end).max().unwrap();
            for at in first..last {
                prop_assert!(within(at, &idle) != within(at, &spans), "{}", at);
            }
        }
    }
}
