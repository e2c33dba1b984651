//! llama.cpp's own quantiser, for tests that compare with it.

use crate::cxx::{calls, guard};
use crate::llama::FileType;
use crate::log;
use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, CString};
use std::path::Path;

/// Importance values by tensor.
pub type Importances = [(String, Vec<f32>)];

/// Parameters of the quantiser.
#[derive(Debug, Default)]
pub struct ByLlama<'a> {
    /// Patterns in llama.cpp's syntax, and types.
    pub given: &'a [(&'a str, WeightType)],
    /// No mixture.
    pub pure: bool,
    /// Quantised weights may be quantised again.
    pub allow_requantize: bool,
    /// Importance values by tensor, and the name of their file, which is written as metadata.
    pub importance: Option<(&'a Importances, &'a CStr)>,
}

impl ByLlama<'_> {
    /// Quantises `input` to `out`.
    ///
    /// # Errors
    /// The log lines, if it fails.
    ///
    /// # Panics
    /// If a name contains a zero byte.
    pub fn run(&self, input: &Path, out: &Path, file_type: FileType) -> Result<(), String> {
        let c_path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero byte");
        let (input, out) = (c_path(input), c_path(out));
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let patterns: Vec<(CString, u32)> = self.given.iter().map(|(p, ty)| (text(p), ty.id())).collect();
        let mut overrides: Vec<_> = patterns
            .iter()
            .map(|(p, ty)| sys::llama_model_tensor_override { pattern: p.as_ptr(), type_: *ty })
            .collect();
        overrides.push(sys::llama_model_tensor_override {
            pattern: std::ptr::null(),
            type_: sys::GGML_TYPE_COUNT,
        });
        let values = self.importance.map_or(&[][..], |(values, _)| values);
        let names: Vec<CString> = values.iter().map(|(name, _)| text(name)).collect();
        let mut importance: Vec<_> = names
            .iter()
            .zip(values)
            .map(|(name, (_, values))| sys::llama_model_imatrix_data {
                name: name.as_ptr(),
                data: values.as_ptr(),
                size: values.len(),
            })
            .collect();
        importance.push(sys::llama_model_imatrix_data {
            name: std::ptr::null(),
            data: std::ptr::null(),
            size: 0,
        });
        // SAFETY: the structs are plain C data (integers, bytes), for which all zeros is a valid
        // value: the end of the list.
        let mut metadata: [sys::llama_model_kv_override; 3] = unsafe { std::mem::zeroed() };
        if let Some((values, file)) = self.importance {
            set_key(&mut metadata[0], c"quantize.imatrix.file");
            metadata[0].tag = sys::LLAMA_KV_OVERRIDE_TYPE_STR;
            let mut bytes = [0; 128];
            for (to, from) in bytes.iter_mut().zip(file.to_bytes().iter().take(127)) {
                *to = std::ffi::c_char::from_ne_bytes([*from]);
            }
            metadata[0].__bindgen_anon_1.val_str = bytes;
            set_key(&mut metadata[1], c"quantize.imatrix.entries_count");
            metadata[1].tag = sys::LLAMA_KV_OVERRIDE_TYPE_INT;
            metadata[1].__bindgen_anon_1.val_i64 = values.len() as i64;
        }
        // SAFETY: returns plain values.
        let mut params = unsafe { sys::llama_model_quantize_default_params() };
        params.pure_ = self.pure;
        params.allow_requantize = self.allow_requantize;
        params.tt_overrides = overrides.as_ptr();
        if self.importance.is_some() {
            params.imatrix = importance.as_ptr();
            params.kv_overrides = metadata.as_ptr();
        }
        match file_type.id() {
            Some(id) => params.ftype = id,
            None => params.only_copy = true,
        }
        let (status, lines) = log::capture(|| {
            // SAFETY: everything pointed to outlives the call.
            guard(|| unsafe { calls::llama_model_quantize(input.as_ptr(), out.as_ptr(), &raw const params) })
        });
        match status {
            Ok(0) => Ok(()),
            Ok(_) => Err(lines.join("; ")),
            Err(thrown) => Err(thrown.to_string()),
        }
    }
}

fn set_key(to: &mut sys::llama_model_kv_override, key: &CStr) {
    for (to, from) in to.key.iter_mut().zip(key.to_bytes_with_nul()) {
        *to = std::ffi::c_char::from_ne_bytes([*from]);
    }
}
