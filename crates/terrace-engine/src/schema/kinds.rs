//! Schemas of a type.

use super::keywords::FORMATS;
use super::pattern;
use super::walk::{Object, Walk};
use serde_json::{Value, json};

/// Maximum number of items that are described one by one.
const MOST_ITEMS: usize = 1000;

/// A number of items or properties. It may be written as `2.0`.
fn count(map: &Object, name: &str) -> Option<u64> {
    let value = map.get(name)?;
    let whole = |number: &f64| number.fract() == 0.0 && (0.0..9e15).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(whole).map(|number| number as u64))
}

impl Walk<'_> {
    pub(super) fn members(&mut self, map: &Object, path: &str) -> Result<Value, String> {
        let mut out = Object::from_iter([("type".to_owned(), "object".into())]);
        let (mut properties, mut never) = (Object::new(), false);
        match map.get("properties") {
            None => {}
            Some(Value::Object(given)) => {
                for (name, schema) in given {
                    let place = format!("{path}/properties/{name}");
                    match self.schema(schema, &place)? {
                        Some(schema) => drop(properties.insert(name.clone(), schema)),
                        None => never = true,
                    }
                }
            }
            Some(_) => return Err(format!("`{path}/properties` is not an object")),
        }
        // As the converter has it: objects with properties have no others, unless that is said.
        let additional = match map.get("additionalProperties") {
            None if map.contains_key("properties") => None,
            None => Some(json!({})),
            Some(Value::Bool(any)) => any.then(|| json!({})),
            Some(schema) => self.schema(schema, &format!("{path}/additionalProperties"))?,
        };
        let required: Vec<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for name in &required {
            if !properties.contains_key(*name) {
                self.changed = true;
                match &additional {
                    Some(schema) => drop(properties.insert((*name).to_owned(), schema.clone())),
                    None => self.note(path, "required"),
                }
            }
        }
        let number = |name| count(map, name);
        if number("minProperties").is_some_and(|least| least > required.len() as u64) {
            self.note(path, "minProperties");
        }
        let most = if additional.is_some() { u64::MAX } else { properties.len() as u64 };
        if number("maxProperties").is_some_and(|limit| limit < most) {
            self.note(path, "maxProperties");
        }
        if additional.is_some() {
            self.note_all(map, path, &["patternProperties", "propertyNames", "unevaluatedProperties"]);
            if never {
                self.note(path, "properties");
            }
        } else {
            // A property that has a schema may match a pattern, too.
            self.note_all(map, path, &["patternProperties", "propertyNames"]);
        }
        self.note_all(map, path, &["dependentRequired"]);
        if !properties.is_empty() || additional.is_none() {
            out.insert("properties".into(), properties.into());
            out.insert("required".into(), required.into());
            out.insert(
                "additionalProperties".into(),
                additional.map_or(false.into(), |one| {
                    if one.as_object().is_some_and(Object::is_empty) { true.into() } else { one }
                }),
            );
        } else if let Some(one) = additional.filter(|one| !one.as_object().is_some_and(Object::is_empty)) {
            out.insert("additionalProperties".into(), one);
        }
        Ok(out.into())
    }

    pub(super) fn items(&mut self, map: &Object, path: &str) -> Result<Value, String> {
        let (least, most) = (count(map, "minItems"), count(map, "maxItems"));
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            self.note(path, "minItems");
        }
        self.note_all(map, path, &["contains", "minContains", "maxContains"]);
        if map.get("uniqueItems") == Some(&Value::Bool(true)) && most.is_none_or(|most| most > 1) {
            self.note(path, "uniqueItems");
        }
        let (key, rest) = match (map.get("prefixItems"), map.get("items")) {
            (Some(_), rest) => ("prefixItems", rest),
            (None, Some(Value::Array(_))) => ("items", map.get("additionalItems")),
            (None, _) => ("", None),
        };
        if let Some(Value::Array(first)) = map.get(key) {
            self.changed |= rest.is_some() || least.is_some() || most.is_some();
            // One schema for each item: of the arrays that are valid, those of one length.
            let mut all = Vec::new();
            for (number, item) in first.iter().enumerate() {
                all.push(self.some(item, &format!("{path}/{key}/{number}"))?);
            }
            let short = |all: &Vec<Value>| least.is_some_and(|least| least > all.len() as u64);
            if short(&all) {
                self.note_all(map, path, &["unevaluatedItems"]);
            }
            while short(&all) && all.len() < MOST_ITEMS {
                let any = Value::Bool(true);
                let further = self.some(rest.unwrap_or(&any), &format!("{path}/items"))?;
                all.push(further);
            }
            if short(&all) {
                self.note(path, "minItems");
            }
            if let Some(most) = most.and_then(|most| usize::try_from(most).ok()) {
                all.truncate(most);
            }
            return Ok(json!({"type": "array", "prefixItems": all}));
        }
        self.note_all(map, path, &["unevaluatedItems"]);
        let mut out = Object::from_iter([("type".to_owned(), "array".into())]);
        let item = match map.get("items") {
            None => Some(json!({})),
            Some(item) => self.schema(item, &format!("{path}/items"))?,
        };
        match item {
            Some(item) => drop(out.insert("items".into(), item)),
            None => {
                if least.is_some_and(|least| least > 0) {
                    self.note(path, "minItems");
                }
                return Ok(json!({"type": "array", "maxItems": 0}));
            }
        }
        for (name, count) in [("minItems", least), ("maxItems", most)] {
            if let Some(count) = count {
                out.insert(name.into(), count.into());
            }
        }
        Ok(out.into())
    }

    pub(super) fn string(&mut self, map: &Object, path: &str) -> Value {
        let mut out = Object::from_iter([("type".to_owned(), "string".into())]);
        let text = |name| map.get(name).and_then(Value::as_str);
        if let Some(pattern) = text("pattern") {
            self.changed = true;
            match pattern::written(pattern) {
                Some(pattern) => {
                    out.insert("pattern".into(), pattern.into());
                    // The converter follows one of them.
                    self.note_all(map, path, &["format", "minLength", "maxLength"]);
                    return out.into();
                }
                None => self.note(path, "pattern"),
            }
        }
        if let Some(format) = text("format") {
            if FORMATS.contains(&format) {
                out.insert("format".into(), format.into());
                self.note_all(map, path, &["minLength", "maxLength"]);
                return out.into();
            }
            self.note(path, "format");
        }
        for name in ["minLength", "maxLength"] {
            if let Some(count) = map.get(name) {
                out.insert(name.into(), count.clone());
            }
        }
        out.into()
    }

    pub(super) fn integer(&mut self, map: &Object, path: &str) -> Result<Value, String> {
        let mut out = Object::from_iter([("type".to_owned(), "integer".into())]);
        let bound = |name: &str| match map.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("`{path}/{name}` is not a number")),
        };
        let both = |one, other| map.contains_key(one) && map.contains_key(other);
        self.changed |= both("minimum", "exclusiveMinimum") || both("maximum", "exclusiveMaximum");
        let strict = |bound: f64, step: f64| if bound.fract() == 0.0 { bound + step } else { bound };
        let least =
            [bound("minimum")?, bound("exclusiveMinimum").unwrap_or(None).map(|one| strict(one, 1.0))];
        let most =
            [bound("maximum")?, bound("exclusiveMaximum").unwrap_or(None).map(|one| strict(one, -1.0))];
        let least = least.into_iter().flatten().reduce(f64::max).map(f64::ceil);
        let most = most.into_iter().flatten().reduce(f64::min).map(f64::floor);
        // Of draft 4, where these say how the other bounds are meant.
        for name in ["exclusiveMinimum", "exclusiveMaximum"] {
            if map.get(name).is_some_and(|value| *value == Value::Bool(true)) {
                self.note(path, name);
            }
        }
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            return Err(format!("`{path}/maximum` is less than the minimum"));
        }
        for (name, value) in [("minimum", least), ("maximum", most)] {
            match value {
                // Whole numbers of doubles.
                Some(value) if value.abs() < 9e15 => drop(out.insert(name.into(), (value as i64).into())),
                Some(_) => self.note(path, name),
                None => {}
            }
        }
        if map.get("multipleOf").is_some_and(|value| value.as_f64() != Some(1.0)) {
            self.note(path, "multipleOf");
        }
        Ok(out.into())
    }
}
