//! The file of tasks, and the selection of some of them.

use rand_mt::Mt;

/// Lines per task: the context, the number of the right ending, the endings.
const LINES: usize = 2 + ENDINGS;
/// Endings to choose from.
pub const ENDINGS: usize = 4;

/// A context, and four endings of which one is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HellaSwagTask {
    /// The line of the file at which it begins, 1-based.
    pub line: usize,
    /// The text before the ending.
    pub context: String,
    /// The right ending.
    pub gold: usize,
    /// The possible endings.
    pub endings: [String; ENDINGS],
}

/// A file that does not contain tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HellaSwagError {
    /// The file is empty.
    #[error("no tasks")]
    Empty,
    /// A task is incomplete.
    #[error("{lines} lines, but each task takes {LINES}")]
    Lines {
        /// Lines of the file.
        lines: usize,
    },
    /// The number of the right ending is invalid.
    #[error("line {line}: `{text}` is not the number of an ending (0 to {})", ENDINGS - 1)]
    Gold {
        /// The line, 1-based.
        line: usize,
        /// The text of the line.
        text: String,
    },
}

impl HellaSwagTask {
    /// Parses a file in llama.cpp's format: six lines per task.
    ///
    /// # Errors
    /// [`HellaSwagError`], with the line.
    pub fn parse(text: &str) -> Result<Vec<Self>, HellaSwagError> {
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return Err(HellaSwagError::Empty);
        }
        if !lines.len().is_multiple_of(LINES) {
            return Err(HellaSwagError::Lines { lines: lines.len() });
        }
        let task = |(i, task): (usize, &[&str])| {
            let line = i * LINES + 1;
            let gold = task[1].trim().parse().ok().filter(|&gold| gold < ENDINGS);
            Ok(Self {
                line,
                context: task[0].to_owned(),
                gold: gold
                    .ok_or_else(|| HellaSwagError::Gold { line: line + 1, text: task[1].to_owned() })?,
                endings: std::array::from_fn(|ending| task[2 + ending].to_owned()),
            })
        };
        lines.chunks_exact(LINES).enumerate().map(task).collect()
    }

    /// Selects at most `count` tasks in the order of llama.cpp's tool, which is random and the same
    /// in every run, so that a part represents the whole.
    pub fn select(tasks: Vec<Self>, count: usize) -> Vec<Self> {
        let mut random = Mt::new(1);
        let mut left: Vec<usize> = (0..tasks.len()).collect();
        let mut tasks: Vec<Option<Self>> = tasks.into_iter().map(Some).collect();
        let mut taken = Vec::with_capacity(count.min(tasks.len()));
        while taken.len() < count && !left.is_empty() {
            let range = u32::try_from(left.len()).unwrap_or(u32::MAX);
            let place = left.remove(below(&mut random, range) as usize);
            taken.extend(tasks[place].take());
        }
        taken
    }
}

/// A random number below `range`, computed from 32 random bits as in GNU's C++ library since GCC
/// 11: the high part of a product, drawn again where it would be biased (D. Lemire, "Fast Random
/// Integer Generation in an Interval", 2019).
fn below(random: &mut Mt, range: u32) -> u32 {
    let threshold = range.wrapping_neg() % range;
    loop {
        let product = u64::from(random.next_u32()) * u64::from(range);
        let low = (product & u64::from(u32::MAX)) as u32;
        if low >= threshold {
            return (product >> 32) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tasks: usize) -> String {
        (0..tasks).map(|i| format!("Context {i}:\n{}\na\nb\nc\nd\n", i % 4)).collect()
    }

    #[test]
    fn a_task_has_six_lines() {
        let tasks = HellaSwagTask::parse(&file(3)).unwrap();
        assert_eq!(tasks.len(), 3);
        assert_eq!((tasks[2].line, tasks[2].gold), (13, 2));
        assert_eq!(tasks[1].context, "Context 1:");
        assert_eq!(tasks[0].endings, ["a", "b", "c", "d"]);
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        assert_eq!(HellaSwagTask::parse(""), Err(HellaSwagError::Empty));
        assert_eq!(HellaSwagTask::parse("a\n0\nb\nc\nd"), Err(HellaSwagError::Lines { lines: 5 }));
        for gold in ["4", "-1", "", "b"] {
            let error =
                HellaSwagTask::parse(&(file(1) + &format!("Context\n{gold}\na\nb\nc\nd\n"))).unwrap_err();
            assert_eq!(error, HellaSwagError::Gold { line: 8, text: gold.into() });
            assert!(error.to_string().starts_with("line 8: "), "{error}");
        }
    }

    /// The output of `std::uniform_int_distribution` over `std::mt19937(1)`, compiled with GCC 12.
    #[test]
    fn the_order_is_llama_cpps() {
        for (count, expected) in [
            (10, [4, 8, 5, 6, 0, 0, 1, 2, 0, 0].as_slice()),
            (100, &[41, 98, 70, 90, 0, 12, 28, 92, 13, 21, 8, 35]),
            (10042, &[4187, 10012, 7232, 9361, 1, 1285, 3034, 10025, 1472, 2368, 926, 3978]),
        ] {
            let mut left: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = expected.iter().map(|&place| left.remove(place)).collect();
            let tasks = HellaSwagTask::select(HellaSwagTask::parse(&file(count)).unwrap(), 12);
            let order: Vec<usize> = tasks.iter().map(|task| (task.line - 1) / LINES).collect();
            assert_eq!(order, expected);
        }
    }
}
