//! `bin/terrace` of a distribution: starts the best of the binaries in `lib/terrace` for this
//! processor, in its own process. Built for any x86-64, and static, so that what it says about old
//! processors and systems can be read there.

#![allow(clippy::disallowed_methods, reason = "a program reads the environment")]

#[cfg(target_arch = "x86_64")]
mod variants;

use std::io::Write as _;

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    let Err(error) = start();
    report(&error);
    std::process::ExitCode::FAILURE
}

/// Says it, if there is anywhere to say it.
fn report(error: &str) {
    let _ = writeln!(std::io::stderr(), "error: {error}");
}

/// Becomes the chosen binary; comes back only with what was wrong.
#[cfg(target_arch = "x86_64")]
fn start() -> Result<std::convert::Infallible, String> {
    use std::os::unix::process::CommandExt;
    let wanted = std::env::var(variants::VARIABLE).ok().filter(|name| !name.is_empty());
    // Links to this file are resolved: the others stay where they were unpacked.
    let here = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    let root = here.ancestors().nth(2).ok_or("this program is not in a bin folder")?;
    let program = |name: &str| root.join("lib/terrace").join(format!("terrace-{name}"));
    let program = program(variants::choose(wanted.as_deref(), |name| program(name).exists())?);
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new(&program);
    if let Some(own) = arguments.next() {
        command.arg0(own);
    }
    let error = command.args(arguments).exec();
    Err(format!(
        "{}: {error} (unpack the whole archive, and link to bin/terrace if need be)",
        program.display()
    ))
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    report("distributions with several binaries are for x86-64");
}
