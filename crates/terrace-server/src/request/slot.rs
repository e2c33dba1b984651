//! The field that names a server slot.

use super::body::Fields;
use crate::app::Ready;
use crate::error::ApiError;

/// Reads the slot that is to answer a request; -1 means any.
///
/// # Errors
/// There is no such slot.
pub fn slot(fields: &mut Fields, ready: &Ready) -> Result<Option<usize>, ApiError> {
    let last = i64::try_from(ready.facts.slots).unwrap_or(i64::MAX) - 1;
    let number = fields.integer("id_slot", -1..=last)?;
    Ok(number.and_then(|number| usize::try_from(number).ok()))
}
