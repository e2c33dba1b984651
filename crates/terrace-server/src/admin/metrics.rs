//! `GET /metrics`: counters and gauges in Prometheus' text format.

use super::exposition::Exposition;
use super::llamacpp_metrics;
use crate::app::{App, LoadedModel};
use crate::error::ApiError;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use std::sync::Arc;
use terrace_engine::BudgetSpent;
use terrace_engine::prompt_cache::PromptCacheStatus;
use terrace_lanes::{HotLayerReport, HotOn, HotTotals};
use terrace_serving::{Serving, ServingStatus, SlotState};
use terrace_store::{CopyStats, LayerStats, StoreStats};

/// When the server started, in seconds since 1970.
const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

/// `GET /metrics`.
///
/// # Errors
/// The server is shutting down.
pub async fn metrics(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
) -> Result<Response, ApiError> {
    let status = ready.status()?;
    let mut text = Exposition::default();
    app.write_metrics(&mut text);
    serving(&mut text, &status);
    prompt_cache(&mut text, &status.prompt_cache);
    if let Some(store) = &status.store {
        weights(&mut text, store);
    }
    if let Some(budget) = &status.quality {
        quality(&mut text, budget);
    }
    if let Some(hot) = &status.hot {
        experts(&mut text, hot);
    }
    let experts = ready.ask(Serving::experts)?;
    if let Some(hot) = &experts.hot {
        lanes(&mut text, &hot.layers);
    }
    layers(&mut text, &experts.stats);
    copies(&mut text, &experts.copies);
    llamacpp_metrics::write(&mut text, &status);
    let mut response = text.respond();
    // llama-server's name for it.
    response.headers_mut().insert(STARTED, HeaderValue::from(app.started_unix));
    Ok(response)
}

fn serving(text: &mut Exposition, status: &ServingStatus) {
    let totals = &status.totals;
    text.counter("prompt_tokens_total", "Prompt tokens evaluated", totals.prompt_tokens);
    text.counter(
        "prompt_tokens_reused_total",
        "Prompt tokens that a server slot or the prompt cache still held",
        totals.reused_tokens,
    );
    text.counter(
        "recomputed_tokens_total",
        "Tokens evaluated again after a reload",
        totals.recomputed_tokens,
    );
    text.counter("generated_tokens_total", "Tokens generated", totals.generated_tokens);
    text.counter(
        "shared_prompts_total",
        "Prompts whose ends were evaluated in one pass with others",
        totals.shared_prompts,
    );
    text.counter("drafts_checked_total", "Drafts checked", totals.drafts.drafted);
    text.counter("drafts_accepted_total", "Drafts accepted", totals.drafts.accepted);
    text.counter("prefill_seconds_total", "Time spent on prompts", totals.prefill_seconds);
    text.counter("decode_seconds_total", "Time spent on generating", totals.decode_seconds);
    text.counter("embedded_tokens_total", "Tokens embedded", totals.embedded_tokens);
    text.counter("embedding_seconds_total", "Time spent on embeddings", totals.embedding_seconds);
    text.family("requests_total", "counter", "Requests by how they ended");
    let ended = &totals.ended;
    for (end, count) in [
        ("end_of_text", ended.end_of_text),
        ("length", ended.length),
        ("stop_string", ended.stop_string),
        ("context_full", ended.context_full),
        ("embedded", totals.embedded_jobs),
        ("cancelled", ended.cancelled),
        ("failed", ended.failed),
    ] {
        text.sample("requests_total", &[("end", end)], count);
    }
    text.gauge("requests_waiting", "Requests waiting for a server slot", status.waiting);
    text.gauge(
        "embeddings_waiting",
        "Requests for embeddings, with the one that is computed",
        status.embedding,
    );
    text.family("slots", "gauge", "Server slots by state");
    for (name, state) in
        [("idle", SlotState::Idle), ("prefill", SlotState::Prefill), ("decode", SlotState::Decode)]
    {
        let count = status.slots.iter().filter(|slot| slot.state == state).count();
        text.sample("slots", &[("state", name)], count);
    }
    text.gauge("epoch", "How often tensors were replaced", status.epoch);
}

fn quality(text: &mut Exposition, budget: &BudgetSpent) {
    text.gauge("lossy_budget_nats", "Permitted mean divergence per token", budget.budget);
    text.gauge("lossy_spent_nats", "Mean divergence per token, as measured", budget.spent);
    text.counter("lossy_tokens_total", "Tokens computed with loss", budget.tokens);
    text.counter(
        "lossy_exact_passes_total",
        "Tokens computed exactly as well, to measure the divergence",
        budget.exact_passes,
    );
    text.gauge("lossy_prior", "Bonus of experts in memory", budget.prior);
    text.gauge(
        "lossy_drop",
        "Share of the weights, times top-k, below which experts are dropped",
        budget.drop,
    );
    text.gauge(
        "lossy_low_below",
        "Share of the weights, times top-k, below which experts are read in fewer bits",
        budget.low_below,
    );
}

fn prompt_cache(text: &mut Exposition, kept: &PromptCacheStatus) {
    text.gauge("prompt_cache_limit_bytes", "RAM for kept conversations", kept.limit);
    text.gauge("prompt_cache_bytes", "RAM that kept conversations take", kept.bytes);
    text.gauge("prompt_cache_conversations", "Conversations kept in RAM", kept.conversations);
    text.counter("prompt_cache_evicted_total", "Conversations evicted from RAM", kept.evicted);
    text.counter("prompt_cache_kept_total", "Conversations copied out of server slots", kept.kept);
    text.counter("prompt_cache_restored_total", "Conversations restored to server slots", kept.restored);
    text.counter(
        "prompt_cache_restored_tokens_total",
        "Prompt tokens reused from restored conversations",
        kept.restored_tokens,
    );
    text.counter(
        "prompt_cache_copied_bytes_total",
        "Bytes copied to keep and restore conversations",
        kept.copied_bytes,
    );
    text.counter(
        "prompt_cache_copy_seconds_total",
        "Time spent on keeping and restoring conversations",
        kept.copy_seconds,
    );
    if kept.disk_limit > 0 {
        text.gauge("prompt_cache_disk_limit_bytes", "Disk space for kept conversations", kept.disk_limit);
        text.gauge("prompt_cache_disk_bytes", "Disk space that kept conversations take", kept.disk_bytes);
        text.gauge("prompt_cache_disk_conversations", "Conversations on disk", kept.disk_conversations);
        text.counter("prompt_cache_disk_written_total", "Conversations written", kept.disk_written);
        text.counter("prompt_cache_disk_read_total", "Conversations read", kept.disk_read);
        text.counter(
            "prompt_cache_disk_refused_total",
            "Files removed because they were damaged",
            kept.disk_refused,
        );
    }
}

fn weights(text: &mut Exposition, store: &StoreStats) {
    text.counter("store_hits_total", "Uses of weights that were in RAM", store.hits);
    text.counter("store_misses_total", "Uses of weights that had to be read", store.misses);
    text.counter("store_joined_total", "Uses of weights that were already being read", store.joined);
    text.counter("store_evictions_total", "Blocks of weights evicted", store.evictions);
    text.counter("store_read_bytes_total", "Bytes read from the model's files", store.bytes_read.bytes());
    text.counter("store_reads_total", "Read requests", store.requests);
    text.counter(
        "store_stall_seconds_total",
        "Time that computing waited for reading",
        store.stall.as_secs_f64(),
    );
    text.counter("store_io_seconds_total", "Time with a read in flight", store.io_busy.as_secs_f64());
    text.counter("store_rows_total", "Distinct rows of tables looked up in graphs", store.rows.distinct);
    text.counter("store_rows_read_total", "Rows of tables read from the model's files", store.rows.read);
    text.counter("store_row_reads_total", "Read requests for rows of tables", store.rows.requests);
    text.counter("store_row_bytes_total", "Bytes read for rows of tables", store.rows.bytes.bytes());
    text.counter(
        "store_row_stall_seconds_total",
        "Time that computing waited for rows of tables",
        store.rows.stall.as_secs_f64(),
    );
    text.counter("store_verified_total", "Reads compared with checksums", store.verified);
    text.counter("store_mismatches_total", "Reads that had a wrong checksum", store.mismatches);
    text.counter("store_healed_total", "Wrong reads that were right when repeated", store.healed);
    text.counter("store_speculated_total", "Blocks read on a guess", store.speculated);
    text.counter("store_speculation_used_total", "Guesses that were right", store.speculation_used);
    text.gauge("store_resident_bytes", "Bytes of weights in slots", store.resident.bytes());
    text.gauge("store_capacity_bytes", "Bytes of all slots", store.capacity.bytes());
}

fn experts(text: &mut Exposition, hot: &HotTotals) {
    text.family("expert_pairs_total", "counter", "Decoded pairs of token and expert by what computed them");
    text.sample("expert_pairs_total", &[("on", "device")], hot.hot);
    text.sample("expert_pairs_total", &[("on", "cpu")], hot.cold);
    text.counter("hot_filled_total", "Experts copied into empty slots of devices", hot.filled);
    text.counter("hot_exchanged_total", "Experts copied to devices in place of others", hot.exchanged);
    let copied = hot.filled_bytes + hot.exchanged_bytes;
    text.counter("hot_copied_bytes_total", "Bytes of experts copied to devices", copied.bytes());
    text.counter("hot_wait_seconds_total", "Time that the CPU waited for devices", hot.waited.as_secs_f64());
    text.gauge("hot_memory_bytes", "Device memory for copies of experts", hot.memory.bytes());
}

/// The copies of each layer, as of a recent batch.
fn lanes(text: &mut Exposition, layers: &[HotLayerReport]) {
    text.family(
        "layer_expert_pairs_total",
        "counter",
        "Decoded pairs of token and expert by layer and what computed them",
    );
    for layer in layers {
        let number = layer.layer.to_string();
        let labels = [("layer", &number[..]), ("device", &layer.device)];
        for (on, count) in [("device", layer.hot), ("cpu", layer.cold)] {
            text.sample("layer_expert_pairs_total", &[labels[0], labels[1], ("on", on)], count);
        }
    }
    let mut each = |name: &str, kind: &str, help: &str, of: &dyn Fn(&HotLayerReport) -> f64| {
        text.family(name, kind, help);
        for layer in layers {
            let number = layer.layer.to_string();
            text.sample(name, &[("layer", &number), ("device", &layer.device)], of(layer));
        }
    };
    each("layer_hot_skipped_total", "counter", "Computations for which the device was too slow", &|layer| {
        layer.skipped as f64
    });
    each("layer_hot_round_trip_seconds", "gauge", "Average time of a round trip to the device", &|layer| {
        layer.round_trip.as_secs_f64()
    });
    each("layer_cpu_pair_seconds", "gauge", "Average time of the CPU per pair", &|layer| {
        layer.cpu_pair.as_secs_f64()
    });
    each("layer_hot_jobs_total", "counter", "Computations in which the device had a part", &|layer| {
        layer.tally.launched as f64
    });
    each("layer_hot_seconds_total", "counter", "Time from handing pairs over to their results", &|layer| {
        layer.tally.round_trips.as_secs_f64()
    });
    each("layer_cpu_seconds_total", "counter", "Time of the CPU's part, with its waits for disk", &|layer| {
        layer.tally.cpu.as_secs_f64()
    });
    each(
        "layer_hot_wait_seconds_total",
        "counter",
        "Time that the CPU then waited for the device",
        &|layer| layer.work.waited.as_secs_f64(),
    );
    each("layer_hot_lost", "gauge", "Whether the device has stopped computing the layer", &|layer| {
        f64::from(u8::from(layer.problem.is_some()))
    });
    let mut on_each = |name: &str, help: &str, of: &dyn Fn(&HotOn) -> u32| {
        text.family(name, "gauge", help);
        for (layer, on) in layers.iter().flat_map(|layer| layer.on.iter().map(move |on| (layer, on))) {
            let number = layer.layer.to_string();
            text.sample(name, &[("layer", &number), ("device", &on.device)], of(on));
        }
    };
    on_each("layer_hot_slots", "Experts with room on the device", &|on| on.slots);
    on_each("layer_hot_copies", "Experts held on the device", &|on| on.held);
}

/// Reads of the copies of files with replicas, as of a recent batch.
fn copies(text: &mut Exposition, copies: &[CopyStats]) {
    let mut each = |name: &str, kind: &str, help: &str, of: fn(&CopyStats) -> u64| {
        if !copies.is_empty() {
            text.family(name, kind, help);
        }
        for copy in copies {
            text.sample(name, &[("file", &copy.path.display().to_string())], of(copy));
        }
    };
    each("copy_read_bytes_total", "counter", "Bytes read from this copy of a file", |copy| copy.bytes_read);
    each("copy_errors_total", "counter", "Reads of this copy that failed", |copy| copy.errors);
    each("copy_used", "gauge", "Whether this copy is still read", |copy| u64::from(copy.used));
}

/// Work of the CPU with the streamed experts of each layer, as of a recent batch.
fn layers(text: &mut Exposition, stats: &[LayerStats]) {
    let mut each = |name: &str, help: &str, of: fn(&LayerStats) -> f64| {
        let known = || stats.iter().filter_map(|layer| Some((layer.layer?, layer)));
        if known().next().is_some() {
            text.family(name, "counter", help);
        }
        for (number, layer) in known() {
            text.sample(name, &[("layer", &number.0.to_string())], of(layer));
        }
    };
    each("layer_expert_seconds_total", "Time that the CPU computed with streamed experts", |layer| {
        layer.experts.as_secs_f64()
    });
    each("layer_stall_seconds_total", "Time that it waited for the layer's weights", |layer| {
        layer.stall.as_secs_f64()
    });
    each("layer_store_hits_total", "Uses of the layer's weights that were in RAM", |layer| layer.hits as f64);
    each("layer_store_misses_total", "Uses that had to be read, or were being read", |layer| {
        (layer.misses + layer.joined) as f64
    });
    each("layer_store_read_bytes_total", "Bytes read for the layer", |layer| layer.bytes_read.bytes() as f64);
}
