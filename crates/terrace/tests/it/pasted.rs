//! Command lines of llama-server as users paste them (`tests/data/llama_server_lines.txt`), with the bundled model in
//! place of theirs. Addresses are this machine's, and contexts are no longer than the model's.

use crate::common::bundled;
use crate::server::Server;

const LINES: &str = include_str!("../data/llama_server_lines.txt");

/// A line with another model, address and size of the context.
fn adapted(line: &str) -> Vec<String> {
    let (mut words, mut line) = (Vec::new(), line.split_whitespace());
    while let Some(word) = line.next() {
        match word {
            "-m" | "--model" | "-hf" | "--host" | "--port" => drop(line.next()),
            "-c" | "--ctx-size" => {
                let tokens: u32 = line.next().unwrap().parse().unwrap();
                words.extend([word.to_owned(), tokens.min(1024).to_string()]);
            }
            other => words.push(other.to_owned()),
        }
    }
    words
}

#[test]
fn public_command_lines_of_llama_server_start_a_server() {
    let lines: Vec<(&str, &str)> = LINES
        .split("\n\n")
        .filter(|block| !block.starts_with('#'))
        .map(|block| block.trim().split_once('\n').unwrap())
        .collect();
    assert!(lines.len() >= 10, "{}", lines.len());
    for (source, line) in lines {
        let server = Server::start(&bundled(), adapted(line));
        server.signal("-TERM");
        let (status, said) = server.ended();
        assert!(status.success(), "{source}: {said}");
        let warnings = said.lines().filter(|line| line.contains("ignored: ")).count();
        assert!(warnings <= 1, "{source}: {said}");
        assert!(!said.contains("error: "), "{source}: {said}");
    }
}
