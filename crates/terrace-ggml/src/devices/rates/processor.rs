//! A device with meaningless weights, and copies to it and back.

use super::error::RatesError;
use crate::cpu::CpuBackend;
use crate::cxx::{calls, copies, guard};
use crate::handles::DeviceHandle;
use crate::raw::owned::{OwnedBackend, OwnedBuffer};
use crate::raw::scratch::ScratchContext;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;

/// Bytes of the pattern that fills the weights; a prime number, so that matrices differ.
const PATTERN: usize = 1_048_573;
/// The byte that fills the weights of a device: one of the pattern's.
const FILLING: u8 = 0x2b;

/// A device with weights to compute with.
pub struct Processor {
    pub(super) name: String,
    // Dropped before the stream.
    weights: OwnedBuffer,
    pub(super) stream: Stream,
    pub(super) bytes: u64,
}

/// A backend that computes graphs.
pub(super) enum Stream {
    Cpu(CpuBackend),
    Device(OwnedBackend),
}

// SAFETY: backends and buffers have no thread affinity; `&mut self` makes their use exclusive.
unsafe impl Send for Processor {}

impl Processor {
    /// The CPU with `threads` threads, and `weights` bytes of memory.
    ///
    /// # Errors
    /// If there is no room.
    pub fn cpu(threads: usize, weights: ByteSize) -> Result<Self, RatesError> {
        let stream = Stream::Cpu(CpuBackend::new(threads));
        // SAFETY: no arguments; the CPU's buffer type is static.
        Self::with("CPU".into(), stream, unsafe { sys::ggml_backend_cpu_buffer_type() }, weights)
    }

    /// A device, and `weights` bytes of its memory.
    ///
    /// # Errors
    /// If it does not start, or has no room.
    pub fn device(device: DeviceHandle, weights: ByteSize) -> Result<Self, RatesError> {
        let name = device.name();
        // SAFETY: a live device; no parameters.
        let backend = guard(|| unsafe { calls::ggml_backend_dev_init(device.as_raw(), std::ptr::null()) });
        let backend = NonNull::new(backend.unwrap_or(std::ptr::null_mut()));
        let backend = backend.ok_or_else(|| RatesError::Start { device: name.clone() })?;
        // SAFETY: a live device.
        let buffers = unsafe { sys::ggml_backend_dev_buffer_type(device.as_raw()) };
        Self::with(name, Stream::Device(OwnedBackend(backend)), buffers, weights)
    }

    fn with(
        name: String,
        stream: Stream,
        buffers: sys::ggml_backend_buffer_type_t,
        weights: ByteSize,
    ) -> Result<Self, RatesError> {
        let no_room = || RatesError::Memory { device: name.clone(), bytes: weights };
        let size = usize::try_from(weights.bytes()).map_err(|_| no_room())?;
        // SAFETY: a live buffer type; the result is owned.
        let buffer = NonNull::new(unsafe { sys::ggml_backend_buft_alloc_buffer(buffers, size) });
        let buffer = OwnedBuffer(buffer.ok_or_else(no_room)?);
        let this = Self { name, weights: buffer, stream, bytes: weights.bytes() };
        this.fill()?;
        Ok(this)
    }

    /// Has idle threads of the CPU sleep, so that they leave the cores to what is measured between two products.
    pub fn let_threads_sleep(&mut self) {
        if let Stream::Cpu(backend) = &mut self.stream {
            backend.let_threads_sleep();
        }
    }

    /// Size of the weights.
    pub fn weights(&self) -> ByteSize {
        ByteSize(self.bytes)
    }

    /// The weights, if they are in main memory.
    pub fn host_weights(&self) -> Option<&[u8]> {
        // SAFETY: a live buffer; a host buffer's base is memory of its size, filled by `fill`,
        // which nothing writes to while `self` is borrowed.
        unsafe {
            let host = sys::ggml_backend_buffer_is_host(self.weights.0.as_ptr());
            let base = sys::ggml_backend_buffer_get_base(self.weights.0.as_ptr()).cast::<u8>();
            let len = usize::try_from(self.bytes).expect("it was allocated");
            (host && !base.is_null()).then(|| std::slice::from_raw_parts(base, len))
        }
    }

    /// The latency of small copies in seconds: half of the best times there and back. Measured for
    /// `time`.
    pub fn latency(&mut self, time: Duration) -> f64 {
        self.copies(64, time).map_or(0.0, |(there, back)| (there + back) / 2.0)
    }

    /// Rates in bytes per second of copies to the device and back, in pieces of `bytes`. Measured
    /// for `time` in each direction.
    pub fn link(&mut self, bytes: ByteSize, time: Duration) -> Option<(f64, f64)> {
        let (there, back) = self.copies(usize::try_from(bytes.bytes()).ok()?, time * 2)?;
        Some((bytes.bytes() as f64 / there, bytes.bytes() as f64 / back))
    }

    /// The shortest times in seconds for copying `bytes` there and, separately, back.
    fn copies(&mut self, bytes: usize, time: Duration) -> Option<(f64, f64)> {
        if bytes == 0 || bytes as u64 > self.bytes {
            return None;
        }
        let mut host = pattern(bytes);
        let context = ScratchContext::new(1);
        let tensor = self.raw_bytes(&context, 0, bytes)?;
        let (mut there, mut back) = (f64::INFINITY, f64::INFINITY);
        let started = Instant::now();
        loop {
            let before = Instant::now();
            // SAFETY: the tensor has a place in the live buffer, and `host` has as many bytes. The
            // last byte can be read back only after everything before it has arrived.
            unsafe {
                copies::put(tensor, 0, &host).ok()?;
                copies::get(tensor, bytes - 1, &mut [0u8]).ok()?;
            }
            there = there.min(before.elapsed().as_secs_f64());
            let before = Instant::now();
            // SAFETY: as above.
            unsafe { copies::get(tensor, 0, &mut host) }.ok()?;
            back = back.min(before.elapsed().as_secs_f64());
            if started.elapsed() >= time {
                break;
            }
        }
        Some((there, back))
    }

    /// A tensor of `bytes` bytes at `offset` of the weights.
    fn raw_bytes(
        &self,
        context: &ScratchContext,
        offset: u64,
        bytes: usize,
    ) -> Option<*mut sys::ggml_tensor> {
        let elements = i64::try_from(bytes).ok()?;
        // SAFETY: the context is alive and has room for a tensor.
        let tensor = unsafe { sys::ggml_new_tensor_1d(context.raw(), sys::GGML_TYPE_I8, elements) };
        self.place(tensor, offset).then_some(tensor)
    }

    /// Gives a tensor a place in the weights; false if it does not fit there.
    pub(super) fn place(&self, tensor: *mut sys::ggml_tensor, offset: u64) -> bool {
        // SAFETY: a live buffer and a live tensor without memory; the place lies within the buffer.
        unsafe {
            let size = sys::ggml_backend_buffer_get_alloc_size(self.weights.0.as_ptr(), tensor) as u64;
            if offset.checked_add(size).is_none_or(|end| end > self.bytes) {
                return false;
            }
            let base = sys::ggml_backend_buffer_get_base(self.weights.0.as_ptr()).cast::<u8>();
            let offset = usize::try_from(offset).expect("within a buffer");
            let address = base.wrapping_add(offset).cast();
            sys::ggml_backend_tensor_alloc(self.weights.0.as_ptr(), tensor, address)
                == sys::GGML_STATUS_SUCCESS
        }
    }

    /// Fills the weights: main memory with the pattern, because untouched pages would all be the same
    /// zero page; a device's with one byte, which need not be sent to it.
    fn fill(&self) -> Result<(), RatesError> {
        if matches!(self.stream, Stream::Device(_)) {
            // SAFETY: a live buffer.
            let filled =
                guard(|| unsafe { calls::ggml_backend_buffer_clear(self.weights.0.as_ptr(), FILLING) });
            return filled.map_err(|source| RatesError::Threw { device: self.name.clone(), source });
        }
        let pattern = pattern(PATTERN);
        let mut at = 0;
        while at < self.bytes {
            let len = usize::try_from(self.bytes - at).map_or(PATTERN, |left| left.min(PATTERN));
            let context = ScratchContext::new(1);
            let Some(tensor) = self.raw_bytes(&context, at, len) else { break };
            // SAFETY: the tensor has a place of `len` bytes in the live buffer.
            if unsafe { copies::put(tensor, 0, &pattern[..len]) }.is_err() {
                break;
            }
            at += len as u64;
        }
        Ok(())
    }
}

impl Stream {
    pub(super) fn raw(&self) -> sys::ggml_backend_t {
        match self {
            Self::Cpu(backend) => backend.raw(),
            Self::Device(backend) => backend.0.as_ptr(),
        }
    }
}

/// Makes bytes that are sane weights in every type. Read as 16-bit or 32-bit floats, or as
/// exponents, they are small positive normal numbers, so that no kernel meets values that slow
/// arithmetic down; their lower bits are random.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; len];
    for byte in &mut bytes {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 56) as u8 & 0x1f | 0x20;
    }
    bytes
}
