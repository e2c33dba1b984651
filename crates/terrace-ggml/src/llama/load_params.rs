//! Parameters of a load, in Terrace's and in llama.cpp's form.

use crate::backend::Processor;
use crate::handles::{BufferTypeHandle, DeviceHandle};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use terrace_model::SplitMode;

/// Parameters of a load.
#[derive(Debug, Default)]
pub struct LoadParams {
    /// Patterns (ECMAScript, searched for in the tensor's name) and the buffer type of matching
    /// tensors. The first match decides. If empty, llama.cpp chooses, and weights are mapped from
    /// the file.
    pub overrides: Vec<(String, BufferTypeHandle)>,
    /// Devices that hold layers, and how many each, in the order of the layers. Together these are
    /// the model's last layers, with the output head counted as one. With [`SplitMode::Tensor`],
    /// each device holds a slice of this many layers. If empty, no device is used, whichever the
    /// machine has.
    pub devices: Vec<(DeviceHandle, u32)>,
    /// Number of last layers on all devices of the machine, divided among them as llama.cpp does by
    /// default; `devices` is then empty. `None` means as `devices` says.
    pub spread: Option<u32>,
    /// Division of layers among devices.
    pub split: SplitMode,
    /// Lets llama.cpp convert weights to its repacked layouts (different rounding, twice the memory
    /// during the load).
    pub repack: bool,
    /// Loads only the header: weights get no memory, and contexts compute nothing but report the
    /// memory that they would take.
    pub header_only: bool,
    /// Only the vocabulary: no tensors (the file may have none), and no contexts.
    pub vocabulary_only: bool,
    /// Weights are read into memory instead of mapped, so the file may be written to afterwards.
    pub read: bool,
    /// Metadata that is read in place of the file's own: keys, and whole numbers.
    pub numbers: Vec<(String, i64)>,
    /// True if the layers that predict the tokens after the next one are loaded as well.
    pub mtp: bool,
    /// The device that holds and computes what `devices` do not; `None` means ggml's own CPU
    /// device. With one, weights are not read: the file is mapped, but none of it is populated or
    /// read ahead. `overrides` must place every tensor then, and `repack` has no effect.
    pub processor: Option<Processor>,
}

/// The data that llama.cpp's parameters point to.
pub struct Pointed {
    /// The patterns of `overrides`.
    _patterns: Vec<CString>,
    overrides: Vec<sys::llama_model_tensor_buft_override>,
    devices: Vec<sys::ggml_backend_dev_t>,
    split: Vec<f32>,
    /// Ends with an empty key; empty if there are none.
    numbers: Vec<sys::llama_model_kv_override>,
}

impl Pointed {
    /// Builds the lists in C's form: patterns and devices end with a null, proportions have one
    /// entry per possible device.
    pub fn of(params: &LoadParams) -> Self {
        let patterns: Vec<CString> =
            params.overrides.iter().filter_map(|(pattern, _)| CString::new(pattern.as_str()).ok()).collect();
        let mut overrides: Vec<sys::llama_model_tensor_buft_override> = patterns
            .iter()
            .zip(&params.overrides)
            .map(|(pattern, (_, buft))| sys::llama_model_tensor_buft_override {
                pattern: pattern.as_ptr(),
                buft: buft.as_raw(),
            })
            .collect();
        overrides.push(sys::llama_model_tensor_buft_override {
            pattern: std::ptr::null(),
            buft: std::ptr::null_mut(),
        });
        let mut devices: Vec<sys::ggml_backend_dev_t> =
            params.devices.iter().map(|(device, _)| device.as_raw()).collect();
        devices.push(std::ptr::null_mut());
        // SAFETY: no preconditions.
        let most = unsafe { sys::llama_max_devices() };
        let mut split: Vec<f32> = params.devices.iter().map(|&(_, layers)| layers as f32).collect();
        split.resize(most.max(split.len()), 0.0);
        let mut numbers: Vec<_> =
            params.numbers.iter().map(|(key, number)| number_of(key, *number)).collect();
        if !numbers.is_empty() {
            numbers.push(number_of("", 0));
        }
        Self { _patterns: patterns, overrides, devices, split, numbers }
    }

    /// llama.cpp's parameters, valid as long as `self` lives unchanged.
    pub fn raw(&self, params: &LoadParams) -> sys::llama_model_params {
        // SAFETY: returns plain values.
        let mut raw = unsafe { sys::llama_model_default_params() };
        raw.load_mode = if params.read || params.header_only {
            sys::LLAMA_LOAD_MODE_NONE
        } else {
            sys::LLAMA_LOAD_MODE_MMAP
        };
        let layers = params.devices.iter().map(|&(_, layers)| layers);
        let layers: u32 = match params.split {
            SplitMode::Layer => layers.sum(),
            SplitMode::Tensor => layers.max().unwrap_or(0),
        };
        // llama.cpp only reads it.
        raw.devices = self.devices.as_ptr().cast_mut();
        raw.n_gpu_layers = i32::try_from(layers).unwrap_or(i32::MAX);
        raw.split_mode = match params.split {
            SplitMode::Layer => sys::LLAMA_SPLIT_MODE_LAYER,
            SplitMode::Tensor => sys::LLAMA_SPLIT_MODE_TENSOR,
        };
        // Proportions, which llama.cpp converts back to whole layers.
        if layers > 0 {
            raw.tensor_split = self.split.as_ptr();
        }
        if let Some(layers) = params.spread {
            raw.devices = std::ptr::null_mut();
            raw.n_gpu_layers = i32::try_from(layers).unwrap_or(i32::MAX);
            raw.tensor_split = std::ptr::null();
        }
        if !self.numbers.is_empty() {
            raw.kv_overrides = self.numbers.as_ptr();
        }
        raw.use_extra_bufts = params.repack;
        raw.vocab_only = params.vocabulary_only;
        raw.load_mtp = params.mtp;
        raw.no_alloc = params.header_only;
        if params.header_only {
            raw.lazy_mode = sys::LLAMA_LAZY_MODE_OFF;
        }
        if !params.overrides.is_empty() {
            raw.tensor_buft_overrides = self.overrides.as_ptr();
            // llama.cpp would put lazily read tables into its own mapping, but the overrides place
            // them.
            raw.lazy_mode = sys::LLAMA_LAZY_MODE_OFF;
        }
        raw
    }
}

/// A number in place of the file's, in C's form. Keys are shorter than C's limit.
fn number_of(key: &str, number: i64) -> sys::llama_model_kv_override {
    let mut raw = sys::llama_model_kv_override {
        tag: sys::LLAMA_KV_OVERRIDE_TYPE_INT,
        key: [0; 128],
        __bindgen_anon_1: sys::llama_model_kv_override__bindgen_ty_1 { val_i64: number },
    };
    let most = raw.key.len() - 1;
    for (to, byte) in raw.key[..most].iter_mut().zip(key.bytes()) {
        *to = std::ffi::c_char::from_ne_bytes([byte]);
    }
    raw
}
