//! Questions that ggml's scheduler asks a device before it decides where an operation on a weight is computed.
//!
//! `ggml_backend_sched_backend_id_from_cur` looks for the backend of a weight's buffer: it asks each device
//! whether it computes with the buffer type, and then whether it computes the operation. For the device that
//! comes last it asks next whether the buffer is host memory. If it is, devices before it may take the
//! operation: those that ask for large batches. An operation is placed exactly where these three questions
//! follow one another on a thread; any other sequence has another purpose.

use std::cell::Cell;

/// Fewest tokens of a graph for which ggml's drivers ask for operations on weights in host memory: their
/// default of `GGML_OP_OFFLOAD_MIN_BATCH`.
pub const OFFLOAD_MIN_BATCH: u32 = 32;

/// Which weights of the device a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Weights whose addresses hold no bytes.
    Streamed,
    /// Weights in RAM.
    InRam,
}

/// The last questions on this thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Asked {
    /// Anything else.
    #[default]
    Other,
    /// Computing with the buffer type of these weights.
    Buffers(Weights),
    /// After that, whether it computes an operation on one of them that its answer depends on.
    Operation(Weights),
}

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked::Other) };
}

/// Notes that the device is asked for a buffer type: that of some of its weights, or another one.
pub fn asked_for_buffers(of: Option<Weights>) {
    ASKED.set(of.map_or(Asked::Other, Asked::Buffers));
}

/// Notes that the device is asked for an operation. `matters` says whether the next answer about these
/// weights depends on it.
pub fn asked_for_operation(matters: impl FnOnce(Weights) -> bool) {
    ASKED.set(match ASKED.get() {
        Asked::Buffers(weights) if matters(weights) => Asked::Operation(weights),
        _ => Asked::Other,
    });
}

/// Notes that a graph is computed.
pub fn computing() {
    ASKED.set(Asked::Other);
}

/// Returns true if the question if these weights are host memory is the one that places an operation. The next one is
/// not.
pub fn places_operation(weights: Weights) -> bool {
    let places = ASKED.get() == Asked::Operation(weights);
    // Streamed weights are never asked about within a sequence that is about others.
    if places || weights == Weights::Streamed {
        ASKED.set(Asked::Other);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_third_question_places_an_operation() {
        for weights in [Weights::Streamed, Weights::InRam] {
            assert!(!places_operation(weights));
            asked_for_buffers(Some(weights));
            assert!(!places_operation(weights));
            asked_for_buffers(Some(weights));
            asked_for_operation(|of| of == weights);
            assert!(places_operation(weights));
            assert!(!places_operation(weights), "the next question is another one");
        }
    }

    #[test]
    fn other_sequences_place_nothing() {
        let sequences: [fn(); 4] = [
            || asked_for_operation(|_| true),
            || asked_for_buffers(None),
            || {
                asked_for_buffers(Some(Weights::InRam));
                asked_for_operation(|_| false);
            },
            || {
                asked_for_buffers(Some(Weights::InRam));
                asked_for_operation(|_| true);
                computing();
            },
        ];
        for sequence in sequences {
            sequence();
            assert!(!places_operation(Weights::InRam) && !places_operation(Weights::Streamed));
        }
    }
}
