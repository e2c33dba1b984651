//! `terrace run --chat` in a terminal.

use crate::common::{bundled, terrace};
use crate::terminal::Terminal;
use serde_json::{Value, json};

#[test]
fn a_conversation_has_commands() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("talk.json");
    let mut command = terrace();
    command.args(["run", bundled().to_str().unwrap(), "--chat", "-n", "3", "--temp", "0"]);
    let (mut terminal, mut child) = Terminal::start(&mut command, 80);
    terminal.wait_for("(/help lists the commands");
    let mut say = |line: &str, answer: &str| {
        terminal.wait_for("> ");
        terminal.press(format!("{line}\r").as_bytes());
        terminal.wait_for(answer)
    };
    say("/help", "/save FILE");
    say("/sistem x", "there is no command /sistem");
    say("/system", "no system message");
    say("/system Be brief.", "");
    say("Who are you?", "3 tokens, ");
    say("/clear", "(forgotten)");
    say("\"\"\"one", "... ");
    terminal.press(b"two\"\"\"\r");
    terminal.wait_for(" tokens/s, the first after ");
    let save = format!("/save {}\r", file.display());
    terminal.wait_for("> ");
    terminal.press(save.as_bytes());
    terminal.wait_for("(saved to ");
    terminal.wait_for("> ");
    terminal.press(b"/bye\r");
    assert!(child.wait().unwrap().success());

    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let messages = saved["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3, "{saved:#}");
    assert_eq!(messages[0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(messages[1], json!({"role": "user", "content": "one\ntwo"}));
    assert_eq!(messages[2]["role"], "assistant");
}
