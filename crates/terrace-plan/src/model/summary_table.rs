//! Displaying a summary as a table.

use crate::model::metadata::Count;
use crate::model::summary::Summary;
use std::fmt;
use terrace_model::{ByteSize, printable};

/// Writes a line of a table, with the label in a column of its own.
fn row(f: &mut fmt::Formatter<'_>, label: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{label:<16} {value}")
}

fn optional(f: &mut fmt::Formatter<'_>, label: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| row(f, label, value))
}

fn percent(part: ByteSize, whole: ByteSize) -> f64 {
    // Precision does not matter in a table; an empty model counts as 0 %.
    if whole == ByteSize::ZERO { 0.0 } else { part.bytes() as f64 * 100.0 / whole.bytes() as f64 }
}

/// Formats a number of parameters: 30.5 B, 40.1 M.
fn parameters(n: u64) -> String {
    let value = n as f64;
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} M", value / 1e6),
        _ => format!("{:.1} B", value / 1e9),
    }
}

fn bytes(count: Count) -> String {
    match count {
        Count::Same(n) => ByteSize(n).to_string(),
        Count::Range { min, max } => format!("{} to {}", ByteSize(min), ByteSize(max)),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "architecture", printable(&self.architecture))?;
        optional(f, "name", self.name.as_deref().map(printable))?;
        row(f, "parameters", parameters(self.parameters))?;
        optional(f, "layers", self.n_layers)?;
        optional(f, "of these MTP", self.mtp_layers.map(|n| format!("{n}, loaded for drafts only")))?;
        optional(f, "width", self.n_embd)?;
        if let Some(heads) = self.n_head {
            let kv = self.n_head_kv.map(|kv| format!(", {kv} for keys and values")).unwrap_or_default();
            row(f, "heads", format!("{heads}{kv}"))?;
        }
        optional(f, "context", self.context_length.map(|n| format!("{n} tokens")))?;
        optional(f, "vocabulary", self.n_vocab)?;
        if let Some(experts) = self.experts {
            let mark = if self.impossible.is_some() { " (impossible)" } else { "" };
            let used = self.experts_used.map(|k| format!(", {k} used{mark}")).unwrap_or_default();
            let shared = self.experts_shared.map(|n| format!(", {n} shared")).unwrap_or_default();
            row(f, "experts", format!("{experts} per layer{used}{shared}, in {} layers", self.moe_layers))?;
            optional(f, "expert bundle", self.bundle_bytes.map(bytes))?;
            row(f, "token cycle", format!("{} (top-k x bundle, over the layers)", self.token_cycle_bytes))?;
        }
        optional(f, "impossible", self.impossible.as_deref().map(printable))?;
        let whole = self.tensor_bytes;
        writeln!(f, "\n{:<16} {:>8} {:>12}", "class", "tensors", "bytes")?;
        for class in &self.classes {
            let share = percent(class.bytes, whole);
            writeln!(
                f,
                "{:<16} {:>8} {:>12} {share:>6.1}%",
                class.class,
                class.tensors,
                class.bytes.to_string()
            )?;
        }
        writeln!(f, "\n{:<16} {:>8} {:>12}", "type", "tensors", "bytes")?;
        for ty in &self.types {
            writeln!(
                f,
                "{:<16} {:>8} {:>12} {:>6.1}%",
                ty.ty,
                ty.tensors,
                ty.bytes.to_string(),
                percent(ty.bytes, whole)
            )?;
        }
        writeln!(f, "\n{:<16} {:>8} {:>12}", "file", "tensors", "bytes")?;
        for shard in &self.shards {
            let size = shard.bytes.to_string();
            writeln!(
                f,
                "{:<16} {:>8} {size:>12}   {}",
                "",
                shard.tensors,
                printable(&shard.path.to_string_lossy())
            )?;
        }
        let tensors: u64 = self.classes.iter().map(|c| c.tensors).sum();
        write!(f, "{:<16} {tensors:>8} {:>12}", "total", self.file_bytes.to_string())
    }
}
