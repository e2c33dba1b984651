//! The model, its adapters and its projector.

use super::{Alias, HubModel, Means, Opt, Ours, Parsed, Takes, alias, ignored, ignored_value, no};
use crate::config::refusal::Refusal;
use std::ffi::OsString;
use terrace_engine::options::{adapters_in, scaled};

pub const ALIASES: &[Alias] = &[
    alias(&["-m", "--model"], Means::Model),
    alias(&["-hf", "-hfr", "--hf-repo"], Means::Hub),
    alias(&["-hff", "--hf-file"], Means::HubFile),
    alias(&["--gpt-oss-20b-default"], HubModel("ggml-org/gpt-oss-20b-GGUF:gpt-oss-20b-mxfp4.gguf")),
    alias(&["--gpt-oss-120b-default"], HubModel("ggml-org/gpt-oss-120b-GGUF")),
    alias(&["--vision-gemma-4b-default"], HubModel("ggml-org/gemma-3-4b-it-qat-GGUF")),
    alias(&["--vision-gemma-12b-default"], HubModel("ggml-org/gemma-3-12b-it-qat-GGUF")),
    alias(
        &["--embd-gemma-default"],
        HubModel("ggml-org/embeddinggemma-300M-qat-q4_0-GGUF:embeddinggemma-300M-qat-Q4_0.gguf"),
    ),
    alias(
        &["--fim-qwen-1.5b-default"],
        HubModel("ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF:qwen2.5-coder-1.5b-q8_0.gguf"),
    ),
    alias(
        &["--fim-qwen-3b-default"],
        HubModel("ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF:qwen2.5-coder-3b-q8_0.gguf"),
    ),
    alias(
        &["--fim-qwen-7b-default", "--fim-qwen-7b-spec"],
        HubModel("ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF:qwen2.5-coder-7b-q8_0.gguf"),
    ),
    alias(
        &["--fim-qwen-14b-spec"],
        HubModel("ggml-org/Qwen2.5-Coder-14B-Q8_0-GGUF:qwen2.5-coder-14b-q8_0.gguf"),
    ),
    alias(
        &["--fim-qwen-30b-default"],
        HubModel("ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF:qwen3-coder-30b-a3b-instruct-q8_0.gguf"),
    ),
    no(&["-hft", "--hf-token"], "other users can see a token on the command line", "set HF_TOKEN"),
    no(
        &["-mu", "--model-url"],
        "models are loaded from files or from a Hugging Face hub only",
        "download the model, or use hf:owner/repo:FILE",
    ),
    no(
        &["-dr", "--docker-repo"],
        "models are loaded from files or from a Hugging Face hub only",
        "use hf:owner/repo; most models of Docker's hub are there, too",
    ),
    no(
        &["--override-kv"],
        "Terrace plans from the file's header, and llama.cpp would use other values",
        "write the value to a copy of the file (gguf-py's gguf_set_metadata.py, gguf_new_metadata.py)",
    ),
    ignored(&["--offline"], "downloaded models are used without the hub"),
    ignored(&["--check-tensors"], "`terrace inspect --check FILE` checks a file, --verify all that is read"),
    alias(&["--lora-scaled"], Parsed("lora", Takes::Value, lora_scaled)),
    no(
        &["--control-vector", "--control-vector-scaled", "--control-vector-layer-range"],
        "control vectors are not supported",
        "leave it out",
    ),
    no(
        &["--lora", "--lora-scaled"],
        "this command does not support adapters, and without them the results would differ",
        "merge them with llama.cpp's llama-export-lora",
    ),
    alias(&["-mm"], Opt("mmproj")),
    alias(&["--no-mmproj", "--no-mmproj-auto", "--no-mmproj-offload"], Means::Always("mmproj")),
    ignored(&["--mmproj-auto"], "a projector is used with --mmproj FILE only"),
    no(
        &["-mmu", "--mmproj-url"],
        "projectors are loaded from files only",
        "download the file, and give it with --mmproj",
    ),
    ignored(&["--mmproj-offload"], "the CPU computes projectors"),
    ignored_value(&["-mmdev", "--mmproj-device"], "the CPU computes projectors"),
    ignored_value(&["--mtmd-batch-max-tokens"], "images are evaluated in batches of --batch tokens"),
    no(&["--audio", "--video"], "only images are read, no sounds and no videos", "leave it out"),
    ignored_value(
        &["--video-fps", "--video-timestamp-interval", "--video-ffmpeg-dir"],
        "only images are read, no videos",
    ),
    no(
        &[
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
        ],
        "positions are always encoded as the model's file specifies",
        "write the value to a copy of the file (gguf-py's gguf_new_metadata.py)",
    ),
    no(
        &["-gan", "--grp-attn-n", "-gaw", "--grp-attn-w"],
        "positions are always encoded as the model's file specifies",
        "use a model that was trained for long contexts",
    ),
];

/// `--lora-scaled FILE:SCALE,...`: both parts are needed.
fn lora_scaled(value: &str) -> Result<Ours, Refusal> {
    let has_scale = |item: &OsString| scaled(item).is_some_and(|(path, _)| !path.as_os_str().is_empty());
    if adapters_in(value.as_ref()).iter().all(has_scale) {
        return Ok(Ours::word(format!("--lora={value}")));
    }
    Err(Refusal {
        why: "must be FILE:SCALE, or several separated by commas",
        hint: "use --lora FILE to add all of it",
    })
}
