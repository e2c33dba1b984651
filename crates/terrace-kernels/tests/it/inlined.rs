//! Kernels are one piece of code each: what a loop over vectors calls is compiled into it.

use std::collections::HashMap;
use std::process::Command;

/// Calls that a function may keep: of what is done once for a matrix or a row.
const CALLS: usize = 60;

/// A compiler that leaves iterators and small functions out of line makes kernels up to ten times as slow, and nothing else
/// tells: results are the same. Settings of the whole build can bring that about, as `lto = "off"` did. Kernels whose
/// instructions the program is not compiled for have more calls (decision 0125).
#[test]
#[cfg_attr(debug_assertions, ignore = "kernels are optimised in releases")]
#[cfg_attr(
    not(all(
        target_feature = "avx512vnni",
        target_feature = "avx512bf16",
        target_feature = "avx512vbmi",
        target_feature = "gfni"
    )),
    ignore = "the program is not compiled for all kernels' instructions"
)]
fn little_is_called_in_kernels() {
    let calls = calls_of_kernels();
    // So many functions have loops of their own, for instruction sets and families of types.
    assert!(calls.len() > 10, "functions of kernels that were found: {}", calls.len());
    let many: Vec<_> = calls.iter().filter(|(_, calls)| **calls > CALLS).collect();
    assert!(many.is_empty(), "calls that should have been inlined: {many:?}");
}

/// Direct calls of each function of kernels in this program, without what ends a process or a thread.
fn calls_of_kernels() -> HashMap<String, usize> {
    let program = std::env::current_exe().unwrap();
    // From the assembler's package, without which nothing is linked here.
    let listing = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn", "--no-addresses"])
        .arg(program)
        .output()
        .unwrap();
    assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let mut calls = HashMap::new();
    let mut function: Option<String> = None;
    for line in String::from_utf8_lossy(&listing.stdout).lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.strip_prefix('<')) {
            let is_kernel =
                ["terrace_kernels::matmul::", "terrace_kernels::attention::", "terrace_kernels::glu::"];
            function = is_kernel.iter().any(|room| name.contains(room)).then(|| name.to_owned());
        } else if let Some(function) = &function {
            let count = calls.entry(function.clone()).or_insert(0);
            let target = line.split_once("call").map(|(_, target)| target.trim());
            *count += usize::from(target.is_some_and(is_ordinary));
        }
    }
    calls
}

/// Returns true for a function that is called by its address, is no check's failure, and not a sanitiser's.
fn is_ordinary(target: &str) -> bool {
    let ends = ["panic", "_fail", "_Unwind", "__asan", "__ubsan", "__tsan"];
    !target.starts_with('*') && !ends.iter().any(|end| target.contains(end))
}
