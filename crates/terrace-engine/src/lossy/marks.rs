//! The list of settings that are lossy, and the marks of those in effect.

use super::LossyPlan;
use crate::layer_skip::LayerSkip;
use crate::report::PlanReport;
use serde::Serialize;
use std::fmt;
use terrace_model::KvTypes;

/// A setting that changes tokens by more than rounding. Everything that reports what a model computes
/// takes its marks from this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossySetting {
    /// Other experts, fewer or in fewer bits, and skipped layers ([`PlanReport::lossy`]).
    Lossy,
    /// Layers that a calibration found ([`PlanReport::layer_skip`]).
    LayerSkip,
    /// Keys or values in a less precise type than `f16` ([`PlanReport::kv_type`]).
    KvType,
}

/// A lossy setting that is in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossyMark {
    pub setting: LossySetting,
    /// Its value: settings as they are written, skipped layers (`3+4`), or the type of keys and values.
    pub value: String,
    /// Effect and cost, in words.
    pub text: String,
}

impl LossySetting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lossy, Self::LayerSkip, Self::KvType];

    /// The mark of this setting; `None` if it is not in effect.
    fn mark(
        self,
        layer_skip: Option<&LayerSkip>,
        lossy: Option<&LossyPlan>,
        types: KvTypes,
    ) -> Option<LossyMark> {
        let (value, text) = match self {
            Self::Lossy => {
                let lossy = lossy.filter(|lossy| !lossy.settings.is_exact())?;
                (lossy.settings.to_string(), lossy.to_string())
            }
            Self::LayerSkip => {
                let skip = layer_skip.filter(|skip| !skip.skip.is_empty())?;
                let layers: Vec<String> = skip.skip.iter().map(u32::to_string).collect();
                (layers.join("+"), skip.to_string())
            }
            Self::KvType => {
                if !types.keys.is_lossy() && !types.values.is_lossy() {
                    return None;
                }
                (types.to_string(), format!("keys and values in {types}"))
            }
        };
        Some(LossyMark { setting: self, value, text })
    }
}

impl fmt::Display for LossySetting {
    /// `kv_type`, as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lossy => "lossy",
            Self::LayerSkip => "layer_skip",
            Self::KvType => "kv_type",
        })
    }
}

/// The marks of all lossy settings in effect; none if the model is computed exactly.
pub fn lossy_marks(
    layer_skip: Option<&LayerSkip>,
    lossy: Option<&LossyPlan>,
    types: KvTypes,
) -> Vec<LossyMark> {
    LossySetting::ALL.into_iter().filter_map(|setting| setting.mark(layer_skip, lossy, types)).collect()
}

impl PlanReport {
    /// The marks of all lossy settings in effect; none if the model is computed exactly.
    pub fn lossy_marks(&self) -> Vec<LossyMark> {
        lossy_marks(self.layer_skip.as_ref(), self.lossy.as_ref(), self.kv_type)
    }
}

impl fmt::Display for LossyMark {
    /// `lossy: keys and values in q8_0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lossy: {}", self.text)
    }
}
