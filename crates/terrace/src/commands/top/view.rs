//! One frame.

use super::grid::{self, Kind};
use super::seen::{DEVICE, RAM, Seen};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use terrace_model::{ByteSize, printable};

/// Server slots that are shown.
const SLOTS: usize = 4;
/// Columns of a gauge's bar, and of one where there are few.
const BAR: usize = 10;
const SHORT_BAR: usize = 5;

/// Display of a server.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub url: String,
    /// True if places have colours.
    pub colours: bool,
    /// True if keys do something.
    pub keys: bool,
    /// Why there is no news; `None` while there is.
    pub lost: Option<String>,
    /// Result of a key.
    pub said: String,
    /// The first layer that is shown.
    pub first: usize,
}

impl View {
    /// Goes through the layers.
    pub fn scroll(&mut self, by: isize, seen: &Seen) {
        self.first = self.first.saturating_add_signed(by).min(seen.layers.len().saturating_sub(1));
    }

    pub fn draw(&self, frame: &mut Frame<'_>, seen: &Seen) {
        let slots = seen.slots.len().clamp(1, SLOTS + 1);
        let rows = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(3),
            Constraint::Length(2),
            Constraint::Length(u16::try_from(slots).unwrap_or(1)),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ];
        let [head, titles, charts, gauges, list, gap, experts, foot] =
            Layout::vertical(rows).areas(frame.area());
        self.head(frame, head, seen);
        self.charts(frame, titles, charts, seen);
        self.gauges(frame, gauges, seen);
        frame.render_widget(Paragraph::new(slots_of(seen, list.width)), list);
        self.grid(frame, [gap, experts], seen);
        frame.render_widget(Paragraph::new(self.foot(foot.width)), foot);
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let state = match &self.lost {
            Some(reason) => Span::styled(printable(reason), self.styled(Color::Red)),
            None if seen.mode.is_empty() => Span::raw(format!("connecting to {}", self.url)),
            None => Span::raw(format!("mode {}  epoch {}  waiting {}", seen.mode, seen.epoch, seen.waiting)),
        };
        let name = Span::styled(printable(&seen.model), Style::new().add_modifier(Modifier::BOLD));
        let title =
            Line::from(vec![Span::styled("terrace", self.styled(Color::Green)), Span::raw("  "), name]);
        // The reason matters more than the name.
        let wanted = u16::try_from(state.width()).unwrap_or(u16::MAX).min(area.width);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(wanted)]).areas(area);
        frame.render_widget(Paragraph::new(title), left);
        frame.render_widget(Paragraph::new(Line::from(state)).right_aligned(), right);
    }

    fn charts(&self, frame: &mut Frame<'_>, titles: Rect, charts: Rect, seen: &Seen) {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]);
        let [speed_title, _, share_title] = halves.areas(titles);
        let [speed, _, share] = halves.areas(charts);
        let last = seen.speed.back().copied().unwrap_or(0.0);
        let rate = format!("tokens/s {last:.1}");
        let text = [format!("{rate}  ({} generated)", seen.counters.generated), rate];
        frame.render_widget(Paragraph::new(fitting(text, speed_title.width)), speed_title);
        let points: Vec<f64> = last_of(&seen.speed, speed.width).copied().collect();
        let most = points.iter().copied().fold(1.0, f64::max);
        let points = points.into_iter().map(|speed| (speed / most * 1000.0) as u64);
        let line = Sparkline::default().max(1000).style(self.styled(Color::Cyan));
        frame.render_widget(line.data(points.collect::<Vec<u64>>()), speed);
        let percent = |share: Option<&Option<f64>>| match share.copied().flatten() {
            Some(share) => format!("{:.1} %", share * 100.0),
            None => "-".to_owned(),
        };
        let (on_devices, in_ram) = (percent(seen.device_share.back()), percent(seen.ram_share.back()));
        let (points, text, colour) = match seen.room() {
            0 => {
                let text = [format!("found in RAM {in_ram}"), format!("in RAM {in_ram}")];
                (&seen.ram_share, text, Kind::Ram.colour())
            }
            _ => {
                let long = format!("on devices {on_devices}, rest in RAM {in_ram}");
                let text = [long, format!("devices {on_devices}, RAM {in_ram}")];
                (&seen.device_share, text, Kind::Device.colour())
            }
        };
        let text = fitting(text, share_title.width);
        frame.render_widget(Paragraph::new(text), share_title);
        let points = last_of(points, share.width).map(|share| (share.unwrap_or(0.0) * 1000.0) as u64);
        let line = Sparkline::default().max(1000).style(self.styled(colour));
        frame.render_widget(line.data(points.collect::<Vec<u64>>()), share);
    }

    fn gauges(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let size = ByteSize;
        // Each with a longer and a shorter text.
        let mut all = Vec::new();
        if seen.capacity > 0 {
            let (held, of) = (size(seen.resident), size(seen.capacity));
            let text = [format!("slots in RAM {held} of {of}"), format!("RAM {held} of {of}")];
            all.push((seen.resident as f64 / seen.capacity as f64, text));
        }
        let room = seen.room();
        if room > 0 {
            let held = seen.at(DEVICE);
            let text = format!("copies {held} of {room}");
            let text = [format!("{text} ({})", size(seen.device_bytes)), text];
            all.push((held as f64 / room as f64, text));
        }
        if all.is_empty() {
            let (there, of) = (seen.at(RAM), seen.places.len());
            let text = format!("experts in RAM {there} of {of}");
            all.push((there as f64 / of.max(1) as f64, [text.clone(), text]));
        }
        let line = |bar: usize, text: usize| {
            let spans = all.iter().flat_map(|(share, texts)| {
                let full = (share * bar as f64).round().clamp(0.0, bar as f64) as usize;
                let bar = "█".repeat(full) + &"░".repeat(bar - full);
                let text = Span::raw(format!(" {}  ", texts[text]));
                [Span::styled(bar, self.styled(Color::Green)), text]
            });
            Line::from(spans.collect::<Vec<_>>())
        };
        let width = usize::from(area.width) + 2;
        let first = match line(BAR, 0) {
            long if long.width() <= width => long,
            _ => line(SHORT_BAR, 1),
        };
        let counters = &seen.counters;
        let disk = format!("disk {}/s, {} read", size(seen.reading.max(0.0) as u64), size(counters.read));
        let waited = format!("{disk}, waited {:.1} s", counters.stall_ms as f64 / 1000.0);
        let exchanged = counters.exchanged;
        let second = fitting(
            [
                format!("{waited}; {exchanged} experts copied to devices"),
                format!("{waited}; {exchanged} copied"),
                disk,
            ],
            area.width,
        );
        frame.render_widget(Paragraph::new(vec![first, Line::from(second)]), area);
    }

    fn grid(&self, frame: &mut Frame<'_>, [title, area]: [Rect; 2], seen: &Seen) {
        let width = usize::from(area.width);
        let each = grid::each(seen, width);
        let rows = usize::from(area.height);
        let first = self.first.min(seen.layers.len().saturating_sub(rows));
        let shown: Vec<Line<'_>> = seen
            .layers
            .iter()
            .skip(first)
            .take(rows)
            .map(|layer| grid::line(seen, layer, each, self.colours))
            .collect();
        let mut text = match shown.len() {
            0 => "no experts".to_owned(),
            shown if shown == seen.layers.len() => format!("{shown} layers"),
            shown => format!("layers {} to {} of {}", first + 1, first + shown, seen.layers.len()),
        };
        if each > 1 {
            text += &format!(", {each} experts a cell");
        }
        let names = [
            (Kind::Device, "device", "D device "),
            (Kind::Ram, "RAM", "R RAM "),
            (Kind::Reading, "being read", "~ being read "),
            (Kind::Disk, "disk", ": disk"),
        ];
        // The colours of the legend are needed more than the number of layers.
        let legend: usize = names.iter().map(|(_, name, _)| name.chars().count() + 3).sum();
        if text.chars().count() + ": ".len() + legend > width + 1 {
            text = text.replace(" experts a cell", " a cell");
        }
        let mut spans = vec![Span::raw(text + ": ")];
        for (kind, name, plain) in names {
            if self.colours {
                spans.push(Span::styled(format!("█ {name} "), Style::new().fg(kind.colour())));
            } else {
                spans.push(Span::raw(plain));
            }
        }
        let small = " (small: used less than others)";
        let taken: usize = spans.iter().map(Span::width).sum();
        if !self.colours && taken + small.len() <= width {
            spans.push(Span::raw(small));
        }
        frame.render_widget(Paragraph::new(Line::from(spans)), title);
        frame.render_widget(Paragraph::new(shown), area);
    }

    fn foot(&self, width: u16) -> Line<'_> {
        let keys = match self.keys {
            true => ["q quit  m mode  r reset window  ↑↓ layers  ", "q quit  m mode  r reset  ↑↓ layers  "],
            false => [""; 2],
        };
        let text = printable(if self.said.is_empty() { &self.url } else { &self.said }).to_string();
        let whole = |keys: &str| keys.chars().count() + text.chars().count() <= usize::from(width);
        let keys = if whole(keys[0]) { keys[0] } else { keys[1] };
        Line::from(vec![Span::raw(keys), Span::styled(text, Style::new().add_modifier(Modifier::DIM))])
    }

    fn styled(&self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }
}

/// The last points that fit.
fn last_of<T>(points: &std::collections::VecDeque<T>, width: u16) -> impl Iterator<Item = &T> {
    points.iter().skip(points.len().saturating_sub(usize::from(width)))
}

/// The first of some texts that has room in this many columns, or the last one.
fn fitting<const N: usize>(texts: [String; N], width: u16) -> String {
    let mut texts = texts.into_iter().peekable();
    while let Some(text) = texts.next() {
        if text.chars().count() <= usize::from(width) || texts.peek().is_none() {
            return text;
        }
    }
    String::new()
}

/// A line for each server slot.
fn slots_of(seen: &Seen, width: u16) -> Vec<Line<'_>> {
    let line = |(number, slot): (usize, &super::seen::Slot)| {
        let state = printable(&slot.state);
        let text = format!("slot {number} {state}: holds {} of {}", slot.held, slot.context);
        let (prompt, generated) = (slot.prompt, slot.generated);
        Line::from(match slot.state.as_str() {
            "idle" => text,
            _ => fitting(
                [
                    format!("{text}, prompt {prompt}, generated {generated}"),
                    format!(
                        "slot {number} {state}: {} of {}, {prompt} + {generated}",
                        slot.held, slot.context
                    ),
                ],
                width,
            ),
        })
    };
    let mut lines: Vec<Line<'_>> = seen.slots.iter().enumerate().take(SLOTS).map(line).collect();
    if seen.slots.len() > SLOTS {
        lines.push(Line::from(format!("and {} more slots", seen.slots.len() - SLOTS)));
    }
    lines
}
