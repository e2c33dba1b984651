//! Indices that cannot be mistaken for one another.

use serde::Serialize;
use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the number as an index into a slice.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// A layer (transformer block): the `N` of `blk.N.`.
    LayerId
}
index! {
    /// An expert within its layer: a row of the router's output, and an index into the slowest
    /// dimension of an expert tensor.
    ExpertId
}
index! {
    /// One of a model's shard files, in shard order.
    FileIndex
}
