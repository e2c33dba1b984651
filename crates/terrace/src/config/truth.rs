//! Yes and no, as llama.cpp's options and variables spell them.

/// Returns true if a value means yes; `None` if it means neither yes nor no.
pub fn truth(value: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    match () {
        () if is(&["1", "on", "true", "enabled", "yes"]) => Some(true),
        () if is(&["0", "off", "false", "disabled", "no"]) => Some(false),
        () => None,
    }
}
