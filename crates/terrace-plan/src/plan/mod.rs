//! The plan of a run: what lives where, and how fast that should be. One value, made once.

pub(crate) mod decided;
pub(crate) mod file;
mod layer_table;
pub(crate) mod mode;
pub(crate) mod on_devices;
pub mod parts;
pub(crate) mod planner;
mod reads;
pub(crate) mod show;
pub(crate) mod tables;
mod tier_bars;
pub(crate) mod warning;

pub use file::{FileError, PLAN_VERSION, ParsePlanError, PlanFile};
pub use mode::Mode;
pub use on_devices::OnDevices;
pub use parts::{Estimate, HotCopies, PlannedContext, PlannedLayer, PlannedModel, TierUse, TransitSlots};
pub use planner::Planner;
pub use reads::ReadsReason;
pub use warning::{Note, Warning, token_cycle_warning};

use crate::model::selection::Selection;
use crate::options::manage::Manage;
use serde::{Deserialize, Serialize};
use terrace_model::ByteSize;

/// A placement with its estimate. `Display` is one line; [`Plan::tables`] shows tiers, layers
/// and the estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    pub model: PlannedModel,
    /// Name in the machine's description.
    pub machine: String,
    /// The kind of run.
    pub mode: Mode,
    /// The mode in words, with copies of experts on devices and the modes of layers if these
    /// differ.
    pub summary: String,
    /// The planner that found it.
    pub planner: Planner,
    /// The narrowest set that contains all streamed weights; never [`Manage::Auto`].
    pub manage: Manage,
    /// Most RAM that weights may take: resident ones and slots.
    pub budget: ByteSize,
    /// True if the budget was chosen automatically.
    pub auto_budget: bool,
    /// The smallest budget with which this selection can be streamed.
    pub minimum: ByteSize,
    /// Bytes of weights that stay in RAM.
    pub resident: ByteSize,
    /// Bytes of weights that the page cache serves: all weights, or none.
    pub mapped: ByteSize,
    /// Bytes of resident weights that `manage` names, but the budget can hold.
    pub pinned: ByteSize,
    /// RAM for the slots that weights stream through.
    pub slots: ByteSize,
    /// Number of streamed tensors.
    pub managed_tensors: usize,
    /// Bytes of the streamed tensors.
    pub managed_bytes: ByteSize,
    /// Bytes of weights on devices.
    pub on_devices: ByteSize,
    /// Bytes of streamed weights that one token uses: top-k bundles of each layer, and dense
    /// matrices whole. With smaller slots a global LRU never hits.
    pub token_cycle: ByteSize,
    /// The context, which takes memory before any weight.
    pub context: PlannedContext,
    /// RAM for conversations that are kept beside the context, outside of the budget as well.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub prompt_cache: ByteSize,
    /// True if reads bypass the page cache.
    pub direct: bool,
    /// The reason for `direct`.
    pub direct_reason: ReadsReason,
    /// RAM, devices and disk.
    pub tiers: Vec<TierUse>,
    /// The layers in order, the output head last.
    pub layers: Vec<PlannedLayer>,
    /// Copies of experts on devices, by layer.
    pub hot: Vec<HotCopies>,
    /// Transit slots for layers without copies, by device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transit: Vec<TransitSlots>,
    /// Names of matrices that are read from disk for every token.
    pub streamed: Vec<String>,
    /// Names of tables whose rows are read from disk.
    pub read_by_row: Vec<String>,
    /// The expected speed; `None` for models without layers.
    pub estimate: Option<Estimate>,
    /// The same for the prompt and the answer of the run, as far as these are given: plans are made for usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Estimate>,
    /// Warnings for the user.
    pub warnings: Vec<Warning>,
    /// The streamed tensors.
    #[serde(skip)]
    pub managed: Selection,
    /// Tensors on devices.
    #[serde(skip)]
    pub devices: OnDevices,
}

fn is_nothing(size: &ByteSize) -> bool {
    *size == ByteSize::ZERO
}

impl Plan {
    /// Returns the slots of the plan's minimum: the fewest that its graphs can be computed with.
    pub fn least_slots(&self) -> ByteSize {
        self.minimum.saturating_sub(self.resident.saturating_sub(self.pinned))
    }

    /// Returns whether all mapped weights fit into `available` memory together with the context, so
    /// that they can be brought into memory ahead of use.
    pub fn populates(&self, available: ByteSize) -> bool {
        self.mapped > ByteSize::ZERO && self.mapped + self.context.ram + self.prompt_cache <= available
    }
}
