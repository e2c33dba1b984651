//! What was wrong with the page once, and must not be again.

use super::{Page, check_sizes};
use crate::common::bundled;
use crate::server::Server;
use serde_json::json;

const SMALL: [&str; 2] = ["--ctx", "256"];

fn open(width: u32, height: u32) -> Option<(Server, Page)> {
    let server = Server::start(&bundled(), SMALL);
    let page = Page::open(&server, width, height)?;
    Some((server, page))
}

#[test]
fn the_key_box_keeps_its_focus_while_the_server_is_asked() {
    let server = Server::start(&bundled(), SMALL.iter().chain(&["--api-key", "secret"]));
    let Some(Page { browser: mut page, .. }) = Page::open(&server, 1100, 800) else { return };
    page.wait_for("at('login').open && document.activeElement === at('key')");
    page.write("sec");
    for _ in 0..2 {
        let seen = page.value("modules.server.server.seen");
        page.wait_for(&format!("modules.server.server.seen > {seen}"));
    }
    assert_eq!(page.value("document.activeElement.id + at('key').value"), "keysec");
    // A wrong key is told, and can be mended at once.
    page.press("Enter", 13);
    page.wait_for("at('login-error').textContent === 'This key is not accepted.'");
    page.write("secret");
    page.press("Enter", 13);
    page.wait_for("!at('login').open && at('state').className === 'up'");
    page.click("#show-tiers");
    page.wait_for("at('slots').rows.length > 0");
    // A tab that is loaded again has it still.
    page.reload();
    page.wait_for("at('state').className === 'up' && !at('login').open");
}

#[test]
fn an_answer_goes_on_in_its_conversation_while_another_one_is_begun() {
    let Some((_server, mut page)) = open(1920, 1080) else { return };
    page.scripted();
    page.ask_scripted("first question");
    page.browser.value("say('Hello')");
    page.browser.wait_for("textOf('.turn.assistant .prose') === 'Hello'");
    page.browser.click("#new");
    page.browser.wait_for("!document.querySelector('.turn') && document.querySelector('.welcome')");
    assert_eq!(page.browser.value("at('stop').hidden && document.activeElement === at('text')"), true);
    page.browser.wait_for("document.querySelector('#conversations li.running')");
    page.browser.value("say(' world'); finish()");
    page.browser.wait_for("!document.querySelector('#conversations li.running')");
    // Nothing of it is in the new one.
    let sent = page.ask_scripted("second question");
    assert_eq!(sent["messages"], json!([{"role": "user", "content": "second question"}]));
    page.answer_scripted("Yes.");
    page.browser.wait_for("document.querySelectorAll('#conversations li').length === 2");
    page.browser.click("#conversations li:nth-child(2) .open");
    page.browser.wait_for("textOf('.turn.assistant .prose') === 'Hello world'");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn failed_turns_are_told_in_view_and_not_to_the_model() {
    let Some((_server, mut page)) = open(1100, 800) else { return };
    page.scripted();
    page.ask_scripted("good");
    page.browser.value("say('Fine. '.repeat(2000)); finish()");
    page.wait_for_end();
    page.ask_scripted("bad");
    page.browser.value("refuse('the disk has failed')");
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('.problem p').textContent === 'The disk has failed.'");
    page.browser.wait_for("inView('.turn:last-child .problem') && inView('#text')");
    let sent = page.ask_scripted("next");
    let told: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|turn| turn["role"].clone()).collect();
    assert_eq!(told, ["user", "assistant", "user"], "{sent}");
    assert_eq!(sent["messages"][2]["content"], "next");
    page.browser.wait_for(
        "[...document.querySelectorAll('.turn.user .note')].filter((note) => !note.hidden).length === 1",
    );
    // Who reads further up is told as well, and can try again from there.
    page.browser.value("say('More. '.repeat(500))");
    page.browser.wait_for("lastTurn().textContent.includes('More.')");
    page.browser.wheel("#talk", -2000);
    page.browser.wait_for("!at('to-end').hidden");
    page.browser.value("refuse('it has failed again')");
    page.browser.wait_for("inView('.notice.error') && textOf('.notice p') === 'It has failed again.'");
    page.browser.value("window.sent = null");
    page.browser.click(".notice.error button");
    page.browser.wait_for("sent?.messages.at(-1).content === 'next'");
    page.answer_scripted("Done.");
    assert_eq!(page.browser.value("lastTurn().querySelector('.prose').textContent"), "Done.");
    // What was cut off can be seen next to what came instead.
    assert_eq!(page.browser.value("lastTurn().querySelector('.branch').textContent"), "2 of 2");
}

#[test]
fn the_box_and_stop_are_in_view_at_all_sizes() {
    let Some((_server, mut page)) = open(1100, 800) else { return };
    page.scripted();
    page.ask_scripted("go on");
    page.browser.value("say('A word and another. '.repeat(3000))");
    page.browser.wait_for("lastTurn().textContent.length > 50000");
    for (width, height) in [(1100, 800), (1100, 600), (390, 844), (390, 500), (1920, 1080)] {
        page.browser.show(width, height, false);
        page.browser.wait_for("inView('#text') && inView('#stop') && inView('#show-settings')");
    }
    page.browser.click("#stop");
    page.wait_for_end();
    page.browser
        .wait_for("inView('#send') && lastTurn().querySelector('.told').textContent.includes('stopped')");
}

#[test]
fn the_text_does_not_move_under_who_reads() {
    let Some((_server, mut page)) = open(1100, 800) else { return };
    page.scripted();
    page.ask_scripted("go on");
    page.browser.value("say('One line.\\n\\n'.repeat(200))");
    let at_end = "at('talk').scrollTop + at('talk').clientHeight >= at('talk').scrollHeight - 24";
    page.browser.wait_for(&format!("lastTurn().textContent.length > 1000 && {at_end}"));
    // Following: what comes is in view.
    page.browser.value("say('Two lines.\\n\\n'.repeat(50))");
    page.browser.wait_for(&format!("lastTurn().textContent.includes('Two') && {at_end}"));
    // Scrolled up: it stays.
    page.browser.wheel("#talk", -300);
    page.browser.wait_for("!at('to-end').hidden");
    let top = page.browser.value("new Promise((done) => { let last = -1; const look = () => { const top = at('talk').scrollTop; if (top === last) done(top); else { last = top; setTimeout(look, 100); } }; look(); })");
    page.browser.value("say('Three lines.\\n\\n'.repeat(50))");
    page.browser.wait_for("lastTurn().textContent.includes('Three')");
    assert_eq!(page.browser.value("at('talk').scrollTop"), top);
    page.browser.value("finish()");
    page.wait_for_end();
    assert_eq!(page.browser.value("at('talk').scrollTop"), top);
    assert_eq!(page.browser.value("scrollY"), 0);
    // And back to the end.
    page.browser.click("#to-end");
    page.browser.wait_for(&format!("at('to-end').hidden && {at_end}"));
}

#[test]
fn nothing_is_wider_than_the_page() {
    let Some((_server, mut page)) = open(390, 844) else { return };
    page.scripted();
    page.ask_scripted(&"x".repeat(300));
    let wide = "x".repeat(300);
    let text = format!(
        "{wide}\n\n```\n{wide}\n```\n\n| {wide} | b |\n|---|---|\n| c | `{wide}` |\n\n> - 1. {wide}\n\n\\[ {wide} \\]\n"
    );
    page.browser
        .value(&format!("feed({{ reasoning_content: '{wide}' }}); say({}); finish('length')", json!(text)));
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('table')");
    page.browser.value("for (const fold of document.querySelectorAll('details')) fold.open = true");
    check_sizes(&mut page.browser);
    page.browser.show(390, 844, false);
    page.browser.click("#show-list");
    page.browser.wait_for("inView('#new')");
    check_sizes(&mut page.browser);
}

#[test]
fn the_state_of_a_server_that_has_ended_is_not_shown_as_now() {
    let Some((server, Page { browser: mut page, downloads: _downloads })) = open(1920, 1080) else { return };
    page.click("#show-tiers");
    page.wait_for("at('state').className === 'up' && at('slots').rows.length > 0");
    page.wait_for("[...at('facts').querySelectorAll('dd')].some((value) => value.textContent === '0')");
    drop(server);
    page.wait_for(
        "at('state').className === 'lost' && textOf('#state-text') === 'the server cannot be reached'",
    );
    page.wait_for("at('ago').textContent.startsWith(', for ')");
    assert_eq!(page.value("at('slots').rows.length"), 0);
    assert_eq!(
        page.value("[...at('facts').querySelectorAll('dd')].every((value) => value.textContent === '–')"),
        true
    );
    assert_eq!(page.value("document.body.classList.contains('stale')"), true);
    assert_eq!(page.value("inView('#state')"), true);
}

#[test]
fn a_server_that_is_stopped_does_not_answer() {
    let Some((server, Page { browser: mut page, downloads: _downloads })) = open(1100, 800) else { return };
    page.wait_for("at('state').className === 'up'");
    page.click("#show-tiers");
    server.signal("-STOP");
    page.wait_for(
        "at('state').className === 'lost' && textOf('#state-text') === 'the server does not answer'",
    );
    server.signal("-CONT");
    page.wait_for("at('state').className === 'up' && at('slots').rows.length > 0");
}

#[test]
fn the_policy_allows_what_the_page_needs_and_no_more() {
    let Some((server, Page { browser: mut page, downloads: _downloads })) = open(1100, 800) else { return };
    page.value("(async () => { for (const link of document.querySelectorAll('link[rel=icon], header img')) { const icon = new Image(); icon.src = link.href || link.src; await icon.decode(); } })()");
    assert_eq!(page.errors, Vec::<String>::new());
    let policy = server.get("/").header("content-security-policy").to_owned();
    assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"), "{policy}");
    // No text becomes HTML or a script, even if one were to try.
    for refused in [
        "document.body.innerHTML = '<p>'",
        "document.createElement('script').text = '1'",
        "new DOMParser().parseFromString('<p>', 'text/html')",
    ] {
        let error = page.value(&format!(
            "(() => {{ try {{ {refused}; return ''; }} catch (error) {{ return error.name; }} }})()"
        ));
        assert_eq!(error, "TypeError", "{refused}");
    }
}
