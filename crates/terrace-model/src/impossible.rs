//! Numbers in a header that contradict each other.

use crate::model::{MetaValue, ModelFile};
use std::fmt;

/// A number that no model can have. Displays as a clause: which key has it, and what it contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpossibleNumber {
    /// The metadata key.
    pub key: String,
    /// Its value; of several, the largest one.
    pub value: u64,
    /// Number of experts in each layer; `None` means that the model has none.
    pub experts: Option<u64>,
}

impl fmt::Display for ImpossibleNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, but the model has ", self.key, self.value)?;
        match self.experts {
            Some(experts) => write!(f, "{experts} experts"),
            None => f.write_str("no experts"),
        }
    }
}

impl ModelFile {
    /// Returns the first number of the metadata that contradicts another one, so that llama.cpp cannot
    /// load the model.
    pub fn impossible_number(&self) -> Option<ImpossibleNumber> {
        let key = |name: &str| format!("{}.{name}", self.architecture());
        let number = |value: &MetaValue| match value {
            MetaValue::U64(n) => Some(*n),
            _ => None,
        };
        let used = key(Self::EXPERTS_USED);
        let value = match self.metadata.get(&used)? {
            MetaValue::Array(values) => values.iter().filter_map(number).max()?,
            one => number(one)?,
        };
        let experts = match self.metadata.get(&key("expert_count")) {
            None => None,
            Some(count) => Some(number(count)?).filter(|&experts| experts > 0),
        };
        let possible = match experts {
            Some(experts) => (1..=experts).contains(&value),
            None => value == 0,
        };
        (!possible).then_some(ImpossibleNumber { key: used, value, experts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(numbers: &[(&str, MetaValue)]) -> ModelFile {
        let mut metadata = std::collections::BTreeMap::new();
        metadata.insert("general.architecture".to_owned(), MetaValue::Str("moe".into()));
        metadata.extend(numbers.iter().map(|(key, value)| (format!("moe.{key}"), value.clone())));
        ModelFile { shards: Vec::new(), version: 3, alignment: 32, metadata, tensors: Vec::new(), mtp: None }
    }

    #[test]
    fn used_experts_are_some_of_those_that_there_are() {
        let (count, used) = ("expert_count", "expert_used_count");
        let number = MetaValue::U64;
        let layers = |all: &[u64]| MetaValue::Array(all.iter().copied().map(MetaValue::U64).collect());
        for (numbers, expected) in [
            (vec![(count, number(32)), (used, number(4))], None),
            (vec![(count, number(32)), (used, number(32))], None),
            (vec![(count, number(32)), (used, number(40))], Some("is 40, but the model has 32 experts")),
            (vec![(count, number(32)), (used, number(0))], Some("is 0, but the model has 32 experts")),
            (vec![(count, number(32)), (used, layers(&[0, 4]))], None),
            (
                vec![(count, number(32)), (used, layers(&[4, 33]))],
                Some("is 33, but the model has 32 experts"),
            ),
            (vec![(count, number(0)), (used, number(4))], Some("is 4, but the model has no experts")),
            (vec![(used, number(0))], None),
            (vec![(count, layers(&[32])), (used, number(40))], None),
            (vec![(count, number(32))], None),
        ] {
            let found = model(&numbers).impossible_number().map(|number| number.to_string());
            let expected = expected.map(|expected| format!("`moe.expert_used_count` {expected}"));
            assert_eq!(found, expected, "{numbers:?}");
        }
    }
}
