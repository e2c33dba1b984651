//! A bounded walk over a GGUF header before ggml's reader sees it.
//!
//! ggml's reader allocates whatever counts and lengths claim: an array of strings costs 32 bytes
//! per claimed element, and a second copy outside of its `catch`, where running out of memory ends
//! the process. Its messages also lack offsets. This walk allocates nothing but names, and passes
//! only headers of plausible size on to that reader. It interprets only the values that bound the
//! walk itself.

use super::error::GgufError;
use super::types;
use llama_cpp_sys_2::{GGUF_TYPE_ARRAY, GGUF_TYPE_STRING, GGUF_TYPE_UINT32};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use terrace_model::{Shape, printable};

/// Tensors in one file; the largest models have some ten thousand.
const MAX_TENSORS: u64 = 1 << 18;
/// Metadata pairs in one file; models have fewer than a hundred.
const MAX_PAIRS: u64 = 1 << 16;
/// Bytes of a key.
const MAX_KEY: u64 = (1 << 16) - 1;
/// Bytes of a string value; the longest are chat templates of some 10 kB.
const MAX_STRING: u64 = 64 << 20;
/// Elements of an array of strings; the largest vocabularies and merge lists are below a million.
const MAX_STRINGS: u64 = 1 << 22;
/// Bytes of an array of numbers.
const MAX_ARRAY_BYTES: u64 = 64 << 20;
/// Bytes of everything before the tensor data.
const MAX_HEADER: u64 = 512 << 20;
/// ggml's `GGML_MAX_NAME`, with the final NUL.
const MAX_NAME: u64 = 63;
const MAX_DIMS: u32 = 4;
/// Used if `general.alignment` is not given.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Results of the walk.
pub struct Scan {
    /// Length of the file when it was opened.
    pub file_len: u64,
    /// First byte after the tensor table.
    pub table_end: u64,
    /// Name and size in bytes of the first entry of the tensor table, if there is one.
    pub first_tensor: Option<(String, u64)>,
    /// The shapes of all entries of the tensor table, which earlier readers of ggml do not tell.
    pub shapes: Vec<Shape>,
    /// `general.alignment`, or the format's default if it is not given.
    pub alignment: u64,
}

impl Scan {
    /// Offset of the tensor data; `None` if the alignment is 0 or the offset overflows.
    pub fn data_start(&self) -> Option<u64> {
        self.table_end.checked_next_multiple_of(self.alignment)
    }
}

/// Walks over the header of `file`.
pub fn scan(path: &Path, file: &File, file_len: u64) -> Result<Scan, GgufError> {
    let mut walk = Walk {
        path,
        input: BufReader::with_capacity(1 << 16, file),
        at: 0,
        file_len,
        alignment: DEFAULT_ALIGNMENT,
        place: "the header".into(),
    };
    walk.rewind()?;
    walk.magic()?;
    let version = walk.u32()?;
    check_version(path, version)?;
    let tensors = walk.count("number of tensors", MAX_TENSORS)?;
    let pairs = walk.count("number of metadata pairs", MAX_PAIRS)?;
    for pair in 0..pairs {
        walk.pair(pair, pairs)?;
    }
    let (mut first_tensor, mut shapes) = (None, Vec::new());
    for index in 0..tensors {
        let (name, size, shape) = walk.tensor(index, tensors)?;
        first_tensor.get_or_insert((name, size));
        shapes.push(shape);
    }
    Ok(Scan { file_len, table_end: walk.at, first_tensor, shapes, alignment: walk.alignment })
}

fn check_version(path: &Path, found: u32) -> Result<(), GgufError> {
    let hint = match found {
        2 | 3 => return Ok(()),
        1 => "version 1 is obsolete: convert the model again",
        v if v & 0xffff == 0 && v != 0 => "is the file big-endian?",
        _ => "only 2 and 3 are",
    };
    Err(GgufError::Version { path: path.into(), found, hint })
}

struct Walk<'a> {
    path: &'a Path,
    input: BufReader<&'a File>,
    /// Offset of the next byte.
    at: u64,
    file_len: u64,
    alignment: u64,
    /// The part being read, for messages.
    place: String,
}

impl Walk<'_> {
    fn rewind(&mut self) -> Result<(), GgufError> {
        self.input.seek(SeekFrom::Start(0)).map(|_| ()).map_err(|e| self.unreadable(e))
    }

    fn magic(&mut self) -> Result<(), GgufError> {
        let mut first = [0; 8];
        let given = self.file_len.min(8) as usize;
        self.input.read_exact(&mut first[..given]).map_err(|e| self.unreadable(e))?;
        if first[..given.min(4)] != b"GGUF"[..given.min(4)] {
            let hex: Vec<String> = first[..given].iter().map(|b| format!("{b:02x}")).collect();
            let found = format!("\"{}\" ({})", first[..given].escape_ascii(), hex.join(" "));
            return Err(GgufError::NotGguf { path: self.path.into(), found });
        }
        self.rewind()?;
        self.skip(4)
    }

    fn unreadable(&self, source: std::io::Error) -> GgufError {
        GgufError::Unreadable { path: self.path.into(), offset: self.at, source }
    }

    fn truncated(&self, needs: u64) -> GgufError {
        GgufError::Truncated {
            path: self.path.into(),
            place: self.place.clone(),
            offset: self.at,
            needs,
            file_len: self.file_len,
        }
    }

    fn absurd(&self, what: &'static str, value: u64, limit: u64) -> GgufError {
        GgufError::Absurd {
            path: self.path.into(),
            what,
            place: self.place.clone(),
            // The number was just read.
            offset: self.at - 8,
            value,
            limit,
        }
    }

    fn malformed(&self, offset: u64, reason: String) -> GgufError {
        GgufError::Malformed { path: self.path.into(), place: self.place.clone(), offset, reason }
    }

    /// Checks that the next `len` bytes exist and that the header stays within its limit.
    fn need(&self, len: u64) -> Result<(), GgufError> {
        // No overflow: `len` is at most one of the limits above, `at` at most the file's length.
        if self.at + len > self.file_len {
            return Err(self.truncated(len));
        }
        if self.at + len > MAX_HEADER {
            return Err(GgufError::Absurd {
                path: self.path.into(),
                what: "header length",
                place: self.place.clone(),
                offset: self.at,
                value: self.at + len,
                limit: MAX_HEADER,
            });
        }
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        let len = bytes.len() as u64;
        self.need(len)?;
        self.input.read_exact(bytes).map_err(|e| match e.kind() {
            // The file has shrunk since its length was read.
            ErrorKind::UnexpectedEof => self.truncated(len),
            _ => self.unreadable(e),
        })?;
        self.at += len;
        Ok(())
    }

    fn skip(&mut self, len: u64) -> Result<(), GgufError> {
        self.need(len)?;
        let step = i64::try_from(len).expect("need() bounds it by the header limit");
        self.input.seek_relative(step).map_err(|e| self.unreadable(e))?;
        self.at += len;
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, GgufError> {
        let value = self.u64()?;
        if value > limit { Err(self.absurd(what, value, limit)) } else { Ok(value) }
    }

    fn text(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, GgufError> {
        let len = self.count(what, limit)?;
        self.need(len)?;
        let mut text = vec![0; len as usize];
        self.fill(&mut text)?;
        Ok(text)
    }

    fn pair(&mut self, index: u64, of: u64) -> Result<(), GgufError> {
        self.place = format!("metadata pair {} of {of}", index + 1);
        let key = self.text("key length", MAX_KEY)?;
        let shown: String = key.escape_ascii().to_string().chars().take(80).collect();
        self.place = format!("metadata pair {} of {of} (`{shown}`)", index + 1);
        match self.u32()? {
            GGUF_TYPE_ARRAY => {
                let of = self.u32()?;
                if of == GGUF_TYPE_STRING {
                    for _ in 0..self.count("array length", MAX_STRINGS)? {
                        self.string()?;
                    }
                    return Ok(());
                }
                let size = self.scalar_size(of)?;
                let len = self.count("array length", MAX_ARRAY_BYTES / size)?;
                self.skip(len * size)
            }
            GGUF_TYPE_STRING => self.string(),
            GGUF_TYPE_UINT32 if key == b"general.alignment" => {
                self.alignment = self.u32()?.into();
                Ok(())
            }
            ty => {
                let size = self.scalar_size(ty)?;
                self.skip(size)
            }
        }
    }

    fn string(&mut self) -> Result<(), GgufError> {
        let len = self.count("string length", MAX_STRING)?;
        self.skip(len)
    }

    /// Size in bytes of a scalar of the metadata type that was just read.
    fn scalar_size(&self, ty: u32) -> Result<u64, GgufError> {
        match ty {
            0 | 1 | 7 => Ok(1),
            2 | 3 => Ok(2),
            4..=6 => Ok(4),
            10..=12 => Ok(8),
            GGUF_TYPE_ARRAY => Err(self.malformed(self.at - 4, "an array of arrays".into())),
            _ => Err(self.malformed(self.at - 4, format!("unknown metadata type {ty}"))),
        }
    }

    fn tensor(&mut self, index: u64, of: u64) -> Result<(String, u64, Shape), GgufError> {
        self.place = format!("tensor table, entry {} of {of}", index + 1);
        let name_at = self.at;
        let name = self.text("tensor name length", MAX_NAME)?;
        let name = match String::from_utf8(name) {
            Ok(name) if !name.is_empty() && !name.contains(char::is_control) => name,
            Ok(name) => {
                return Err(self.malformed(name_at, format!("invalid tensor name `{}`", printable(&name))));
            }
            Err(e) => {
                let shown = e.as_bytes().escape_ascii().to_string();
                return Err(self.malformed(name_at, format!("tensor name `{shown}` is not UTF-8")));
            }
        };
        let shown = printable(&name);
        self.place = format!("tensor table, entry {} of {of} (`{shown}`)", index + 1);
        let dims = self.u32()?;
        if dims > MAX_DIMS {
            return Err(self.malformed(self.at - 4, format!("{dims} dimensions (at most {MAX_DIMS})")));
        }
        let (mut elements, mut shape) = (1u64, [1; MAX_DIMS as usize]);
        for dim in 0..dims {
            let size = self.count("dimension", i64::MAX as u64)?;
            if size == 0 {
                return Err(GgufError::ZeroDim {
                    path: self.path.into(),
                    tensor: shown,
                    dim,
                    offset: self.at - 8,
                });
            }
            shape[dim as usize] = size;
            // A product too large for any file is refused by ggml's reader.
            elements = elements.saturating_mul(size);
        }
        let id = self.u32()?;
        let Some(ty) = types::describe(id) else {
            return Err(GgufError::UnknownType {
                path: self.path.into(),
                tensor: shown,
                ty: id,
                offset: self.at - 4,
            });
        };
        self.u64()?;
        let size = (elements / u64::from(ty.block_elements)).saturating_mul(ty.block_bytes.into());
        Ok((name, size, Shape(shape)))
    }
}
