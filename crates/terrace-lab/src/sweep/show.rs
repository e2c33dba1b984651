//! The results of a sweep, for people, spreadsheets and programs.

use super::Swept;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use terrace_eval::sweep::{MixRecord, Record};
use terrace_model::{ByteSize, ModelFile};

/// A row per step.
pub fn csv(swept: &Swept) -> String {
    let mut out = String::from(
        "subject,layer,role,donor,type,bytes,base_bytes,perplexity,perplexity_error,kld,kld_error,kld_p99,same_top\n",
    );
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    for subject in &swept.subjects.0 {
        for donor in &swept.donors {
            let Some(step) = swept.journal.step(&subject.name, &donor.name) else { continue };
            let figures = &step.figures;
            let layer = subject.layer.map(|l| l.to_string()).unwrap_or_default();
            let (name, role) = (field(&subject.name), field(&subject.role));
            let _ = writeln!(
                out,
                "{name},{layer},{role},{},{},{},{},{},{},{},{},{},{}",
                field(&step.donor),
                field(&step.ty),
                step.bytes,
                subject.bytes,
                figures.perplexity,
                number(figures.perplexity_error),
                figures.kld,
                number(figures.kld_error),
                figures.kld_p99,
                figures.same_top
            );
        }
    }
    out
}

/// A row for each type with a column for each tensor, as quant_assign.py reads divergences. What was not measured is
/// empty. Donors of the same type, and those of several, have their names.
pub fn csv_for_assign(swept: &Swept) -> String {
    let step = |tensor: &str, donor: &str| swept.journal.step(tensor, donor);
    let subjects = &swept.subjects.0;
    let type_of = |donor: &str| {
        let mut types = subjects.iter().filter_map(|subject| Some(step(&subject.name, donor)?.ty.as_str()));
        let first = types.next()?;
        types.all(|ty| ty == first).then_some(first)
    };
    let types: Vec<Option<&str>> = swept.donors.iter().map(|donor| type_of(&donor.name)).collect();
    let mut out = String::from("QTYPE");
    for subject in subjects {
        let _ = write!(out, ",{}", field(&subject.name));
    }
    for (donor, ty) in swept.donors.iter().zip(&types) {
        let alone = ty.filter(|ty| types.iter().flatten().filter(|other| *other == ty).count() == 1);
        let _ = write!(out, "\n{}", field(alone.unwrap_or(&donor.name)));
        for subject in subjects {
            let kld = step(&subject.name, &donor.name).map(|step| step.figures.kld.to_string());
            let _ = write!(out, ",{}", kld.unwrap_or_default());
        }
    }
    out + "\n"
}

/// Quotes a field as RFC 4180 requires.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A row per subject with its divergence by donor, then the mixes.
pub fn text(swept: &Swept, model: &ModelFile, files: &[PathBuf]) -> String {
    let mut out = String::new();
    if let Some(baseline) = swept.journal.baseline() {
        let _ = writeln!(out, "baseline: perplexity {:.4}, KLD {:.6}\n", baseline.perplexity, baseline.kld);
    }
    let _ = write!(out, "{:<40}", "KLD");
    for donor in &swept.donors {
        let _ = write!(out, " {:>12}", donor.name);
    }
    out.push('\n');
    for subject in &swept.subjects.0 {
        let _ = write!(out, "{:<40}", subject.name);
        for donor in &swept.donors {
            let step = swept.journal.step(&subject.name, &donor.name);
            let _ =
                write!(out, " {:>12}", step.map_or("-".into(), |step| format!("{:.6}", step.figures.kld)));
        }
        out.push('\n');
    }
    let refused = swept.journal.records.iter().filter_map(|record| match record {
        Record::Refused { subject, donor, reason } => Some(format!("{subject} from {donor}: {reason}")),
        _ => None,
    });
    for refused in refused {
        let _ = writeln!(out, "refused: {refused}");
    }
    if !swept.mixes.is_empty() {
        let _ =
            writeln!(out, "\n{:<12} {:>12} {:>12} {:>12}  types", "mix", "predicted", "KLD", "perplexity");
    }
    for mix in &swept.mixes {
        let MixRecord { predicted, figures, .. } = mix;
        let size = size(swept, model, mix).to_string();
        let (kld, perplexity) = (figures.kld, figures.perplexity);
        let _ = writeln!(
            out,
            "{size:<12} {predicted:>12.6} {kld:>12.6} {perplexity:>12.4}  {}",
            counts(swept, mix)
        );
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let _ = write!(out, "\nwritten: {}", files.join(", "));
    out
}

/// Bytes of all tensors of the model with this mix.
fn size(swept: &Swept, model: &ModelFile, mix: &MixRecord) -> ByteSize {
    let own: u64 = swept.subjects.0.iter().map(|subject| subject.bytes).sum();
    ByteSize(model.size().bytes() - own + mix.bytes)
}

/// The number of subjects by donor.
fn counts(swept: &Swept, mix: &MixRecord) -> String {
    let of = |name: &str| mix.choice.values().filter(|donor| *donor == name).count();
    let named = swept.donors.iter().map(|donor| (donor.name.as_str(), of(&donor.name)));
    let kept = swept.subjects.0.len() - mix.choice.len();
    let all = std::iter::once(("as loaded", kept)).chain(named).filter(|&(_, count)| count > 0);
    all.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// Everything in one JSON object.
pub fn json(swept: &Swept, model: &ModelFile, files: &[PathBuf]) -> Value {
    let mixes = swept.mixes.iter().map(|mix| {
        let mut value = serde_json::to_value(mix).expect("records are plain data");
        value["model_bytes"] = size(swept, model, mix).bytes().into();
        value
    });
    json!({
        "baseline": swept.journal.baseline(),
        "subjects": swept.subjects.0.len(),
        "donors": swept.donors.iter().map(|donor| &donor.name).collect::<Vec<_>>(),
        "steps": swept.journal.steps().collect::<Vec<_>>(),
        "mixes": mixes.collect::<Vec<_>>(),
        "files": files,
    })
}
