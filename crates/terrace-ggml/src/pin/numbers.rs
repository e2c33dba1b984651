//! Numbers of llama.cpp's enumerations that the bindings do not have. Each line names its C constant, with
//! which `cargo xtask pin` compares it.

/// `COMMON_SAMPLER_TYPE_DRY`.
pub const SAMPLER_DRY: i32 = 1;
/// `COMMON_SAMPLER_TYPE_TOP_K`.
pub const SAMPLER_TOP_K: i32 = 2;
/// `COMMON_SAMPLER_TYPE_TOP_P`.
pub const SAMPLER_TOP_P: i32 = 3;
/// `COMMON_SAMPLER_TYPE_MIN_P`.
pub const SAMPLER_MIN_P: i32 = 4;
/// `COMMON_SAMPLER_TYPE_TYPICAL_P`.
pub const SAMPLER_TYPICAL_P: i32 = 6;
/// `COMMON_SAMPLER_TYPE_TEMPERATURE`.
pub const SAMPLER_TEMPERATURE: i32 = 7;
/// `COMMON_SAMPLER_TYPE_XTC`.
pub const SAMPLER_XTC: i32 = 8;
/// `COMMON_SAMPLER_TYPE_INFILL`.
pub const SAMPLER_INFILL: i32 = 9;
/// `COMMON_SAMPLER_TYPE_PENALTIES`.
pub const SAMPLER_PENALTIES: i32 = 10;
/// `COMMON_SAMPLER_TYPE_TOP_N_SIGMA`.
pub const SAMPLER_TOP_N_SIGMA: i32 = 11;
/// `COMMON_SAMPLER_TYPE_ADAPTIVE_P`.
pub const SAMPLER_ADAPTIVE_P: i32 = 12;

/// `COMMON_GRAMMAR_TYPE_USER`.
pub const GRAMMAR_USER: i32 = 1;
/// `COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT`.
pub const GRAMMAR_OUTPUT_FORMAT: i32 = 2;
/// `COMMON_GRAMMAR_TYPE_TOOL_CALLS`.
pub const GRAMMAR_TOOL_CALLS: i32 = 3;
