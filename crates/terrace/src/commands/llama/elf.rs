//! Signs of ggml in a program's file.

use elf::ElfStream;
use elf::endian::AnyEndian;
use elf::symbol::Symbol;
use memchr::memmem;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use terrace_platform::file::Positioned;
use terrace_platform::input_file;

/// Code that loads plug-ins has this text.
const READS: &str = "GGML_BACKEND_PATH";

/// A function of ggml that every plug-in needs.
const NEEDED: &str = "ggml_backend_dev_by_type";

/// Returns true if the program has ggml in it, and does not offer its functions: a plug-in cannot call them.
/// Programs whose ggml is in libraries do not, and scripts tell nothing.
///
/// # Errors
/// The file cannot be read.
pub fn hides_ggml(program: &Path) -> io::Result<bool> {
    let (file, _) = input_file::open(program)?;
    let mut magic = [0; 4];
    if file.read_exact_at(&mut magic, 0).is_err() || magic != *b"\x7fELF" {
        return Ok(false);
    }
    Ok(!names_function(file.try_clone()?) && contains(input_file::open(program)?.0)?)
}

/// Returns true if a file contains the text.
fn contains(mut file: File) -> io::Result<bool> {
    const KEPT: usize = READS.len();
    const PIECE: usize = 1 << 20;
    let mut bytes = vec![0; KEPT + PIECE];
    loop {
        let n = file.read(&mut bytes[KEPT..])?;
        if n == 0 {
            return Ok(false);
        }
        if memmem::find(&bytes[..KEPT + n], READS.as_bytes()).is_some() {
            return Ok(true);
        }
        bytes.copy_within(n..n + KEPT, 0);
    }
}

/// Returns true if a program offers the function to its libraries, or takes it from them. What is no program,
/// or cut off, does not.
fn names_function(file: File) -> bool {
    let found = || {
        let mut elf = ElfStream::<AnyEndian, _>::open_stream(file).ok()?;
        let (symbols, names) = elf.dynamic_symbol_table().ok()??;
        let named = |symbol: Symbol| names.get(symbol.st_name as usize).is_ok_and(|name| name == NEEDED);
        Some(symbols.iter().any(named))
    };
    found().unwrap_or(false)
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
