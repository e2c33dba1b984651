//! What can be seen of ggml in a program's file.

use regex::bytes::Regex;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Code that loads plug-ins has this text.
const READS: &str = "GGML_BACKEND_PATH";

/// A function of ggml that every plug-in needs, as tables of symbols have it.
const NEEDED: &str = r"\x00ggml_backend_dev_by_type\x00";

/// Whether the program has ggml in it, and does not offer its functions: a plug-in cannot call them.
/// Programs whose ggml is in libraries do not, and scripts tell nothing.
///
/// # Errors
/// The file cannot be read.
pub fn hides_ggml(program: &Path) -> io::Result<bool> {
    let file = File::open(program)?;
    let mut magic = [0; 6];
    // Of 64 bits, little-endian: what Terrace is built for.
    if file.read_exact_at(&mut magic, 0).is_err() || magic != *b"\x7fELF\x02\x01" {
        return Ok(false);
    }
    let find = |text| Regex::new(text).expect("a constant expression");
    let offers = dynamic_names(&file).is_some_and(|names| find(NEEDED).is_match(&names));
    Ok(!offers && contains(file, &find(READS))?)
}

/// Whether the expression, of no more than 64 bytes, is found in a file.
fn contains(mut file: File, text: &Regex) -> io::Result<bool> {
    const KEPT: usize = 64;
    const PIECE: usize = 1 << 20;
    let mut bytes = vec![0; KEPT + PIECE];
    loop {
        let n = file.read(&mut bytes[KEPT..])?;
        if n == 0 {
            return Ok(false);
        }
        if text.is_match(&bytes[..KEPT + n]) {
            return Ok(true);
        }
        bytes.copy_within(n..n + KEPT, 0);
    }
}

/// The names of symbols that a program offers to its libraries, or takes from them, each after a zero
/// byte; `None` if there are none.
fn dynamic_names(file: &File) -> Option<Vec<u8>> {
    /// The type of a section with such symbols, whose names are in the section that it links to.
    const DYNAMIC: u64 = 11;
    /// Bytes that the names may take: those of a program with all of llama.cpp in it are 1 MB.
    const LONGEST: u64 = 64 << 20;
    let number = |offset: u64, bytes: usize| {
        let mut value = [0; 8];
        file.read_exact_at(&mut value[..bytes], offset).ok()?;
        Some(u64::from_le_bytes(value))
    };
    let (table, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let section = |index: u64| table.checked_add(index.checked_mul(size)?);
    // Sections that would lie beyond all numbers are not there.
    let field = |section: u64, offset, bytes| number(section.checked_add(offset)?, bytes);
    let symbols = (0..count).filter_map(section).find(|&at| field(at, 4, 4) == Some(DYNAMIC))?;
    let names = section(field(symbols, 0x28, 4)?)?;
    let (start, len) = (field(names, 0x18, 8)?, field(names, 0x20, 8)?);
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= LONGEST)?];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_or_cut_off_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let header: Vec<u8> = [b"\x7fELF\x02\x01".to_vec(), vec![0xff; 58]].concat();
        for bytes in [&b""[..], b"#!/bin/sh\necho GGML_BACKEND_PATH\n", &header, &header[..20]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(!hides_ggml(&path).unwrap(), "{bytes:?}");
        }
        // The text lies across the border of two pieces.
        let text = [&header[..], &vec![b'.'; (1 << 20) - 70], READS.as_bytes()].concat();
        std::fs::write(&path, text).unwrap();
        assert!(hides_ggml(&path).unwrap());
    }
}
