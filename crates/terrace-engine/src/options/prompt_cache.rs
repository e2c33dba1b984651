//! Conversations that are kept.

use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_plan::Budget;

/// Storage of conversations when others take their place in the context.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub struct PromptCacheOptions {
    /// RAM for saved KV state of displaced conversations, so that they need not be computed again: a
    /// size (a plain number is MiB, as in llama.cpp), 0 for none, or auto: half of what weights and
    /// contexts leave, at most 8GiB; a twentieth of the RAM where weights stream
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_CACHE_RAM", default_value = "auto", value_parser = kept_size, allow_negative_numbers = true)]
    pub cache_ram: Budget,
    /// Keep conversations in files of DIR, too, of at most SIZE together: they survive the end of
    /// the server. Only its user can read them [default: off]
    #[arg(long, value_name = "DIR:SIZE", env = "TERRACE_CACHE_DISK", value_parser = disk)]
    pub cache_disk: Option<(PathBuf, ByteSize)>,
    /// Let clients save what server slots hold in files of DIR, and restore it (POST
    /// /slots/ID?action=save|restore) [default: they may not]
    #[arg(long, value_name = "DIR", env = "TERRACE_SLOT_SAVE_PATH", value_parser = super::directory)]
    pub slot_save_path: Option<PathBuf>,
    /// True if callers may save sessions in files without that directory.
    #[arg(skip)]
    pub files: bool,
}

impl Default for PromptCacheOptions {
    /// Keeps nothing, unlike the command line.
    fn default() -> Self {
        Self { cache_ram: Budget::Bytes(ByteSize::ZERO), ..terrace_model::cli::unset() }
    }
}

impl PromptCacheOptions {
    /// Returns whether callers may save sessions in files.
    pub fn saves_files(&self) -> bool {
        self.files || self.slot_save_path.is_some()
    }
}

/// Reads a value of `--cache-ram`: a size; plain numbers are MiB, as those of llama.cpp's option of the same name.
///
/// # Errors
/// The text is neither a size nor `auto`.
pub fn kept_size(text: &str) -> Result<Budget, String> {
    if text.starts_with('-') {
        return Err("there is no cache without a limit: give a size, or auto".into());
    }
    match text.parse::<u64>() {
        Ok(mib) => {
            let bytes = mib.checked_mul(1 << 20).ok_or("too many MiB")?;
            Ok(Budget::Bytes(ByteSize(bytes)))
        }
        Err(_) => text.parse(),
    }
}

fn disk(text: &str) -> Result<(PathBuf, ByteSize), &'static str> {
    let wrong = "must be a directory and a size, like /var/cache/terrace:20GiB";
    let (dir, size) = text.rsplit_once(':').ok_or(wrong)?;
    let size: ByteSize = size.parse().map_err(|_| wrong)?;
    if dir.is_empty() || size == ByteSize::ZERO { Err(wrong) } else { Ok((dir.into(), size)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_llama_server_reads_them() {
        let bytes = |size| Ok(Budget::Bytes(size));
        assert_eq!(kept_size("8192"), bytes(ByteSize::gib(8)));
        assert_eq!(kept_size("0"), bytes(ByteSize::ZERO));
        assert_eq!(kept_size("512MiB"), bytes(ByteSize::mib(512)));
        assert_eq!(kept_size("auto"), Ok(Budget::Auto));
        for wrong in ["-1", "much", "99999999999999999999", "20000000000000"] {
            assert!(kept_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn directories_may_have_colons() {
        assert_eq!(disk("/a:b:2GiB"), Ok(("/a:b".into(), ByteSize::gib(2))));
        for wrong in ["", "/a", ":2GiB", "/a:", "/a:0", "/a:many"] {
            assert!(disk(wrong).is_err(), "{wrong}");
        }
    }
}
