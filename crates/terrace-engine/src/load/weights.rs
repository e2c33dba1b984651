//! The weights of a run through the Terrace backend: their store, the device that computes from it,
//! the model itself, and resident weights.

use super::devices::prepare;
use super::hot::kept;
use super::progress::LoadProgress;
use super::scene::PlanInput;
use crate::error::EngineError;
use crate::lossy::LossyPlan;
use crate::options::{Mmap, Mode, Options};
use crate::unfit::Unfit;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_backend::{Cut, FileMaps, Layout, Terrace, TraceRecorder, Weights};
use terrace_ggml::devices::{BufferTypeHandle, DeviceKind, devices};
use terrace_ggml::llama::{LoadParams, Model};
use terrace_model::{ByteSize, ModelFile, MtpUse};
use terrace_plan::model::override_patterns;
use terrace_plan::{Mode as PlanMode, Plan};
use terrace_store::{
    DirectChoice, EngineInfo, FaultPlan, Store, StoreConfig, StoreError, lookahead_bytes, rows_and_slots,
};

/// If at least this share of the files is in the page cache, resident weights are read through it.
/// A fast disk is read faster directly than through a cold cache, but a slow disk never beats a
/// warm cache.
const CACHED_ENOUGH: f64 = 0.5;

/// A plan, and the store that its weights come from.
pub struct Stored {
    plan: Plan,
    layout: Layout,
    store: Store,
    engine: EngineInfo,
    /// Why reads are direct or buffered.
    why: String,
    /// Mappings of the whole files, if nothing is read into memory.
    maps: Option<Arc<FileMaps>>,
}

impl Stored {
    /// Cuts managed tensors into blocks, and opens the store that they stream through.
    pub fn open(scene: &PlanInput<'_>, plan: Plan) -> Result<Self, EngineError> {
        let (options, header, file) = (scene.options, scene.ground.header, &*scene.file);
        let mut files: Vec<PathBuf> = file.shards.iter().map(|s| s.path.clone()).collect();
        let (direct, why) = reads(options, &plan, &files)?;
        let layout = Layout::new(plan.managed.infos(file).map(|(tensor, experts)| {
            (tensor, experts.map_or(Cut::Whole, |experts| Cut::PerExpert { experts }))
        }));
        let layout = match &header.low {
            Some(low) => {
                layout.with_low(low.tensors(u32::try_from(files.len()).expect("as many as can be open")))
            }
            None => layout,
        };
        let layout = layout.with_kept(kept(file, &plan, &scene.wishes));
        let config = StoreConfig { replicas: header.replicas.clone(), ..config(options, &plan, direct)? };
        let maps =
            (plan.mode == PlanMode::Mapped).then(|| FileMaps::open(&files).map(Arc::new)).transpose()?;
        if let Some(low) = &header.low {
            files.extend(low.files());
            if !layout.has_low() {
                tracing::warn!("{} has no effect: no expert streams", low.path().display());
            }
        }
        let mut store = Store::open(files, layout.blocks(), config)?;
        // Small copies that stayed would take the room of experts that are then read more often: decision 0069.
        store.pass(layout.low_blocks());
        let engine = store.engine();
        Ok(Self { plan, layout, store, engine, why, maps })
    }

    /// Makes the device, once per process, and the weights that it computes from.
    pub fn install(self, scene: &PlanInput<'_>) -> Result<Installed, EngineError> {
        let (options, file) = (scene.options, &*scene.file);
        let Self { plan, layout, store, engine, why, maps } = self;
        let terrace = Terrace::install()?;
        let routed = layout.tensors().iter().any(|tensor| tensor.cut != Cut::Whole);
        let recorder = (routed && options.record.trace.is_some())
            .then(|| TraceRecorder::new(file, &layout, engine.alignment));
        // What is mapped is read by the system.
        let reads = maps.is_none().then(|| Reads {
            io: engine.name.to_string(),
            direct: engine.direct,
            reason: format!("{why}; {}", engine.reason),
            tuned_gbps: engine.gbps,
        });
        // Devices of other kinds compute with host memory as ggml lays it out.
        let alone = devices().iter().all(|device| device.kind() == DeviceKind::Cpu);
        let mut weights = Weights::new(file, layout, store)
            .with_kernels(options.kernels.kernels)
            .with_interleaved(alone && !options.testing.in_rows);
        if let Some(maps) = maps {
            let all_of = plan.populates(scene.machine.memory.available).then_some(file);
            weights = weights.with_maps(maps, all_of)?;
        }
        let weights = Arc::new(weights);
        weights.observer().recorder = recorder;
        Ok(Installed { plan, terrace, reads, weights })
    }
}

fn config(options: &Options, plan: &Plan, direct: DirectChoice) -> Result<StoreConfig, EngineError> {
    let faults = options.testing.inject_fault.as_deref().map(str::parse::<FaultPlan>).transpose();
    let least = if plan.read_by_row.is_empty() { plan.slots } else { plan.least_slots() };
    let (rows, slots) = rows_and_slots(plan.slots, least);
    Ok(StoreConfig {
        budget: slots,
        rows,
        io: options.io.io,
        direct,
        queue_depth: options.io.queue_depth,
        request_size: options.io.request_size,
        device_settings: options.user.device_settings(),
        policy: options.cache.cache_policy.clone(),
        speculation: lookahead_bytes(options.cache.lookahead, plan.slots),
        faults: faults.map_err(|e| Unfit::Faults(e.to_string()))?,
        ..StoreConfig::default()
    })
}

/// Decides between direct and buffered reads, and says why. Streaming bypasses the page cache,
/// which would hold a second copy; a model that is read once may use it.
fn reads(options: &Options, plan: &Plan, files: &[PathBuf]) -> Result<(DirectChoice, String), EngineError> {
    let (direct, reason) = if plan.mode == PlanMode::FullResident {
        let cached = FileMaps::open(files)?.cached_share();
        let reason = cached.map_or_else(
            || "read once".into(),
            |cached| format!("read once; the page cache holds {:.0} % of the file", cached * 100.0),
        );
        (cached.is_none_or(|cached| cached < CACHED_ENOUGH), reason)
    } else {
        (plan.direct, plan.direct_reason.to_string())
    };
    Ok(match options.io.direct {
        DirectChoice::Auto if !direct => (DirectChoice::Off, reason),
        DirectChoice::Auto => (DirectChoice::Auto, reason),
        asked => (asked, format!("as requested (default: {})", if direct { "direct" } else { "buffered" })),
    })
}

/// Ways to read weights from files.
pub struct Reads {
    /// I/O engine (`io_uring`, `pread`).
    pub io: String,
    /// True if reads bypass the page cache.
    pub direct: bool,
    /// Why this engine and direct or buffered reads were chosen.
    pub reason: String,
    /// The device's rate when its I/O settings were measured, in 10^9 bytes per second.
    pub tuned_gbps: Option<f64>,
}

/// Weights that the device knows, before llama.cpp places them.
pub struct Installed {
    plan: Plan,
    terrace: &'static Terrace,
    /// `None` if the files are mapped.
    reads: Option<Reads>,
    weights: Arc<Weights>,
}

impl Installed {
    /// Lets llama.cpp load the model, with each tensor in the buffer type or on the device that the
    /// plan gives it.
    pub fn load_model(self, scene: &PlanInput<'_>) -> Result<Loaded, EngineError> {
        let (options, file) = (scene.options, &*scene.file);
        let Self { plan, terrace, reads, weights } = self;
        let on_devices = &plan.devices;
        if options.io.verify && plan.on_devices > ByteSize::ZERO {
            tracing::warn!(
                "{} of weights go to devices: llama.cpp reads them, and they are not verified",
                plan.on_devices
            );
        }
        let place_of_others = if reads.is_none() { terrace.mapped() } else { terrace.resident() };
        let mut overrides: Vec<_> =
            override_patterns(file, &plan.managed).into_iter().map(|p| (p, terrace.managed())).collect();
        if on_devices.is_empty() {
            overrides.push((".".into(), place_of_others));
        } else {
            // The rest goes where llama.cpp puts the layers of devices.
            let resident = override_patterns(file, &on_devices.resident(file, &plan.managed));
            overrides.extend(resident.into_iter().map(|pattern| (pattern, place_of_others)));
        }
        let devices = prepare(on_devices, file, &mut overrides, &options.devices)?;
        // Contexts report what their calls leave.
        terrace.offer_matrices();
        let _scope = terrace.loading(Arc::clone(&weights));
        let params = LoadParams {
            overrides,
            devices,
            split: options.devices.split_mode,
            processor: Some(terrace.processor()),
            mtp: scene.mtp != MtpUse::None,
            numbers: experts_used(file, scene.ground.header.lossy.as_ref()),
            ..LoadParams::default()
        };
        let model = Arc::new(Model::load(&options.model, &params)?);
        Ok(Loaded { model, weights: Some(weights), plan: Some(plan), reads })
    }
}

/// Number of experts per token to read in place of the file's own.
fn experts_used(file: &ModelFile, lossy: Option<&LossyPlan>) -> Vec<(String, i64)> {
    let experts = lossy.and_then(|lossy| lossy.settings.experts);
    let key = || format!("{}.{}", file.architecture(), ModelFile::EXPERTS_USED);
    experts.map(|experts| (key(), i64::from(experts))).into_iter().collect()
}

/// A model loaded by llama.cpp.
pub struct Loaded {
    pub model: Arc<Model>,
    /// `None` in stock runs.
    pub weights: Option<Arc<Weights>>,
    /// `None` in stock runs.
    pub plan: Option<Plan>,
    /// `None` in stock runs, and if the files are mapped.
    pub reads: Option<Reads>,
}

impl Loaded {
    /// Loads the model with plain llama.cpp.
    pub fn stock(options: &Options) -> Result<Self, EngineError> {
        let layers = options.testing.stock_layers;
        let in_ram = BufferTypeHandle::cpu();
        let params = LoadParams {
            overrides: options
                .testing
                .stock_patterns()
                .into_iter()
                .map(|pattern| (pattern, in_ram))
                .collect(),
            spread: (layers > 0).then_some(layers),
            repack: options.mode == Mode::Stock { repack: true },
            read: options.reload.allowed || options.memory.mmap == Mmap::Off,
            ..LoadParams::default()
        };
        let model = Arc::new(Model::load(&options.model, &params)?);
        Ok(Self { model, weights: None, plan: None, reads: None })
    }

    /// Reads resident weights. `progress` is called meanwhile, and may end it.
    pub fn fill_resident(
        &self,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let Some(weights) = &self.weights else { return Ok(()) };
        let total = ByteSize(weights.resident_bytes());
        match weights.fill_resident(&mut |done| progress(LoadProgress { done, total })) {
            Err(terrace_backend::BackendError::Store(StoreError::Cancelled { .. })) => {
                Err(EngineError::Cancelled)
            }
            other => Ok(other?),
        }
    }
}
