//! Input of a conversation: a message, or a command.

use std::path::PathBuf;

/// Begins and ends a message of several lines.
pub const QUOTE: &str = r#"""""#;

/// The commands, for `/help`.
pub const HELP: &str = r#"/system TEXT  set the system message; without TEXT, show it
/clear        forget the conversation
/save FILE    write the conversation to FILE as JSON
/help         show this
/bye          quit (also Ctrl-D)
"""           begin and end a message of several lines
Ctrl-C        stop the response"#;

/// A line, or several lines between quotes.
#[derive(Debug, PartialEq, Eq)]
pub enum ChatLine {
    /// Nothing was typed.
    Empty,
    Message(String),
    Help,
    Bye,
    Clear,
    Save(PathBuf),
    /// The new system message; `None` shows the present one.
    System(Option<String>),
    /// A command that does not exist, or lacks its value; the reason.
    Unusable(String),
}

impl ChatLine {
    /// Reads what was typed. A line that begins with a path is a message.
    pub fn parse(text: &str) -> Self {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Self::Empty;
        }
        if let Some(quoted) = trimmed.strip_prefix(QUOTE) {
            let text = quoted.strip_suffix(QUOTE).unwrap_or(quoted).trim_matches('\n');
            return if text.trim().is_empty() { Self::Empty } else { Self::Message(text.to_owned()) };
        }
        let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let rest = rest.trim();
        match word {
            "/help" | "/?" => Self::Help,
            "/bye" | "/exit" | "/quit" => Self::Bye,
            "/clear" => Self::Clear,
            "/system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
            "/save" if rest.is_empty() => Self::Unusable("/save needs the name of a file".into()),
            "/save" => Self::Save(rest.into()),
            _ if word.starts_with('/') && !word[1..].contains('/') => {
                Self::Unusable(format!("there is no command {word}; /help lists all"))
            }
            _ => Self::Message(text.to_owned()),
        }
    }

    /// Returns whether more lines belong to what was typed so far.
    pub fn continues(text: &str) -> bool {
        text.trim_start().strip_prefix(QUOTE).is_some_and(|rest| !rest.trim_end().ends_with(QUOTE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        let message = |text: &str| ChatLine::Message(text.into());
        assert_eq!(ChatLine::parse("  "), ChatLine::Empty);
        assert_eq!(ChatLine::parse("hello /bye"), message("hello /bye"));
        assert_eq!(ChatLine::parse("/etc/hosts: what is it?"), message("/etc/hosts: what is it?"));
        assert_eq!(ChatLine::parse(" /bye "), ChatLine::Bye);
        assert_eq!(ChatLine::parse("/system  Be brief. "), ChatLine::System(Some("Be brief.".into())));
        assert_eq!(ChatLine::parse("/system"), ChatLine::System(None));
        assert_eq!(ChatLine::parse("/save a b.json"), ChatLine::Save("a b.json".into()));
        assert!(matches!(ChatLine::parse("/save"), ChatLine::Unusable(_)));
        assert!(matches!(ChatLine::parse("/sistem x"), ChatLine::Unusable(_)));
    }

    #[test]
    fn quotes_hold_several_lines() {
        let mut text = r#""""one"#.to_owned();
        assert!(ChatLine::continues(&text));
        text += "\n/bye\n\n";
        assert!(ChatLine::continues(&text));
        text += r#"two""""#;
        assert!(!ChatLine::continues(&text));
        assert_eq!(ChatLine::parse(&text), ChatLine::Message("one\n/bye\n\ntwo".into()));
        assert!(!ChatLine::continues(r#""""one""""#) && ChatLine::continues(QUOTE));
        assert_eq!(ChatLine::parse(r#""""""""#), ChatLine::Empty);
    }
}
