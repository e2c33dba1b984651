//! Loading the weights of a run through the Terrace backend.

use crate::engine::LoadProgress;
use crate::error::EngineError;
use crate::hot_cache::PlannedLanes;
use crate::options::{Options, lookahead_bytes};
use crate::placing::{Placing, Scene, placing};
use crate::report::PlanReport;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_backend::{Cut, FileMaps, Layout, Terrace, TraceRecorder, Weights};
use terrace_ggml::llama::{LoadParams, Model};
use terrace_model::ByteSize;
use terrace_plan::{Manage, Mode as PlanMode, Plan, override_patterns};
use terrace_store::{DirectChoice, FaultPlan, IoChoice, Store, StoreConfig, StoreError};

/// Share of the files in the page cache from which on weights that stay are read through it: past it, a disk is read
/// faster than a cold cache fills, but slow disks never beat a warm one.
const CACHED_ENOUGH: f64 = 0.5;

/// Decides what lives where, and loads it so. With it come the experts that devices are to have copies of.
pub fn load_managed(
    scene: &Scene<'_>,
    report: &mut PlanReport,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(Model, Arc<Weights>, PlannedLanes), EngineError> {
    let Scene { options, file, .. } = *scene;
    if let (Manage::Mapped, Some(option)) = (options.manage, asks_for_reading(options)) {
        return Err(EngineError::MappedAndRead { option });
    }
    let files: Vec<PathBuf> = file.shards.iter().map(|s| s.path.clone()).collect();
    let Placing { mut plan, devices: on_devices, placed } = placing(scene, report.kv_type)?;
    if options.slots_share < 100 {
        plan.share_slots(options.slots_share);
    }
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    if plan.mode == PlanMode::FullResident {
        let cached = FileMaps::open(&files)?.cached_share();
        plan.direct = cached < CACHED_ENOUGH;
        plan.direct_reason = format!("read once; the page cache holds {:.0} % of the file", cached * 100.0);
    }
    let faults = options.faults.as_deref().map(str::parse::<FaultPlan>).transpose();
    let config = StoreConfig {
        budget: plan.slots,
        io: options.io,
        direct: direct_for(options.direct, &plan),
        queue_depth: options.queue_depth,
        request_size: options.request_size,
        policy: options.cache_policy.clone(),
        speculation: lookahead_bytes(options.lookahead, plan.slots),
        faults: faults.map_err(|e| EngineError::Faults(e.to_string()))?,
        ..StoreConfig::default()
    };
    let layout =
        Layout::new(plan.managed.infos(file).map(|(tensor, experts)| {
            (tensor, experts.map_or(Cut::Whole, |experts| Cut::PerExpert { experts }))
        }));
    let maps = (plan.mode == PlanMode::Mapped).then(|| FileMaps::open(&files).map(Arc::new)).transpose()?;
    let store = Store::open(files, layout.blocks(), config)?;
    let engine = store.engine();
    if options.direct != DirectChoice::Auto {
        plan.direct_reason =
            format!("as asked (by itself: {})", if plan.direct { "direct" } else { "buffered" });
    }
    plan.direct = engine.direct;
    report.mode = plan.mode.to_string();
    if maps.is_none() {
        (report.io, report.direct) = (Some(engine.name.to_string()), Some(engine.direct));
        report.io_reason = Some(engine.reason.clone());
        report.tuned_gbps = engine.gbps;
    }
    let terrace = Terrace::install()?;
    let routed = layout.tensors().iter().any(|tensor| tensor.cut != Cut::Whole);
    let recorder = (routed && options.record_trace.is_some())
        .then(|| TraceRecorder::new(file, &layout, engine.alignment));
    let place_of_others = if maps.is_some() { terrace.mapped() } else { terrace.resident() };
    let mut weights = Weights::new(file, layout, store);
    if let Some(maps) = maps {
        weights = weights.with_maps(maps, plan.populates(&scene.memory()))?;
    }
    let weights = Arc::new(weights);
    weights.observer().recorder = recorder;
    let mut overrides: Vec<_> =
        override_patterns(file, &plan.managed).into_iter().map(|p| (p, terrace.managed())).collect();
    if on_devices.is_empty() {
        overrides.push((".".into(), place_of_others));
    } else {
        // What is left goes where llama.cpp puts the layers of devices.
        let resident = override_patterns(file, &on_devices.resident(file, &plan.managed));
        overrides.extend(resident.into_iter().map(|pattern| (pattern, place_of_others)));
    }
    let devices = on_devices.prepare(file, &mut overrides, options.split_mode)?;
    report.placement = Some(plan);
    report.placed = placed;
    let model = {
        let _scope = terrace.loading(Arc::clone(&weights));
        Model::load(
            &options.model,
            &LoadParams {
                overrides,
                devices,
                split: options.split_mode,
                untouched: true,
                ..LoadParams::default()
            },
        )?
    };
    let total = ByteSize(weights.resident_bytes());
    let filled = weights.fill_resident(&mut |done| progress(LoadProgress { done, total }));
    match filled {
        Err(terrace_backend::BackendError::Store(StoreError::Cancelled { .. })) => {
            Err(EngineError::Cancelled)
        }
        other => Ok(other.map(|()| (model, weights, on_devices.hot))?),
    }
}

/// The option by which the caller says how weights are read, or that their uses are to be seen: the page cache is then
/// not for them.
pub fn asks_for_reading(options: &Options) -> Option<&'static str> {
    [
        (options.io != IoChoice::Auto, "--io"),
        (options.direct != DirectChoice::Auto, "--direct"),
        (options.faults.is_some(), "--inject-fault"),
        (options.reloads, "--watch or --hotswap"),
    ]
    .into_iter()
    .find_map(|(given, option)| given.then_some(option))
}

/// Streaming bypasses the page cache, which would hold a second copy; a model that is read once may use it.
fn direct_for(choice: DirectChoice, plan: &Plan) -> DirectChoice {
    match choice {
        DirectChoice::Auto if !plan.direct => DirectChoice::Off,
        other => other,
    }
}
