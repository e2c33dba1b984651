//! Commands that have been removed, and what to use instead.

use super::refusal::Refusal;

/// A command that has been removed: its words after the program's name.
pub struct Removed {
    pub words: &'static [&'static str],
    /// The refusal.
    pub refusal: Refusal,
}

/// All of them.
pub const REMOVED: &[Removed] = &[
    Removed {
        words: &["calibrate-skip"],
        refusal: Refusal {
            why: "this command has been removed: it is part of `calibrate`",
            hint: "use `terrace calibrate MODEL -f TEXT --skip-layers -o FILE`; --threshold X is --skip-layers=X",
        },
    },
    Removed {
        words: &["scaling"],
        refusal: Refusal {
            why: "this command has been removed: it is part of `plan`",
            hint: "use `terrace plan MODEL --workers 0,1,2,4,8,16,32,64`; the other options are the same",
        },
    },
    Removed {
        words: &["trace", "hot"],
        refusal: Refusal {
            why: "this command has been removed: learn files count the same uses",
            hint: "write one with --learn-to FILE, then use `terrace experts show FILE --list`",
        },
    },
];

/// Refusal of the command that these words name; `None` if it has not been removed.
pub fn removed(words: &[String]) -> Option<Refusal> {
    REMOVED.iter().find(|removed| removed.words == words).map(|removed| removed.refusal)
}
