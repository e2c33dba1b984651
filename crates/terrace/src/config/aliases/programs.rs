//! Features of llama.cpp's programs that no command of Terrace has, or that another one has.

use super::{Alias, Opt, Refusal, Refused, alias, ignored_value, no};

const IMATRIX: &str = "importance matrices are not computed";
const IMATRIX_HINT: &str = "use llama.cpp's llama-imatrix; `terrace quantize --imatrix FILE` reads its file";
const BATCHES: &str = "one response is measured at a time";

pub const ALIASES: &[Alias] = &[
    // llama-cli.
    no(&["-cl", "--cache-list"], "it prints a list and exits", "`terrace list` lists downloaded models"),
    no(
        &["--server-base"],
        "the model runs in this process, not on a server",
        "--rpc HOST:PORT uses the devices of another machine",
    ),
    // llama-perplexity.
    alias(
        &["-p", "--prompt"],
        Refused("save-logits", Refusal { why: "the text is read from a file", hint: "use -f FILE" }),
    ),
    no(
        &["--winogrande", "--winogrande-tasks", "--multiple-choice", "--multiple-choice-tasks"],
        "this task is not measured",
        "use --hellaswag, or lm-evaluation-harness with `terrace serve`",
    ),
    no(&["--ppl-stride"], "chunks do not overlap", "leave it out"),
    ignored_value(&["--ppl-output-type"], "--json prints all numbers"),
    // llama-batched-bench.
    alias(&["-f", "--file", "-bf", "--binary-file"], Opt("prompt-file")),
    alias(&["-ntg"], Opt("n")),
    no(&["-npl", "-npp", "-pps", "-tgs"], BATCHES, "use `terrace bench --prompt-file FILE -n N`"),
    // llama-imatrix.
    no(&["-ofreq", "--output-frequency", "--save-frequency"], IMATRIX, IMATRIX_HINT),
    no(&["--process-output", "--nextn", "--ppl", "--no-ppl", "--show-statistics"], IMATRIX, IMATRIX_HINT),
    no(&["--chunk", "--from-chunk", "--in-file", "--parse-special"], IMATRIX, IMATRIX_HINT),
    no(&["--output-format"], "--json prints one JSON object", "use --json"),
    no(&["-o", "--output", "--output-file"], "the text goes to stdout", "redirect stdout: > FILE"),
];
