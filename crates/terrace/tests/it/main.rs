//! Tests of the program, started as users start it.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests are told things by the environment")]
#![allow(clippy::print_stderr, reason = "a test says what it could not try")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adapt;
mod aliases;
mod attach;
mod backends;
mod bad_input;
mod batch;
mod bench_baselines;
mod browser;
mod chat_answers;
mod client_fields;
mod coming_from;
mod commands;
mod common;
mod content_probs;
mod conversation;
mod crash;
mod downloads;
mod drafts;
mod driven_loop;
mod experts_report;
mod full_disks;
mod guide_jobs;
mod guide_pages;
mod hangups;
mod hostile_files;
mod hostile_grammars;
mod hot_cache_script;
mod hot_experts;
mod http_clients;
mod http_document;
mod http_facts;
mod http_storms;
mod images;
mod importance;
mod infill;
mod inspect_check;
mod iobench;
mod json_schemas;
mod layer_skip;
mod learn;
mod list;
mod llama;
mod llama_perplexity;
mod long_texts;
mod lora;
mod lossy;
mod machine_profile;
mod messages;
mod named_files;
mod no_effect;
mod optimize;
mod pasted;
mod pasted_tools;
mod perplexity;
mod placing;
mod plan;
mod plan_and_run;
mod plan_workers;
mod python_module;
mod quantize;
mod reference;
mod refused;
mod reload_derived;
mod reload_loop;
mod replicas;
mod request_numbers;
mod responses;
mod rpc_servers;
mod samplers;
mod serve;
mod serve_batches;
mod serve_changes;
mod serve_clients;
mod serve_embeddings;
mod serve_experts;
mod serve_llama_server;
mod serve_lost;
mod serve_models;
mod serve_operators;
mod serve_positions;
mod serve_reload;
mod server;
mod soak;
#[allow(dead_code, reason = "the hub's own tests use all of it")]
#[path = "../../../terrace-cli/src/source/hub/stand_in.rs"]
mod stand_in;
mod starts;
mod sweep;
mod template_processes;
mod templates;
mod terminal;
mod timeline;
mod timeline_devices;
mod tools_and_formats;
mod top;
mod trace;
mod variants;
mod verify;
mod vulkan;
mod warm_start;
mod watch;
mod wire;
mod worker_clients;
mod workers;

/// Started by `RpcServer::start`.
#[test]
#[ignore = "the devices of other tests, in a process of their own"]
fn rpc_server() {
    terrace_testkit::rpc::serve_as_child();
}
