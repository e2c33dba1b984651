//! Streamed parts of a model, and checks that the bytes that a program has for its weights are those of
//! its files.

use crate::files::Header;
use crate::report::say;
use crate::settings::Settings;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use terrace_backend::{Cut, Layout, Weights};
use terrace_ggml::{Op, Tensor};
use terrace_host::{available_memory, total_memory};
use terrace_model::{ByteSize, TensorInfo, printable};
use terrace_plan::machine::StorageProfile;
use terrace_plan::options::{DeviceOptions, MemoryOptions};
use terrace_plan::{Budget, MachineProfile, Plan, PlanError, Wishes, plan};
use terrace_platform::file::Positioned;
use terrace_platform::mappings::Maps;
use terrace_platform::memory::forget_mapped;
use terrace_store::{DirectChoice, Replica, Store, StoreConfig, StoreError, find_replicas, lookahead_bytes};

/// A model with the plan for it.
pub struct Model {
    pub header: Arc<Header>,
    /// `None` if the program loads it as it does without the plug-in.
    plan: Option<Plan>,
    /// Division of each streamed tensor, by name.
    cuts: HashMap<String, Cut>,
}

/// Bytes of a program that are not those of the model's file.
#[derive(Debug, thiserror::Error)]
#[error(
    "{tensor}: the program's bytes at {offset} are not those of the model's file, so the tensor cannot be streamed"
)]
pub struct OtherBytes {
    tensor: String,
    offset: usize,
}

impl Model {
    /// Plans the model, when `taken` bytes of the `budget` belong to others. If what is left is too
    /// little, that is the error, and the model is streamed with as little as it takes: loading it
    /// whole would take more.
    pub fn plan(
        header: Arc<Header>,
        settings: &Settings,
        budget: Budget,
        taken: ByteSize,
    ) -> (Self, Option<PlanError>) {
        let available = available_memory().saturating_sub(taken);
        let cores = u32::try_from(terrace_ggml::cpu::default_threads()).unwrap_or(1);
        let mut machine =
            MachineProfile::unmeasured("this machine", cores, total_memory().max(available), available);
        machine.storage.push(StorageProfile::default());
        let ram_budget = match budget {
            Budget::Bytes(budget) => Budget::Bytes(budget.saturating_sub(taken)),
            Budget::Auto => Budget::Auto,
        };
        let made = |ram_budget| {
            let memory =
                MemoryOptions { stream: settings.memory.stream, ram_budget, ..MemoryOptions::default() };
            let wishes = Wishes { memory, devices: DeviceOptions::none(), ..Wishes::default() };
            plan(&header.model, &machine, &wishes)
        };
        let (plan, error) = match made(ram_budget) {
            Ok(plan) => (Some(plan), None),
            Err(
                error @ (PlanError::BudgetTooSmall { minimum, .. } | PlanError::AutoNoRoom { minimum, .. }),
            ) => (made(Budget::Bytes(minimum)).ok(), Some(error)),
            Err(error) => (None, Some(error)),
        };
        let plan = plan.filter(|plan| plan.managed_tensors > 0);
        let mut this = Self { header, plan, cuts: HashMap::new() };
        this.cuts = this.streamed().map(|(info, cut)| (info.name.clone(), cut)).collect();
        (this, error)
    }

    fn streamed(&self) -> impl Iterator<Item = (&TensorInfo, Cut)> {
        let cut = |experts: Option<u32>| experts.map_or(Cut::Whole, |experts| Cut::PerExpert { experts });
        let tensors = self.plan.iter().flat_map(|plan| plan.managed.infos(&self.header.model));
        tensors.map(move |(info, experts)| (info, cut(experts)))
    }

    /// The same model with other files.
    pub fn with_header(&self, header: Arc<Header>) -> Self {
        Self { header, plan: self.plan.clone(), cuts: self.cuts.clone() }
    }

    /// Path of its first file.
    pub fn path(&self) -> String {
        let first = self.header.model.shards.first();
        first.map(|shard| shard.path.display().to_string()).unwrap_or_default()
    }

    /// Its plan, if something of it is streamed.
    pub const fn planned(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Returns true if the tensor of this name is streamed.
    pub fn is_streamed(&self, name: &str) -> bool {
        self.cuts.contains_key(name)
    }

    /// Returns true if any of its experts are streamed.
    pub fn streams_experts(&self) -> bool {
        self.cuts.values().any(|cut| matches!(cut, Cut::PerExpert { .. }))
    }

    /// RAM of weights that stay with the program.
    pub fn resident(&self) -> ByteSize {
        self.plan.as_ref().map_or(ByteSize::ZERO, |plan| plan.resident)
    }

    /// The fewest bytes of slots that its graphs can be computed with.
    pub fn least_slots(&self) -> ByteSize {
        self.plan.as_ref().map_or(ByteSize::ZERO, Plan::least_slots)
    }

    /// RAM that its slots take.
    pub fn slots(&self) -> ByteSize {
        self.plan.as_ref().map_or(ByteSize::ZERO, |plan| plan.slots)
    }

    /// The streamed weights, in one line.
    pub fn summary(&self) -> String {
        let path = self.path();
        let Some(plan) = &self.plan else { return path };
        format!(
            "{} of {} tensors of {} are streamed through {} of RAM (budget {}, {} stay with the program)",
            plan.managed_bytes, plan.managed_tensors, path, plan.slots, plan.budget, plan.resident,
        )
    }

    /// Its tensor that the program calls so, if it has the same type and shape.
    pub fn find(&self, tensor: Tensor<'_>) -> Option<&TensorInfo> {
        find(&self.header, tensor)
    }

    /// Returns true if the tensor is streamed, when it is used in `op`.
    pub fn streams(&self, name: &str, op: Op) -> bool {
        match self.cuts.get(name) {
            None => false,
            Some(Cut::PerExpert { .. }) => op == Op::MUL_MAT_ID,
            Some(Cut::Whole) => op == Op::MUL_MAT || op == Op::GET_ROWS,
        }
    }

    /// Opens the store that its weights come from.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn open(&self, settings: &Settings) -> Result<Weights, StoreError> {
        let layout = Layout::new(self.streamed());
        let direct = match (settings.io.direct, &self.plan) {
            (DirectChoice::Auto, Some(plan)) if !plan.direct => DirectChoice::Off,
            (asked, _) => asked,
        };
        let config = StoreConfig {
            budget: self.slots(),
            direct,
            io: settings.io.io,
            queue_depth: settings.io.queue_depth,
            request_size: settings.io.request_size,
            replicas: self.replicas(settings),
            policy: settings.cache.cache_policy.clone(),
            speculation: lookahead_bytes(settings.cache.lookahead, self.slots()),
            ..StoreConfig::default()
        };
        let files = self.header.model.shards.iter().map(|shard| shard.path.clone()).collect();
        let store = Store::open(files, layout.blocks(), config)?;
        Ok(Weights::new(&self.header.model, layout, store).with_kernels(settings.kernels.kernels))
    }

    /// The copies of its files on other disks. Of several models of a process, they may be another's.
    fn replicas(&self, settings: &Settings) -> Vec<Replica> {
        find_replicas(&self.header.model, &settings.replicas.paths()).unwrap_or_else(|error| {
            say(format_args!("{} is read without copies on other disks: {error}", self.path()));
            Vec::new()
        })
    }

    /// Compares bytes that the program has for a tensor, from byte `offset` of it on, with those of the
    /// model's file: by where they are mapped from, or else at a few places. Of a mapping, pages that
    /// the program has no more use for leave its memory; they are read again if it does.
    ///
    /// # Errors
    /// [`OtherBytes`].
    ///
    /// # Safety
    /// `source` is valid for `len` bytes.
    pub unsafe fn compare(
        &self,
        tensor: Tensor<'_>,
        source: *const c_void,
        offset: usize,
        len: usize,
        maps: &Maps,
    ) -> Result<(), OtherBytes> {
        let other = |offset| OtherBytes { tensor: printable(&tensor.name()), offset };
        let info = self.find(tensor).ok_or_else(|| other(offset))?;
        let extent = info.extent;
        let within = (offset as u64).checked_add(len as u64).is_some_and(|end| end <= extent.len);
        let (file, identity) = &self.header.files[extent.file.index()];
        if !within {
            return Err(other(offset));
        }
        let start = extent.offset + offset as u64;
        let place = maps.find(source as usize);
        if let Some(place) = place.filter(|place| place.file == *identity && place.len >= len as u64) {
            if place.offset != start {
                return Err(other(offset));
            }
            if place.read_only {
                // SAFETY: the caller's contract; the pages are those of a file, and not written to.
                unsafe { forget(source as usize, len) };
            }
            return Ok(());
        }
        // SAFETY: the caller's contract.
        let bytes = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), len) };
        for at in samples(len) {
            let mut read = [0; SAMPLE];
            let bytes = &bytes[at..len.min(at + SAMPLE)];
            let read = &mut read[..bytes.len()];
            if file.read_exact_at(read, start + at as u64).is_err() || read != bytes {
                return Err(other(offset + at));
            }
        }
        Ok(())
    }
}

/// The tensor of a model that the program calls so, if it has the same type and shape.
pub fn find<'a>(header: &'a Header, tensor: Tensor<'_>) -> Option<&'a TensorInfo> {
    let name = tensor.name_bytes();
    let info = header.model.tensors.iter().find(|info| info.name.as_bytes() == name)?;
    let shape = tensor.ne().map(|n| n.unsigned_abs());
    let same = terrace_ggml::DataType::from_id(info.ty.id) == Some(tensor.ty()) && info.shape.0 == shape;
    same.then_some(info)
}

/// Length of a sample in bytes, and most samples of a piece of a tensor.
const SAMPLE: usize = 256;
const SAMPLES: usize = 16;

/// Offsets of samples of `len` bytes: the first and the last bytes, and between.
fn samples(len: usize) -> impl Iterator<Item = usize> {
    let last = len.saturating_sub(SAMPLE);
    (0..SAMPLES).map(move |i| last / (SAMPLES - 1) * i).chain([last])
}

/// Takes whole pages of a mapped file out of the process's memory.
///
/// # Safety
/// The range is mapped from a file, and the process does not write there.
unsafe fn forget(start: usize, len: usize) {
    const PAGE: usize = terrace_model::PAGE as usize;
    let (from, to) = (start.next_multiple_of(PAGE), (start + len) / PAGE * PAGE);
    if from < to {
        // SAFETY: whole pages of the range, which the kernel maps again where they are touched.
        unsafe { forget_mapped(from as *mut c_void, to - from) };
    }
}
