//! The statistics of a model with three layers of eight experts.

use super::faded;
use super::file::UsageFile;
use crate::layout::{Cut, Layout};
use crate::observe::usage::ExpertUsage;
use std::path::Path;
use terrace_model::identity::FileIdentity;
use terrace_model::{Extent, FileIndex, LayerId, Shape, TensorInfo, TensorType};

/// Reads statistics whose file has these bytes, adds those of a run, and writes them.
///
/// # Panics
/// What was written cannot be read.
pub fn expert_statistics(dir: &Path, bytes: &[u8]) {
    let identity = FileIdentity { name: "fuzz.gguf".into(), bytes: 1000, header: 7 };
    let tensors: Vec<TensorInfo> = (0..3).map(tensor).collect();
    let layout = Layout::new(tensors.iter().map(|tensor| (tensor, Cut::PerExpert { experts: 8 })));
    let usage = ExpertUsage::new((0..3).map(|layer| (LayerId(layer), 8)), &layout);
    let file = UsageFile::new(dir, identity);
    std::fs::write(file.path(), bytes).expect("a file in a directory of the fuzzer");
    let Ok(before) = file.read(&usage) else { return };
    let after = faded(&before, &usage);
    file.write(after.clone()).expect("it can be written");
    assert_eq!(file.read(&usage).expect("what was written can be read"), after);
}

fn tensor(layer: u32) -> TensorInfo {
    TensorInfo {
        name: format!("blk.{layer}.ffn_up_exps.weight"),
        ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
        shape: Shape([8, 8, 8, 1]),
        extent: Extent { file: FileIndex(0), offset: 0, len: 2048 },
    }
}
