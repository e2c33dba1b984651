use super::*;
use crate::base_logits::layout::Layout;
use std::fs;
use tempfile::TempDir;

const VOCAB: usize = 5;
const LAYOUT: Layout = Layout { chunks: Chunks { context: 8, count: 2 }, vocab: VOCAB };
const TOKENS: [i32; 18] = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2];

/// Logits of all scored positions of both chunks.
fn logits() -> Vec<f32> {
    (0..6 * VOCAB).map(|i| ((i * 7) % 11) as f32 - 5.0).collect()
}

fn written(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("base");
    let file = LogitsFile::create(&path).unwrap();
    let bytes = file
        .fill(LAYOUT.chunks, VOCAB, &TOKENS, |rows| {
            // In pieces, as graphs deliver them.
            rows.write(&logits()[..2 * VOCAB], 2)?;
            rows.write(&logits()[2 * VOCAB..], 3)
        })
        .map_err(|error: BaseLogitsError| error)
        .unwrap();
    assert_eq!(u128::from(bytes), LAYOUT.bytes());
    path
}

#[test]
fn what_is_written_is_read_from_the_file_and_from_memory() {
    let dir = TempDir::new().unwrap();
    let path = written(&dir);
    let bytes = fs::read(&path).unwrap();
    // Header, tokens, 2 chunks of 3 rows of 4 + 6 words.
    assert_eq!(bytes.len(), 20 + 16 * 4 + 2 * 3 * 10 * 2);
    assert_eq!(&bytes[..20], b"_logits_\x08\0\0\0\x05\0\0\0\x02\0\0\0");

    let mut base = BaseLogits::open(&path).unwrap();
    assert_eq!((base.context(), base.chunks(), base.vocab()), (8, 2, 5));
    assert_eq!(base.tokens()[..], TOKENS[..16]);
    let levels = |base: &mut BaseLogits| -> Vec<Vec<u16>> {
        let mut all = Vec::new();
        // Not in order, and one twice.
        for chunk in [1, 0, 0] {
            all.extend(base.chunk(chunk).unwrap().iter().map(|row| row.levels().to_vec()));
        }
        all
    };
    let from_file = levels(&mut base);
    assert_eq!(from_file.len(), 9);
    assert_ne!(from_file[0], from_file[3]);
    assert_eq!(from_file[3..6], from_file[6..]);
    assert!(!base.keep_in_memory(ByteSize(119)).unwrap());
    assert!(base.keep_in_memory(ByteSize(120)).unwrap());
    // The file may be removed once everything is in memory.
    fs::remove_file(&path).unwrap();
    assert_eq!(levels(&mut base), from_file);
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("base");
    fs::write(&path, "_logits_before").unwrap();
    let file = LogitsFile::create(&path).unwrap();
    let stop = || BaseLogitsError { path: PathBuf::new(), fault: BaseLogitsFault::Magic };
    let error = file.fill(LAYOUT.chunks, VOCAB, &TOKENS, |_| Err(stop())).unwrap_err();
    assert!(matches!(error.fault, BaseLogitsFault::Magic), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "_logits_before");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(LogitsFile::create(&dir.path().join("no/where")).unwrap_err().to_string().contains("where"));
}

/// The file with some bytes changed, cut to `len`.
fn damaged(change: &[(usize, &[u8])], len: Option<usize>) -> BaseLogitsError {
    let dir = TempDir::new().unwrap();
    let path = written(&dir);
    let mut bytes = fs::read(&path).unwrap();
    for (at, with) in change {
        bytes[*at..*at + with.len()].copy_from_slice(with);
    }
    bytes.resize(len.unwrap_or(bytes.len()), 0);
    fs::write(&path, bytes).unwrap();
    match BaseLogits::open(&path) {
        Err(error) => error,
        Ok(mut base) => base.chunk(1).map(|_| ()).expect_err("it is damaged"),
    }
}

#[test]
fn damaged_files_are_refused_with_the_numbers() {
    let says = |change: &[(usize, &[u8])], len, expected: &str| {
        let error = damaged(change, len).to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
    };
    says(&[(0, b"_LOGITS_")], None, "does not begin with `_logits_`");
    says(&[], Some(5), "does not begin with `_logits_`");
    says(&[], Some(15), "failed to fill whole buffer");
    says(&[(8, &[3])], None, "invalid chunk length 3 at byte offset 8");
    says(&[(12, &(-5_i32).to_le_bytes())], None, "invalid vocabulary size -5 at byte offset 12");
    says(&[(16, &[0])], None, "invalid number of chunks 0 at byte offset 16");
    says(&[], Some(203), "203 bytes, but 2 chunks of 8 tokens over 5 vocabulary entries take 204");
    says(&[], Some(205), "205 bytes, but");
    // Sizes that no file could have allocate nothing.
    let most = i32::MAX.to_le_bytes();
    says(&[(8, &most), (12, &most), (16, &most)], None, "take 9903520");
    says(
        &[(20 + 4 * 3, &[5])],
        None,
        "token 5 at position 3 (byte offset 32) is outside the vocabulary of 5",
    );
    says(&[(20, &[255; 4])], None, "token -1 at position 0");
    // The second row of the second chunk.
    let at = 20 + 64 + 4 * 20;
    says(&[(at, &f32::NAN.to_le_bytes())], None, "in row 1 of chunk 1 (byte offset 164)");
}

#[test]
fn another_use_is_refused_with_the_numbers() {
    let dir = TempDir::new().unwrap();
    let base = BaseLogits::open(&written(&dir)).unwrap();
    let check = |vocab, text: &[i32], context, chunks| {
        base.chunks_of(text, vocab, &PerplexityOptions { context, chunks })
            .map_err(|error| error.to_string().replace(&dir.path().display().to_string(), ""))
    };
    assert_eq!(check(5, &TOKENS, 8, None), Ok(Chunks { context: 8, count: 2 }));
    assert_eq!(check(5, &TOKENS[..9], 8, Some(1)), Ok(Chunks { context: 8, count: 1 }));
    assert_eq!(check(5, &TOKENS, 8, Some(3)), Ok(Chunks { context: 8, count: 2 }), "no more than there are");
    let refused = |result: Result<Chunks, String>, expected: &str| {
        let error = result.unwrap_err();
        assert_eq!(error, format!("base logits /base: {expected}"));
    };
    refused(check(6, &TOKENS, 8, None), "made with a vocabulary of 5, but the model has 6");
    refused(check(5, &TOKENS, 9, None), "made with chunks of 8 tokens, not 9");
    refused(check(5, &TOKENS[..15], 8, None), "made from a longer text: 16 tokens, but the text has only 15");
    let mut other = TOKENS;
    other[9] = 1;
    refused(check(5, &other, 8, None), "made from a different text: token 9 is 4 in the file, but 1 here");
    assert!(check(5, &other, 8, Some(1)).is_ok());
}
