//! The bundled model as a file that changes: served from a path to which variants are renamed.

use crate::common::{self, bundled, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The bundled model, a variant with tensors of another type, and the path that is served.
pub struct Variants {
    dir: tempfile::TempDir,
    variants: [PathBuf; 2],
    served: PathBuf,
}

impl Variants {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let changed = dir.path().join("changed.gguf");
        // Other types for many tensors change the text; one other type would not always.
        let rule = "ffn_(up|down)_exps=q2_K";
        let (from, to) = (bundled(), changed.clone());
        let words = ["--type", "COPY", "--tensor", rule, "--allow-requantize"];
        let paths = [from.to_str().unwrap(), to.to_str().unwrap()];
        let output = run(["quantize"].iter().chain(&paths).chain(&words));
        assert!(output.status.success(), "{}", common::stderr(&output));
        let served = dir.path().join("model.gguf");
        fs::copy(bundled(), &served).unwrap();
        Self { dir, variants: [bundled(), changed], served }
    }

    /// Where the files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path that is served.
    pub fn served(&self) -> &Path {
        &self.served
    }

    /// The file of a variant.
    pub fn file(&self, variant: usize) -> &Path {
        &self.variants[variant]
    }

    /// Renames a copy of a variant to the path that is served.
    pub fn put(&self, variant: usize) {
        put(&self.variants[variant], &self.served);
    }

    /// Gives the served file another time.
    pub fn touch(&self) {
        fs::OpenOptions::new()
            .append(true)
            .open(&self.served)
            .unwrap()
            .set_modified(SystemTime::now())
            .unwrap();
    }
}

/// Renames a copy of a file to a place.
pub fn put(file: &Path, place: &Path) {
    let beside = place.with_extension("new");
    fs::copy(file, &beside).unwrap();
    fs::rename(&beside, place).unwrap();
}
