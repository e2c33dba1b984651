//! `cargo xtask chart`: estimated speeds of well-known models by RAM, as the README shows them.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Path of the drawing.
const FILE: &str = "docs/pictures/ram-by-model.svg";
/// The machine that is planned for, with RAM of each of [`RAM_GIB`].
const MACHINE: &str = "crates/terrace/tests/machines/laptop-32.json";
const RAM_GIB: [u32; 6] = [8, 16, 32, 64, 128, 256];
/// Rows, by their names in the catalogue.
const MODELS: [&str; 9] = [
    "gpt-oss-20b",
    "Qwen3-30B-A3B",
    "Mixtral-8x7B",
    "gpt-oss-120b",
    "GLM-4.5-Air",
    "Qwen3-235B-A22B",
    "DeepSeek-V3",
    "Llama-3.1-8B",
    "Llama-3.3-70B",
];

/// In pixels.
const WIDTH: usize = 760;
const LEFT: usize = 240;
const TOP: usize = 88;
const COLUMN: usize = 84;
const ROW: usize = 34;
const GAP: usize = 4;

/// Tokens/s up to which each shade reaches, and the shade. The last one has no limit.
const STREAMS: [(f64, &str); 4] =
    [(0.5, "#e8cf9f"), (2.0, "#dfb766"), (8.0, "#d9a441"), (f64::INFINITY, "#cc8f1f")];
const FITS: [(f64, &str); 4] =
    [(0.5, "#c9e2d3"), (2.0, "#9fd0b3"), (8.0, "#6dbb8e"), (f64::INFINITY, "#3fa56b")];

const STYLE: &str = "<style>.page{fill:#ffffff}.text{fill:#1f2328}.soft{fill:#59636e}.none{fill:#eaeef2}\
    .on{fill:#10151b}@media (prefers-color-scheme:dark){.page{fill:#0d1117}.text{fill:#e6edf3}\
    .soft{fill:#9da7b1}.none{fill:#21262d}}</style>";

/// A model's estimates.
struct Row {
    name: String,
    gib: f64,
    /// Tokens/s and whether all weights fit, for each of [`RAM_GIB`]; `None` where the model cannot run.
    cells: Vec<Option<(f64, bool)>>,
}

/// Draws the chart with the estimates of `target/release/terrace`, and names the file.
///
/// # Errors
/// The program is not built or fails, prints something unexpected, or the file cannot be written.
pub fn write(root: &Path) -> Result<String, String> {
    let catalogues: Vec<Vec<Value>> =
        RAM_GIB.iter().map(|gib| catalogue(root, *gib)).collect::<Result<_, _>>()?;
    let rows: Vec<Row> = MODELS.iter().map(|name| row(name, &catalogues)).collect::<Result<_, _>>()?;
    let path = root.join(FILE);
    std::fs::write(&path, draw(&rows)).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// Runs `terrace plan --catalogue` for the machine with `gib` GiB of RAM.
fn catalogue(root: &Path, gib: u32) -> Result<Vec<Value>, String> {
    let output = Command::new(root.join("target/release/terrace"))
        .args(["plan", "--catalogue", "--json", "--machine", MACHINE])
        .args(["--what-if", &format!("ram={gib}GiB")])
        .current_dir(root)
        .env("TERRACE_CONFIG", "/dev/null")
        .output()
        .map_err(|error| format!("target/release/terrace: {error}; `make build` builds it"))?;
    if !output.status.success() {
        return Err(format!("terrace plan: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("terrace plan --json: {error}"))
}

fn row(name: &str, catalogues: &[Vec<Value>]) -> Result<Row, String> {
    let found: Vec<&Value> =
        catalogues.iter().filter_map(|models| models.iter().find(|one| one["model"] == name)).collect();
    let first = found.first().ok_or_else(|| format!("{name} is not in the catalogue"))?;
    let gib = first["bytes"].as_f64().ok_or_else(|| format!("{name}: no size"))? / f64::from(1 << 30);
    let cell = |model: &&Value| Some((model["decode_tok_s"].as_f64()?, model["fits"].as_bool()?));
    Ok(Row { name: name.to_owned(), gib, cells: found.iter().map(cell).collect() })
}

fn draw(rows: &[Row]) -> String {
    let height = TOP + rows.len() * ROW + 46;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
         {height}\" role=\"img\" font-family=\"system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif\" \
         font-size=\"14\">\n<title>Estimated tokens per second by model and RAM</title>\n{STYLE}\n<rect \
         class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>"
    );
    text(&mut out, (20, 30), "text", "font-size=\"16\" font-weight=\"600\"", "Tokens per second, estimated");
    let machine = "a laptop with 8 cores, 60 GB/s of memory, an NVMe disk of 5 GB/s, no GPU";
    text(&mut out, (20, 50), "soft", "font-size=\"12\"", machine);
    text(&mut out, (LEFT - 12, TOP - 10), "soft", "text-anchor=\"end\" font-size=\"12\"", "RAM, GiB");
    for (column, gib) in RAM_GIB.iter().enumerate() {
        let x = LEFT + column * COLUMN + (COLUMN - GAP) / 2;
        text(&mut out, (x, TOP - 10), "text", "text-anchor=\"middle\"", &gib.to_string());
    }
    for (line, row) in rows.iter().enumerate() {
        let y = TOP + line * ROW;
        text(&mut out, (20, y + 20), "text", "", &row.name);
        let size = format!("{:.0} GiB", row.gib);
        text(&mut out, (LEFT - 12, y + 20), "soft", "text-anchor=\"end\" font-size=\"12\"", &size);
        for (column, cell) in row.cells.iter().enumerate() {
            draw_cell(&mut out, (LEFT + column * COLUMN, y), *cell);
        }
    }
    let foot = TOP + rows.len() * ROW + 26;
    let legend =
        [(20, STREAMS[2].1, "weights stream from disk"), (230, FITS[2].1, "all weights fit in memory")];
    for (x, colour, label) in legend {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>",
            foot - 12
        );
        text(&mut out, (x + 22, foot), "soft", "font-size=\"12\"", label);
    }
    text(
        &mut out,
        (WIDTH - 20, foot),
        "soft",
        "text-anchor=\"end\" font-size=\"12\"",
        "Q4_K_M; gpt-oss: MXFP4",
    );
    out + "</svg>\n"
}

fn draw_cell(out: &mut String, (x, y): (usize, usize), cell: Option<(f64, bool)>) {
    let size = format!("width=\"{}\" height=\"{}\" rx=\"4\"", COLUMN - GAP, ROW - GAP);
    let middle = (x + (COLUMN - GAP) / 2, y + 20);
    let Some((speed, fits)) = cell else {
        let _ = writeln!(out, "<rect class=\"none\" x=\"{x}\" y=\"{y}\" {size}/>");
        return text(out, middle, "soft", "text-anchor=\"middle\"", "-");
    };
    let shades = if fits { FITS } else { STREAMS };
    let colour = shades.iter().find(|(most, _)| speed < *most).map_or(shades[3].1, |(_, colour)| colour);
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" {size} fill=\"{colour}\"/>");
    let digits = usize::from(speed < 9.95);
    text(out, middle, "on", "text-anchor=\"middle\"", &format!("{speed:.digits$}"));
}

fn text(out: &mut String, (x, y): (usize, usize), class: &str, attributes: &str, text: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" {attributes}>{text}</text>");
}
