//! Keys, and what they open: the parts beside the chat, the list of keys.

use super::{check_sizes, scripted_page};

#[test]
fn keys_are_listed_and_work() {
    let Some((_server, mut page)) = scripted_page(1100) else { return };
    // In a text it is a letter.
    page.browser.value("at('text').focus()");
    page.browser.press("?", 191);
    assert_eq!(page.browser.value("at('help').open"), false);
    page.browser.value("at('talk').focus()");
    page.browser.press("?", 191);
    page.browser.wait_for("at('help').open && inView('#shortcuts')");
    let listed = page.browser.value("at('shortcuts').querySelectorAll('dt').length");
    assert!(listed.as_u64().unwrap() >= 12, "{listed}");
    for (width, dark) in [(390, true), (1920, false), (1100, false)] {
        page.browser.show(width, 800, dark);
        page.browser.wait_for("inView('#shortcuts')");
    }
    page.browser.press("Escape", 27);
    page.browser.wait_for("!at('help').open");

    page.browser.value("at('text').focus()");
    page.browser.press_alt("KeyP", 80);
    page.browser.wait_for("!at('tiers').hidden && at('list').hidden && at('slots').rows.length > 0");
    page.browser.press_alt("KeyP", 80);
    page.browser.wait_for("at('tiers').hidden && !at('list').hidden");
    page.browser.press_alt("KeyL", 76);
    page.browser.wait_for("at('list').hidden");
    page.browser.press_alt("KeyK", 75);
    page.browser.wait_for("!at('list').hidden && document.activeElement === at('new')");
    page.browser.press_alt("KeyM", 77);
    page.browser.wait_for("document.activeElement === at('text')");
    page.browser.press_alt("KeyS", 83);
    page.browser.wait_for("at('settings').open");
    // Where a dialog is open, the keys belong to it.
    page.browser.press_alt("KeyL", 76);
    assert_eq!(page.browser.value("at('list').hidden"), false);
    page.browser.press("Escape", 27);
    page.browser.wait_for("!at('settings').open");

    for text in ["one", "two"] {
        page.browser.press_alt("KeyN", 78);
        page.browser.wait_for("!document.querySelector('.turn') && document.activeElement === at('text')");
        page.ask_scripted(text);
        page.answer_scripted("Yes.");
    }
    page.browser.press_alt("ArrowDown", 40);
    page.browser.wait_for("textOf('.bubble') === 'one'");
    page.browser.press_alt("ArrowUp", 38);
    page.browser.wait_for("textOf('.bubble') === 'two'");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn the_list_is_a_sidebar_and_the_server_waits_until_it_is_asked_for() {
    let Some((_server, mut page)) = scripted_page(1023) else { return };
    for (width, list) in [(1024, true), (1023, false), (1920, true), (390, false)] {
        page.browser.show(width, 800, false);
        page.browser.wait_for(&format!("at('list').hidden === {} && at('tiers').hidden", !list));
    }
    // On a wide page both are beside the chat; on a narrower one the list makes way, and comes back.
    page.browser.show(1920, 800, false);
    page.browser.click("#show-tiers");
    page.browser.wait_for("!at('list').hidden && !at('tiers').hidden");
    page.browser.show(1100, 800, false);
    page.browser.wait_for("at('list').hidden && !at('tiers').hidden");
    page.browser.click("#show-tiers");
    page.browser.wait_for("!at('list').hidden && at('tiers').hidden");

    // One number for the speed: that below the last answer.
    assert_eq!(page.browser.value("at('speed').hidden"), true);
    page.ask_scripted("go");
    page.browser.value("(async () => { for (let piece = 0; piece < 5; piece++) { say('word '); await new Promise((next) => setTimeout(next, 40)); } finish(); })()");
    page.wait_for_end();
    page.browser.wait_for("/ tokens\\/s$/.test(textOf('#speed')) && lastTurn().querySelector('.told summary').textContent.includes(textOf('#speed'))");
    check_sizes(&mut page.browser);
}
