//! Only this crate names an operating system, so that another one is added here and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Signs of a system: its calls, its files, and the choice among systems.
const SIGNS: [&str; 12] = [
    "libc::",
    "rustix::",
    "io_uring::",
    "signal_hook::",
    "windows_sys::",
    "std::os::",
    "/proc/",
    "/sys/",
    "cfg(target_os",
    "cfg(unix",
    "cfg(windows",
    "cfg!(target_os",
];

/// Crates that are no part of a program of Terrace, besides this one.
const FREE: [&str; 4] = ["terrace-platform", "terrace-testkit", "terrace-test-env", "xtask"];

/// The files that may name one, with the reason.
const ALLOWED: [(&str, &str); 3] = [
    ("terrace/src/commands/doctor/devices.rs", "the doctor tells what to look at in this system"),
    ("terrace/src/commands/doctor/io.rs", "as above"),
    ("terrace/src/commands/doctor/memory.rs", "as above"),
];

#[test]
fn no_other_file_names_a_system() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut naming = BTreeSet::new();
    let mut seen = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        if FREE.iter().any(|free| path.ends_with(free)) {
            continue;
        }
        for file in sources(&path.join("src")).into_iter().chain(sources(&path.join("examples"))) {
            seen += 1;
            if names_a_system(&fs::read_to_string(&file).unwrap()) {
                naming.insert(file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert!(seen > 500, "{seen} sources");
    let allowed: BTreeSet<_> = ALLOWED.iter().map(|(file, _)| (*file).to_owned()).collect();
    let more: Vec<_> = naming.difference(&allowed).collect();
    assert!(more.is_empty(), "these ask the system themselves, and not terrace-platform: {more:#?}");
    let less: Vec<_> = allowed.difference(&naming).collect();
    assert!(less.is_empty(), "these name no system any more, and leave the list: {less:#?}");
}

#[test]
fn tests_and_comments_are_not_looked_at() {
    assert!(names_a_system("fn a() {\n    libc::getpid();\n}\n"));
    assert!(names_a_system("use std::os::fd::AsRawFd;\n"));
    assert!(!names_a_system("// as /proc/self/fd\n/// io_uring::\nfn a() {}\n"));
    assert!(!names_a_system("fn a() {}\n\n#[cfg(test)]\nmod tests {\n    use std::os::fd::AsFd;\n}\n"));
}

/// Whether the code before a file's tests has one of the signs.
fn names_a_system(text: &str) -> bool {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let mut code = code.filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| SIGNS.iter().any(|sign| line.contains(sign)))
}

/// The Rust files below a folder that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
    found
}
