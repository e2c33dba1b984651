//! llama-quantize's arguments for `terrace quantize`: `IN [OUT] TYPE [NTHREADS]`.

use super::rewrite::known;
use clap::Command;
use std::ffi::OsString;
use std::path::Path;
use terrace_ggml::llama::FileType;

/// Options after which a second argument is OUT, whatever its name.
const WITH_OUT: [&str; 3] = ["--type", "--fit", "--split-tensors"];

/// The words with OUT where it is missing, and with the number of threads as an option. Words of other commands stay
/// as they are.
pub fn arranged(cli: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(places) = arguments(cli, &words) else { return words };
    let text = |place: usize| words[place].to_string_lossy().into_owned();
    let is_number = |place: &usize| text(*place).parse::<u32>().is_ok();
    let given = |name: &str| words.iter().any(|word| word.to_string_lossy().split('=').next() == Some(name));
    let file_type = |place: &usize| text(*place).parse::<FileType>().ok();
    let without_out = match places[..] {
        _ if WITH_OUT.into_iter().any(given) => None,
        [_, ty] => file_type(&ty),
        [_, ty, threads] if is_number(&threads) => file_type(&ty),
        _ => None,
    };
    let threads = match places[..] {
        [_, _, threads] if without_out.is_some() => Some(threads),
        [_, _, _, threads] if is_number(&threads) => Some(threads),
        _ => None,
    };
    if let Some(place) = threads {
        let threads = words.remove(place);
        words.insert(2, format!("--threads={}", threads.to_string_lossy()).into());
    }
    // The option stands before all arguments.
    let moved = usize::from(threads.is_some());
    match without_out {
        None => {}
        Some(ty) if words.iter().any(|word| word == "--dry-run") => {
            words[places[1] + moved] = format!("--type={ty}").into()
        }
        Some(ty) => {
            let input = Path::new(&words[places[0] + moved]);
            let is_file = !input.to_string_lossy().starts_with("hf:");
            let folder = input.parent().filter(|_| is_file).unwrap_or(Path::new(""));
            let out = folder.join(format!("ggml-model-{ty}.gguf"));
            words.insert(places[1] + moved, out.into());
        }
    }
    words
}

/// Positions of the arguments of `quantize` that are no options; `None` if the command is another one.
fn arguments(cli: &Command, words: &[OsString]) -> Option<Vec<usize>> {
    let quantize = cli.find_subcommand("quantize")?;
    if words.get(1)? != "quantize" {
        return None;
    }
    let (mut places, mut at) = (Vec::new(), 2);
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        if text == "--" {
            return None;
        }
        if !text.starts_with('-') || text == "-" {
            places.push(at);
        } else if known(cli, quantize, &text) == Some(true) {
            at += 1;
        }
        at += 1;
    }
    Some(places)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_llama_quantizes() {
        for (theirs, ours) in [
            ("quantize a/in.gguf q4_k_m", "quantize a/in.gguf a/ggml-model-Q4_K_M.gguf q4_k_m"),
            ("quantize in.gguf q4_k_m 8", "quantize --threads=8 in.gguf ggml-model-Q4_K_M.gguf q4_k_m"),
            ("quantize in.gguf 15", "quantize in.gguf ggml-model-Q4_K.gguf 15"),
            (
                "quantize --pure in.gguf out.gguf q4_k_m 8",
                "quantize --threads=8 --pure in.gguf out.gguf q4_k_m",
            ),
            (
                "quantize --imatrix q8_0 in.gguf q4_k_m",
                "quantize --imatrix q8_0 in.gguf ggml-model-Q4_K_M.gguf q4_k_m",
            ),
            ("quantize --dry-run in.gguf Q4_K 2", "quantize --threads=2 --dry-run in.gguf --type=Q4_K"),
            ("quantize hf:o/r Q8_0", "quantize hf:o/r ggml-model-Q8_0.gguf Q8_0"),
            // OUT.
            ("quantize in.gguf q8_0 q4_k_m", "quantize in.gguf q8_0 q4_k_m"),
            ("quantize in.gguf q8_0 --type Q4_K", "quantize in.gguf q8_0 --type Q4_K"),
            ("quantize in.gguf q8_0 --split-tensors", "quantize in.gguf q8_0 --split-tensors"),
            ("quantize in.gguf out.gguf", "quantize in.gguf out.gguf"),
            ("run in.gguf q4_k_m", "run in.gguf q4_k_m"),
        ] {
            let words = |line: &str| -> Vec<OsString> {
                ["terrace"].into_iter().chain(line.split_whitespace()).map(OsString::from).collect()
            };
            assert_eq!(arranged(&Cli::command(), words(theirs)), words(ours), "{theirs}");
        }
    }
}
