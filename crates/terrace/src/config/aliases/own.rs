//! Old names of Terrace's own options.

use super::{Alias, Renamed, alias};

pub const ALIASES: &[Alias] = &[
    alias(&["--manage"], Renamed(&["stream"])),
    alias(&["--profile"], Renamed(&["timeline", "machine"])),
    alias(&["--no-profile"], Renamed(&["no-timeline"])),
    alias(&["--hotswap"], Renamed(&["reload-loop"])),
];
