//! The command lines of t8/hypura. Its `estimate` is `plan`, in the rewriting of commands.

use super::{Alias, Ignored, Opt, OptionOr, Switch, Takes, alias};

pub const ALIASES: &[Alias] = &[
    alias(&["--max-tokens"], Opt("n")),
    alias(&["--context"], Opt("ctx")),
    // Without a value it is the file that was calibrated for the model.
    alias(&["--layer-skip"], OptionOr("layer-skip", "auto")),
    alias(
        &["--force"],
        Ignored(
            "baseline",
            Takes::Nothing,
            "the baseline may be larger than RAM: what does not fit is read from the file again",
        ),
    ),
    alias(&["--force"], Switch("refresh", None)),
    alias(&["--read-gb"], Ignored("seconds", Takes::Value, "--seconds says how long is measured")),
];
