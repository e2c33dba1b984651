//! Old names of Terrace's own options, and options that Terrace had.

use super::{Alias, Ignored, Ours, Parsed, Refused, Renamed, SERVE, Takes, alias};
use crate::config::refusal::Refusal;

pub const ALIASES: &[Alias] = &[
    alias(&["--manage"], Renamed(&["stream"])),
    alias(&["--profile"], Renamed(&["timeline", "machine"])),
    alias(&["--no-profile"], Renamed(&["no-timeline"])),
    alias(
        &["--lenient"],
        Ignored(SERVE, Takes::Nothing, "unknown fields of requests are ignored unless --strict is set"),
    ),
    alias(
        &["--hot-split"],
        Parsed("hot-split", Takes::Value, |value| match value {
            "on" => {
                Err(Refusal { why: "slices of copies have been removed", hint: "use `even` instead of `on`" })
            }
            value => Ok(Ours::word(format!("--hot-split={value}"))),
        }),
    ),
    alias(&["--hotswap"], Renamed(&["reload-loop"])),
    alias(
        &["--prompt"],
        Parsed("explain", Takes::Value, |value| Ok(Ours::word(format!("--expect-prompt={value}")))),
    ),
    alias(
        &["--hot-slots", "--hot-update"],
        Refused(
            "compute-ms",
            Refusal {
                why: "replays with copies on devices have been removed",
                hint: "use `terrace plan --learned FILE`, or compare runs with --hot-cache",
            },
        ),
    ),
];
