//! What callers do wrong is an error.

use super::{bundled, compiled, run, stdout};
use std::path::Path;
use std::process::Command;

#[test]
fn wrong_calls_are_errors_from_every_thread() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/misuse.c");
    let program = compiled(&source, dir.path());
    assert_eq!(stdout(&run(Command::new(program).arg(bundled()), dir.path())), "done\n");
}
