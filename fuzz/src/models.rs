//! A model and a machine that exist only as descriptions.

use std::collections::BTreeMap;
use terrace_model::{
    ByteSize, Extent, FileIndex, MetaValue, ModelFile, Shape, Shard, TensorInfo, TensorType,
};
use terrace_plan::MachineProfile;
use terrace_plan::machine::DeviceProfile;

type Type = (u32, &'static str, u32, u32);
const F32: Type = (0, "f32", 1, 4);
const Q4_K: Type = (12, "q4_K", 256, 144);

/// Layers of [`model`].
const LAYERS: u64 = 3;

/// A model of three layers with eight experts each, 120 MiB in all.
pub fn model() -> ModelFile {
    let number = |n| MetaValue::U64(n);
    let metadata = BTreeMap::from([
        ("general.architecture".into(), MetaValue::Str("qwen3moe".into())),
        ("general.name".into(), MetaValue::Str("fuzz".into())),
        ("qwen3moe.block_count".into(), number(LAYERS)),
        ("qwen3moe.embedding_length".into(), number(1024)),
        ("qwen3moe.attention.head_count".into(), number(8)),
        ("qwen3moe.attention.head_count_kv".into(), number(2)),
        ("qwen3moe.context_length".into(), number(4096)),
        ("qwen3moe.expert_count".into(), number(8)),
        ("qwen3moe.expert_used_count".into(), number(2)),
    ]);
    let mut model =
        ModelFile { shards: vec![], version: 3, alignment: 32, metadata, tensors: vec![], mtp: None };
    add(&mut model, "token_embd.weight", [1024, 8192, 1], Q4_K);
    for layer in 0..LAYERS {
        let mut of_layer = |name: &str, dims, ty| add(&mut model, &format!("blk.{layer}.{name}"), dims, ty);
        of_layer("attn_norm.weight", [1024, 1, 1], F32);
        of_layer("attn_q.weight", [1024, 1024, 1], Q4_K);
        of_layer("attn_k.weight", [1024, 256, 1], Q4_K);
        of_layer("attn_v.weight", [1024, 256, 1], Q4_K);
        of_layer("attn_output.weight", [1024, 1024, 1], Q4_K);
        of_layer("ffn_norm.weight", [1024, 1, 1], F32);
        of_layer("ffn_gate_inp.weight", [1024, 8, 1], F32);
        for role in ["gate", "up"] {
            of_layer(&format!("ffn_{role}_exps.weight"), [1024, 2048, 8], Q4_K);
        }
        of_layer("ffn_down_exps.weight", [2048, 1024, 8], Q4_K);
    }
    add(&mut model, "output_norm.weight", [1024, 1, 1], F32);
    add(&mut model, "output.weight", [1024, 8192, 1], Q4_K);
    let len = model.tensors.last().map_or(0, |tensor| tensor.extent.end());
    model.shards.push(Shard { path: "fuzz.gguf".into(), len, data_offset: 4096 });
    model
}

fn add(model: &mut ModelFile, name: &str, [a, b, c]: [u64; 3], (id, ty, block_elements, block_bytes): Type) {
    let offset = model.tensors.last().map_or(4096, |last| last.extent.end().next_multiple_of(32));
    let shape = Shape([a, b, c, 1]);
    let len = shape.elements() / u64::from(block_elements) * u64::from(block_bytes);
    model.tensors.push(TensorInfo {
        name: name.into(),
        ty: TensorType { id, name: ty.into(), block_elements, block_bytes },
        shape,
        extent: Extent { file: FileIndex(0), offset, len },
    });
}

/// A machine with so little memory that [`model`] has to stream, and one device.
pub fn machine() -> MachineProfile {
    let mut machine = MachineProfile::unmeasured("fuzz", 4, ByteSize::mib(700), ByteSize::mib(600));
    machine.devices.push(DeviceProfile {
        name: "device0".into(),
        memory_total: ByteSize::mib(400),
        memory_free: ByteSize::mib(300),
        ..DeviceProfile::default()
    });
    machine
}

/// Checks what a model from a file must be like, whatever its bytes were: every tensor lies within
/// its file.
///
/// # Panics
/// It is not like that.
pub fn file_model(model: &ModelFile) {
    for tensor in &model.tensors {
        let shard = &model.shards[tensor.extent.file.index()];
        assert!(tensor.extent.end() <= shard.len, "{} is outside of its file", tensor.name);
        assert!(shard.data_offset <= tensor.extent.offset, "{} is in the header", tensor.name);
        let (elements, per_block) = (tensor.shape.elements(), u64::from(tensor.ty.block_elements));
        assert_eq!(
            elements / per_block * u64::from(tensor.ty.block_bytes),
            tensor.extent.len,
            "{}",
            tensor.name
        );
    }
    let all: u64 = model.tensors.iter().map(|tensor| tensor.extent.len).sum();
    let files: u64 = model.shards.iter().map(|shard| shard.len).sum();
    assert!(all <= files, "tensors of {all} bytes in files of {files}");
}
