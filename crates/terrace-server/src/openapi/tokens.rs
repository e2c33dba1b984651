//! llama-server's API: tokens and templates.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_JSON, SERVER};
use super::fields::Whole;
use super::operation::Operation;
use super::requests::ConversationFields;
use schemars::JsonSchema;

/// `POST /tokenize`.
pub fn tokenize() -> Operation {
    Operation::new("Turns a text into tokens.", "The tokens.")
        .body::<TokenizeRequest>()
        .json::<Tokens>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER])
}

/// `POST /detokenize`.
pub fn detokenize() -> Operation {
    Operation::new("Turns tokens into a text.", "The text.")
        .body::<DetokenizeRequest>()
        .json::<Text>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER])
}

/// `POST /apply-template`.
pub fn apply_template() -> Operation {
    Operation::new("Turns a conversation into the text of its prompt.", "The text.")
        .body::<TemplateRequest>()
        .json::<PromptText>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER])
}

#[derive(JsonSchema)]
struct TokenizeRequest {
    content: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

#[derive(JsonSchema)]
struct Tokens {
    tokens: Vec<TokenOrPiece>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum TokenOrPiece {
    Token(Whole),
    WithPiece(TokenPiece),
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct TokenPiece {
    id: Whole,
    piece: Piece,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Piece {
    Text(String),
    Bytes(Vec<Whole>),
}

#[derive(JsonSchema)]
struct DetokenizeRequest {
    #[schemars(inner(range(min = 0)))]
    tokens: Vec<Whole>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Text {
    content: String,
}

#[derive(JsonSchema)]
struct TemplateRequest {
    #[serde(flatten)]
    conversation: ConversationFields,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct PromptText {
    prompt: String,
}
