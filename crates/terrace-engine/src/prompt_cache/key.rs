//! Which computation kept conversations belong to.

use crate::adapters::Scales;
use serde::{Deserialize, Serialize};
use terrace_model::ModelFile;
use terrace_model::identity::{FileFingerprint, FileIdentity, FileState, ModelIdentity};
use terrace_store::identity::{file_fingerprint, file_identity};

/// Everything that determines keys and values apart from the tokens. What was kept under another key
/// is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKey {
    /// The program and its ggml: another release may compute or store differently.
    pub build: String,
    pub model: ModelIdentity,
    /// CRC-32 of the header of its first file.
    pub header: u32,
    /// The bytes of each of its files.
    pub files: Vec<FileFingerprint>,
    /// True if llama.cpp computed with weights in its repacked layouts, which round differently.
    /// Terrace's own kernels are equal to ggml's bit by bit, so they are no part of the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repacked: bool,
    /// True if kernels added in an order of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fast: bool,
    /// Types of keys and values.
    pub kv_type: String,
    /// Layers that are skipped.
    pub skipped: Vec<u32>,
    /// Another lossy setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<String>,
    /// Number of sequences, by which llama.cpp divides its copies.
    pub sequences: u32,
    /// True if sequences share their tokens.
    pub unified: bool,
    /// In a file: the adapters that were added. In memory: those that are loaded, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterKey>,
}

/// An adapter, and how much of it was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterKey {
    /// The bytes of its file.
    pub file: FileFingerprint,
    /// CRC-32 of its header.
    pub header: u32,
    /// The bits of its scale.
    pub scale: u32,
}

impl CacheKey {
    /// The key of a model whose files were in these states; `None` if one of them is unknown.
    pub fn of(
        model: &ModelFile,
        states: &[Option<FileState>],
        (kv_type, skipped, lossy): (String, Vec<u32>, Option<String>),
        repacked: bool,
        (sequences, unified): (u32, bool),
    ) -> Option<Self> {
        let FileIdentity { header, .. } = file_identity(model).ok()?;
        let fingerprints = || {
            let files = model.shards.iter().zip(states);
            files
                .map(|(shard, state)| file_fingerprint(&shard.path, state.as_ref()?).ok())
                .collect::<Option<_>>()
        };
        Some(Self {
            build: format!(
                "terrace {}, ggml {}",
                env!("CARGO_PKG_VERSION"),
                terrace_ggml::devices::libraries::version()
            ),
            model: ModelIdentity::of(model),
            header,
            files: fingerprints()?,
            repacked,
            fast: false,
            kv_type,
            skipped,
            lossy,
            sequences,
            unified,
            adapters: Vec::new(),
        })
    }

    /// This key, where adapters with these files and CRC-32s of headers are loaded.
    pub fn among(mut self, adapters: Vec<(FileFingerprint, u32)>) -> Self {
        let key = |(file, header)| AdapterKey { file, header, scale: 0 };
        self.adapters = adapters.into_iter().map(key).collect();
        self
    }

    /// The key of what is computed with these scales of the loaded adapters, for a file.
    pub(super) fn with(&self, scales: &Scales) -> Self {
        let scaled = |(id, adapter): (usize, &AdapterKey)| {
            let scale = scales.of(id);
            (scale != 0.0).then(|| AdapterKey { scale: scale.to_bits(), ..adapter.clone() })
        };
        Self { adapters: self.adapters.iter().enumerate().filter_map(scaled).collect(), ..self.clone() }
    }

    /// The scales of the loaded adapters with which the contents of a file of the key `theirs` were
    /// computed; `None` if it belongs to another computation.
    pub(super) fn scales_of(&self, theirs: &Self) -> Option<Scales> {
        let mut scales = vec![0.0; self.adapters.len()];
        for adapter in &theirs.adapters {
            let loaded = |(id, own): &(usize, &AdapterKey)| {
                scales[*id] == 0.0 && (own.file, own.header) == (adapter.file, adapter.header)
            };
            let (id, _) = self.adapters.iter().enumerate().find(loaded)?;
            scales[id] = Some(f32::from_bits(adapter.scale)).filter(|scale| scale.is_finite())?;
        }
        let scales = Scales::new(&scales);
        // Also the order of the adapters, in which they are added.
        (self.with(&scales) == *theirs).then_some(scales)
    }

    /// The key in a file.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// A number by which file names differ.
    pub(super) fn number(&self) -> u32 {
        crc32fast::hash(&self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_and_their_scales_belong_to_what_was_computed() {
        let model = ModelIdentity { name: "m".into(), layers: 1, bytes: 9 };
        let file = |size, modified| FileFingerprint { size, modified, changed: 3, inode: 4, sample: 5 };
        let plain = CacheKey {
            build: "b".into(),
            model,
            header: 1,
            files: vec![file(9, 2)],
            repacked: false,
            fast: false,
            kv_type: "f16".into(),
            skipped: Vec::new(),
            lossy: None,
            sequences: 1,
            unified: true,
            adapters: Vec::new(),
        };
        let (first, second) = ((file(10, 1), 1), (file(10, 1), 2));
        let key = plain.clone().among(vec![first, second]);
        let scaled = |scales: &[f32]| key.with(&Scales::new(scales));
        // Without adapters, a file is that of a run without any.
        assert_eq!(scaled(&[]), plain);
        assert!(!String::from_utf8(plain.json()).unwrap().contains("adapters"));
        for scales in [&[][..], &[0.5], &[0.0, -2.0], &[1.0, 0.25]] {
            let theirs = serde_json::from_slice(&scaled(scales).json()).unwrap();
            assert_eq!(key.scales_of(&theirs), Some(Scales::new(scales)));
            assert_eq!(scaled(scales).number() == plain.number(), scales.is_empty());
        }
        // Loaded in another order, they are the same; one that is missing or was changed is not.
        let theirs = scaled(&[0.0, 0.5]);
        assert_eq!(plain.clone().among(vec![second, first]).scales_of(&theirs), Some(Scales::new(&[0.5])));
        for others in [vec![], vec![first], vec![first, (file(10, 2), 2)]] {
            assert_eq!(plain.clone().among(others).scales_of(&theirs), None);
        }
        let plain_file = file(9, 2);
        for other in [
            CacheKey { kv_type: "q8_0".into(), ..theirs.clone() },
            CacheKey { repacked: true, ..theirs.clone() },
            CacheKey { fast: true, ..theirs.clone() },
            CacheKey { files: vec![FileFingerprint { changed: 4, ..plain_file }], ..theirs.clone() },
            CacheKey { files: vec![FileFingerprint { inode: 5, ..plain_file }], ..theirs.clone() },
            CacheKey { files: vec![FileFingerprint { sample: 6, ..plain_file }], ..theirs.clone() },
        ] {
            assert_eq!(key.scales_of(&other), None, "{other:?}");
        }
        // Of the same file twice, each has a scale.
        let twice = plain.among(vec![first, first]);
        let both = twice.with(&Scales::new(&[0.5, 0.25]));
        assert_eq!(twice.scales_of(&both), Some(Scales::new(&[0.5, 0.25])));
    }
}
