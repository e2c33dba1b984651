//! `allOf`: parts whose keywords do not meet are one schema.

use super::keywords::ASSERTIONS;
use serde_json::{Map, Value};

/// Longest chain of references to a part.
const MOST_REFERENCES: usize = 16;

/// The schema that has the keywords of all parts of `allOf`, and its own, and true if it says all that they
/// say. `None`: two of them have a keyword that cannot be joined. `find` follows references.
pub(super) fn joined<'a>(
    schema: &'a Map<String, Value>,
    find: &impl Fn(&str) -> Option<&'a Value>,
) -> Option<(Map<String, Value>, bool)> {
    let parts = schema.get("allOf")?.as_array()?;
    let mut whole: Map<String, Value> = schema
        .iter()
        .filter(|(name, _)| *name != "allOf")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let parts = parts.iter().map(|part| followed(part, find)).collect::<Option<Vec<_>>>()?;
    if parts.iter().any(|part| part.contains_key("allOf")) {
        return None;
    }
    let sources: Vec<&Map<String, Value>> = std::iter::once(schema).chain(parts.iter().copied()).collect();
    let meet = |one: &Map<String, Value>| {
        sources
            .iter()
            .any(|other| !std::ptr::eq(one, *other) && RESTS.iter().any(|rest| rest.meets(one, other)))
    };
    // What is unevaluated in a part is so for this part alone.
    let alone = |part: &&Map<String, Value>| {
        ["unevaluatedItems", "unevaluatedProperties"]
            .iter()
            .any(|name| part.get(*name).is_some_and(|value| *value != Value::Bool(true)))
    };
    let says_all = !sources.iter().any(|one| meet(one)) && !parts.iter().any(alone);
    for part in parts {
        for (name, value) in part {
            join(&mut whole, name, value)?;
        }
    }
    Some((whole, says_all))
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

/// A keyword about what its neighbours leave over. In a joined schema it has more neighbours.
struct Rest {
    keyword: &'static str,
    neighbours: &'static [&'static str],
}

const RESTS: [Rest; 3] = [
    Rest { keyword: "additionalProperties", neighbours: &["properties", "patternProperties"] },
    Rest { keyword: "items", neighbours: &["prefixItems"] },
    Rest { keyword: "additionalItems", neighbours: &["items"] },
];

impl Rest {
    /// Returns true if the keyword of `one` would leave over less beside the keywords of `other`.
    fn meets(&self, one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
        let says = |value: &Value| {
            *value != Value::Bool(true) && value.as_object().is_none_or(|map| !map.is_empty())
        };
        let known = |name: &str, property: &str| one.get(name).is_some_and(|all| all.get(property).is_some());
        one.get(self.keyword).is_some_and(says)
            && self.neighbours.iter().any(|name| match other.get(*name) {
                Some(Value::Object(all)) => all.keys().any(|property| !known(name, property)),
                Some(Value::Array(_)) => one.get(*name) != other.get(*name),
                _ => false,
            })
    }
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
