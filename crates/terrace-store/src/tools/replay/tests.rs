use super::*;
use crate::policy::PolicyKind;
use terrace_model::trace::{Pass, TraceGroup, TraceHeader, TracedTensor};
use terrace_model::{Extent, FileIndex, LayerId};

const EXPERTS: u32 = 8;
/// Bytes of one expert's part of one matrix.
const BYTES: u64 = 5000;

/// Two layers with two matrices each.
fn trace(passes: &[[&[u32]; 2]], top_k: u32) -> Trace {
    let tensor = |index: u64| TracedTensor {
        extent: Extent {
            file: FileIndex(0),
            offset: index * BYTES * u64::from(EXPERTS),
            len: BYTES * u64::from(EXPERTS),
        },
        layer: Some(LayerId(index as u32 / 2)),
        experts: Some(EXPERTS),
    };
    let block = |(group, ids): (usize, &&[u32])| TracedBlock { group: group as u32, ids: (*ids).into() };
    Trace {
        header: TraceHeader {
            architecture: "test".into(),
            model: String::new(),
            alignment: 1,
            files: vec![4 * BYTES * u64::from(EXPERTS)],
            tensors: (0..4).map(tensor).collect(),
        },
        groups: vec![
            TraceGroup { tensors: vec![1, 0], experts: EXPERTS, top_k },
            TraceGroup { tensors: vec![2, 3], experts: EXPERTS, top_k },
        ],
        passes: passes
            .iter()
            .map(|layers| Pass { blocks: layers.iter().enumerate().map(block).collect() })
            .collect(),
        ..Trace::default()
    }
}

fn lru() -> ReplayPolicy {
    ReplayPolicy::Online(PolicyKind::Lru)
}

#[test]
fn counts_are_those_of_a_sheet_of_paper() {
    // Slots have two pages. There is a prompt of two tokens, then two decoded tokens.
    let trace = trace(&[[&[0, 1, 1, 2], &[3, 4, 3, 4]], [&[0, 1], &[3, 5]], [&[0, 6], &[3, 4]]], 2);
    let replay = Replay::new(&trace);
    let all = replay.run(&lru(), ByteSize::mib(1)).unwrap();
    // Each expert has two blocks. The prompt uses 3 and 2 experts, all new; after it, 5 and 6 are
    // new.
    assert_eq!((all.prompt.passes, all.prompt.tokens), (1, 2));
    assert_eq!((all.prompt.hits, all.prompt.misses), (0, 10));
    assert_eq!((all.decode.passes, all.decode.tokens), (2, 2));
    assert_eq!((all.decode.hits, all.decode.misses, all.decode.evictions), (12, 4, 0));
    assert_eq!(all.decode.bytes_read, ByteSize(4 * BYTES));
    assert_eq!(all.decode_bytes, [2 * BYTES, 2 * BYTES]);
    assert_eq!(all.total().misses, 14);
    assert_eq!(all.predict(2.0 * BYTES as f64, 0.0), Some(1.0));
    assert_eq!(all.predict(2.0 * BYTES as f64, 4.0), Some(0.25));

    // With fewer slots than the token cycle of 8 blocks, LRU never hits; the oracle does.
    let few = ByteSize(6 * 8192);
    let flushed = replay.run(&lru(), few).unwrap();
    assert_eq!((flushed.decode.hits, flushed.decode.misses), (0, 16));
    let best = replay.run(&ReplayPolicy::Belady, few).unwrap();
    assert!(best.total().misses < flushed.total().misses, "{best:?}");
}

#[test]
fn prompts_leave_what_decoding_had_warm() {
    let everything: Vec<u32> = (0..18).map(|id| id % EXPERTS).collect();
    let few = &everything[..16];
    // A token uses 8 blocks; there are 32 in all, 16 per layer.
    let slots = ByteSize(26 * 8192);
    for (prompt, sweeps) in [(&everything[..], true), (few, false)] {
        let token: [&[u32]; 2] = [&[0, 1], &[3, 5]];
        let trace = trace(&[token, [prompt, prompt], token], 2);
        let result = Replay::new(&trace).run(&lru(), slots).unwrap();
        assert_eq!(result.prompt.tokens, prompt.len() as u64 / 2);
        assert_eq!(result.decode.hits == 8, sweeps, "nine tokens are a sweep: {result:?}");
        // The oracle does not distinguish them.
        let best = Replay::new(&trace).run(&ReplayPolicy::Belady, slots).unwrap();
        assert!(best.total().misses <= result.total().misses, "{best:?} {result:?}");
    }
}

#[test]
fn waves_read_what_they_must_and_too_little_is_an_error() {
    let trace = trace(&[[&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]]], 8);
    let replay = Replay::new(&trace);
    // With one or three slots each block is read at least once, whatever was requested ahead.
    for slots in [1, 3] {
        let counts = replay.run(&lru(), ByteSize(slots * 8192)).unwrap().total();
        assert!(counts.misses >= 32, "{counts:?}");
        assert_eq!(counts.bytes_read, ByteSize(counts.misses * BYTES));
    }
    match replay.run(&lru(), ByteSize(4096)) {
        Err(StoreError::BudgetTooSmall { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn policies_of_replays_read_back() {
    for text in ["belady", "lru", "static:a"] {
        assert_eq!(text.parse::<ReplayPolicy>().unwrap().to_string(), text);
    }
    let message = "best".parse::<ReplayPolicy>().unwrap_err().to_string();
    assert!(message.contains("per-layer") && message.contains("belady"), "{message}");
}
