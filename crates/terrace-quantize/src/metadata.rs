//! Metadata of the new file that is given on the command line.

use std::fmt;
use std::str::FromStr;
use terrace_ggml::gguf::write::Value;

/// `KEY=TYPE:VALUE`: a value in place of the model's, as llama-quantize's `--override-kv` writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataRule {
    pub key: String,
    pub value: Value,
}

/// Text that is no such rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMetadataRuleError {
    /// A part is missing, or the key too long.
    #[error("expected KEY=TYPE:VALUE with a key of at most {MAX_KEY} bytes, got `{0}`")]
    Form(String),
    /// There is no such type.
    #[error("`{0}` is not one of int, float, bool, str")]
    Type(String),
    /// The value is not of the type.
    #[error("`{value}` is not of type {ty}")]
    Value {
        /// The type.
        ty: &'static str,
        /// The value.
        value: String,
    },
    /// The writer needs its own value.
    #[error("`{0}` follows from the file's contents")]
    Derived(String),
}

/// Most bytes of a key, as in llama.cpp.
const MAX_KEY: usize = 127;
/// Most bytes of a text, as in llama.cpp.
const MAX_TEXT: usize = 127;
/// Keys of which the writer takes care.
const DERIVED: [&str; 4] = ["general.alignment", "split.no", "split.count", "split.tensors.count"];

impl FromStr for MetadataRule {
    type Err = ParseMetadataRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseMetadataRuleError::Form(text.to_owned());
        let (key, rest) = text.split_once('=').ok_or_else(form)?;
        let (ty, value) = rest.split_once(':').ok_or_else(form)?;
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(form());
        }
        if DERIVED.contains(&key) {
            return Err(ParseMetadataRuleError::Derived(key.to_owned()));
        }
        let wrong = |ty| ParseMetadataRuleError::Value { ty, value: value.to_owned() };
        let value = match ty {
            // llama.cpp writes whole numbers with 32 bits.
            "int" => Value::U32(value.parse().map_err(|_| wrong("int"))?),
            "float" => Value::F32(value.parse().map_err(|_| wrong("float"))?),
            "bool" => Value::Bool(value.parse().map_err(|_| wrong("bool"))?),
            "str" if value.len() > MAX_TEXT => return Err(wrong("str")),
            "str" => Value::Str(value.to_owned()),
            other => return Err(ParseMetadataRuleError::Type(other.to_owned())),
        };
        Ok(Self { key: key.to_owned(), value })
    }
}

impl fmt::Display for MetadataRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_llama_quantize_reads_them() {
        for (text, value) in [
            ("a.b=int:7", Value::U32(7)),
            ("a.b=float:0.5", Value::F32(0.5)),
            ("a.b=bool:true", Value::Bool(true)),
            ("a.b=str:x=y:z", Value::Str("x=y:z".into())),
        ] {
            assert_eq!(text.parse(), Ok(MetadataRule { key: "a.b".into(), value }), "{text}");
        }
        for (bad, reason) in [
            ("a.b", "KEY=TYPE:VALUE"),
            ("=int:1", "KEY=TYPE:VALUE"),
            ("a=arr:1", "int, float"),
            ("a=int:-1", "type int"),
            ("a=bool:1", "type bool"),
            ("split.no=int:1", "contents"),
        ] {
            let error = bad.parse::<MetadataRule>().unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
