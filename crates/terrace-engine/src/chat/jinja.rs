//! Jinja as chat templates are written in it. Bounded in steps here, and in memory and time by the
//! process that it runs in.

use super::{ChatTemplateError, Message};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

/// Maximum number of template instructions per rendering: far above any real conversation, far
/// below a hang.
const FUEL: u64 = 20_000_000;

/// Prefix that distinguishes errors made by `raise_exception` from the template engine's own.
const RAISED: &str = "raise_exception: ";

/// A parsed chat template, with the texts of the tokens that it writes.
#[derive(Debug)]
pub(super) struct Jinja {
    env: Environment<'static>,
    bos: String,
    eos: String,
}

impl Jinja {
    /// Parses `source`; `bos` and `eos` are the texts that `{{ bos_token }}` and `{{ eos_token }}`
    /// write.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`] with the line.
    pub(super) fn parse(source: &str, bos: &str, eos: &str) -> Result<Self, ChatTemplateError> {
        let mut env = Environment::new();
        // As `transformers` sets them; templates are written for that.
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
        Ok(Self { env, bos: bos.into(), eos: eos.into() })
    }

    /// Renders a conversation as prompt text. With `add_generation_prompt` it ends where the
    /// assistant's answer begins.
    ///
    /// # Errors
    /// [`ChatTemplateError::Refused`] with the template's own message,
    /// [`ChatTemplateError::Render`] for everything else.
    pub(super) fn render(
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

/// Turns `{% generation %}` blocks into plain blocks. In `transformers` they mark the assistant's
/// text for training; other Jinja engines reject them. Whitespace control is kept.
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

/// `strftime_now('%d %b %Y')`: the local date, for system prompts that contain it.
fn strftime_now(format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let mut text = String::new();
    // Through `write!`, an unknown directive is an error; `to_string` would panic.
    write!(text, "{}", chrono::Local::now().format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("invalid date format `{format}`")))?;
    Ok(text)
}

/// Python's `json.dumps(value, ensure_ascii=False)`, which templates are written for: `", "` and
/// `": "` as separators, and no HTML escaping.
fn to_json(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // Templates pass `ensure_ascii=False`, which is the behaviour here anyway.
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
#[path = "jinja_tests.rs"]
mod tests;
