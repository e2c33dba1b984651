//! Rules that give types to single tensors, and files of such rules.

use regex::{Regex, RegexBuilder};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use terrace_ggml::quantize::WeightType;
use terrace_model::excerpt;
use terrace_platform::input_file::{self, MAX_TEXT};

/// Most rules of a recipe; the largest models have some ten thousand tensors.
const MAX_RULES: usize = 1 << 14;
/// Most bytes that a compiled expression takes, which with [`MAX_RULES`] bounds a recipe's memory.
const MAX_COMPILED: usize = 64 << 10;
/// Most characters of a rule that messages show.
const MAX_SHOWN: usize = 200;

/// `REGEX=TYPE`: a type for all tensors whose names match an expression.
#[derive(Clone, Debug)]
pub struct TypeRule {
    pattern: Regex,
    ty: WeightType,
    /// True if it may match no tensor: a recipe can be for several models of a family.
    optional: bool,
}

/// Text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTypeRuleError {
    /// There is no `=`.
    #[error("expected REGEX=TYPE, got `{}`", excerpt(.0, MAX_SHOWN))]
    Form(String),
    /// The expression is invalid.
    #[error("`{}` is not a regular expression: {reason}", excerpt(pattern, MAX_SHOWN))]
    Pattern {
        /// The text of the expression.
        pattern: String,
        /// The library's message, on one line.
        reason: String,
    },
    /// The type is unknown.
    #[error("`{}` is not a type that tensors can be converted to; available: {known}", excerpt(.0, MAX_SHOWN), known = known_types())]
    Type(String),
}

fn known_types() -> String {
    WeightType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ")
}

impl TypeRule {
    /// Makes a rule for one tensor by its name.
    pub fn of_tensor(name: &str, ty: WeightType) -> Self {
        let pattern = format!("^{}$", regex::escape(name));
        let pattern = compile(&pattern).expect("an escaped name is a small expression");
        Self { pattern, ty, optional: false }
    }

    /// Returns true if the rule matches this tensor.
    pub fn matches(&self, tensor: &str) -> bool {
        self.pattern.is_match(tensor)
    }

    pub const fn ty(&self) -> WeightType {
        self.ty
    }

    /// Returns true if the rule may match no tensor.
    pub const fn is_optional(&self) -> bool {
        self.optional
    }
}

/// Rules in one argument, separated by commas, as llama-quantize of ik_llama.cpp reads them:
/// `REGEX=TYPE,REGEX=TYPE`. A comma within an expression (`{1,2}`) separates nothing.
#[derive(Clone, Debug)]
pub struct TypeRules(pub Vec<TypeRule>);

impl FromStr for TypeRules {
    type Err = ParseTypeRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut rules, mut rule) = (Vec::new(), String::new());
        for part in text.split(',') {
            if !rule.is_empty() {
                rule.push(',');
            }
            rule.push_str(part);
            if part.contains('=') {
                rules.push(TypeRule { optional: true, ..rule.trim().parse()? });
                rule.clear();
            }
        }
        if rule.is_empty() && !rules.is_empty() {
            return Ok(Self(rules));
        }
        Err(ParseTypeRuleError::Form(if rule.is_empty() { text.into() } else { rule }))
    }
}

impl FromStr for TypeRule {
    type Err = ParseTypeRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pattern, ty) = text.rsplit_once('=').ok_or_else(|| ParseTypeRuleError::Form(text.into()))?;
        if pattern.is_empty() || ty.is_empty() {
            return Err(ParseTypeRuleError::Form(text.into()));
        }
        let ty = WeightType::from_name(ty).ok_or_else(|| ParseTypeRuleError::Type(ty.into()))?;
        let read = compile(pattern).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").into();
            ParseTypeRuleError::Pattern { pattern: pattern.into(), reason }
        })?;
        Ok(Self { pattern: read, ty, optional: false })
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build()
}

impl fmt::Display for TypeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.ty.name())
    }
}

/// A file of rules that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The system's reason.
    #[error("recipe {path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// There are too many rules.
    #[error("recipe {path}: more than {MAX_RULES} rules")]
    TooMany { path: String },
    /// A line is not a rule.
    #[error("recipe {path}, line {line}: {reason}")]
    Line {
        path: String,
        /// The line, 1-based.
        line: usize,
        /// The fault.
        reason: ParseTypeRuleError,
    },
}

/// Reads a recipe: rules separated by line breaks or spaces, as llama-quantize's `--tensor-type-file` has them;
/// empty lines and lines that begin with `#` are ignored. Its rules may match no tensor.
///
/// # Errors
/// [`RecipeError`].
pub fn read_recipe(path: &Path) -> Result<Vec<TypeRule>, RecipeError> {
    let name = path.display().to_string();
    let text = input_file::read_text(path, MAX_TEXT)
        .map_err(|source| RecipeError::Io { path: name.clone(), source })?;
    let mut rules = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        for word in line.split_whitespace() {
            if rules.len() == MAX_RULES {
                return Err(RecipeError::TooMany { path: name });
            }
            let rule: TypeRule = word.parse().map_err(|reason| RecipeError::Line {
                path: name.clone(),
                line: index + 1,
                reason,
            })?;
            rules.push(TypeRule { optional: true, ..rule });
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_written() {
        let rule: TypeRule = r"blk\.(0|1)\.ffn=Q4_K".parse().unwrap();
        assert!(rule.matches("blk.1.ffn_up.weight") && !rule.matches("blk.10.ffn_up.weight"));
        assert_eq!(rule.to_string(), r"blk\.(0|1)\.ffn=q4_K");
        let exact = TypeRule::of_tensor("blk.0.ffn_up.weight", WeightType::F16);
        assert!(exact.matches("blk.0.ffn_up.weight") && !exact.matches("blk.0.ffn_up.weight2"));
        let again: TypeRule = exact.to_string().parse().unwrap();
        assert!(again.matches("blk.0.ffn_up.weight") && !again.matches("blk_0.ffn_up.weight"));
        for (bad, reason) in
            [("ffn", "REGEX=TYPE"), ("=q4_K", "REGEX=TYPE"), ("(=q4_K", "expression"), ("a=q9", "q4_K")]
        {
            assert!(bad.parse::<TypeRule>().unwrap_err().to_string().contains(reason), "{bad}");
        }
    }

    #[test]
    fn rules_are_separated_by_commas_outside_of_expressions() {
        let rules: TypeRules = r"blk\.[0-9]{1,2}\.ffn=iq4_xs,^output=Q8_0".parse().unwrap();
        let rules: Vec<String> = rules.0.iter().map(ToString::to_string).collect();
        assert_eq!(rules, [r"blk\.[0-9]{1,2}\.ffn=iq4_xs", "^output=q8_0"]);
        for bad in ["", "a", "a=q4_K,b", ",", "a=q4_K,b=q9"] {
            assert!(bad.parse::<TypeRules>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn recipes_are_bounded() {
        let large = format!("{}=q4_K", r"\p{L}{50}");
        assert!(large.parse::<TypeRule>().unwrap_err().to_string().contains("size limit"));
        let long = format!("({}=q4_K", "a".repeat(1 << 20));
        assert!(long.parse::<TypeRule>().unwrap_err().to_string().len() < 1000);
        let dir = std::env::temp_dir().join(format!("terrace-recipe-{}", std::process::id()));
        std::fs::write(&dir, "a=q4_K\n".repeat(MAX_RULES + 1)).unwrap();
        let error = read_recipe(&dir).unwrap_err();
        std::fs::remove_file(&dir).unwrap();
        assert!(matches!(error, RecipeError::TooMany { .. }), "{error}");
    }
}
