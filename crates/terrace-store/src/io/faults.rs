//! Faults to inject, and when.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The read fails.
    Eio,
    /// The read is interrupted.
    Eintr,
    /// The read is refused temporarily.
    Eagain,
    Ecanceled,
    /// The read returns fewer bytes than requested.
    Short,
    /// The read returns no bytes, as at the end of a file.
    Eof,
    /// The read claims to have read more than was requested.
    Long,
    /// A bit of the bytes is inverted, without an error.
    Flip,
    /// The result is delayed.
    Latency(Duration),
}

/// Faults for chosen requests, for tests of a store and its users.
///
/// Written as `fault@requests`, separated by commas: `eio@100`, `short@5,latency=2ms@10..20`,
/// `eintr@1..`. Requests are counted from 1 in the order in which they are passed to the engine,
/// including retries; `a..b` ends before `b`. `fault@bytes:a..b` means all requests that read some of
/// these bytes of a file. `copy:N:` before either means those of them that read the `N`-th replica
/// of their file; `copy:0:` means the original: `eio@copy:1:100..`. Faults are `eio`, `eintr`, `eagain`, `ecanceled`, `short`, `eof`, `long`, `flip`, and
/// `latency=N` with the unit `us`, `ms` or `s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    rules: Vec<Rule>,
}

/// A fault, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    fault: Fault,
    /// Only requests to this copy.
    copy: Option<u8>,
    when: When,
}

/// The requests that a fault is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum When {
    /// By their numbers.
    Requests(Range<u64>),
    /// By the bytes of a file that they read.
    Bytes(Range<u64>),
}

impl FaultPlan {
    /// Returns the faults of the `number`-th request, counted from 1, which reads these bytes of a
    /// copy of a file, each with the place in the request that it concerns.
    pub(crate) fn faults(
        &self,
        number: u64,
        copy: u8,
        reads: Range<u64>,
    ) -> impl Iterator<Item = (Fault, u64)> + '_ {
        let place = move |when: &When| match when {
            When::Requests(requests) => requests.contains(&number).then(|| (reads.end - reads.start) / 2),
            When::Bytes(bytes) => {
                let from = bytes.start.max(reads.start);
                (from < bytes.end.min(reads.end)).then(|| from - reads.start)
            }
        };
        let rules = self.rules.iter().filter(move |rule| rule.copy.is_none_or(|of| of == copy));
        rules.filter_map(move |rule| Some((rule.fault, place(&rule.when)?)))
    }
}

/// Text that is not a plan of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` is not a fault: {reason}; examples: eio@100, short@5,latency=2ms@10..20")]
pub struct ParseFaultPlanError {
    /// The invalid part.
    pub rule: String,
    /// Why it is invalid.
    pub reason: &'static str,
}

impl FromStr for FaultPlan {
    type Err = ParseFaultPlanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rules = text.split(',').map(|rule| {
            let rule = rule.trim();
            parse_rule(rule).map_err(|reason| ParseFaultPlanError { rule: rule.into(), reason })
        });
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }
}

fn parse_rule(rule: &str) -> Result<Rule, &'static str> {
    let (fault, when) = rule.split_once('@').ok_or("it has no @")?;
    let fault = match fault {
        "eio" => Fault::Eio,
        "eintr" => Fault::Eintr,
        "eagain" => Fault::Eagain,
        "ecanceled" => Fault::Ecanceled,
        "short" => Fault::Short,
        "eof" => Fault::Eof,
        "long" => Fault::Long,
        "flip" => Fault::Flip,
        _ => {
            Fault::Latency(parse_latency(fault.strip_prefix("latency=").ok_or("this fault does not exist")?)?)
        }
    };
    let (copy, when) = match when.strip_prefix("copy:") {
        Some(rest) => {
            let (copy, when) = rest.split_once(':').ok_or("a number and a colon must follow copy:")?;
            (Some(copy.parse().map_err(|_| "a number must follow copy:")?), when)
        }
        None => (None, when),
    };
    let when = match when.strip_prefix("bytes:") {
        Some(bytes) => When::Bytes(parse_range(bytes)?),
        None => {
            let requests = parse_range(when)?;
            if requests.start == 0 {
                return Err("requests are counted from 1");
            }
            When::Requests(requests)
        }
    };
    Ok(Rule { fault, copy, when })
}

fn parse_range(range: &str) -> Result<Range<u64>, &'static str> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| "a number or a range must follow the @");
    let range = match range.split_once("..") {
        None => {
            let only = number(range)?;
            only..only.checked_add(1).ok_or("the number is out of range")?
        }
        Some((from, "")) => number(from)?..u64::MAX,
        Some((from, to)) => number(from)?..number(to)?,
    };
    if range.is_empty() { Err("the range is empty") } else { Ok(range) }
}

fn parse_latency(text: &str) -> Result<Duration, &'static str> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "a latency needs a number")?;
    let scale: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return Err("a latency needs the unit us, ms or s"),
    };
    number.checked_mul(scale).map(Duration::from_micros).ok_or("the latency is out of range")
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Rule { fault, copy, when }) in self.rules.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match fault {
                Fault::Eio => f.write_str("eio")?,
                Fault::Eintr => f.write_str("eintr")?,
                Fault::Eagain => f.write_str("eagain")?,
                Fault::Ecanceled => f.write_str("ecanceled")?,
                Fault::Short => f.write_str("short")?,
                Fault::Eof => f.write_str("eof")?,
                Fault::Long => f.write_str("long")?,
                Fault::Flip => f.write_str("flip")?,
                Fault::Latency(time) => write!(f, "latency={}us", time.as_micros())?,
            }
            let (place, range) = match when {
                When::Requests(requests) => ("", requests),
                When::Bytes(bytes) => ("bytes:", bytes),
            };
            f.write_str("@")?;
            if let Some(copy) = copy {
                write!(f, "copy:{copy}:")?;
            }
            write!(f, "{place}{}", range.start)?;
            match range.end {
                u64::MAX => f.write_str("..")?,
                end if end == range.start + 1 => {}
                end => write!(f, "..{end}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_shown() {
        let plan: FaultPlan = "short@5, latency=2ms@5..20,eio@100,eintr@7..".parse().unwrap();
        assert_eq!(plan.to_string(), "short@5,latency=2000us@5..20,eio@100,eintr@7..");
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        let at = |number| plan.faults(number, 0, 0..0).map(|(fault, _)| fault).collect::<Vec<_>>();
        assert_eq!(at(4), []);
        assert_eq!(at(5), [Fault::Short, Fault::Latency(Duration::from_millis(2))]);
        assert_eq!(at(20), [Fault::Eintr]);
        assert_eq!(at(100), [Fault::Eio, Fault::Eintr]);
        let plan: FaultPlan = "eio@bytes:100..200,long@3".parse().unwrap();
        assert_eq!(plan.to_string(), "eio@bytes:100..200,long@3");
        let reads = |from, to| plan.faults(1, 0, from..to).map(|(_, place)| place).collect::<Vec<_>>();
        assert_eq!([reads(0, 100), reads(200, 300)], [[], []] as [[u64; 0]; 2]);
        assert_eq!([reads(0, 101), reads(110, 300), reads(199, 300)], [[100], [0], [0]]);
        let plan: FaultPlan = "flip@7".parse().unwrap();
        assert_eq!(plan.faults(7, 0, 1000..1010).collect::<Vec<_>>(), [(Fault::Flip, 5)]);
        let plan: FaultPlan = "eio@copy:1:5..,short@copy:0:bytes:7..9".parse().unwrap();
        assert_eq!(plan.to_string(), "eio@copy:1:5..,short@copy:0:bytes:7..9");
        let of = |copy| plan.faults(9, copy, 0..10).map(|(fault, _)| fault).collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2)], [vec![Fault::Short], vec![Fault::Eio], vec![]]);
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "",
            "eio",
            "eio@",
            "eio@x",
            "eio@0",
            "eio@5..5",
            "eio@copy:1",
            "eio@copy:x:5",
            "eio@copy:300:5",
            "eio@bytes:",
            "eio@bytes:7..7",
            "oops@1",
            "latency=2@1",
            "latency=ms@1",
            "eio@1,",
            "latency=18446744073709551615s@1",
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.contains("eio@100"), "{text}: {error}");
        }
    }
}
