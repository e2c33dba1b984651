//! Operators see and steer experts.

use super::{Browser, check_sizes, installed, skipped};
use crate::server::{Server, TEST_TIMEOUT};
use serde_json::json;
use std::fs;
use std::time::Instant;
use terrace_model::ByteSize;
use terrace_model::learn::LearnFile;
use terrace_testkit::rpc::RpcServer;

fn serve(device: &RpcServer) -> Server {
    let args = ["--ram-budget", "6MiB", "-ngl", "0", "--hot-cache", "2MiB", "--hot-lanes", "always"];
    let more = ["--hot-update", "off", "--ctx", "256", "--rpc", device.endpoint()];
    Server::start(&crate::common::bundled(), args.iter().chain(&more))
}

fn generate(server: &Server) {
    let body = json!({"prompt": "In the beginning", "max_tokens": 16, "cache_prompt": false});
    server.post("/v1/completions", &body).ok();
}

/// Uses of experts that the page knows of.
const USES: &str = "modules.cells.cells.uses.reduce((sum, count) => sum + count, 0)";
/// Experts that it shows on a device.
const COPIES: &str = "modules.cells.cells.places.filter((place) => place & 2).length";

#[test]
fn operators_see_and_steer_experts_on_the_page() {
    let Some(program) = installed() else { return skipped() };
    let (device, downloads) = (RpcServer::start(ByteSize::mib(64)).unwrap(), tempfile::tempdir().unwrap());
    let server = serve(&device);
    let mut page = Browser::open(&program, &server.url("/"), downloads.path());
    page.show(1280, 800, false);
    // The panel is for those who ask for it.
    page.wait_for("at('state').className === 'up' && at('tiers').hidden");
    page.click("#show-tiers");
    page.wait_for("!at('experts').hidden && at('state').className === 'up'");
    assert_eq!((page.value(USES), page.value(COPIES)), (json!(0), json!(0)));
    assert_eq!(page.value("at('model').textContent"), "tiny-moe-Q4_K");

    // The grid moves while a client generates.
    page.wait_for("at('grid').width > 0");
    let drawn = page.value("at('grid').toDataURL()");
    generate(&server);
    let pairs = LearnFile::parse(server.get("/moe-layer-perf").text.as_bytes()).unwrap().pairs();
    page.wait_for(&format!("{USES} === {pairs}"));
    page.wait_for(&format!("at('grid').toDataURL() !== {drawn}"));

    // What is saved loads again.
    page.click("#save");
    page.wait_for("at('done').textContent.endsWith('.learned.json saved')");
    let file = downloads.path().join("tiny-moe-Q4_K.learned.json");
    server.wait_for(|_| file.exists());
    let saved = fs::read(&file).unwrap();
    assert_eq!(LearnFile::parse(&saved).unwrap().pairs(), pairs);

    // Apply changes where experts are.
    page.click("#apply");
    page.wait_for("at('done').textContent.includes(' experts copied in 6 layers')");
    page.wait_for(&format!("{COPIES} > 0"));
    assert_eq!(page.value(COPIES), server.metric("terrace_hot_filled_total") as u64);
    let again = server.post_bytes("/moe-hot-cache", &saved).ok();
    assert_eq!((&again["success"], &again["exchanged"]), (&json!(true), &json!(0)), "{again}");
    // Without --learn-dir nothing is saved, and the page says why.
    page.click("#apply-save");
    page.wait_for("at('done').className === 'error' && at('done').textContent.includes('--learn-dir')");

    // The layers' times appear once both sides have computed.
    page.wait_for("modules.metrics.before !== null");
    let begin = Instant::now();
    while page.value("!at('lanes-figure').hidden && modules.lanes.times.some((layer) => layer.device > 0)")
        != true
    {
        assert!(begin.elapsed() < TEST_TIMEOUT, "no times of devices: {:?}", page.errors);
        generate(&server);
    }

    // A switched mode holds.
    page.value("at('mode').value = 'off'; at('mode').dispatchEvent(new Event('change'))");
    page.wait_for("at('done').textContent === 'nothing is reported, and nothing exchanged'");
    assert_eq!(server.get("/moe-layer-perf").ok()["mode"], "off");
    page.wait_for("modules.experts.last.mode === 'off' && at('mode').value === 'off'");
    page.value("at('mode').value = 'full'; at('mode').dispatchEvent(new Event('change'))");
    page.wait_for("modules.experts.last.mode === 'full' && at('mode').value === 'full'");

    // The plan, and a reload of nothing.
    page.click("#plan summary");
    page.wait_for("at('plan-layers').rows.length > 0");
    let plan = page.value("at('plan-facts').textContent");
    assert!(plan.as_str().unwrap().contains("RPC0"), "{plan}");
    page.click("#reload");
    page.wait_for("at('reloaded').textContent === 'nothing has changed in the model’s files'");

    // Keys alone reach and use everything.
    let mut left: Vec<&str> =
        "show-list show-help show-tiers new export import talk text attach show-settings send grid mode reset save apply apply-save reload"
            .split(' ')
            .collect();
    page.value("at('text').focus()");
    page.write("hello");
    page.value("document.body.tabIndex = -1; document.body.focus()");
    for _ in 0..40 {
        page.press("Tab", 9);
        let reached = page.value("document.activeElement.id");
        left.retain(|id| reached != *id);
    }
    assert!(left.is_empty(), "not reached: {left:?}");
    page.value("at('grid').focus()");
    page.press("ArrowRight", 39);
    page.press("ArrowDown", 40);
    page.wait_for("at('readout').textContent.startsWith('layer 1, expert 1: ')");
    page.value("at('reset').focus()");
    page.press("Enter", 13);
    page.wait_for("at('done').textContent === 'a new window starts now'");

    check_sizes(&mut page);
    // Narrow, the server covers the chat.
    page.show(390, 844, true);
    page.click("#show-tiers");
    page.wait_for("inView('#show-tiers') && at('tiers').getBoundingClientRect().width === 390");
    check_sizes(&mut page);
    // It finds the server again that went away.
    drop(server);
    page.wait_for("at('state').className === 'lost'");
    assert_eq!(page.errors, Vec::<String>::new());
}
