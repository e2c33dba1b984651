//! `terrace experts apply`: has a running server hold the experts that a learn file counts as used
//! most.

use super::args::ApplyArgs;
use serde_json::Value;
use terrace_cli::error::CliError;
use terrace_cli::remote::Remote;
use terrace_cli::term::print;
use terrace_engine::learn as files;

/// Runs `terrace experts apply`.
///
/// # Errors
/// The file cannot be read, the server cannot be reached, or refuses the file.
pub fn apply(args: &ApplyArgs) -> Result<(), CliError> {
    // Also a record that Terrace keeps: the server gets a learn file.
    let mut text = files::read(&args.file)?.to_text();
    if args.save {
        text = text.replacen('{', "{\"save_to_disk\":true,", 1);
    }
    let applied = Remote::new(&args.server)?.post("/moe-hot-cache", &text)?;
    print(&match args.json {
        true => applied.to_string(),
        false => described(&applied),
    })
}

/// The changes: a line for the whole, one for the layers, one for the file.
pub fn described(applied: &Value) -> String {
    let number = |name: &str| applied[name].as_u64().unwrap_or(0);
    let mut text = format!(
        "{} of {} experts copied in {} layers; devices hold {} copies",
        number("exchanged"),
        number("candidates"),
        number("layers_changed"),
        number("hot_experts")
    );
    let layers = applied["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let each: Vec<String> = layers.iter().map(|pair| format!("{} ({})", pair[0], pair[1])).collect();
    if !each.is_empty() {
        text += &format!("\nlayers (experts copied): {}", each.join(", "));
    }
    if let Some(path) = applied["path"].as_str() {
        text += &format!("\nsaved by the server as {}", terrace_model::printable(path));
    }
    if let Some(path) = applied["backup_path"].as_str() {
        text += &format!("\nthe old file is now {}", terrace_model::printable(path));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_done_is_told() {
        let applied = json!({
            "success": true, "exchanged": 3, "candidates": 4, "layers_changed": 2, "hot_experts": 12,
            "layers": [[0, 1], [5, 2]], "saved_to_disk": true, "path": "/a/b.json", "backup_path": "/a/b.1.json",
        });
        let expected = "3 of 4 experts copied in 2 layers; devices hold 12 copies\n\
            layers (experts copied): 0 (1), 5 (2)\nsaved by the server as /a/b.json\nthe old file is now /a/b.1.json";
        assert_eq!(described(&applied), expected);
        assert_eq!(described(&json!({})).lines().count(), 1);
    }
}
