//! Chores of the repository.
//!
//! `cargo xtask docs` writes `docs/reference/cli.md` from the program's own definitions, and the header of the library
//! for C from its functions. Tests fail if these are stale.
//!
//! `cargo xtask deny` checks the dependencies against `deny.toml`, and `cargo xtask licences [TARGET]`
//! prints the licence texts that a distribution of the binary must carry; `cargo xtask sbom VERSION` lists what is in it.
//!
//! `cargo xtask pin [TREE]` compares what Terrace relies on in llama.cpp with a source tree, and `cargo xtask
//! arguments [TREE]` lists the options of its programs.
//!
//! `cargo xtask llama TREE COMMAND...` runs a command of cargo over other sources of llama.cpp.
//!
//! `cargo xtask chart` draws `docs/pictures/ram-by-model.svg` with the estimates of `target/release/terrace`.

#![allow(clippy::disallowed_methods, reason = "a tool of the repository reads the environment")]

mod cargo;
mod chart;
mod deny;
mod docs;
mod header;
mod licences;
mod llama;
mod metadata;
mod pin;
mod sbom;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask chart | docs | deny | licences [TARGET] | sbom VERSION | pin [TREE] | \
                     arguments [TREE] | llama TREE COMMAND...";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["chart"] => chart::write(&root),
        ["docs"] => docs::write(&root),
        ["deny"] => deny::check(&root),
        ["licences"] => licences::list(&root, metadata::LINUX),
        ["licences", target] => licences::list(&root, target),
        ["sbom", version] => sbom::list(&root, version),
        ["pin"] => pin::check(&root, None),
        ["pin", tree] => pin::check(&root, Some(tree)),
        ["arguments"] => pin::write_arguments(&root, None),
        ["arguments", tree] => pin::write_arguments(&root, Some(tree)),
        ["llama", tree, ref command @ ..] if !command.is_empty() => llama::run(&root, tree, command),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "error: {reason}");
            ExitCode::FAILURE
        }
    }
}
