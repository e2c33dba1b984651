//! Models of all architectures of the release.

use terrace_testkit::released::{Released, architectures};

#[test]
fn most_architectures_are_made_from_metadata_alone_and_the_same_seed_makes_the_same_bytes() {
    let all = architectures();
    let made: Vec<Released> = all.iter().filter_map(|arch| Released::new(arch, true).ok()).collect();
    assert!(made.len() > 140 && made.len() < all.len(), "{} of {}", made.len(), all.len());
    let experts = made.iter().filter(|model| model.has_experts()).count();
    assert!(experts > 50, "{experts}");
    let mixtral = made.iter().find(|model| model.arch() == "llama").unwrap();
    let dense = Released::new("llama", false).unwrap();
    assert!(mixtral.has_experts() && !dense.has_experts());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = |seed, other| {
        let path = dir.path().join("model.gguf");
        mixtral.write(&path, seed, other).unwrap();
        std::fs::read(path).unwrap()
    };
    let first = bytes(1, None);
    assert_eq!(first, bytes(1, None));
    assert_ne!(first, bytes(2, None));
    let other = bytes(1, Some(("blk.0.attn_q.weight", 2)));
    let differing = first.chunks(4).zip(other.chunks(4)).filter(|(a, b)| a != b).count();
    assert!((60_000..=65_536).contains(&differing), "{differing} of 256 x 256 values");
}
