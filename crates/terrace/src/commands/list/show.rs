//! The table of downloaded models.

use super::Downloaded;

/// A line for each model.
pub fn table(models: &[Downloaded]) -> String {
    let rows: Vec<[String; 4]> = models.iter().map(row).collect();
    let title = ["model", "size", "type", "on this machine"].map(str::to_owned);
    let all: Vec<&[String; 4]> = std::iter::once(&title).chain(&rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, size, ty) = (width(0), width(1), width(2));
    let line = |row: &&[String; 4]| {
        let [model, bytes, quantisation, speed] = row;
        format!("{model:<name$}  {bytes:>size$}  {quantisation:<ty$}  {speed}").trim_end().to_owned() + "\n"
    };
    all.iter().map(line).collect()
}

fn row(model: &Downloaded) -> [String; 4] {
    let speed = match (&model.mode, model.decode_tok_s) {
        (None, _) => "does not fit".to_owned(),
        (Some(mode), None) => mode.clone(),
        (Some(mode), Some(rate)) => format!("{}, about {rate:.0} tokens/s", place(mode)),
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
        let text = table(&[model("hf:a/b:c.gguf", Some("mapped")), model("hf:a/b:longer.gguf", None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "hf:a/b:c.gguf       2 GiB  q4_K  fits in memory, about 12 tokens/s");
        assert_eq!(lines[2], "hf:a/b:longer.gguf  2 GiB  q4_K  does not fit");
    }
}
