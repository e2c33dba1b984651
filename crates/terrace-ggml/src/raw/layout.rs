//! Which layout the structures of this process's ggml have: that of the linked release, or of a host
//! that loaded Terrace as a plug-in.

use super::abi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// A layout of ggml's backend structures, of which only those of buffer types differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// API version 2, as of ggml 0.17 to 0.25: buffers and backends copy in two dimensions.
    Two,
    /// API version 3: buffer types also allocate lists of tensors.
    Three,
}

impl Layout {
    /// The version of ggml's backend interface that has this layout.
    pub const fn api_version(self) -> c_int {
        match self {
            Self::Two => 2,
            Self::Three => abi::API_VERSION,
        }
    }
}

static TWO: AtomicBool = AtomicBool::new(false);

/// The layout of this process's ggml.
pub fn layout() -> Layout {
    if TWO.load(Ordering::Relaxed) { Layout::Two } else { Layout::Three }
}

/// Sets the layout, before anything is made that ggml knows.
pub fn adopt(layout: Layout) {
    TWO.store(layout == Layout::Two, Ordering::Relaxed);
}
