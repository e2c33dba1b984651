//! The description of the server's API.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// An OpenAPI document of all endpoints.
const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`.
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// `(path, method)` of each endpoint.
    type Endpoints = BTreeSet<(String, String)>;

    fn described(document: &Value) -> Endpoints {
        let paths = document["paths"].as_object().unwrap().iter();
        paths
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
            })
            .collect()
    }

    /// As the routers have them.
    fn routed() -> Endpoints {
        // The second one's others are not listed in it.
        let both = [include_str!("../router.rs"), include_str!("../models/router.rs")];
        let lines = both.iter().flat_map(|router| router.lines());
        let lines = lines.filter_map(|line| line.trim().strip_prefix(".route(\""));
        lines
            .map(|line| {
                let (path, handler) = line.split_once("\", ").unwrap();
                let method = handler.split('(').next().unwrap();
                (path.replace("{*", "{"), method.to_owned())
            })
            .collect()
    }

    #[test]
    fn each_endpoint_is_described_and_there_are_no_others() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        assert!(routed().len() >= 25);
        assert_eq!(described(&document), routed());
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn all_references_lead_somewhere() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let target = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(target).is_some(), "{reference}");
                    }
                    map.values().for_each(|value| check(value, document));
                }
                Value::Array(values) => values.iter().for_each(|value| check(value, document)),
                _ => {}
            }
        }
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        check(&document, &document);
    }
}
