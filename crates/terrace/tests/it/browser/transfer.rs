//! All conversations in a file and back; presets of system prompts.

use super::{Page, scripted_page};
use serde_json::{Value, json};
use std::fs;

fn import(page: &mut Page, text: &str, told: &str) {
    page.browser.value(&format!("chooseFile('import-file', 'all.json', {})", json!(text)));
    page.browser.wait_for(&format!("textOf('.notice p') === {}", json!(told)));
}

#[test]
fn conversations_and_presets_are_saved_and_brought_back() {
    let Some((server, mut page)) = scripted_page(1100) else { return };
    page.browser.value("at('show-settings').click(); at('system').focus()");
    page.browser.write("Be kind.");
    page.browser.value("at('preset-name').focus()");
    page.browser.write("Kind");
    page.browser.press("Enter", 13);
    page.browser.wait_for("textOf('#settings-done') === 'Preset saved.' && at('settings').open && at('preset').value === 'Kind'");
    page.browser.press("Escape", 27);
    page.browser.value("dropFile('a.txt', 'abc')");
    page.browser.wait_for("/tokens?$/.test(textOf('#files .file'))");
    page.ask_scripted("first");
    page.answer_scripted("$x^2$ **bold**");
    page.browser.click("#export");
    let downloads = page.downloads.path().to_owned();
    let saved = || {
        fs::read_dir(&downloads)
            .unwrap()
            .flatten()
            .map(|file| file.path())
            .find(|path| path.extension().is_some_and(|end| end == "json"))
    };
    server.wait_for(|_| saved().is_some());
    let text = fs::read_to_string(saved().unwrap()).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&all["format"], &all["presets"][0]["name"]),
        (&json!("terrace-conversations"), &json!("Kind"))
    );
    import(&mut page, &text, "0 conversations imported, 1 already here.");

    // A browser that has none of it.
    page.browser.value("localStorage.clear(); sessionStorage.clear()");
    page.browser.click("#conversations li [aria-label^=Delete]");
    page.browser.wait_for("!document.querySelector('#conversations li')");
    page.browser.reload();
    page.browser.wait_for("at('state').className === 'up' && !document.querySelector('#conversations li')");
    import(&mut page, &text, "1 conversation imported.");
    page.browser.click("#conversations .open");
    page.browser.wait_for("textOf('.bubble') === 'first' && document.querySelector('.prose strong') && textOf('.turn.user .file .name') === 'a.txt'");
    page.browser.wait_for("textOf('#chosen') === 'system prompt'");
    page.browser.reload();
    page.browser.wait_for("textOf('.bubble') === 'first'");

    // A preset fills the box, and one's own can be deleted.
    page.browser.click("#new");
    page.browser.value("at('show-settings').click(); at('preset').value = 'Kind'; at('preset').dispatchEvent(new Event('change'))");
    assert_eq!(page.browser.value("at('system').value"), "Be kind.");
    page.browser.click("#preset-delete");
    page.browser.wait_for("![...at('preset').options].some((option) => option.value === 'Kind')");
    page.browser.value("at('preset').value = 'Brief'; at('preset').dispatchEvent(new Event('change'))");
    assert_eq!(
        page.browser.value("at('system').value.startsWith('Answer briefly') && at('preset-delete').disabled"),
        true
    );
    page.browser.press("Escape", 27);
    page.browser.value("script()");
    let sent = page.ask_scripted("hi");
    assert_eq!(sent["messages"][0]["role"], "system");
    page.answer_scripted("Hi.");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn a_file_of_anyone_cannot_break_the_page() {
    let Some((_server, mut page)) = scripted_page(1100) else { return };
    import(&mut page, "{", "“all.json” cannot be imported: it is not JSON.");
    import(
        &mut page,
        "{\"conversations\": []}",
        "“all.json” cannot be imported: it has no conversations of this page.",
    );
    let node =
        |id: &str, parent: Value| json!({"id": id, "parent": parent, "role": "user", "text": "<b>a</b>"});
    let circle = json!({"id": "circle", "nodes": {"a": node("a", json!("b")), "b": node("b", json!("a"))}, "leaf": "a"});
    let strange = json!({
        "id": "strange", "title": {"a": 1}, "created": "now", "settings": {"tools": "{", "temperature": [1], "system": "S"}, "leaf": "n2",
        "nodes": {
            "n1": {"parent": null, "role": "user", "text": "hello", "pictures": ["https://example.com/x.png"], "files": [{"name": 1}]},
            "n2": {"parent": "n1", "role": "assistant", "text": "<img src=x onerror=hacked=1>", "calls": 7, "state": "running",
                "facts": {"usage": {"prompt_tokens": "many"}, "terrace": {"experts": {}, "timings": {"decode_tps": "fast"}}, "pieces": 3}},
        },
    });
    let orphan = json!({"id": "orphan", "nodes": {"a": node("a", json!("nobody"))}, "leaf": "a"});
    let all = json!({"format": "terrace-conversations", "version": 1, "presets": [null, {"name": 1}], "conversations": [circle, strange, orphan, null, 5]});
    import(&mut page, &all.to_string(), "1 conversation imported, 4 could not be read.");
    page.browser.click("#conversations .open");
    page.browser
        .wait_for("lastTurn()?.querySelector('.prose').textContent === '<img src=x onerror=hacked=1>'");
    assert_eq!(page.browser.value("document.querySelectorAll('.turn img').length"), 0);
    let sent = page.ask_scripted("next");
    assert_eq!(sent["tools"], Value::Null);
    assert_eq!(sent["messages"].as_array().unwrap().len(), 4);
    page.answer_scripted("Yes.");
    let later = json!({"format": "terrace-conversations", "version": 2, "conversations": []});
    import(
        &mut page,
        &later.to_string(),
        "“all.json” cannot be imported: it was saved by a later version of this page.",
    );
    assert_eq!(page.browser.errors, Vec::<String>::new());
}
