//! Use of MTP layers by llama.cpp, by architecture. [`gguf`](crate::gguf) tells each model file that it
//! reads; files of `src/models` that ask for `load_mtp` are the list.

use terrace_model::{MtpSupport, MtpUse};

/// They draft: `whole` as in [`MtpUse::Drafts`].
const fn drafts(whole: bool, several: bool, sections: bool) -> MtpSupport {
    MtpSupport { how: MtpUse::Drafts { whole }, several, sections }
}

const STATES: MtpSupport = MtpSupport { how: MtpUse::States, several: true, sections: true };
/// No model of it was seen to run.
const NONE: MtpSupport = MtpSupport { how: MtpUse::None, several: true, sections: true };

/// The architectures whose MTP layers are loaded on request only, most of them whole. Those of all others are
/// loaded, or ignored, whatever is asked for.
const ON_REQUEST: [(&str, MtpSupport); 16] = [
    ("bailingmoe3", STATES),
    ("cohere2moe", drafts(true, false, true)),
    ("deepseek2", drafts(false, false, true)),
    ("deepseek32", drafts(false, false, true)),
    ("deepseek4", NONE),
    ("glm-dsa", drafts(false, false, true)),
    ("glm4moe", drafts(false, false, false)),
    ("glm5-next", STATES),
    ("hy_v3", drafts(true, true, true)),
    ("mimo2", NONE),
    ("nemotron_h_moe", STATES),
    ("qwen35", STATES),
    ("qwen35moe", STATES),
    ("qwen3next", STATES),
    ("qwen4exp", STATES),
    ("step35", drafts(true, true, true)),
];

/// llama.cpp's use of the MTP layers of an architecture; `None` if it does not load them on request.
pub fn support(architecture: &str) -> Option<MtpSupport> {
    ON_REQUEST.iter().find(|(name, _)| *name == architecture).map(|&(_, support)| support)
}
