use super::*;
use crate::layout::{Cut, Layout};
use std::fs::{self, File};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use terrace_model::{Extent, FileIndex, LayerId, Shape, TensorInfo, TensorType};
use terrace_store::model_cache::MAX_MODELS;

fn identity(name: &str) -> FileIdentity {
    FileIdentity { name: name.into(), bytes: 1000, header: 7 }
}

/// Layers 1 and 2 with four experts each.
fn shape() -> ExpertUsage {
    let tensor = |layer: u32| TensorInfo {
        name: format!("blk.{layer}.ffn_up_exps.weight"),
        ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
        shape: Shape([8, 8, 4, 1]),
        extent: Extent { file: FileIndex(0), offset: 0, len: 1024 },
    };
    let tensors = [tensor(1), tensor(2)];
    let layout = Layout::new(tensors.iter().map(|t| (t, Cut::PerExpert { experts: 4 })));
    ExpertUsage::new([(LayerId(1), 4), (LayerId(2), 4)], &layout)
}

fn layer(layer: u32, counts: [u64; 4]) -> LayerCounts {
    LayerCounts { layer, counts: counts.into() }
}

#[test]
fn statistics_read_back_per_model() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("new/experts");
    let file = UsageFile::new(&at, identity("a b/c.gguf"));
    assert_eq!(file.path(), at.join("a_b_c-3e8-00000007.json"));
    assert_eq!(file.read(&shape()).unwrap(), []);
    let layers = vec![layer(1, [0, 1, 2, u64::MAX]), layer(2, [5, 0, 0, 0])];
    file.write(layers.clone()).unwrap();
    assert_eq!(file.read(&shape()).unwrap(), layers);
    let others = [
        FileIdentity { bytes: 1001, ..identity("a b/c.gguf") },
        FileIdentity { header: 8, ..identity("a b/c.gguf") },
        identity("c.gguf"),
    ];
    for other in others {
        assert_eq!(UsageFile::new(&at, other).read(&shape()).unwrap(), []);
    }
    // Layers that this run does not manage are left out.
    file.write(vec![layer(9, [1; 4]), layer(2, [3; 4])]).unwrap();
    assert_eq!(file.read(&shape()).unwrap(), [layer(2, [3; 4])]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn files_that_are_not_ours_are_refused_by_name_and_replaced() {
    let dir = TempDir::new().unwrap();
    let file = UsageFile::new(dir.path(), identity("m.gguf"));
    let layers = vec![layer(1, [1, 2, 3, 4])];
    file.write(layers.clone()).unwrap();
    let good = fs::read_to_string(file.path()).unwrap();
    let broken = [
        String::new(),
        "{".into(),
        "[1]".into(),
        good[..good.len() / 2].to_owned(),
        good.replace(KIND.format, "other"),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("\"header\":7", "\"header\":8"),
        good.replace("m.gguf", "n.gguf"),
        good.replace("[1,2,3,4]", "[1,2,3]"),
        good.replace("[1,2,3,4]", "[1,2,3,-4]"),
        good.replace("[1,2,3,4]", "[1,2,3,4e99]"),
        good.replace("[1,2,3,4]}", "[1,2,3,4]},{\"layer\":1,\"counts\":[1,2,3,4]}"),
        format!("{good}{}", " ".repeat(MAX_FILE as usize)).replace("}]}", ""),
    ];
    for text in broken {
        assert_ne!(text, good);
        fs::write(file.path(), &text).unwrap();
        let error = file.read(&shape()).unwrap_err().to_string();
        assert!(error.contains("m-3e8-00000007.json: "), "{error}");
        file.write(layers.clone()).unwrap();
        assert_eq!(file.read(&shape()).unwrap(), layers);
    }
    fs::write(file.path(), [0xff, 0xfe]).unwrap();
    file.read(&shape()).unwrap_err();
    fs::remove_file(file.path()).unwrap();
    fs::create_dir(file.path()).unwrap();
    file.read(&shape()).unwrap_err();
    file.write(layers).unwrap_err();
}

#[test]
fn the_directory_and_its_files_stay_small() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("mine.txt"), "stays").unwrap();
    for model in 0..MAX_MODELS as u64 + 6 {
        let file = UsageFile::new(dir.path(), identity(&format!("{model}.gguf")));
        file.write(vec![layer(1, [model; 4])]).unwrap();
        // Distinct times, whatever the clock's resolution.
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + model);
        File::options().write(true).open(file.path()).unwrap().set_modified(at).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MAX_MODELS + 1);
    let read = |n: u32| UsageFile::new(dir.path(), identity(&format!("{n}.gguf"))).read(&shape()).unwrap();
    assert_eq!((read(5), read(6)), (vec![], vec![layer(1, [6; 4])]));

    let file = UsageFile::new(dir.path(), identity("large.gguf"));
    let many = LayerCounts { layer: 1, counts: vec![u64::MAX; 300_000] };
    assert!(file.write(vec![many]).unwrap_err().to_string().contains("too many"));
    assert_eq!(file.read(&shape()).unwrap(), []);
}
