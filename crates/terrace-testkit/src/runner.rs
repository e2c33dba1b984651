//! What a test knows of the run that it is part of.

/// Asserts that this test has the process to itself: what it registers with ggml (the Terrace device, remote devices)
/// stays registered, and changes what any later test of the process would compute.
///
/// # Panics
/// Under a runner that shares processes among tests, as `cargo test` does.
#[track_caller]
pub fn needs_own_process() {
    let mode = std::env::var("NEXTEST_EXECUTION_MODE");
    assert!(mode.as_deref() == Ok("process-per-test"), "run this test with `cargo nextest run --release`");
}

/// `full` in a run of `make test-all` (`THOROUGH_TESTS` is set), else `quick`: for tests whose repetitions or
/// combinations take minutes.
pub fn thorough<T>(quick: T, full: T) -> T {
    if std::env::var_os("THOROUGH_TESTS").is_some() { full } else { quick }
}
