//! The result, for people and for programs.

use super::QuantizeArgs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use terrace_cli::error::CliError;
use terrace_model::ByteSize;
use terrace_quantize::{Fit, QuantizeOptions, QuantizePlan, Written};

/// A table of types, and the size; before that, each tensor if `each`.
pub fn text(
    plan: &QuantizePlan,
    written: Option<&Written>,
    fit: Option<&Fit>,
    each: bool,
) -> Result<String, CliError> {
    let mut out = String::new();
    if each {
        for tensor in plan.tensors() {
            let change = match tensor.to {
                Some(ty) => format!("{} -> {}", tensor.from.ty.name, ty.name()),
                None => tensor.from.ty.name.clone(),
            };
            let _ = writeln!(out, "{:<40} {change:<18} {:>12}", tensor.from.name, tensor.size.to_string());
        }
        out.push('\n');
    }
    let mut types: BTreeMap<&str, (usize, ByteSize)> = BTreeMap::new();
    for tensor in plan.tensors() {
        let (count, size) = types.entry(tensor.ty()).or_default();
        *count += 1;
        *size += tensor.size;
    }
    let mut types: Vec<_> = types.into_iter().collect();
    types.sort_by_key(|&(_, (_, size))| std::cmp::Reverse(size));
    let _ = writeln!(out, "{:<8} {:>8} {:>12}", "type", "tensors", "size");
    for (ty, (count, size)) in types {
        let _ = writeln!(out, "{ty:<8} {count:>8} {:>12}", size.to_string());
    }
    let _ = write!(out, "\n{} -> {}, {:.3} bits per weight", plan.old_size(), plan.new_size(), bits(plan));
    if let Some(Fit { error, .. }) = fit {
        let _ = write!(
            out,
            "\nmean error of the matrices: {:.3} %, by a sample of their rows",
            error.sqrt() * 100.0
        );
    }
    let _ = match written {
        Some(Written { path, files, size, seconds }) => {
            let files = if *files == 1 { String::new() } else { format!(" and {} more", files - 1) };
            write!(out, "\nwritten in {seconds:.1} s: {}{files}, {size}", path.display())
        }
        None => write!(out, "\nwould be a file of {}", plan.file_size()?),
    };
    Ok(out)
}

/// Everything in one JSON object.
pub fn json(
    args: &QuantizeArgs,
    options: &QuantizeOptions,
    plan: &QuantizePlan,
    written: Option<&Written>,
    fit: Option<&Fit>,
) -> Result<Value, CliError> {
    let tensors = plan.tensors().iter().map(|tensor| {
        json!({ "name": tensor.from.name, "from": tensor.from.ty.name, "to": tensor.ty(), "bytes": tensor.size.bytes() })
    });
    Ok(json!({
        "model": options.input,
        "type": options.file_type.name(),
        "fit_bytes": args.fit.map(ByteSize::bytes),
        "matrix_error": fit.map(|fit| fit.error.sqrt()),
        "out": written.map(|written| &written.path),
        "files": written.map(|written| written.files),
        "file_bytes": match written {
            Some(written) => written.size.bytes(),
            None => plan.file_size()?.bytes(),
        },
        "seconds": written.map(|written| written.seconds),
        "bytes": plan.new_size().bytes(),
        "old_bytes": plan.old_size().bytes(),
        "bits_per_weight": bits(plan),
        "warnings": plan.warnings(),
        "tensors": tensors.collect::<Vec<_>>(),
    }))
}

fn bits(plan: &QuantizePlan) -> f64 {
    plan.new_size().bytes() as f64 * 8.0 / plan.elements() as f64
}
