//! Attention at depth: `cargo bench -p terrace-kernels --bench attention -- [word of a shape] [type] [depth] [isa] [warm]`.
//!
//! For decode, bytes of keys and values read per second, beside what the memory gives in the same run; for prefill,
//! operations per second. Each figure is the best of many short runs, by the clock and by the processor time of the
//! busiest thread, which other programs disturb less.

#![allow(clippy::print_stdout, reason = "what a benchmark is for")]
#![allow(clippy::disallowed_methods, reason = "reads its arguments")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_kernels::attention::{Call, Mask, Plan, Rows, Shape};
use terrace_kernels::{CacheType, Isa};

/// Bytes of caches that take turns, so that none is found in the processor's caches.
const COLD: usize = 192 << 20;

struct Model {
    name: &'static str,
    heads: usize,
    kv_heads: usize,
    key_length: usize,
    value_length: usize,
}

const MODELS: [Model; 4] = [
    Model { name: "qwen3-30b 32/4x128", heads: 32, kv_heads: 4, key_length: 128, value_length: 128 },
    Model { name: "llama-8b 32/8x128", heads: 32, kv_heads: 8, key_length: 128, value_length: 128 },
    Model { name: "gpt-oss 64/8x64", heads: 64, kv_heads: 8, key_length: 64, value_length: 64 },
    Model { name: "mla 16/1x576,512", heads: 16, kv_heads: 1, key_length: 576, value_length: 512 },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wants =
        |i: usize, value: &str| args.get(i).is_none_or(|arg| arg == "-" || value.contains(arg.as_str()));
    let isas: Vec<Isa> = Isa::available()
        .iter()
        .copied()
        .filter(|isa| if args.len() > 3 { wants(3, &format!("{isa:?}")) } else { *isa == Isa::best() })
        .collect();
    for threads in [1, 2] {
        let [wall, busy] = bandwidth(threads);
        println!("memory, {threads} threads: {wall:.1} GB/s by the clock, {busy:.1} by processor time");
    }
    for isa in isas {
        for model in MODELS.iter().filter(|model| wants(0, model.name)) {
            for ty in CacheType::ALL.into_iter().filter(|ty| wants(1, &format!("{ty:?}"))) {
                for depth in
                    [1024, 4096, 12_288, 32_768].into_iter().filter(|depth| wants(2, &depth.to_string()))
                {
                    decode(model, ty, depth, isa);
                }
                if wants(2, "prefill") {
                    prefill(model, ty, isa);
                }
            }
        }
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work(thread)` on so many threads; returns the time by the clock and that of the busiest thread.
fn timed(threads: usize, work: &(dyn Fn(usize) + Sync)) -> [f64; 2] {
    let ready = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        std::thread::yield_now();
                    }
                    let (start, busy) = (Instant::now(), processor_time());
                    work(thread);
                    [start.elapsed(), processor_time() - busy].map(|time| time.as_secs_f64())
                })
            })
            .collect();
        let times = all.into_iter().map(|thread| thread.join().expect("a thread"));
        times.fold([0.0; 2], |[a, b], [x, y]| [f64::max(a, x), f64::max(b, y)])
    })
}

/// The best of runs for a second or two.
fn best(mut work: impl FnMut(usize) -> [f64; 2]) -> [f64; 2] {
    let start = Instant::now();
    let mut best = [f64::INFINITY; 2];
    let mut run = 0;
    while run < 8 || (start.elapsed() < Duration::from_millis(1200) && run < 400) {
        let [a, b] = work(run);
        best = [best[0].min(a), best[1].min(b)];
        run += 1;
    }
    best
}

/// GB/s that threads read from memory: a word of each line.
fn bandwidth(threads: usize) -> [f64; 2] {
    let data = vec![1u64; COLD / 8];
    let sum = AtomicUsize::new(0);
    let part = data.len() / 16;
    let times = best(|run| {
        let data = &data[run % 16 * part..][..part];
        timed(threads, &|thread| {
            let mine = &data[thread * part / threads..(thread + 1) * part / threads];
            let lines = mine.iter().step_by(8).fold(0, |sum, word| sum ^ word);
            sum.fetch_xor(lines as usize, Ordering::Relaxed);
        })
    });
    std::hint::black_box(sum.load(Ordering::Relaxed));
    times.map(|time| (part * 8) as f64 / time / 1e9)
}

fn shape(model: &Model, ty: CacheType, tokens: usize, positions: usize) -> Shape {
    Shape {
        tokens,
        heads: model.heads,
        kv_heads: model.kv_heads,
        streams: 1,
        kv_streams: 1,
        positions,
        key_length: model.key_length,
        value_length: model.value_length,
        keys: ty,
        values: ty,
    }
}

/// Bytes of plausible rows: scales and floats around 1/16.
fn cache(ty: CacheType, rows: usize, length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as u16
    };
    let row = ty.row_bytes(length);
    let mut bytes = vec![0u8; rows * row];
    let block = match ty {
        CacheType::F32 => 4,
        CacheType::F16 | CacheType::Bf16 => 2,
        ty => ty.row_bytes(32),
    };
    for chunk in bytes.chunks_mut(block) {
        match ty {
            CacheType::F32 => chunk.copy_from_slice(&(f32::from(next() as i16) / 2e5).to_le_bytes()),
            CacheType::Bf16 => chunk.copy_from_slice(&(0x3d00 | (next() & 0x80ff)).to_le_bytes()),
            CacheType::F16 => chunk.copy_from_slice(&(0x2800 | (next() & 0x87ff)).to_le_bytes()),
            _ => {
                chunk.fill_with(|| next() as u8);
                chunk[..2].copy_from_slice(&0x1000u16.to_le_bytes());
            }
        }
    }
    bytes
}

struct Aligned(Vec<u64>);

impl Aligned {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes / 8 + 8])
    }

    fn at(&self) -> *mut u8 {
        let at = self.0.as_ptr().cast_mut().cast::<u8>();
        at.wrapping_add(at.align_offset(64))
    }
}

// SAFETY: each is used as the plan says, by one thread or by all.
unsafe impl Sync for Aligned {}

struct Bench {
    shape: Shape,
    plan: Plan,
    queries: Vec<f32>,
    keys: Vec<u8>,
    values: Vec<u8>,
    layers: usize,
    mask: Vec<u16>,
    out: Aligned,
    shared: Aligned,
    scratch: Vec<Aligned>,
}

impl Bench {
    fn new(shape: Shape, layers: usize, threads: usize, isa: Isa) -> Self {
        let plan = Plan::new(shape, threads, isa).expect("a shape of a model");
        let mut mask = Vec::new();
        for token in 0..shape.tokens {
            let seen = shape.positions - shape.tokens + token + 1;
            mask.extend((0..shape.positions).map(|position| if position < seen { 0 } else { 0xfc00u16 }));
        }
        let rows = layers * shape.positions * shape.kv_heads;
        Self {
            shape,
            plan,
            queries: (0..shape.tokens * shape.heads * shape.key_length).map(|i| (i as f32).sin()).collect(),
            keys: cache(shape.keys, rows, shape.key_length),
            values: cache(shape.values, rows, shape.value_length),
            layers,
            mask,
            out: Aligned::new(4 * shape.tokens * shape.heads * shape.value_length),
            shared: Aligned::new(plan.shared_bytes()),
            scratch: (0..threads).map(|_| Aligned::new(plan.scratch_bytes())).collect(),
        }
    }

    fn call(&self, layer: usize) -> Call {
        let Shape { tokens, heads, kv_heads, positions, key_length, value_length, .. } = self.shape;
        let layer = layer % self.layers;
        let rows = |at: &Vec<u8>, bytes: usize| Rows {
            at: at[layer * positions * kv_heads * bytes..].as_ptr(),
            position: kv_heads * bytes,
            head: bytes,
            stream: 0,
        };
        let row = key_length * 4;
        Call {
            queries: Rows { at: self.queries.as_ptr().cast(), position: row, head: tokens * row, stream: 0 },
            keys: rows(&self.keys, self.shape.keys.row_bytes(key_length)),
            values: rows(&self.values, self.shape.values.row_bytes(value_length)),
            mask: Some(Mask {
                rows: Rows { at: self.mask.as_ptr().cast(), position: positions * 2, head: 0, stream: 0 },
                heads: 1,
                streams: 1,
            }),
            sinks: None,
            out: Rows {
                at: self.out.at(),
                position: heads * value_length * 4,
                head: value_length * 4,
                stream: 0,
            },
            scale: 1.0 / (key_length as f32).sqrt(),
            max_bias: 0.0,
            softcap: 0.0,
        }
    }

    fn run(&self, layer: usize) -> [f64; 2] {
        let call = self.call(layer);
        let threads = self.scratch.len();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        timed(threads, &|thread| {
            // SAFETY: the buffers have the sizes of the shape and the plan.
            unsafe {
                let items = self.plan.items();
                let mine = items * thread / threads..items * (thread + 1) / threads;
                let alone = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&item| item < items);
                let divided = self.plan.merges() > 0;
                let all: &mut dyn Iterator<Item = usize> =
                    if divided { &mut mine.into_iter() } else { &mut std::iter::from_fn(alone) };
                for item in all {
                    self.plan.run(&call, item, self.scratch[thread].at(), self.shared.at());
                }
                done.fetch_add(1, Ordering::AcqRel);
                while done.load(Ordering::Acquire) < threads {
                    std::thread::yield_now();
                }
                for merge in (thread..self.plan.merges()).step_by(threads) {
                    self.plan.merge(&call, merge, self.shared.at());
                }
            }
        })
    }
}

fn decode(model: &Model, ty: CacheType, depth: usize, isa: Isa) {
    let mut line = format!("{isa:?} {:20} {:6} decode at {depth:6}:", model.name, format!("{ty:?}"));
    let shape = shape(model, ty, 1, depth);
    let bytes = depth * model.kv_heads * (ty.row_bytes(model.key_length) + ty.row_bytes(model.value_length));
    for threads in [1, 2] {
        let cold = std::env::args().all(|arg| arg != "warm");
        let layers = if cold { (COLD / bytes).max(1) } else { 1 };
        let bench = Bench::new(shape, layers, threads, isa);
        let [wall, busy] = best(|layer| bench.run(layer)).map(|time| bytes as f64 / time / 1e9);
        line += &format!("  {threads}: {wall:5.1} GB/s ({busy:5.1}), {:.3} ms", bytes as f64 / busy / 1e6);
    }
    println!("{line}");
}

fn prefill(model: &Model, ty: CacheType, isa: Isa) {
    let mut line = format!("{isa:?} {:20} {:6} 512 after 4096: ", model.name, format!("{ty:?}"));
    let shape = shape(model, ty, 512, 4608);
    let seen: usize = (0..512).map(|token| 4097 + token).sum();
    let operations = 2 * seen * model.heads * (model.key_length + model.value_length);
    for threads in [1, 2] {
        let bench = Bench::new(shape, 1, threads, isa);
        let mut times = [f64::INFINITY; 2];
        for _ in 0..16 {
            let [a, b] = bench.run(0);
            times = [times[0].min(a), times[1].min(b)];
        }
        let [wall, busy] = times.map(|time| operations as f64 / time / 1e9);
        line += &format!("  {threads}: {wall:5.0} GFLOP/s ({busy:5.0})");
    }
    println!("{line}");
}
