//! Properties of the test run, for the tests in it.

/// Asserts that this test has the process to itself. Devices that it registers with ggml (the
/// Terrace device, remote devices) stay registered, and would change what later tests compute.
///
/// # Panics
/// If the runner runs several tests in a process, as `cargo test` does.
#[track_caller]
pub fn needs_own_process() {
    let mode = std::env::var("NEXTEST_EXECUTION_MODE");
    assert!(mode.as_deref() == Ok("process-per-test"), "run this test with `cargo nextest run --release`");
}

/// Returns `full` in a run of `make test-all`, which sets `THOROUGH_TESTS`, otherwise `quick`. For
/// tests whose repetitions or combinations take minutes.
pub fn thorough<T>(quick: T, full: T) -> T {
    if std::env::var_os("THOROUGH_TESTS").is_some() { full } else { quick }
}
