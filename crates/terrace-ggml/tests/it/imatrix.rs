//! Importance files in llama.cpp's newer format, and broken ones.

use std::fs;
use std::path::Path;
use tempfile::TempDir;
use terrace_ggml::gguf::write::Header;
use terrace_ggml::quantize::WeightType;
use terrace_ggml::quantize::imatrix::Imatrix;
use terrace_model::Shape;

/// Tensors of F32: name, shape, values.
type Tensors<'a> = &'a [(&'a str, [u64; 2], &'a [f32])];

fn write(path: &Path, metadata: bool, tensors: Tensors<'_>) {
    let mut header = Header::new();
    if metadata {
        header.set("imatrix.datasets", vec!["wiki.txt".to_owned()]).unwrap();
        header.set("imatrix.chunk_count", 17u32).unwrap();
        header.set("imatrix.chunk_size", 512u32).unwrap();
    }
    for (name, [columns, rows], _) in tensors {
        header.add_tensor(name, WeightType::F32, Shape([*columns, *rows, 1, 1])).unwrap();
    }
    let mut bytes = header.to_bytes();
    for (_, _, values) in tensors {
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn sums_become_means() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("imatrix.gguf");
    let tensors: Tensors<'_> = &[
        ("blk.0.ffn_up_exps.weight.in_sum2", [2, 3], &[2.0, 4.0, 5.0, 5.0, 9.0, 0.0]),
        ("blk.0.ffn_up_exps.weight.counts", [1, 3], &[2.0, 0.0, 3.0]),
        ("output.weight.in_sum2", [2, 1], &[8.0, 2.0]),
        ("output.weight.counts", [1, 1], &[4.0]),
    ];
    write(&file, true, tensors);
    let imatrix = Imatrix::read(&file).unwrap();
    assert_eq!(imatrix.len(), 2);
    assert_eq!(imatrix.get("blk.0.ffn_up_exps.weight").unwrap(), [1.0, 2.0, 1.0, 1.0, 3.0, 0.0]);
    assert_eq!(imatrix.get("output.weight").unwrap(), [2.0, 0.5]);
    assert_eq!(imatrix.get("output"), None);
    assert_eq!((imatrix.datasets.as_slice(), imatrix.chunks), (&["wiki.txt".to_owned()][..], Some(17)));
}

#[test]
fn what_is_no_importance_matrix_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("imatrix.gguf");
    let refused = |metadata, tensors: Tensors<'_>, reason: &str| {
        write(&file, metadata, tensors);
        let error = Imatrix::read(&file).unwrap_err().to_string();
        assert!(error.contains("imatrix.gguf") && error.contains(reason), "{error}");
    };
    let whole: Tensors<'_> = &[("a.in_sum2", [2, 1], &[1.0, 1.0]), ("a.counts", [1, 1], &[1.0])];
    refused(false, whole, "imatrix.datasets");
    refused(true, &[], "no entries");
    refused(true, &whole[..1], "sums but no counts");
    refused(true, &whole[1..], "counts but no sums");
    refused(true, &[whole[0], ("a.counts", [3, 1], &[1.0, 1.0, 1.0])], "2 sums for 3 matrices");
    refused(true, &[("a.in_sum2", [2, 1], &[1.0, -1.0]), whole[1]], "-1 is not a sum");
    refused(true, &[whole[0], ("a.counts", [1, 1], &[f32::INFINITY])], "inf is not a sum");

    // A name that would be another line, or more than text to a terminal.
    refused(true, &[("a\n\u{1b}[2J.in_sum2", [2, 1], &[1.0, 1.0])], "invalid tensor name `a\\n\\u{1b}[2J");

    // Truncated anywhere, it gives an error.
    write(&file, true, whole);
    let bytes = fs::read(&file).unwrap();
    for len in (0..bytes.len()).step_by(7) {
        fs::write(&file, &bytes[..len]).unwrap();
        // After the last tensor comes only padding.
        if len + 32 < bytes.len() {
            assert!(Imatrix::read(&file).is_err(), "{len} of {}", bytes.len());
        }
    }
}
