//! The variable by which llama.cpp's patch for replaced tensors is switched on; what is switched on there is here, too.

use std::ffi::OsStr;

/// Its name.
pub const HOTSWAP: &str = "LLAMA_HOTSWAP_ENABLED";

/// Whether it is set, and not to a no.
pub fn hotswap() -> bool {
    std::env::var_os(HOTSWAP).is_some_and(|value| is_on(&value))
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
