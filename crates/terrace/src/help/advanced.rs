//! Options that `--help` leaves out and `--help-all` shows: plans, presets or measurements choose their values, or
//! they are for rare ways of sampling and of serving.

use super::GROUPS;
use clap::Arg;

/// Their names, by heading.
const OPTIONS: &[(&str, &[&str])] = &[
    ("Generate", &["draft-max"]),
    (
        "Sampling",
        &[
            "typical",
            "top-nsigma",
            "xtc-probability",
            "xtc-threshold",
            "dynatemp-range",
            "dynatemp-exp",
            "repeat-last-n",
            "dry-multiplier",
            "dry-base",
            "dry-allowed-length",
            "dry-penalty-last-n",
            "dry-sequence-breaker",
            "adaptive-target",
            "adaptive-decay",
            "mirostat",
            "mirostat-lr",
            "mirostat-ent",
            "logit-bias",
            "samplers",
        ],
    ),
    ("Model", &["image-min-tokens", "image-max-tokens", "lora-init-without-apply"]),
    ("Memory", &["prompt-cache-ro", "cache-type-k", "cache-type-v", "kv-offload", "batch"]),
    ("Devices", &["vram-reserve", "op-offload", "rpc-timeout", "rpc-probe", "threads-batch", "layer-skip"]),
    (
        "Advanced",
        &[
            "hot-update",
            "hot-split",
            "hot-weighting",
            "hot-layer-curve",
            "hot-lanes",
            "hits",
            "replica",
            "on-reload",
            "expect-prompt",
            "expect-output",
            "expect-right",
            "adapt",
            "io",
            "direct",
            "queue-depth",
            "request-size",
            "slots-share",
            "cache-policy",
            "lookahead",
            "warm-start",
            "learn-mode",
            "auto-learn",
            "warmup-prompt",
            "repack",
            "preset",
            "queue",
            "prefill-latency",
            "grace",
            "max-connections",
            "idle-timeout",
            "body-timeout",
            "write-timeout",
            "body-memory",
        ],
    ),
];

/// Returns true if only `--help-all` shows the option.
pub fn is_advanced(arg: &Arg) -> bool {
    let heading = arg.get_help_heading().filter(|heading| GROUPS.contains(heading));
    let options = heading.and_then(|heading| OPTIONS.iter().find(|(title, _)| *title == heading));
    let name = arg.get_id().as_str().replace('_', "-");
    options.is_some_and(|(_, names)| names.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_name_is_one_of_run_or_serve() {
        let cli = Cli::command();
        let of = |command: &str| cli.find_subcommand(command).unwrap().get_arguments();
        for (heading, names) in OPTIONS {
            for name in *names {
                let has = |arg: &Arg| {
                    arg.get_id().as_str().replace('_', "-") == *name
                        && arg.get_help_heading() == Some(heading)
                };
                assert!(of("run").chain(of("serve")).any(has), "{heading}: {name}");
            }
        }
    }
}
