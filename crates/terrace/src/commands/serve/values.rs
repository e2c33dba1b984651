//! Values of the options of `terrace serve`: keys in files, durations, formats.

use clap::ValueEnum;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use terrace_platform::input_file::{self, MAX_SETTINGS};

/// Keys of a file, one a line.
#[derive(Clone, Debug)]
pub struct KeyFile(pub Vec<String>);

impl FromStr for KeyFile {
    type Err = String;

    /// Reads the file of this path. Empty lines and those that begin with `#` have no key.
    fn from_str(path: &str) -> Result<Self, String> {
        let text = input_file::read_text(Path::new(path), MAX_SETTINGS).map_err(|error| error.to_string())?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<String> = lines.map(key).collect::<Result<_, _>>()?;
        // An empty file must not open the server to all.
        if keys.is_empty() { Err("no key in it".into()) } else { Ok(Self(keys)) }
    }
}

/// Reads a key.
pub fn key(text: &str) -> Result<String, String> {
    if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("a key must be visible ASCII characters without spaces".into());
    }
    Ok(text.to_owned())
}

/// A duration that can be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub Option<Duration>);

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let of = |(name, unit)| text.strip_suffix(name).map(|number: &str| (number, unit));
        let (number, unit) = units.into_iter().find_map(of).unwrap_or((text, 1.0));
        let seconds = number.trim().parse::<f64>().ok().map(|number| number * unit);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.filter(|time| !time.is_zero() && *time < Duration::from_secs(1 << 20))
            .map(|time| Self(Some(time)))
            .ok_or_else(|| "must be a time like 200ms, 0.5s or 5m, or off".into())
    }
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_are_seconds() {
        let ms = |text: &str| text.parse::<Latency>().unwrap().0.map(|time| time.as_millis());
        let expected = [Some(200), Some(500), Some(2000), Some(300_000), None];
        assert_eq!(["200ms", "0.5s", "2", "5m", "off"].map(ms), expected);
        for wrong in ["", "0", "-1s", "nan", "1d", "ms", "1e300"] {
            assert!(wrong.parse::<Latency>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_have_a_key_in_each_line() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = dir.path().join("keys");
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().parse::<KeyFile>().map(|file| file.0)
        };
        assert_eq!(read("one\n\n# of the page\n  two \r\n").unwrap(), ["one", "two"]);
        assert_eq!(read("\u{feff}one\r\n").unwrap(), ["one"]);
        for wrong in ["", "\n# nothing\n", "two words\n"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!("/nonexistent/keys".parse::<KeyFile>().is_err());
    }
}
