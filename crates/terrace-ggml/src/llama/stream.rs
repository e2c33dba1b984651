//! llama.cpp's names of the residual stream.

/// The names after a layer, without its number. Models with several streams side by side (DeepSeek V4, Qwen3.8-Flash-Next)
/// have the second.
const NAMES: [&str; 2] = ["l_out-", "l_last-"];
/// Numbers beyond any model's.
const MOST: u32 = 1 << 16;

/// The layer after which the tensor of this name is the residual stream; `None` for all other tensors.
pub fn stream_layer(name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(name).ok()?;
    let number = NAMES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    number.parse().ok().filter(|&layer| layer < MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_have_a_number() {
        let layers = ["l_out-0", "l_last-47"].map(|name| stream_layer(name.as_bytes()));
        assert_eq!(layers, [Some(0), Some(47)]);
        for other in
            ["l_out", "l_out-", "l_out-x", "mtp_l_out-1", "ffn_out-1", "l_last-65536", "l_out-1 (view)"]
        {
            assert_eq!(stream_layer(other.as_bytes()), None, "{other}");
        }
        assert_eq!(stream_layer(b"l_out-\xff"), None);
    }
}
