//! Conversations that a server keeps.

use super::{Output, output};
use crate::error::CliError;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_engine::options::PromptCacheOptions;
use terrace_model::ByteSize;
use terrace_plan::Budget;

/// Conversations that a server keeps.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kept conversations")]
pub struct PromptCacheArgs {
    /// RAM for conversations whose server slot another one took, so that they need not be computed
    /// again: a size (a plain number is MiB, as in llama.cpp), 0 for none, or auto: half of what
    /// weights and contexts leave, at most 8GiB; a twentieth of the RAM where weights stream
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_CACHE_RAM", default_value = "auto", value_parser = ram, allow_negative_numbers = true)]
    pub cache_ram: Budget,
    /// Keep conversations in files of DIR, too, of at most SIZE together: they survive the end of
    /// the server. Only its user can read them [default: not]
    #[arg(long, value_name = "DIR:SIZE", env = "TERRACE_CACHE_DISK", value_parser = disk)]
    pub cache_disk: Option<(PathBuf, ByteSize)>,
    /// Let clients save what server slots hold in files of DIR, and restore it (POST
    /// /slots/ID?action=save|restore) [default: they may not]
    #[arg(long, value_name = "DIR", env = "TERRACE_SLOT_SAVE_PATH", value_parser = super::directory)]
    pub slot_save_path: Option<PathBuf>,
}

impl PromptCacheArgs {
    /// Converts these to the engine's options.
    pub fn options(&self) -> PromptCacheOptions {
        let Self { cache_ram, cache_disk, slot_save_path } = self;
        PromptCacheOptions { ram: *cache_ram, disk: cache_disk.clone(), files: slot_save_path.is_some() }
    }
}

/// A value of `--cache-ram`.
pub struct KeptSize(pub Budget);

impl FromStr for KeptSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ram(text).map(Self)
    }
}

/// A size; plain numbers are MiB, as those of llama.cpp's option of the same name.
fn ram(text: &str) -> Result<Budget, String> {
    if text.starts_with('-') {
        return Err("there is no cache without a limit: give a size, or auto".into());
    }
    match text.parse::<u64>() {
        Ok(mib) => {
            let bytes = mib.checked_mul(1 << 20).ok_or("too many MiB")?;
            Ok(Budget::Bytes(ByteSize(bytes)))
        }
        Err(_) => text.parse::<Budget>().map_err(|error| error.to_string()),
    }
}

fn disk(text: &str) -> Result<(PathBuf, ByteSize), String> {
    let wrong = || "must be a directory and a size, like /var/cache/terrace:20GiB".to_owned();
    let (dir, size) = text.rsplit_once(':').ok_or_else(wrong)?;
    let size: ByteSize = size.parse().map_err(|_| wrong())?;
    if dir.is_empty() || size == ByteSize::ZERO { Err(wrong()) } else { Ok((dir.into(), size)) }
}

/// The file in which `terrace run` keeps its conversation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kept conversations")]
pub struct PromptFileArgs {
    /// Keep what the context holds at the end in FILE, and begin with as much of what is there as
    /// the prompt begins with: that part is not computed again
    #[arg(long, value_name = "FILE", env = "TERRACE_PROMPT_CACHE", value_parser = output(&terrace_engine::prompt_cache::FILE))]
    pub prompt_cache: Option<Output>,
    /// Leave the file of --prompt-cache as it is
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,
}

impl PromptFileArgs {
    /// Checks that the file has a name.
    ///
    /// # Errors
    /// It is a directory.
    pub fn check(&self) -> Result<(), CliError> {
        match &self.prompt_cache {
            Some(path) if path.is_dir() => Err(CliError::Usage {
                message: format!("--prompt-cache {}: a directory, not a file", path.display()),
                hint: "name a file".into(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_llama_server_reads_them() {
        let bytes = |size| Ok(Budget::Bytes(size));
        assert_eq!(ram("8192"), bytes(ByteSize::gib(8)));
        assert_eq!(ram("0"), bytes(ByteSize::ZERO));
        assert_eq!(ram("512MiB"), bytes(ByteSize::mib(512)));
        assert_eq!(ram("auto"), Ok(Budget::Auto));
        for wrong in ["-1", "much", "99999999999999999999", "20000000000000"] {
            assert!(ram(wrong).is_err(), "{wrong}");
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
