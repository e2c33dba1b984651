//! Gains by numbers of workers, as tables and as JSON.

use serde::Serialize;
use terrace_cli::term::width;
use terrace_model::{ByteSize, printable};
use terrace_plan::scaling::{Link, Point, Prices};
use terrace_plan::{Expected, MachineProfile, short_number};

/// Gains by numbers of workers, and the model and machines that they are for.
#[derive(Debug, Serialize)]
pub struct Report {
    pub home: MachineProfile,
    pub worker: MachineProfile,
    pub link: Link,
    pub prices: Prices,
    pub expected: Expected,
    pub points: Vec<Point>,
}

impl Report {
    /// The link in words.
    pub fn link(&self) -> String {
        let bits = self.link.bytes_per_s * 8.0;
        let (bits, unit) = if bits >= 1e9 { (bits / 1e9, "Gbit/s") } else { (bits / 1e6, "Mbit/s") };
        // As they were given, mostly whole numbers.
        let [bits, latency] = [bits, self.link.latency_s * 1e6].map(|value| (value * 10.0).round() / 10.0);
        format!("{bits} {unit}, {latency} µs there and back")
    }

    /// Two tables for people, in at most `columns`: speeds and bytes, and what is busy and what it costs. Narrow ones
    /// leave columns out.
    pub fn tables(&self, columns: usize) -> String {
        let wide = columns >= WIDE;
        let facts = format!(
            "\nworkers    {}\nlink       {}\nexpected   {} tokens of prompt, {} generated\n",
            printable(&self.worker.name),
            self.link(),
            self.expected.prompt,
            self.expected.output
        );
        let note = match wide {
            true => {
                "used, layers, experts: on workers; decode and prefill in tokens/s,\n\
                 decode of all clients together\n"
            }
            false => {
                "used: workers that have weights; decode and prefill in tokens/s, decode of all clients together\n"
            }
        };
        let facts = width::wrapped(&facts, columns, "           ");
        let note = width::wrapped(note, columns, "");
        format!(
            "{facts}\n{}{note}\n{}home to disk: how long each is busy in the time of a token\n",
            table(&SPEEDS, &self.points, wide),
            table(&BUSY, &self.points, wide),
        )
    }
}

/// Columns of wide tables.
const WIDE: usize = 75;

/// A column of a table.
struct Column {
    title: &'static str,
    /// Its width; negative: its text stands left.
    width: isize,
    /// True if narrow tables have it.
    narrow: bool,
    text: fn(&Point) -> String,
}

const fn column(title: &'static str, width: isize, narrow: bool, text: fn(&Point) -> String) -> Column {
    Column { title, width, narrow, text }
}

const SPEEDS: [Column; 9] = [
    column("workers", 7, true, |point| point.workers.to_string()),
    column("clients", 7, true, |point| point.clients.to_string()),
    column("used", 4, true, |point| point.used.to_string()),
    column("layers", 7, false, |point| format!("{}/{}", point.layers_away, point.layers)),
    column("experts", 7, false, |point| share(point.experts_away)),
    column("decode", 7, true, |point| short_number(point.decode_tok_s)),
    column("prefill", 7, true, |point| short_number(point.prefill_tok_s)),
    column("disk/token", 10, true, |point| size(point.read_per_token)),
    column("links/token", 11, true, |point| size(point.link_per_token)),
];

const BUSY: [Column; 9] = [
    column("workers", 7, true, |point| point.workers.to_string()),
    column("clients", 7, true, |point| point.clients.to_string()),
    column("home", 5, true, |point| share(point.busy.home)),
    column("workers", 7, true, |point| share(point.busy.workers)),
    column("each", 5, false, |point| share(point.busy.worker)),
    column("links", 5, true, |point| share(point.busy.links)),
    column("disk", 5, true, |point| share(point.busy.disk)),
    column("bound", -7, true, |point| point.bound.to_string()),
    column("per 1M", 7, true, |point| point.per_million.map_or_else(|| "-".into(), short_number)),
];

/// A title and a line for each point.
fn table(columns: &[Column], points: &[Point], wide: bool) -> String {
    let columns: Vec<&Column> = columns.iter().filter(|column| wide || column.narrow).collect();
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns
            .iter()
            .map(|column| match usize::try_from(column.width) {
                Ok(width) => format!("{:>width$}", cell(column)),
                Err(_) => format!("{:<1$}", cell(column), column.width.unsigned_abs()),
            })
            .collect();
        cells.join(" ").trim_end().to_owned() + "\n"
    };
    let title = line(&|column| column.title.to_owned());
    title + &points.iter().map(|point| line(&|column| (column.text)(point))).collect::<String>()
}

fn share(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn size(size: ByteSize) -> String {
    if size == ByteSize::ZERO { "-".into() } else { size.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_plan::Mode;
    use terrace_plan::parts::Bound;
    use terrace_plan::scaling::Busy;

    #[test]
    fn tables_fit_terminals() {
        let size = ByteSize(1023 << 20);
        let point = Point {
            workers: 1024,
            clients: 4096,
            used: 1024,
            layers_away: 128,
            layers: 128,
            experts_away: 1.0,
            mode: Mode::ExpertStreaming,
            decode_tok_s: 12345.6,
            prefill_tok_s: 12345.6,
            ttft_ms: 1.0,
            read_per_token: size,
            link_per_token: size,
            link_per_prompt_token: size,
            sent_at_load: size,
            bound: Bound::Compute,
            busy: Busy { home: 1.0, workers: 1.0, worker: 1.0, links: 1.0, disk: 1.0 },
            per_million: Some(1234.5),
        };
        for (wide, columns) in [(true, 75), (false, 60)] {
            for columns_of in [&SPEEDS, &BUSY] {
                let text = table(columns_of, std::slice::from_ref(&point), wide);
                assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
                assert_eq!(text.lines().count(), 2);
            }
        }
    }
}
