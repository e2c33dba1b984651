//! The commands, one folder each: options in `args`, output in `show`.

pub mod attach;
pub mod bench;
pub mod calibrate;
pub mod calibrate_skip;
pub mod completions;
pub mod doctor;
pub mod experts;
pub mod inspect;
pub mod iobench;
pub mod list;
pub mod llama;
pub mod machine;
pub mod man;
pub mod optimize;
pub mod perplexity;
pub mod plan;
pub mod quantize;
pub mod run;
pub mod scaling;
pub mod serve;
pub mod sweep;
pub mod top;
pub mod trace;
pub mod worker;
