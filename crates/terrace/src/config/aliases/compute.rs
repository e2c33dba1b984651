//! Threads and processors.

use super::{Alias, OptionUnless, alias, always, ignored, ignored_value};

const CORES: &str = "start terrace with taskset to choose cores";
const PRIORITY: &str = "start terrace with nice to change its priority";
const WAITING: &str = "threads wait as ggml's do by default";

pub const ALIASES: &[Alias] = &[
    alias(&["-t", "--threads"], OptionUnless("threads", &["-1", "0"])),
    alias(&["-tb", "--threads-batch"], OptionUnless("threads-batch", &["-1", "0"])),
    ignored_value(&["-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict"], CORES),
    ignored_value(&["-Cb", "--cpu-mask-batch", "-Crb", "--cpu-range-batch", "--cpu-strict-batch"], CORES),
    ignored_value(&["--prio", "--prio-batch"], PRIORITY),
    ignored_value(&["--poll", "--poll-batch"], WAITING),
    ignored(&["-bs", "--backend-sampling"], "tokens are sampled on the CPU"),
    always(&["--no-warmup"]),
    ignored(&["--warmup"], "--warmup-prompt TEXT evaluates a text first"),
];
