//! Here is a prompt: give me tokens.
//!
//! [`Engine::load`] reads the model's header, plans what lives where, loads the model through the
//! Terrace backend (or stock llama.cpp, for comparison) and makes a context. [`Engine::generate`]
//! evaluates a prompt and streams tokens; [`Logits`] provides logits to evaluations.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod adapters;
mod answer;
mod chat;
mod drafts;
mod embedding;
mod engine;
mod error;
mod experts;
mod file_error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod generate;
mod generation;
mod json_file;
mod layer_skip;
pub mod learn;
mod line_limits;
mod load;
mod logits;
mod lossy;
pub mod options;
mod pressure;
pub mod prompt_cache;
mod record;
mod reload;
mod report;
mod schema;
mod scores;
mod session;
mod slots_limit;
pub mod steps;
mod stops;
mod timeline;
mod token_lengths;
mod token_probs;
mod tokenize;
mod trace;
mod unfit;
mod utf8;
mod vision;
mod warm;

pub use adapters::{AdapterFacts, Scales};
pub use answer::{Answer, StopReason, Timings};
pub use chat::{
    AnswerForm, AnswerReader, ChatTemplate, ChatTemplateError, Conversation, Delta, Grammars, Message,
    ReasoningFormat, SpecialTokens, ToolChoice, Written, enter_chat_worker, use_chat_worker,
};
pub use drafts::DraftCounts;
pub use embedding::{EmbeddingFacts, normalize};
pub use engine::{Engine, PromptProgress};
pub use error::EngineError;
pub use experts::{ApplyError, ApplyOutcome, ExpertsSeen, ExpertsUsed, LayerSeen};
pub use file_error::{FileError, FileRole};
pub use generate::Limits;
pub use layer_skip::{FILE as LAYER_SKIP_FILE, LayerSkip, Measured};
pub use line_limits::LineLimits;
pub use load::{
    HeaderModel, HotDevice, HotPlan, HotTransit, LoadProgress, Planned, PlannedMachine, kernels_of,
    measured_contexts, plan_run, wishes_of,
};
pub use logits::{LogitRows, Logits};
pub use lossy::{
    BudgetSpent, FILE as LOSSY_FILE, LossyCost, LossyFile, LossyMark, LossyPlan, LossySetting, LossySettings,
    LossySource, LossyUsed, LowFile, LowIdentity, RoutingUsed,
};
pub use options::{KvChoice, Lookahead, Mode, OnReload, Options};
pub use reload::{
    EarlierReload, Provenance, Refusal, ReloadError, ReloadOutcome, ReloadReport, Replacement, Source,
    Swapped, Take,
};
pub use report::PlanReport;
pub use schema::{Schema, pattern_grammar, quoted};
pub use session::Session;
pub use slots_limit::{SlotsLimit, SlotsMemory};
pub use timeline::{SavedTimeline, TimelineFile};
pub use token_lengths::TokenLengths;
pub use token_probs::{PromptProbs, TokenProb, TokenProbs};
pub use trace::SavedTrace;
pub use unfit::{NoDrafts, NoLoss, ReadingChoice, Unfit};
pub use utf8::Utf8Stream;
pub use vision::{Image, ImageReadError, Images, Media, ProjectorFacts, Prompted, VisionError};
