//! Cargo, started by this program.

use std::process::Command;

/// Returns a command for cargo without what the one that runs this program has told it about its package. Build
/// scripts that look at that (ring's) would run again, and all that depends on them be built again, each time.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"];
        if name.to_str().is_some_and(|name| told.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}
