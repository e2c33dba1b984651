//! The OpenAPI document: made from the routes, from the types of documented requests and answers, and
//! from nothing else.
//!
//! Requests are read field by field ([`crate::request::body::Fields`]), so that an error names the
//! field; their types are here, one file per API. `tests/it/openapi.rs` of the program sends every
//! documented field to a server.

#![expect(
    dead_code,
    reason = "types of requests, and of answers that are made as JSON, are never constructed"
)]

pub mod admin;
pub mod anthropic;
pub mod batches;
pub mod embeddings;
pub mod errors;
pub mod experts;
pub mod fields;
pub mod native;
pub mod ollama;
pub mod openai;
mod operation;
mod requests;
pub mod responses;
mod routes;
mod sampling;
pub mod tokens;

pub use routes::{Route, Routes};

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Describes these routes.
pub fn document(routes: &[Route]) -> Value {
    let mut generator = generator();
    let mut paths = Map::new();
    for Route { path, method, operation } in routes {
        let path = path.replace("{*", "{");
        let described = operation.describe(&mut generator);
        paths.entry(path).or_insert_with(|| json!({}))[method.as_str().to_lowercase()] = described;
    }
    let responses = errors::responses(&mut generator);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Terrace",
            "summary": "One model for many clients: the APIs of OpenAI, Anthropic, llama-server and Ollama.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": env!("CARGO_PKG_LICENSE")},
        },
        "security": [{"key": []}, {"header": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description":
                        "Required if the server was started with keys, except where `security` is empty.",
                },
                "header": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-api-key",
                    "description": "The key as Anthropic's clients send it.",
                },
            },
            "responses": responses,
            "schemas": generator.take_definitions(true),
        },
    });
    plain(&mut document);
    document
}

/// Makes schemas as OpenAPI 3.1 has them: those of JSON Schema 2020-12.
fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.into_generator()
}

/// Leaves out how wide Rust's numbers are, and the line breaks of doc comments.
fn plain(value: &mut Value) {
    const WIDTHS: [&str; 6] = ["uint", "uint32", "uint64", "int32", "float", "double"];
    match value {
        Value::Object(map) => {
            if map.get("format").and_then(Value::as_str).is_some_and(|format| WIDTHS.contains(&format)) {
                map.remove("format");
            }
            if let Some(Value::String(description)) = map.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::routes;

    #[test]
    fn all_references_lead_somewhere() {
        fn check(value: &Value, document: &Value, count: &mut usize) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let target = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(target).is_some(), "{reference}");
                        *count += 1;
                    }
                    map.values().for_each(|value| check(value, document, count));
                }
                Value::Array(values) => values.iter().for_each(|value| check(value, document, count)),
                _ => {}
            }
        }
        let document = document(&routes().described);
        let mut count = 0;
        check(&document, &document, &mut count);
        assert!(count > 400, "{count}");
    }

    #[test]
    fn names_of_parameters_are_those_of_the_path() {
        for Route { path, operation, .. } in routes().described {
            let described = operation.describe(&mut generator());
            let parameters = described["parameters"].as_array().cloned().unwrap_or_default();
            let named = parameters.iter().filter(|parameter| parameter["in"] == "path");
            let named: Vec<&str> = named.map(|parameter| parameter["name"].as_str().unwrap()).collect();
            let parts = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(parts.map(|part| part.trim_start_matches('*')).collect::<Vec<_>>(), named, "{path}");
        }
    }
}
