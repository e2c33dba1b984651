//! Options of ik_llama.cpp, the only table of them. Those without effect on a measurement are left out of the command
//! line of `perplexity` before (`llama_perplexity`).

use super::{Alias, Ignored, Takes, alias, ignored, ignored_value, no};

/// The option that only `perplexity` has.
const PERPLEXITY: &str = "save-logits";

const GRAPHS: &str = "graphs are llama.cpp's, with its own latent attention";
const BLOCKS: &str = "blocks of experts always run as one node";
const SCHEDULED: &str = "llama.cpp sizes, schedules and reuses graphs by itself";
const CACHED: &str = "keys and values are cached as llama.cpp computes them";
const APART: &str = "weights stay apart as in the file";
pub(super) const DIVIDED: &str = "layers are divided as the plan says; --split-mode tensor slices them";
const MEASURED: &str = "measured times decide which prompts devices compute; --op-offload off: none";
const FITTED: &str = "the plan fits the model to devices; --vram-budget and --vram-reserve limit them";
const AHEAD: &str = "the store reads experts ahead, into large pages";

pub const ALIASES: &[Alias] = &[
    ignored_value(&["-mla", "--mla-use", "-amb", "--attention-max-batch"], GRAPHS),
    ignored_value(&["-fdn", "--fused-delta-net", "-gap", "--graph-attn-precision"], GRAPHS),
    ignored(&["-fug", "-no-fug", "--no-fused-up-gate", "-no-mmad", "--no-fused-mul-multiadd"], GRAPHS),
    ignored(&["-rcache", "--rope-cache"], GRAPHS),
    ignored(&["-fmoe", "--fused-moe", "-no-fmoe", "--no-fused-moe"], BLOCKS),
    ignored(&["-ger", "-no-ger", "--grouped-expert-routing"], BLOCKS),
    ignored(&["-rtr", "--run-time-repack"], "weights keep the layout of their file; --repack changes it"),
    // Benchmarks of the fork have it in all of their command lines.
    alias(
        &["-ser", "--smart-expert-reduction"],
        Ignored(PERPLEXITY, Takes::Value, "all experts are computed; --lossy experts=N computes fewer"),
    ),
    no(
        &["-ser", "--smart-expert-reduction"],
        "it uses fewer experts, which changes the text",
        "use --lossy experts=N",
    ),
    ignored_value(&["-wgt", "--worst-graph-tokens", "-mea", "--max-extra-alloc"], SCHEDULED),
    ignored(&["-gr", "--graph-reuse", "-no-gr", "--no-graph-reuse", "-sas", "--scheduler-async"], SCHEDULED),
    ignored_value(&["-cuda", "--cuda-params"], "the CUDA backend is configured by its environment variables"),
    ignored(&["-khad", "--k-cache-hadamard", "-vhad", "--v-cache-hadamard"], CACHED),
    ignored(&["-mqkv", "--merge-qkv", "-muge", "--merge-up-gate-experts"], APART),
    ignored(&["-smgs", "--split-mode-graph-scheduling"], DIVIDED),
    ignored(&["-smf16", "--split-mode-f16", "-smf32", "--split-mode-f32"], DIVIDED),
    ignored_value(&["-grt", "--graph-reduce-type"], DIVIDED),
    ignored_value(&["-op", "--offload-policy"], MEASURED),
    ignored(&["-no-ooae", "--no-offload-only-active-experts"], MEASURED),
    ignored_value(&["--fit-margin", "-gfm", "--gpu-fit-margin"], FITTED),
    ignored(&["-thp", "--transparent-huge-pages", "--defer-experts", "--prefetch-experts"], AHEAD),
    ignored_value(&["--prefetch-experts-threads"], AHEAD),
    ignored(&["-vq", "--validate-quants"], "--verify checks what is read"),
];
