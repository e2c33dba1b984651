//! Models on this machine besides the one that is served. How they are downloaded and deleted is up
//! to the program.

use std::fmt::Debug;
use std::path::Path;

/// The models on this machine. Its functions may take long.
pub trait Library: Debug + Send + Sync + 'static {
    /// Downloads what is missing of a model. `told` is called now and then, and says whether the
    /// model is still wanted.
    ///
    /// # Errors
    /// Why the model is not there.
    fn pull(&self, name: &str, told: &(dyn Fn(Pulled<'_>) -> bool + Send + Sync))
    -> Result<(), LibraryError>;

    /// Deletes a model that was downloaded, unless it is the file that is `served`.
    ///
    /// # Errors
    /// Why the model is not deleted.
    fn delete(&self, name: &str, served: &Path) -> Result<(), LibraryError>;
}

/// Progress of a file's download.
#[derive(Clone, Copy, Debug)]
pub struct Pulled<'p> {
    /// Its name.
    pub file: &'p str,
    /// Bytes that are there.
    pub completed: u64,
    /// All of its bytes.
    pub total: u64,
}

/// Why a model was not downloaded or deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is no name of a model.
    #[error("{0}")]
    Name(String),
    /// There is no such model.
    #[error("{0}")]
    Missing(String),
    /// It is being served.
    #[error("the model is being served")]
    InUse,
    /// Something else failed.
    #[error("{0}")]
    Failed(String),
}
