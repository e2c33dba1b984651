//! Which type each tensor of a model gets in a quantisation, by llama.cpp's own choice.
//!
//! The choice depends on the tensors' roles, their number, the architecture and more. llama.cpp
//! states it only in the log of a quantisation, which may be a dry run. This module performs a dry
//! run and parses its log strictly: a line that it cannot interpret is an error. The llama.cpp
//! release is pinned, and the tests compare with real quantisations.

use super::file_type::FileType;
use super::load::init;
use crate::cxx::{calls, guard};
use crate::log;
use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::ffi::{CString, NulError};
use std::path::Path;
use terrace_platform::names;

/// Input of a choice.
#[derive(Clone, Debug)]
pub struct MixtureRequest<'a> {
    /// The file's type.
    pub file_type: FileType,
    /// Types of single tensors, by their full names. llama.cpp applies them only to tensors that it
    /// quantises at all (not to norms, routers and the like), and substitutes another type if a row
    /// is not a whole number of blocks.
    pub given: &'a [(String, WeightType)],
    /// No mixture: all other tensors get the file's default type.
    pub pure: bool,
    /// An importance matrix will be used, which changes some choices.
    pub importance: bool,
    /// The output head stays unchanged.
    pub leave_output: bool,
    /// Type of the output head, in place of the mixture's.
    pub output: Option<WeightType>,
    /// Type of the table of embeddings, in place of the mixture's.
    pub embeddings: Option<WeightType>,
}

/// The type chosen for a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The tensor's name.
    pub tensor: String,
    /// Its type in the new file; `None` if it is unchanged.
    pub to: Option<WeightType>,
}

/// The choices for all tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mixture {
    /// The choices, in the order in which llama.cpp would write the tensors.
    pub choices: Vec<Choice>,
    /// llama.cpp's messages about tensors that get a substitute type because their rows are not
    /// whole blocks of the chosen one.
    pub fallbacks: Vec<String>,
}

/// Why no choice could be made.
#[derive(Debug, thiserror::Error)]
pub enum MixtureError {
    /// llama.cpp refuses, for the given reason.
    #[error("cannot quantise: {0}")]
    Refused(String),
    /// A line of llama.cpp's log cannot be interpreted.
    #[error("cannot interpret the log line `{0}` of llama.cpp's quantiser")]
    Log(String),
    /// A name or path with a zero byte.
    #[error("a name contains a NUL byte")]
    ZeroByte(#[from] NulError),
}

/// Stands for "like the rest" among the given types. It is not a type that a caller can give, its
/// rows are always whole, and a dry run converts nothing.
const REST: sys::ggml_type = sys::GGML_TYPE_F64;

/// Chooses a type for each tensor of the model at `path` (the first file of a split one). Only
/// headers are read.
///
/// # Errors
/// [`MixtureError`], for instance if llama.cpp refuses the model or a type.
pub fn choose(path: &Path, request: &MixtureRequest<'_>) -> Result<Mixture, MixtureError> {
    let path = names::c_string(path)?;
    let mut given = Vec::new();
    for (name, ty) in request.given {
        given.push((CString::new(exactly(name))?, ty.id()));
    }
    // With a float type or a copy, llama.cpp would ignore the given types.
    let mixed = request.file_type.id().filter(|_| request.file_type.float().is_none());
    let stands_for_rest = mixed.is_none() && !given.is_empty();
    if stands_for_rest {
        given.push((c".*".into(), REST));
    }
    let mut overrides: Vec<sys::llama_model_tensor_override> = given
        .iter()
        .map(|(pattern, ty)| sys::llama_model_tensor_override { pattern: pattern.as_ptr(), type_: *ty })
        .collect();
    overrides
        .push(sys::llama_model_tensor_override { pattern: std::ptr::null(), type_: sys::GGML_TYPE_COUNT });
    // Only its presence matters here: an empty list, which consists of its terminator.
    let importance =
        sys::llama_model_imatrix_data { name: std::ptr::null(), data: std::ptr::null(), size: 0 };

    // SAFETY: returns plain values.
    let mut params = unsafe { sys::llama_model_quantize_default_params() };
    params.dry_run = true;
    params.nthread = 1;
    params.pure_ = request.pure;
    params.quantize_output_tensor = !request.leave_output;
    if let Some(ty) = request.output {
        params.output_tensor_type = ty.id();
    }
    if let Some(ty) = request.embeddings {
        params.token_embedding_type = ty.id();
    }
    params.tt_overrides = overrides.as_ptr();
    if request.importance {
        params.imatrix = &raw const importance;
    }
    match request.file_type.id() {
        _ if stands_for_rest => params.ftype = sys::LLAMA_FTYPE_MOSTLY_Q8_0,
        Some(id) => params.ftype = id,
        None => params.only_copy = true,
    }
    init();
    let (status, lines) = log::capture_all(|| {
        // SAFETY: paths, patterns and the importance outlive the call; in a dry run the output's path
        // is not used.
        guard(|| unsafe { calls::llama_model_quantize(path.as_ptr(), c"".as_ptr(), &raw const params) })
    });
    let status = status.map_err(|thrown| MixtureError::Refused(thrown.to_string()))?;
    if status != 0 {
        return Err(MixtureError::Refused(reason(&lines)));
    }
    let rest = if stands_for_rest { request.file_type.float() } else { None };
    let choices = lines.iter().filter(|line| is_tensor_line(line)).map(|line| read_line(line, rest));
    let fallbacks = lines.iter().filter(|line| line.contains("-> falling back to"));
    let in_words = |line: &String| {
        let words: Vec<&str> = line.strip_prefix("warning: ").unwrap_or(line).split_whitespace().collect();
        words.join(" ")
    };
    Ok(Mixture { choices: choices.collect::<Result<_, _>>()?, fallbacks: fallbacks.map(in_words).collect() })
}

/// A regular expression of the C++ library's default grammar that matches this name alone.
fn exactly(name: &str) -> String {
    let mut pattern = String::from("^");
    for c in name.chars() {
        if c.is_ascii_punctuation() && c != '_' {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "$"
}

/// Returns true if the line begins like `[  12/  91] `.
fn is_tensor_line(line: &str) -> bool {
    let count = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let numbers = count.and_then(|(count, _)| count.split_once('/'));
    numbers.is_some_and(|(i, n)| [i, n].iter().all(|n| n.trim().parse::<u32>().is_ok()))
}

/// Parses `[  12/  91] blk.0.ffn_down.weight - [ 256, 768, 1, 1], type = f16, size = 1.00 MiB ->
/// 0.28 MiB (q4_K)`. The arrow and everything after it may be missing.
fn read_line(line: &str, rest: Option<WeightType>) -> Result<Choice, MixtureError> {
    let not_understood = || MixtureError::Log(line.to_owned());
    let (_, text) = line.split_once("] ").ok_or_else(not_understood)?;
    let (name, facts) = text.rsplit_once(" - [").ok_or_else(not_understood)?;
    let (_, facts) = facts.split_once("], type = ").ok_or_else(not_understood)?;
    let (from, size) = facts.split_once(", size = ").ok_or_else(not_understood)?;
    let to = match size.split_once(" -> ") {
        None => None,
        Some((_, new)) => {
            let name = new.rsplit_once(" (").and_then(|(_, ty)| ty.strip_suffix(')'));
            match name.ok_or_else(not_understood)? {
                "f64" => rest.filter(|ty| ty.name() != from.trim()),
                name => Some(WeightType::from_name(name).ok_or_else(not_understood)?),
            }
        }
    };
    Ok(Choice { tensor: name.trim_end().to_owned(), to })
}

/// Why llama.cpp refused: its last message, without its function's name.
fn reason(lines: &[String]) -> String {
    let said = lines.iter().rev().find_map(|line| line.split_once("failed to quantize: "));
    said.map_or_else(|| "llama.cpp gave no reason".into(), |(_, reason)| reason.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_refused() {
        let line = "[  12/  91] blk.0.a - [b.weight             - [  256,   768,     1,     1], type =    f16, \
                    size =     1.00 MiB ->     0.28 MiB (q4_K)";
        assert!(is_tensor_line(line));
        let choice = read_line(line, None).unwrap();
        assert_eq!(choice, Choice { tensor: "blk.0.a - [b.weight".into(), to: Some(WeightType::Q4_K) });
        let line =
            "[1000/1000] norm.weight - [  256,     1,     1,     1], type =    f32, size =    0.001 MiB";
        assert_eq!(read_line(line, None).unwrap(), Choice { tensor: "norm.weight".into(), to: None });
        let rest = "[   1/   1] a - [  256,     1,     1,     1], type =    f16, size =     1.00 MiB ->     0.28 MiB (f64)";
        assert_eq!(read_line(rest, Some(WeightType::F16)).unwrap().to, None, "it has that type");
        assert_eq!(read_line(rest, Some(WeightType::BF16)).unwrap().to, Some(WeightType::BF16));
        assert_eq!(read_line(rest, None).unwrap().to, None);
        assert!(!is_tensor_line("[warning] 3/4"));
        for bad in ["[   1/   1] a", "[   1/   1] a - [1], type = f16, size = 1.00 MiB -> 1.00 MiB (q9_Z)"] {
            assert!(matches!(read_line(bad, None), Err(MixtureError::Log(_))), "{bad}");
        }
        assert_eq!(exactly("blk.0.ffn_up"), r"^blk\.0\.ffn_up$");
    }
}
