//! Memory readings from a file, for tests that must not depend on the machine's memory.

use super::source::{Reading, Source};
use std::path::{Path, PathBuf};
use terrace_model::ByteSize;
use terrace_platform::input_file::{self, MAX_TEXT};

/// A file of memory readings that cannot be used. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[error("memory readings {}: {reason}", .path.display())]
pub struct ReadingsError {
    pub path: PathBuf,
    /// The fault.
    pub reason: String,
}

/// Simulated readings. The first line of the file is the reserve (a size). Each further line is a
/// reading: the memory that the process could have in all (a size), followed by `pressed` if a task
/// waits for memory, or by `until` and a size if the reading is repeated until the slots hold that
/// much. The last line is repeated.
#[derive(Debug)]
pub struct Simulated {
    /// Bytes to leave free for other processes.
    pub reserve: u64,
    lines: Vec<ScriptedReading>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct ScriptedReading {
    /// Bytes that the process could have.
    room: u64,
    pressed: bool,
    /// The reading is repeated until the slots hold this many bytes.
    until: u64,
}

impl Simulated {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, has a line that is not a reading, or has no reading.
    pub fn read(path: &Path) -> Result<Self, ReadingsError> {
        let failed = |reason: String| ReadingsError { path: path.to_owned(), reason };
        let text = input_file::read_text(path, MAX_TEXT).map_err(|error| failed(error.to_string()))?;
        let line = |(number, line): (usize, &str)| {
            let (line, pressed) = line.strip_suffix("pressed").map_or((line, false), |line| (line, true));
            let (room, until) = line.split_once("until").unwrap_or((line, "0"));
            let size = |text: &str| -> Result<u64, ReadingsError> {
                let size: Result<ByteSize, _> = text.trim().parse();
                Ok(size.map_err(|error| failed(format!("line {}: {error}", number + 1)))?.bytes())
            };
            Ok(ScriptedReading { room: size(room)?, pressed, until: size(until)? })
        };
        let lines = text.lines().enumerate().map(line).collect::<Result<Vec<_>, ReadingsError>>()?;
        match lines.as_slice() {
            [first, readings @ ..] if !readings.is_empty() => {
                Ok(Self { reserve: first.room, lines: readings.to_vec(), next: 0 })
            }
            _ => Err(failed("there is no reading".into())),
        }
    }
}

impl Source for Simulated {
    fn read(&mut self, held: u64) -> Reading {
        let ScriptedReading { room, pressed, until } = self.lines[self.next.min(self.lines.len() - 1)];
        self.next += usize::from(held >= until);
        Reading { headroom: Some(room.saturating_sub(held)), pressed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_reading_and_the_last_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("readings");
        std::fs::write(&path, "2KiB\n1KiB until 90B\n4 KiB pressed\n").unwrap();
        let mut readings = Simulated::read(&path).unwrap();
        assert_eq!(readings.reserve, 2048);
        let reading = |headroom, pressed| Reading { headroom: Some(headroom), pressed };
        assert_eq!(readings.read(24), reading(1000, false));
        assert_eq!(readings.read(90), reading(934, false));
        assert_eq!(readings.read(96), reading(4000, true));
        assert_eq!(readings.read(5000), reading(0, true));
        for (text, part) in
            [("1KiB\nlots\n", "line 2"), ("1KiB\n1KiB until full\n", "line 2"), ("1KiB\n", "no reading")]
        {
            std::fs::write(&path, text).unwrap();
            let error = Simulated::read(&path).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("readings"), "{error}");
        }
    }
}
