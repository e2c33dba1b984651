//! Chat templates: the Jinja text in a GGUF, applied as Hugging Face's `apply_chat_template` does.
//!
//! Templates come out of model files, so they are untrusted: rendering is bounded in steps, and every failure is
//! an error that quotes the template's line.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;

/// Template instructions that one rendering may execute: far above any real conversation, far below a hang.
const FUEL: u64 = 20_000_000;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`; templates may know others.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A turn from its two parts.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// Texts of the tokens that chat templates name.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    /// Beginning of a document.
    pub bos: Option<String>,
    /// End of a document.
    pub eos: Option<String>,
}

impl SpecialTokens {
    /// Whether a text begins with the document's first token: most templates write it themselves.
    pub fn begin(&self, text: &str) -> bool {
        self.bos.as_ref().is_some_and(|bos| !bos.is_empty() && text.starts_with(bos))
    }
}

/// Why a chat template could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ChatTemplateError {
    /// The template's text is not valid Jinja.
    #[error("cannot parse the model's chat template: {detail} (line {line})")]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// What the parser says.
        detail: String,
    },
    /// The template itself refused the conversation (`raise_exception`).
    #[error("the model's chat template rejects this conversation: {0}")]
    Refused(String),
    /// The template failed while it was applied.
    #[error("cannot apply the model's chat template: {detail} (line {line})")]
    Render {
        /// Line in the template, from 1.
        line: usize,
        /// What went wrong.
        detail: String,
    },
}

/// Marks errors that `raise_exception` made, to tell them from the engine's own.
const RAISED: &str = "raise_exception: ";

/// A parsed chat template with the tokens that it writes.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Parses `source`; `bos` and `eos` are the texts that `{{ bos_token }}` and `{{ eos_token }}` write.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`] with the line.
    pub fn parse(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, ChatTemplateError> {
        let mut env = Environment::new();
        // What `transformers` sets; templates are written for it.
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        env.set_syntax(syntax.build().expect("the default delimiters are valid"));
        env.set_fuel(Some(FUEL));
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", to_json);
        env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
        });
        env.add_function("strftime_now", strftime_now);
        env.add_template_owned(NAME, without_generation_tags(source))
            .map_err(|e| ChatTemplateError::Syntax { line: e.line().unwrap_or(0), detail: describe(&e) })?;
        Ok(Self { env, bos: bos.unwrap_or_default().into(), eos: eos.unwrap_or_default().into() })
    }

    /// The prompt text of a conversation; with `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// # Errors
    /// [`ChatTemplateError::Refused`] in the template's own words, [`ChatTemplateError::Render`] for all else.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, ChatTemplateError> {
        let context = minijinja::context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => Value::from(()),
            documents => Value::from(()),
        };
        let template = self.env.get_template(NAME).expect("added when parsed");
        template.render(context).map_err(|e| match e.detail().and_then(|d| d.strip_prefix(RAISED)) {
            Some(reason) => ChatTemplateError::Refused(one_line(reason)),
            None => ChatTemplateError::Render { line: e.line().unwrap_or(0), detail: describe(&e) },
        })
    }
}

const NAME: &str = "chat";

fn describe(error: &Error) -> String {
    one_line(&error.detail().map_or_else(|| error.kind().to_string(), |d| format!("{}: {d}", error.kind())))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `transformers`' `{% generation %}` block marks the assistant's text for training; for rendering it is a plain
/// block, and Jinja engines without that extension do not know it. Whitespace control stays as written.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |e| e + 2);
        let (tag, after) = tag.split_at(end);
        match tag.trim_matches(|c: char| "{%}-+".contains(c)).trim() {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

/// `strftime_now('%d %b %Y')`: the local date, for system prompts that name it.
fn strftime_now(format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let mut text = String::new();
    // Formatting fails, rather than panics, on directives that do not exist only through `write!`.
    write!(text, "{}", chrono::Local::now().format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("invalid date format `{format}`")))?;
    Ok(text)
}

/// Python's `json.dumps(value, ensure_ascii=False)`, which is what templates are trained with: `", "` and `": "`
/// between the parts and nothing escaped for HTML.
fn to_json(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // Templates pass `ensure_ascii=False`, which is what happens anyway.
    kwargs.get::<Option<bool>>("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    dump(value, indent, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn dump(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > 128 {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
    }
    let scalar = |value: &Value| {
        serde_json::to_string(value)
            .map_err(|e| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}")))
    };
    let separate = |out: &mut String, first: bool, depth: usize| match indent {
        Some(width) => {
            out.push_str(if first { "\n" } else { ",\n" });
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
        None => out.push_str(if first { "" } else { ", " }),
    };
    let (open, close) = match value.kind() {
        ValueKind::Map => ('{', '}'),
        ValueKind::Seq | ValueKind::Iterable => ('[', ']'),
        _ => {
            out.push_str(&scalar(value)?);
            return Ok(());
        }
    };
    out.push(open);
    let mut empty = true;
    for item in value.try_iter()? {
        separate(out, empty, depth + 1);
        empty = false;
        if open == '{' {
            out.push_str(&scalar(&Value::from(item.to_string()))?);
            out.push_str(": ");
            dump(&value.get_item(&item)?, indent, depth + 1, out)?;
        } else {
            dump(&item, indent, depth + 1, out)?;
        }
    }
    if let (Some(width), false) = (indent, empty) {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', width * depth));
    }
    out.push(close);
    Ok(())
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
