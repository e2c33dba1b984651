//! llama.cpp's support of MTP layers. The release is not known here: who reads a model file tells it.

/// Use of MTP layers, by architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpUse {
    /// llama.cpp computes drafts with them.
    Drafts {
        /// True if the last layer is computed for all tokens of a prompt anyway, so that what it gives
        /// for them costs nothing.
        whole: bool,
    },
    /// They would draft, but the model keeps states, which cannot be rolled back to the last right draft.
    States,
    /// There are none, or none that draft.
    None,
}

/// llama.cpp's support of the MTP layers of an architecture that it loads on request only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpSupport {
    /// Their use, where there is a graph of them.
    pub how: MtpUse,
    /// True if there is a graph of several layers.
    pub several: bool,
    /// True if there is one for positions in several dimensions.
    pub sections: bool,
}
