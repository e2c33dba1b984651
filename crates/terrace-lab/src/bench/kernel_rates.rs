//! `bench --kernel-rates`: how fast Terrace's kernels for prompts and attention are here, beside ggml's.

use serde::Serialize;
use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::term::{print, signals};
use terrace_ggml::cpu;
use terrace_ggml::devices::rates::{Attention, Processor, Product};
use terrace_ggml::quantize::WeightType;
use terrace_host::machine::{MeasureError, read_bandwidth};
use terrace_kernels::attention::Shape;
use terrace_kernels::rates::{Matrices, attention, attention_peak, product_peak, products};
use terrace_kernels::{CacheType, Isa, WeightType as KernelType};
use terrace_model::ByteSize;

/// Bytes of weights, which products of a single token go through: several times the caches.
const WEIGHTS: ByteSize = ByteSize::mib(192);
/// Bytes of weights that one measurement of other products goes through.
const SPAN: ByteSize = ByteSize::mib(8);
/// The shape of an expert of a model with a few billion active parameters.
const LENGTH: usize = 2048;
const ROWS: usize = 768;
/// Tokens that an expert, or a whole matrix, multiplies: a single one, a few slots or drafts, and those of a prompt.
const TOKENS: [usize; 6] = [1, 4, 8, 32, 128, 512];
const DEPTHS: [usize; 3] = [1_024, 4_096, 12_288];
/// Query heads, heads of keys and values, and their length, as in Qwen3-30B-A3B.
const HEADS: [usize; 3] = [32, 4, 128];
/// Duration of measuring each side of a pair.
const TIME: Duration = Duration::from_millis(120);

/// The types of weights, keys and values to measure.
#[derive(Clone, Debug)]
pub struct KernelTypes {
    weights: Vec<KernelType>,
    caches: Vec<(CacheType, &'static str)>,
}

/// Types of keys and values, by ggml's names.
const CACHES: [(CacheType, &str); 9] = [
    (CacheType::F32, "f32"),
    (CacheType::F16, "f16"),
    (CacheType::Bf16, "bf16"),
    (CacheType::Q8_0, "q8_0"),
    (CacheType::Q5_1, "q5_1"),
    (CacheType::Q5_0, "q5_0"),
    (CacheType::Q4_1, "q4_1"),
    (CacheType::Q4_0, "q4_0"),
    (CacheType::Iq4Nl, "iq4_nl"),
];

impl FromStr for KernelTypes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let wanted = |known: &str| text == "all" || names.iter().any(|name| name.eq_ignore_ascii_case(known));
        let known = |name: &&&str| {
            let weights = KernelType::ALL.into_iter().map(KernelType::name);
            weights.chain(CACHES.map(|(_, name)| name)).any(|known| name.eq_ignore_ascii_case(known))
        };
        if let Some(name) = names.iter().find(|name| text != "all" && !known(name)) {
            return Err(format!("there is no kernel for type '{name}'"));
        }
        let weights = KernelType::ALL.into_iter().filter(|ty| wanted(ty.name()));
        let caches = CACHES.into_iter().filter(|(_, name)| wanted(name));
        Ok(Self { weights: weights.collect(), caches: caches.collect() })
    }
}

/// Everything that was measured. Rates are of the fastest pass: other load only makes passes slower.
#[derive(Debug, Serialize)]
struct Rates {
    threads: usize,
    instructions: String,
    memory_gbps: f64,
    products: Vec<ProductRates>,
    attention: Vec<AttentionRates>,
}

/// Products with matrices of a type.
#[derive(Debug, Serialize)]
struct ProductRates {
    r#type: &'static str,
    tokens: usize,
    gflops: f64,
    ggml_gflops: f64,
    /// Weights that are read each second.
    gbps: f64,
    /// The same as a share of what memory gives.
    memory_share: f64,
    /// Rate of the cores' instructions for products of this type, without memory.
    peak_gflops: f64,
    /// Share of that or of the memory's limit, whichever is the lower one.
    roof_share: f64,
    /// Weights that are read each second if their rows are interleaved, for few tokens.
    interleaved_gbps: Option<f64>,
}

/// Attention of one token.
#[derive(Debug, Serialize)]
struct AttentionRates {
    r#type: &'static str,
    positions: usize,
    gbps: f64,
    ggml_gbps: f64,
    memory_share: f64,
    gflops: f64,
    /// As for products.
    peak_gflops: f64,
    roof_share: f64,
}

/// Measures, and prints the rates.
///
/// # Errors
/// There is no memory for weights, or Ctrl-C was pressed.
pub fn kernel_rates(types: &KernelTypes, threads: Option<u32>, json: bool) -> Result<(), CliError> {
    let threads = threads.map_or_else(cpu::default_threads, |threads| threads as usize);
    let rates = signals::busy(|| measure(types, threads))?;
    if signals::interrupted() {
        return Err(CliError::Interrupted);
    }
    if json {
        return print(&serde_json::to_string_pretty(&rates).expect("rates are plain data"));
    }
    print(&text(&rates))
}

fn measure(types: &KernelTypes, threads: usize) -> Result<Rates, CliError> {
    let mut processor = Processor::cpu(threads, WEIGHTS).map_err(MeasureError::from)?;
    processor.let_threads_sleep();
    let memory = processor.host_weights().unwrap_or_default();
    let memory_gbps = read_bandwidth(memory, threads, 6 * TIME) / 1e9;
    let mut rates = Rates {
        threads,
        instructions: format!("{:?}", Isa::best()),
        memory_gbps,
        products: Vec::new(),
        attention: Vec::new(),
    };
    for &ty in &types.weights {
        let ggml_type = WeightType::from_name(ty.name()).expect("a type of ggml's");
        let peak_gflops = product_peak(ty, Isa::best(), threads, TIME) / 1e9;
        for tokens in TOKENS {
            if signals::interrupted() {
                return Ok(rates);
            }
            let matrices = Matrices { ty, length: LENGTH, rows: ROWS, tokens, interleaved: false };
            let product = Product {
                ty: ggml_type,
                rows: ROWS as u64,
                cols: LENGTH as u64,
                tokens: u32::try_from(tokens).expect("a small constant"),
                experts: None,
            };
            let span = if tokens < 8 { WEIGHTS } else { SPAN };
            let Some(theirs) = processor.product(&product, span, TIME).map_err(MeasureError::from)? else {
                continue;
            };
            let weights = processor.host_weights().unwrap_or_default();
            let weights =
                &weights[..weights.len().min(usize::try_from(span.bytes()).expect("a small constant"))];
            let Some((seconds, count)) = products(&matrices, weights, threads, TIME) else { continue };
            let interleaved = Matrices { interleaved: true, ..matrices };
            let few = (tokens < 8).then(|| products(&interleaved, weights, threads, TIME)).flatten();
            let flops = 2.0 * (LENGTH * ROWS * tokens * count) as f64;
            let gbps = (matrices.bytes() * count) as f64 / seconds / 1e9;
            let (gflops, memory_share) = (flops / seconds / 1e9, gbps / memory_gbps);
            rates.products.push(ProductRates {
                r#type: ggml_type.name(),
                tokens,
                gflops,
                ggml_gflops: theirs.flops_per_s() / 1e9,
                gbps,
                memory_share,
                peak_gflops,
                roof_share: memory_share.max(gflops / peak_gflops),
                interleaved_gbps: few
                    .map(|(seconds, count)| (matrices.bytes() * count) as f64 / seconds / 1e9),
            });
        }
    }
    let [heads, kv_heads, length] = HEADS;
    for &(ty, name) in &types.caches {
        let peak_gflops = attention_peak(ty, threads, TIME) / 1e9;
        for positions in DEPTHS {
            if signals::interrupted() {
                return Ok(rates);
            }
            let of_ggml = Attention {
                ty: WeightType::from_name(name).expect("a type of ggml's"),
                heads: heads as u64,
                kv_heads: kv_heads as u64,
                length: length as u64,
                positions: positions as u64,
            };
            let shape = Shape::of_one(1, heads, kv_heads, positions, length, ty);
            let Some(theirs) = processor.attention(&of_ggml, TIME).map_err(MeasureError::from)? else {
                continue;
            };
            let memory = processor.host_weights().unwrap_or_default();
            let Some(attended) = attention(shape, memory, threads, TIME) else { continue };
            let (gbps, gflops) = (attended.bytes_per_s / 1e9, attended.flops_per_s / 1e9);
            let memory_share = gbps / memory_gbps;
            rates.attention.push(AttentionRates {
                r#type: name,
                positions,
                gbps,
                ggml_gbps: theirs.bytes_per_s() / 1e9,
                memory_share,
                gflops,
                peak_gflops,
                roof_share: memory_share.max(gflops / peak_gflops),
            });
        }
    }
    Ok(rates)
}

fn text(rates: &Rates) -> String {
    let mut text = format!(
        "{} threads, {}; memory gives {:.1} GB/s\n\nproducts      tokens    GFLOP/s   ggml's   ratio    GB/s   of memory   of cores  interleaved\n",
        rates.threads, rates.instructions, rates.memory_gbps
    );
    for product in &rates.products {
        let ProductRates { r#type, tokens, gflops, ggml_gflops, gbps, memory_share, peak_gflops, .. } =
            product;
        let (ratio, share) = (gflops / ggml_gflops, memory_share * 100.0);
        let of_cores = gflops / peak_gflops * 100.0;
        let few = product.interleaved_gbps.map_or_else(String::new, |gbps| format!("{gbps:13.1}"));
        let _ = writeln!(
            text,
            "{type:12} {tokens:7} {gflops:10.0} {ggml_gflops:8.0} {ratio:7.2} {gbps:7.1} {share:9.0} % {of_cores:8.0} %{few}"
        );
    }
    text += "\nattention  positions       GB/s   ggml's   ratio   of memory   of cores\n";
    for AttentionRates { r#type, positions, gbps, ggml_gbps, memory_share, gflops, peak_gflops, .. } in
        &rates.attention
    {
        let (ratio, share) = (gbps / ggml_gbps, memory_share * 100.0);
        let of_cores = gflops / peak_gflops * 100.0;
        let _ = writeln!(
            text,
            "{type:9} {positions:10} {gbps:10.1} {ggml_gbps:8.1} {ratio:7.2} {share:9.0} % {of_cores:8.0} %"
        );
    }
    text.trim_end().to_owned()
}
