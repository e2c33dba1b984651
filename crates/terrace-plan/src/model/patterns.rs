//! Patterns by which llama.cpp's loader finds the streamed tensors.
//!
//! `tensor_buft_overrides` are ECMAScript expressions. For each tensor the loader compiles and
//! searches one after the other until one matches, so they should be few and simple.

use crate::model::selection::Selection;
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::ModelFile;
use terrace_model::split_layer;

/// Returns expressions that match the names of the selected tensors and no other names of the
/// model.
///
/// There is one for the roles that are selected in every layer that has them
/// (`^blk\.[0-9]+\.(ffn_up_exps|…)\.weight$`), one for each set of layers in which only some roles
/// are selected, and one for names outside of layers.
pub fn override_patterns(model: &ModelFile, selection: &Selection) -> Vec<String> {
    let selected: BTreeSet<usize> = selection.tensors.iter().map(|m| m.tensor).collect();
    // By role: the layers in which it is selected, and whether it has others.
    let mut roles: BTreeMap<&str, (BTreeSet<&str>, bool)> = BTreeMap::new();
    let mut plain = BTreeSet::new();
    for (index, tensor) in model.tensors.iter().enumerate() {
        match split_layer(&tensor.name) {
            Some((layer, role)) => {
                let (layers, partial) = roles.entry(role).or_default();
                if selected.contains(&index) {
                    layers.insert(layer);
                } else {
                    *partial = true;
                }
            }
            None if selected.contains(&index) => {
                plain.insert(tensor.name.as_str());
            }
            None => {}
        }
    }

    // Roles that are selected in the same layers share an expression; an empty set stands for all
    // layers.
    let mut shared: BTreeMap<BTreeSet<&str>, BTreeSet<&str>> = BTreeMap::new();
    for (role, (layers, partial)) in roles {
        if !layers.is_empty() {
            shared.entry(if partial { layers } else { BTreeSet::new() }).or_default().insert(role);
        }
    }
    let mut patterns: Vec<String> = shared
        .iter()
        .map(|(layers, roles)| {
            let layers = if layers.is_empty() { "[0-9]+".into() } else { any_of(layers.iter().copied()) };
            format!("^blk\\.{layers}\\.{}$", with_kind(roles))
        })
        .collect();
    if !plain.is_empty() {
        patterns.push(format!("^{}$", with_kind(&plain)));
    }
    patterns
}

/// Returns an expression for any of the texts, with a common `.weight` at their ends factored out.
fn with_kind(texts: &BTreeSet<&str>) -> String {
    const KIND: &str = ".weight";
    let stems: Option<Vec<&str>> = texts.iter().map(|t| t.strip_suffix(KIND)).collect();
    match stems {
        Some(stems) => format!("{}\\.weight", any_of(stems)),
        None => any_of(texts.iter().copied()),
    }
}

fn any_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(escape).collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("({})", texts.join("|")) }
}

/// Escapes the special characters of ECMAScript expressions.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if r"\^$.|?*+()[]{}".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}
