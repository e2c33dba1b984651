//! The variables of llama.cpp's hotswap patch; they mean the same here.

use std::ffi::OsStr;

/// The name of the variable.
pub const HOTSWAP: &str = "LLAMA_HOTSWAP_ENABLED";
/// The file with the commands of a program that drives the loop.
pub const CONTROL: &str = "LLAMA_HOTSWAP_CONTROL_FILE";
/// The file with the state for that program.
pub const STATUS: &str = "LLAMA_HOTSWAP_STATUS_FILE";

/// Returns true if the variable is set to anything but `0`, `false`, `off` or `no`.
pub fn hotswap() -> bool {
    crate::environment::var_os(HOTSWAP).is_some_and(|value| is_on(&value))
}

fn is_on(value: &OsStr) -> bool {
    !value.is_empty() && !["0", "false", "off", "no"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_a_no_is_a_yes() {
        assert!(["1", "true", "yes", "x"].iter().all(|on| is_on(OsStr::new(on))));
        assert!(["", "0", "False", "OFF", "no"].iter().all(|off| !is_on(OsStr::new(off))));
    }
}
