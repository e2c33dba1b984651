//! SHA-256 of the tensors that a reload takes, for runs that verify what they read.

use super::error::ReloadError;
use super::find::Found;
use super::stage::{Ready, Staged};
use sha2::{Digest, Sha256};
use terrace_backend::Weights;

/// Bytes that are read at once.
const READ: u64 = 4 << 20;

impl Staged {
    /// Computes the hashes of all tensors that come from files. Reads each once more.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn hash(mut self, weights: Option<&Weights>) -> Result<Self, ReloadError> {
        let mut failed = None;
        for step in &mut self.steps {
            let Ready::Found { found, .. } = &mut step.to else { continue };
            match hash(&self.files, weights, found) {
                Ok(hash) => found.sha256 = Some(hash),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(self),
            Some(error) => {
                self.files.close(weights);
                Err(error)
            }
        }
    }
}

fn hash(
    files: &super::bytes::Files,
    weights: Option<&Weights>,
    found: &Found,
) -> Result<String, ReloadError> {
    let len = found.info.extent.len;
    let mut hash = Sha256::new();
    let mut part = vec![0; usize::try_from(len.min(READ)).expect("a few megabytes")];
    let mut offset = 0;
    while offset < len {
        let n = usize::try_from((len - offset).min(READ)).expect("a few megabytes");
        files.read(weights, found, offset, &mut part[..n])?;
        hash.update(&part[..n]);
        offset += n as u64;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
