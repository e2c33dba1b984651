//! Files that go with a message as text.

use super::Page;
use crate::common::bundled;
use crate::server::Server;
use serde_json::json;
use std::fmt::Write;

/// A PDF file with a line of text on each page.
fn pdf(lines: &[&str]) -> String {
    let kids: String = (0..lines.len()).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    let mut file = format!(
        "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n\
         2 0 obj <</Type/Pages/Count {}/Kids[{kids}]>> endobj\n\
         3 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj\n",
        lines.len()
    );
    for (page, line) in lines.iter().enumerate() {
        let (this, content) = (4 + 2 * page, format!("BT /F1 12 Tf 72 720 Td ({line}) Tj ET"));
        write!(
            file,
            "{this} 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {} 0 R\
             /Resources<</Font<</F1 3 0 R>>>>>> endobj\n\
             {} 0 obj <</Length {}>> stream\n{content}\nendstream endobj\n",
            this + 1,
            this + 1,
            content.len()
        )
        .unwrap();
    }
    file + "trailer <</Root 1 0 R>>\n%%EOF\n"
}

#[test]
fn text_and_pdf_go_with_the_message_and_say_their_tokens() {
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let Some(mut page) = Page::open(&server, 1100, 800) else { return };
    page.scripted();
    page.browser.value("dropFile('notes.md', 'The king of the sea.\\n')");
    page.browser.wait_for("/^notes\\.md\\d+ tokens$/.test(textOf('#files .file'))");
    let tokens = server.post("/tokenize", &json!({"content": "The king of the sea.\n"})).ok()["tokens"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(page.browser.value("textOf('#files small')"), format!("{tokens} tokens"));
    page.browser
        .value(&format!("dropFile('report.pdf', {}, true)", json!(pdf(&["First page", "Second page"]))));
    page.browser.wait_for("/^report\\.pdf\\d+ tokens$/.test(textOf('#files .file:nth-child(2)'))");
    let sent = page.ask_scripted("what is it?");
    let expected = "<file name=\"notes.md\">\nThe king of the sea.\n</file>\n\n\
        <file name=\"report.pdf\">\nFirst page\n\nSecond page\n</file>\n\nwhat is it?";
    assert_eq!(sent["messages"], json!([{"role": "user", "content": expected}]));
    assert_eq!(page.browser.value("at('files').hidden"), true);
    page.answer_scripted("A file.");
    // The turn shows them, with their text, also after a reload.
    page.browser.reload();
    page.browser.wait_for("textOf('.turn.user .bubble') === 'what is it?'");
    page.browser.value("document.querySelector('.turn.user details.file:nth-child(2)').open = true");
    page.browser
        .wait_for("textOf('.turn.user details.file:nth-child(2) pre') === 'First page\\n\\nSecond page'");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}

#[test]
fn files_that_cannot_be_read_or_do_not_fit_are_told_before_they_are_sent() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let Some(mut page) = Page::open(&server, 390, 844) else { return };
    page.scripted();
    for (name, content, told) in [
        ("x.bin", "\u{0}\u{1}\u{2}", "“x.bin” is neither text nor PDF."),
        ("empty.txt", "", "“empty.txt” is empty."),
        ("bad.pdf", "%PDF-1.7 and nothing of it", "“bad.pdf” is not a PDF file that can be read."),
        ("scan.pdf", &pdf(&[""]), "“scan.pdf” has no text: its pages may be pictures."),
    ] {
        page.browser.value(&format!("dropFile('{name}', {}, true)", json!(content)));
        page.browser.wait_for(&format!("textOf('.notice.error p') === {}", json!(told)));
        assert_eq!(page.browser.value("at('files').hidden && at('send').disabled"), true);
    }
    page.browser.value("dropFile('long.txt', 'In the beginning. '.repeat(500))");
    let told =
        "/^The files have [\\d,.]+ tokens, and the context holds 256\\. /.test(textOf('.notice.error p'))";
    page.browser.wait_for(&format!("{told} && document.querySelector('#files .file.error')"));
    page.browser.value("window.sent = null; at('text').focus()");
    page.browser.write("read it");
    page.browser.press("Enter", 13);
    page.browser.wait_for(told);
    assert_eq!(page.browser.value("sent === null && at('text').value === 'read it'"), true);
    page.browser.click("#files .file button");
    page.browser.value("at('text').focus()");
    page.browser.press("Enter", 13);
    page.browser.wait_for("sent?.messages[0].content === 'read it'");
    page.answer_scripted("Yes.");
    assert_eq!(page.browser.errors, Vec::<String>::new());
}
