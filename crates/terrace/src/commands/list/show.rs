//! The table of downloaded models.

use super::Downloaded;
use terrace_plan::short_number;

/// A line for each model in at most `columns`; two where names are too long for that.
pub fn table(models: &[Downloaded], columns: usize) -> String {
    let rows: Vec<[String; 4]> = models.iter().map(row).collect();
    let title = ["model", "size", "type", "on this machine"].map(str::to_owned);
    let all: Vec<&[String; 4]> = std::iter::once(&title).chain(&rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, size, ty) = (width(0), width(1), width(2));
    let line = |row: &&[String; 4]| {
        let [model, bytes, quantisation, speed] = row;
        format!("{model:<name$}  {bytes:>size$}  {quantisation:<ty$}  {speed}").trim_end().to_owned() + "\n"
    };
    let lines: Vec<String> = all.iter().map(line).collect();
    if lines.iter().all(|line| line.chars().count() <= columns + 1) {
        return lines.concat();
    }
    let two = |[model, bytes, quantisation, speed]: &[String; 4]| {
        format!("{model}\n  {bytes:>size$}  {quantisation:<ty$}  {speed}\n")
    };
    rows.iter().map(two).collect()
}

fn row(model: &Downloaded) -> [String; 4] {
    let speed = match (&model.mode, model.decode_tok_s) {
        (None, _) => "does not fit".to_owned(),
        (Some(mode), None) => mode.clone(),
        (Some(mode), Some(rate)) => format!("{}, about {} tokens/s", place(mode), short_number(rate)),
    };
    [model.name.clone(), model.bytes.to_string(), model.quantisation.clone(), speed]
}

/// A plan's mode in words.
fn place(mode: &str) -> &'static str {
    match mode {
        "mapped" | "full-resident" => "fits in memory",
        _ => "streams from disk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn a_line_for_each_model() {
        let model = |name: &str, mode: Option<&str>| Downloaded {
            name: name.into(),
            path: "x".into(),
            bytes: ByteSize::gib(2),
            quantisation: "q4_K".into(),
            mode: mode.map(str::to_owned),
            decode_tok_s: Some(12.4),
        };
        let models = [model("hf:a/b:c.gguf", Some("mapped")), model("hf:a/b:longer.gguf", None)];
        let text = table(&models, 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "hf:a/b:c.gguf       2 GiB  q4_K  fits in memory, about 12.4 tokens/s");
        assert_eq!(lines[2], "hf:a/b:longer.gguf  2 GiB  q4_K  does not fit");
        let narrow = table(&models, 60);
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(lines[..2], ["hf:a/b:c.gguf", "  2 GiB  q4_K  fits in memory, about 12.4 tokens/s"]);
    }
}
