//! Probabilities of tokens in OpenAI's forms.

use serde_json::{Map, Value, json};
use terrace_engine::{PromptProbs, TokenProb, TokenProbs, Utf8Stream};

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

/// Offsets of tokens in a text, in characters, as clients slice it. A token that goes on with a character
/// has that character's offset.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    text: Utf8Stream,
    characters: usize,
}

impl Offsets {
    /// Offsets behind a text.
    pub fn after(text: &str) -> Self {
        Self { text: Utf8Stream::default(), characters: text.chars().count() }
    }

    /// The offset of the next token, which has these bytes.
    fn next(&mut self, bytes: &[u8]) -> usize {
        let at = self.characters;
        self.characters += self.text.push(bytes).chars().count();
        at
    }
}

/// Of a text; `offsets` follows what comes before it, and then this.
pub fn of_text(all: &[TokenProbs], offsets: &mut Offsets) -> Value {
    json!({
        "tokens": all.iter().map(|one| text(&one.token)).collect::<Vec<_>>(),
        "token_logprobs": all.iter().map(|one| log(&one.token)).collect::<Vec<_>>(),
        "top_logprobs": all.iter().map(top).collect::<Vec<_>>(),
        "text_offset": all.iter().map(|one| offsets.next(&one.token.bytes)).collect::<Vec<_>>(),
    })
}

/// The most likely tokens by their texts. The text of the chosen token stands for that one only; other tokens
/// with a text that is there already have their bytes as a name, as OpenAI writes parts of characters, or,
/// if these are text, their number, as vLLM writes it.
fn top(one: &TokenProbs) -> Map<String, Value> {
    let chosen = text(&one.token);
    let mut all = Map::new();
    for prob in &one.top {
        let mut name = text(prob);
        let taken = |name: &String, all: &Map<String, Value>| {
            all.contains_key(name) || (*name == chosen && prob.token != one.token.token)
        };
        if taken(&name, &all) && std::str::from_utf8(&prob.bytes).is_err() {
            name = prob.bytes.iter().fold("bytes:".to_owned(), |name, byte| format!("{name}\\x{byte:02x}"));
        }
        if taken(&name, &all) {
            name = format!("token_id:{}", prob.token);
        }
        all.insert(name, log(prob).into());
    }
    all
}

/// Of a prompt: nothing is known of its first token.
pub fn of_prompt(prompt: &PromptProbs) -> Value {
    let first = json!({
        "tokens": [String::from_utf8_lossy(&prompt.first)],
        "token_logprobs": [null],
        "top_logprobs": [null],
        "text_offset": [0],
    });
    let mut offsets = Offsets::default();
    offsets.next(&prompt.first);
    joined(first, of_text(&prompt.rest, &mut offsets))
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
    fn offsets_count_characters_and_infinity_is_a_number() {
        let all = [probs(b"ab", -0.5), probs("ä".as_bytes(), f32::NEG_INFINITY)];
        let text = of_text(&all, &mut Offsets::after("<ä>"));
        assert_eq!((&text["text_offset"], &text["token_logprobs"][1]), (&json!([3, 5]), &json!(-9999.0)));
        let prompt = PromptProbs { first: b"<s>".into(), rest: all.to_vec() };
        assert_eq!(prompt.bytes(), "<s>abä".as_bytes());
        let lists = of_prompt(&prompt);
        assert_eq!(lists["tokens"], json!(["<s>", "ab", "ä"]));
        assert_eq!(lists["token_logprobs"], json!([null, -0.5, -9999.0]));
        assert_eq!((&lists["top_logprobs"][0], &lists["text_offset"]), (&Value::Null, &json!([0, 3, 5])));
        // Characters of which tokens have parts.
        let parts =
            [&b"a\xc3"[..], b"\xa9", b"\xe6\xbc", b"\xa2x", b"\xff", b"y"].map(|bytes| probs(bytes, -1.0));
        let text = of_text(&parts, &mut Offsets::default());
        assert_eq!(text["text_offset"], json!([0, 1, 2, 2, 4, 5]), "aé漢x�y");
        let chat = joined(of_chat(&all[..1]), of_chat(&all[1..]));
        assert_eq!(chat["content"].as_array().unwrap().len(), 2);
        assert_eq!(chat["content"][1]["bytes"], json!([195, 164]));
    }

    #[test]
    fn tokens_of_equal_text_keep_an_entry_each() {
        let one = |token, bytes: &[u8], log| TokenProb { token, bytes: bytes.into(), log };
        let top = vec![
            one(8, b"ab", -0.5),
            one(7, b"ab", -1.0),
            one(1, b"\xc3", -2.0),
            one(2, b"\xe6\xbc", -3.0),
            one(3, b"\xc3", -4.0),
            one(4, b"c", -5.0),
        ];
        let all = TokenProbs { token: top[1].clone(), top };
        let lists = of_text(std::slice::from_ref(&all), &mut Offsets::default());
        let expected = json!([{
            "token_id:8": -0.5, "ab": -1.0, "\u{fffd}": -2.0, "bytes:\\xe6\\xbc": -3.0, "bytes:\\xc3": -4.0, "c": -5.0,
        }]);
        assert_eq!((&lists["tokens"], &lists["top_logprobs"]), (&json!(["ab"]), &expected));
    }
}
