//! Which computation kept conversations belong to.

use super::header::Header;
use super::scene::PlanInput;
use crate::options::{KernelChoice, Mode};
use crate::prompt_cache::CacheKey;
use std::path::PathBuf;
use terrace_store::identity::{file_fingerprint, file_state};

/// The key of kept conversations, if they may go into files.
pub fn key(scene: &PlanInput<'_>) -> Option<CacheKey> {
    let (options, file) = (scene.options, &*scene.file);
    let Header { states, layer_skip, lossy, low, adapters, .. } = scene.ground.header;
    let keeps = options.prompt_cache.saves_files() || options.prompt_cache.cache_disk.is_some();
    let skipped = layer_skip.as_ref().map_or_else(Vec::new, |skip| skip.skip.clone());
    let lossy = match (lossy, low) {
        (Some(lossy), Some(low)) => {
            let fingerprint = |path: PathBuf| file_fingerprint(&path, &file_state(&path).ok()?).ok();
            let files: Vec<_> = low.files().map(fingerprint).collect::<Option<_>>()?;
            Some(format!("{} {:?} {files:?}", lossy.settings, low.identity().ok()?))
        }
        (lossy, _) => lossy.as_ref().map(|lossy| lossy.settings.to_string()),
    };
    let sequences = (options.context.sequences, options.context.unified);
    let repacked = options.mode == Mode::Stock { repack: true };
    let computed = (scene.kv_type.to_string(), skipped, lossy);
    let key = keeps.then(|| CacheKey::of(file, states, computed, repacked, sequences))??;
    let stock = matches!(options.mode, Mode::Stock { .. });
    let key = CacheKey { fast: !stock && options.kernels.kernels == KernelChoice::Fast, ..key };
    let identities = adapters.iter().map(|adapter| adapter.identity).collect::<Option<Vec<_>>>()?;
    Some(key.among(identities))
}
