//! The commands of the guide's first pages: each is one job, done with the page's commands alone.

use crate::guide_pages;

fn run_page(page: &str) -> Option<String> {
    guide_pages::run_page(&format!("docs/guide/jobs/{page}"))
}

#[test]
fn a_large_model_on_32_gb() {
    assert!(run_page("big-moe.md").unwrap().contains("layers"));
}

#[test]
fn how_fast_it_would_be() {
    let printed = run_page("how-fast.md").unwrap();
    assert!(printed.contains("Qwen3-235B-A22B") && printed.contains("terrace / stock"), "{printed}");
}

#[test]
fn an_ide_is_served() {
    let Some(printed) = run_page("serve-an-ide.md") else { return };
    assert!(printed.contains("\"chat.completion\""), "{printed}");
}

#[test]
fn scripts_of_llama_server_run() {
    let Some(printed) = run_page("from-llama-server.md") else { return };
    assert!(
        printed.contains("Final estimate: PPL") && printed.contains("\"default_generation_settings\""),
        "{printed}"
    );
}

#[test]
fn a_model_is_quantised_to_fit() {
    let printed = run_page("quantise-to-fit.md").unwrap();
    assert!(printed.contains("mean error of the matrices") && printed.contains("written in"), "{printed}");
}
