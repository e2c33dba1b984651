//! The fuzz target `command_line`: the words of a command line, the configuration file, presets,
//! and names and redirections of hubs. Exists only with `--cfg fuzzing`.

use crate::config::fuzzing as config;
use libfuzzer_sys::fuzz_target;
use terrace_cli::source::hub::fuzzing as hub;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((kind, rest)) = text.split_once('\n') else { return };
    match kind {
        "words" => config::words(rest),
        "file" => config::file(rest),
        "preset" => config::preset(rest),
        "name" => hub::name(rest),
        "location" => hub::location(rest),
        _ => {}
    }
});
