//! What llama.cpp derives from weights when it loads them: copies under the same name (tied heads, factors of
//! rotary embeddings), merged matrices, its own layouts, heads that only drafts use. A tensor that is
//! replaced gives what a fresh load of the file gives, or is refused by name.

use crate::common::{run, stderr, stdout, terrace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_ggml::gguf;
use terrace_ggml::gguf::write::Header;
use terrace_testkit::released::Released;
use terrace_testkit::{MtpReads, WeightType};

const OWN: u64 = 1;
const OTHER: u64 = 2;

fn text(dir: &Path) -> PathBuf {
    let text = dir.join("text.txt");
    fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(40)).unwrap();
    text
}

fn perplexity(dir: &Path, model: &Path) -> Command {
    let mut command = terrace();
    command.arg("perplexity").arg(model).arg("-f").arg(text(dir));
    command.args(["--ctx", "32", "--chunks", "2", "--json"]);
    command
}

/// The JSON objects on stdout, one per line.
fn passes(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Measures the model with each tensor of the files in `donors` that matches.
fn tried(dir: &Path, model: &Path, donors: &Path, pattern: &str, more: &[&str]) -> (Vec<Value>, String) {
    let mut command = perplexity(dir, model);
    let output =
        command.arg("--reload-from").arg(donors).args(["--tensor", pattern]).args(more).output().unwrap();
    (passes(&output), stderr(&output))
}

/// The tensors that were refused, by name.
fn refused(told: &str) -> BTreeSet<String> {
    let start = "hotswap: tensor '";
    let names = told.lines().filter(|line| line.contains("' cannot be hot-swapped: "));
    names.filter_map(|line| line.strip_prefix(start)?.split('\'').next().map(str::to_owned)).collect()
}

/// One tensor of each role, by its name without the layer.
fn one_of_each_role(model: &Path) -> Vec<String> {
    let mut roles = BTreeMap::new();
    for tensor in gguf::read(model).unwrap().tensors {
        let role = terrace_model::split_layer(&tensor.name).map_or(tensor.name.as_str(), |(_, role)| role);
        roles.entry(role.to_owned()).or_insert_with(|| tensor.name.clone());
    }
    roles.into_values().collect()
}

/// Checks one tensor of each role of a model: `write` writes it with another value of a tensor. Returns the
/// names of those that were replaced, and of those that were refused.
fn check(
    dir: &TempDir,
    write: &dyn Fn(&Path, Option<&str>),
    more: &[&str],
) -> (BTreeSet<String>, BTreeSet<String>) {
    let model = dir.path().join("model.gguf");
    write(&model, None);
    let (mut replaced, mut all_refused) = (BTreeSet::new(), BTreeSet::new());
    for tensor in &one_of_each_role(&model) {
        let own = dir.path().join(tensor);
        fs::create_dir(&own).unwrap();
        write(&own.join("d.gguf"), Some(tensor));
        let pattern = format!("^{}$", tensor.replace('.', r"\."));
        let (passes, told) = tried(dir.path(), &model, &own, &pattern, more);
        let refused = refused(&told);
        if refused.contains(tensor) {
            assert_eq!(passes.len(), 1, "{tensor}: {told}");
            all_refused.insert(tensor.clone());
            continue;
        }
        assert_eq!(passes.len(), 3, "{tensor}: {told}");
        assert_eq!(passes[2]["reloaded"]["swapped"][0]["tensor"], tensor.as_str());
        let mut fresh = perplexity(dir.path(), &own.join("d.gguf"));
        let fresh = self::passes(&fresh.args(more).output().unwrap()).remove(0);
        for key in ["perplexity", "running", "error"] {
            assert_eq!(passes[2][key], fresh[key], "{tensor}: not as a fresh load: {told}");
            assert_eq!(passes[1][key], passes[0][key], "{tensor}: the control");
        }
        if fresh["running"] != passes[0]["running"] {
            replaced.insert(tensor.clone());
        }
        fs::remove_dir_all(&own).unwrap();
    }
    (replaced, all_refused)
}

/// Checks a model of an architecture. The named roles must be among those that were replaced, with an effect.
fn architecture(arch: &str, moe: bool, mtp: u32, roles: &[&str], more: &[&str]) -> BTreeSet<String> {
    let dir = TempDir::new().unwrap();
    let released = match mtp {
        0 => Released::new(arch, moe).unwrap(),
        layers => Released::with_mtp(arch, moe, layers, MtpReads::Token).unwrap(),
    };
    let write = |path: &Path, tensor: Option<&str>| {
        released.write(path, OWN, tensor.map(|tensor| (tensor, OTHER))).unwrap();
    };
    let (replaced, refused) = check(&dir, &write, more);
    for role in roles {
        assert!(
            replaced.iter().any(|name| name.contains(role)),
            "{arch}: {role} is not among {replaced:?}; refused: {refused:?}"
        );
    }
    refused
}

#[test]
fn latent_attention_has_no_copy_of_its_keys_and_values() {
    let roles = ["attn_kv_a_mqa", "attn_k_b", "attn_v_b", "attn_kv_a_norm", "ffn_gate_inp", "ffn_down_exps"];
    assert_eq!(architecture("deepseek2", true, 0, &roles, &[]), BTreeSet::new());
}

#[test]
fn merged_matrices_are_those_of_the_file() {
    let roles = ["attn_qkv", "attn_output", "ffn_up_exps", "ffn_gate_inp"];
    assert_eq!(architecture("bailingmoe2", true, 0, &roles, &[]), BTreeSet::new());
    let roles = ["ffn_up.", "ffn_down.", "rope_factors_long"];
    assert_eq!(architecture("phi3", false, 0, &roles, &[]), BTreeSet::new());
}

#[test]
fn biases_and_sinks_of_experts_are_replaced() {
    let roles = ["ffn_gate_exps.bias", "ffn_down_exps.bias", "ffn_up_exps.bias", "attn_sinks", "attn_q.bias"];
    assert_eq!(architecture("gpt-oss", true, 0, &roles, &[]), BTreeSet::new());
}

#[test]
fn factors_and_scales_of_each_layer_are_replaced_together() {
    let roles = ["rope_freqs", "layer_output_scale", "ffn_gate_up_exps"];
    assert_eq!(architecture("gemma4", true, 0, &roles, &[]), BTreeSet::new());
}

/// The layers that predict tokens after the next one are not loaded to measure a model.
#[test]
fn heads_that_only_drafts_use_are_named() {
    let refused = architecture("qwen35moe", true, 1, &["ssm_out", "ffn_down_exps"], &[]);
    assert!(refused.iter().any(|name| name.contains("nextn.eh_proj")), "{refused:?}");
    assert!(refused.iter().all(|name| name.starts_with("blk.2.")), "{refused:?}");
    // Programs read their names after the load.
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("model.gguf");
    Released::with_mtp("qwen35moe", true, 1, MtpReads::Token).unwrap().write(&model, OWN, None).unwrap();
    let output = perplexity(dir.path(), &model).arg("--reload-loop").output().unwrap();
    for tensor in refused {
        let line = format!("model has unused tensor {tensor} (size = ");
        assert!(stderr(&output).contains(&line), "{tensor}: {}", stderr(&output));
    }
}

/// A table that is also the head is two tensors of llama.cpp, or one that is used twice.
#[test]
fn a_table_that_is_the_head_too_is_replaced_in_both_places() {
    let released = Released::new("llama", false).unwrap();
    let dir = TempDir::new().unwrap();
    let write = |path: &Path, tensor: Option<&str>| {
        let whole = path.with_extension("whole");
        released.write(&whole, OWN, tensor.map(|tensor| (tensor, OTHER))).unwrap();
        let args = ["quantize", whole.to_str().unwrap(), path.to_str().unwrap(), "--type", "COPY"];
        let output = run(args.iter().chain(&["--only", "^(token_embd|blk|output_norm|rope)"]));
        assert!(output.status.success(), "{}", stderr(&output));
        fs::remove_file(whole).unwrap();
    };
    let (replaced, refused) = check(&dir, &write, &[]);
    assert!(replaced.contains("token_embd.weight"), "{replaced:?}");
    assert_eq!(refused, BTreeSet::new());
}

#[test]
fn repacked_weights_are_refused_by_name() {
    let refused = architecture("qwen3moe", true, 0, &["attn_norm"], &["--repack"]);
    // Which matrices have a layout of its own depends on their type and the processor.
    for name in refused {
        assert!(name.ends_with(".weight") && !name.contains("norm"), "{name}");
    }
}

/// llama.cpp loads the scale of a head for one type only.
#[test]
fn a_scaled_head_keeps_its_type() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    Released::new("llama", false).unwrap().write(&at("f32.gguf"), OWN, None).unwrap();
    let quantize = |to: &str, ty: &str| {
        let (from, to) = (at("f32.gguf"), at(to));
        let rule = format!(r"^output\.weight={ty}");
        let args = ["quantize", from.to_str().unwrap(), to.to_str().unwrap(), "--type", "COPY"];
        let output = run(args.iter().chain(&["--tensor", rule.as_str()]));
        assert!(output.status.success(), "{}", stderr(&output));
    };
    quantize("nvfp4.gguf", "nvfp4");
    with_scale(&at("nvfp4.gguf"), &at("scaled.gguf"));
    fs::create_dir(at("donors")).unwrap();
    quantize("donors/f16.gguf", "f16");
    let (passes, told) = tried(dir.path(), &at("scaled.gguf"), &at("donors"), r"^output\.weight$", &[]);
    // The copy has its type.
    assert_eq!(passes.len(), 2, "{told}");
    assert!(refused(&told).contains("output.weight") && told.contains("output.scale"), "{told}");
    // Without the scale it may have any type.
    let (passes, told) = tried(dir.path(), &at("nvfp4.gguf"), &at("donors"), r"^output\.weight$", &[]);
    assert_eq!((passes.len(), refused(&told)), (3, BTreeSet::new()), "{told}");
}

/// Writes a copy of a model with a scale for its head.
fn with_scale(from: &Path, to: &Path) {
    let model = gguf::read(from).unwrap();
    let bytes = fs::read(from).unwrap();
    let mut header = Header::new();
    header.copy_metadata(from).unwrap();
    for tensor in &model.tensors {
        header.add_tensor_of(&tensor.name, &tensor.ty, tensor.shape).unwrap();
    }
    let scale =
        header.add_tensor("output.scale", WeightType::F32, terrace_model::Shape([1, 1, 1, 1])).unwrap();
    let mut out = fs::File::create(to).unwrap();
    out.write_all(&header.to_bytes()).unwrap();
    let mut data = Vec::new();
    let mut put = |index: usize, tensor: &[u8]| {
        data.resize(usize::try_from(header.tensor_offset(index)).unwrap(), 0);
        data.extend(tensor);
    };
    for (index, tensor) in model.tensors.iter().enumerate() {
        let [begin, len] = [tensor.extent.offset, tensor.extent.len].map(|n| usize::try_from(n).unwrap());
        put(index, &bytes[begin..begin + len]);
    }
    put(scale, &2.0f32.to_le_bytes());
    data.resize(data.len().next_multiple_of(32), 0);
    out.write_all(&data).unwrap();
}
