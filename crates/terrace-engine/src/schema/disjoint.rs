//! Alternatives of which at most one is valid, so that `oneOf` is `anyOf`.

use serde_json::Value;

/// Maximum number of alternatives that are compared, each with each.
const MOST_COMPARED: usize = 64;

/// Returns true if no value is valid by two of these: they are of different types, or objects with different
/// constants.
pub(super) fn are_disjoint(all: &[&Value]) -> bool {
    all.len() <= MOST_COMPARED
        && all.iter().enumerate().all(|(number, one)| all[number + 1..].iter().all(|other| apart(one, other)))
}

fn apart(one: &Value, other: &Value) -> bool {
    let numeric = |ty: &str| if ty == "integer" { "number".to_owned() } else { ty.to_owned() };
    let ty = |schema: &Value| schema["type"].as_str().map(numeric);
    if let (Some(one), Some(other)) = (ty(one), ty(other))
        && one != other
    {
        return true;
    }
    if let (Some(one), Some(other)) = (listed(one), listed(other)) {
        return are_others(&one, &other);
    }
    let requires = |schema: &Value, name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    one["properties"].as_object().is_some_and(|properties| {
        properties.iter().any(|(name, schema)| {
            let same = &other["properties"][name];
            requires(one, name)
                && requires(other, name)
                && matches!((listed(schema), listed(same)), (Some(these), Some(those))
                    if are_others(&these, &those))
        })
    })
}

/// The values that a schema lists.
fn listed(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}

/// Returns true if no value is in both lists. Numbers are equal however they are written; lists and objects, in which
/// numbers may be, count as equal to each other.
fn are_others(these: &[&Value], those: &[&Value]) -> bool {
    let equal = |one: &Value, other: &Value| match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => one == other,
    };
    these.iter().all(|one| those.iter().all(|other| !equal(one, other)))
}
