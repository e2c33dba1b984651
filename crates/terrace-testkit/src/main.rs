//! Makes synthetic model files from the shell.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::llama::{LoadParams, Model};
use terrace_ggml::testing::routing::{Choices, trace_routing};
use terrace_model::{ByteSize, MetaValue};
use terrace_testkit::big::{self, Data, Preset};
use terrace_testkit::released::Released;
use terrace_testkit::{
    Arch, Edit, Mix, MtpReads, Routing, RoutingStats, Spec, WeightType, hostile, rpc, write, write_edited,
    write_split,
};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a tiny model of an architecture.
    Small {
        /// Architecture (`terrace-testkit list`).
        #[arg(long)]
        arch: Arch,
        #[command(flatten)]
        shape: Shape,
        /// File to write; with --shards, a directory.
        #[arg(long)]
        out: PathBuf,
        /// Write this many shards.
        #[arg(long)]
        shards: Option<u16>,
    },
    /// Write a model in the shape of a well-known one, at the disk's speed.
    Big {
        /// Shape (`terrace-testkit list`).
        #[arg(long)]
        preset: Preset,
        /// Types of a published mix; the types below override it.
        #[arg(long)]
        mix: Option<Mix>,
        #[command(flatten)]
        shape: Shape,
        /// File to write; with --shards, the prefix of the names, before -00001-of-.
        #[arg(long)]
        out: PathBuf,
        /// Write this many shards.
        #[arg(long)]
        shards: Option<u16>,
        /// Write only the header, followed by a hole.
        #[arg(long)]
        no_data: bool,
    },
    /// Write a tiny model of any architecture of the pinned llama.cpp.
    Released {
        /// Architecture, by llama.cpp's name.
        #[arg(long)]
        arch: String,
        /// Give it experts, if the architecture has such.
        #[arg(long)]
        moe: bool,
        /// Add layers that predict the tokens after the next one, if the architecture has such.
        #[arg(long, default_value_t = 0)]
        mtp: u32,
        /// File to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Write a model with other metadata.
    Edited {
        /// The model.
        #[arg(long)]
        from: PathBuf,
        /// A number in the metadata. Can be given more than once.
        #[arg(long = "set", value_parser = number_of_key, value_name = "KEY=NUMBER")]
        numbers: Vec<(String, u32)>,
        /// File to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Make broken files from a good one.
    Hostile {
        /// The good file.
        #[arg(long)]
        from: PathBuf,
        /// Directory for the broken ones.
        #[arg(long)]
        out: PathBuf,
    },
    /// Run a model with stock llama.cpp and measure how skewed and local its routing is.
    Routing {
        /// The model.
        model: PathBuf,
        /// The prompt.
        #[arg(long, default_value = "The terraces of the hill hold what the valley needs.")]
        prompt: String,
        /// Tokens to generate.
        #[arg(long, default_value_t = 256)]
        generate: u32,
        /// Threads. ggml's threads spin while they wait, so more of them than idle cores slow it
        /// down.
        #[arg(long, default_value_t = 1)]
        threads: u16,
    },
    /// Serve this machine's CPU to one ggml client after another, until killed.
    RpcServer {
        /// Port on this machine (127.0.0.1); 0 for a free one. The address is printed first.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Memory of the device, such as 512MiB [default: the machine's].
        #[arg(long)]
        memory: Option<ByteSize>,
        /// Compute threads.
        #[arg(long, default_value_t = 1)]
        threads: u16,
    },
    /// List the names of architectures, presets, mixes and types.
    List,
}

/// Differences from the default shape of the architecture or preset.
#[derive(Args)]
struct Shape {
    /// Layers.
    #[arg(long)]
    layers: Option<u32>,
    /// Width of the model.
    #[arg(long)]
    embd: Option<u32>,
    /// Tokens in the vocabulary.
    #[arg(long)]
    vocab: Option<u32>,
    /// Experts per layer.
    #[arg(long)]
    experts: Option<u32>,
    /// Experts that a token uses.
    #[arg(long)]
    top_k: Option<u32>,
    /// Inner width of an expert.
    #[arg(long)]
    expert_ff: Option<u32>,
    /// Rows of its table that each of the 16 hashes of an n-gram chooses from, if it has such a table.
    #[arg(long)]
    hashed_rows: Option<u32>,
    /// Type of expert gate and up.
    #[arg(long, value_parser = weight_type)]
    expert_type: Option<WeightType>,
    /// Type of expert down.
    #[arg(long, value_parser = weight_type)]
    expert_down_type: Option<WeightType>,
    /// Type of all other matrices.
    #[arg(long, value_parser = weight_type)]
    other_type: Option<WeightType>,
    /// Type of the tensors whose name contains a text. Can be given more than once; the first match
    /// decides.
    #[arg(long = "type", value_parser = override_type, value_name = "TEXT=TYPE")]
    types: Vec<(String, WeightType)>,
    /// Seed of the weights.
    #[arg(long)]
    seed: Option<u64>,
    /// Distribution of tokens over experts by the router.
    #[arg(long, value_enum, default_value = "uniform")]
    routing: RoutingArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoutingArg {
    /// All experts are used equally often, and tokens are independent.
    Uniform,
    /// A few experts take much of the load, and tokens share experts with the ones before.
    Skewed,
}

impl Shape {
    fn apply(self, spec: Spec) -> Spec {
        Spec {
            layers: self.layers.unwrap_or(spec.layers),
            embd: self.embd.unwrap_or(spec.embd),
            vocab: self.vocab.unwrap_or(spec.vocab),
            experts: self.experts.unwrap_or(spec.experts),
            top_k: self.top_k.unwrap_or(spec.top_k),
            expert_ff: self.expert_ff.unwrap_or(spec.expert_ff),
            table_rows: self.hashed_rows.map_or(spec.table_rows, |rows| rows.saturating_mul(Spec::HASHES)),
            hashed_rows: self.hashed_rows.unwrap_or(spec.hashed_rows),
            expert_type: self.expert_type.unwrap_or(spec.expert_type),
            expert_down_type: self.expert_down_type.or(spec.expert_down_type),
            other_type: self.other_type.unwrap_or(spec.other_type),
            overrides: self.types.into_iter().chain(spec.overrides).collect(),
            seed: self.seed.unwrap_or(spec.seed),
            routing: match self.routing {
                RoutingArg::Uniform => Routing::Uniform,
                RoutingArg::Skewed => Routing::Skewed,
            },
            ..spec
        }
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    let names = || WeightType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
    WeightType::from_name(text).ok_or_else(|| format!("`{text}` is not one of {}", names()))
}

fn override_type(text: &str) -> Result<(String, WeightType), String> {
    let (part, ty) = text.split_once('=').ok_or("write TEXT=TYPE, as in ffn_down_exps=q6_K")?;
    Ok((part.to_owned(), weight_type(ty)?))
}

fn number_of_key(text: &str) -> Result<(String, u32), String> {
    let (key, number) = text.split_once('=').ok_or("write KEY=NUMBER")?;
    Ok((key.to_owned(), number.parse().map_err(|error| format!("{number}: {error}"))?))
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "terrace-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    let paths = match command {
        Command::Small { arch, shape, out, shards } => {
            let spec = shape.apply(Spec::new(arch));
            match shards {
                None => vec![write(&spec, out)?],
                Some(shards) => write_split(&spec, out, shards)?,
            }
        }
        Command::Big { preset, mix, shape, out, shards, no_data } => {
            let spec = preset.spec();
            // Set before the mix, which depends on the number of layers.
            let spec = Spec { layers: shape.layers.unwrap_or(spec.layers), ..spec };
            let spec = shape.apply(mix.map_or(spec.clone(), |mix| mix.apply(spec)));
            let data = if no_data { Data::Sparse } else { Data::Pooled };
            match shards {
                None => vec![big::write(&spec, out, data)?],
                Some(shards) => big::write_split(&spec, out, shards, data)?,
            }
        }
        Command::Released { arch, moe, mtp, out } => {
            Released::with_mtp(&arch, moe, mtp, MtpReads::Token)?.write(&out, 1, None)?;
            vec![out]
        }
        Command::Edited { from, numbers, out } => {
            let edits: Vec<_> =
                numbers.iter().map(|(key, number)| (key.as_str(), Edit::Number(*number))).collect();
            write_edited(&from, &out, &edits)?;
            vec![out]
        }
        Command::Hostile { from, out } => {
            hostile::write_all(&from, &out)?.into_iter().map(|(_, p)| p).collect()
        }
        Command::Routing { model, prompt, generate, threads } => {
            return routing(&model, &prompt, generate, threads);
        }
        Command::RpcServer { port, memory, threads } => {
            let port = if port == 0 { rpc::free_port()? } else { port };
            writeln!(io::stdout(), "{}", rpc::endpoint(port))?;
            let memory = memory.unwrap_or_else(|| DeviceHandle::cpu().memory().1);
            return Err(rpc::serve(port, threads.into(), memory).into());
        }
        Command::List => {
            let types = WeightType::ALL.iter().map(|ty| ty.name());
            writeln!(
                io::stdout(),
                "architectures: {}",
                Arch::ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(" ")
            )?;
            writeln!(
                io::stdout(),
                "presets: {}",
                Preset::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(" ")
            )?;
            writeln!(
                io::stdout(),
                "mixes: {}",
                Mix::ALL.iter().map(|m| m.name()).collect::<Vec<_>>().join(" ")
            )?;
            writeln!(io::stdout(), "types: {}", types.collect::<Vec<_>>().join(" "))?;
            return Ok(());
        }
    };
    for path in paths {
        writeln!(io::stdout(), "{}", path.display())?;
    }
    Ok(())
}

fn routing(path: &Path, prompt: &str, generate: u32, threads: u16) -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::load(path, &LoadParams::default())?;
    let tokens = model.vocab().tokenize(prompt, true, false)?;
    let (choices, _) = trace_routing(&model, &tokens, generate, threads)?;
    let generated: Choices = choices
        .into_iter()
        .map(|(layer, of_tokens)| (layer, of_tokens.into_iter().skip(tokens.len()).collect()))
        .collect();
    let file = terrace_ggml::gguf::read(path)?;
    let key = format!("{}.expert_count", file.architecture());
    let experts = match file.metadata.get(&key) {
        Some(&MetaValue::U64(n)) => u32::try_from(n)?,
        _ => 0,
    };
    let Some(stats) = RoutingStats::of(&generated, experts) else {
        return Err("no experts were chosen, or for fewer than two generated tokens".into());
    };
    writeln!(io::stdout(), "generated tokens          {}", stats.tokens)?;
    writeln!(io::stdout(), "layers with experts       {}", generated.len())?;
    writeln!(io::stdout(), "load on the top tenth     {:.1} %", 100.0 * stats.top_tenth)?;
    writeln!(io::stdout(), "shared with token before  {:.1} %", 100.0 * stats.repeated)?;
    writeln!(io::stdout(), "hits, LRU of a quarter    {:.1} %", 100.0 * stats.lru_quarter)?;
    Ok(())
}
