//! RAM for conversations that a server keeps beside its context.

use crate::machine::MachineProfile;
use crate::options::Budget;
use crate::wishes::Wishes;
use terrace_model::{ByteSize, ModelFile};

/// The most that is taken unless the user asks for more.
const MAX_BYTES: ByteSize = ByteSize::gib(8);
/// With streamed weights, kept conversations take one part in this many of the RAM that weights could
/// have: they spare prompts, but each byte of them is one of weights that is read again.
const SHARE_STREAMED: u64 = 20;

/// Returns the RAM for kept conversations: as asked for, or by default half of what weights and
/// context leave, or a small share where they leave nothing.
pub fn prompt_cache(
    model: &ModelFile,
    machine: &MachineProfile,
    wishes: &Wishes,
    context: ByteSize,
) -> ByteSize {
    let room = machine.ram_room().saturating_sub(context);
    let auto = |left: u64| ByteSize(left).min(MAX_BYTES);
    match (wishes.prompt_cache, wishes.memory.ram_budget) {
        (Budget::Bytes(bytes), _) => bytes,
        (Budget::Auto, Budget::Auto) if model.size() > room => auto(room.bytes() / SHARE_STREAMED),
        (Budget::Auto, Budget::Auto) => auto(room.saturating_sub(model.size()).bytes() / 2),
        (Budget::Auto, Budget::Bytes(budget)) => {
            auto(room.saturating_sub(budget.min(model.size())).bytes() / 2)
        }
    }
}
