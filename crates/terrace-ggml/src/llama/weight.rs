//! The weights of a loaded model, which can be given other bytes, and their own ones back.

use super::{Context, Model};
use crate::devices::devices;
use crate::devices::rates::ScratchContext;
use crate::memory::{Pages, SLACK};
use crate::tensor::DataType;
use crate::tensor::Tensor;
use llama_cpp_sys_2 as sys;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

unsafe extern "C" {
    /// `tensor_map.cpp`.
    fn terrace_model_tensors(
        model: *const sys::llama_model,
        out: *mut *mut sys::ggml_tensor,
        capacity: usize,
    ) -> usize;
}

/// A device's slice is taken to be up to half as much again as its share, since borders are rounded.
const SLICE_SLACK: u64 = 3;
/// Bytes beside it: alignment, and what devices pad rows with.
const SLICE_PADDING: u64 = 64 << 10;

/// Where a weight's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Where the load put them: memory that other weights share, which is never freed or written to while the model lives.
    OnOriginal,
    /// In memory of their own, of the same kind.
    Detached,
    /// In main memory, because the device that they were on had no room for them.
    FallbackCpu,
}

/// The fields of a tensor that say how and where it is stored.
#[derive(Clone, Copy)]
struct Stored {
    ty: sys::ggml_type,
    nb: [usize; 4],
    data: *mut c_void,
    buffer: *mut sys::ggml_backend_buffer,
    extra: *mut c_void,
}

/// Memory that one weight alone is in.
enum Private {
    None,
    Host { pages: Pages },
    Device { _buffer: DeviceBuffer },
    Fallback { _buffer: DeviceBuffer, pages: Pages },
}

/// A buffer of ggml's.
struct DeviceBuffer(NonNull<sys::ggml_backend_buffer>);

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: owned; the tensor that was in it has been given another place (`Weight`).
        unsafe { sys::ggml_backend_buffer_free(self.0.as_ptr()) };
    }
}

/// One weight tensor of a model.
///
/// What changes it wants a context of the model, exclusively: nothing is computed meanwhile, and the context builds its next
/// graph anew ([`Context::forget_graphs`]). A model with several contexts must have all of them idle.
pub struct Weight {
    tensor: NonNull<sys::ggml_tensor>,
    original: Stored,
    /// Name of the buffer type of the original.
    place: String,
    private: Private,
    // Last: its buffers are where the tensor is put back to.
    _model: Arc<Model>,
}

// SAFETY: the tensor is the model's; it is changed only with a context at hand that nobody else can use meanwhile.
unsafe impl Send for Weight {}

impl Weight {
    /// All weights of the model. A tensor that llama.cpp made two of (a tied embedding) is there twice under its name.
    pub fn all(model: &Arc<Model>) -> Vec<Self> {
        // SAFETY: the model is alive; the second call's room is what the first one said.
        let tensors = unsafe {
            let count = terrace_model_tensors(model.as_ptr(), std::ptr::null_mut(), 0);
            let mut tensors = vec![std::ptr::null_mut(); count];
            terrace_model_tensors(model.as_ptr(), tensors.as_mut_ptr(), count);
            tensors
        };
        let weight = |tensor: NonNull<sys::ggml_tensor>| {
            // SAFETY: a tensor of the model, initialised by its load.
            let original = unsafe { Stored::of(tensor) };
            let (private, model) = (Private::None, Arc::clone(model));
            let mut weight = Self { tensor, original, place: String::new(), private, _model: model };
            weight.place = weight.original_type().map_or_else(String::new, |buft| buft.name());
            weight
        };
        tensors.into_iter().filter_map(NonNull::new).map(weight).collect()
    }

    fn get(&self) -> Tensor<'_> {
        // SAFETY: the model outlives self (the Arc); it is written to with `&mut self` only.
        unsafe { Tensor::from_raw(self.tensor.as_ptr()) }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.get().name()
    }

    /// Element type, as it is now.
    pub fn ty(&self) -> DataType {
        self.get().ty()
    }

    /// Bytes, as it is now.
    pub fn bytes(&self) -> usize {
        self.get().bytes()
    }

    /// Where its bytes are.
    pub fn seat(&self) -> Seat {
        match self.private {
            Private::None => Seat::OnOriginal,
            Private::Host { .. } | Private::Device { .. } => Seat::Detached,
            Private::Fallback { .. } => Seat::FallbackCpu,
        }
    }

    /// Main memory that it takes beside what the load gave it.
    pub fn own_memory(&self) -> ByteSize {
        match &self.private {
            Private::None | Private::Device { .. } => ByteSize::ZERO,
            Private::Host { pages } | Private::Fallback { pages, .. } => pages.size(),
        }
    }

    /// Name of the buffer type that the load chose.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether its bytes are main memory in ggml's plain layout.
    pub fn is_host(&self) -> bool {
        self.original_type().is_some_and(|buft| buft.is_host())
    }

    fn original_type(&self) -> Option<crate::backend::buffer::BufferTypeHandle> {
        let buffer = NonNull::new(self.original.buffer)?;
        // SAFETY: the load's buffers live as long as the model.
        unsafe {
            let buft = sys::ggml_backend_buffer_get_type(buffer.as_ptr());
            (!buft.is_null()).then(|| crate::backend::buffer::BufferTypeHandle::from_raw(buft))
        }
    }

    /// Whether the device that the weight is on (the CPU, for `host` ones) multiplies by it stored as `ty`, and looks rows up
    /// in it, where `rows` says that it is a table.
    pub fn can_be(&self, ty: DataType, host: bool, rows: bool) -> bool {
        let context = ScratchContext::new(8);
        let [n, m, experts, _] = self.get().ne();
        // SAFETY: the context has room for the tensors, which get no memory; operations are only asked about.
        unsafe {
            let (ctx, f32) = (context.raw(), sys::GGML_TYPE_F32);
            if n % sys::ggml_blck_size(ty.0) != 0 {
                return false;
            }
            let weight = sys::ggml_new_tensor_3d(ctx, ty.0, n, m, experts);
            let product = if experts > 1 {
                let ids = sys::ggml_new_tensor_2d(ctx, sys::GGML_TYPE_I32, 1, 1);
                sys::ggml_mul_mat_id(ctx, weight, sys::ggml_new_tensor_3d(ctx, f32, n, 1, 1), ids)
            } else {
                sys::ggml_mul_mat(ctx, weight, sys::ggml_new_tensor_2d(ctx, f32, n, 1))
            };
            let device = match self.original_type().filter(|_| !host) {
                Some(buft) => sys::ggml_backend_buft_get_device(buft.as_raw()),
                None => std::ptr::null_mut(),
            };
            let cpu = sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU);
            let device = if device.is_null() { cpu } else { device };
            if !sys::ggml_backend_dev_supports_op(device, product) {
                return false;
            }
            // Tables are looked up in on the CPU.
            let index = sys::ggml_new_tensor_1d(ctx, sys::GGML_TYPE_I32, 1);
            !rows || sys::ggml_backend_dev_supports_op(cpu, sys::ggml_get_rows(ctx, weight, index))
        }
    }

    /// Whether its bytes now are these. A device's, or a streamed weight's, are fetched for it.
    ///
    /// # Panics
    /// If `bytes` are not as many.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        assert_eq!(bytes.len(), self.bytes(), "{}", self.name());
        // SAFETY: the model's tensor, which nobody writes to meanwhile.
        unsafe { is_stored(&*self.tensor.as_ptr(), bytes) }
    }

    /// Whether what was loaded are these bytes. False for other lengths.
    pub fn held(&self, bytes: &[u8]) -> bool {
        // SAFETY: as in `holds`; a copy of the tensor, as the load left it, whose memory still is as it was.
        unsafe {
            let mut tensor = *self.tensor.as_ptr();
            self.original.write_to(&raw mut tensor);
            sys::ggml_nbytes(&raw const tensor) == bytes.len() && is_stored(&tensor, bytes)
        }
    }

    /// Memory for `len` bytes of a weight, to be filled and given to [`Weight::put`].
    ///
    /// # Errors
    /// The system's.
    pub fn memory(len: usize) -> std::io::Result<Pages> {
        Pages::new(len + SLACK)
    }

    /// What [`Weight::memory`] for `len` bytes takes.
    pub const fn memory_size(len: u64) -> ByteSize {
        ByteSize(len + SLACK as u64)
    }

    /// Stores the weight in main memory, as `ty`, wherever it was.
    ///
    /// # Panics
    /// As [`Weight::put`].
    pub fn put_on_host(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        self.fall_back(stored, bytes);
    }

    /// Stores the weight as `ty` in memory of its own, with the bytes that `bytes` begins with: where they are, for a weight in
    /// main memory, or else on its device, or if that has no room, in main memory all the same. Memory of its own that it had
    /// before is freed first.
    ///
    /// # Panics
    /// If `bytes` are fewer than the weight has as `ty`.
    pub fn put(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        if self.is_host() {
            self.write(Stored { data: bytes.base(), ..stored });
            self.private = Private::Host { pages: bytes };
        } else if let Some(buffer) = self.allocate() {
            // SAFETY: the tensor was just placed in the buffer, which has room for it; `bytes` has so many.
            unsafe {
                sys::ggml_backend_tensor_set(self.tensor.as_ptr(), bytes.base(), 0, self.bytes());
            }
            self.private = Private::Device { _buffer: buffer };
        } else {
            self.fall_back(stored, bytes);
        }
    }

    /// The weight is typed as `ty` and has no memory of its own; graphs are forgotten. `bytes` are enough for it.
    fn vacate(&mut self, idle: &mut Context, ty: DataType, bytes: &mut Pages) -> Stored {
        self.restore(idle);
        let stored = self.original.retyped(ty, self.get().ne());
        self.write(stored);
        assert!(self.bytes() <= bytes.as_mut_slice().len(), "{}", self.name());
        stored
    }

    fn fall_back(&mut self, stored: Stored, bytes: Pages) {
        let len = self.bytes();
        // SAFETY: the pages live as long as the buffer over them (`Private`).
        let buffer = unsafe { sys::ggml_backend_cpu_buffer_from_ptr(bytes.base(), len) };
        let buffer = DeviceBuffer(NonNull::new(buffer).expect("a description of memory"));
        // SAFETY: a live buffer.
        unsafe {
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        }
        let extra = std::ptr::null_mut();
        self.write(Stored { data: bytes.base(), buffer: buffer.0.as_ptr(), extra, ..stored });
        self.private = Private::Fallback { _buffer: buffer, pages: bytes };
    }

    /// The weight is stored as the load did it: no byte moves. Memory of its own is freed.
    pub fn restore(&mut self, idle: &mut Context) {
        self.write(self.original);
        self.private = Private::None;
        idle.forget_graphs();
    }

    /// The weight is stored as `ty`, wherever that is: for weights whose address holds no bytes.
    pub fn relabel(&mut self, idle: &mut Context, ty: DataType) {
        self.write(self.original.retyped(ty, self.get().ne()));
        idle.forget_graphs();
    }

    /// Whether several devices hold a slice of it each.
    pub fn is_split(&self) -> bool {
        let Some(buft) = self.original_type() else { return false };
        // SAFETY: a live buffer type; its device, if it has one, lives as long as the model.
        unsafe {
            let device = sys::ggml_backend_buft_get_device(buft.as_raw());
            !device.is_null() && sys::ggml_backend_dev_type(device) == sys::GGML_BACKEND_DEVICE_TYPE_META
        }
    }

    /// All its bytes as they are now, fetched from wherever they are.
    ///
    /// # Errors
    /// No memory for them.
    pub fn fetch(&self) -> std::io::Result<Pages> {
        let len = self.bytes();
        let mut pages = Self::memory(len)?;
        // SAFETY: the tensor is in a buffer; the pages have the room.
        unsafe {
            sys::ggml_backend_tensor_get(
                self.tensor.as_ptr(),
                pages.as_mut_slice().as_mut_ptr().cast(),
                0,
                len,
            );
        }
        Ok(pages)
    }

    /// A place on the weight's device for it as it is typed now. The tensor is then in it.
    fn allocate(&mut self) -> Option<DeviceBuffer> {
        if self.is_split() { self.allocate_slices() } else { self.allocate_whole() }
    }

    /// A slice on each device. The borders between them are llama.cpp's, which go by the types of the tensors that belong
    /// together, as they are now.
    fn allocate_slices(&mut self) -> Option<DeviceBuffer> {
        let buft = self.original_type()?.as_raw();
        let devices = devices().into_iter().filter(|device| device.is_accelerator());
        let free: Vec<u64> = devices.map(|device| device.memory().0.bytes()).collect();
        // ggml gives up where one of them has no room.
        let slice = self.bytes() as u64 * SLICE_SLACK / (free.len().max(1) as u64 * 2) + SLICE_PADDING;
        if free.iter().any(|free| *free < slice) {
            return None;
        }
        let mut tensor = self.tensor.as_ptr();
        // SAFETY: a live buffer type and tensor; ggml wants a tensor that is nowhere, makes the slices, and puts it there.
        unsafe {
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            let buffer = sys::ggml_backend_buft_alloc_buffer_n(buft, &raw mut tensor, 1);
            let buffer = DeviceBuffer(NonNull::new(buffer)?);
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            Some(buffer)
        }
    }

    /// All of it on one device.
    fn allocate_whole(&mut self) -> Option<DeviceBuffer> {
        let buft = self.original_type()?.as_raw();
        let tensor = self.tensor.as_ptr();
        // SAFETY: a live buffer type and tensor; ggml wants a tensor that is nowhere, and puts it at the buffer's begin, which
        // is aligned and has the room that was asked for.
        unsafe {
            let size = sys::ggml_backend_buft_get_alloc_size(buft, tensor);
            let buffer = DeviceBuffer(NonNull::new(sys::ggml_backend_buft_alloc_buffer(buft, size))?);
            let base = sys::ggml_backend_buffer_get_base(buffer.0.as_ptr());
            if base.is_null() {
                return None;
            }
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            let before = Stored::of(self.tensor);
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            if sys::ggml_backend_tensor_alloc(buffer.0.as_ptr(), tensor, base) != sys::GGML_STATUS_SUCCESS {
                self.write(before);
                return None;
            }
            Some(buffer)
        }
    }

    fn write(&mut self, stored: Stored) {
        // SAFETY: the model is alive, and nothing is computed (`&mut Context`, or all contexts are gone).
        unsafe { stored.write_to(self.tensor.as_ptr()) };
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        // The model may live on, with contexts to come.
        self.write(self.original);
        self.private = Private::None;
    }
}

/// Whether the tensor's buffer holds these bytes, as many as it has.
///
/// # Safety
/// The tensor is in a buffer that is alive, and nothing is computed.
unsafe fn is_stored(tensor: &sys::ggml_tensor, bytes: &[u8]) -> bool {
    const PART: usize = 4 << 20;
    let mut part = vec![0; bytes.len().min(PART)];
    bytes.chunks(PART).enumerate().all(|(i, expected)| {
        let own = &mut part[..expected.len()];
        // SAFETY: offset and length lie within the tensor; `own` has the room.
        unsafe { sys::ggml_backend_tensor_get(tensor, own.as_mut_ptr().cast(), i * PART, own.len()) };
        own == expected
    })
}

impl Stored {
    /// # Safety
    /// The tensor is alive and not written to meanwhile.
    unsafe fn of(tensor: NonNull<sys::ggml_tensor>) -> Self {
        // SAFETY: as the caller says.
        let tensor = unsafe { tensor.as_ref() };
        let sys::ggml_tensor { type_: ty, nb, data, buffer, extra, .. } = *tensor;
        Self { ty, nb, data, buffer, extra }
    }

    /// # Safety
    /// The tensor is alive, and nobody else looks at it.
    unsafe fn write_to(&self, tensor: *mut sys::ggml_tensor) {
        // SAFETY: as the caller says.
        unsafe {
            (*tensor).type_ = self.ty;
            (*tensor).nb = self.nb;
            (*tensor).data = self.data;
            (*tensor).buffer = self.buffer;
            (*tensor).extra = self.extra;
        }
    }

    /// Rows without gaps of another type.
    fn retyped(self, ty: DataType, ne: [i64; 4]) -> Self {
        // SAFETY: table look-ups by a type of ggml's.
        let (size, row) = unsafe { (sys::ggml_type_size(ty.0), sys::ggml_row_size(ty.0, ne[0])) };
        let [_, rows, matrices, _] = ne.map(|n| usize::try_from(n).expect("dimensions are not negative"));
        Self { ty: ty.0, nb: [size, row, row * rows, row * rows * matrices], ..self }
    }
}
