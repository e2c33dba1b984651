//! The walk through a schema.

use super::all_of;
use super::disjoint::are_disjoint;
use super::keywords::{ASSERTIONS, OF_ARRAYS, OF_NUMBERS, OF_OBJECTS, OF_STRINGS, TYPES};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum number of schemas in a schema.
const MOST_SCHEMAS: usize = 20_000;
/// Maximum number of paths that are named.
const MOST_NAMED: usize = 32;

pub(super) type Object = Map<String, Value>;

pub(super) struct Walk<'a> {
    root: &'a Value,
    /// The rewritten targets of references, by the names that they have now.
    targets: Object,
    /// Names of the targets, by references.
    names: BTreeMap<String, String>,
    /// References whose targets are still to be rewritten.
    queue: Vec<String>,
    unenforced: Vec<String>,
    /// True if the converter would refuse the schema as it is, or read it in another way.
    pub(super) changed: bool,
    count: usize,
}

/// A schema after the walk.
pub(super) struct Walked {
    pub value: Value,
    pub unenforced: Vec<String>,
    pub changed: bool,
}

impl<'a> Walk<'a> {
    /// The schema in the converter's words, and the keywords that do not hold.
    pub(super) fn root(root: &'a Value) -> Result<Walked, String> {
        let mut walk = Self {
            root,
            targets: Object::new(),
            names: BTreeMap::new(),
            queue: Vec::new(),
            unenforced: Vec::new(),
            changed: false,
            count: 0,
        };
        for path in own_bases(root) {
            walk.note(&path, "$id");
        }
        let mut value = walk.schema(root, "#")?.ok_or("it allows nothing")?;
        // One after the other: a chain of references must not take more stack than a deep schema.
        while let Some(reference) = walk.queue.pop() {
            let found = target(root, &reference).ok_or("a reference is lost")?;
            let rewritten = walk.some(found, &reference)?;
            let name = walk.names.get(&reference).cloned().unwrap_or_default();
            walk.targets.insert(name, rewritten);
        }
        if !walk.targets.is_empty()
            && let Some(map) = value.as_object_mut()
        {
            map.insert("$defs".into(), walk.targets.into());
        }
        walk.unenforced.sort();
        walk.unenforced.dedup();
        Ok(Walked { value, unenforced: walk.unenforced, changed: walk.changed })
    }

    pub(super) fn note(&mut self, path: &str, keyword: &str) {
        if self.unenforced.len() < MOST_NAMED {
            self.unenforced.push(format!("{path}/{keyword}"));
        }
    }

    /// Notes all of these keywords that are there.
    pub(super) fn note_all(&mut self, map: &Object, path: &str, keywords: &[&str]) {
        for keyword in keywords.iter().filter(|keyword| map.contains_key(**keyword)) {
            self.note(path, keyword);
        }
    }

    /// Notes all keywords that say what is valid, but these.
    fn note_others(&mut self, map: &Object, path: &str, known: &[&str]) {
        for name in map.keys().map(String::as_str) {
            if !known.contains(&name) && ASSERTIONS.contains(&name) {
                self.note(path, name);
            }
        }
    }

    /// A schema, rewritten. `None`: nothing is valid.
    pub(super) fn schema(&mut self, schema: &Value, path: &str) -> Result<Option<Value>, String> {
        self.count += 1;
        if self.count > MOST_SCHEMAS {
            return Err(format!("it has more than {MOST_SCHEMAS} schemas"));
        }
        self.changed |= schema.is_boolean();
        match schema {
            Value::Bool(true) => Ok(Some(json!({}))),
            Value::Bool(false) => Ok(None),
            Value::Object(map) => self.object(map, path),
            _ => Err(format!("`{path}` is neither an object nor a boolean")),
        }
    }

    /// A schema in a place where nothing cannot be said.
    pub(super) fn some(&mut self, schema: &Value, path: &str) -> Result<Value, String> {
        Ok(self.schema(schema, path)?.unwrap_or_else(|| {
            self.unenforced.push(path.to_owned());
            json!({})
        }))
    }

    fn object(&mut self, map: &Object, path: &str) -> Result<Option<Value>, String> {
        if let Some(reference) = map.get("$ref") {
            self.note_others(map, path, &["$ref"]);
            return self.reference(reference, path).map(Some);
        }
        if map.contains_key("allOf") {
            let root = self.root;
            if let Some((whole, says_all)) = all_of::joined(map, &|reference| target(root, reference)) {
                self.changed = true;
                if !says_all {
                    self.note(path, "allOf");
                }
                return self.object(&whole, path);
            }
            let mut rest = map.clone();
            rest.remove("allOf");
            self.note(path, "allOf");
            return self.object(&rest, path);
        }
        for key in ["oneOf", "anyOf"] {
            let Some(alternatives) = map.get(key) else { continue };
            let Some(alternatives) = alternatives.as_array().filter(|all| !all.is_empty()) else {
                return Err(format!("`{path}/{key}` is not an array with schemas"));
            };
            // A type that all of them have to be of is often said twice.
            let types = |ty: &Value| alternatives.iter().all(|one| one.get("type") == Some(ty));
            let known = if map.get("type").is_none_or(types) { [key, "type"] } else { [key, key] };
            self.note_others(map, path, &known);
            let found =
                |one: &'_ Value| one["$ref"].as_str().and_then(|reference| target(self.root, reference));
            let targets: Vec<&Value> = alternatives.iter().map(|one| found(one).unwrap_or(one)).collect();
            if key == "oneOf" && !are_disjoint(&targets) {
                self.note(path, key);
            }
            let mut all = Vec::new();
            for (number, one) in alternatives.iter().enumerate() {
                all.extend(self.schema(one, &format!("{path}/{key}/{number}"))?);
            }
            return Ok((!all.is_empty()).then(|| json!({"anyOf": all})));
        }
        if map.contains_key("const") || map.contains_key("enum") {
            return self.values(map, path);
        }
        let types: Vec<&str> = match map.get("type") {
            None => Vec::new(),
            Some(Value::String(ty)) => vec![ty],
            Some(Value::Array(types)) if !types.is_empty() => {
                types.iter().map(|ty| ty.as_str().unwrap_or("a type that is not a string")).collect()
            }
            Some(_) => return Err(format!("`{path}/type` is neither a string nor an array of strings")),
        };
        if let Some(unknown) = types.iter().find(|ty| !TYPES.contains(ty)) {
            return Err(format!("`{path}/type` is `{unknown}`, which is not a type"));
        }
        match types[..] {
            [] => self.untyped(map, path).map(Some),
            [ty] => self.typed(map, ty, path).map(Some),
            _ => {
                let all = types.iter().map(|ty| self.typed(map, ty, path)).collect::<Result<Vec<_>, _>>()?;
                Ok(Some(json!({"anyOf": all})))
            }
        }
    }

    /// A reference to a rewritten target.
    fn reference(&mut self, reference: &Value, path: &str) -> Result<Value, String> {
        let Some(reference) = reference.as_str() else {
            return Err(format!("`{path}/$ref` is not a string"));
        };
        if target(self.root, reference).is_none() {
            return Err(format!(
                "`{path}/$ref` is `{reference}`, but only places in the schema itself can be referred to"
            ));
        }
        if let Some(name) = self.names.get(reference) {
            return Ok(json!({"$ref": format!("#/$defs/{name}")}));
        }
        self.changed |= !reference.starts_with("#/") || reference.contains(['~', '%']);
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        let name = match self.names.len() {
            0 if !plain.is_empty() => plain,
            number => format!("{plain}-{number}"),
        };
        self.names.insert(reference.to_owned(), name.clone());
        self.queue.push(reference.to_owned());
        Ok(json!({"$ref": format!("#/$defs/{name}")}))
    }

    /// Values that are listed.
    fn values(&mut self, map: &Object, path: &str) -> Result<Option<Value>, String> {
        self.note_others(map, path, &["const", "enum", "type"]);
        let listed = match (map.get("enum"), map.get("const")) {
            (Some(Value::Array(values)), value) if !values.is_empty() => {
                values.iter().filter(|one| value.is_none_or(|value| value == *one)).cloned().collect()
            }
            (Some(_), _) => return Err(format!("`{path}/enum` is not an array with values")),
            (None, value) => value.iter().map(|value| (*value).clone()).collect::<Vec<_>>(),
        };
        let of_type = |value: &Value| match map.get("type") {
            Some(Value::String(ty)) => is_of(value, ty),
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).any(|ty| is_of(value, ty)),
            _ => true,
        };
        let listed: Vec<Value> = listed.into_iter().filter(of_type).collect();
        Ok((!listed.is_empty()).then(|| json!({"enum": listed})))
    }

    /// A schema without a type, of which its keywords tell what is meant.
    fn untyped(&mut self, map: &Object, path: &str) -> Result<Value, String> {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| map.contains_key(*keyword));
        let kinds: [(&str, &[&str]); 4] = [
            ("object", &OF_OBJECTS),
            ("array", &OF_ARRAYS),
            ("string", &OF_STRINGS),
            ("number", &OF_NUMBERS),
        ];
        let meant: Vec<&str> =
            kinds.iter().filter(|(_, keywords)| has(keywords)).map(|(ty, _)| *ty).collect();
        // An answer of the kind that is spoken of is valid; others would be, too.
        match meant[..] {
            [] => {
                self.note_others(map, path, &[]);
                Ok(json!({}))
            }
            [ty] => self.typed(map, ty, path),
            _ => {
                let all = meant.iter().map(|ty| self.typed(map, ty, path)).collect::<Result<Vec<_>, _>>()?;
                Ok(json!({"anyOf": all}))
            }
        }
    }

    fn typed(&mut self, map: &Object, ty: &str, path: &str) -> Result<Value, String> {
        let known = [&["type"], &OF_OBJECTS[..], &OF_ARRAYS, &OF_STRINGS, &OF_NUMBERS].concat();
        self.note_others(map, path, &known);
        match ty {
            "object" => self.members(map, path),
            "array" => self.items(map, path),
            "string" => Ok(self.string(map, path)),
            "integer" => self.integer(map, path),
            "number" => {
                self.note_all(map, path, &OF_NUMBERS);
                Ok(json!({"type": "number"}))
            }
            other => Ok(json!({"type": other})),
        }
    }
}

/// Paths of schemas in a schema whose references are meant from where they stand, but are followed from the root.
fn own_bases(root: &Value) -> Vec<String> {
    fn refers(value: &Value) -> bool {
        match value {
            Value::Array(all) => all.iter().any(refers),
            Value::Object(map) => {
                map.get("$ref").and_then(Value::as_str).is_some_and(|to| to.starts_with('#'))
                    || map.values().any(refers)
            }
            _ => false,
        }
    }
    fn search(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Array(all) => {
                for (number, one) in all.iter().enumerate() {
                    search(one, &format!("{path}/{number}"), found);
                }
            }
            Value::Object(map) => {
                let id = map.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
                if path != "#" && id && refers(value) {
                    found.push(path.to_owned());
                }
                for (name, one) in map {
                    search(one, &format!("{path}/{name}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    search(root, "#", &mut found);
    found
}

/// The target of a reference within a schema.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match reference.strip_prefix('#')? {
        "" => Some(root),
        // Some generators mean the root.
        "/" => root.get("").or(Some(root)),
        pointer => root.pointer(&pointer.replace("%20", " ").replace("%24", "$")),
    }
}

fn is_of(value: &Value, ty: &str) -> bool {
    match value {
        Value::Null => ty == "null",
        Value::Bool(_) => ty == "boolean",
        Value::Number(number) => {
            ty == "number" || (ty == "integer" && number.as_f64().is_some_and(|number| number.fract() == 0.0))
        }
        Value::String(_) => ty == "string",
        Value::Array(_) => ty == "array",
        Value::Object(_) => ty == "object",
    }
}
