//! Shared parts of the reload tests.

use crate::budgets::with_larger_types;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{
    ComputeOptions, ContextOptions, DeviceOptions, HotLanes, HotOptions, MemoryOptions,
};
use terrace_engine::{Engine, Options, Replacement, Source};
use terrace_ggml::llama::Sampling;
use terrace_lanes::HotUpdate;
use terrace_model::ByteSize;
use terrace_plan::{Budget, HotSize, HotSplit, Manage, PerDevice};
use terrace_testkit::rpc::{RpcServer, resident};
use terrace_testkit::{Spec, WeightType};

pub fn dir() -> tempfile::TempDir {
    // On the disk of the target directory: /tmp may be memory, which has no direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn options(model: &Path, manage: Manage) -> Options {
    let ram_budget = match manage {
        Manage::None | Manage::Mapped => Budget::Auto,
        _ => Budget::Bytes(with_larger_types(model, manage)),
    };
    Options {
        model: model.into(),
        memory: MemoryOptions {
            stream: manage,
            ram_budget,
            available_memory: Some(ByteSize::gib(8)),
            ..MemoryOptions::default()
        },
        context: ContextOptions { ctx: Some(256), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
        ..Options::default()
    }
}

/// Waits until a reload takes the file at its first try: not in the same moment as it was written.
pub fn settle(path: &Path) {
    use terrace_store::identity::{file_state, now};
    while !file_state(path).unwrap().is_settled(now()) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Starts RPC servers: the test binary's ignored test `rpc_server`.
pub fn servers(count: usize, memory: ByteSize) -> Vec<RpcServer> {
    (0..count).map(|_| RpcServer::start(memory).unwrap()).collect()
}

/// All experts streamed, with room for copies on the servers' devices. Several devices
/// each have some of every layer.
pub fn with_copies(model: &Path, servers: &[RpcServer]) -> Options {
    let plain = options(model, Manage::Experts);
    let copied = copies(plain, servers, ByteSize::mib(24), ByteSize::mib(16));
    let split = if servers.len() > 1 { HotSplit::Even } else { HotSplit::Layers };
    Options { hot: HotOptions { hot_split: split, ..copied.hot }, ..copied }
}

/// The options of a run with no layers on the servers' devices, but copies of `size` in all, of which
/// `update` is exchanged per token. Lanes are used whether or not they pay.
pub fn copies(plain: Options, servers: &[RpcServer], size: ByteSize, update: ByteSize) -> Options {
    Options {
        devices: DeviceOptions {
            rpc: servers.iter().map(|server| server.endpoint().to_owned()).collect(),
            n_gpu_layers: Some(0),
            ..plain.devices
        },
        hot: HotOptions {
            hot_cache: PerDevice::all(HotSize::Bytes(size)),
            hot_update: HotUpdate::Bytes(update),
            hot_lanes: HotLanes::Always,
            ..plain.hot
        },
        ..plain
    }
}

pub fn load(options: Options) -> Engine {
    terrace_testkit::needs_own_process();
    Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Bits of the logits after a prompt, greedy tokens, and bits of the logits after these.
#[derive(Debug, PartialEq, Clone)]
pub struct Trace {
    pub prompt: Vec<u32>,
    pub tokens: Vec<i32>,
    pub end: Vec<u32>,
}

pub fn trace(engine: &mut Engine) -> Trace {
    let mut session = engine.session();
    let tokens = engine.tokenize("The water goes down from one terrace to the next, ", true, false).unwrap();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let bits = |engine: &mut Engine| engine.logits().unwrap().iter().map(|l| l.to_bits()).collect();
    engine.generate(&mut session, &tokens, Some(0), &Sampling::greedy(), go_on).unwrap();
    let prompt = bits(engine);
    let generation =
        engine.generate(&mut session, &tokens[..1], Some(6), &Sampling::greedy(), go_on).unwrap();
    Trace { prompt, tokens: generation.tokens, end: bits(engine) }
}

pub fn from_file(tensor: &str, path: &Path) -> Replacement {
    Replacement { tensor: tensor.into(), from: Source::File(path.into()) }
}

pub fn original(tensor: &str) -> Replacement {
    Replacement { tensor: tensor.into(), from: Source::Original }
}

pub fn write(spec: &Spec, path: PathBuf) -> PathBuf {
    terrace_testkit::write(spec, path).unwrap()
}

/// The same weights with one tensor in another type.
pub fn with(spec: &Spec, tensor: &str, ty: WeightType) -> Spec {
    let mut other = spec.clone();
    other.overrides.insert(0, (tensor.into(), ty));
    other
}

/// Swaps there and back `rounds` times. After the first tenth, memory use here and free memory of
/// the servers' devices stay constant, and in the end the model computes what it did when it was
/// loaded.
pub fn stays_flat(engine: &mut Engine, servers: usize, there: &[Replacement], rounds: usize) {
    let golden = trace(engine);
    let back: Vec<Replacement> = there.iter().map(|swap| original(&swap.tensor)).collect();
    let mut memory = Vec::new();
    for round in 1..=rounds {
        engine.swap(there).unwrap();
        if round % 50 == 7 {
            assert!(trace(engine) != golden, "the swap had no effect");
        }
        engine.swap(&back).unwrap();
        if round == rounds / 10 || round == rounds {
            let ours = resident("self").unwrap();
            let remote = terrace_ggml::devices::devices().into_iter().filter(|device| device.is_remote());
            memory.push((ours, remote.map(|device| device.memory().0).collect::<Vec<_>>()));
        }
    }
    assert!(trace(engine) == golden);
    let [early, late] = &memory[..] else { unreachable!("two measurements") };
    eprintln!("after {} rounds {early:?}, after {rounds} {late:?}", rounds / 10);
    assert_eq!((early.1.len(), &early.1), (servers, &late.1), "free memory of the devices");
    assert!(late.0 < early.0 + ByteSize::mib(2), "{early:?}, {late:?}");
}

/// The most that this process had in RAM since the last call.
pub fn peak() -> ByteSize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    ByteSize::kib(line.trim().trim_end_matches(" kB").parse().unwrap())
}
