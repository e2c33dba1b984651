//! Plain data that describes model files, in types that cannot be mixed up.
//!
//! Every other crate may depend on this one; it depends on no other, links no C and does no I/O. It
//! answers *which bytes of which file are which tensor* and nothing else: `terrace-plan` decides
//! where the bytes live, `terrace-store` brings them there.

mod bytesize;
pub mod cli;
pub mod configuration;
pub mod identity;
mod ids;
mod impossible;
mod kv_type;
mod lanes;
pub mod learn;
mod lookahead;
mod model;
mod mtp;
mod mtp_support;
mod names;
pub mod path_text;
mod size_choice;
mod slices;
mod split_mode;
pub mod trace;
pub mod trial;

pub use bytesize::{ByteSize, PAGE, ParseByteSizeError};
pub use ids::{ExpertId, FileIndex, LayerId};
pub use impossible::ImpossibleNumber;
pub use kv_type::{KvType, KvTypes};
pub use lanes::{SWEEP_TOKENS, TransitAlone, lane_activations, lane_transit, least_copies_beside_transit};
pub use lookahead::LOOKAHEAD_TOKENS;
pub use model::{Extent, MetaValue, ModelFile, Shape, Shard, TensorInfo, TensorType};
pub use mtp_support::{MtpSupport, MtpUse};
pub use names::{Name, excerpt, listed, parse_reason, printable, split_layer};
pub use size_choice::SizeChoice;
pub use slices::Slices;
pub use split_mode::SplitMode;
