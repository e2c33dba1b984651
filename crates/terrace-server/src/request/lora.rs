//! The adapters of a request.

use super::body::{Fields, wrong};
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;
use std::ops::RangeInclusive;
use terrace_engine::Scales;

/// Scales that have a meaning.
const SCALES: RangeInclusive<f64> = -1e6..=1e6;

/// Reads llama-server's `lora`. Adapters that it does not name are left out; without it, requests get
/// what `POST /lora-adapters` has set.
///
/// # Errors
/// It is not a list of adapters.
pub fn lora(fields: &mut Fields, ready: &Ready) -> Result<Scales, ApiError> {
    let place = fields.place("lora");
    match fields.take("lora") {
        None => Ok(ready.scales()),
        Some(Value::Array(list)) => scales(&place, list, ready.facts.adapters.len()),
        Some(other) => Err(wrong(&place, &other, "an array of objects with `id` and `scale`")),
    }
}

/// Reads a list of adapters by their numbers, each with a scale, of which there are `count`.
///
/// # Errors
/// A value is not such an adapter.
pub fn scales(place: &str, list: Vec<Value>, count: usize) -> Result<Scales, ApiError> {
    let mut scales = vec![0.0; count];
    for (index, adapter) in list.into_iter().enumerate() {
        let mut adapter = Fields::within(&format!("{place}[{index}]"), adapter)?;
        let place = adapter.place("id");
        let id = adapter.integer("id", 0..=i64::from(i32::MAX))?.ok_or_else(|| ApiError::missing(&place))?;
        let scale = adapter.number("scale", SCALES)?.unwrap_or(0.0);
        adapter.finish()?;
        let Some(known) = usize::try_from(id).ok().and_then(|id| scales.get_mut(id)) else {
            let loaded = match count {
                0 => "this server has loaded none".into(),
                1 => "the only one is 0".into(),
                count => format!("the last one is {}", count - 1),
            };
            return Err(ApiError::field(place, format!("there is no adapter {id}: {loaded}")));
        };
        *known = scale;
    }
    Ok(Scales::new(&scales))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: &Value, count: usize) -> Result<Scales, String> {
        let list = list.as_array().unwrap().clone();
        scales("lora", list, count).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn adapters_that_are_not_named_are_left_out() {
        assert_eq!(read(&json!([]), 2), Ok(Scales::default()));
        assert_eq!(read(&json!([{"id": 1, "scale": 0.5}]), 2), Ok(Scales::new(&[0.0, 0.5])));
        assert_eq!(read(&json!([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]), 1), Ok(Scales::new(&[2.0])));
        assert_eq!(read(&json!([{"id": 0}]), 1), Ok(Scales::default()), "as llama-server");
        for (list, part) in [
            (json!([{"scale": 1}]), "`lora[0].id`"),
            (json!([{"id": 0, "scale": 1e9}]), "`lora[0].scale`"),
            (json!([{"id": 0, "scale": "much"}]), "`lora[0].scale`"),
            (json!([{"id": 0}, 5]), "`lora[1]`"),
            (json!([{"id": -1, "scale": 1}]), "`lora[0].id`"),
            (json!([{"id": 2, "scale": 1}]), "there is no adapter 2: the last one is 1"),
            (json!([{"id": 0, "weight": 1}]), "weight"),
        ] {
            let error = read(&list, 2).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
