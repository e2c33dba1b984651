//! How a model is to be loaded, for us and for llama.cpp.

use crate::handles::{BufferTypeHandle, DeviceHandle};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;

/// How devices share layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitMode {
    /// Each layer is on one of them.
    #[default]
    Layer,
    /// Each holds a slice of every matrix of the layers, and they add up what they compute.
    Tensor,
}

impl std::str::FromStr for SplitMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "layer" => Ok(Self::Layer),
            "tensor" => Ok(Self::Tensor),
            "row" => Err("row needs buffers that few of ggml's drivers have; use tensor".into()),
            _ => Err(format!("`{text}` is neither layer nor tensor")),
        }
    }
}

impl std::fmt::Display for SplitMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Layer => "layer",
            Self::Tensor => "tensor",
        })
    }
}

/// How to load.
#[derive(Debug, Default)]
pub struct LoadParams {
    /// Patterns (ECMAScript, searched in the tensor's name) and the buffer type of tensors that match; the first
    /// match decides. Empty: llama.cpp's own choice, weights mapped from the file.
    pub overrides: Vec<(String, BufferTypeHandle)>,
    /// Devices that hold layers, and how many, the first layers first: together they are the model's last ones, the output
    /// head counted as one. Of split tensors each holds a part of as many. Empty: none, whatever the machine has.
    pub devices: Vec<(DeviceHandle, u32)>,
    /// How the devices share the layers that they hold.
    pub split: SplitMode,
    /// Let llama.cpp convert weights to its repacked layouts (other rounding, twice the memory while loading).
    pub repack: bool,
    /// Only what the header says: no memory for weights, and contexts that compute nothing and say what they would take.
    pub header_only: bool,
    /// Weights are read into memory, not mapped: the file may be written to afterwards.
    pub read: bool,
    /// Weights stay unread: the file is mapped, but nothing of it is populated or read ahead. For loads whose
    /// overrides cover every tensor.
    pub untouched: bool,
}

/// What llama.cpp's parameters point to.
pub struct Pointed {
    /// The patterns of `overrides`.
    _patterns: Vec<CString>,
    overrides: Vec<sys::llama_model_tensor_buft_override>,
    devices: Vec<sys::ggml_backend_dev_t>,
    split: Vec<f32>,
}

impl Pointed {
    /// Lists as C has them: patterns and devices end with a null, proportions have one for each device that there could be.
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
        Self { _patterns: patterns, overrides, devices, split }
    }

    /// llama.cpp's parameters, good for as long as `self`, which nothing changes meanwhile.
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
        // llama.cpp reads it only.
        raw.devices = self.devices.as_ptr().cast_mut();
        raw.n_gpu_layers = i32::try_from(layers).unwrap_or(i32::MAX);
        raw.split_mode = match params.split {
            SplitMode::Layer => sys::LLAMA_SPLIT_MODE_LAYER,
            SplitMode::Tensor => sys::LLAMA_SPLIT_MODE_TENSOR,
        };
        // Proportions, which llama.cpp turns into whole layers again.
        if layers > 0 {
            raw.tensor_split = self.split.as_ptr();
        }
        raw.use_extra_bufts = params.repack;
        raw.no_alloc = params.header_only;
        if params.header_only {
            raw.lazy_mode = sys::LLAMA_LAZY_MODE_OFF;
        }
        if !params.overrides.is_empty() {
            raw.tensor_buft_overrides = self.overrides.as_ptr();
            // Lazily read tables go to a mapping of llama.cpp's own; ours are placed by the overrides.
            raw.lazy_mode = sys::LLAMA_LAZY_MODE_OFF;
        }
        raw
    }
}
