//! Pictures that go with a message.

use super::Page;
use crate::common::bundled;
use crate::server::Server;
use serde_json::json;
use terrace_testkit::{Arch, ProjectorKind, ProjectorSpec, Spec, write_projector};

/// Puts a small picture into the box for files.
const CHOOSE: &str = "(async () => {
    const canvas = new OffscreenCanvas(20, 10);
    canvas.getContext('2d').fillRect(0, 0, 9, 9);
    const files = new DataTransfer();
    files.items.add(new File([await canvas.convertToBlob()], 'a.png', { type: 'image/png' }));
    at('file').files = files.files;
    at('file').dispatchEvent(new Event('change'));
})()";

#[test]
fn pictures_are_sent_and_shown_where_the_model_reads_them() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let spec = Spec::new(Arch::Llama);
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    let projector = ProjectorSpec { kind: ProjectorKind::Mlp, width: u64::from(spec.embd), seed: 1 };
    let projector = write_projector(&projector, dir.path().join("mmproj.gguf")).unwrap();
    let server = Server::start(&model, ["--ctx", "512", "--mmproj", projector.to_str().unwrap()]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.browser.wait_for("modules.server.server.props?.modalities?.vision");
    for _ in 0..2 {
        page.browser.value(CHOOSE);
    }
    page.browser.wait_for("at('pictures').querySelectorAll('img').length === 2");
    page.browser.click("#pictures button");
    page.browser.wait_for("at('pictures').querySelectorAll('img').length === 1");
    page.scripted();
    let sent = page.ask_scripted("what is it?");
    let parts = &sent["messages"][0]["content"];
    assert_eq!(parts[1], json!({"type": "text", "text": "what is it?"}));
    let url = parts[0]["image_url"]["url"].as_str().unwrap();
    assert!(url.starts_with("data:image/png;base64,"), "{url}");
    assert_eq!(page.browser.value("at('pictures').hidden"), true);
    page.browser.wait_for("document.querySelector('.turn.user .pictures img').naturalWidth === 20");
    page.answer_scripted("A picture.");
    // What follows tells the model of it again.
    let sent = page.ask_scripted("and now?");
    assert_eq!(sent["messages"][0]["content"][0]["image_url"]["url"], json!(url));
    assert_eq!(sent["messages"][2]["content"], "and now?");
    page.answer_scripted("Still.");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn a_picture_that_the_model_cannot_read_is_refused_and_told() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.browser.wait_for("at('state').className === 'up' && modules.server.server.props");
    page.browser.value(CHOOSE);
    page.browser.wait_for("textOf('.notice.error p') === 'This model does not accept images.'");
    assert_eq!(page.browser.value("at('pictures').hidden && at('send').disabled"), true);
}
