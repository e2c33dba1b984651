//! Displaying a plan as tables.

use super::Plan;
use super::parts::{ColdStart, Estimate, Range, Ranges, Term, TransitSlots};
use super::show::{TEXT_WIDTH, number, row};
use std::fmt;
use terrace_model::{ByteSize, printable};

/// Fewest columns that the tables are laid out for.
pub const MIN_WIDTH: usize = 60;

/// The tables of a plan.
#[derive(Debug)]
pub struct Tables<'a> {
    plan: &'a Plan,
    width: usize,
}

impl Plan {
    /// Returns tiers, layers and the estimate as tables of at most `width` columns, or of 60 if that is
    /// more.
    pub fn tables(&self, width: usize) -> Tables<'_> {
        Tables { plan: self, width: width.clamp(MIN_WIDTH, TEXT_WIDTH) }
    }
}

impl fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { plan, width } = self;
        let Plan { model, machine, context, estimate, given, .. } = plan;
        let row =
            |f: &mut fmt::Formatter<'_>, label: &str, value: String| f.write_str(&row(width, label, value));
        let (name, architecture) = (printable(&model.name), printable(&model.architecture));
        row(f, "model", format!("{name} ({architecture}), {} in {} tensors", model.bytes, model.tensors))?;
        row(f, "machine", printable(machine).to_string())?;
        plan.memory_rows(f, width)?;
        if let Some(estimate) = estimate {
            speed(f, width, estimate)?;
        }
        if let Some(given) = given {
            row(f, "this run", of_given(given))?;
        }
        let kept = match plan.prompt_cache {
            ByteSize::ZERO => String::new(),
            bytes => format!(", {bytes} for kept conversations"),
        };
        row(
            f,
            "context",
            format!(
                "{} tokens: {} of keys and values in {}, {} of activations{kept}",
                context.tokens, context.cache, context.kv_type, context.compute
            ),
        )?;
        for TransitSlots { device, layers, bytes } in &plan.transit {
            let layers = layers.len();
            row(f, "transit", format!("{bytes} of {device}, for streamed experts of {layers} layers"))?;
        }
        f.write_str("\n")?;
        plan.tier_bars(f, width)?;
        f.write_str("\n")?;
        plan.layer_table(f, width)?;
        if let Some(Estimate { terms, notes, .. }) = estimate {
            f.write_str("\n")?;
            times(f, width, terms)?;
            notes.iter().try_for_each(|note| f.write_str(&super::show::row(width, "note", note)))?;
        }
        Ok(())
    }
}

fn speed(f: &mut fmt::Formatter<'_>, width: usize, estimate: &Estimate) -> fmt::Result {
    let mut row = |label: &str, value: String| f.write_str(&row(width, label, value));
    let range = |of: fn(&Ranges) -> Range, text: fn(f64) -> String| {
        estimate
            .ranges
            .as_ref()
            .map(of)
            .map_or_else(String::new, |Range { low, high }| format!(" ({} to {})", text(low), text(high)))
    };
    let decode = range(|ranges| ranges.decode_tok_s, number);
    let prefill = range(|ranges| ranges.prefill_tok_s, number);
    let ttft = range(|ranges| ranges.ttft_ms, seconds);
    let hits = estimate.hit_rate.map_or_else(String::new, |hits| {
        format!("; RAM or a device holds {:.0} % of the experts used", hits * 100.0)
    });
    row(
        "decode",
        format!("{} tokens/s{decode}, limited by {}{hits}", number(estimate.decode_tok_s), estimate.bound),
    )?;
    if estimate.read_per_token > ByteSize::ZERO {
        row("", format!("reads {} per token", estimate.read_per_token))?;
    }
    if estimate.link_per_token > ByteSize::ZERO {
        row("", format!("sends {} per token to other machines and back", estimate.link_per_token))?;
    }
    row("prefill", format!("{} tokens/s{prefill}", number(estimate.prefill_tok_s)))?;
    let Estimate { prompt_tokens, output_tokens, expected, answer_ms, ttft_ms, load_ms, .. } = estimate;
    let [first, load, answer] = [*ttft_ms, *load_ms, *answer_ms].map(seconds);
    let loading = if *load_ms > 0.0 { format!(", after {load} of loading") } else { String::new() };
    row("first token", format!("{first}{ttft} for a prompt of {prompt_tokens} tokens{loading}"))?;
    if let Some(ColdStart { unread, read_ms, ttft_ms, decode_tok_s }) = estimate.cold {
        let [read, first] = [read_ms, ttft_ms].map(seconds);
        row(
            "now",
            format!(
                "{unread} of the model are not in the page cache. Reading them takes {read}, meanwhile: first token after \
                 {first}, then {} tokens/s on average",
                number(decode_tok_s)
            ),
        )?;
    }
    row(
        "response",
        format!(
            "{answer} for {prompt_tokens} prompt tokens and {output_tokens} generated ones ({expected}); the \
             plan minimises this"
        ),
    )?;
    match &estimate.drafts {
        Some(drafts) => row("drafts", drafts.to_string()),
        None => Ok(()),
    }
}

/// The speed of the run's own work.
fn of_given(given: &Estimate) -> String {
    let Estimate { prompt_tokens, output_tokens, prefill_tok_s, decode_tok_s, .. } = given;
    let [first, answer] = [given.ttft_ms, given.answer_ms].map(seconds);
    let [prefill, decode] = [*prefill_tok_s, *decode_tok_s].map(number);
    format!(
        "first token after {first} for the prompt of {prompt_tokens} tokens ({prefill} tokens/s), then {decode} tokens/s; \
         {answer} with {output_tokens} generated ones"
    )
}

fn times(f: &mut fmt::Formatter<'_>, width: usize, terms: &[Term]) -> fmt::Result {
    const TITLE: &str = "time per token";
    const NUMBERS: usize = 9;
    let longest = terms.iter().map(|term| term.what.chars().count()).max().unwrap_or(0);
    let label = longest.max(TITLE.len()).min(width - NUMBERS - "  memory (overlapped)".len());
    writeln!(f, "{TITLE:<label$}{:>NUMBERS$}  resource", "ms")?;
    for Term { what, ms, resource, beside, .. } in terms {
        let beside = if *beside { " (overlapped)" } else { "" };
        let mut lines = textwrap::wrap(what, label);
        let last = lines.pop().unwrap_or_default();
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "{last:<label$}{:>NUMBERS$}  {resource}{beside}", number(*ms))?;
    }
    Ok(())
}

fn seconds(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", number(ms / 1e3)) } else { format!("{} ms", number(ms)) }
}
