//! Loading a model: as stock llama.cpp does, or with its weights in Terrace's buffer types and none
//! of their bytes touched.

use super::fatal;
use super::load_params::{LoadParams, Pointed};
use super::specials::Specials;
use crate::backend::Processor;
use crate::backend::parked::{self, ParkedError};
use crate::cxx::{calls, guard, guard_assertions};
use crate::devices::libraries;
use crate::devices::registry::Turn;
use crate::devices::remote;
use crate::devices::silence::Loading;
use crate::gguf;
use crate::log;
use llama_cpp_sys_2 as sys;
use std::ffi::CStr;

use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Once, OnceLock};
use terrace_model::printable;
use terrace_platform::{input_file, names};

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// llama.cpp refused the model.
    #[error("cannot load {path}: {reason}", path = .path.display())]
    Refused {
        path: PathBuf,
        /// The most specific error line that llama.cpp logged.
        reason: String,
    },
    /// llama.cpp does not know the architecture: the model is newer than the release, or of no release.
    #[error(
        "cannot load {path}: its architecture is `{architecture}`, which this llama.cpp (of ggml {ggml}) does not know",
        path = .path.display()
    )]
    Architecture {
        path: PathBuf,
        /// `general.architecture`, printable.
        architecture: String,
        /// The version of the linked ggml.
        ggml: String,
    },
    /// A buffer of Terrace failed.
    #[error("cannot load {path}: {source}", path = .path.display())]
    Parked {
        path: PathBuf,
        /// The buffer's error.
        source: ParkedError,
    },
    /// A device of type CPU that was loaded from a library stands before the one that is linked.
    #[error("ggml's first CPU device is not the one that this program was built with")]
    NotFirst,
    /// A path with a NUL byte.
    #[error("{path:?} contains a NUL byte", path = .0)]
    Path(PathBuf),
}

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    ptr: NonNull<sys::llama_model>,
    /// Device in place of ggml's own CPU device.
    processor: Option<Processor>,
    /// Made when a text is tokenised first.
    pub(super) specials: OnceLock<Specials>,
}

// SAFETY: llama.cpp models are read-only after loading; contexts synchronise their own state.
unsafe impl Send for Model {}
// SAFETY: as for Send.
unsafe impl Sync for Model {}

impl Model {
    /// Loads `path` (the first shard of a split model).
    ///
    /// # Errors
    /// [`LoadError`] with the reason of llama.cpp, or of a buffer type of Terrace.
    pub fn load(path: &Path, params: &LoadParams) -> Result<Self, LoadError> {
        init();
        let c_path = names::c_string(path).map_err(|_| LoadError::Path(path.into()))?;
        let pointed = Pointed::of(params);
        if !params.header_only {
            let buffers = params.overrides.iter().map(|&(_, buffers)| buffers);
            remote::need(params.devices.iter().map(|&(device, _)| device), buffers);
        }
        let _loading = Loading::begin();
        drop(parked::take());
        let (model, lines) = {
            let _turn = Turn::take(params.processor).ok_or(LoadError::NotFirst)?;
            let raw = pointed.raw(params);
            log::capture(|| {
                // SAFETY: the path and everything that the parameters point to outlive the call;
                // buffer types are static.
                guard_assertions(|| unsafe { calls::llama_model_load_from_file(c_path.as_ptr(), raw) })
            })
        };
        let (model, reason) = match model {
            Ok(model) => (NonNull::new(model), most_telling(&lines)),
            Err(thrown) => (None, thrown.to_string()),
        };
        let reason = if model.is_some() { reason } else { explained(path, reason) };
        let processor = params.processor;
        model.map(|ptr| Self { ptr, processor, specials: OnceLock::new() }).ok_or_else(
            || match parked::take() {
                Some(source) => LoadError::Parked { path: path.into(), source },
                None => refused(path, reason),
            },
        )
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::llama_model {
        self.ptr.as_ptr()
    }

    /// Device in place of ggml's own CPU device; `None` in stock runs.
    pub(super) const fn processor(&self) -> Option<Processor> {
        self.processor
    }

    /// The model's chat template, as Jinja source.
    ///
    /// # Panics
    /// If llama.cpp cannot allocate a few dozen bytes.
    pub fn chat_template(&self) -> Option<String> {
        // SAFETY: the model is alive; null selects the default template.
        let template = guard(|| unsafe { calls::llama_model_chat_template(self.as_ptr(), std::ptr::null()) });
        let template = template.expect("memory for a key");
        // SAFETY: non-null is a zero-terminated string owned by the model.
        (!template.is_null()).then(|| unsafe { CStr::from_ptr(template) }.to_string_lossy().into_owned())
    }

    /// Context length that the model was trained with.
    pub fn trained_context(&self) -> u32 {
        // SAFETY: the model is alive.
        u32::try_from(unsafe { sys::llama_model_n_ctx_train(self.as_ptr()) }).unwrap_or(0)
    }

    /// Returns true if the model generates text. Pure encoders do not.
    pub fn has_decoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_decoder(self.as_ptr()) }
    }

    /// Returns true if the model reads a text with an encoder before it generates.
    pub fn has_encoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_encoder(self.as_ptr()) }
    }

    /// Returns true if the model refines whole texts in steps, instead of choosing one token after another.
    pub fn is_diffusion(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_is_diffusion(self.as_ptr()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: owned; contexts hold an Arc of the model and are gone.
        unsafe { sys::llama_model_free(self.as_ptr()) }
    }
}

/// Initialises llama.cpp. Must precede any other call of it. Idempotent.
pub(super) fn init() {
    static ONCE: Once = Once::new();
    log::to_tracing();
    fatal::report_in_one_line();
    ONCE.call_once(|| {
        // The graphs and schedules that llama.cpp makes again after each reload would leave holes in the
        // heap: 0.3 MiB each, measured on models of a few MiB.
        terrace_platform::memory::give_large_blocks_back();
        // SAFETY: called once, before any other llama.cpp function of this process.
        unsafe { sys::llama_backend_init() };
    });
}

/// The beginning of llama.cpp's reason for an architecture that it does not know.
const UNKNOWN_ARCHITECTURE: &str = "unknown model architecture: '";

/// A part of llama.cpp's reason where a check of the metadata failed.
const ASSERTION: &str = "GGML_ASSERT(";
/// A part of llama.cpp's reason where it could not open or read the file's header.
const NOT_OPENED: &str = "failed to load model from";

/// The reason of a refusal in the file's own terms, where llama.cpp names only what it has checked.
fn explained(path: &Path, reason: String) -> String {
    if reason.contains("token_to_id.size()")
        && let Some((token, first, second)) = gguf::repeated_token(path)
    {
        let token = printable(&token);
        return format!(
            "the vocabulary has the token `{token}` twice, as number {first} and as number {second}"
        );
    }
    // llama.cpp opens the file by itself, and does not say why it could not.
    if reason.contains(NOT_OPENED)
        && let Err(error) = input_file::open(path)
    {
        return error.to_string();
    }
    if !reason.contains(ASSERTION) {
        return reason;
    }
    let of_part = reason.strip_prefix("error loading model ").and_then(|rest| rest.split_once(": "));
    let (part, assertion) = of_part.unwrap_or(("metadata", &reason));
    format!("the file's {part} contradict each other ({assertion})")
}

/// The error of a model that llama.cpp has refused.
fn refused(path: &Path, reason: String) -> LoadError {
    let path = path.into();
    let name = reason.strip_prefix(UNKNOWN_ARCHITECTURE).and_then(|name| name.strip_suffix('\''));
    match name.map(printable) {
        Some(architecture) => LoadError::Architecture { path, architecture, ggml: libraries::version() },
        None => LoadError::Refused { path, reason },
    }
}

/// The most specific line of llama.cpp's log, without its function's name. The innermost error
/// comes first.
fn most_telling(lines: &[String]) -> String {
    let line = lines.iter().find(|l| l.contains("error loading model")).or(lines.first());
    let Some(line) = line else { return "llama.cpp gave no reason".into() };
    line.split_once("error loading model: ")
        .map_or_else(|| line.split_once(": ").map_or(line.as_str(), |(_, rest)| rest), |(_, rest)| rest)
        .to_owned()
}
