//! The examples do what they show.

use super::{bundled, compiled, library, root, run, stdout};
use std::process::Command;

const PROMPT: &str = "In the beginning";

#[test]
fn the_example_in_c_generates_stops_embeds_and_reloads() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(&root().join("examples/c/generate.c"), dir.path());
    let out = stdout(&run(Command::new(program).arg(bundled()).arg(PROMPT), dir.path()));
    for line in ["plan: ", "16 tokens: {", "stopped after 3", "embedding of ", "statistics: "] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(out.contains(&format!("are {PROMPT}")), "{out}");
    assert!(out.contains("\"stop\":\"length\"") && out.contains("\"swapped\":[]"), "{out}");
}

#[test]
fn the_example_in_python_generates_the_same_text() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(&root().join("examples/c/generate.c"), dir.path());
    let c = stdout(&run(Command::new(program).arg(bundled()).arg(PROMPT), dir.path()));
    let mut python = Command::new("python3");
    python.arg(root().join("examples/python/generate.py")).arg(library()).arg(bundled()).arg(PROMPT);
    let python = stdout(&run(&mut python, dir.path()));
    // After the line about the plan.
    let text = c.split_once("JSON\n").unwrap().1.split_once("\n16 tokens").unwrap().0;
    assert!(text.len() > 10 && python.starts_with(text), "{text}\n{python}");
    assert!(python.contains("16 tokens, "), "{python}");
}
