//! The commands, one folder each: options in `args`, output in `show`.

pub mod attach;
pub mod batch;
pub mod completions;
pub mod doctor;
pub mod experts;
pub mod inspect;
pub mod list;
pub mod llama;
pub mod man;
pub mod plan;
pub mod run;
pub mod serve;
pub mod top;
pub mod worker;
