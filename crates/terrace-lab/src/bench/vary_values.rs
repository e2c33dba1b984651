//! `OPTION=VALUES` of `--vary`, and all combinations of such values.

use clap::{Args, Command};
use std::str::FromStr;
use terrace_cli::args::EngineArgs;

/// Most values of an option.
const MAX_VALUES: usize = 1000;
/// Options of the bench itself that may vary.
const OWN: [&str; 4] = ["n", "prompt-tokens", "depth", LOAD_MODE];
/// llama-bench's name for `--mmap` and `--direct` together.
pub const LOAD_MODE: &str = "load-mode";
/// Its values, with those of both options; `None` means their defaults.
const LOAD_MODES: [(&str, Option<&str>, Option<&str>); 3] =
    [("mmap", None, None), ("none", Some("off"), None), ("dio", Some("off"), Some("on"))];

/// `OPTION=VALUES`: an option of runs, by its long name, and the values that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    pub option: String,
    pub values: Vec<String>,
}

/// Text that is not `OPTION=VALUES`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseVaryError {
    /// There is no `=`, or nothing on one side of it.
    #[error("expected OPTION=VALUES, got `{0}`")]
    Form(String),
    /// A run has no such option with a value.
    #[error("`--{0}` is not an option of runs with a value")]
    Option(String),
    /// A way of loading that there is not.
    #[error("`{0}` is none of mmap, none, dio")]
    LoadMode(String),
    /// A range without an end.
    #[error("`{0}` is a range without an end, or of more than {MAX_VALUES} values")]
    Range(String),
}

impl FromStr for Vary {
    type Err = ParseVaryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseVaryError::Form(text.to_owned());
        let (option, list) = text.split_once('=').ok_or_else(form)?;
        let option = option.trim_start_matches('-');
        if option.is_empty() || list.is_empty() {
            return Err(form());
        }
        let engine = EngineArgs::augment_args(Command::new("engine"));
        let takes = |arg: &clap::Arg| arg.get_long() == Some(option) && arg.get_action().takes_values();
        if !OWN.contains(&option) && !engine.get_arguments().any(takes) {
            return Err(ParseVaryError::Option(option.to_owned()));
        }
        let mut values = Vec::new();
        for part in list.split(',') {
            // As llama-bench has it, a comma separates values, and another sign the items of one.
            match option {
                "device" => {
                    values.push(part.replace('/', ","));
                    continue;
                }
                "override-tensor" => {
                    values.push(part.replace(';', ","));
                    continue;
                }
                LOAD_MODE if LOAD_MODES.iter().all(|(mode, ..)| *mode != part) => {
                    return Err(ParseVaryError::LoadMode(part.to_owned()));
                }
                _ => {}
            }
            match range(part) {
                Some(range) => values.extend(range.ok_or_else(|| ParseVaryError::Range(part.to_owned()))?),
                None => values.push(part.to_owned()),
            }
        }
        Ok(Self { option: option.to_owned(), values })
    }
}

/// Returns the values of `--mmap` and `--direct` that a way of loading stands for; `None` means the default.
pub fn load_mode(name: &str) -> (Option<&'static str>, Option<&'static str>) {
    let mode = LOAD_MODES.iter().find(|(mode, ..)| *mode == name);
    mode.map(|(_, mmap, direct)| (*mmap, *direct)).unwrap_or_default()
}

/// The numbers of `first-last`, `first-last+step` or `first-last*factor`; `None` if the text is no range, `Some(None)`
/// if it has no end.
fn range(text: &str) -> Option<Option<Vec<String>>> {
    let (first, rest) = text.split_once('-')?;
    let cut = rest.find(['+', '*']).unwrap_or(rest.len());
    let (last, step) = rest.split_at(cut);
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let by: u64 = if step.is_empty() { 1 } else { step[1..].parse().ok()? };
    let mut values = Vec::new();
    let mut value = first;
    while value <= last {
        values.push(value.to_string());
        let next = if step.starts_with('*') { value.checked_mul(by)? } else { value.checked_add(by)? };
        if next <= value || values.len() == MAX_VALUES {
            return Some(None);
        }
        value = next;
    }
    Some(Some(values))
}

/// All combinations of values, the last option's changing fastest.
pub fn combinations(vary: &[Vary]) -> Vec<Vec<(&str, &str)>> {
    let mut all = vec![Vec::new()];
    for Merged { option, values } in merged(vary) {
        let mut longer = Vec::new();
        for settings in &all {
            for &value in &values {
                longer.push(settings.iter().copied().chain([(option, value)]).collect());
            }
        }
        all = longer;
    }
    all
}

/// An option and its values.
struct Merged<'a> {
    option: &'a str,
    values: Vec<&'a str>,
}

/// The values of each option, also of one that is named several times.
fn merged(vary: &[Vary]) -> Vec<Merged<'_>> {
    let mut all = Vec::<Merged<'_>>::new();
    for Vary { option, values } in vary {
        let values = values.iter().map(String::as_str);
        match all.iter_mut().find(|known| known.option == option) {
            Some(known) => known.values.extend(values),
            None => all.push(Merged { option, values: values.collect() }),
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn values_are_lists_and_ranges() {
        for (text, values) in [
            ("threads=1,2,4", &["1", "2", "4"][..]),
            ("--ubatch=128-512*2", &["128", "256", "512"]),
            ("n=1-3", &["1", "2", "3"]),
            ("n=1-6+2,9", &["1", "3", "5", "9"]),
            ("cache-type-k=f16,q8_0", &["f16", "q8_0"]),
            ("n-gpu-layers=-1", &["-1"]),
            ("load-mode=none,mmap,dio", &["none", "mmap", "dio"]),
            ("device=none,CUDA0/CUDA1", &["none", "CUDA0,CUDA1"]),
            ("override-tensor=a=ram;b=host,c=ram", &["a=ram,b=host", "c=ram"]),
        ] {
            assert_eq!(text.parse::<Vary>().unwrap().values, values, "{text}");
        }
        for bad in [
            "threads",
            "threads=",
            "=1",
            "n=1-3+0",
            "n=1-9*1",
            "verify=1",
            "no-such=1",
            "n=0-99999",
            "load-mode=mlock",
        ] {
            assert!(bad.parse::<Vary>().is_err(), "{bad}");
        }
    }

    #[test]
    fn all_combinations_are_measured() {
        let vary: Vec<Vary> =
            ["n=1", "threads=1,2", "n=3"].iter().map(|text| text.parse().unwrap()).collect();
        let all = combinations(&vary);
        let both = |n, threads| vec![("n", n), ("threads", threads)];
        assert_eq!(all, [both("1", "1"), both("1", "2"), both("3", "1"), both("3", "2")]);
        assert_eq!(combinations(&[]), [Vec::new()]);
    }
}
