//! Reading metadata that is one number for all layers, or an array with one number per layer.

use serde::Serialize;
use std::fmt;
use terrace_model::{MetaValue, ModelFile};

/// A number that may differ between layers. Serialises as a number, or as `{"min", "max"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Count {
    /// The same number in all layers.
    Same(u64),
    /// Different numbers.
    Range {
        /// The smallest number.
        min: u64,
        /// The largest number.
        max: u64,
    },
}

impl Count {
    /// Summarises the numbers of some layers; `None` if there are none.
    pub fn over(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut values = values.into_iter();
        let first = values.next()?;
        let (min, max) = values.fold((first, first), |(min, max), v| (min.min(v), max.max(v)));
        Some(if min == max { Self::Same(min) } else { Self::Range { min, max } })
    }

    /// Returns the largest number.
    pub const fn max(self) -> u64 {
        match self {
            Self::Same(n) | Self::Range { max: n, .. } => n,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(n) => n.fmt(f),
            Self::Range { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

/// Returns the architecture's `key` for all layers.
pub fn over_layers(model: &ModelFile, key: &str) -> Option<Count> {
    match model.metadata.get(&format!("{}.{key}", model.architecture()))? {
        MetaValue::U64(n) => Some(Count::Same(*n)),
        MetaValue::Array(values) => Count::over(values.iter().filter_map(|v| match v {
            MetaValue::U64(n) => Some(*n),
            _ => None,
        })),
        _ => None,
    }
}
