use super::*;
use serde_json::{Value, json};
use std::path::Path;

/// The first event: two layers on a device, all experts unused.
fn first() -> Value {
    json!({
        "cursor": 1, "mode": "full", "working": 1, "waiting": 0, "epoch": 2, "prompt_tokens": 5,
        "generated_tokens": 10, "pairs": 40, "pairs_on_devices": 10, "device_bytes": 2_097_152,
        "exchanged": 3, "hits": 30, "misses": 10, "joined": 0, "read_bytes": 1_048_576, "stall_ms": 1500,
        "resident_bytes": 3_221_225_472u64, "capacity_bytes": 4_294_967_296u64, "whole": true,
        "layers": [{"layer": 0, "experts": 16, "device": "RPC0", "slots": 4}, {"layer": 3, "experts": 16}],
        "layer_pairs": [30, 10, 10, 0], "uses": [0, 12, 2, 8], "places": [0, 3, 0, 1, 1, 4, 13, 1],
    })
}

/// A second later.
fn second() -> Value {
    let mut event = first();
    for (name, value) in [("generated_tokens", 18), ("pairs", 72), ("pairs_on_devices", 34), ("hits", 48)] {
        event[name] = value.into();
    }
    event["misses"] = 16.into();
    event["whole"] = Value::Null;
    event["layers"] = Value::Null;
    event["layer_pairs"] = json!([46, 34, 26, 0]);
    event["uses"] = json!([0, 36, 16, 5]);
    event["places"] = json!([3, 1]);
    event
}

fn seen() -> Seen {
    let mut seen = Seen::default();
    seen.model = "tiny".into();
    let slot =
        |state: &str| seen::Slot { state: state.into(), held: 12, context: 256, prompt: 5, generated: 7 };
    seen.slots = vec![slot("decode"), slot("idle")];
    seen.take(&first(), 10.0);
    seen.take(&second(), 11.0);
    seen
}

#[test]
fn events_become_rates_and_heat() {
    let seen = seen();
    assert_eq!(seen.speed, [8.0]);
    assert_eq!((seen.device_share[0], seen.ram_share[0]), (Some(0.75), Some(0.75)));
    assert_eq!((seen.uses[0], seen.uses[3], seen.uses[17]), (36, 8, 5));
    // What was used before the first event is not hot for that.
    assert_eq!((seen.heat[0], seen.heat[3], seen.heat[17]), (24.0, 0.0, 5.0));
    assert_eq!((seen.places[0], seen.places[3], seen.places[4]), (3, 1, 0));
    assert_eq!((seen.next_mode(), seen.room()), ("update", 4));
    // After an interruption nothing follows what was before.
    let mut again = seen;
    again.interrupt();
    again.take(&first(), 90.0);
    assert_eq!((again.speed.len(), again.uses[0]), (1, 12));
    again.take(&json!({"uses": [90_000, 1], "places": "x"}), 91.0);
}

/// Compares a frame with the one in the tree; `UPDATE_GOLDEN=1` rewrites that one.
fn compare(name: &str, frame: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/top/frames").join(name);
    if terrace_cli::environment::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, frame).unwrap();
    }
    assert_eq!(frame, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}

#[test]
fn frames_are_as_they_were_looked_at() {
    let view = View { url: "http://127.0.0.1:8080".into(), keys: true, ..View::default() };
    compare("80x24.txt", &frame(&seen(), &view, 80, 24));
    compare("60x24.txt", &frame(&seen(), &view, 60, 24));
    compare("120x40.txt", &frame(&seen(), &View { colours: true, ..view.clone() }, 120, 40));
    let lost = View { lost: Some("http://127.0.0.1:8080: connection refused".into()), ..view.clone() };
    compare("lost.txt", &frame(&Seen::default(), &lost, 80, 24));
    // Sizes that no terminal has, and large models, only have to be drawn.
    let layers: Vec<Value> = (0..94).map(|layer| json!({"layer": layer, "experts": 512})).collect();
    let mut large = Seen::default();
    large.take(&json!({"whole": true, "layers": layers, "uses": [], "places": []}), 0.0);
    for (width, height) in [(1, 1), (8, 3), (80, 24), (500, 200)] {
        assert_eq!(frame(&large, &view, width, height).lines().count(), usize::from(height));
    }
    let text = frame(&large, &View { first: 200, ..view }, 80, 24);
    assert!(text.contains("layers 81 to 94 of 94, 8 experts a cell"), "{text}");
}
