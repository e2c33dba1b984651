//! The metrics of llama.cpp's server under its names, for dashboards that were made for it.

use super::exposition::Exposition;
use std::fmt::Write;
use terrace_serving::{ServingStatus, SlotState};

/// Writes them, in Prometheus' text format.
pub fn write(text: &mut Exposition, status: &ServingStatus) {
    let text = text.lines();
    let totals = &status.totals;
    let busy = status.slots.iter().filter(|slot| slot.state != SlotState::Idle).count();
    let per = |n: u64, of: f64| if of > 0.0 { n as f64 / of } else { 0.0 };
    // llama.cpp's server averages over all of its time as well where nobody resets it.
    let of_prompts = per(totals.prompt_tokens, totals.prefill_seconds);
    let of_answers = per(totals.generated_tokens, totals.decode_seconds);
    let busy_per_pass = per(totals.pass_slots, totals.passes as f64);
    for (kind, name, help, value) in [
        ("counter", "prompt_tokens_total", "Number of prompt tokens processed.", totals.prompt_tokens as f64),
        (
            "counter",
            "prompt_tokens_cached_total",
            "Number of prompt tokens reused from cache.",
            totals.reused_tokens as f64,
        ),
        ("counter", "prompt_seconds_total", "Prompt process time", totals.prefill_seconds),
        (
            "counter",
            "tokens_predicted_total",
            "Number of generation tokens processed.",
            totals.generated_tokens as f64,
        ),
        ("counter", "tokens_predicted_seconds_total", "Predict process time", totals.decode_seconds),
        ("counter", "n_decode_total", "Total number of llama_decode() calls", totals.passes as f64),
        ("counter", "n_tokens_max", "Largest observed n_tokens.", totals.most_tokens as f64),
        (
            "gauge",
            "n_busy_slots_per_decode",
            "Average number of busy slots per llama_decode() call",
            busy_per_pass,
        ),
        ("gauge", "prompt_tokens_seconds", "Average prompt throughput in tokens/s.", of_prompts),
        ("gauge", "predicted_tokens_seconds", "Average generation throughput in tokens/s.", of_answers),
        ("gauge", "requests_processing", "Number of requests processing.", busy as f64),
        ("gauge", "requests_deferred", "Number of requests deferred.", status.waiting as f64),
    ] {
        let name = format!("llamacpp:{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_serving::{SlotStatus, Totals};

    #[test]
    fn the_names_are_llama_cpps() {
        let mut text = Exposition::default();
        let slot = |state| SlotStatus { state, ..SlotStatus::default() };
        let totals = Totals {
            prompt_tokens: 30,
            reused_tokens: 12,
            prefill_seconds: 1.5,
            passes: 4,
            pass_slots: 6,
            most_tokens: 77,
            ..Totals::default()
        };
        let slots = vec![slot(SlotState::Prefill), slot(SlotState::Idle), slot(SlotState::Decode)];
        write(&mut text, &ServingStatus { slots, waiting: 5, totals, ..ServingStatus::default() });
        let text = text.text();
        for line in [
            "# TYPE llamacpp:prompt_tokens_total counter",
            "llamacpp:prompt_tokens_cached_total 12",
            "# TYPE llamacpp:n_busy_slots_per_decode gauge",
            "llamacpp:prompt_tokens_total 30",
            "llamacpp:prompt_tokens_seconds 20",
            "llamacpp:predicted_tokens_seconds 0",
            "llamacpp:n_decode_total 4",
            "llamacpp:n_busy_slots_per_decode 1.5",
            "llamacpp:n_tokens_max 77",
            "llamacpp:requests_processing 2",
            "llamacpp:requests_deferred 5",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
    }
}
