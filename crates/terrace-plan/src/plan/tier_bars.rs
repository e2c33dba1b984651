//! Displaying how full each tier is.

use super::Plan;
use super::parts::TierUse;
use std::fmt;
use terrace_model::ByteSize;

/// Columns of a tier's name.
const NAME: usize = 8;
/// Columns after a bar: ` 1023.99 MiB of 1023.99 GiB`.
const SIZES: usize = 28;
/// The uses of a tier, and how a bar shows them.
const KINDS: [(char, &str); 4] = [('█', "weights"), ('▓', "cache"), ('▒', "buffers"), ('░', "context")];
const FREE: char = '·';

impl Plan {
    /// Writes a bar for each tier, its uses, and what the characters mean.
    pub(super) fn tier_bars(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        for tier in &self.tiers {
            let TierUse { tier: name, room, weights, .. } = tier;
            match room {
                Some(room) => {
                    let bar = bar(tier, *room, width - NAME - SIZES);
                    writeln!(f, "{name:<NAME$}{bar} {} of {room}", tier.used())?;
                    writeln!(f, "{:NAME$}{}", "", uses(tier))?;
                }
                None if *weights == ByteSize::ZERO => {
                    writeln!(f, "{name:<NAME$}nothing to read after loading")?
                }
                None => writeln!(f, "{name:<NAME$}{weights} to read from while running")?,
            }
        }
        let kinds = KINDS.map(|(sign, kind)| format!("{sign} {kind}")).join("  ");
        writeln!(f, "{:NAME$}{kinds}  {FREE} free", "")
    }
}

fn sizes(tier: &TierUse) -> [ByteSize; 4] {
    [tier.weights, tier.expert_cache, tier.ring, tier.context]
}

/// Each use has a column or more.
fn bar(tier: &TierUse, room: ByteSize, columns: usize) -> String {
    let all = room.bytes().max(tier.used().bytes()).max(1) as f64;
    let mut bar = String::new();
    for (size, (sign, _)) in sizes(tier).into_iter().zip(KINDS) {
        let share = size.bytes() as f64 / all * columns as f64;
        let least = usize::from(size > ByteSize::ZERO);
        bar.extend(std::iter::repeat_n(sign, (share.round() as usize).max(least)));
    }
    let free = columns.saturating_sub(bar.chars().count());
    bar.extend(std::iter::repeat_n(FREE, free));
    bar.chars().take(columns).collect()
}

fn uses(tier: &TierUse) -> String {
    let used = sizes(tier).into_iter().zip(KINDS).filter(|(size, _)| *size > ByteSize::ZERO);
    let used: Vec<String> = used.map(|(size, (_, kind))| format!("{kind} {size}")).collect();
    if used.is_empty() { "empty".into() } else { used.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_shows_and_the_rest_is_free() {
        let tier = TierUse {
            tier: "ram".into(),
            room: Some(ByteSize(1000)),
            weights: ByteSize(1),
            expert_cache: ByteSize(500),
            ring: ByteSize::ZERO,
            context: ByteSize(100),
        };
        assert_eq!(bar(&tier, ByteSize(1000), 20), "█▓▓▓▓▓▓▓▓▓▓░░·······");
        assert_eq!(bar(&tier, ByteSize(600), 10).chars().count(), 10, "more than there is room for");
    }
}
