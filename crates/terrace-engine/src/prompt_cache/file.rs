//! A kept conversation in a file: a head, the tokens, what the context held of them. Each part is
//! followed by its CRC-32, and numbers are little endian.
//!
//! The sums find damage, not malice: whoever can write such a file can have a model compute with
//! other numbers, as with a model file. Nothing in it is trusted beyond that: llama.cpp compares
//! what it is given with its own context, and positions are checked afterwards.

use super::kept::Kept;
use super::key::CacheKey;
use crate::adapters::Scales;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use terrace_ggml::llama::{State, StatePart};
use terrace_model::{parse_reason, printable};
use terrace_platform::input_file;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_platform::owner;

/// Every version begins so.
const MARK: &[u8] = b"TERRACE";
const MAGIC: &[u8; 8] = b"TERRACE\x02";
/// A kept conversation, also of an earlier version.
pub const FILE: OwnFile = OwnFile::new("a kept conversation", Form::Begins(MARK));
/// Most bytes of a head.
const MOST_HEAD: u32 = 64 << 10;
/// Most tokens, which bounds what is read before a file is known to fit.
const MOST_TOKENS: u64 = 1 << 24;
/// Bytes of a sum.
const SUM: u64 = 4;
/// Bytes that are written at a time.
const PIECE: usize = 4 << 20;

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    key: CacheKey,
    tokens: u64,
    /// Bytes of the state.
    state: u64,
    /// Tokens and bytes of the checkpoint.
    checkpoint: Option<(u32, u64)>,
}

/// A file whose head and tokens were read.
pub struct Opened {
    pub key: CacheKey,
    pub tokens: Vec<i32>,
    pub checkpoint: Option<usize>,
    pub bytes: u64,
    head: Head,
    file: File,
}

/// Writes a conversation.
///
/// # Errors
/// Errors of the system.
pub fn write_file(out: &mut impl Write, key: &CacheKey, kept: &Kept) -> io::Result<()> {
    let head = Head {
        key: key.with(&kept.scales),
        tokens: kept.tokens.len() as u64,
        state: kept.state.bytes.len() as u64,
        checkpoint: kept.checkpoint.as_ref().map(|state| (state.tokens, state.bytes.len() as u64)),
    };
    let head = serde_json::to_vec(&head).expect("plain data");
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
    if length > MOST_HEAD {
        return Err(io::Error::other("the description of the model is too long"));
    }
    let tokens: Vec<u8> = kept.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    part(out, &[MAGIC, &length.to_le_bytes(), &head])?;
    part(out, &[&tokens])?;
    let checkpoint = kept.checkpoint.as_ref().map_or(&[][..], |state| &state.bytes);
    part(out, &[&kept.state.bytes, checkpoint])
}

fn part(out: &mut impl Write, bytes: &[&[u8]]) -> io::Result<()> {
    let mut sum = crc32fast::Hasher::new();
    for piece in bytes.iter().flat_map(|bytes| bytes.chunks(PIECE)) {
        sum.update(piece);
        out.write_all(piece)?;
    }
    out.write_all(&sum.finalize().to_le_bytes())
}

/// Reads a conversation that belongs to `key`, of at most `context` tokens.
///
/// # Errors
/// Why it cannot be used, in a few words.
pub fn read_file(path: &Path, key: &CacheKey, context: usize) -> Result<Kept, String> {
    let opened = Opened::read(path)?;
    let Some(scales) = key.scales_of(&opened.key) else {
        return Err(format!("kept for {}", difference(&opened.key, key)));
    };
    if opened.tokens.len() > context {
        return Err(format!("{} tokens do not fit the context of {context}", opened.tokens.len()));
    }
    Ok(Kept { scales, ..opened.rest()? })
}

/// In which respect two keys differ.
fn difference(theirs: &CacheKey, ours: &CacheKey) -> String {
    if theirs.model != ours.model || theirs.header != ours.header {
        format!("another model, {}", printable(&theirs.model.to_string()))
    } else if theirs.files != ours.files {
        "an earlier state of the model's files, or copies of them".into()
    } else if theirs.build != ours.build {
        format!("another release, {}", printable(&theirs.build))
    } else if theirs.kv_type != ours.kv_type {
        format!("another type of keys and values, {}", printable(&theirs.kv_type))
    } else if theirs.repacked != ours.repacked {
        "weights in another layout".into()
    } else if theirs.fast != ours.fast {
        "other kernels".into()
    } else if theirs.skipped != ours.skipped {
        "other skipped layers".into()
    } else if theirs.lossy != ours.lossy {
        "other lossy settings".into()
    } else if (theirs.sequences, theirs.unified) != (ours.sequences, ours.unified) {
        format!("another number of slots, {}", theirs.sequences)
    } else {
        "other adapters".into()
    }
}

impl Opened {
    /// Reads the head and the tokens, and checks that the rest is there.
    pub fn read(path: &Path) -> Result<Self, String> {
        let (mut file, _) = input_file::open(path).map_err(|error| error.to_string())?;
        let meta = file.metadata().map_err(|error| error.to_string())?;
        if !owner::is_own(&file).map_err(|error| error.to_string())? {
            return Err("it belongs to another user".into());
        }
        let (head, tokens) = begin(&mut file, meta.len())?;
        let checkpoint = head.checkpoint.map(|(tokens, _)| tokens as usize);
        Ok(Self { key: head.key.clone(), tokens, checkpoint, bytes: meta.len(), head, file })
    }

    /// Reads what the context held.
    pub fn rest(mut self) -> Result<Kept, String> {
        let Self { head, tokens, file, .. } = &mut self;
        let mut sum = crc32fast::Hasher::new();
        let bytes = take(file, head.state, &mut sum)?;
        let count = u32::try_from(tokens.len()).map_err(|_| "too many tokens")?;
        let state = State { part: StatePart::Whole, tokens: count, bytes };
        let checkpoint = match head.checkpoint {
            None => None,
            Some((tokens, size)) => {
                let bytes = take(file, size, &mut sum)?;
                Some(State { part: StatePart::Uncuttable, tokens, bytes })
            }
        };
        check(file, sum)?;
        Ok(Kept { tokens: std::mem::take(tokens), scales: Scales::default(), state, checkpoint })
    }
}

/// Reads the head and the tokens of a file of `length` bytes.
fn begin(file: &mut impl Read, length: u64) -> Result<(Head, Vec<i32>), String> {
    let none = || "not a kept conversation of this version".to_owned();
    let mut sum = crc32fast::Hasher::new();
    let start = take(file, 12, &mut sum).map_err(|_| none())?;
    let (magic, size) = start.split_at(8);
    let size = u32::from_le_bytes(size.try_into().expect("four bytes"));
    if magic != MAGIC || size > MOST_HEAD {
        return Err(none());
    }
    let text = take(file, size.into(), &mut sum)?;
    check(file, sum)?;
    let head: Head = serde_json::from_slice(&text).map_err(|error| parse_reason(&error))?;
    if !(1..=MOST_TOKENS).contains(&head.tokens)
        || head.checkpoint.is_some_and(|(tokens, _)| u64::from(tokens) > head.tokens || tokens == 0)
    {
        return Err(format!("{} tokens", head.tokens));
    }
    let states = head.state.saturating_add(head.checkpoint.map_or(0, |(_, bytes)| bytes));
    let whole = (12 + u64::from(size) + 4 * head.tokens + 3 * SUM).saturating_add(states);
    if whole != length {
        return Err(format!("{length} bytes instead of {whole}"));
    }
    let mut sum = crc32fast::Hasher::new();
    let bytes = take(file, 4 * head.tokens, &mut sum)?;
    check(file, sum)?;
    let (tokens, _) = bytes.as_chunks::<4>();
    Ok((head, tokens.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()))
}

fn take(file: &mut impl Read, n: u64, sum: &mut crc32fast::Hasher) -> Result<Vec<u8>, String> {
    let room = usize::try_from(n).map_err(|_| "too large")?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(room).map_err(|_| format!("no memory for {n} bytes"))?;
    file.take(n).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() != room {
        return Err("it ends early".into());
    }
    sum.update(&bytes);
    Ok(bytes)
}

fn check(file: &mut impl Read, sum: crc32fast::Hasher) -> Result<(), String> {
    let mut stored = [0; SUM as usize];
    file.read_exact(&mut stored).map_err(|_| "it ends early")?;
    if u32::from_le_bytes(stored) == sum.finalize() { Ok(()) } else { Err("its checksum is wrong".into()) }
}

/// The bytes of a file with this head, and this for the tokens and states, as far as the head says how
/// long they are.
#[cfg(fuzzing)]
pub fn sealed(head: &[u8], rest: &[u8]) -> Vec<u8> {
    let tokens = serde_json::from_slice(head).map_or(0, |head: Head| head.tokens);
    let tokens = usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX).min(rest.len());
    let mut out = Vec::new();
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
    for bytes in [&[&MAGIC[..], &length.to_le_bytes(), head][..], &[&rest[..tokens]], &[&rest[tokens..]]] {
        part(&mut out, bytes).expect("memory");
    }
    out
}

/// Changes the state in the bytes of a file, and makes lengths and sums right again: what is left for
/// llama.cpp to refuse. For tests.
///
/// # Panics
/// The bytes are no such file.
#[doc(hidden)]
pub fn resealed(bytes: &mut Vec<u8>, change: &dyn Fn(&mut Vec<u8>)) {
    let (head, tokens) = begin(&mut &bytes[..], bytes.len() as u64).expect("a file");
    let states = head.state + head.checkpoint.map_or(0, |(_, bytes)| bytes);
    let start = bytes.len() - usize::try_from(states + SUM).expect("in memory");
    let mut state = bytes[start..][..usize::try_from(head.state).expect("in memory")].to_vec();
    change(&mut state);
    let state = State { part: StatePart::Whole, tokens: tokens.len() as u32, bytes: state };
    bytes.clear();
    write_file(bytes, &head.key, &Kept { tokens, scales: Scales::default(), state, checkpoint: None })
        .expect("memory");
}
