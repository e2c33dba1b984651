//! Formulas, code in colours, footnotes.

use super::{Page, check_sizes, scripted_page};
use crate::server::Server;
use serde_json::{Value, json};

const TEXT: &str = r"# Sums[^sum]

Inline $x^2 + y_1$ and \(a_1 * b_2 * c\). It costs $5 and $6, $5-$6 or $20 million, $HOME/bin:$PATH; `$x^2$` and \$x\$ stay.
Broken: $\frac{1}$ and $\href{javascript:window.hacked=1}{a}$. No note: [^none].

$$\vec{v} = \int_0^\infty e^{-x^2}\,dx$$

- In a list \[ \sqrt{2} \]

[^sum]: A note with $e = mc^2$.

The end.
";

fn show(text: &str, width: u32) -> Option<(Server, Page)> {
    let (server, mut page) = scripted_page(width)?;
    page.ask_scripted("show");
    page.answer_scripted(text);
    Some((server, page))
}

/// The formulas that are set.
fn formulas(page: &mut Page) -> Value {
    page.browser
        .value("[...document.querySelectorAll('.math')].map((math) => math.dataset.tex ?? `as written: ${math.textContent}`)")
}

#[test]
fn formulas_are_set_and_prices_are_not() {
    let Some((_server, mut page)) = show(TEXT, 1100) else { return };
    page.browser.wait_for("document.querySelectorAll('.katex').length >= 5");
    let expected = json!([
        "x^2 + y_1",
        "a_1 * b_2 * c",
        r"as written: \frac{1}",
        r"\href{javascript:window.hacked=1}{a}",
        r"\vec{v} = \int_0^\infty e^{-x^2}\,dx",
        r"\sqrt{2}",
        "e = mc^2",
    ]);
    assert_eq!(formulas(&mut page), expected);
    let text = page.browser.value("document.querySelector('.prose p').textContent");
    for part in [
        "It costs $5 and $6, $5-$6 or $20 million, $HOME/bin:$PATH; $x^2$ and $x$ stay.",
        "No note: [^none].",
    ] {
        assert!(text.as_str().unwrap().contains(part), "{text}");
    }
    assert_eq!(page.browser.value("document.querySelectorAll('.prose .katex a').length"), 0);
    // They are read aloud, and drawn with the fonts of the page.
    assert_eq!(page.browser.value("document.querySelector('.katex math msup').textContent"), "x2");
    page.browser.wait_for(
        "[...document.fonts].some((font) => font.family.includes('KaTeX_Main') && font.status === 'loaded')",
    );
    // The arrow over the letter has its width, which the policy does not allow as an attribute.
    page.browser.wait_for("parseFloat(document.querySelector('.katex svg').style.width) > 0");
    check_sizes(&mut page.browser);
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn footnotes_lead_to_their_text_and_back() {
    let Some((_server, mut page)) = show(TEXT, 1100) else { return };
    page.browser.wait_for("document.querySelector('.footnote .katex')");
    assert_eq!(page.browser.value("textOf('.prose h3 sup')"), "1");
    page.browser.click(".prose sup a");
    page.browser.wait_for("document.activeElement === document.querySelector('.footnote a')");
    page.browser.click(".footnote a");
    page.browser.wait_for("document.activeElement === document.querySelector('.prose sup a')");
    assert_eq!(page.browser.value("lastTurn().querySelector('.prose').lastChild.textContent"), "The end.");
}

#[test]
fn code_is_coloured_and_stays_what_it_was() {
    let rust = "fn main() {\n    let x = \"<b>\"; // it's\n}";
    let text = format!(
        "```rust\n{rust}\n```\n\n```mermaid\ngraph TD\n  A --> B\n```\n\n```strange\nif x\n```\n\n```\nif x\n```\n"
    );
    let Some((_server, mut page)) = show(&text, 1100) else { return };
    page.browser.wait_for("document.querySelectorAll('.prose .hl-keyword').length >= 4");
    assert_eq!(page.browser.value("textOf('.prose .code code')"), rust);
    for (class, text) in [("keyword", "fn"), ("string", "\"<b>\""), ("comment", "// it's")] {
        assert_eq!(page.browser.value(&format!("textOf('.prose .hl-{class}')")), text);
    }
    let colour = "getComputedStyle(document.querySelector('.hl-keyword')).color";
    let light = page.browser.value(colour);
    page.browser.show(1100, 800, true);
    assert_ne!(page.browser.value(colour), light);
    let plain = "[...document.querySelectorAll('.prose .code')].slice(2).some((code) => code.querySelector('[class^=hl-]'))";
    assert_eq!(page.browser.value(plain), false);
    // While it grows, what is there stays there.
    page.ask_scripted("more");
    page.browser.value("say('```python\\ndef f(')");
    page.browser.wait_for("lastTurn().querySelector('.hl-keyword')");
    page.browser.value("say('x):\\n    return \"a\"\\n```\\n'); finish()");
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('.hl-string')");
    assert_eq!(
        page.browser.value("lastTurn().querySelector('code').textContent"),
        "def f(x):\n    return \"a\""
    );
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn texts_that_are_hard_to_read_do_not_hold_up_the_page() {
    let Some((_server, mut page)) = show("$x$", 1100) else { return };
    page.browser.wait_for("document.querySelector('.katex')");
    for (text, times) in
        [("$a ", 30_000), ("$", 60_000), ("$a$", 2_000), ("\\(", 40_000), ("$$a ", 30_000), ("[^a]", 20_000)]
    {
        let took = format!(
            "(async () => {{ const {{ showMarkdown }} = await import('/page/markdown/show.js'); const begin = performance.now(); \
             showMarkdown(document.createElement('div'), {}.repeat({times})); return performance.now() - begin; }})()",
            json!(text)
        );
        let took = page.browser.value(&took).as_f64().unwrap();
        assert!(took < 10_000.0, "{text}: {took} ms");
    }
    // The library would take more than a minute for this. It stays in one colour, and the page goes on.
    page.ask_scripted("code");
    page.browser.value(
        "say('```markdown\\n' + '[a]('.repeat(9000) + '\\n```\\n\\n```js\\nlet a;\\n```\\n'); finish()",
    );
    page.wait_for_end();
    page.browser.wait_for("lastTurn().querySelector('.hl-keyword')");
    assert_eq!(
        page.browser.value("document.querySelectorAll('.code')[0].querySelectorAll('[class^=hl-]').length"),
        0
    );
}
