//! Uses of experts from before a model was loaded.

use crate::model::Model;
use crate::report::say;
use crate::settings::Settings;
use std::path::Path;
use terrace_backend::Weights;
use terrace_backend::warm::{FirstUses, RunRecord, first_uses, read_learned};
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::LearnFile;
use terrace_plan::model::expert_shapes;

/// Uses of a model's experts that it starts from.
#[derive(Default)]
pub struct EarlierUses {
    /// By layer.
    pub first: FirstUses,
    /// The learn file that some of them are from.
    pub learned: Option<LearnFile>,
}

impl EarlierUses {
    /// Those of the user's learn file, and of earlier runs for layers that are not in it, as far as they
    /// are known.
    pub fn of(model: &Model, weights: &Weights, record: Option<&RunRecord>, settings: &Settings) -> Self {
        let learned = settings.learned.as_ref().and_then(|path| {
            let read = learned(model, path, settings);
            read.inspect_err(|reason| {
                let (path, model) = (path.display(), model.path());
                say(format_args!("TERRACE_LEARNED={path} is not used for {model}: {reason}"));
            })
            .ok()
        });
        let usage = weights.observer().usage.clone();
        let first = usage.map(|usage| first_uses(learned.as_ref(), record, &usage));
        Self { first: first.unwrap_or_default(), learned }
    }
}

/// The learn file, if it is this model's. The error says why it is not used.
fn learned(model: &Model, path: &Path, settings: &Settings) -> Result<LearnFile, String> {
    if settings.trace.is_some() {
        return Err("a trace is being recorded, and replays have none".into());
    }
    let file = read_learned(path)?.ok_or("no such file")?;
    let header = &model.header.model;
    let shapes = expert_shapes(header);
    if shapes.is_empty() {
        return Err("the model has no experts".into());
    }
    file.check(&ModelIdentity::of(header).name, &shapes).map_err(|misfit| misfit.to_string())?;
    if file.layers.is_empty() { Err("no uses of experts in it".into()) } else { Ok(file) }
}
