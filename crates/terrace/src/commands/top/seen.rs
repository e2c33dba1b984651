//! State of a server's experts, from the events of its stream.

use serde_json::Value;
use std::collections::VecDeque;

/// Bits of a place.
pub const RAM: u8 = 1;
pub const DEVICE: u8 = 2;
pub const READING: u8 = 4;

/// Seconds after which a use counts half.
const HALF_LIFE: f64 = 4.0;
/// Points of history that are kept.
const POINTS: usize = 400;
/// The modes, in the order in which a key goes through them.
const MODES: [&str; 3] = ["full", "update", "off"];

/// A server slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub state: String,
    pub held: u64,
    pub context: u64,
    pub prompt: u64,
    pub generated: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    pub number: u64,
    /// Its first expert among all, and how many it has.
    pub start: usize,
    pub experts: usize,
    /// Experts with room on its device.
    pub slots: u64,
    /// True if its device is lost.
    pub lost: bool,
    /// Pairs of token and expert so far, and those that devices computed.
    pub pairs: [u64; 2],
}

/// The numbers of an event that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub generated: u64,
    pub prompt: u64,
    pub pairs: u64,
    pub on_devices: u64,
    pub hits: u64,
    pub misses: u64,
    pub joined: u64,
    pub read: u64,
    pub exchanged: u64,
    pub stall_ms: u64,
}

/// State so far.
#[derive(Debug, Default)]
pub struct Seen {
    pub model: String,
    pub slots: Vec<Slot>,
    pub mode: String,
    pub epoch: u64,
    pub waiting: u64,
    pub layers: Vec<Layer>,
    /// By expert, through all layers.
    pub uses: Vec<u64>,
    pub places: Vec<u8>,
    pub heat: Vec<f64>,
    pub counters: Counters,
    /// Memory of devices for copies, and bytes of the slots in RAM: in use, and all.
    pub device_bytes: u64,
    pub resident: u64,
    pub capacity: u64,
    /// When the last event came, in seconds; `None` before the first, and after an interruption.
    last: Option<f64>,
    /// Rates at each event: tokens per second, shares of what happened since the one before; `None`
    /// where nothing did.
    pub speed: VecDeque<f64>,
    pub device_share: VecDeque<Option<f64>>,
    pub ram_share: VecDeque<Option<f64>>,
    /// Bytes per second, smoothed.
    pub reading: f64,
}

impl Seen {
    /// Takes an event that came at this time, in seconds.
    pub fn take(&mut self, event: &Value, time: f64) {
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        if let Some(layers) = event["layers"].as_array() {
            self.set_layers(layers);
        }
        let whole = event["whole"] == true;
        if whole {
            self.uses.fill(0);
            self.places.fill(0);
        }
        let elapsed = self.last.map(|last| (time - last).max(1e-3));
        let cooler = elapsed.map_or(1.0, |seconds| 0.5f64.powf(seconds / HALF_LIFE));
        self.heat.iter_mut().for_each(|heat| *heat *= cooler);
        let first = whole && self.last.is_none();
        each(&event["uses"], |index, count| {
            if let Some(uses) = self.uses.get_mut(index) {
                // What was used before is not hot for that.
                let more = if first { 0 } else { count.saturating_sub(*uses) };
                self.heat[index] += more as f64;
                *uses = count;
            }
        });
        each(&event["places"], |index, place| {
            if let Some(known) = self.places.get_mut(index) {
                *known = u8::try_from(place).unwrap_or(0);
            }
        });
        let pairs = event["layer_pairs"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (layer, pairs) in self.layers.iter_mut().zip(pairs.chunks_exact(2)) {
            layer.pairs = [&pairs[0], &pairs[1]].map(|count| count.as_u64().unwrap_or(0));
        }
        let now = Counters {
            generated: number("generated_tokens"),
            prompt: number("prompt_tokens"),
            pairs: number("pairs"),
            on_devices: number("pairs_on_devices"),
            hits: number("hits"),
            misses: number("misses"),
            joined: number("joined"),
            read: number("read_bytes"),
            exchanged: number("exchanged"),
            stall_ms: number("stall_ms"),
        };
        if let Some(seconds) = elapsed {
            self.add_point(&now, seconds);
        }
        self.counters = now;
        self.mode = event["mode"].as_str().unwrap_or_default().to_owned();
        (self.epoch, self.waiting) = (number("epoch"), number("waiting"));
        self.device_bytes = number("device_bytes");
        (self.resident, self.capacity) = (number("resident_bytes"), number("capacity_bytes"));
        self.last = Some(time);
    }

    /// The server went away: what comes next does not follow what was.
    pub const fn interrupt(&mut self) {
        self.last = None;
    }

    /// The mode after the current one.
    pub fn next_mode(&self) -> &'static str {
        let now = MODES.iter().position(|mode| *mode == self.mode).unwrap_or(MODES.len() - 1);
        MODES[(now + 1) % MODES.len()]
    }

    /// Experts with room on devices.
    pub fn room(&self) -> u64 {
        self.layers.iter().map(|layer| layer.slots).sum()
    }

    /// Experts that are at this place.
    pub fn at(&self, place: u8) -> usize {
        self.places.iter().filter(|known| **known & place != 0).count()
    }

    fn set_layers(&mut self, layers: &[Value]) {
        let mut start = 0;
        let layer = |layer: &Value| {
            let number = |name: &str| layer[name].as_u64().unwrap_or(0);
            let experts = usize::try_from(number("experts")).unwrap_or(0).min(65_536);
            let known = Layer {
                number: number("layer"),
                start,
                experts,
                slots: number("slots"),
                lost: layer["problem"].is_string(),
                pairs: [0; 2],
            };
            start += experts;
            known
        };
        self.layers = layers.iter().map(layer).collect();
        if start != self.uses.len() {
            (self.uses, self.places, self.heat) = (vec![0; start], vec![0; start], vec![0.0; start]);
        }
    }

    fn add_point(&mut self, now: &Counters, seconds: f64) {
        let since = |of: fn(&Counters) -> u64| of(now).saturating_sub(of(&self.counters)) as f64;
        let share = |part: f64, all: f64| (all > 0.0).then(|| part / all);
        let speed = since(|counters| counters.generated) / seconds;
        let device = share(since(|counters| counters.on_devices), since(|counters| counters.pairs));
        let hits = since(|counters| counters.hits);
        let all = hits + since(|counters| counters.misses) + since(|counters| counters.joined);
        let read = since(|counters| counters.read) / seconds;
        self.reading += (read - self.reading) * 0.3;
        push(&mut self.speed, speed);
        push(&mut self.device_share, device);
        push(&mut self.ram_share, share(hits, all));
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    points.push_back(point);
    if points.len() > POINTS {
        points.pop_front();
    }
}

/// Reads a list of distances and values.
fn each(list: &Value, mut take: impl FnMut(usize, u64)) {
    let mut next = 0usize;
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    for pair in list.chunks_exact(2) {
        let [distance, value] = [&pair[0], &pair[1]].map(|number| number.as_u64().unwrap_or(0));
        let index = next.saturating_add(usize::try_from(distance).unwrap_or(usize::MAX));
        take(index, value);
        next = index.saturating_add(1);
    }
}
