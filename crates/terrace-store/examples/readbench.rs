//! Measures how fast the store reads blocks of a file:
//! `readbench FILE [BLOCK] [BUDGET] [IO] [DIRECT] [WAVE] [DEPTH] [REQUEST] [fetch|all]`.
//!
//! It reads the whole file into plain memory, as a load does, and fetches random blocks in waves,
//! as a model's layers do. It prints rates by wall-clock time, and the processor time that they
//! took.

#![allow(clippy::print_stdout, reason = "an example, not part of the program")]
#![allow(clippy::disallowed_methods, reason = "an example reads files of its user")]

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_platform::processor;
use terrace_store::{BlockId, BlockSpec, Fetch, ReadInto, Store, StoreConfig, StoreStats};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &'static str| args.get(index).map_or(default, String::as_str);
    let path = PathBuf::from(arg(0, ""));
    let file_len = std::fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
    let len = arg(1, "900KiB").parse::<ByteSize>()?.0;
    let config = StoreConfig {
        budget: arg(2, "512MiB").parse()?,
        io: arg(3, "auto").parse()?,
        direct: arg(4, "auto").parse()?,
        queue_depth: Some(arg(6, "32").parse()?),
        request_size: Some(arg(7, "1MiB").parse()?),
        ..StoreConfig::default()
    };
    let wave: usize = arg(5, "24").parse()?;

    // GGUF data begins on a multiple of 32, which is seldom a multiple of a sector.
    let extents: Vec<Extent> = (0..(file_len - 32) / len)
        .map(|index| Extent { file: FileIndex(0), offset: 32 + index * len, len })
        .collect();
    let blocks = extents
        .iter()
        .map(|extent| BlockSpec { extent: *extent, name: "block".into(), layer: None, expert: None })
        .collect();
    let mut store = Store::open(vec![path], blocks, config)?;
    println!("{:?}", store.engine());

    let load = arg(8, "all") == "all";
    // The first read is into new memory, whose pages the kernel has to allocate; later ones are
    // not.
    let want = if load { file_len.min(2 << 30) - 32 } else { 0 };
    let mut memory = vec![0u8; usize::try_from(want)? + 8192];
    for what in ["read_into, straight, fresh memory", "read_into, straight", "read_into, staged"] {
        if !load {
            break;
        }
        store.reset_stats();
        // The address is congruent to the file's offset, or off by one.
        let skew = usize::from(what.ends_with("staged"));
        let at = (32 + skew + 4096 - memory.as_ptr() as usize % 4096) % 4096;
        let dst = &mut memory[at..at + usize::try_from(want)?];
        let extent = Extent { file: FileIndex(0), offset: 32, len: want };
        let (started, cpu) = (Instant::now(), processor::time().as_secs_f64());
        store.read_into(&mut [ReadInto { extent, dst, name: "file" }], &mut |_| ControlFlow::Continue(()))?;
        report(what, store.stats(), started, cpu, want);
    }
    drop(memory);
    store.reset_stats();

    let mut fetch = Fetch::new();
    let mut state = 1u64;
    let mut sum = 0u64;
    let (started, cpu) = (Instant::now(), processor::time().as_secs_f64());
    while store.stats().bytes_read.0 < 4 * file_len.min(4 << 30) && started.elapsed().as_secs() < 8 {
        let list: Vec<BlockId> = (0..wave)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                BlockId(((state >> 33) % extents.len() as u64) as u32)
            })
            .collect();
        let mut done = 0;
        while done < list.len() {
            done += store.start(&mut fetch, &list[done..])?;
            while let Some(ready) = store.next(&mut fetch)? {
                sum += ready.len as u64;
            }
            store.release(&mut fetch);
        }
    }
    report("fetch", store.stats(), started, cpu, sum);

    Ok(())
}

fn report(what: &str, stats: StoreStats, started: Instant, cpu: f64, bytes: u64) {
    let wall = started.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} GB/s read, {:.2} GB/s given, hits {:.2}, {:.0} requests/s, {:.3} cpu s per GB read",
        stats.bytes_read.0 as f64 / wall / 1e9,
        bytes as f64 / wall / 1e9,
        stats.hit_rate(),
        stats.requests as f64 / wall,
        (processor::time().as_secs_f64() - cpu) / (stats.bytes_read.0 as f64 / 1e9),
    );
}
