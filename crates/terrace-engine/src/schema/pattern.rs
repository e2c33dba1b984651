//! Regular expressions of strings, as those that llama.cpp's converter makes right grammars of.
//!
//! The converter takes few of them - anchored ones, without `\d` and its kin - and takes them for patterns of
//! what is written, where quotes and backslashes of the string have another backslash before them. What is
//! returned is such a pattern of the written text.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look};

/// Any character as it is written within a string.
const ANY: &str = r#"([^\x22\\\x00-\x1F]|\\["\\bfnrt])"#;
/// The converter's limit of nested groups, and some room.
const MOST_NESTED: usize = 80;
/// Longest pattern that is returned, in bytes.
const MOST_BYTES: usize = 16 << 10;

/// The pattern of what is written for a string that has a match of `pattern`, as ECMA-262 reads it. `None`: it
/// has something that no grammar can follow, such as a look ahead.
pub(super) fn written(pattern: &str) -> Option<String> {
    let hir = parsed(pattern)?;
    let branch = |branch: &Hir| {
        let Anchored { begins, parts, ends } = Anchored::of(branch);
        let any = |anchored: bool| if anchored { String::new() } else { format!("{ANY}*") };
        let inner = parts.iter().map(of).collect::<Option<String>>()?;
        let text = any(begins) + &inner + &any(ends);
        // The converter has no form of an empty text.
        (!text.is_empty()).then_some(text)
    };
    let all = branches(&hir).iter().map(branch).collect::<Option<Vec<_>>>()?;
    let text = format!("^({})$", all.join("|"));
    (text.len() <= MOST_BYTES && nested(&text) <= MOST_NESTED).then_some(text)
}

/// The grammar of the texts that match `pattern` as a whole. `None` if it has something that no grammar can follow.
pub fn pattern_grammar(pattern: &str) -> Option<String> {
    let hir = parsed(pattern)?;
    let branch = |branch: &Hir| sequence(Anchored::of(branch).parts);
    let all = branches(&hir).iter().map(branch).collect::<Option<Vec<_>>>()?;
    Some(format!("root ::= {}", all.join(" | ")))
}

fn parsed(pattern: &str) -> Option<Hir> {
    ParserBuilder::new().nest_limit(60).build().parse(&in_rusts_words(pattern)?).ok()
}

fn branches(hir: &Hir) -> &[Hir] {
    match hir.kind() {
        HirKind::Alternation(branches) => branches,
        _ => std::slice::from_ref(hir),
    }
}

/// A branch without its anchors.
struct Anchored<'h> {
    begins: bool,
    parts: &'h [Hir],
    ends: bool,
}

impl<'h> Anchored<'h> {
    fn of(hir: &'h Hir) -> Self {
        let mut parts = match hir.kind() {
            HirKind::Concat(parts) => parts,
            _ => std::slice::from_ref(hir),
        };
        let is = |part: &Hir, look| *part.kind() == HirKind::Look(look);
        let begins = parts.first().is_some_and(|part| is(part, Look::Start));
        parts = &parts[usize::from(begins)..];
        let ends = parts.last().is_some_and(|part| is(part, Look::End));
        parts = &parts[..parts.len() - usize::from(ends)];
        Self { begins, parts, ends }
    }
}

/// Texts in a row, in the words of grammars.
fn sequence(parts: &[Hir]) -> Option<String> {
    let parts = parts.iter().map(rule).collect::<Option<Vec<_>>>()?;
    Some(if parts.is_empty() { "\"\"".into() } else { parts.join(" ") })
}

fn rule(hir: &Hir) -> Option<String> {
    Some(match hir.kind() {
        HirKind::Empty => "\"\"".into(),
        HirKind::Literal(literal) => quoted(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(Class::Unicode(class)) => {
            let mut ranges = String::new();
            class.ranges().iter().for_each(|range| add_range(&mut ranges, range.start(), range.end()));
            if ranges.is_empty() {
                return None;
            }
            format!("[{ranges}]")
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => return None,
        HirKind::Repetition(repetition) => {
            let inner = rule(&repetition.sub)?;
            match (repetition.min, repetition.max) {
                (0, None) => format!("({inner})*"),
                (1, None) => format!("({inner})+"),
                (0, Some(1)) => format!("({inner})?"),
                (min, None) => format!("({inner}){{{min},}}"),
                (min, Some(max)) => format!("({inner}){{{min},{max}}}"),
            }
        }
        HirKind::Capture(capture) => format!("({})", rule(&capture.sub)?),
        HirKind::Concat(parts) => sequence(parts)?,
        HirKind::Alternation(branches) => {
            format!("({})", branches.iter().map(rule).collect::<Option<Vec<_>>>()?.join(" | "))
        }
    })
}

/// A text, in the words of grammars.
pub fn quoted(text: &str) -> String {
    let one = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\x{:02X}", c as u32),
        c => c.into(),
    };
    format!("\"{}\"", text.chars().map(one).collect::<String>())
}

fn of(hir: &Hir) -> Option<String> {
    Some(match hir.kind() {
        HirKind::Empty => String::new(),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            text.chars().map(literal_char).collect()
        }
        HirKind::Class(Class::Unicode(class)) => class_of(class)?,
        // A byte, or a place that a grammar does not see.
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => return None,
        HirKind::Repetition(repetition) => {
            let inner = of(&repetition.sub)?;
            if inner.is_empty() {
                return Some(inner);
            }
            match (repetition.min, repetition.max) {
                (0, None) => format!("({inner})*"),
                (1, None) => format!("({inner})+"),
                (0, Some(0)) => String::new(),
                (0, Some(1)) => format!("({inner})?"),
                (min, None) => format!("({inner}){{{min}}}({inner})*"),
                (min, Some(max)) => format!("({inner}){{{min},{max}}}"),
            }
        }
        HirKind::Capture(capture) => group(of(&capture.sub)?),
        HirKind::Concat(parts) => parts.iter().map(of).collect::<Option<String>>()?,
        HirKind::Alternation(branches) => {
            let branches = branches.iter().map(of).collect::<Option<Vec<String>>>()?;
            let some: Vec<&str> =
                branches.iter().map(String::as_str).filter(|branch| !branch.is_empty()).collect();
            let optional = if some.len() < branches.len() { "?" } else { "" };
            if some.is_empty() { String::new() } else { format!("({}){optional}", some.join("|")) }
        }
    })
}

fn group(inner: String) -> String {
    if inner.is_empty() { inner } else { format!("({inner})") }
}

/// A character as it is written, as a pattern.
fn literal_char(c: char) -> String {
    match c {
        '"' => r#"\\""#.into(),
        '\\' => r"\\\\".into(),
        '\u{8}' => r"\\b".into(),
        '\u{c}' => r"\\f".into(),
        '\n' => r"\\n".into(),
        '\r' => r"\\r".into(),
        '\t' => r"\\t".into(),
        c if c < ' ' => format!(r"\\u{:04x}", c as u32),
        c if "^$.[]()|{}*+?".contains(c) => format!("\\{c}"),
        c => c.into(),
    }
}

/// One of several characters. `None`: there is none.
fn class_of(class: &ClassUnicode) -> Option<String> {
    let (mut plain, mut others) = (String::new(), Vec::new());
    for range in class.ranges() {
        let mut begin = range.start();
        for c in (0..' ' as u32).chain(['"' as u32, '\\' as u32]).filter_map(char::from_u32) {
            if (range.start()..=range.end()).contains(&c) {
                others.push(literal_char(c));
                if begin < c {
                    add_range(&mut plain, begin, char::from_u32(c as u32 - 1)?);
                }
                begin = char::from_u32(c as u32 + 1)?;
            }
        }
        if begin <= range.end() {
            add_range(&mut plain, begin, range.end());
        }
    }
    match (plain.is_empty(), others.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("[{plain}]")),
        (true, false) => Some(format!("({})", others.join("|"))),
        (false, false) => Some(format!("([{plain}]|{})", others.join("|"))),
    }
}

fn add_range(to: &mut String, begin: char, end: char) {
    *to += &class_char(begin);
    if begin < end {
        to.push('-');
        *to += &class_char(end);
    }
}

fn class_char(c: char) -> String {
    match c as u32 {
        _ if c.is_ascii_alphanumeric() => c.into(),
        code @ 0..0x80 => format!("\\x{code:02X}"),
        code @ 0x80..0x1_0000 => format!("\\u{code:04X}"),
        code => format!("\\U{code:08X}"),
    }
}

/// The depth of groups.
fn nested(text: &str) -> usize {
    let (mut depth, mut most, mut bytes) = (0_usize, 0, text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

/// The meaning of ECMA-262, in the words of `regex_syntax`, in which `\d` has digits of all scripts, and classes can
/// have classes in them.
fn in_rusts_words(pattern: &str) -> Option<String> {
    const SPACE: &str =
        r"\t\n\x0B\x0C\r\x20\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
    let (mut out, mut in_class, mut chars) = (String::new(), false, pattern.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'd' => out += "[0-9]",
                'D' => out += "[^0-9]",
                'w' => out += "[0-9A-Za-z_]",
                'W' => out += "[^0-9A-Za-z_]",
                's' => out += &format!("[{SPACE}]"),
                'S' => out += &format!("[^{SPACE}]"),
                'b' if in_class => out += r"\x08",
                '/' => out.push('/'),
                // References to groups, and what only one of the two has.
                c if c.is_ascii_digit() || "AzZckGQa".contains(c) => return None,
                other => out.extend(['\\', other]),
            },
            '[' if in_class => out += r"\[",
            '[' => {
                in_class = true;
                out.push('[');
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Sets of `regex_syntax` that ECMA-262 does not have.
            '&' | '~' if in_class => out.extend(['\\', c]),
            '-' if in_class && chars.peek() == Some(&'-') => return None,
            '.' if !in_class => out += r"[^\n\r\u{2028}\u{2029}]",
            _ => out.push(c),
        }
    }
    Some(out)
}
