//! Typical rates of machines, for what was not measured. They are rough: `terrace machine`
//! measures.

/// Seconds per layer on the CPU: about 15 nodes with a barrier of 1 to 2 µs each.
pub const CPU_LAYER_OVERHEAD: f64 = 30e-6;
/// Seconds per layer on a device: about 15 kernels that take 4 to 5 µs each to start.
pub const DEVICE_LAYER_OVERHEAD: f64 = 70e-6;
/// Seconds of a transfer between processors: a copy of a few kilobytes and the wait for it.
pub const LINK_LATENCY: f64 = 25e-6;
/// Bytes per second of PCIe 4.0 with 16 lanes, as copies of pinned memory reach it.
pub const LINK_BANDWIDTH: f64 = 24e9;
/// Bytes per second of the memory of a mid-range card (GDDR6, 192 bits).
pub const DEVICE_BANDWIDTH: f64 = 360e9;
/// Share of its bandwidth that a matrix-vector product on a device reaches.
pub const DEVICE_EFFICIENCY: f64 = 0.75;
/// Operations per byte of bandwidth of a device, in prefill of quantised weights: 20 to 40 TFLOP/s
/// at 360 GB/s.
pub const DEVICE_FLOPS_PER_BANDWIDTH: f64 = 70.0;
/// Share of the memory bandwidth that a matrix-vector product reaches: 14.6 of 16.8 GB/s, measured
/// on two cores.
pub const CPU_EFFICIENCY: f64 = 0.87;
/// Bytes per second of a current NVMe drive on PCIe 3.0, or of a slow one on 4.0.
pub const SEQUENTIAL: f64 = 3e9;
/// Bytes of a request at which a drive, with enough requests in flight, reaches half of its rate.
/// Measured: 0.14 of the rate at 4 KiB, 0.68 at 64 KiB, 0.96 at 256 KiB; `n / (n + this)` is 0.14,
/// 0.73, 0.91.
pub const HALF_RATE_REQUEST: f64 = 24.0 * 1024.0;

/// Operations per second and core of fused attention in prefill. Measured as the additional time
/// per token of a prompt of 1,959 tokens compared with one of 487: 77 GFLOP/s on two cores with
/// AVX-512.
pub const ATTENTION_FLOPS: f64 = 38e9;
/// The same for one token, whose keys no other token shares. Measured as the additional time of a token
/// after 1,256 tokens compared with one after 244, in f16: 31 GFLOP/s on two cores, 10 on one.
pub const TOKEN_ATTENTION_FLOPS: f64 = 15e9;
/// Speed-up by `--kernels fast` where it was not measured: of prompts' products with quantised weights, of a
/// prompt's attention, and of a single token's. About the least ratios of the roofline in
/// `docs/benchmarks/kernels.md` (AVX-512 VNNI): 1.5 for prompts with Q6_K, 3.5 for a token with keys in F32. That of a
/// prompt's attention is assumed.
pub const FAST_PREFILL: f64 = 1.5;
pub const FAST_ATTENTION: f64 = 1.5;
pub const FAST_TOKEN_ATTENTION: f64 = 3.0;
/// Seconds per operation and core that products of `--kernels fast` take longer in a prompt's graph than measured by
/// themselves, where weights are in the cache and activations are quantised for several matrices. Measured on two
/// cores with AMX, as the difference of products with matrices from the cache and from memory, and as what is left of the time of
/// prompts of 900 tokens, four shapes (0.6e-12 while results were not requested ahead).
pub const BESIDE_FAST_PRODUCTS: f64 = 0.2e-12;
/// Bytes of activations per second and core that the operations between products process: what is left
/// of the time of prompts of 244 and 510 tokens. 7e9 on one core, 5e9 on each of two.
pub const ACTIVATIONS: f64 = 5e9;
/// Tokens per expert at which products reach half of their rate with 512 tokens.
pub const HALF_RATE_ROWS: f64 = 12.0;

/// Share of their rate that products reach within a graph, where barriers, norms and sums come
/// between them. Measured with ggml's kernels: 27 tokens/s where the rates of products and attention
/// alone would give 31.
pub const GRAPH_EFFICIENCY: f64 = 0.87;
/// The same where rates were measured with the kernels of the run, `--kernels fast`, which read most of what the
/// memory gives: 0.8 to 1.2 with three shapes on two cores that others use, too.
pub const FAST_GRAPH_EFFICIENCY: f64 = 0.97;
/// Speed-up of a token's products in runs over ggml's, by which rates are measured, if the memory does not
/// limit them: with this process's own kernels, in long pieces of weights for each thread, which are requested for two caches
/// (decision 0130). Measured on two cores of one host, two shapes of Q4_K: 2.1 to 2.4; before those requests, on others, 1.5 to 1.7.
pub const OWN_KERNELS: f64 = 2.0;
/// The same with ggml's dot products. Measured on two cores of one host: 2.1 with Q4_0, 2.3 with MXFP4; before those requests, on others, 1.12 with
/// Q8_0, 1.33 with Q5_K, which had none of its own then, 1.36 with Q4_1. Hosts whose memory answers sooner gain less by requests.
pub const STRETCHES: f64 = 1.6;
/// Share of the drive's rate that it reaches during computation, where that was not measured: on two
/// cores 0.87 to 0.96.
pub const READS_BESIDE: f64 = 0.95;
/// Cores whose time requests take while the drive is busy, where that was not measured: on two cores,
/// a token took 0.1 to 0.14 of its reading longer, at other places than where it waited.
pub const CORES_BESIDE_READS: f64 = 0.25;

/// Share of the experts that are guessed a layer ahead. Measured: 68 % of a trained model's, 88 % of
/// random ones.
pub const GUESSED: f64 = 0.75;

pub fn memory_bandwidth(threads: u32) -> f64 {
    (8e9 * f64::from(threads)).min(40e9)
}

/// Returns bytes of weights per second: the rate of the memory, or of unpacking the type if that is
/// slower.
pub fn cpu_decode(ty: &str, cores: u32, bandwidth: f64) -> f64 {
    // Bytes per second and core that AVX2 kernels unpack and multiply.
    let per_core = match ty {
        "f32" | "bf16" | "f16" => 12e9,
        "q8_0" => 12e9,
        "q4_0" | "q4_1" | "q5_0" | "q5_1" | "q4_K" | "q5_K" | "q6_K" | "mxfp4" | "iq4_nl" | "iq4_xs" => 8e9,
        "q2_K" | "q3_K" => 5e9,
        // The other i-quants use look-up tables.
        _ => 2.5e9,
    };
    (per_core * f64::from(cores)).min(bandwidth * CPU_EFFICIENCY)
}

/// Returns operations per second in prefill. Measured on AVX-512 with VNNI: 145 GFLOP/s per core
/// with Q4_K; AVX2 reaches a third to a half of that.
pub fn cpu_prefill(cores: u32, simd: &[String]) -> f64 {
    let wide = simd.iter().any(|name| name.starts_with("avx512") || name.starts_with("amx"));
    f64::from(cores) * if wide { 120e9 } else { 50e9 }
}
