//! The work that a batch is, as far as its text tells before a model is loaded.

use super::error::BatchError;
use super::input::Input;
use super::request::Request;
use serde_json::Value;
use terrace_plan::batches::BatchWork;

/// Bytes of a token: of most texts, and of texts with the shortest tokens.
const BYTES: usize = 4;
const FEWEST_BYTES: usize = 2;
/// Tokens that a template adds to a conversation, at most.
const TEMPLATE: usize = 128;
/// The fields that limit an answer.
const LIMITS: [&str; 5] =
    ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict", "max_new_tokens"];

/// Estimates the tokens of the requests: of prompts by their bytes, of answers by the limits that they set, or else
/// `answer`. Lines that are no requests count for nothing.
///
/// # Errors
/// A line cannot be read.
pub fn work_of(input: &Input, answer: u32) -> Result<BatchWork, BatchError> {
    let (mut requests, mut prompts, mut answers, mut most) = (0_u64, 0_u64, 0_u64, 0);
    for index in 0..input.len() {
        let Ok(request) = Request::read(&input.line(index)?) else { continue };
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else { continue };
        let own = LIMITS.iter().find_map(|field| body[*field].as_u64());
        let embeds = request.url == "/v1/embeddings";
        let limit = if embeds { 0 } else { own.unwrap_or(answer.into()) };
        let (bytes, numbers) = text_of(&body);
        requests += 1;
        prompts += (bytes.div_ceil(BYTES) + numbers) as u64;
        answers += limit;
        let longest = (bytes / FEWEST_BYTES + numbers + TEMPLATE) as u64 + limit;
        most = most.max(longest);
    }
    let mean = |sum: u64| u32::try_from(sum.checked_div(requests).unwrap_or(0)).unwrap_or(u32::MAX);
    Ok(BatchWork {
        requests: u32::try_from(requests).unwrap_or(u32::MAX),
        prompt: mean(prompts).max(1),
        answer: mean(answers),
        context: u32::try_from(most).unwrap_or(u32::MAX).next_multiple_of(256),
    })
}

/// Bytes of all texts of a value, but for those of images, and its numbers in lists, which may be tokens.
fn text_of(value: &Value) -> (usize, usize) {
    match value {
        Value::String(text) if text.starts_with("data:") => (0, 0),
        Value::String(text) => (text.len(), 0),
        Value::Array(all) => {
            let (bytes, numbers) = text_of_all(all);
            (bytes, numbers + all.iter().filter(|value| value.is_number()).count())
        }
        Value::Object(fields) => text_of_all(fields.values()),
        _ => (0, 0),
    }
}

fn text_of_all<'a>(all: impl IntoIterator<Item = &'a Value>) -> (usize, usize) {
    all.into_iter().map(text_of).fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_follows_from_bytes_and_limits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "a".repeat(400);
        let lines = format!(
            "{{\"prompt\": \"{text}\", \"max_tokens\": 20}}\nnonsense\n{{\"prompt\": [1, 2, 3]}}\n\
             {{\"input\": \"{text}\"}}\n"
        );
        std::fs::write(file.path(), lines).unwrap();
        let work = work_of(&Input::open(file.path()).unwrap(), 100).unwrap();
        // 100, 3 and 100 tokens; 20, 100 and none.
        assert_eq!((work.requests, work.prompt, work.answer), (3, 67, 40));
        assert_eq!(work.context, 512, "200 + 128 + 20 tokens");
    }
}
