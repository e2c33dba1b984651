//! The lengths of a run's work, before its vocabulary is loaded.

use super::context_ask::HeaderModel;
use crate::options::{GivenPrompt, GivenWork};
use terrace_plan::{Expected, ExpectedSource};

/// Bytes of a text that are tokenised; the rest is assumed to be as dense.
const SAMPLE: usize = 64 << 10;
/// Bytes of a token where there is no vocabulary yet: of English, in vocabularies of 30,000 to 150,000 tokens.
const BYTES_OF_TOKEN: usize = 4;

/// The lengths to estimate, of which those that are not given are `expected`; `None` if none is. Tokens are counted with
/// `vocabulary` if that is loaded.
pub fn given_lengths(
    given: &GivenWork,
    expected: Expected,
    vocabulary: Option<&HeaderModel>,
) -> Option<Expected> {
    let prompt = given.prompt.as_ref().map(|prompt| match prompt {
        GivenPrompt::Tokens(tokens) => *tokens,
        GivenPrompt::Text(text) => tokens_of(text, vocabulary),
    });
    (prompt.is_some() || given.output.is_some()).then(|| Expected {
        prompt: prompt.unwrap_or(expected.prompt).max(1),
        output: given.output.unwrap_or(expected.output),
        source: ExpectedSource::Given,
    })
}

fn tokens_of(text: &str, vocabulary: Option<&HeaderModel>) -> u32 {
    let sample = &text[..text.floor_char_boundary(SAMPLE)];
    let counted = vocabulary.and_then(|model| model.tokens(sample));
    let tokens = match counted {
        Some(tokens) => tokens as f64 * text.len() as f64 / sample.len().max(1) as f64,
        None => text.len().div_ceil(BYTES_OF_TOKEN) as f64,
    };
    tokens as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_expected() {
        let expected = Expected::default();
        let of = |prompt, output| given_lengths(&GivenWork { prompt, output }, expected, None);
        assert_eq!(of(None, None), None);
        let lengths = |prompt, output| Some(Expected { prompt, output, source: ExpectedSource::Given });
        assert_eq!(of(None, Some(7)), lengths(expected.prompt, 7));
        assert_eq!(of(Some(GivenPrompt::Tokens(108)), None), lengths(108, expected.output));
        assert_eq!(of(Some(GivenPrompt::Text("ü".repeat(1000))), Some(1)), lengths(500, 1));
        let long = "ü".repeat(SAMPLE);
        assert_eq!(of(Some(GivenPrompt::Text(long)), Some(1)), lengths(SAMPLE as u32 / 2, 1));
        assert_eq!(of(Some(GivenPrompt::Text(String::new())), Some(1)), lengths(1, 1));
    }
}
