//! ggml's list of devices.
//!
//! ggml does not lock it. llama.cpp takes the first device of type CPU for what no other device
//! holds or computes, when it loads a model and when it makes a context. So a device of Terrace
//! stands first for the length of such a call, and the list is ggml's own at all other times.

use crate::backend::Processor;
use crate::handles::DeviceHandle;
use crate::pin::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Which device of type CPU is first, for the length of a load or of the making of a context. Taken
/// before [`LIST`].
static TURN: Mutex<()> = Mutex::new(());
/// Guards the list, and holds the device of Terrace in it.
static LIST: RwLock<Option<Processor>> = RwLock::new(None);

/// While this lives, no other load or making of a context runs in this process.
pub struct Turn {
    processor: Option<Processor>,
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits until no other turn lives, and puts `processor` before ggml's own CPU device; without
    /// one, that is the first. `None` if a device of type CPU that is not linked into this program
    /// stands before both.
    pub fn take(processor: Option<Processor>) -> Option<Self> {
        let turn = Self { processor, _alone: TURN.lock().unwrap_or_else(PoisonError::into_inner) };
        let Some(processor) = processor else { return Some(turn) };
        let mut list = LIST.write().unwrap_or_else(PoisonError::into_inner);
        *list = Some(processor);
        // SAFETY: the CPU registry is a static object of this program, so that forgetting it frees
        // nothing, and devices stay valid; `TURN` keeps llama.cpp's loads away from the list, and
        // `LIST` everything else.
        let first = unsafe {
            let cpu = sys::ggml_backend_cpu_reg();
            sys::ggml_backend_unload(cpu);
            abi::ggml_backend_register(processor.registry());
            abi::ggml_backend_register(cpu);
            sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU)
        };
        drop(list);
        (first == processor.device().as_raw()).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(processor) = self.processor else { return };
        let mut list = LIST.write().unwrap_or_else(PoisonError::into_inner);
        *list = None;
        // SAFETY: as in `take`; the registry is leaked.
        unsafe { sys::ggml_backend_unload(processor.registry()) };
    }
}

/// Adds a registry's devices to the list.
///
/// # Safety
/// The registry is complete and lives as long as the process.
pub unsafe fn add(registry: sys::ggml_backend_reg_t) {
    let _turn = Turn::take(None);
    let _list = LIST.write().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller's contract; the locks keep readers away.
    unsafe { abi::ggml_backend_register(registry) };
}

/// ggml's own devices and those of [`add`], in ggml's order.
pub fn list() -> Vec<DeviceHandle> {
    let list = LIST.read().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: an index below the count is valid; the lock keeps writers away.
    let all = unsafe {
        (0..sys::ggml_backend_dev_count())
            .filter_map(|index| NonNull::new(sys::ggml_backend_dev_get(index)).map(DeviceHandle))
            .collect::<Vec<_>>()
    };
    let ours = list.map(Processor::device);
    all.into_iter().filter(|&device| Some(device) != ours).collect()
}

/// The names of ggml's backends, in ggml's order.
pub fn backends() -> Vec<String> {
    let list = LIST.read().unwrap_or_else(PoisonError::into_inner);
    let ours = list.map(Processor::registry);
    // SAFETY: an index below the count is valid, and the lock keeps writers away; a name is a C
    // string that lives as long as its registry, which is as long as the process.
    unsafe {
        let registries = (0..sys::ggml_backend_reg_count()).map(|index| sys::ggml_backend_reg_get(index));
        registries
            .filter(|&registry| Some(registry) != ours)
            .map(|registry| {
                CStr::from_ptr(sys::ggml_backend_reg_name(registry)).to_string_lossy().into_owned()
            })
            .collect()
    }
}
