//! Slots for a layer's experts in a device's memory.

use super::error::ExpertDeviceError;
use crate::cpu::row_op::Table;
use crate::cxx::{CxxError, copies};
use crate::handles::DeviceHandle;
use crate::raw::owned::OwnedBuffer;
use crate::raw::scratch::ScratchContext;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use std::ptr::NonNull;
use terrace_model::ByteSize;

/// Type and shape of an expert's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShape {
    /// Type of its elements.
    pub ty: DataType,
    /// Elements of a row, which is the size of the input; whole blocks of the type.
    pub inner: u64,
    /// Number of rows, which is the size of the output.
    pub rows: u64,
}

/// Tensors `[inner, rows, slots]`, one for each matrix.
pub struct Slots {
    tensors: Vec<*mut sys::ggml_tensor>,
    // Dropped before the context that the tensors are in. None in a buffer that others share.
    _buffer: Option<OwnedBuffer>,
    _context: ScratchContext,
}

impl Slots {
    pub fn new(device: DeviceHandle, matrices: &[SlotShape], slots: u32) -> Result<Self, ExpertDeviceError> {
        let context = ScratchContext::new(matrices.len() * 4 + 4);
        let tensors: Vec<_> = matrices.iter().map(|matrix| matrix.tensor(&context, slots)).collect();
        for (tensor, matrix) in tensors.iter().zip(matrices) {
            matrix.check(device, &context, *tensor)?;
        }
        let buffer = hold(device, &tensors)?;
        Ok(Self { tensors, _buffer: Some(buffer), _context: context })
    }

    /// Makes slots in a buffer that others use at other times, as many as it has room for. `None` if
    /// there is none, or if the device cannot multiply by one of the types.
    pub fn within(device: DeviceHandle, buffer: &OwnedBuffer, matrices: &[SlotShape]) -> Option<Self> {
        // SAFETY: a live buffer.
        let room = unsafe { sys::ggml_backend_buffer_get_size(buffer.0.as_ptr()) } as u64;
        let one = bytes_for(device, matrices, 1).bytes().max(1);
        let most = u32::try_from(room / one).unwrap_or(u32::MAX);
        let slots = (1..=most).rev().find(|&slots| bytes_for(device, matrices, slots).bytes() <= room)?;
        let context = ScratchContext::new(matrices.len() * 4 + 4);
        let tensors: Vec<_> = matrices.iter().map(|matrix| matrix.tensor(&context, slots)).collect();
        for (tensor, matrix) in tensors.iter().zip(matrices) {
            matrix.check(device, &context, *tensor).ok()?;
        }
        put_into(device, buffer, &tensors).ok()?;
        Some(Self { tensors, _buffer: None, _context: context })
    }

    /// Their number.
    pub fn count(&self) -> u32 {
        // SAFETY: a live tensor of ours.
        self.tensors.first().map_or(0, |&tensor| u32::try_from(unsafe { (*tensor).ne[2] }).unwrap_or(0))
    }

    pub fn tensor(&self, matrix: usize) -> *mut sys::ggml_tensor {
        self.tensors[matrix]
    }

    /// Size of a matrix's input.
    pub fn inner(&self, matrix: usize) -> usize {
        // SAFETY: a live tensor of ours.
        unsafe { (*self.tensors[matrix]).ne[0] }.unsigned_abs() as usize
    }

    pub fn put(&mut self, matrix: usize, slot: u32, bytes: &[u8]) -> Result<(), CxxError> {
        let tensor = self.tensors[matrix];
        // SAFETY: a live tensor in a buffer; the slot is checked to be within it.
        unsafe {
            let (size, slots) = ((*tensor).nb[2], (*tensor).ne[2]);
            assert!(i64::from(slot) < slots && bytes.len() == size, "slot {slot} of {slots}, {size} bytes");
            copies::put(tensor, slot as usize * size, bytes)
        }
    }
}

impl SlotShape {
    /// Bytes of one expert.
    pub fn bytes(&self) -> ByteSize {
        // SAFETY: plain arithmetic over a valid type.
        let row = unsafe { sys::ggml_row_size(self.ty.0, i64::try_from(self.inner).unwrap_or(i64::MAX)) };
        ByteSize(row as u64 * self.rows)
    }

    fn tensor(&self, context: &ScratchContext, slots: u32) -> *mut sys::ggml_tensor {
        let signed = |n: u64| i64::try_from(n).expect("a matrix's dimension");
        // SAFETY: the context has room for the tensor, which gets no memory.
        unsafe {
            sys::ggml_new_tensor_3d(
                context.raw(),
                self.ty.0,
                signed(self.inner),
                signed(self.rows),
                i64::from(slots),
            )
        }
    }

    /// Checks that the device can multiply by the matrix.
    fn check(
        &self,
        device: DeviceHandle,
        context: &ScratchContext,
        tensor: *mut sys::ggml_tensor,
    ) -> Result<(), ExpertDeviceError> {
        let inner = i64::try_from(self.inner).expect("a matrix's dimension");
        // SAFETY: the context has room for these tensors (Slots::new); the operation is only asked
        // about.
        let supported = unsafe {
            let input = sys::ggml_new_tensor_3d(context.raw(), sys::GGML_TYPE_F32, inner, 1, 1);
            let ids = sys::ggml_new_tensor_2d(context.raw(), sys::GGML_TYPE_I32, 1, 1);
            let product = sys::ggml_mul_mat_id(context.raw(), tensor, input, ids);
            sys::ggml_backend_dev_supports_op(device.as_raw(), product)
        };
        let op = "MUL_MAT_ID with weights of this type";
        if supported { Ok(()) } else { Err(ExpertDeviceError::Unsupported { device: device.name(), op }) }
    }
}

/// Tables of experts' rows in a device's memory.
pub struct Tables {
    tensors: Vec<*mut sys::ggml_tensor>,
    // Dropped before the context that the tensors are in.
    _buffer: OwnedBuffer,
    _context: ScratchContext,
}

impl Tables {
    pub fn new(device: DeviceHandle, tables: &[Table]) -> Result<Self, ExpertDeviceError> {
        let context = ScratchContext::new(tables.len() + 1);
        let signed = |n: usize| i64::try_from(n).expect("a table's dimension");
        // SAFETY: the context has room for these tensors.
        let tensor = |table: &Table| unsafe {
            let rows = table.values.len() / table.width.max(1);
            sys::ggml_new_tensor_2d(context.raw(), sys::GGML_TYPE_F32, signed(table.width), signed(rows))
        };
        let tensors: Vec<_> = tables.iter().map(tensor).collect();
        let buffer = hold(device, &tensors)?;
        for (&tensor, table) in tensors.iter().zip(tables) {
            // SAFETY: the tensor lies in the buffer, and has as many bytes.
            unsafe { copies::put(tensor, 0, &table.values) }
                .map_err(|source| ExpertDeviceError::Threw { device: device.name(), source })?;
        }
        Ok(Self { tensors, _buffer: buffer, _context: context })
    }

    pub fn tensor(&self, table: usize) -> *mut sys::ggml_tensor {
        self.tensors[table]
    }
}

/// Allocates memory of the device for these tensors, and places them in it.
fn hold(device: DeviceHandle, tensors: &[*mut sys::ggml_tensor]) -> Result<OwnedBuffer, ExpertDeviceError> {
    let buffer = allocate(device, ByteSize(end(device, tensors) as u64))?;
    put_into(device, &buffer, tensors)?;
    Ok(buffer)
}

/// Places tensors in a buffer that has room for them.
fn put_into(
    device: DeviceHandle,
    buffer: &OwnedBuffer,
    tensors: &[*mut sys::ggml_tensor],
) -> Result<(), ExpertDeviceError> {
    // SAFETY: a live buffer with room for all of them, one after the other at the device's
    // alignment; live tensors that are nowhere.
    unsafe {
        sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        let base = sys::ggml_backend_buffer_get_base(buffer.0.as_ptr()).cast::<u8>();
        for (&tensor, (at, _)) in tensors.iter().zip(places(device, tensors)) {
            let status =
                sys::ggml_backend_tensor_alloc(buffer.0.as_ptr(), tensor, base.wrapping_add(at).cast());
            if status != sys::GGML_STATUS_SUCCESS {
                return Err(ExpertDeviceError::Failed { device: device.name(), status });
            }
        }
    }
    Ok(())
}

/// Bytes that slots take; see [`super::ExpertDevice::bytes_for`].
pub fn bytes_for(device: DeviceHandle, matrices: &[SlotShape], slots: u32) -> ByteSize {
    let context = ScratchContext::new(matrices.len() + 1);
    let tensors: Vec<_> = matrices.iter().map(|matrix| matrix.tensor(&context, slots)).collect();
    ByteSize(end(device, &tensors) as u64)
}

/// Offsets and sizes of tensors placed one after the other.
fn places(device: DeviceHandle, tensors: &[*mut sys::ggml_tensor]) -> impl Iterator<Item = (usize, usize)> {
    let buffers = device.buffer_type().as_raw();
    // SAFETY: a live buffer type.
    let alignment = unsafe { sys::ggml_backend_buft_get_alignment(buffers) };
    let mut next = 0usize;
    tensors.iter().map(move |&tensor| {
        // SAFETY: a live buffer type and tensor.
        let size = unsafe { sys::ggml_backend_buft_get_alloc_size(buffers, tensor) };
        // A server may name any size; what fits nowhere is refused.
        let at = next.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        next = at.saturating_add(size);
        (at, size)
    })
}

/// Bytes that tensors take, placed one after the other.
fn end(device: DeviceHandle, tensors: &[*mut sys::ggml_tensor]) -> usize {
    places(device, tensors).last().map_or(0, |(at, size)| at.saturating_add(size))
}

/// ggml's name of a node's operation.
pub fn op_name(node: *const sys::ggml_tensor) -> &'static str {
    // SAFETY: a live node of ours, whose operation has a static name.
    unsafe { CStr::from_ptr(sys::ggml_op_desc(node)) }.to_str().unwrap_or("?")
}

/// Allocates memory of the device.
pub fn allocate(device: DeviceHandle, bytes: ByteSize) -> Result<OwnedBuffer, ExpertDeviceError> {
    let no_room = || ExpertDeviceError::Memory { device: device.name(), bytes };
    let size = usize::try_from(bytes.bytes()).map_err(|_| no_room())?;
    // SAFETY: a live device's buffer type; the result is owned.
    let buffer = unsafe { sys::ggml_backend_buft_alloc_buffer(device.buffer_type().as_raw(), size) };
    NonNull::new(buffer).map(OwnedBuffer).ok_or_else(no_room)
}
