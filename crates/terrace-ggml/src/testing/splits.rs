//! Splits that ggml's scheduler makes of graphs: which device computes which nodes, and in how many
//! pieces.

use std::sync::{Mutex, PoisonError};

/// A piece of a graph that one device computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// ggml's name of the device.
    pub device: String,
    /// Its nodes (operation and name), without those that compute nothing.
    pub nodes: Vec<(String, String)>,
}

static GRAPHS: Mutex<Option<Vec<Vec<Split>>>> = Mutex::new(None);

/// Makes contexts that are made from now on record their graphs.
///
/// # Safety
/// No other thread of the process reads or writes environment variables meanwhile.
pub unsafe fn record() {
    // SAFETY: the caller's contract.
    unsafe { terrace_platform::process::set_variable("GGML_SCHED_DEBUG", "2") };
    *GRAPHS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    crate::log::listen(line);
}

/// The graphs that were divided since the last call, in order. A graph that is computed repeatedly
/// is divided once.
pub fn take() -> Vec<Vec<Split>> {
    let mut graphs = GRAPHS.lock().unwrap_or_else(PoisonError::into_inner);
    graphs.as_mut().map(std::mem::take).unwrap_or_default()
}

/// Takes a line of ggml's log, as `ggml_backend_sched_print_assignments` writes them.
fn line(line: &str) {
    let mut graphs = GRAPHS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(graphs) = graphs.as_mut() else { return };
    if let Some(rest) = line.strip_prefix("## SPLIT #") {
        let Some((index, rest)) = rest.split_once(": ") else { return };
        let device = rest.split(" # ").next().unwrap_or_default().to_owned();
        if index == "0" {
            graphs.push(Vec::new());
        }
        if let Some(graph) = graphs.last_mut() {
            graph.push(Split { device, nodes: Vec::new() });
        }
    } else if let Some(rest) = line.strip_prefix("node #") {
        let node = rest.split_once('(').and_then(|(_, rest)| rest.split_once("):"));
        let Some((op, rest)) = node else { return };
        let name = rest.trim_start().split(" (").next().unwrap_or_default();
        if let Some(split) = graphs.last_mut().and_then(|graph| graph.last_mut()) {
            split.nodes.push((op.trim().to_owned(), name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_lines_are_understood() {
        *GRAPHS.lock().unwrap() = Some(Vec::new());
        for text in [
            "## SPLIT #0: TERRACE # 0 inputs",
            "node #  0 (  GET_ROWS):               inp_embd (   1K) [ TERR         ] use=2,c=1:    token_embd.weight",
            "## SPLIT #1: GPU0 # 1 inputs: [l_out-0 (   1K)]",
            "node #  7 (   MUL_MAT):                 Qcur-1 (   1K) [ GPU0         ] use=1,c=1:   blk.1.attn_q.weight",
            "node #  9 (       ADD):                l_out-1 (   1K) [ GPU0         ] use=1,c=1:   a b",
            "## SPLIT #0: GPU0 # 0 inputs",
        ] {
            line(text);
        }
        let split = |device: &str, nodes: &[(&str, &str)]| Split {
            device: device.into(),
            nodes: nodes.iter().map(|(op, name)| ((*op).into(), (*name).into())).collect(),
        };
        assert_eq!(
            take(),
            [
                vec![
                    split("TERRACE", &[("GET_ROWS", "inp_embd")]),
                    split("GPU0", &[("MUL_MAT", "Qcur-1"), ("ADD", "l_out-1")])
                ],
                vec![split("GPU0", &[])]
            ]
        );
    }
}
