//! Replays a trace with copies of experts on devices: where they start, how they are exchanged, and
//! what an oracle would hold.

use super::args::{HotSlots, ReplayArgs};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use terrace_cli::error::CliError;
use terrace_engine::learn as files;
use terrace_lanes::{ReplayedCopies, ReplayedLayer, replay_copies};
use terrace_model::learn::LearnFile;
use terrace_model::trace::Trace;
use terrace_model::{ByteSize, LayerId};

/// A token: its layers (by index) and their experts.
type Token = Vec<(usize, Vec<u32>)>;

/// A trace with its layers, and the tokens that were decoded one by one.
struct Copies {
    layers: Vec<(LayerId, ReplayedLayer)>,
    tokens: Vec<Token>,
}

/// One line of the table.
struct Row {
    slots: String,
    copies: u32,
    start: String,
    update: ByteSize,
    counts: ReplayedCopies,
    belady: f64,
}

/// The table, or JSON, of all starts and numbers of copies.
///
/// # Errors
/// A learn file cannot be read or does not fit the trace, or the trace has no decoded tokens.
pub fn replay(args: &ReplayArgs, trace: &Trace) -> Result<String, CliError> {
    let bad = |reason: &str| CliError::Trace { path: args.file.clone(), reason: reason.into() };
    let copies = Copies::of(trace).ok_or_else(|| bad("no tokens were decoded one by one"))?;
    let learned: Result<Vec<(&PathBuf, LearnFile)>, CliError> =
        args.learned.iter().map(|path| Ok((path, copies.fitting(path, files::read(path)?)?))).collect();
    let learned = learned?;
    let own = copies.own();
    let mut rows = Vec::new();
    for &slots in &args.hot_slots {
        let with = |first: &dyn Fn(LayerId, u32) -> Vec<u64>| -> Vec<ReplayedLayer> {
            let layers = copies.layers.iter().map(|(id, layer)| ReplayedLayer {
                slots: slots.of(layer.experts),
                first: first(*id, layer.experts),
                ..layer.clone()
            });
            layers.collect()
        };
        let nothing = with(&|_, _| Vec::new());
        let belady = copies.belady(&nothing);
        let held = nothing.iter().map(|layer| layer.slots).sum();
        let mut row = |start: String, layers: &[ReplayedLayer], update: ByteSize| {
            let counts = replay_copies(layers, update, copies.tokens.iter().map(Vec::as_slice));
            let slots = slots.to_string();
            rows.push(Row { slots, copies: held, start, update, counts, belady: belady.hit_rate() });
        };
        row("none".into(), &nothing, args.hot_update);
        for (path, file) in &learned {
            let layers =
                with(&|id, experts| file.layer(id.0).map_or_else(Vec::new, |layer| layer.counts(experts)));
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            row(name.clone(), &layers, ByteSize::ZERO);
            row(name, &layers, args.hot_update);
        }
        let own = with(&|id, _| own.get(&id).cloned().unwrap_or_default());
        row("its own uses".into(), &own, ByteSize::ZERO);
    }
    Ok(match args.json {
        true => serde_json::to_string_pretty(&json!({
            "tokens": copies.tokens.len(),
            "layers": copies.layers.len(),
            "results": rows.iter().map(Row::json).collect::<Vec<Value>>(),
        }))
        .expect("numbers are plain data"),
        false => table(&copies, &rows),
    })
}

impl Copies {
    /// `None` if no token was decoded on its own.
    fn of(trace: &Trace) -> Option<Self> {
        let mut index = BTreeMap::new();
        let mut layers: Vec<(LayerId, ReplayedLayer)> = Vec::new();
        for (at, group) in trace.groups.iter().enumerate() {
            let Some(layer) = trace.header.tensors[group.tensors[0] as usize].layer else { continue };
            index.insert(at as u32, layers.len());
            let (experts, used) = (group.experts, group.top_k);
            let bundle = trace.bundle(group);
            layers.push((layer, ReplayedLayer { experts, bundle, slots: 0, first: Vec::new(), used }));
        }
        let decoded = trace.passes.iter().filter(|pass| trace.tokens(pass) == 1);
        let token = |pass: &terrace_model::trace::Pass| -> Token {
            let blocks = pass.blocks.iter();
            blocks.filter_map(|block| Some((*index.get(&block.group)?, block.ids.to_vec()))).collect()
        };
        let tokens: Vec<Token> = decoded.map(token).collect();
        (!tokens.is_empty() && !layers.is_empty()).then_some(Self { layers, tokens })
    }

    /// Checks that a learn file can be of the traced model.
    fn fitting(&self, path: &std::path::Path, file: LearnFile) -> Result<LearnFile, CliError> {
        let misfit = file.layers.iter().find_map(|layer| {
            let (_, known) = self.layers.iter().find(|(id, _)| id.0 == layer.layer)?;
            layer
                .experts
                .last()
                .filter(|uses| uses.expert >= known.experts)
                .map(|uses| (layer.layer, uses.expert))
        });
        match misfit {
            None => Ok(file),
            Some((layer, expert)) => Err(CliError::Trace {
                path: path.to_owned(),
                reason: format!("layer {layer} has no expert {expert} in the trace"),
            }),
        }
    }

    /// How often the decoded tokens use each expert.
    fn own(&self) -> BTreeMap<LayerId, Vec<u64>> {
        let mut counts: Vec<Vec<u64>> =
            self.layers.iter().map(|(_, layer)| vec![0; layer.experts as usize]).collect();
        for (layer, experts) in self.tokens.iter().flatten() {
            experts.iter().for_each(|&expert| counts[*layer][expert as usize] += 1);
        }
        self.layers.iter().map(|(id, _)| *id).zip(counts).collect()
    }

    /// Replays the oracle that copies an expert only when it was just used, as often as it likes: of the
    /// experts there and that one, it gives up the one whose next use is farthest.
    fn belady(&self, layers: &[ReplayedLayer]) -> ReplayedCopies {
        let mut counts = ReplayedCopies::default();
        for (index, layer) in layers.iter().enumerate() {
            let uses: Vec<u32> = self
                .tokens
                .iter()
                .flatten()
                .filter(|(of, _)| *of == index)
                .flat_map(|(_, experts)| experts.iter().copied())
                .collect();
            let mut next = vec![usize::MAX; uses.len()];
            let mut last = vec![usize::MAX; layer.experts as usize];
            for (at, &expert) in uses.iter().enumerate().rev() {
                next[at] = std::mem::replace(&mut last[expert as usize], at);
            }
            // By next use; each expert once.
            let mut held: BTreeSet<(usize, u32)> = BTreeSet::new();
            for (at, &expert) in uses.iter().enumerate() {
                counts.pairs += 1;
                let there = held.remove(&(at, expert));
                counts.hot += u64::from(there);
                if next[at] < usize::MAX {
                    held.insert((next[at], expert));
                    counts.exchanged += u64::from(!there);
                }
                while held.len() > layer.slots as usize {
                    held.pop_last();
                }
            }
        }
        counts
    }
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "slots": self.slots,
            "copies": self.copies,
            "start": self.start,
            "update_bytes": self.update,
            "pairs": self.counts.pairs,
            "hot": self.counts.hot,
            "hit_rate": self.counts.hit_rate(),
            "exchanged": self.counts.exchanged,
            "exchanged_bytes": self.counts.bytes,
            "belady": self.belady,
        })
    }
}

fn table(copies: &Copies, rows: &[Row]) -> String {
    let mut out = format!(
        "{} tokens decoded in {} layers\n\n{:>8} {:>7}  {:<24} {:>11} {:>7} {:>10} {:>12}",
        copies.tokens.len(),
        copies.layers.len(),
        "slots",
        "copies",
        "start",
        "update",
        "hits",
        "to Belady",
        "copied/token"
    );
    for Row { slots, copies: held, start, update, counts, belady } in rows {
        let rate = counts.hit_rate();
        let each = ByteSize(counts.bytes / copies.tokens.len().max(1) as u64);
        let update = if *update == ByteSize::ZERO { "off".into() } else { update.to_string() };
        let start: String = start.chars().take(24).collect();
        let _ = write!(
            out,
            "\n{slots:>8} {held:>7}  {start:<24} {update:>11} {:>6.1}% {:>9.1}% {:>12}",
            rate * 100.0,
            (belady - rate) * 100.0,
            each.to_string()
        );
    }
    out
}

/// The number of copies in a layer with this many experts.
impl HotSlots {
    fn of(self, experts: u32) -> u32 {
        match self {
            Self::Count(count) => count.min(experts),
            Self::Percent(percent) => (f64::from(experts) * percent / 100.0).round() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belady_gives_up_what_is_used_last() {
        let layer = ReplayedLayer { experts: 4, bundle: ByteSize(1), slots: 1, first: Vec::new(), used: 1 };
        let tokens = [0, 1, 0, 1, 1, 2, 1].map(|expert| vec![(0, vec![expert])]).to_vec();
        let copies = Copies { layers: vec![(LayerId(0), layer.clone())], tokens };
        // Keeps 0 until its second use, then 1.
        let best = copies.belady(std::slice::from_ref(&layer));
        assert_eq!((best.pairs, best.hot), (7, 3), "{best:?}");
        assert_eq!(copies.own()[&LayerId(0)], [2, 4, 1, 0]);
        let all = copies.belady(&[ReplayedLayer { slots: 4, ..layer }]);
        assert_eq!(all.hot, 4);
    }
}
