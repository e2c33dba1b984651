//! What lives where in a run, and what that should cost: one value, made once.

pub(crate) mod decided;
pub(crate) mod file;
pub(crate) mod mode;
pub(crate) mod on_devices;
pub mod parts;
pub(crate) mod planner;
mod reads;
mod show;
mod tables;
pub(crate) mod warning;

pub use file::{FileError, PLAN_VERSION, ParsePlanError, PlanFile};
pub use mode::Mode;
pub use on_devices::OnDevices;
pub use parts::{Estimate, HotCopies, PlannedContext, PlannedLayer, PlannedModel, TierUse};
pub use planner::Planner;
pub use reads::ReadsReason;
pub use warning::{Note, Warning, token_cycle_warning};

use crate::model::selection::Selection;
use crate::wishes::manage::Manage;
use serde::{Deserialize, Serialize};
use terrace_model::ByteSize;

/// What lives where, and how fast that should be. `Display` is one line; `{:#}` is the whole table, warnings included;
/// [`Plan::tables`] are the tiers, the layers and the estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// What is planned.
    pub model: PlannedModel,
    /// Name of the machine's profile.
    pub machine: String,
    /// The kind of run.
    pub mode: Mode,
    /// The mode in words: with hot lanes, and with what differs between layers.
    pub summary: String,
    /// What found it.
    pub planner: Planner,
    /// The narrowest set that holds all of what is streamed; never [`Manage::Auto`].
    pub manage: Manage,
    /// Most RAM that weights may take: resident ones and slots.
    pub budget: ByteSize,
    /// Whether the budget was chosen here.
    pub auto_budget: bool,
    /// The smallest budget under which what is streamed can run.
    pub minimum: ByteSize,
    /// Weights that are in RAM for good.
    pub resident: ByteSize,
    /// Weights that the page cache serves: all of them, or none.
    pub mapped: ByteSize,
    /// Of the resident ones, weights that `manage` names and the budget can hold all the same.
    pub pinned: ByteSize,
    /// RAM for the slots that weights stream through.
    pub slots: ByteSize,
    /// Number of streamed tensors.
    pub managed_tensors: usize,
    /// Their bytes.
    pub managed_bytes: ByteSize,
    /// Bytes of weights on devices.
    pub on_devices: ByteSize,
    /// Bytes of streamed weights that one token touches: over the layers, top-k times the expert bundle; dense
    /// matrices whole. Slots below this hit nothing under a global LRU.
    pub token_cycle: ByteSize,
    /// The context, which is counted before any weight.
    pub context: PlannedContext,
    /// Whether to read around the page cache.
    pub direct: bool,
    /// Why.
    pub direct_reason: ReadsReason,
    /// RAM, devices and disk.
    pub tiers: Vec<TierUse>,
    /// The blocks in order, the output head last.
    pub layers: Vec<PlannedLayer>,
    /// Layers of which devices have copies of some experts.
    pub hot: Vec<HotCopies>,
    /// Matrices that are read from disk for every token.
    pub streamed: Vec<String>,
    /// Tables of which rows are read from disk.
    pub read_by_row: Vec<String>,
    /// How fast it should be; `None` for models without layers.
    pub estimate: Option<Estimate>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// The streamed tensors themselves.
    #[serde(skip)]
    pub managed: Selection,
    /// What lies on devices, tensor by tensor.
    #[serde(skip)]
    pub devices: OnDevices,
}

impl Plan {
    /// Whether mapped weights can all be in memory beside the context, so that they may be brought there before they are used.
    pub fn populates(&self, available: ByteSize) -> bool {
        self.mapped > ByteSize::ZERO && self.mapped + self.context.ram <= available
    }
}
