//! The library exports what the header declares, and nothing of ggml, which a program may have itself.

use super::library;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn only_what_the_header_declares_is_exported() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/terrace.h");
    let header = std::fs::read_to_string(header).unwrap();
    let code = header.lines().filter(|line| !line.starts_with("//"));
    let declared: BTreeSet<String> = code
        .filter_map(|line| {
            let before = &line[..line.find('(')?];
            let name = before.rsplit([' ', '*']).next()?;
            name.starts_with("terrace_").then(|| name.to_owned())
        })
        .collect();
    assert!(declared.len() > 15, "{declared:?}");
    let said =
        Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let exported: BTreeSet<String> = String::from_utf8_lossy(&said.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.starts_with("_ZN") && !name.starts_with("rust_eh"))
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, declared);
}
