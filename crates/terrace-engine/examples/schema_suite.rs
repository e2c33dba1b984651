//! Asks grammars of JSON schemas about the instances of the JSON-Schema-Test-Suite (`scripts/schema-suite`):
//!
//! ```text
//! cargo run --release --example schema_suite -- FOLDER [--stock] [--list]
//! ```
//!
//! FOLDER has the suite's files of a draft. An instance counts as accepted if one of two ways to write it is, without
//! and with spaces. `--stock` gives the schemas to llama.cpp's converter as they are, as llama-server does; `--list`
//! prints each instance that is accepted although it is invalid, and no keyword was named as not enforced.

#![allow(clippy::disallowed_methods, reason = "reads the suite's files, which are the user's own")]
#![allow(clippy::print_stdout, reason = "an example, not part of the program")]

use serde_json::Value;
use std::error::Error;
use std::fs;
use terrace_engine::Schema;
use terrace_ggml::common::{check_grammar, grammar_accepts, schema_grammar};

#[derive(Default)]
struct Counts {
    schemas: usize,
    refused: usize,
    whole: usize,
    valid: [usize; 2],
    invalid: [usize; 2],
    named: usize,
    silent: Vec<String>,
    refusals: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let folder =
        args.iter().find(|arg| !arg.starts_with("--")).ok_or("arguments: FOLDER [--stock] [--list]")?;
    let mut files: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    if files.is_empty() {
        return Err(format!("{folder} has no files of the suite").into());
    }
    let mut counts = Counts::default();
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let groups: Vec<Value> = serde_json::from_str(&fs::read_to_string(file)?)?;
        for group in &groups {
            counts.group(
                &format!("{name}: {}", group["description"].as_str().unwrap_or("")),
                group,
                has("--stock"),
            );
        }
    }
    counts.print(has("--list"));
    Ok(())
}

impl Counts {
    fn group(&mut self, name: &str, group: &Value, stock: bool) {
        self.schemas += 1;
        let (grammar, unenforced) = match grammar_of(&group["schema"], stock) {
            Ok(found) => found,
            Err(error) => {
                self.refused += 1;
                self.refusals.push(format!("{name}: {error}"));
                return;
            }
        };
        self.whole += usize::from(unenforced == 0);
        for test in group["tests"].as_array().into_iter().flatten() {
            let valid = test["valid"] == true;
            let of = if valid { &mut self.valid } else { &mut self.invalid };
            of[0] += 1;
            let accepted = [test["data"].to_string(), spaced(&test["data"])]
                .iter()
                .any(|text| grammar_accepts(&grammar, text).unwrap_or(false));
            match (valid, accepted) {
                (true, true) => self.valid[1] += 1,
                (false, false) => self.invalid[1] += 1,
                (false, true) if unenforced > 0 => self.named += 1,
                (false, true) => {
                    self.silent.push(format!("{name}: {}", test["description"].as_str().unwrap_or("")))
                }
                (true, false) => {}
            }
        }
    }

    fn print(&self, list: bool) {
        let share =
            |part: usize, all: usize| format!("{part} of {all} ({:.1}%)", 100.0 * part as f64 / all as f64);
        let compiled = self.schemas - self.refused;
        println!("schemas compiled: {}", share(compiled, self.schemas));
        println!("of these with nothing named as not enforced: {}", share(self.whole, compiled));
        println!("valid instances accepted: {}", share(self.valid[1], self.valid[0]));
        println!("invalid instances rejected: {}", share(self.invalid[1], self.invalid[0]));
        println!("invalid ones accepted, with a keyword named: {}", share(self.named, self.invalid[0]));
        println!("invalid ones accepted in silence: {}", share(self.silent.len(), self.invalid[0]));
        if list {
            self.silent.iter().for_each(|name| println!("silent: {name}"));
            self.refusals.iter().for_each(|name| println!("refused: {name}"));
        }
    }
}

/// The grammar of a schema, and the number of keywords that it does not hold.
fn grammar_of(schema: &Value, stock: bool) -> Result<(String, usize), Box<dyn Error>> {
    let (text, unenforced) = if stock {
        (schema.to_string(), 0)
    } else {
        let read = Schema::of(schema)?;
        (read.text, read.unenforced.len())
    };
    let grammar = schema_grammar(&text)?;
    check_grammar(&grammar)?;
    Ok((grammar, unenforced))
}

/// JSON with a space after each comma and colon.
fn spaced(value: &Value) -> String {
    let list = |all: Vec<String>| all.join(", ");
    match value {
        Value::Array(all) => format!("[{}]", list(all.iter().map(spaced).collect())),
        Value::Object(map) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), spaced(value))
            };
            format!("{{{}}}", list(map.iter().map(member).collect()))
        }
        other => other.to_string(),
    }
}
