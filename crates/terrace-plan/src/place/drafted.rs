//! Speed-up by drafts with an assignment.

use super::assignment::Assignment;
use super::costs::Costs;
use super::round::round;
use super::workload::Workload;
use crate::drafts::{LEAST_GAIN, best};
use crate::machine::MachineProfile;
use crate::plan::parts::DraftGain;
use crate::wishes::Wishes;

/// Most drafts of a pass that plans reckon with.
const MAX_DRAFTS: usize = 6;
/// Steps of the search for the least share of right drafts that pays.
const HALVINGS: u32 = 12;

/// Estimates what drafts gain: passes of several tokens of one sequence cost what graphs cost that
/// generate a token for each of as many clients. Their experts are taken as independent, and drafts as
/// costing nothing. `None` if there are several clients.
pub fn gain(
    assignment: &Assignment,
    (work, costs): (&Workload, &Costs),
    machine: &MachineProfile,
    wishes: &Wishes,
    ubatch: u32,
) -> Option<DraftGain> {
    if wishes.clients > 1 || wishes.drafts_right <= 0.0 {
        return None;
    }
    let seconds = |tokens: u32| {
        let wide = Wishes { clients: tokens, ..wishes.clone() };
        let mut wide = Costs::of(work, machine, &wide, ubatch);
        for (device, as_planned) in wide.devices.iter_mut().zip(&costs.devices) {
            device.alone = as_planned.alone;
        }
        assignment.decode(work, &wide).total
    };
    let most = u32::try_from(MAX_DRAFTS).expect("a small constant");
    let times: Vec<f64> =
        std::iter::once(assignment.decode(work, costs).total).chain((2..=most + 1).map(seconds)).collect();
    let at = |right: f64| best(MAX_DRAFTS, |_| right, |tokens| times[tokens - 1], 0.0);
    let (drafts, gain) = at(wishes.drafts_right);
    let pays_from = (at(1.0).1 > LEAST_GAIN).then(|| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if at(middle).1 > LEAST_GAIN { high = middle } else { low = middle }
        }
        round(high)
    });
    let drafts = u32::try_from(drafts).expect("a small number");
    Some(DraftGain { right: wishes.drafts_right, drafts, gain: round(gain), pays_from })
}
