//! A conversation that fills its context.

use super::Page;
use crate::common::bundled;
use crate::server::Server;
use serde_json::json;

/// Answers, as a server that counts these tokens.
fn answer(page: &mut Page, text: &str, prompt: u32, tokens: u32) {
    page.browser.value(&format!(
        "say({}); feed({{}}, {{ usage: {{ prompt_tokens: {prompt}, completion_tokens: {tokens} }} }}); finish()",
        json!(text)
    ));
    page.wait_for_end();
}

fn full() -> Option<(Server, Page)> {
    let server = Server::start(&bundled(), ["--ctx", "1024"]);
    let mut page = Page::open(&server, 1100, 800)?;
    page.browser.wait_for("modules.server.server.props");
    page.scripted();
    page.ask_scripted("first");
    answer(&mut page, &"word ".repeat(400), 10, 500);
    assert_eq!(page.browser.value("at('filling').hidden"), true);
    page.ask_scripted("second");
    answer(&mut page, &"more ".repeat(200), 520, 300);
    let said =
        "textOf('#filling p') === 'This conversation takes about 820 tokens, 80 % of the context (1,024).'";
    page.browser.wait_for(said);
    Some((server, page))
}

#[test]
fn a_filling_context_is_told_and_shortened() {
    let Some((_server, mut page)) = full() else { return };
    assert_eq!(page.browser.value("inView('#filling button')"), true);
    page.browser.click("#filling button");
    page.browser.wait_for("at('filling').hidden && inView('.cut:not([hidden])')");
    assert_eq!(page.browser.value("document.querySelectorAll('.turn.unsent').length"), 2);
    let sent = page.ask_scripted("third");
    let texts = sent["messages"].as_array().unwrap();
    assert_eq!((texts.len(), &texts[0]["content"]), (3, &json!("second")));
    answer(&mut page, "Yes.", 330, 3);
    // It stays so after a reload, and is undone.
    page.browser.reload();
    page.browser.wait_for("document.querySelectorAll('.turn.unsent').length === 2");
    page.browser.value("script()");
    page.browser.click(".cut:not([hidden]) button");
    page.browser.wait_for("!document.querySelector('.turn.unsent, .cut:not([hidden])')");
    assert_eq!(page.ask_scripted("fourth")["messages"].as_array().unwrap().len(), 7);
    answer(&mut page, "Yes.", 900, 3);
    page.browser.wait_for("!at('filling').hidden");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn a_new_chat_begins_with_a_summary_of_the_full_one() {
    let Some((_server, mut page)) = full() else { return };
    page.browser.value("window.sent = null");
    page.browser.click("#filling button:last-child");
    page.browser.wait_for("sent !== null");
    let told = page.browser.value("sent.messages.map(({ role, content }) => [role, content.slice(0, 6)])");
    // As much as leaves room for the summary.
    assert_eq!(told, json!([["user", "second"], ["assistant", "more m"], ["user", "Summar"]]));
    answer(&mut page, "We spoke of words.", 400, 6);
    page.browser.wait_for("document.querySelectorAll('#conversations li').length === 2 && document.querySelectorAll('.turn').length === 2");
    let sent = page.ask_scripted("go on");
    let texts = sent["messages"].as_array().unwrap();
    assert_eq!((texts.len(), &texts[1]["content"]), (3, &json!("We spoke of words.")));
    answer(&mut page, "Yes.", 60, 3);
    assert_eq!(page.browser.value("at('filling').hidden"), true);
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn a_server_that_says_that_nothing_more_fits_leads_to_the_same_offers() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.browser.wait_for("modules.server.server.props");
    page.ask(&"In the beginning there was a king. ".repeat(100));
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('.problem p').textContent.includes('context')");
    page.browser.wait_for("!at('filling').hidden && inView('#filling p')");
    // There is nothing to leave out.
    assert_eq!(page.browser.value("document.querySelector('#filling button').disabled"), true);
}
