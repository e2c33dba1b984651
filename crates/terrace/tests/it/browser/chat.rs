//! A conversation with the model on the page.

use super::Page;
use crate::common::bundled;
use crate::server::Server;
use serde_json::json;

/// Text that would do harm as HTML, and one of each element of Markdown.
const MARKDOWN: &str = r#"# Title

**bold** *italic* ~~gone~~ `a < b &amp; c` &amp; &lt;i&gt; <b>not bold</b>

<script>window.hacked = 1</script>

<img src=x onerror="window.hacked = 2">

```js" onclick="window.hacked = 3
if (a < b && c) alert("&lt;");
```

1. one
   - two

- [x] done

| a | b |
|--:|---|
| 1 | <svg onload="window.hacked = 4"> |

> quote

[good](https://example.com/?a=1&b=2) [bad](javascript:window.hacked=5) [worse](data:text/html,x) ![picture](https://example.com/x.png)

\(a_1 + b_2\)
"#;

#[test]
fn answers_are_markdown_and_never_html() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.scripted();
    page.ask_scripted("<b>hello</b>\n# no title");
    // Any piece may end within a mark.
    page.browser.value(&format!(
        "(async () => {{ for (const letter of {}) {{ say(letter); await new Promise((next) => setTimeout(next)); }} finish(); }})()",
        json!(MARKDOWN)
    ));
    page.wait_for_end();
    let page = &mut page.browser;
    page.wait_for("document.querySelector('.prose .math .katex')");
    assert_eq!(page.value("textOf('.bubble')"), "<b>hello</b>\n# no title");
    for (selector, text) in [
        (".prose h3", "Title"),
        (".prose strong", "bold"),
        (".prose em", "italic"),
        (".prose del", "gone"),
        (".prose p code", "a < b &amp; c"),
        (".prose .code code", "if (a < b && c) alert(\"&lt;\");"),
        (".prose ol > li > ul > li", "two"),
        (".prose blockquote", "quote"),
        (".prose td:last-child", "<svg onload=\"window.hacked = 4\">"),
        (".prose .math annotation", "a_1 + b_2"),
    ] {
        assert_eq!(page.value(&format!("textOf('{selector}')")), text, "{selector}");
    }
    let shown = page.value("textOf('.prose')");
    for part in ["& <i> <b>not bold</b>", "<script>window.hacked = 1</script>", "<img src=x onerror="] {
        assert!(shown.as_str().unwrap().contains(part), "{part}: {shown}");
    }
    let elements =
        "document.querySelectorAll('.prose :is(script, img, svg:not(.icon), b, i, iframe, style)').length";
    assert_eq!(page.value(elements), 0);
    assert_eq!(page.value("[...document.querySelectorAll('.prose *')].some((element) => element.getAttributeNames().some((name) => name.startsWith('on')))"), false);
    let links = page.value("[...document.querySelectorAll('.prose a')].map((link) => link.href)");
    assert_eq!(links, json!(["https://example.com/?a=1&b=2", "https://example.com/x.png"]));
    assert_eq!(page.value("window.hacked ?? null"), json!(null));
    // Copied is the code, and nothing else.
    page.value("Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })");
    page.click(".prose .code button");
    page.wait_for("window.copied === 'if (a < b && c) alert(\"&lt;\");'");
    page.wait_for("document.querySelector('.prose .code button').title === 'Copied'");
    page.click(".turn.assistant .actions button");
    page.wait_for(&format!("window.copied === {}", json!(MARKDOWN)));
    assert_eq!(page.errors, Vec::<String>::new());
}

#[test]
fn thoughts_are_folded_and_tools_are_answered() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.scripted();
    page.ask_scripted("weather?");
    page.browser.value("feed({ reasoning_content: 'I need ' }); feed({ reasoning_content: 'a tool.' })");
    page.browser
        .wait_for("textOf('.thoughts summary') === 'Thinking…' && !document.querySelector('.thoughts').open");
    page.browser.value(
        "feed({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '' } }] }); \
         feed({ tool_calls: [{ index: 0, function: { arguments: '{\"city\":' } }] }); \
         feed({ tool_calls: [{ index: 0, function: { arguments: '\"Paris\"}' } }] }); finish('tool_calls')",
    );
    page.wait_for_end();
    page.browser.wait_for("textOf('.thoughts summary').startsWith('Thought for ') && textOf('.thoughts-text') === 'I need a tool.'");
    assert_eq!(
        page.browser.value("textOf('.call-head code') + JSON.parse(textOf('.call pre')).city"),
        "get_weatherParis"
    );
    assert_eq!(page.browser.value("textOf('.told summary').includes('called a tool')"), true);
    page.browser.value("document.querySelector('.call textarea').focus()");
    page.browser.write("22 degrees");
    page.browser.value("window.sent = null");
    page.browser.click(".calls .primary");
    page.browser.wait_for("window.sent !== null");
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}});
    let told = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "I need a tool."},
        {"role": "tool", "tool_call_id": "call_1", "content": "22 degrees"},
    ]);
    assert_eq!(page.browser.value("sent.messages"), told);
    // Marks of thoughts that the server has left in the text, in pieces.
    page.browser.value(
        "say('<thi'); say('nk>So it is'); say(' warm.</thi'); say('nk>\\n\\nIt is **22**.'); finish()",
    );
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('.prose').textContent === 'It is 22.'");
    assert_eq!(
        page.browser.value("lastTurn().querySelector('.thoughts-text').textContent"),
        "So it is warm."
    );
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn questions_are_edited_and_answers_asked_for_again() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1920, 1080) else { return };
    page.scripted();
    page.ask_scripted("one");
    page.answer_scripted("first");
    page.browser.value("window.sent = null");
    page.browser.click(".turn.assistant [aria-label=\"Answer again\"]");
    page.browser.wait_for("window.sent !== null");
    assert_eq!(page.browser.value("sent.messages"), json!([{"role": "user", "content": "one"}]));
    page.answer_scripted("second");
    page.browser.wait_for("lastTurn().querySelector('.prose').textContent === 'second'");
    assert_eq!(page.browser.value("lastTurn().querySelector('.branch').textContent"), "2 of 2");
    page.browser.click(".turn.assistant [aria-label=\"Previous version\"]");
    page.browser.wait_for("lastTurn().querySelector('.prose').textContent === 'first'");

    // The arrow up edits the last question; what follows it is another branch.
    page.browser.value("at('text').focus()");
    page.browser.press("ArrowUp", 38);
    page.browser.wait_for("document.activeElement.matches('.turn.user textarea')");
    page.browser.write(" plus");
    page.browser.value("window.sent = null");
    page.browser.press("Enter", 13);
    page.browser.wait_for("window.sent !== null");
    let edited = page.browser.value("sent.messages");
    assert_eq!(
        (edited.as_array().unwrap().len(), edited[0]["content"].as_str().unwrap().len()),
        (1, 8),
        "{edited}"
    );
    page.answer_scripted("third");
    page.browser.wait_for("document.querySelector('.turn.user .branch').textContent === '2 of 2'");

    // All of it is there again after a reload, in another branch or not.
    page.browser.reload();
    page.browser.wait_for("lastTurn()?.querySelector('.prose')?.textContent === 'third'");
    page.browser.click(".turn.user [aria-label=\"Previous version\"]");
    page.browser.wait_for("document.querySelector('.turn.user .bubble').textContent === 'one'");

    // Names, and what was deleted by mistake.
    page.browser.click("#conversations li [aria-label^=Rename]");
    page.browser.wait_for("document.activeElement.matches('#conversations input')");
    page.browser.write("Mine");
    page.browser.press("Enter", 13);
    page.browser.wait_for("textOf('#conversations .name') === 'Mine'");
    page.browser.click("#conversations li [aria-label^=Delete]");
    page.browser.wait_for("!document.querySelector('#conversations li') && !lastTurn()");
    page.browser.click(".notice button");
    page.browser.wait_for("textOf('#conversations .name') === 'Mine' && lastTurn()");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn settings_are_sent_and_kept() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.scripted();
    // By keys alone.
    page.browser.value("at('show-settings').focus()");
    page.browser.press("Enter", 13);
    page.browser.wait_for("at('settings').open");
    for (id, text) in [
        ("system", "Be brief."),
        ("set-temperature", "0.5"),
        ("set-max_tokens", "7"),
        ("stops", "END\n\\n\\n"),
    ] {
        page.browser.value(&format!("at('{id}').focus()"));
        page.browser.write(text);
    }
    assert_eq!(page.browser.value("at('set-top_k').placeholder"), "40");
    page.browser.value("at('set-top_p').focus()");
    page.browser.write("2");
    page.browser.wait_for("at('set-top_p').getAttribute('aria-invalid') === 'true'");
    page.browser.click("#settings-keep");
    page.browser.press("Escape", 27);
    page.browser.wait_for("!at('settings').open && document.activeElement === at('show-settings')");
    page.browser.wait_for("textOf('#chosen') === 'system prompt, temperature 0.5, 2 more'");
    let sent = page.ask_scripted("hi");
    let expected = json!({
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5, "max_tokens": 7, "stop": ["END", "\n\n"],
    });
    assert_eq!(sent, expected);
    page.browser.value("finish()");
    page.wait_for_end();
    page.browser.wait_for("lastTurn().textContent.includes('The answer is empty.')");
    // New chats begin like this one.
    page.browser.reload();
    page.browser.click("#new");
    page.browser.wait_for("!lastTurn() && textOf('#chosen').startsWith('system prompt')");
}

#[test]
fn the_model_answers_and_is_stopped_by_keys_alone() {
    let server = Server::start(&bundled(), ["--ctx", "16384"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.browser.wait_for("at('state').className === 'up'");
    page.browser.wait_for("document.activeElement === at('text')");
    page.browser.write("In the");
    page.browser.press_shift_enter();
    page.browser.write("beginning");
    assert_eq!(page.browser.value("at('text').value"), "In the\nbeginning");
    page.browser.press("Enter", 13);
    page.browser.wait_for("lastTurn().classList.contains('running') && lastTurn().querySelector('.prose').textContent.length > 20");
    page.browser.wait_for("/tokens? · .* tokens\\/s/.test(textOf('.turn.running .told summary'))");
    page.browser.press("Escape", 27);
    page.wait_for_end();
    server.wait_for(|server| server.processing() == 0);
    assert_eq!(
        page.browser.value("lastTurn().querySelector('.told summary').textContent.includes('stopped')"),
        true
    );

    // A short one, with the server's numbers.
    page.browser.value("at('show-settings').click(); at('set-max_tokens').focus()");
    page.browser.write("5");
    page.browser.press("Escape", 27);
    page.ask("more");
    page.wait_for_end();
    let told = page.browser.value("lastTurn().querySelector('.told summary').textContent");
    let told = told.as_str().unwrap();
    assert!(told.starts_with("5 tokens · ") && told.contains(" tokens/s · ended by the limit"), "{told}");
    page.browser.value("lastTurn().querySelector('.told').open = true");
    page.browser.wait_for("/first token/.test(lastTurn().querySelector('.facts').textContent)");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn a_server_that_is_killed_while_it_answers_is_told_and_comes_back() {
    let args = ["--ctx", "16384"];
    let server = Server::start(&bundled(), args);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    page.browser.wait_for("at('state').className === 'up'");
    page.ask("In the beginning");
    page.browser.wait_for("lastTurn().querySelector('.prose').textContent.length > 20");
    server.signal("-KILL");
    drop(server);
    page.wait_for_end();
    let problem = "lastTurn().querySelector('.problem p').textContent";
    page.browser
        .wait_for(&format!("{problem} === 'The connection closed before the response was complete.'"));
    page.browser.wait_for("inView('.turn:last-child .problem') && at('state').className === 'lost'");
    // What came is still there, and what is asked meanwhile fails at once.
    let came = page.browser.value("lastTurn().querySelector('.prose').textContent");
    assert!(came.as_str().unwrap().len() > 20);
    page.ask("Are you there?");
    page.wait_for_end();
    page.browser.wait_for(&format!("{problem} === 'The server cannot be reached.'"));

    let _server = Server::start_at(&port, &bundled(), args);
    page.browser.wait_for("at('state').className === 'up'");
    page.browser.click(".turn:last-child .problem button");
    page.browser.wait_for("lastTurn().classList.contains('running') && lastTurn().querySelector('.prose').textContent.length > 20");
    page.browser.press("Escape", 27);
    page.browser.value("at('text').focus()");
    page.browser.press("Escape", 27);
    page.wait_for_end();
}
