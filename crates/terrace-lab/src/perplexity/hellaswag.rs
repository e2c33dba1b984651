//! `terrace perplexity --hellaswag`: the lines, as llama-perplexity prints them.

use terrace_eval::Score;

/// The header above the lines.
const HEADER: &str = "task\tacc_norm\t95% confidence interval";

/// The score after a task; the first line follows a header.
pub fn running(score: &Score) -> String {
    let Score { tasks, accuracy, low, high, .. } = score;
    let header = if *tasks == 1 { format!("{HEADER}\n") } else { String::new() };
    format!("{header}{tasks}\t{:.8}%\t[{:.4}%, {:.4}%]", 100.0 * accuracy, 100.0 * low, 100.0 * high)
}
