//! `cargo xtask sbom`: what a distribution contains, as CycloneDX 1.5.

use crate::metadata::{LINUX, Package, linked};
use serde_json::{Value, json};
use std::path::Path;

/// Lists all packages that are linked into the binary, and what comes from no registry of Rust's.
///
/// # Errors
/// Cargo's, or the workspace has no version.
pub fn list(root: &Path, version: &str) -> Result<String, String> {
    let terrace = format!("pkg:generic/terrace@{version}");
    let linked = linked(root, LINUX)?;
    let mut components: Vec<Value> = linked.iter().map(component).collect();
    components.extend(linked.iter().find(|package| package.name == "llama-cpp-sys-2").map(llama));
    components.push(json!({
        "type": "machine-learning-model",
        "bom-ref": "pkg:generic/tiny-moe-Q4_K.gguf",
        "name": "tiny-moe-Q4_K.gguf",
        "version": version,
        "licenses": [{ "license": { "id": "CC0-1.0" } }],
    }));
    let depends: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    let sbom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": terrace,
                "name": "terrace",
                "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": [{ "ref": terrace, "dependsOn": depends }],
    });
    serde_json::to_string_pretty(&sbom).map_err(|error| error.to_string())
}

fn component(package: &Package) -> Value {
    let Package { name, version, license, .. } = package;
    let url = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
    });
    if let Some(license) = license {
        // Older packages separate alternatives by a slash.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

/// llama.cpp, whose sources come in its bindings' package and have no version but theirs.
fn llama(bindings: &Package) -> Value {
    json!({
        "type": "library",
        "bom-ref": "pkg:github/ggml-org/llama.cpp",
        "name": "llama.cpp",
        "version": format!("as in llama-cpp-sys-2 {}", bindings.version),
        "licenses": [{ "license": { "id": "MIT" } }],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_linked_is_listed_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sbom: Value = serde_json::from_str(&list(&root, "1.2.3").unwrap()).unwrap();
        let components = sbom["components"].as_array().unwrap();
        let mut references: Vec<&str> =
            components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
        assert!(references.iter().any(|name| name.starts_with("pkg:cargo/clap@")), "{references:?}");
        assert!(references.contains(&"pkg:github/ggml-org/llama.cpp"), "{references:?}");
        let all = references.len();
        references.sort_unstable();
        references.dedup();
        assert_eq!(references.len(), all);
        assert_eq!(sbom["metadata"]["component"]["version"], "1.2.3");
        assert!(components.iter().all(|component| !component["licenses"].is_null()));
    }
}
