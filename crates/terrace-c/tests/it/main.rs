//! The library as C sees it: examples and hostile callers, compiled with `cc` and linked with what cargo built.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod examples;
mod misuse;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use terrace_test_env as _;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn bundled() -> PathBuf {
    root().join("models/tiny-moe-Q4_K.gguf")
}

/// The library, which cargo builds for its tests.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    let found = [folder.join("libterrace_c.so"), folder.join("../libterrace_c.so")];
    found
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no library in {}", folder.display()))
}

/// Compiles a program and links it with the library, under the name by which it will look for it.
fn compiled(source: &Path, into: &Path) -> PathBuf {
    let (program, lib) = (into.join("program"), into.join("libterrace.so.0"));
    std::fs::hard_link(library(), &lib).or_else(|_| std::fs::copy(library(), &lib).map(|_| ())).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]);
    // `scripts/sanitize c`: what the library and the program allocate for each other.
    if let Some(sanitizer) = std::env::var_os("SANITIZED_C") {
        cc.arg(format!("-fsanitize={}", sanitizer.to_str().unwrap()));
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let run_path = format!("-Wl,-rpath,{}", into.display());
    let said = cc
        .arg("-I")
        .arg(header)
        .arg(source)
        .arg(&lib)
        .arg(run_path)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    program
}

/// Runs a program in a home of its own.
fn run(program: &mut Command, home: &Path) -> Output {
    program.env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME").output().unwrap()
}

fn stdout(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    out.into_owned()
}
