//! Probabilities of tokens in OpenAI's forms.

use serde_json::{Map, Value, json};
use terrace_engine::{PromptProbs, TokenProb, TokenProbs};

/// The least logarithm of a probability that is written: JSON has no infinity.
const LEAST: f32 = -9999.0;

fn text(prob: &TokenProb) -> String {
    String::from_utf8_lossy(&prob.bytes).into_owned()
}

fn log(prob: &TokenProb) -> f32 {
    prob.log.max(LEAST)
}

/// Of an answer in a conversation.
pub fn of_chat(all: &[TokenProbs]) -> Value {
    let one = |prob: &TokenProb| json!({"id": prob.token, "token": text(prob), "logprob": log(prob), "bytes": prob.bytes});
    let content = all.iter().map(|TokenProbs { token, top }| {
        let mut value = one(token);
        value["top_logprobs"] = top.iter().map(one).collect();
        value
    });
    json!({"content": content.collect::<Value>(), "refusal": null})
}

/// Of a text; `offset` is the length of what comes before it.
pub fn of_text(all: &[TokenProbs], offset: usize) -> Value {
    let offsets = all.iter().scan(offset, |offset, one| {
        let at = *offset;
        *offset += one.token.bytes.len();
        Some(at)
    });
    let top = |one: &TokenProbs| {
        let mut all = Map::new();
        for prob in &one.top {
            // Of tokens with the same text, the most likely one.
            all.entry(text(prob)).or_insert_with(|| log(prob).into());
        }
        all
    };
    json!({
        "tokens": all.iter().map(|one| text(&one.token)).collect::<Vec<_>>(),
        "token_logprobs": all.iter().map(|one| log(&one.token)).collect::<Vec<_>>(),
        "top_logprobs": all.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets.collect::<Vec<_>>(),
    })
}

/// Of a prompt: nothing is known of its first token.
pub fn of_prompt(prompt: &PromptProbs) -> Value {
    let first = json!({
        "tokens": [String::from_utf8_lossy(&prompt.first)],
        "token_logprobs": [null],
        "top_logprobs": [null],
        "text_offset": [0],
    });
    joined(first, of_text(&prompt.rest, prompt.first.len()))
}

/// Two of one form, one after the other.
pub fn joined(mut before: Value, after: Value) -> Value {
    let (Some(lists), Value::Object(more)) = (before.as_object_mut(), after) else { return before };
    for (name, value) in more {
        if let (Some(Value::Array(list)), Value::Array(more)) = (lists.get_mut(&name), value) {
            list.extend(more);
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probs(bytes: &[u8], log: f32) -> TokenProbs {
        let token = TokenProb { token: 7, bytes: bytes.into(), log };
        TokenProbs { top: vec![token.clone()], token }
    }

    #[test]
    fn offsets_count_bytes_and_infinity_is_a_number() {
        let all = [probs(b"ab", -0.5), probs("ä".as_bytes(), f32::NEG_INFINITY)];
        let text = of_text(&all, 3);
        assert_eq!((&text["text_offset"], &text["token_logprobs"][1]), (&json!([3, 5]), &json!(-9999.0)));
        let twice = TokenProb { token: 8, bytes: b"ab".into(), log: -3.0 };
        let same = TokenProbs { top: vec![all[0].token.clone(), twice], ..all[0].clone() };
        assert_eq!(of_text(&[same], 0)["top_logprobs"], json!([{"ab": -0.5}]));
        let prompt = PromptProbs { first: b"<s>".into(), rest: all.to_vec() };
        assert_eq!(prompt.bytes(), "<s>abä".as_bytes());
        let lists = of_prompt(&prompt);
        assert_eq!(lists["tokens"], json!(["<s>", "ab", "ä"]));
        assert_eq!(lists["token_logprobs"], json!([null, -0.5, -9999.0]));
        assert_eq!((&lists["top_logprobs"][0], &lists["text_offset"]), (&Value::Null, &json!([0, 3, 5])));
        let chat = joined(of_chat(&all[..1]), of_chat(&all[1..]));
        assert_eq!(chat["content"].as_array().unwrap().len(), 2);
        assert_eq!(chat["content"][1]["bytes"], json!([195, 164]));
    }
}
