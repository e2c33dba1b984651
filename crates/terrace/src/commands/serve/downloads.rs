//! Models that clients of the server download and delete: those of the hub's cache.

use std::path::Path;
use terrace_cli::source::hub::error::MAX_NAMES;
use terrace_cli::source::hub::{Hub, HubError};
use terrace_model::listed;
use terrace_server::{Library, LibraryError, Pulled};

/// The hub's cache.
#[derive(Debug)]
pub struct Downloads;

impl Library for Downloads {
    fn pull(
        &self,
        name: &str,
        told: &(dyn Fn(Pulled<'_>) -> bool + Send + Sync),
    ) -> Result<(), LibraryError> {
        let hub = Hub::from_environment().map_err(library_error)?;
        let model = hub.named(name).map_err(library_error)?;
        let watch = |file: &str, completed, total| told(Pulled { file, completed, total });
        hub.fetch_watched(&model, &watch).map(drop).map_err(library_error)
    }

    fn delete(&self, name: &str, served: &Path) -> Result<(), LibraryError> {
        let hub = Hub::from_environment().map_err(library_error)?;
        let missing = || LibraryError::Missing(format!("the hub's cache has no model `{name}`"));
        let (model, files) = hub.named_in_cache(name).map_err(library_error)?.ok_or_else(missing)?;
        let served = served.canonicalize().unwrap_or_else(|_| served.to_owned());
        if files.iter().any(|file| file.canonicalize().is_ok_and(|file| file == served)) {
            return Err(LibraryError::InUse);
        }
        hub.remove(&model, &files).map_err(library_error)
    }
}

fn library_error(error: HubError) -> LibraryError {
    let message = match &error {
        HubError::NoFile { choices, .. } if !choices.is_empty() => {
            format!("{error}; its models: {}", listed(choices, MAX_NAMES))
        }
        _ => error.to_string(),
    };
    match error {
        HubError::Name { .. } => LibraryError::Name(message),
        HubError::NoRepo { .. }
        | HubError::Refused { .. }
        | HubError::NoFile { .. }
        | HubError::NoModel { .. }
        | HubError::Ambiguous { .. }
        | HubError::Several { .. } => LibraryError::Missing(message),
        _ => LibraryError::Failed(message),
    }
}
