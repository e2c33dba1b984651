//! Runs of characters that llama.cpp's tokenizer can bear, and the stack that it needs for them.
//!
//! Most pre-tokenizers are regular expressions, and libstdc++'s `std::regex` recurses for each
//! character of a match: by 256 to 350 bytes of stack, measured. A match is at most a run of
//! characters without white space, and the white space (and the slashes among it) that follows; of
//! one pre-tokenizer, also words and the single spaces between them. Texts with long runs are
//! therefore tokenised on a thread with a stack of that length, whose pages take RAM only as far as
//! a match recurses, and texts with longer ones are refused.

use super::ctype::is_space;
use std::io;
use std::thread;

/// Stack per byte of a run, in bytes: three times what was measured.
const PER_BYTE: usize = 1 << 10;

/// Stack of the tokenizer itself, in bytes.
const BASE: usize = 256 << 10;

/// Runs that fit any thread's stack, in bytes.
const SHORT: usize = 512;

/// Longest run that is tokenised, in bytes.
const LONGEST_RUN: usize = 256 << 10;

/// Longest run of which the time grows with a power of the length, in bytes: 7 KiB of digits take
/// `superbpe` eleven seconds.
const MOST_SLOW: usize = 1 << 10;

/// A run that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Its length in bytes, or a bound of it.
    pub run: usize,
    /// The longest that is tokenised.
    pub most: usize,
}

/// The longest match that the pre-tokenizer of this name can make in `text`, in bytes, or a bound of
/// it.
///
/// # Errors
/// It is too long.
pub fn longest_match(text: &str, pre_tokenizer: &[u8]) -> Result<usize, TooLong> {
    let longest = |within: fn(u8) -> bool| {
        text.as_bytes().split(|&byte| !within(byte)).map(<[u8]>::len).max().unwrap_or(0)
    };
    // Expressions that are matched again from each character of a run: at a group of three digits
    // before the run's end, and at spaces before a text's end.
    let slow = match pre_tokenizer {
        b"superbpe" => longest(|byte| byte.is_ascii_digit()),
        b"deepseek-llm" => text.split(|c: char| !c.is_whitespace()).map(str::len).max().unwrap_or(0),
        _ => 0,
    };
    if slow > MOST_SLOW {
        return Err(TooLong { run: slow, most: MOST_SLOW });
    }
    let solid = longest(|byte| !is_space(byte));
    let phrase = match pre_tokenizer {
        b"exaone-moe" => longest(|byte| byte == b' ' || byte.is_ascii_alphabetic() || byte >= 0x80),
        _ => 0,
    };
    let run = solid.max(phrase) + longest(|byte| is_space(byte) || byte == b'/');
    if run > LONGEST_RUN { Err(TooLong { run, most: LONGEST_RUN }) } else { Ok(run) }
}

/// Runs `f` where matches of `run` bytes have the stack that they need.
///
/// # Errors
/// There is no such thread to be had.
pub fn with_stack_for<R: Send>(run: usize, f: impl FnOnce() -> R + Send) -> io::Result<R> {
    if run <= SHORT {
        return Ok(f());
    }
    thread::scope(|scope| {
        let big = thread::Builder::new().name("terrace-tokenize".into()).stack_size(BASE + run * PER_BYTE);
        let worker = big.spawn_scoped(scope, f)?;
        Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_bounded_by_runs() {
        assert_eq!(longest_match("", b""), Ok(0));
        assert_eq!(longest_match("ab cde\n\n /f", b""), Ok(3 + 4));
        assert_eq!(longest_match("ab cde fg, h", b"exaone-moe"), Ok(9 + 1));
        let most = "a".repeat(LONGEST_RUN);
        assert_eq!(longest_match(&most, b""), Ok(LONGEST_RUN));
        assert_eq!(
            longest_match(&format!("{most} "), b""),
            Err(TooLong { run: LONGEST_RUN + 1, most: LONGEST_RUN })
        );
        let digits = "7".repeat(MOST_SLOW + 1);
        assert_eq!(longest_match(&digits, b""), Ok(MOST_SLOW + 1));
        let too_long = Err(TooLong { run: MOST_SLOW + 1, most: MOST_SLOW });
        assert_eq!(longest_match(&digits, b"superbpe"), too_long);
        assert_eq!(longest_match(&" ".repeat(MOST_SLOW + 1), b"deepseek-llm"), too_long);
    }
}
