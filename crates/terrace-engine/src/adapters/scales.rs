//! Scales of adapters.

use std::sync::Arc;

/// Scale of each adapter, by their numbers; zero for those that it does not name. Cheap to
/// copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scales(Arc<[f32]>);

impl Scales {
    /// Of these scales, which are finite.
    pub fn new(scales: &[f32]) -> Self {
        let named = scales.iter().rposition(|&scale| scale != 0.0).map_or(0, |last| last + 1);
        // There are two zeros.
        Self(scales[..named].iter().map(|&scale| if scale == 0.0 { 0.0 } else { scale }).collect())
    }

    /// The scale of an adapter.
    pub fn of(&self, adapter: usize) -> f32 {
        self.0.get(adapter).copied().unwrap_or(0.0)
    }

    /// Returns true if no adapter is added.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_equal_if_the_same_is_added() {
        for none in [&[][..], &[0.0], &[0.0, -0.0]] {
            assert!(Scales::new(none).is_none() && Scales::new(none) == Scales::default());
        }
        let some = Scales::new(&[-0.0, 0.5, 0.0]);
        assert_eq!(some, Scales::new(&[0.0, 0.5]));
        assert_eq!([0, 1, 2, 9].map(|adapter| some.of(adapter)), [0.0, 0.5, 0.0, 0.0]);
        assert!(some != Scales::new(&[0.0, 0.25]) && !some.is_none());
    }
}
