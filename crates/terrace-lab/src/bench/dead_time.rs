//! Division of a run's time, by its timeline: computing, waiting for reads, and the dead time between "all
//! that was asked for is there" and "the next was asked for".

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, BufRead};
use terrace_cli::report::RunReport;
use terrace_store::timeline::PASS;

/// Share of a class's time from which waiting is worth a word.
const MATTERS: f64 = 0.05;
/// Share of the rate that was measured from which a disk counts as busy.
const NEAR_THE_RATE: f64 = 0.6;

/// An event of a timeline, which has one in each line.
#[derive(Deserialize)]
struct Event {
    name: String,
    cat: String,
    ts: f64,
    dur: f64,
    tid: u32,
    #[serde(default)]
    args: EventArgs,
}

#[derive(Default, Deserialize)]
struct EventArgs {
    bytes: Option<f64>,
    after_layer: Option<u32>,
    before_layer: Option<u32>,
}

/// The passes of one kind: those of the prompt, the one of the first token generated, or those of later ones.
/// Times are in milliseconds per pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// The tokens.
    pub tokens: &'static str,
    /// Number of passes.
    pub passes: usize,
    /// From one pass to the next.
    pub wall_ms: f64,
    /// Computing, of that.
    pub computing_ms: f64,
    /// Waiting for reads, of that.
    pub waiting_ms: f64,
    /// No request in flight, although one followed; computing goes on meanwhile, if it can.
    pub dead_ms: f64,
    /// The part of the dead time in which nothing was computed either.
    pub idle_ms: f64,
    /// With at least one request in flight.
    pub reading_ms: f64,
    /// Bytes that were read.
    pub bytes: f64,
    /// The layers around the longest dead time: what had arrived, and what was asked for next.
    pub longest_between: Option<(Option<u32>, Option<u32>)>,
    /// Its length.
    pub longest_ms: f64,
}

/// The part of a timeline that is kept.
#[derive(Default)]
struct Kept {
    passes: Vec<f64>,
    /// Start and end of computing, and of waiting, by the thread that calls the store.
    computing: Vec<(f64, f64)>,
    waiting: Vec<(f64, f64)>,
    dead: Vec<Dead>,
    /// Start, end and bytes of reads.
    reads: Vec<(f64, f64, f64)>,
    end: f64,
}

/// A time without a request, with the layers around it.
struct Dead {
    from: f64,
    to: f64,
    between: (Option<u32>, Option<u32>),
}

fn read(timeline: impl BufRead) -> io::Result<Kept> {
    let mut kept = Kept::default();
    for line in timeline.lines() {
        let line = line?;
        // Lines of metadata have no times.
        let Ok(Event { name, cat, ts, dur, tid, args }) = serde_json::from_str(line.trim_end_matches(','))
        else {
            continue;
        };
        let span = (ts, ts + dur);
        match (&*name, &*cat) {
            (_, "idle") => {
                let between = (args.after_layer, args.before_layer);
                kept.dead.push(Dead { from: span.0, to: span.1, between });
            }
            (_, "read") => kept.reads.push((span.0, span.1, args.bytes.unwrap_or(0.0))),
            (PASS, "lane") => kept.passes.push(ts),
            ("wait", "lane") if tid == 1 => kept.waiting.push(span),
            ("join", "lane") => {}
            (_, "lane") if tid == 1 => kept.computing.push(span),
            _ => {}
        }
        kept.end = kept.end.max(span.1);
    }
    Ok(kept)
}

/// Sums up a timeline by classes of tokens; those without a pass are left out.
///
/// # Errors
/// It cannot be read.
pub fn classes(timeline: impl BufRead, run: &RunReport) -> io::Result<Vec<Class>> {
    let mut kept = read(timeline)?;
    kept.passes.sort_by(f64::total_cmp);
    let of_prompt = kept.passes.len().saturating_sub(run.timings.decode_passes);
    let mut bounds = vec![("prompt", 0, of_prompt), ("first token", of_prompt, of_prompt + 1)];
    bounds.push(("later tokens", of_prompt + 1, kept.passes.len()));
    let class = |&(tokens, from, to): &(&'static str, usize, usize)| {
        let to = to.min(kept.passes.len());
        let began = *kept.passes.get(from).filter(|_| from < to)?;
        let ended = kept.passes.get(to).copied().unwrap_or(kept.end);
        let passes = (to - from) as f64;
        let per_pass = |micros: f64| micros / 1e3 / passes;
        let within = |(from, to): (f64, f64)| (to.min(ended) - from.max(began)).max(0.0);
        let sum = |spans: &[(f64, f64)]| per_pass(spans.iter().map(|span| within(*span)).sum());
        let dead: Vec<(f64, f64)> = kept.dead.iter().map(|dead| (dead.from, dead.to)).collect();
        let busy: f64 = kept.computing.iter().map(|span| overlap(*span, &dead, (began, ended))).sum();
        let longest =
            kept.dead.iter().max_by(|a, b| within((a.from, a.to)).total_cmp(&within((b.from, b.to))));
        let longest = longest.filter(|dead| within((dead.from, dead.to)) > 0.0);
        let dead_ms = sum(&dead);
        let first_read = kept.reads.iter().map(|read| read.0).fold(f64::INFINITY, f64::min);
        let last_read = kept.reads.iter().map(|read| read.1).fold(0.0, f64::max);
        Some(Class {
            tokens,
            passes: to - from,
            wall_ms: per_pass(ended - began),
            computing_ms: sum(&kept.computing),
            waiting_ms: sum(&kept.waiting),
            dead_ms,
            idle_ms: (dead_ms - per_pass(busy)).max(0.0),
            reading_ms: (per_pass(within((first_read.min(ended), last_read))) - dead_ms).max(0.0),
            bytes: kept
                .reads
                .iter()
                .filter(|read| began <= read.0 && read.0 < ended)
                .map(|read| read.2)
                .sum(),
            longest_between: longest.map(|dead| dead.between),
            longest_ms: longest.map_or(0.0, |dead| within((dead.from, dead.to)) / 1e3),
        })
    };
    Ok(bounds.iter().filter_map(class).collect())
}

/// Part of a span in any of `others`, which are in order and apart, and in `bounds`.
fn overlap((from, to): (f64, f64), others: &[(f64, f64)], bounds: (f64, f64)) -> f64 {
    let (from, to) = (from.max(bounds.0), to.min(bounds.1));
    let at = others.partition_point(|other| other.1 <= from);
    let of = |other: &(f64, f64)| (to.min(other.1) - from.max(other.0)).max(0.0);
    others[at..].iter().take_while(|other| other.0 < to).map(of).sum()
}

impl Class {
    /// The cause of the waiting, in words. `gbps`: the rate that was measured of the disk, if one was.
    pub fn cause(&self, gbps: Option<f64>) -> String {
        let share = |ms: f64| if self.wall_ms > 0.0 { ms / self.wall_ms } else { 0.0 };
        let percent = |ms: f64| format!("{:.0} %", share(ms) * 100.0);
        let rate = self.bytes / (self.reading_ms * self.passes as f64).max(1e-9) / 1e6;
        if share(self.waiting_ms) < MATTERS {
            let rest = self.wall_ms - self.computing_ms - self.waiting_ms;
            if share(rest) > 0.5 {
                return format!(
                    "{} of the time is between graphs and on devices, not reading",
                    percent(rest)
                );
            }
            return format!(
                "computing takes {}, waiting for reads only {}",
                percent(self.computing_ms),
                percent(self.waiting_ms)
            );
        }
        if self.idle_ms > self.waiting_ms * 0.5 && share(self.idle_ms) > MATTERS {
            return format!(
                "nothing was asked of the disk for {} while nothing was computed: the next layer is asked for too late",
                percent(self.idle_ms)
            );
        }
        match gbps.filter(|gbps| rate < gbps * NEAR_THE_RATE) {
            Some(gbps) => format!(
                "reads wait for each other: {rate:.2} GB/s of {gbps:.2} while reading; too few or too small at once"
            ),
            None => format!(
                "the disk: it reads for {} at {rate:.2} GB/s, and computing waits {}",
                percent(self.reading_ms),
                percent(self.waiting_ms)
            ),
        }
    }
}

/// A row of the table: its name, and the number of each class.
type Row = (&'static str, fn(&Class) -> f64);

/// A table with a column per class, and a line with the cause of each one's waiting.
pub fn table(classes: &[Class], gbps: Option<f64>) -> String {
    let mut text = format!("\nwhere the time goes, ms per pass\n{:<24}", "");
    for class in classes {
        let _ = write!(text, "{:>18}", format!("{} ({})", class.tokens, class.passes));
    }
    let rows: [Row; 6] = [
        ("wall", |class| class.wall_ms),
        ("computing", |class| class.computing_ms),
        ("waiting for reads", |class| class.waiting_ms),
        ("reads in flight", |class| class.reading_ms),
        ("dead, no request", |class| class.dead_ms),
        ("dead, no computing", |class| class.idle_ms),
    ];
    for (name, value) in rows {
        let _ = write!(text, "\n{name:<24}");
        for class in classes {
            let _ = write!(text, "{:>18.2}", value(class));
        }
    }
    for class in classes {
        let _ = write!(text, "\n{}: {}", class.tokens, class.cause(gbps));
        if let Some((after, before)) = class.longest_between.filter(|_| class.longest_ms >= 0.1) {
            let name = |layer: Option<u32>| {
                layer.map_or_else(|| "weights of no layer".into(), |n| format!("layer {n}"))
            };
            let _ = write!(
                text,
                "; longest dead time {:.1} ms, from {} to {}",
                class.longest_ms,
                name(after),
                name(before)
            );
        }
    }
    text + "\n"
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn run(decode_passes: usize) -> RunReport {
        serde_json::from_value(serde_json::json!({
            "text": "", "tokens": [], "prompt_tokens": 1, "stop": "length", "mode": "expert-streaming", "plan": {},
            "timings": {
                "load_ms": 1.0, "prompt_tps": 1.0, "decode_tps": 1.0, "ttft_ms": 1.0,
                "decode_passes": decode_passes,
            },
            "store": null, "peak_rss_bytes": 1,
        }))
        .unwrap()
    }

    /// Passes of 10, 20 and 20 ms, each of which reads for 4 ms and then computes for 2, and asks again only
    /// after that.
    fn timeline() -> String {
        let mut text = String::from("{\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\"},\n");
        let mut event = |name: &str, cat: &str, from: f64, ms: f64, args: &str| {
            let (ts, dur) = (from * 1e3, ms * 1e3);
            text += &format!(
                "{{\"name\":\"{name}\",\"cat\":\"{cat}\",\"ph\":\"X\",\"ts\":{ts},\"dur\":{dur},\"pid\":1,\"tid\":1,\"args\":{{{args}}}}},\n"
            );
        };
        for begin in [0.0, 10.0, 30.0] {
            event("pass", "lane", begin, 0.0, "");
            event("decode", "read", begin, 4.0, "\"bytes\":4000000,\"layer\":1");
            event("wait", "lane", begin, 4.0, "\"layer\":1");
            event("experts", "lane", begin + 4.0, 2.0, "\"layer\":1");
        }
        event("idle", "idle", 4.0, 6.0, "\"after_layer\":1,\"before_layer\":2");
        event("idle", "idle", 14.0, 16.0, "\"after_layer\":1,\"before_layer\":3");
        event("dense", "lane", 49.0, 1.0, "");
        text + "],\"otherData\":{}}"
    }

    #[test]
    fn time_is_divided_by_what_passes_are_for() {
        let classes = classes(timeline().as_bytes(), &run(2)).unwrap();
        let [prompt, first, later] = &classes[..] else { panic!("{classes:#?}") };
        assert_eq!((prompt.tokens, prompt.passes, prompt.wall_ms), ("prompt", 1, 10.0));
        assert_eq!((prompt.computing_ms, prompt.waiting_ms, prompt.dead_ms), (2.0, 4.0, 6.0));
        assert_eq!((prompt.idle_ms, prompt.reading_ms), (4.0, 4.0), "2 ms of the dead time were computing");
        assert_eq!((first.wall_ms, first.dead_ms, first.longest_ms), (20.0, 16.0, 16.0));
        assert_eq!(first.longest_between, Some((Some(1), Some(3))));
        assert_eq!((later.wall_ms, later.computing_ms, later.dead_ms), (20.0, 3.0, 0.0));
        // A run of the prompt alone.
        assert_eq!(self::classes(timeline().as_bytes(), &run(0)).unwrap().len(), 1);
    }

    #[test]
    fn the_cause_is_one_line() {
        let classes = classes(timeline().as_bytes(), &run(2)).unwrap();
        assert!(classes[1].cause(None).contains("asked for too late"), "{}", classes[1].cause(None));
        let busy = Class { wall_ms: 10.0, computing_ms: 9.9, waiting_ms: 0.1, passes: 1, ..Class::default() };
        assert!(busy.cause(None).starts_with("computing takes 99 %"), "{}", busy.cause(None));
        let disk = Class { waiting_ms: 8.0, reading_ms: 9.0, bytes: 9e6, computing_ms: 2.0, ..busy };
        assert!(
            disk.cause(Some(1.1)).starts_with("the disk: it reads for 90 % at 1.00 GB/s"),
            "{}",
            disk.cause(Some(1.1))
        );
        assert!(disk.cause(Some(4.0)).starts_with("reads wait for each other"), "{}", disk.cause(Some(4.0)));
        let text = table(&[disk], None);
        assert!(text.lines().count() == 10 && text.ends_with('\n'), "{text}");
    }
}
