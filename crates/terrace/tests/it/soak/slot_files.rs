//! Requests that save, restore and erase server slots.

use crate::wire::post;
use serde_json::json;

/// Number of server slots.
pub const SLOTS: u8 = 4;

/// A random request. A slot's file may be missing, or of weights that were replaced since.
pub fn slot_file(random: &mut fastrand::Rng) -> String {
    let (slot, file) = (random.u8(0..SLOTS), random.u8(0..3));
    let body = json!({"filename": format!("kept-{file}.bin")});
    match random.u8(0..5) {
        0 | 1 => post(&format!("/slots/{slot}?action=save"), &body),
        2 | 3 => post(&format!("/slots/{slot}?action=restore"), &body),
        _ => post(&format!("/slots/{slot}?action=erase"), &json!({})),
    }
}
