//! Changes of experts as JSON, short enough to be sent several times a second: experts are numbered
//! through all layers, and lists hold pairs of the distance from the previous expert and a value.

use super::values::{LayerValues, Values};
use serde::Serialize;
use std::fmt::Write;
use terrace_model::learn::Reported;
use terrace_serving::{ServingStatus, SlotState, SlotStatus};

/// Values that are sent whether or not an expert changed.
#[derive(Serialize)]
pub struct Head {
    /// To be sent back as `since`.
    cursor: u64,
    /// Mode of the reports at `/moe-layer-perf`.
    mode: Reported,
    /// Jobs that are computed, and those that wait.
    working: usize,
    waiting: usize,
    epoch: u64,
    prompt_tokens: u64,
    generated_tokens: u64,
    /// Pairs of token and expert, and how many of them devices computed, since the load.
    pairs: u64,
    pairs_on_devices: u64,
    /// Memory of devices for copies.
    device_bytes: u64,
    exchanged: u64,
    #[serde(flatten)]
    store: Option<StoreHead>,
}

#[derive(Serialize)]
struct StoreHead {
    hits: u64,
    misses: u64,
    joined: u64,
    read_bytes: u64,
    stall_ms: u64,
    resident_bytes: u64,
    capacity_bytes: u64,
}

impl Head {
    pub fn of(values: &Values, status: &ServingStatus, mode: Reported) -> Self {
        let sum = |index: usize| values.layers.iter().map(|layer| layer.pairs[index]).sum();
        let hot = status.hot.unwrap_or_default();
        let working = |slot: &&SlotStatus| slot.state != SlotState::Idle;
        Self {
            cursor: values.cursor,
            mode,
            working: status.slots.iter().filter(working).count(),
            waiting: status.waiting,
            epoch: status.epoch,
            prompt_tokens: status.totals.prompt_tokens,
            generated_tokens: status.totals.generated_tokens,
            pairs: sum(0),
            pairs_on_devices: sum(1),
            device_bytes: hot.memory.bytes(),
            exchanged: hot.filled + hot.exchanged,
            store: status.store.as_ref().map(|store| StoreHead {
                hits: store.hits,
                misses: store.misses,
                joined: store.joined,
                read_bytes: store.bytes_read.bytes(),
                stall_ms: u64::try_from(store.stall.as_millis()).unwrap_or(u64::MAX),
                resident_bytes: store.resident.bytes(),
                capacity_bytes: store.capacity.bytes(),
            }),
        }
    }
}

#[derive(Serialize)]
struct Layer<'a> {
    layer: u32,
    experts: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    device: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    slots: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Writes changes after `since`, or everything.
pub fn write(values: &Values, since: Option<u64>, head: &Head) -> String {
    let mut text = serde_json::to_string(head).expect("plain data");
    text.pop();
    let after = since.unwrap_or(0);
    if since.is_none() {
        text.push_str(r#","whole":true"#);
    }
    if values.layers_changed > after {
        let of = |LayerValues { layer, experts, device, slots, problem, .. }: &LayerValues| {
            let layer = Layer {
                layer: *layer,
                experts: *experts,
                device,
                slots: *slots,
                problem: problem.as_deref(),
            };
            serde_json::to_string(&layer).expect("plain data")
        };
        let layers: Vec<String> = values.layers.iter().map(of).collect();
        let _ = write!(text, r#","layers":[{}]"#, layers.join(","));
    }
    text.push_str(r#","layer_pairs":["#);
    for (index, LayerValues { pairs: [all, hot], .. }) in values.layers.iter().enumerate() {
        let _ = write!(text, "{}{all},{hot}", if index > 0 { "," } else { "" });
    }
    text.push(']');
    list(&mut text, "uses", values.uses.after(after));
    list(&mut text, "places", values.places.after(after));
    text.push('}');
    text
}

/// Appends a list of distances and values.
fn list(text: &mut String, name: &str, values: impl Iterator<Item = (usize, u64)>) {
    let _ = write!(text, r#","{name}":["#);
    let mut next = 0;
    for (index, (at, value)) in values.enumerate() {
        let _ = write!(text, "{}{},{value}", if index > 0 { "," } else { "" }, at - next);
        next = at + 1;
    }
    text.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use terrace_backend::{ExpertPlace, LayerUsage};
    use terrace_engine::{ExpertsSeen, LayerSeen};
    use terrace_model::LayerId;

    /// Reads a change into values as a client does.
    #[derive(Default, Debug, PartialEq)]
    struct Client {
        cursor: Option<u64>,
        uses: Vec<u64>,
        places: Vec<u64>,
    }

    impl Client {
        fn read(&mut self, values: &mut Values) -> Value {
            let change = values.change(self.cursor, &ServingStatus::default(), Reported::Full);
            let json: Value = serde_json::from_str(&change.text).unwrap();
            if json["whole"] == true {
                let layers = json["layers"].as_array().unwrap();
                (self.uses, self.places) = Default::default();
                let count = layers.iter().map(|layer| layer["experts"].as_u64().unwrap()).sum::<u64>();
                self.uses.resize(usize::try_from(count).unwrap(), 0);
                self.places.resize(self.uses.len(), 0);
            }
            for (name, all) in [("uses", &mut self.uses), ("places", &mut self.places)] {
                let list: Vec<u64> =
                    json[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
                let mut next = 0;
                for pair in list.chunks(2) {
                    let at = next + usize::try_from(pair[0]).unwrap();
                    all[at] = pair[1];
                    next = at + 1;
                }
            }
            assert_eq!(json["cursor"].as_u64(), Some(change.cursor));
            self.cursor = Some(change.cursor);
            json
        }
    }

    fn usage(all: &[u64], layer: u32) -> LayerUsage {
        LayerUsage {
            layer: LayerId(layer),
            calls: 1,
            all: all.into(),
            hot: vec![0; all.len()],
            time: std::time::Duration::ZERO,
        }
    }

    fn seen(places: &[&[u8]]) -> ExpertsSeen {
        let layer = |(layer, places): (u32, &&[u8])| LayerSeen {
            layer,
            places: places.iter().map(|place| ExpertPlace(*place)).collect(),
        };
        ExpertsSeen { layers: (0..).zip(places).map(layer).collect(), ..ExpertsSeen::default() }
    }

    #[test]
    fn a_client_knows_all_values_after_each_change() {
        let mut values = Values::default();
        values.update(vec![usage(&[1, 0, 7], 0), usage(&[0, 2], 1)], &seen(&[&[1, 0, 3], &[0, 4]]));
        let mut client = Client::default();
        let all = client.read(&mut values);
        assert_eq!((&client.uses[..], &client.places[..]), (&[1, 0, 7, 0, 2][..], &[1, 0, 3, 0, 4][..]));
        assert_eq!(all["layer_pairs"], serde_json::json!([8, 0, 2, 0]));
        assert_eq!(all["layers"][1], serde_json::json!({"layer": 1, "experts": 2}));
        values.update(vec![usage(&[1, 5, 7], 0), usage(&[0, 2], 1)], &seen(&[&[1, 0, 3], &[1, 4]]));
        let some = client.read(&mut values);
        assert_eq!((&client.uses[..], &client.places[..]), (&[1, 5, 7, 0, 2][..], &[1, 0, 3, 1, 4][..]));
        assert!(some.get("layers").is_none());
        assert_eq!(some["uses"], serde_json::json!([1, 5]));
        values.update(vec![usage(&[1, 5, 7], 0), usage(&[0, 2], 1)], &seen(&[&[1, 0, 3], &[1, 4]]));
        assert_eq!(client.read(&mut values)["uses"], serde_json::json!([]));
    }

    #[test]
    fn cursors_of_another_run_get_everything() {
        let mut values = Values::default();
        values.update(vec![usage(&[1], 0)], &seen(&[&[1]]));
        for cursor in [0, 1, values.cursor - 1, values.cursor + 1, u64::MAX] {
            let mut client = Client { cursor: Some(cursor), ..Client::default() };
            client.read(&mut values);
            assert_eq!(client.uses, [1], "{cursor}");
        }
    }

    /// The largest models: each experts' use changes with every event.
    #[test]
    fn the_largest_model_fits_in_few_bytes() {
        let (layers, experts) = (94, 512);
        let mut values = Values::default();
        let places: Vec<Vec<u8>> = vec![vec![1; experts]; layers];
        let places: Vec<&[u8]> = places.iter().map(Vec::as_slice).collect();
        let mut client = Client::default();
        let mut longest = 0;
        for round in 1..4_u64 {
            let all = vec![round * 1000; experts];
            values.update((0..94).map(|layer| usage(&all, layer)).collect(), &seen(&places));
            let change = values.change(client.cursor, &ServingStatus::default(), Reported::Full);
            longest = longest.max(change.text.len());
            client.read(&mut values);
        }
        assert!(client.uses.iter().all(|uses| *uses == 3000));
        assert!(longest < 16 * layers * experts, "{longest} bytes");
    }
}
