//! Reading GGUF headers: the contents of good files, and that any damage only returns an error.

use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf::{self, GgufError};
use terrace_model::{Extent, FileIndex, MetaValue, Shape};

const F32: u32 = 0;
const Q4_0: u32 = 2;

/// Writes GGUF bytes, including malformed ones.
#[derive(Clone)]
struct Writer {
    version: u32,
    tensor_count: Option<u64>,
    pair_count: Option<u64>,
    pairs: Vec<Vec<u8>>,
    /// Name, dimensions, type, bytes of data.
    tensors: Vec<(String, Vec<u64>, u32, u64)>,
    alignment: u64,
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Writer {
    fn new() -> Self {
        Self {
            version: 3,
            tensor_count: None,
            pair_count: None,
            pairs: vec![],
            tensors: vec![],
            alignment: 32,
        }
    }

    fn pair(mut self, key: &str, ty: u32, value: &[u8]) -> Self {
        self.pairs.push([&string(key), &ty.to_le_bytes()[..], value].concat());
        self
    }

    fn str(self, key: &str, value: &str) -> Self {
        self.pair(key, 8, &string(value))
    }

    fn u32(self, key: &str, value: u32) -> Self {
        self.pair(key, 4, &value.to_le_bytes())
    }

    fn u16(self, key: &str, value: u16) -> Self {
        self.pair(key, 2, &value.to_le_bytes())
    }

    fn tensor(mut self, name: &str, dims: &[u64], ty: u32, bytes: u64) -> Self {
        self.tensors.push((name.into(), dims.to_vec(), ty, bytes));
        self
    }

    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.pair_count.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        out.extend(self.pairs.concat());
        let mut offset = 0u64;
        for (name, dims, ty, bytes) in &self.tensors {
            out.extend(string(name));
            out.extend((dims.len() as u32).to_le_bytes());
            out.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(ty.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += bytes.next_multiple_of(self.alignment);
        }
        out
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        let data: u64 = self.tensors.iter().map(|t| t.3.next_multiple_of(self.alignment)).sum();
        let start = (out.len() as u64).next_multiple_of(self.alignment);
        out.resize((start + data) as usize, 0xa5);
        out
    }
}

/// A small MoE: two layers of four experts.
fn small() -> Writer {
    let mut file = Writer::new()
        .str("general.architecture", "qwen3moe")
        .u32("qwen3moe.block_count", 2)
        .u32("qwen3moe.expert_count", 4)
        .str("tokenizer.chat_template", "{{ messages }}")
        .pair("a.float", 6, &1.5f32.to_le_bytes())
        .pair("a.negative", 5, &(-3i32).to_le_bytes())
        .pair("a.flag", 7, &[1])
        .pair(
            "an.array",
            9,
            &[&4u32.to_le_bytes()[..], &2u64.to_le_bytes(), &7u32.to_le_bytes(), &8u32.to_le_bytes()]
                .concat(),
        )
        .pair(
            "words",
            9,
            &[&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &string("a"), &string("bc")].concat(),
        )
        .pair("long", 9, &[&0u32.to_le_bytes()[..], &2000u64.to_le_bytes(), &[7; 2000]].concat())
        .tensor("token_embd.weight", &[32, 10], F32, 32 * 10 * 4);
    for layer in 0..2 {
        file = file.tensor(&format!("blk.{layer}.ffn_norm.weight"), &[32], F32, 128).tensor(
            &format!("blk.{layer}.ffn_gate_exps.weight"),
            &[32, 3, 4],
            Q4_0,
            12 * 18,
        );
    }
    file
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).expect("a temporary directory is writable");
    path
}

/// Reads bytes that must be refused; checks that the message is one line that starts with the path.
fn refusal(bytes: &[u8]) -> GgufError {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = write(dir.path(), "m.gguf", bytes);
    one_line(gguf::read(&path).expect_err("this file is bad"), &path)
}

fn one_line(error: GgufError, path: &Path) -> GgufError {
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()) && !text.contains('\n'), "{text}");
    error
}

#[test]
fn tells_where_every_tensor_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = small();
    let bytes = file.bytes();
    let model = gguf::read(&write(dir.path(), "m.gguf", &bytes)).unwrap();
    let start = (file.header().len() as u64).next_multiple_of(32);

    assert_eq!((model.version, model.alignment, model.architecture()), (3, 32, "qwen3moe"));
    assert_eq!((model.shards[0].len, model.shards[0].data_offset), (bytes.len() as u64, start));
    assert_eq!(model.tensors.len(), 5);
    let experts = model.tensor("blk.1.ffn_gate_exps.weight").unwrap();
    assert_eq!(experts.shape, Shape([32, 3, 4, 1]));
    assert_eq!(
        (experts.ty.name.as_str(), experts.ty.block_elements, experts.ty.block_bytes),
        ("q4_0", 32, 18)
    );
    // After the embedding, the first layer (216 bytes padded to 224) and the second norm.
    assert_eq!(
        experts.extent,
        Extent { file: FileIndex(0), offset: start + 1280 + 128 + 224 + 128, len: 216 }
    );

    assert_eq!(model.str("tokenizer.chat_template"), Some("{{ messages }}"));
    assert_eq!(model.arch_u64("expert_count"), Some(4));
    let value = |key: &str| model.metadata[key].clone();
    assert_eq!(value("a.float"), MetaValue::F64(1.5));
    assert_eq!(value("a.negative"), MetaValue::I64(-3));
    assert_eq!(value("a.flag"), MetaValue::Bool(true));
    assert_eq!(value("an.array"), MetaValue::Array(vec![MetaValue::U64(7), MetaValue::U64(8)]));
    assert_eq!(
        value("words"),
        MetaValue::Array(vec![MetaValue::Str("a".into()), MetaValue::Str("bc".into())])
    );
    assert_eq!(value("long"), MetaValue::LongArray(2000));
}

#[test]
fn reads_the_bundled_model() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf");
    let model = gguf::read(&path).unwrap();
    assert_eq!(model.architecture(), "qwen3moe");
    assert_eq!(model.arch_u64("expert_count"), Some(32));
    let experts = model.tensor("blk.5.ffn_down_exps.weight").unwrap();
    assert_eq!((experts.ty.name.as_str(), experts.shape), ("q4_K", Shape([256, 256, 32, 1])));
    assert_eq!(experts.extent.len, 256 * 256 * 32 / 256 * 144);
    let last = model.tensors.iter().map(|t| t.extent.end()).max().unwrap();
    assert!(model.shards[0].len - last < model.alignment, "data ends where the file ends");
}

#[test]
fn paths_that_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none.gguf");
    assert!(matches!(one_line(gguf::read(&missing).unwrap_err(), &missing), GgufError::Missing { .. }));
    assert!(matches!(gguf::read(dir.path()).unwrap_err(), GgufError::Directory { .. }));
    let below_a_file = write(dir.path(), "f", b"x").join("m.gguf");
    assert!(matches!(gguf::read(&below_a_file).unwrap_err(), GgufError::Unreadable { .. }));
    assert!(matches!(refusal(b""), GgufError::Empty { .. }));
}

#[cfg(unix)]
#[test]
fn devices_and_files_of_others() {
    use std::os::unix::fs::PermissionsExt;
    assert!(matches!(gguf::read(Path::new("/dev/null")).unwrap_err(), GgufError::NotRegular { .. }));
    let dir = tempfile::tempdir().unwrap();
    let locked = write(dir.path(), "locked.gguf", &small().bytes());
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    match gguf::read(&locked) {
        // A privileged user reads it anyway.
        Ok(model) => assert_eq!(model.tensors.len(), 5),
        Err(e) => assert!(matches!(e, GgufError::Unreadable { .. }), "{e}"),
    }
}

#[test]
fn files_of_another_kind() {
    let text = refusal(b"PK\x03\x04 zip").to_string();
    assert!(text.contains("PK\\x03\\x04") && text.contains("50 4b 03 04"), "{text}");
    assert!(matches!(refusal(b"x"), GgufError::NotGguf { .. }));
    for version in [0, 1, 4, 99, 0x0300_0000] {
        let error = refusal(&Writer { version, ..small() }.bytes());
        assert!(matches!(error, GgufError::Version { found, .. } if found == version), "{error}");
    }
}

#[test]
fn every_truncation_is_named() {
    let file = small();
    let bytes = file.bytes();
    let header = file.header().len();
    for len in 1..header {
        let error = refusal(&bytes[..len]);
        let GgufError::Truncated { offset, needs, file_len, ref place, .. } = error else {
            panic!("{len}: {error}")
        };
        assert!(file_len == len as u64 && offset + needs > file_len, "{error}");
        if len > 24 {
            assert!(place.starts_with("metadata pair") || place.starts_with("tensor table"), "{error}");
        }
    }
    for len in header..bytes.len() {
        match gguf::read(&write(tempfile::tempdir().unwrap().path(), "m", &bytes[..len])) {
            Err(GgufError::DataTruncated { tensor, offset, len: needs, file_len, .. }) => {
                assert!(file_len == len as u64 && offset + needs > file_len);
                let model = file.tensors.iter().find(|t| t.0 == tensor).unwrap();
                assert_eq!(model.3, needs);
            }
            // Only padding after the last tensor is missing.
            Ok(_) => assert!(bytes.len() - len <= 8),
            Err(e) => panic!("{len}: {e}"),
        }
    }
    let error = refusal(&bytes[..bytes.len() - 100]).to_string();
    assert!(error.contains("`blk.1.ffn_gate_exps.weight`") && error.contains("216"), "{error}");
}

#[test]
fn absurd_counts_and_lengths() {
    let cases = [
        Writer { tensor_count: Some(u64::MAX), ..small() },
        Writer { tensor_count: Some(1 << 62), ..small() },
        Writer { pair_count: Some(u64::MAX), ..small() },
        Writer { pair_count: Some(1 << 40), ..small() },
        small().pair("s", 8, &u64::MAX.to_le_bytes()),
        small().pair("s", 8, &(1u64 << 40).to_le_bytes()),
        small().pair("a", 9, &[&8u32.to_le_bytes()[..], &(1u64 << 30).to_le_bytes()].concat()),
        small().pair("a", 9, &[&10u32.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat()),
        small().tensor(&"n".repeat(64), &[32], F32, 128),
        small().tensor("t", &[1 << 63], F32, 0),
    ];
    for case in cases {
        let error = refusal(&case.bytes());
        assert!(matches!(error, GgufError::Absurd { .. }), "{error}");
    }
    // Plausible numbers, but more than the file holds.
    for case in [
        Writer { tensor_count: Some(6), ..small() },
        small().pair("s", 8, &(1u64 << 20).to_le_bytes()),
        small().pair("a", 9, &[&10u32.to_le_bytes()[..], &(1u64 << 20).to_le_bytes()].concat()),
    ] {
        let error = refusal(&case.header());
        assert!(matches!(error, GgufError::Truncated { .. }), "{error}");
    }
}

#[test]
fn claimed_arrays_cost_no_memory() {
    // A sparse file of 8 GiB would let ggml's reader allocate 32 GiB for a claimed array of 2^30
    // strings.
    let dir = tempfile::tempdir().unwrap();
    let header = Writer { pair_count: Some(1), ..Writer::new() }
        .pair("a", 9, &[&8u32.to_le_bytes()[..], &(1u64 << 30).to_le_bytes()].concat())
        .header();
    let path = write(dir.path(), "m.gguf", &header);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 30).unwrap();
    assert!(matches!(gguf::read(&path).unwrap_err(), GgufError::Absurd { value, .. } if value == 1 << 30));
}

#[test]
fn nonsense_in_the_header() {
    let malformed = [
        small().pair("k", 13, &[0; 8]),
        small().pair("k", 9, &[&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat()),
        small().tensor("", &[32], F32, 128),
        small().tensor("a\0b", &[32], F32, 128),
        small().tensor("t", &[2, 2, 2, 2, 2], F32, 128),
    ];
    for case in malformed {
        let error = refusal(&case.bytes());
        assert!(matches!(error, GgufError::Malformed { .. }), "{error}");
    }
    for ty in [4, 5, 43, 0x7fff_ffff, u32::MAX] {
        let error = refusal(&small().tensor("strange", &[32], ty, 128).bytes());
        assert!(
            matches!(&error, GgufError::UnknownType { tensor, ty: t, .. } if tensor == "strange" && *t == ty),
            "{error}"
        );
    }
    let nameless = Writer::new().u32("general.architecture", 1).tensor("t", &[32], F32, 128);
    assert!(matches!(refusal(&nameless.bytes()), GgufError::NoArchitecture { .. }));
    let error = refusal(&small().tensor("flat", &[32, 0], F32, 0).bytes());
    assert!(matches!(&error, GgufError::ZeroDim { tensor, dim: 1, .. } if tensor == "flat"), "{error}");
    let error = refusal(&small().tensor("blk.2.ffn_up_exps.weight", &[32, 1, 3], Q4_0, 54).bytes());
    assert!(matches!(&error, GgufError::ExpertSplit { bytes: 54, experts: 4, .. }), "{error}");
}

#[test]
fn the_readers_own_words_are_passed_on() {
    let refused = |file: Writer| match refusal(&file.bytes()) {
        GgufError::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    };
    let twice = refused(small().tensor("token_embd.weight", &[32], F32, 128));
    assert!(twice.contains("duplicate tensor name 'token_embd.weight'"), "{twice}");
    let key = refused(small().u32("a.flag", 1));
    assert!(key.contains("duplicate key 'a.flag'"), "{key}");
    let block = refused(small().tensor("odd", &[33], Q4_0, 18));
    assert!(block.contains("'odd'") && block.contains("block size"), "{block}");
    let alignment = refused(small().u32("general.alignment", 24));
    assert!(alignment.contains("not a power of 2"), "{alignment}");
    let huge = refused(small().tensor("huge", &[1 << 40, 1 << 40], F32, 0));
    assert!(huge.contains("'huge'"), "{huge}");
    let mut gap = small();
    gap.tensors[1].3 = 4096;
    let gap = refused(gap);
    assert!(gap.contains("offset"), "{gap}");
}

/// Shard `number` (from 0) of `count`, with two tensors.
fn shard(number: u16, count: u16, total: u32) -> Writer {
    let mut file = Writer::new();
    if number == 0 {
        file = file.str("general.architecture", "llama").str("general.name", "one");
    }
    file.u16("split.no", number)
        .u16("split.count", count)
        .pair("split.tensors.count", 5, &total.to_le_bytes())
        .tensor(&format!("blk.{number}.attn_q.weight"), &[32, 2], F32, 256)
        .tensor(&format!("blk.{number}.attn_k.weight"), &[32, 2], F32, 256)
}

fn split(dir: &Path, shards: &[Writer]) -> Vec<PathBuf> {
    let count = shards.len();
    let name = |i| format!("m-{:05}-of-{count:05}.gguf", i + 1);
    shards.iter().enumerate().map(|(i, s)| write(dir, &name(i), &s.bytes())).collect()
}

#[test]
fn split_models() {
    let dir = tempfile::tempdir().unwrap();
    let paths = split(dir.path(), &[shard(0, 3, 6), shard(1, 3, 6), shard(2, 3, 6)]);
    let model = gguf::read(&paths[0]).unwrap();
    assert_eq!(model.shards.iter().map(|s| s.path.clone()).collect::<Vec<_>>(), paths);
    assert_eq!(model.tensors.len(), 6);
    let last = model.tensor("blk.2.attn_k.weight").unwrap();
    assert_eq!(
        last.extent,
        Extent { file: FileIndex(2), offset: model.shards[2].data_offset + 256, len: 256 }
    );
    assert_eq!(model.architecture(), "llama");

    let error = gguf::read(&paths[1]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, GgufError::NotFirstShard { number: 2, count: 3, .. }), "{text}");
    assert!(text.ends_with(paths[0].to_str().unwrap()), "{text}");

    fs::remove_file(&paths[2]).unwrap();
    let error = one_line(gguf::read(&paths[0]).unwrap_err(), &paths[2]);
    assert!(matches!(error, GgufError::MissingShard { number: 3, count: 3, .. }), "{error}");

    let renamed = dir.path().join("renamed.gguf");
    fs::copy(&paths[0], &renamed).unwrap();
    assert!(matches!(gguf::read(&renamed).unwrap_err(), GgufError::ShardName { count: 3, .. }));
}

#[test]
fn shards_of_two_models() {
    let read = |shards: &[Writer]| {
        let dir = tempfile::tempdir().unwrap();
        let paths = split(dir.path(), shards);
        let error = gguf::read(&paths[0]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("m-0000") && !text.contains('\n'), "{text}");
        error
    };
    let differing = |error: GgufError| match error {
        GgufError::ForeignShard { key, .. } => key,
        other => panic!("{other}"),
    };
    assert_eq!(differing(read(&[shard(0, 2, 4), shard(0, 2, 4)])), "split.no");
    assert_eq!(differing(read(&[shard(0, 2, 4), shard(1, 3, 4)])), "split.count");
    assert_eq!(differing(read(&[shard(0, 2, 4), shard(1, 2, 9)])), "split.tensors.count");
    let other = shard(1, 2, 4).str("general.name", "two");
    assert_eq!(differing(read(&[shard(0, 2, 4), other])), "general.name");
    let other = shard(1, 2, 4).str("general.architecture", "qwen3");
    assert_eq!(differing(read(&[shard(0, 2, 4), other])), "general.architecture");
    let plain = Writer::new().tensor("x", &[32], F32, 128);
    assert_eq!(differing(read(&[shard(0, 2, 4), plain])), "split.no");

    let overlap = shard(1, 2, 5).tensor("blk.0.attn_q.weight", &[32], F32, 128);
    assert!(matches!(read(&[shard(0, 2, 5), overlap]), GgufError::DuplicateTensor { .. }));
    let extra = shard(1, 2, 4).tensor("extra", &[32], F32, 128);
    assert!(matches!(read(&[shard(0, 2, 4), extra]), GgufError::TensorCount { found: 5, expected: 4, .. }));
    // A bad shard is reported under its own name.
    let broken = Writer { version: 9, ..shard(1, 2, 4) };
    assert!(
        matches!(read(&[shard(0, 2, 4), broken]), GgufError::Version { path, .. } if path.ends_with("m-00002-of-00002.gguf"))
    );
}

/// Reads damaged bytes: whatever comes back must be consistent with the file.
fn survives(path: &Path, bytes: &[u8]) -> bool {
    fs::write(path, bytes).expect("a temporary directory is writable");
    match gguf::read(path) {
        Ok(model) => {
            for tensor in &model.tensors {
                assert!(
                    tensor.extent.end() <= bytes.len() as u64,
                    "{} lies outside of the file",
                    tensor.name
                );
                assert!(tensor.shape.elements() > 0);
            }
            true
        }
        Err(e) => {
            let text = e.to_string();
            assert!(!text.contains('\n'), "{text}");
            false
        }
    }
}

#[test]
fn every_byte_of_a_header_may_be_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    // Without the long array, whose bytes are all the same.
    let mut file = small();
    file.pairs.pop();
    let good = file.bytes();
    let mut refused = 0;
    for at in 0..file.header().len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 4] {
            let mut bytes = good.clone();
            bytes[at] = value;
            refused += usize::from(!survives(&path, &bytes));
        }
    }
    assert!(refused > 500, "only {refused} damaged headers were refused");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_damage(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u32..64), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let file = small();
        let header = file.header().len();
        let mut bytes = file.bytes();
        for (at, value) in flips {
            bytes[at.index(header)] = value;
        }
        for (at, value, shift) in words {
            let at = at.index(header - 8);
            bytes[at..at + 8].copy_from_slice(&(value >> shift).to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        survives(&dir.path().join("m.gguf"), &bytes);
    }
}
