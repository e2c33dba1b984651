use super::*;
use crate::trace::TraceWriter;
use proptest::prelude::*;

fn header() -> TraceHeader {
    let tensor = |index: u64, experts: Option<u32>| TracedTensor {
        extent: Extent { file: FileIndex((index % 2) as u32), offset: index * 6000, len: 6000 },
        layer: (index < 4).then_some(LayerId(index as u32 / 2)),
        experts,
    };
    TraceHeader {
        architecture: "qwen3moe".into(),
        model: "tiny ☃".into(),
        alignment: 512,
        files: vec![100_000, 70_000],
        tensors: (0..5).map(|index| tensor(index, (index < 4).then_some(300))).collect(),
    }
}

fn trace() -> impl Strategy<Value = Trace> {
    let groups = vec![
        TraceGroup { tensors: vec![1, 0], experts: 300, top_k: 4 },
        TraceGroup { tensors: vec![2, 3], experts: 300, top_k: 2 },
    ];
    let block = |group: u32, top_k: usize| {
        prop::collection::vec(prop::collection::vec(0u32..300, top_k), 0..5).prop_map(move |tokens| {
            let sorted = tokens.into_iter().flat_map(|mut ids| {
                ids.sort_unstable();
                ids
            });
            TracedBlock { group, ids: sorted.collect() }
        })
    };
    let pass = (block(0, 4), block(1, 2)).prop_map(|(a, b)| Pass { blocks: vec![a, b] });
    let run = (any::<u64>(), any::<u64>()).prop_map(|(hits, misses)| RunRecord {
        policy: "lru".into(),
        slots: ByteSize(12345),
        hits,
        misses,
        evictions: 3,
        bytes_read: ByteSize(u64::MAX),
        bytes_per_second: 1 << 31,
    });
    (prop::collection::vec(pass, 1..6), run).prop_map(move |(passes, run)| Trace {
        header: header(),
        groups: groups.clone(),
        passes,
        run,
    })
}

fn write(trace: &Trace) -> Vec<u8> {
    let mut writer = TraceWriter::new(&trace.header);
    for pass in &trace.passes {
        writer.pass();
        pass.blocks.iter().for_each(|block| writer.block(&trace.groups[block.group as usize], &block.ids));
    }
    writer.finish(&trace.run)
}

proptest! {
    #[test]
    fn what_was_written_is_read(trace in trace()) {
        prop_assert_eq!(Trace::read(&write(&trace)), Ok(trace));
    }

    #[test]
    fn every_truncation_is_an_error_within_the_file(trace in trace(), cut in any::<prop::sample::Index>()) {
        let bytes = write(&trace);
        let cut = cut.index(bytes.len());
        match Trace::read(&bytes[..cut]) {
            Err(TraceError::Truncated { offset, .. }) => prop_assert_eq!(offset, cut),
            // A count that the shorter file cannot hold is refused before its end is reached.
            Err(TraceError::Number { offset, .. }) => prop_assert!(offset < cut),
            Err(TraceError::Magic) => prop_assert!(cut < MAGIC.len()),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn every_changed_byte_is_an_error(trace in trace(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = write(&trace);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Trace::read(&bytes).is_err(), "byte {at} changed by {flip:#x}");
    }

    #[test]
    fn any_bytes_are_read_or_refused(tail in prop::collection::vec(any::<u8>(), 1..300), kept in 0usize..200) {
        let mut bytes = write(&Trace { header: header(), ..Trace::default() });
        bytes.truncate(kept.max(9));
        bytes.extend(tail);
        prop_assert!(Trace::read(&bytes).is_err(), "the checksum of random bytes is right once in 2^32");
    }
}

#[test]
fn numbers_that_would_take_memory_are_refused_by_the_length_of_the_file() {
    let empty = TraceHeader { alignment: 1, files: vec![1], ..TraceHeader::default() };
    let mut bytes = TraceWriter::new(&empty).finish(&RunRecord::default());
    // The number of tensors comes after magic, version, two empty texts, alignment, and one file.
    let at = MAGIC.len() + 6;
    assert_eq!(bytes[at], 0);
    bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0x0f]);
    let found = u64::from(u32::MAX);
    match Trace::read(&bytes) {
        Err(TraceError::Number { offset, found: f, .. }) => assert_eq!((offset, f), (at, found)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_versions_and_files_are_named() {
    let mut bytes = TraceWriter::new(&header()).finish(&RunRecord::default());
    assert_eq!(Trace::read(b"GGUF"), Err(TraceError::Magic));
    bytes[MAGIC.len()] = 2;
    assert_eq!(Trace::read(&bytes), Err(TraceError::Version { found: 2 }));
}

#[test]
fn a_trace_that_became_too_long_ends_with_a_whole_pass() {
    let group = TraceGroup { tensors: vec![0], experts: 300, top_k: 1 };
    let mut writer = TraceWriter::new(&header());
    let limit = TraceWriter::new(&header()).finish(&RunRecord::default()).len();
    writer = writer.with_most(limit);
    for _ in 0..20 {
        writer.pass();
        writer.block(&group, &[7]);
        writer.block(&group, &[8]);
    }
    assert!(writer.is_full());
    let trace = Trace::read(&writer.finish(&RunRecord::default())).unwrap();
    assert!(!trace.passes.is_empty() && trace.passes.len() < 20, "{} passes", trace.passes.len());
    assert!(trace.passes.iter().all(|pass| pass.blocks.len() == 2));
}

/// A trace with one pass of a token, whose tensors are these.
fn of_tensors(tensors: &[(u64, u32)], groups: &[TraceGroup]) -> Vec<u8> {
    let most = i64::MAX.unsigned_abs();
    let tensor = |&(len, experts)| TracedTensor {
        extent: Extent { file: FileIndex(0), offset: 0, len },
        layer: None,
        experts: Some(experts),
    };
    let tensors = tensors.iter().map(tensor).collect();
    let header = TraceHeader { alignment: 4096, files: vec![most], tensors, ..TraceHeader::default() };
    let mut writer = TraceWriter::new(&header);
    writer.pass();
    for group in groups {
        writer.block(group, &vec![0; group.top_k as usize]);
    }
    writer.finish(&RunRecord::default())
}

#[test]
fn tensors_larger_than_all_disks_are_refused() {
    let most = i64::MAX.unsigned_abs() - 1;
    let one = of_tensors(&[(most, 1)], &[]);
    assert_eq!(Trace::read(&one).unwrap().managed_bytes(), ByteSize(most));
    // Each lies within the file, but their sum has more than 64 bits.
    let three = of_tensors(&[(most, 1), (most, 1), (most, 1)], &[]);
    assert!(matches!(Trace::read(&three), Err(TraceError::Number { .. })), "{:?}", Trace::read(&three));
}

#[test]
fn groups_of_one_large_tensor_are_added_up_without_overflow() {
    let half = 1 << 62;
    let group = |experts, top_k| TraceGroup { tensors: vec![0; 3], experts, top_k };
    let trace = Trace::read(&of_tensors(&[(half, 2)], &[group(2, 2), group(2, 1)])).unwrap();
    assert_eq!(trace.bundle(&trace.groups[0]), ByteSize(3 * (half / 2)));
    assert_eq!(trace.token_cycle(), ByteSize(u64::MAX));
}

#[test]
fn a_short_trace_has_no_more_blocks_than_models_have() {
    // 16 million blocks, for which a replay would make tables of a gigabyte.
    let experts = 1 << 20;
    let tensors = vec![(u64::from(experts), experts); 16];
    assert!(matches!(Trace::read(&of_tensors(&tensors, &[])), Err(TraceError::Number { .. })));
}
