//! Files that hold the fuzzer's bytes for one call.

use std::path::{Path, PathBuf};

/// A directory of this process, in memory where the system has a file system for that.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory. `FUZZ_SCRATCH` says where; `scripts/fuzz` removes that place afterwards,
    /// because a fuzzer ends without notice.
    ///
    /// # Panics
    /// The directory cannot be made.
    #[expect(clippy::disallowed_methods, reason = "scripts/fuzz says it by a variable")]
    pub fn new() -> Self {
        let place = std::env::var_os("FUZZ_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = place.join(format!("terrace-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for files");
        Self(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Writes a file, replacing one of that name, and returns its path.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file in the directory for files");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
