//! Vulkan layers, which change what the driver does. They are compiled where they are used.

use crate::common::stderr;
use std::path::Path;
use std::process::Command;

/// Makes the layer of this name in a folder, and has the command use it.
pub fn add(command: &mut Command, folder: &Path, name: &str, source: &str) {
    // What the loader of Vulkan is told of the layer.
    let manifest = format!(
        r#"{{
    "file_format_version": "1.2.0",
    "layer": {{
        "name": "VK_LAYER_TERRACE_{name}", "type": "GLOBAL", "library_path": "./lib{name}.so",
        "api_version": "1.3.239", "implementation_version": "1", "description": "Of a test"
    }}
}}"#
    );
    let at = |name: String| folder.join(name);
    std::fs::write(at(format!("{name}.json")), manifest).unwrap();
    std::fs::write(at("layer.h".into()), include_str!("layer.h")).unwrap();
    std::fs::write(at(format!("{name}.c")), source).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([at(format!("lib{name}.so")), at(format!("{name}.c"))])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    command.env("VK_LAYER_PATH", folder);
    command.env("VK_INSTANCE_LAYERS", format!("VK_LAYER_TERRACE_{name}"));
}
