//! Copies of each layer on several devices: which device each slot is on.

use super::devices::alone;
use super::hot_asked::Asked;
use crate::options::Options;
use terrace_host::machine::known_machine;
use terrace_lanes::LanePlan;
use terrace_model::ModelFile;
use terrace_plan::HotSplit;
use terrace_plan::copies::places_on_all;
use terrace_plan::model::ExpertGroup;

/// The bandwidths that the division depends on: those of this machine's devices, if the hottest
/// experts are divided by them.
pub fn speeds(file: &ModelFile, options: &Options) -> Vec<(String, f64)> {
    match options.hot.hot_split {
        HotSplit::Even if options.hot.is_given() => {
            let devices = known_machine(file, &options.user).devices;
            devices.into_iter().map(|device| (device.name.clone(), device.bandwidth())).collect()
        }
        _ => Vec::new(),
    }
}

/// Makes one lane of those of single devices, with the slots that they have. The error says why that
/// is impossible, and returns them.
pub fn divided(
    groups: &[ExpertGroup],
    plans: Vec<LanePlan>,
    asked: Asked<'_>,
) -> Result<LanePlan, (Vec<LanePlan>, String)> {
    if plans.len() < 2 {
        let device = plans.first().and_then(|plan| plan.devices.first()).copied();
        return Err((plans, alone(device, asked.wishes)));
    }
    let speed = |plan: &LanePlan| {
        let name = plan.devices[0].name();
        asked.speeds.iter().find(|(device, _)| *device == name).map_or(1.0, |(_, speed)| *speed)
    };
    let shares: Vec<f64> = plans.iter().map(speed).collect();
    let slots: Vec<_> = plans.iter().map(LanePlan::slots).collect();
    let places = places_on_all(groups, &slots, &shares, asked.wishes.hot.hot_split);
    let devices = plans.iter().flat_map(|plan| plan.devices.iter().copied()).collect();
    Ok(LanePlan::with_experts(devices, places))
}
