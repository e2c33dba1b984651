//! llama-quantize's options for `terrace quantize`; the others are its own.

use super::{Alias, Ignored, Opt, Refusal, Refused, Takes, alias};

/// An option that only `quantize` has.
const QUANTIZE: &str = "split-tensors";

pub const ALIASES: &[Alias] = &[
    alias(&["--tensor-type"], Opt("custom-q")),
    alias(&["--tensor-type-file"], Opt("recipe")),
    alias(
        &["--keep-split"],
        Ignored(QUANTIZE, Takes::Nothing, "one file is written, or with --split-tensors one per tensor"),
    ),
    alias(
        &["--max-buffer-size"],
        Ignored(QUANTIZE, Takes::Value, "a few million weights are converted at a time"),
    ),
    alias(
        &["--prune-layers"],
        Refused(
            QUANTIZE,
            Refusal {
                why: "a model without these layers is another one, which is not written",
                hint: "use llama.cpp's llama-quantize; --layer-skip skips layers of a whole model",
            },
        ),
    ),
];
