//! Reads learn files. They may come from anywhere: every list is bounded by the size of the text,
//! and errors name line and column.

use super::launches::Reasons;
use super::number::{Count, Index, Mean};
use super::original::{self, LANES, TIME};
use super::pairs::Pairs;
use super::{ExpertUses, LearnFile, LearnLayer, MOST_BYTES, OLD_SCHEMA, Reported, SCHEMA, shown};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Text that is not a learn file. Displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LearnError {
    /// It is too long.
    #[error("{0} bytes are too many (at most {MOST_BYTES})")]
    TooLong(usize),
    /// The reason, with line and column.
    #[error("not a learn file: {0}")]
    Json(String),
}

impl LearnFile {
    /// Reads the text of a learn file.
    ///
    /// # Errors
    /// The text is no learn file, or contradicts itself.
    pub fn parse(text: &[u8]) -> Result<Self, LearnError> {
        if text.len() > MOST_BYTES {
            return Err(LearnError::TooLong(text.len()));
        }
        let wrong = |error: serde_json::Error| LearnError::Json(crate::parse_reason(&error));
        let mut from = serde_json::Deserializer::from_slice(text);
        let file = from.deserialize_map(OfFile).map_err(wrong)?;
        from.end().map_err(wrong)?;
        Ok(file)
    }
}

struct OfFile;

impl<'de> Visitor<'de> for OfFile {
    type Value = LearnFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `schema` and `layers`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LearnFile, A::Error> {
        let mut file = LearnFile::default();
        let (mut schema, mut layers) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema" => schema = Some(map.next_value::<Schema>()?),
                "mode" => {
                    let mode: String = map.next_value()?;
                    let wrong = |error| A::Error::custom(format_args!("mode `{}`: {error}", shown(&mode)));
                    file.mode = mode.parse().map_err(wrong)?;
                }
                "model" => file.model = map.next_value()?,
                "n_expert" => file.experts = Some(map.next_value::<Index>()?.0),
                "n_expert_used" => file.used = Some(map.next_value::<Index>()?.0),
                "layers" => layers = Some(map.next_value::<Layers>()?.0),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if schema.is_none() {
            return Err(A::Error::missing_field("schema"));
        }
        file.layers = layers.ok_or_else(|| A::Error::missing_field("layers"))?;
        // Writers set the mode of a file that holds counts to what they report now.
        if file.mode == Reported::Off && !file.layers.is_empty() {
            file.mode = Reported::Update;
        }
        if let Some(experts) = file.experts {
            let beyond =
                |layer: &LearnLayer| layer.experts.last().filter(|uses| uses.expert >= experts).copied();
            if let Some((layer, uses)) =
                file.layers.iter().find_map(|layer| Some((layer.layer, beyond(layer)?)))
            {
                return Err(A::Error::custom(format_args!(
                    "layer {layer} uses expert {}, but `n_expert` is {experts}",
                    uses.expert
                )));
            }
        }
        Ok(file)
    }
}

/// The name of a schema that is known.
struct Schema;

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == SCHEMA || name == OLD_SCHEMA {
            return Ok(Self);
        }
        let name = shown(&name);
        Err(D::Error::custom(format_args!("schema `{name}` is neither {SCHEMA} nor {OLD_SCHEMA}")))
    }
}

/// The list of layers, in ascending order, without those in which no expert was used.
struct Layers(Vec<LearnLayer>);

impl<'de> Deserialize<'de> for Layers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(OfLayers)
    }
}

struct OfLayers;

impl<'de> Visitor<'de> for OfLayers {
    type Value = Layers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of layers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Layers, A::Error> {
        let (mut layers, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(Layer(layer)) = list.next_element()? {
            if !seen.insert(layer.layer) {
                return Err(A::Error::custom(format_args!("layer {} is listed twice", layer.layer)));
            }
            if !layer.experts.is_empty() {
                layers.push(layer);
            }
        }
        layers.sort_by_key(|layer| layer.layer);
        Ok(Layers(layers))
    }
}

struct Layer(LearnLayer);

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OfLayer)
    }
}

struct OfLayer;

impl<'de> Visitor<'de> for OfLayer {
    type Value = Layer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a layer: an object with `layer`, and `experts` or `hot_experts` and `cold_experts`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Layer, A::Error> {
        let (mut number, mut cold_total) = (None, None);
        let (mut layer, mut lanes) = (LearnLayer::default(), [0u64; LANES]);
        let [mut all, mut hot, mut cold] = [(); 3].map(|()| Pairs::default());
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "layer" => number = Some(map.next_value::<Index>()?.0),
                "calls" => layer.calls = map.next_value::<Count>()?.0,
                "experts" => all = map.next_value()?,
                "hot_experts" => hot = map.next_value()?,
                "cold_experts" => cold = map.next_value()?,
                "cold_slots_total" => cold_total = Some(map.next_value::<Count>()?.0),
                "cold_slots_per_call" => layer.cold_per_call = map.next_value::<Mean>()?.0,
                name if name.ends_with(TIME) => {
                    // The original writes a zero for what it has not measured.
                    let unknown = |time: f64| time == 0.0 && original::is_time(&key);
                    if let Some(time) = map.next_value::<Mean>()?.0.filter(|time| !unknown(*time)) {
                        layer.times.insert(key, time);
                    }
                }
                "hot0_slots_total" => lanes[0] = map.next_value::<Count>()?.0,
                "hot1_slots_total" => lanes[1] = map.next_value::<Count>()?.0,
                "hot2_slots_total" => lanes[2] = map.next_value::<Count>()?.0,
                "parallel_fallback_reasons" => layer.launches.reasons = map.next_value::<Reasons>()?.0,
                name => match layer.launches.named_mut(name) {
                    Some(count) => *count = map.next_value::<Count>()?.0,
                    None => drop(map.next_value::<IgnoredAny>()?),
                },
            }
        }
        let worked =
            |lane: &usize| lanes.iter().enumerate().all(|(other, slots)| (other == *lane) == (*slots > 0));
        layer.lane = (0..LANES).find(worked).unwrap_or(0);
        layer.layer = number.ok_or_else(|| A::Error::missing_field("layer"))?;
        if layer.cold_per_call.is_none() && layer.calls > 0 {
            layer.cold_per_call = cold_total.map(|total| total as f64 / layer.calls as f64);
        }
        layer.split = !hot.0.is_empty();
        // Separate counts are more exact than those of both; the original's rule as well.
        if hot.0.is_empty() && cold.0.is_empty() {
            cold = all;
        }
        layer.experts = merged(hot.0, cold.0);
        Ok(Layer(layer))
    }
}

/// Both kinds of uses by expert, ascending.
fn merged(hot: BTreeMap<u32, u64>, cold: BTreeMap<u32, u64>) -> Vec<ExpertUses> {
    let mut all: BTreeMap<u32, ExpertUses> = BTreeMap::new();
    let mut of = |expert: u32, [hot, cold]: [u64; 2]| {
        let uses = all.entry(expert).or_insert(ExpertUses { expert, hot: 0, cold: 0 });
        uses.hot += hot;
        uses.cold += cold;
    };
    hot.into_iter().for_each(|(expert, count)| of(expert, [count, 0]));
    cold.into_iter().for_each(|(expert, count)| of(expert, [0, count]));
    all.into_values().collect()
}
