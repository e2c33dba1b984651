//! Rows in llama-bench's forms: one for the prompt of a test, one for the tokens after it.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::str::FromStr;
use terrace_cli::report::RunReport;
use terrace_model::{ByteSize, ModelFile};
use terrace_platform::processor;

/// A form of llama-bench's `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Markdown,
    Csv,
    Json,
    JsonLines,
    Sql,
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "md" => Ok(Self::Markdown),
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            "sql" => Ok(Self::Sql),
            _ => Err("must be md, csv, json, jsonl or sql".into()),
        }
    }
}

/// A field's name and value.
type Field = (&'static str, Value);

/// One combination of settings, measured.
pub struct Test {
    /// Options that vary, with their values.
    pub settings: Vec<(String, String)>,
    /// Tokens before the prompt, unless a setting.
    pub depth: u32,
    /// The measured runs.
    pub runs: Vec<RunReport>,
}

/// Measurements of a test.
pub struct Row {
    pub settings: Vec<(String, String)>,
    /// Fields by llama-bench's names, in its order.
    fields: Vec<Field>,
    /// Tokens of the prompt; 0 in a row about the tokens after it.
    prompt: u64,
    /// Tokens generated; 0 in a row about the prompt.
    generated: u64,
    /// Tokens before those.
    depth: u64,
    /// Nanoseconds of each run.
    times: Vec<f64>,
    /// Tokens/s of each run.
    rates: Vec<f64>,
}

impl Row {
    /// The rows of a test: a prompt of one token, and a single token after it, have no rate of their own.
    pub fn of(test: &Test, header: &ModelFile, model: &Path) -> Vec<Self> {
        let Some(first) = test.runs.first() else { return Vec::new() };
        let (prompt, generated) = (first.prompt_tokens as u64, first.tokens.len() as u64);
        let set = test.settings.iter().find(|(option, _)| option == "depth");
        let depth = set.and_then(|(_, value)| value.parse().ok()).unwrap_or(u64::from(test.depth));
        let row = |prompt, generated, depth, times: fn(&RunReport) -> (f64, f64)| {
            let (times, rates): (Vec<f64>, Vec<f64>) =
                test.runs.iter().map(times).map(|(ms, rate)| (ms * 1e6, rate)).unzip();
            let settings = test.settings.clone();
            let fields = fields(first, header, model);
            Self { settings, fields, prompt, generated, depth, times, rates }
        };
        let mut rows = Vec::new();
        if prompt > 1 || generated <= 1 {
            rows.push(row(prompt, 0, depth, |run| (run.timings.prompt_ms, run.timings.prompt_tps)));
        }
        if generated > 1 {
            rows.push(row(0, generated, depth + prompt, |run| {
                (run.timings.decode_ms, run.timings.decode_tps)
            }));
        }
        rows
    }

    /// Mean and standard deviation of the runs, in tokens/s.
    pub fn rate(&self) -> (f64, f64) {
        spread(&self.rates)
    }

    /// The test in llama-bench's words: `pp512 @ d1024`.
    pub fn test(&self) -> String {
        let mut name =
            if self.generated == 0 { format!("pp{}", self.prompt) } else { format!("tg{}", self.generated) };
        if self.depth > 0 {
            let _ = write!(name, " @ d{}", self.depth);
        }
        name
    }

    /// All fields, in llama-bench's order.
    fn values(&self) -> Vec<Field> {
        let mut all = self.fields.clone();
        let ((time, time_deviation), (rate, rate_deviation)) = (spread(&self.times), self.rate());
        all.extend([
            ("n_prompt", json!(self.prompt)),
            ("n_gen", json!(self.generated)),
            ("n_depth", json!(self.depth)),
            ("test_time", json!(utc(Utc::now()))),
            ("avg_ns", json!(time as u64)),
            ("stddev_ns", json!(time_deviation as u64)),
            ("avg_ts", json!(rate)),
            ("stddev_ts", json!(rate_deviation)),
        ]);
        all
    }

    /// The fields, and the values of each run.
    fn object(&self) -> Value {
        let mut all = self.values();
        let times: Vec<u64> = self.times.iter().map(|&time| time as u64).collect();
        all.extend([("samples_ns", json!(times)), ("samples_ts", json!(self.rates))]);
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Fields that the rows of a test share.
fn fields(run: &RunReport, header: &ModelFile, model: &Path) -> Vec<Field> {
    let weights: u64 = header.tensors.iter().map(|tensor| tensor.shape.elements()).sum();
    let kv = run.plan["kv_type"].as_str().unwrap_or_default();
    let (keys, values) = kv.split_once('/').unwrap_or((kv, kv));
    vec![
        ("build_commit", json!(concat!("terrace ", env!("CARGO_PKG_VERSION")))),
        ("cpu_info", json!(processor::name())),
        ("backends", json!("Terrace")),
        ("model_filename", json!(model)),
        ("model_type", json!(header.str("general.name").unwrap_or(header.architecture()))),
        ("model_size", json!(header.size().bytes())),
        ("model_n_params", json!(weights)),
        ("n_batch", run.plan["batch"].clone()),
        ("n_ubatch", run.plan["ubatch"].clone()),
        ("n_threads", run.plan["threads"].clone()),
        ("type_k", json!(keys)),
        ("type_v", json!(values)),
    ]
}

/// Mean and standard deviation of a sample.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// A time in UTC: 2026-11-27T08:00:00Z.
fn utc(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl Form {
    /// All rows.
    pub fn text(self, rows: &[Row]) -> String {
        let lines = |line: &dyn Fn(&Row) -> String| rows.iter().map(line).collect::<Vec<_>>().join("\n");
        match self {
            Self::Markdown => markdown(rows),
            Self::Json => {
                let rows: Vec<Value> = rows.iter().map(Row::object).collect();
                serde_json::to_string_pretty(&rows).expect("numbers are plain data")
            }
            Self::JsonLines => lines(&|row| row.object().to_string()),
            Self::Csv => {
                let names = rows.first().map(|row| names(row).join(",")).unwrap_or_default();
                let quoted = |value: &Value| format!("\"{}\"", plain(value).replace('"', "\"\""));
                let line = |row: &Row| {
                    row.values().iter().map(|(_, value)| quoted(value)).collect::<Vec<_>>().join(",")
                };
                format!("{names}\n{}", lines(&line))
            }
            Self::Sql => {
                let Some(first) = rows.first() else { return String::new() };
                let columns: Vec<String> = first
                    .values()
                    .iter()
                    .map(|(name, value)| format!("  {name} {}", sql_type(value)))
                    .collect();
                let quoted = |value: &Value| format!("'{}'", plain(value).replace('\'', "''"));
                let line = |row: &Row| {
                    let values: Vec<String> = row.values().iter().map(|(_, value)| quoted(value)).collect();
                    format!(
                        "INSERT INTO llama_bench ({}) VALUES ({});",
                        names(row).join(", "),
                        values.join(", ")
                    )
                };
                let columns = columns.join(",\n");
                format!("CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n\n{}", lines(&line))
            }
        }
    }
}

fn names(row: &Row) -> Vec<&'static str> {
    row.values().iter().map(|(name, _)| *name).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn sql_type(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "REAL",
        Value::Number(_) => "INTEGER",
        _ => "TEXT",
    }
}

/// llama-bench's table, with a column for each option that varies.
fn markdown(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let own = ["n", "prompt-tokens", "depth"];
    let varied: Vec<&str> =
        first.settings.iter().map(|(option, _)| option.as_str()).filter(|name| !own.contains(name)).collect();
    let width = |name: &str| name.chars().count().max(7);
    let mut out = format!("| {:<30} | {:>10} | {:>10} | {:<10} |", "model", "size", "params", "backend");
    let mut rule =
        format!("| {} | {}: | {}: | {} |", "-".repeat(30), "-".repeat(9), "-".repeat(9), "-".repeat(10));
    for name in &varied {
        let _ = write!(out, " {name:>0$} |", width(name));
        let _ = write!(rule, " {}: |", "-".repeat(width(name) - 1));
    }
    let _ =
        write!(out, " {:>15} | {:>20} |\n{rule} {}: | {}: |", "test", "t/s", "-".repeat(14), "-".repeat(19));
    for row in rows {
        let field = |name: &str| {
            row.fields.iter().find(|(of, _)| *of == name).map_or(&Value::Null, |(_, value)| value)
        };
        let text = |name: &str| plain(field(name));
        let number = |name: &str| field(name).as_u64().unwrap_or_default();
        let (size, weights) = (ByteSize(number("model_size")).to_string(), number("model_n_params") as f64);
        let weights =
            if weights < 1e9 { format!("{:.2} M", weights / 1e6) } else { format!("{:.2} B", weights / 1e9) };
        let _ = write!(
            out,
            "\n| {:<30} | {size:>10} | {weights:>10} | {:<10} |",
            text("model_type"),
            text("backends")
        );
        for name in &varied {
            let value = row.settings.iter().find(|(option, _)| option == name).map_or("", |(_, value)| value);
            let _ = write!(out, " {value:>0$} |", width(name));
        }
        let (mean, deviation) = row.rate();
        let _ = write!(out, " {:>15} | {:>20} |", row.test(), format!("{mean:.2} ± {deviation:.2}"));
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn row(prompt: u64, generated: u64) -> Row {
        let fields = vec![
            ("backends", json!("Terrace")),
            ("model_type", json!("it's a \"model\"")),
            ("model_size", json!(5 << 30)),
            ("model_n_params", json!(7_000_000_000_u64)),
        ];
        let settings = vec![("threads".to_owned(), "4".to_owned())];
        Row { settings, fields, prompt, generated, depth: 8, times: vec![1e9, 3e9], rates: vec![10.0, 30.0] }
    }

    #[test]
    fn forms_are_llama_benchs() {
        let rows = [row(512, 0), row(0, 128)];
        let json: Value = serde_json::from_str(&Form::Json.text(&rows)).unwrap();
        assert_eq!(
            (&json[0]["n_prompt"], &json[1]["n_gen"], &json[1]["n_depth"]),
            (&json!(512), &json!(128), &json!(8))
        );
        assert_eq!((&json[0]["avg_ts"], &json[0]["avg_ns"]), (&json!(20.0), &json!(2_000_000_000_u64)));
        assert!((json[0]["stddev_ts"].as_f64().unwrap() - 14.142).abs() < 1e-3);
        let lines = Form::JsonLines.text(&rows);
        assert!(
            lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
                && lines.lines().count() == 2
        );
        let csv = Form::Csv.text(&rows);
        assert!(csv.starts_with("backends,model_type,") && csv.contains("\"it's a \"\"model\"\"\""), "{csv}");
        let sql = Form::Sql.text(&rows);
        assert!(sql.contains("  avg_ts REAL,") && sql.contains("'it''s a"), "{sql}");
        let table = Form::Markdown.text(&rows);
        let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 4, "{table}");
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
        assert!(
            table.contains("pp512 @ d8 |        20.00 ± 14.14 |") && table.contains("threads"),
            "{table}"
        );
    }

    #[test]
    fn times_are_utc() {
        let utc = |seconds| utc(DateTime::from_timestamp(seconds, 0).unwrap());
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_764_230_401), "2025-11-27T08:00:01Z");
    }
}
