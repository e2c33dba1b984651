//! Maximum size of requests: as large as a prompt for the model's context can make them, and all
//! together no larger than the memory set aside for them.

use crate::error::ApiError;
use std::sync::Arc;
use terrace_serving::ModelFacts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a body in bytes, whatever the context.
pub const MOST_BYTES: usize = 16 << 20;
/// Size of a body in bytes that is allowed with the smallest context: what clients send besides
/// prompts.
const LEAST_BYTES: usize = 2 << 20;
/// Bytes of JSON for a byte of text: quotes, line breaks and letters beyond ASCII take more than
/// one.
const ESCAPED: usize = 2;
/// Bytes of JSON for a token number.
const NUMBER: usize = 8;
/// Number of values in a body, and of objects, that are allowed with the smallest context.
const LEAST_PARTS: usize = 8192;
/// Maximum number of objects in a body: in memory each takes about a hundred times its size in the
/// body.
const MOST_OBJECTS: usize = 1 << 16;
/// Bodies up to this size are read without a share: the number of connections limits their total.
const SMALL: usize = 64 << 10;

/// Maximum size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Bytes of its body.
    pub bytes: usize,
    /// Number of values in it.
    parts: usize,
    /// Number of objects in it.
    objects: usize,
}

impl Allowed {
    /// Derives the limits from a model's context and the bytes of its longest token.
    pub fn of(facts: &ModelFacts) -> Self {
        let allowed = Self::for_context(facts.context, facts.token_lengths.longest());
        // An image takes more bytes than its tokens have as text.
        Self { bytes: if facts.sees() { MOST_BYTES } else { allowed.bytes }, ..allowed }
    }

    fn for_context(context: usize, longest: usize) -> Self {
        let bytes = context.saturating_mul(longest.saturating_mul(ESCAPED).max(NUMBER));
        Self {
            bytes: bytes.saturating_add(LEAST_BYTES).min(MOST_BYTES),
            // Token numbers, or turns, which have a few values each.
            parts: context.saturating_mul(2).saturating_add(LEAST_PARTS),
            objects: context.saturating_add(LEAST_PARTS).min(MOST_OBJECTS),
        }
    }

    /// Counts the values of a JSON text before it is parsed. Whether it is valid JSON is not
    /// checked.
    ///
    /// # Errors
    /// There are more values than allowed.
    pub fn check(self, text: &[u8]) -> Result<(), ApiError> {
        let (mut parts, mut objects) = (0, 0);
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => skip_string(&mut bytes),
                b'{' => (parts, objects) = (parts + 1, objects + 1),
                b'[' | b',' => parts += 1,
                _ => {}
            }
        }
        if parts > self.parts || objects > self.objects {
            return Err(ApiError::request(
                "the request body has more values than a prompt for this context can need",
            ));
        }
        Ok(())
    }
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// The memory for all bodies together.
pub struct Bodies(Arc<Semaphore>);

impl Bodies {
    /// Sets aside this many bytes, or the size of one body if that is more.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.clamp(MOST_BYTES, Semaphore::MAX_PERMITS))))
    }

    /// Returns true if a body of this many bytes needs a share of the memory.
    pub const fn share_is_needed(bytes: usize) -> bool {
        bytes > SMALL
    }

    /// Waits for the memory of a body of this many bytes, at most [`MOST_BYTES`].
    pub async fn share(&self, bytes: usize) -> OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes.min(MOST_BYTES)).expect("bounded above");
        Arc::clone(&self.0).acquire_many_owned(bytes).await.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn bodies_are_as_large_as_the_context_needs() {
        let (small, large) = (Allowed::for_context(512, 16), Allowed::for_context(32_768, 64));
        assert!(small.bytes >= LEAST_BYTES && small.bytes < large.bytes && large.bytes < MOST_BYTES);
        assert_eq!(Allowed::for_context(1 << 24, 1 << 10).bytes, MOST_BYTES);
        // All tokens of a context, as numbers or as text.
        assert!(large.bytes > 32_768 * 64 && large.parts > 32_768);
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        let allowed = Allowed { bytes: 100, parts: 4, objects: 2 };
        for fine in [r#"{"a": [1, 2]}"#, r#"{"a": "{{{{,,,,[[[[\"{{{"}"#, "", "\"", "\"\\", "[[[["] {
            assert!(allowed.check(fine.as_bytes()).is_ok(), "{fine}");
        }
        for many in ["[1,2,3,4,5]", "{{{", "[[[[["] {
            assert!(allowed.check(many.as_bytes()).is_err(), "{many}");
        }
    }

    #[test]
    fn bodies_share_their_memory_and_small_ones_need_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bodies = Bodies::new(0);
            let first = bodies.share(MOST_BYTES).await;
            assert!(timeout(Duration::from_millis(20), bodies.share(SMALL + 1)).await.is_err());
            assert!(!Bodies::share_is_needed(SMALL));
            drop(first);
            drop(bodies.share(SMALL + 1).await);
        });
    }
}
