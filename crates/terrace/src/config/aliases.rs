//! Other programs' spellings of our options.

use std::ffi::OsString;

/// llama.cpp's short options of more than one letter, which users have in their fingers, by our long names.
pub fn long_name(word: OsString) -> OsString {
    match word.to_str() {
        Some("-ot") => "--override-tensor".into(),
        Some("-ngl") => "--n-gpu-layers".into(),
        Some("-sm") => "--split-mode".into(),
        Some("-ctk" | "-ctv") => "--kv-type".into(),
        _ => word,
    }
}
