//! Routing traces: reading, writing what was read, and all that `terrace trace` computes from them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_model::ByteSize;
use terrace_model::trace::{Trace, TraceGroup, TraceWriter};
use terrace_store::PolicyKind;
use terrace_store::tools::replay::{Replay, ReplayPolicy};

/// Blocks and chosen experts up to which a trace is replayed: the time of larger ones is theirs.
const MOST_BLOCKS: u64 = 1 << 16;
const MOST_IDS: usize = 1 << 12;

fuzz_target!(|data: &[u8]| {
    // As it is; and with the right checksum, which a fuzzer does not find.
    let _ = Trace::read(data);
    let Some((before, _)) = data.split_last_chunk::<4>() else { return };
    let fixed = [before, &checksum(before).to_le_bytes()].concat();
    let Ok(trace) = Trace::read(&fixed) else { return };

    let again = Trace::read(&written(&trace)).expect("what was written can be read");
    assert_eq!((&again.header, &again.run), (&trace.header, &trace.run));
    assert_eq!(passes(&again), passes(&trace));

    let managed = trace.managed_bytes();
    let _ = (trace.whole_tensors(), trace.token_cycle());
    let blocks: u64 = trace.header.tensors.iter().map(|tensor| u64::from(tensor.experts.unwrap_or(1))).sum();
    let ids: usize = trace.passes.iter().flat_map(|pass| &pass.blocks).map(|block| block.ids.len()).sum();
    if trace.groups.is_empty() || blocks > MOST_BLOCKS || ids > MOST_IDS {
        return;
    }
    let replay = Replay::new(&trace);
    for slots in [trace.run.slots, ByteSize(managed.bytes() / 100 * 30)] {
        let policies = PolicyKind::SELF_CONTAINED.iter().cloned().map(ReplayPolicy::Online);
        for policy in policies.chain([ReplayPolicy::Belady]) {
            if let Ok(result) = replay.run(&policy, slots) {
                let total = result.total();
                assert!((0.0..=1.0).contains(&total.hit_rate()));
                let _ = result.predict(1e9, 0.01);
            }
        }
    }
});

/// CRC-32 of a trace's bytes.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

fn written(trace: &Trace) -> Vec<u8> {
    let mut writer = TraceWriter::new(&trace.header);
    for pass in &trace.passes {
        writer.pass();
        for block in &pass.blocks {
            writer.block(&trace.groups[block.group as usize], &block.ids);
        }
    }
    writer.finish(&trace.run)
}

/// The passes, with groups instead of their numbers: a trace may define a group twice.
fn passes(trace: &Trace) -> Vec<Vec<(&TraceGroup, &[u32])>> {
    let block = |group: u32| &trace.groups[group as usize];
    let pass = trace.passes.iter().map(|pass| &pass.blocks);
    pass.map(|blocks| blocks.iter().map(|b| (block(b.group), &*b.ids)).collect()).collect()
}
