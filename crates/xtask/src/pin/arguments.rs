//! The options of llama.cpp's programs. `arguments.txt` lists those of the programs that Terrace stands in for; a
//! test of the binary walks through it.

use super::moved::Moved;
use super::tree::Tree;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The list, within the folder.
pub const LIST: &str = "arguments.txt";
/// The source, within the tree.
const SOURCE: &str = "common/arg.cpp";
/// Programs whose command lines Terrace takes, as the source names them.
const PROGRAMS: [&str; 7] = ["COMMON", "COMPLETION", "CLI", "SERVER", "PERPLEXITY", "BENCH", "IMATRIX"];
/// The beginning of a definition.
const DEFINITION: &str = "add_opt(common_arg(";

const HEADER: &str = "\
# Options of common/arg.cpp, as `cargo xtask arguments` writes them: the spellings, what follows them, and the
# programs that have them (common: all).
";

/// Writes the list of a tree. Returns its path.
///
/// # Errors
/// The source cannot be read, or the list not be written.
pub fn write(folder: &Path, tree: &Tree) -> Result<String, String> {
    let path = folder.join(LIST);
    let source = tree.text(SOURCE).ok_or_else(|| format!("{SOURCE} is not there"))?;
    let lines: Vec<String> = read(&source)?.into_iter().map(|(_, argument)| argument.to_string()).collect();
    let text = format!("{HEADER}{}\n", lines.join("\n"));
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// Compares the list with a tree. Returns the number of options.
///
/// # Errors
/// The list or the source cannot be read.
pub fn compare(folder: &Path, (tree, shown): (&Tree, &str), moved: &mut Vec<Moved>) -> Result<usize, String> {
    let path = folder.join(LIST);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty());
    let listed: BTreeMap<&str, usize> = lines.map(|(at, line)| (line, at + 1)).collect();
    let source = tree.text(SOURCE).ok_or_else(|| format!("{SOURCE} is not there"))?;
    let found: BTreeMap<String, usize> =
        read(&source)?.into_iter().map(|(at, argument)| (argument.to_string(), at)).collect();
    for (line, at) in found.iter().filter(|(line, _)| !listed.contains_key(line.as_str())) {
        let what =
            "is not listed: give it a line in terrace/src/config/aliases, then `cargo xtask arguments`";
        moved.push(Moved::new(
            &format!("{shown}/{LIST}"),
            &format!("{SOURCE}:{at}"),
            &format!("`{line}`"),
            what,
        ));
    }
    for (line, at) in listed.iter().filter(|(line, _)| !found.contains_key(**line)) {
        let ours = format!("{shown}/{LIST}:{at}");
        moved.push(Moved::new(&ours, SOURCE, &format!("`{line}`"), "is not there any more"));
    }
    Ok(listed.len())
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    spellings: Vec<String>,
    /// Its values: nothing, a value or two.
    takes: &'static str,
    programs: String,
}

impl std::fmt::Display for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} | {} | {}", self.spellings.join(" "), self.takes, self.programs)
    }
}

/// Reads the definitions of a source, each with its line.
///
/// # Errors
/// A definition has another form.
fn read(source: &str) -> Result<Vec<(usize, Argument)>, String> {
    let mut all = Vec::new();
    for (at, _) in source.match_indices(DEFINITION) {
        let line = source[..at].matches('\n').count() + 1;
        let body = &source[at + DEFINITION.len()..];
        let wrong = || format!("{SOURCE}:{line}: the definition has another form");
        let end = closing(body).ok_or_else(wrong)?;
        let tail = body[end..].split(';').next().unwrap_or_default();
        let Some(programs) = programs(tail) else { continue };
        let (names, rest) = group(&body[..end]).ok_or_else(wrong)?;
        let mut spellings = literals(names);
        if rest.trim_start_matches([',', ' ', '\n']).starts_with('{') {
            spellings.extend(literals(group(rest).ok_or_else(wrong)?.0));
        }
        let lambda = body[..end].find("[](common_params").map(|at| &body[at + 3..end]).ok_or_else(wrong)?;
        let parameters: Vec<&str> = lambda.split(')').next().ok_or_else(wrong)?.split(',').collect();
        let takes = match parameters[..] {
            [_] => "nothing",
            [_, one] if one.contains("bool") => "nothing",
            [_, _] => "value",
            _ => "two values",
        };
        all.push((line, Argument { spellings, takes, programs }));
    }
    if all.is_empty() { Err(format!("{SOURCE} defines no options")) } else { Ok(all) }
}

/// The programs of a definition, by what follows it; `None` if it has none that count.
fn programs(tail: &str) -> Option<String> {
    let named = |call: &str| -> Option<Vec<&str>> {
        let list = tail.split_once(call)?.1.split(')').next()?;
        let words = list.split("LLAMA_EXAMPLE_").skip(1);
        Some(words.filter_map(|word| word.split([',', '}', ' ', '\n']).next()).collect())
    };
    let counted = |names: Vec<&str>| {
        let kept: Vec<String> =
            names.into_iter().filter(|name| PROGRAMS.contains(name)).map(str::to_lowercase).collect();
        (!kept.is_empty()).then(|| kept.join(" "))
    };
    let mut text = named("set_examples(").map_or_else(|| Some("common".to_owned()), counted)?;
    if let Some(excluded) = named("set_excludes(").and_then(counted) {
        let _ = write!(text, " but {excluded}");
    }
    Some(text)
}

/// Position of the bracket that closes before a text. Texts in quotation marks may contain brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Text in the first braces, and the text after them.
fn group(text: &str) -> Option<(&str, &str)> {
    text.split_once('{')?.1.split_once('}')
}

/// The texts in quotation marks.
fn literals(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_read_with_what_follows() {
        let source = r#"
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
        string_format("size (default: %d, \"0\" = model)", params.n_ctx),
        [](common_params & params, int value) { params.n_ctx = value; }
    ).set_env("LLAMA_ARG_CTX_SIZE"));
    add_opt(common_arg(
        {"--perf"},
        {"--no-perf"},
        "timings :)",
        [](common_params & params, bool value) { params.no_perf = !value; }
    ).set_examples({LLAMA_EXAMPLE_CLI, LLAMA_EXAMPLE_TTS}).set_excludes({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"--steps"}, "N", "", [](common_params & p, int v) {}).set_examples({LLAMA_EXAMPLE_DIFFUSION}));
"#;
        let lines: Vec<String> =
            read(source).unwrap().into_iter().map(|(at, one)| format!("{at}: {one}")).collect();
        assert_eq!(
            lines,
            ["2: -c --ctx-size | value | common", "7: --perf --no-perf | nothing | cli but server"]
        );
        assert!(read("int main() {}").is_err());
    }
}
