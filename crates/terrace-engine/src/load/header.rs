//! The first step of a load: everything that is known before anything is decided.

use super::plan_file::read_plan;
use crate::adapters::AdapterFile;
use crate::error::EngineError;
use crate::layer_skip::LayerSkip;
use crate::learn::LearnFiles;
use crate::lossy::{LossyFile, LossyPlan, LossySource, LowFile, LowIdentity};
use crate::options::{Mode, Options};
use crate::timeline::TimelineFile;
use crate::trace::TraceFile;
use crate::unfit::{NoLoss, Unfit};
use crate::vision::ProjectorFile;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use terrace_ggml::devices::rpc::add_rpc_server;
use terrace_ggml::devices::silence::give_up_after;
use terrace_ggml::gguf;
use terrace_model::identity::FileState;
use terrace_model::{ByteSize, ModelFile, Name, printable};
use terrace_plan::PlanFile;
use terrace_store::identity::{file_state, now};
use terrace_store::{Replica, find_replicas};

/// A model's header, and the files that belong to a run of it.
pub struct Header {
    pub file: ModelFile,
    /// Copies of its files on other disks.
    pub replicas: Vec<Replica>,
    /// States of the model's files when the header was read.
    pub states: Vec<Option<FileState>>,
    pub trace: Option<TraceFile>,
    pub timeline: Option<TimelineFile>,
    pub layer_skip: Option<LayerSkip>,
    pub lossy: Option<LossyPlan>,
    /// The experts in fewer bits; `None` if none are read so.
    pub low: Option<LowFile>,
    pub learn: LearnFiles,
    /// Files of the adapters.
    pub adapters: Vec<AdapterFile>,
    /// The file of the projector.
    pub projector: Option<ProjectorFile>,
    /// Contents of [`FollowingOptions::plan`](crate::options::FollowingOptions::plan).
    pub written: Option<PlanFile>,
}

impl Header {
    /// Reads the header, connects to RPC servers, and opens the files that the run will write.
    pub fn read(options: &Options) -> Result<Self, EngineError> {
        let (mut file, states) = read_settled(&options.model)?;
        if let Some(tensor) = file.tensors.iter().find(|tensor| Name::of(&tensor.name).is_lone_expert()) {
            let (path, tensor) = (options.model.clone(), printable(&tensor.name));
            return Err(Unfit::LoneExperts { path, tensor }.into());
        }
        gguf::check_numbers(&file)?;
        let stock = matches!(options.mode, Mode::Stock { .. });
        if stock && !options.replicas.replica.is_empty() {
            return Err(Unfit::StockReplicas.into());
        }
        let replicas = find_replicas(&file, &options.replicas.paths())?;
        if let Some(time) = options.devices.rpc_timeout {
            give_up_after(time);
        }
        for endpoint in &options.devices.rpc {
            add_rpc_server(endpoint)?;
        }
        let trace = TraceFile::for_run(options)?;
        let timeline = TimelineFile::for_run(options)?;
        if options.compute.layer_skip.is_some() && stock {
            return Err(Unfit::StockLayers.into());
        }
        let layer_skip = match options.compute.layer_skip.as_deref() {
            None => None,
            Some(path) if path == LayerSkip::AUTO => Some(LayerSkip::read_kept(&options.user, &file)?),
            Some(path) => Some(LayerSkip::read(path, &file)?),
        };
        let (lossy, known) = match &options.compute.lossy {
            Some(source) => lossy(source, &file)?,
            None => (None, None),
        };
        if let Some(lossy) = &lossy {
            if stock {
                return Err(Unfit::from(NoLoss::Stock).into());
            }
            if layer_skip.is_some() && !lossy.settings.skip.is_empty() {
                return Err(Unfit::from(NoLoss::SkippedTwice).into());
            }
            lossy.check(&file).map_err(Unfit::from)?;
            if lossy.settings.budget().is_some() && options.record.trace.is_some() {
                return Err(Unfit::from(NoLoss::BudgetTraced).into());
            }
            if let Some(experts) = lossy.settings.experts {
                file.use_experts(experts);
            }
        }
        let low = lossy.as_ref().and_then(|lossy| lossy.settings.low.as_deref());
        let low = low.map(|path| low_file(path, known, &file, options)).transpose()?;
        let learn = LearnFiles::for_run(options, &file)?;
        let written = match (&options.following.plan, options.mode) {
            (Some(path), Mode::Terrace) => Some(read_plan(path)?),
            _ => None,
        };
        let adapters = options.adapters.iter().map(|option| AdapterFile::read(option, &file));
        let adapters = adapters.collect::<Result<_, _>>()?;
        let projector = ProjectorFile::read(&options.vision)?;
        Ok(Self {
            file,
            replicas,
            states,
            trace,
            timeline,
            layer_skip,
            lossy,
            low,
            learn,
            adapters,
            projector,
            written,
        })
    }

    /// Permitted loss, if any.
    pub fn lossy_used(&self) -> Option<&LossyPlan> {
        self.lossy.as_ref().filter(|lossy| !lossy.settings.is_exact())
    }

    /// RAM that the projector takes.
    pub fn projector_bytes(&self) -> ByteSize {
        self.projector.as_ref().map_or(ByteSize::ZERO, |projector| projector.facts.bytes)
    }

    /// RAM that the adapters take.
    pub fn adapter_bytes(&self) -> ByteSize {
        self.adapters.iter().map(|adapter| adapter.facts.bytes).sum()
    }
}

/// Permitted loss, and its cost, if that was measured for this model; and the file of experts in
/// fewer bits that was measured.
fn lossy(
    source: &LossySource,
    file: &ModelFile,
) -> Result<(Option<LossyPlan>, Option<LowIdentity>), EngineError> {
    Ok(match source {
        LossySource::Settings(settings) => (Some(LossyPlan { settings: settings.clone(), cost: None }), None),
        LossySource::File(path) => {
            let LossyFile { settings, cost, low, .. } = LossyFile::read(path, file)?;
            (Some(LossyPlan { settings, cost: Some(cost) }), low)
        }
    })
}

/// Opens a file of experts in fewer bits, which has to be the one that is `known`.
fn low_file(
    path: &Path,
    known: Option<LowIdentity>,
    file: &ModelFile,
    options: &Options,
) -> Result<LowFile, EngineError> {
    if options.record.trace.is_some() {
        return Err(Unfit::from(NoLoss::LowTraced).into());
    }
    if options.io.verify {
        return Err(Unfit::from(NoLoss::LowVerified).into());
    }
    let low = LowFile::open(path, file)?;
    let unlike = |reason: String| Unfit::from(NoLoss::Unlike { path: path.to_owned(), reason });
    if let Some(known) = known {
        let found = low.identity().map_err(|error| unlike(error.to_string()))?;
        if found != known {
            return Err(unlike("it is not the file that was calibrated".into()).into());
        }
    }
    Ok(low)
}

/// Time between two looks at a file that changed a moment ago, and how often it is looked at.
const MOMENT: Duration = Duration::from_millis(25);
const MOST_LOOKS: u32 = 100;

/// Reads the header, and the states of the files such that a later write shows in them. Files that
/// keep changing are taken as they are.
fn read_settled(model: &Path) -> Result<(ModelFile, Vec<Option<FileState>>), EngineError> {
    let mut looks = 0;
    loop {
        let begin = now();
        let file = gguf::read(model)?;
        let states: Vec<_> = file.shards.iter().map(|shard| file_state(&shard.path).ok()).collect();
        looks += 1;
        // Settled before the header was read, so the header is that of this state.
        let settled = states.iter().flatten().all(|state| state.is_settled(begin));
        if settled || looks == MOST_LOOKS {
            return Ok((file, states));
        }
        sleep(MOMENT);
    }
}
