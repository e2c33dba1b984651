//! Displaying tiers, layers and the estimate as tables.

use super::Plan;
use super::parts::{Estimate, PlannedLayer, TierUse, TransitSlots};
use std::fmt;
use terrace_model::{ByteSize, printable};

/// The tables of a plan.
#[derive(Debug)]
pub struct Tables<'a>(&'a Plan);

impl Plan {
    /// Returns tiers, layers and the estimate as tables for terminals.
    pub fn tables(&self) -> Tables<'_> {
        Tables(self)
    }
}

impl fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { model, machine, summary, context, estimate, .. } = self.0;
        let (name, machine) = (printable(&model.name), printable(machine));
        writeln!(
            f,
            "model            {name} ({}), {} in {} tensors",
            printable(&model.architecture),
            model.bytes,
            model.tensors
        )?;
        writeln!(f, "machine          {machine}")?;
        writeln!(f, "mode             {summary}")?;
        if let Some(estimate) = estimate {
            speed(f, estimate)?;
        }
        writeln!(
            f,
            "context          {} tokens, KV cache of {} in {}, {} of activations",
            context.tokens, context.cache, context.kv_type, context.compute
        )?;
        for TransitSlots { device, layers, bytes } in &self.0.transit {
            let layers = layers.len();
            writeln!(f, "transit          {bytes} of {device}, for streamed experts of {layers} layers")?;
        }
        self.0.tier_table(f)?;
        self.0.layer_table(f)?;
        if let Some(Estimate { terms, notes, .. }) = estimate {
            writeln!(f, "\n{:<44} {:>10}  resource", "time per token", "ms")?;
            for term in terms {
                let beside = if term.beside { " (overlapped)" } else { "" };
                writeln!(f, "{:<44} {:>10}  {}{beside}", term.what, number(term.ms), term.resource)?;
            }
            notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        }
        Ok(())
    }
}

fn speed(f: &mut fmt::Formatter<'_>, estimate: &Estimate) -> fmt::Result {
    writeln!(
        f,
        "decode           {} tok/s, bound by {}{}",
        number(estimate.decode_tok_s),
        estimate.bound,
        estimate
            .hit_rate
            .map_or_else(String::new, |hits| format!(", {:.0} % of expert uses hit", hits * 100.0))
    )?;
    writeln!(f, "read per token   {}", estimate.read_per_token)?;
    if estimate.link_per_token > ByteSize::ZERO {
        writeln!(f, "links per token  {}", estimate.link_per_token)?;
    }
    if let Some(drafts) = &estimate.drafts {
        writeln!(f, "drafts           {drafts}")?;
    }
    writeln!(f, "prefill          {} tok/s", number(estimate.prefill_tok_s))?;
    writeln!(
        f,
        "first token      {} for a prompt of {} tokens, after {} of loading",
        seconds(estimate.ttft_ms),
        estimate.prompt_tokens,
        seconds(estimate.load_ms)
    )?;
    let Estimate { prompt_tokens, output_tokens, expected, answer_ms, .. } = estimate;
    writeln!(
        f,
        "answer           {} for {prompt_tokens} tokens of prompt and {output_tokens} generated ({expected}): \
         plans minimise this",
        seconds(*answer_ms)
    )
}

impl Plan {
    fn tier_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<12} {:>11} {:>11} {:>12} {:>11} {:>11} {:>11}",
            "tier", "weights", "resident", "expert cache", "streaming", "context", "room"
        )?;
        for tier in &self.tiers {
            let TierUse { tier: name, room, weights, expert_cache, ring, context } = tier;
            let all = *weights + *expert_cache + *ring;
            let room = room.map_or_else(|| "-".into(), |room| room.to_string());
            let size = |size: ByteSize| if size == ByteSize::ZERO { "-".into() } else { size.to_string() };
            writeln!(
                f,
                "{name:<12} {:>11} {:>11} {:>12} {:>11} {:>11} {room:>11}",
                size(all),
                size(*weights),
                size(*expert_cache),
                size(*ring),
                size(*context)
            )?;
        }
        Ok(())
    }

    fn layer_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<12} {:<8} {:<20} {:>11} {:>11} {:>11}  on device / in RAM / on disk, hits",
            "layers", "home", "mode", "dense", "streamed", "experts"
        )?;
        for group in self.groups() {
            let layer = &group[0];
            let sum = |of: fn(&PlannedLayer) -> ByteSize| group.iter().map(of).sum::<ByteSize>();
            let streamed = sum(|layer| layer.streamed);
            let experts = sum(|layer| layer.experts.map_or(ByteSize::ZERO, |experts| experts.bytes));
            let size = |size: ByteSize| if size == ByteSize::ZERO { "-".into() } else { size.to_string() };
            let shares = layer.experts.map_or_else(String::new, |experts| {
                let device = f64::from(experts.on_device) / f64::from(experts.count);
                format!(
                    "{:.0} / {:.0} / {:.0} %, {:.0} %",
                    device * 100.0,
                    experts.in_ram * 100.0,
                    experts.on_disk * 100.0,
                    experts.hits * 100.0
                )
            });
            let line = format!(
                "{:<12} {:<8} {:<20} {:>11} {:>11} {:>11}  {shares}",
                names(group),
                layer.home,
                layer.mode.to_string(),
                size(sum(|layer| layer.resident)),
                size(streamed),
                size(experts)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Groups consecutive layers with the same home, mode and shares.
    pub fn groups(&self) -> Vec<&[PlannedLayer]> {
        let key = |layer: &PlannedLayer| {
            let experts = layer.experts.map(|e| (e.on_device, e.in_ram.to_bits(), e.on_disk.to_bits()));
            (layer.home.clone(), layer.mode as u8, experts, layer.layer.is_none())
        };
        let mut groups: Vec<&[PlannedLayer]> = Vec::new();
        // Layers of which only every second or so streams matrices are one group, too.
        let streams = |layer: &PlannedLayer| layer.streamed > ByteSize::ZERO;
        let alike = |a: &PlannedLayer, b: &PlannedLayer| {
            key(a) == key(b)
                || (a.home == b.home
                    && a.layer.is_some()
                    && b.layer.is_some()
                    && a.experts.is_none()
                    && b.experts.is_none()
                    && (streams(a) || streams(b)))
        };
        let mut start = 0;
        for end in 1..=self.layers.len() {
            if end == self.layers.len() || !alike(&self.layers[end - 1], &self.layers[end]) {
                groups.push(&self.layers[start..end]);
                start = end;
            }
        }
        groups
    }
}

fn names(group: &[PlannedLayer]) -> String {
    match (group.first().and_then(|layer| layer.layer), group.last().and_then(|layer| layer.layer)) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (Some(first), _) => first.to_string(),
        _ => "head".into(),
    }
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.digits$}")
}

fn seconds(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", number(ms / 1e3)) } else { format!("{} ms", number(ms)) }
}
