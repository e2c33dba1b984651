//! Generation that reads less and is not exact: off unless asked for, and never without its cost.
//!
//! [`LossySettings`] says what is done, a [`LossyFile`] also what that was measured to cost. Passes of
//! one token alone are routed with loss (terrace-backend, `lossy/`); layers are skipped, and fewer experts
//! used, in all.

mod budget;
mod controller;
mod file;
mod low_file;
mod marks;
mod settings;
mod used;

pub(crate) use budget::Budget;
pub use budget::BudgetSpent;
pub use file::{FILE, LossyCost, LossyFile};
pub use low_file::{LoadedLow, LowFile, LowIdentity};
pub(crate) use marks::lossy_marks;
pub use marks::{LossyMark, LossySetting};
pub use settings::LossySettings;
pub use used::{LossyUsed, RoutingUsed};

use crate::unfit::NoLoss;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use terrace_model::ModelFile;
use terrace_plan::model::expert_groups;

/// The source of settings.
#[derive(Clone, Debug, PartialEq)]
pub enum LossySource {
    /// Stated, so their cost is not known.
    Settings(LossySettings),
    /// A file of [`LossyFile`].
    File(PathBuf),
}

impl std::str::FromStr for LossySource {
    type Err = String;

    /// Reads settings, or else takes the text for a path. Files whose names contain a `=` have to exist.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<LossySettings>() {
            Ok(settings) => Ok(Self::Settings(settings)),
            Err(reason) if text.contains('=') && !Path::new(text).exists() => Err(reason),
            Err(_) if text.is_empty() => Err("is empty".into()),
            Err(_) => Ok(Self::File(text.into())),
        }
    }
}

/// The loss of a run, as it is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossyPlan {
    /// Settings.
    pub settings: LossySettings,
    /// Their cost; `None`: it was not measured.
    pub cost: Option<LossyCost>,
}

impl LossyPlan {
    /// Checks that this model can be computed so.
    ///
    /// # Errors
    /// [`NoLoss`].
    pub fn check(&self, model: &ModelFile) -> Result<(), NoLoss> {
        let LossySettings { skip, experts, .. } = &self.settings;
        let groups = expert_groups(model);
        if groups.is_empty() && (self.settings.routes() || experts.is_some()) {
            return Err(NoLoss::NoExperts);
        }
        let has = groups.iter().map(|group| group.top_k(model)).max().unwrap_or(0);
        if let Some(experts) = experts.filter(|&experts| experts > has) {
            return Err(NoLoss::Experts { experts, has });
        }
        let layers = u32::try_from(model.arch_u64("block_count").unwrap_or(0)).unwrap_or(u32::MAX);
        match skip.iter().find(|&&layer| layer == 0 || layer + 1 >= layers) {
            Some(&layer) => Err(NoLoss::Layer { layer, layers }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LossyPlan {
    /// `prior=0.1,keep=1; KLD 0.0210 (same top token 90.1 %), perplexity +0.7 % in the calibration`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; ", self.settings)?;
        match (&self.cost, self.settings.budget()) {
            (_, Some(kld)) => write!(f, "the divergence is kept at about {kld} by measuring"),
            (Some(cost), None) => write!(f, "{cost} in the calibration"),
            (None, None) => f.write_str("its cost was not measured"),
        }
    }
}
