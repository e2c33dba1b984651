//! `allOf`: parts whose keywords do not meet are one schema.

use super::keywords::ASSERTIONS;
use serde_json::{Map, Value};

/// Longest chain of references to a part.
const MOST_REFERENCES: usize = 16;

/// The schema that has the keywords of all parts of `allOf`, and its own. `None`: two of them have a keyword
/// that cannot be joined. `find` follows references.
pub(super) fn joined<'a>(
    schema: &'a Map<String, Value>,
    find: &impl Fn(&str) -> Option<&'a Value>,
) -> Option<Map<String, Value>> {
    let parts = schema.get("allOf")?.as_array()?;
    let mut whole: Map<String, Value> = schema
        .iter()
        .filter(|(name, _)| *name != "allOf")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for part in parts {
        let part = followed(part, find)?;
        if part.contains_key("allOf") {
            return None;
        }
        for (name, value) in part {
            join(&mut whole, name, value)?;
        }
    }
    Some(whole)
}

/// A part, or what it refers to if it says nothing else.
fn followed<'a>(
    mut part: &'a Value,
    find: &impl Fn(&str) -> Option<&'a Value>,
) -> Option<&'a Map<String, Value>> {
    for _ in 0..MOST_REFERENCES {
        let map = part.as_object()?;
        match map.get("$ref") {
            Some(reference)
                if map.keys().all(|name| name == "$ref" || !ASSERTIONS.contains(&name.as_str())) =>
            {
                part = find(reference.as_str()?)?;
            }
            _ => return Some(map),
        }
    }
    None
}

fn join(whole: &mut Map<String, Value>, name: &str, value: &Value) -> Option<()> {
    let Some(before) = whole.get_mut(name) else {
        whole.insert(name.to_owned(), value.clone());
        return Some(());
    };
    match (name, before, value) {
        (_, before, value) if before == value => {}
        ("properties", Value::Object(before), Value::Object(more)) => {
            for (property, schema) in more {
                match before.get(property) {
                    Some(known) if known != schema => return None,
                    _ => drop(before.insert(property.clone(), schema.clone())),
                }
            }
        }
        ("required", Value::Array(before), Value::Array(more)) => {
            let new: Vec<Value> = more.iter().filter(|name| !before.contains(name)).cloned().collect();
            before.extend(new);
        }
        // Those of the whole are kept.
        (name, ..) if !ASSERTIONS.contains(&name) => {}
        _ => return None,
    }
    Some(())
}
