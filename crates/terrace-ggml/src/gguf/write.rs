//! Writes the header of a GGUF file: metadata and the tensor table.
//!
//! The bytes come from ggml's own writer, so every reader accepts them. The caller writes the data,
//! each tensor at [`Header::data_offset`] plus its [`Header::tensor_offset`].

use super::error::GgufError;
use super::file::open_context;
use super::types;
use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::collections::HashSet;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use terrace_model::{Shape, TensorType};

/// ggml's `GGML_QNT_VERSION`, which the bindings lack: the version of its block formats.
const QUANTIZATION_VERSION: u32 = 2;

/// A metadata value with its width on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    ArrayU32(Vec<u32>),
    ArrayU64(Vec<u64>),
    ArrayI32(Vec<i32>),
    ArrayF32(Vec<f32>),
    ArrayBool(Vec<bool>),
    ArrayStr(Vec<String>),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
value_from! {
    u16 => U16, u32 => U32, i32 => I32, u64 => U64, f32 => F32, bool => Bool, &str => Str, String => Str,
    Vec<u32> => ArrayU32, Vec<u64> => ArrayU64, Vec<i32> => ArrayI32, Vec<f32> => ArrayF32, Vec<bool> => ArrayBool,
    Vec<String> => ArrayStr,
}

/// Why a GGUF header cannot hold something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A zero byte, which ends a C string.
    #[error("`{0}` contains a NUL byte")]
    ZeroByte(String),
    #[error("a metadata key is empty")]
    EmptyKey,
    /// An alignment that is not a power of two of at least 8 bytes, or was set after the first
    /// tensor.
    #[error("`general.alignment` must be a u32, a power of two, at least 8, and set before the first tensor")]
    Alignment,
    /// A tensor name that ggml cannot hold.
    #[error("tensor name `{0}` is empty or longer than 63 bytes")]
    NameLength(String),
    /// Two tensors have the same name.
    #[error("duplicate tensor `{0}`")]
    Duplicate(String),
    /// A shape that is impossible with the type.
    #[error("tensor `{name}`: shape {shape} does not make whole {ty} rows, or exceeds 2^63 bytes")]
    Shape {
        name: String,
        shape: Shape,
        /// Its type.
        ty: String,
    },
    /// A type that ggml does not know.
    #[error("tensor `{name}`: unknown tensor type {id}")]
    Type {
        name: String,
        /// The number of its type.
        id: u32,
    },
}

/// A GGUF header that is being built.
pub struct Header {
    ctx: NonNull<sys::gguf_context>,
    names: HashSet<String>,
}

// SAFETY: the context is plain memory without thread affinity, and `Header` is its only owner.
unsafe impl Send for Header {}

impl Default for Header {
    fn default() -> Self {
        Self::new()
    }
}

impl Header {
    /// An empty header.
    pub fn new() -> Self {
        // SAFETY: has no preconditions.
        let ctx = unsafe { sys::gguf_init_empty() };
        Self { ctx: NonNull::new(ctx).expect("ggml allocates or aborts"), names: HashSet::new() }
    }

    /// Sets a metadata value, replacing an earlier one of the same key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<(), HeaderError> {
        let value = value.into();
        if key.is_empty() {
            return Err(HeaderError::EmptyKey);
        }
        if key == "general.alignment" {
            // The writer aborts on other values, and after the first tensor, offsets already
            // returned would be wrong.
            let fits = matches!(value, Value::U32(n) if n >= 8 && n.is_power_of_two());
            if !fits || !self.names.is_empty() {
                return Err(HeaderError::Alignment);
            }
        }
        let c_key = c_string(key)?;
        let (ctx, k) = (self.ctx.as_ptr(), c_key.as_ptr());
        let array = |ty, data: *const c_void, len| {
            // SAFETY: the context is live, the key a C string, and `data` is a slice of `len`
            // elements of `ty`; they are copied.
            unsafe { sys::gguf_set_arr_data(ctx, k, ty, data, len) }
        };
        // SAFETY: the context is live and the key (and a string value) a C string; all are copied.
        unsafe {
            match &value {
                Value::U8(v) => sys::gguf_set_val_u8(ctx, k, *v),
                Value::I8(v) => sys::gguf_set_val_i8(ctx, k, *v),
                Value::U16(v) => sys::gguf_set_val_u16(ctx, k, *v),
                Value::I16(v) => sys::gguf_set_val_i16(ctx, k, *v),
                Value::U32(v) => sys::gguf_set_val_u32(ctx, k, *v),
                Value::I32(v) => sys::gguf_set_val_i32(ctx, k, *v),
                Value::U64(v) => sys::gguf_set_val_u64(ctx, k, *v),
                Value::I64(v) => sys::gguf_set_val_i64(ctx, k, *v),
                Value::F32(v) => sys::gguf_set_val_f32(ctx, k, *v),
                Value::F64(v) => sys::gguf_set_val_f64(ctx, k, *v),
                Value::Bool(v) => sys::gguf_set_val_bool(ctx, k, *v),
                Value::Str(v) => sys::gguf_set_val_str(ctx, k, c_string(v)?.as_ptr()),
                Value::ArrayU32(v) => array(sys::GGUF_TYPE_UINT32, v.as_ptr().cast(), v.len()),
                Value::ArrayU64(v) => array(sys::GGUF_TYPE_UINT64, v.as_ptr().cast(), v.len()),
                Value::ArrayI32(v) => array(sys::GGUF_TYPE_INT32, v.as_ptr().cast(), v.len()),
                Value::ArrayF32(v) => array(sys::GGUF_TYPE_FLOAT32, v.as_ptr().cast(), v.len()),
                Value::ArrayBool(v) => array(sys::GGUF_TYPE_BOOL, v.as_ptr().cast(), v.len()),
                Value::ArrayStr(v) => {
                    let strings = v.iter().map(|s| c_string(s)).collect::<Result<Vec<_>, _>>()?;
                    let mut pointers: Vec<*const c_char> = strings.iter().map(|s| s.as_ptr()).collect();
                    sys::gguf_set_arr_str(ctx, k, pointers.as_mut_ptr(), pointers.len());
                }
            }
        }
        Ok(())
    }

    /// Appends all metadata of the file at `path`, in its order and with its widths, except the
    /// alignment, which describes that file's own data.
    ///
    /// # Errors
    /// If the file's header cannot be read.
    pub fn copy_metadata(&mut self, path: &Path) -> Result<(), GgufError> {
        let from = open_context(path)?;
        let alignment = self.alignment();
        // SAFETY: both contexts are live and different; everything is copied.
        unsafe { sys::gguf_set_kv(self.ctx.as_ptr(), from.as_ptr()) };
        debug_assert_eq!(self.alignment(), alignment, "ggml keeps the alignment of data apart from its key");
        self.remove("general.alignment").expect("a constant key");
        Ok(())
    }

    /// Records the version of this ggml's block formats, and the file type if it is known.
    pub fn set_quantization(&mut self, file_type: Option<u32>) -> Result<(), HeaderError> {
        self.set("general.quantization_version", QUANTIZATION_VERSION)?;
        match file_type {
            Some(file_type) => self.set("general.file_type", file_type),
            None => Ok(()),
        }
    }

    /// Removes a metadata value, if it is present.
    pub fn remove(&mut self, key: &str) -> Result<(), HeaderError> {
        let key = c_string(key)?;
        // SAFETY: the context is live and the key a C string.
        unsafe { sys::gguf_remove_key(self.ctx.as_ptr(), key.as_ptr()) };
        Ok(())
    }

    /// Appends a tensor. Returns its index.
    pub fn add_tensor(&mut self, name: &str, ty: WeightType, shape: Shape) -> Result<usize, HeaderError> {
        self.add_tensor_of(name, &ty.describe(), shape)
    }

    /// Appends a tensor of any type that ggml knows. Returns its index.
    pub fn add_tensor_of(&mut self, name: &str, ty: &TensorType, shape: Shape) -> Result<usize, HeaderError> {
        let Some(ty) = types::describe(ty.id).filter(|known| known == ty) else {
            return Err(HeaderError::Type { name: name.to_owned(), id: ty.id });
        };
        let shape_error = || HeaderError::Shape { name: name.to_owned(), shape, ty: ty.name.clone() };
        let c_name = c_string(name)?;
        if name.is_empty() || name.len() > 63 {
            return Err(HeaderError::NameLength(name.to_owned()));
        }
        if self.names.contains(name) {
            return Err(HeaderError::Duplicate(name.to_owned()));
        }
        let blocks = shape.0[0]
            .is_multiple_of(ty.block_elements.into())
            .then_some(shape.0[0] / u64::from(ty.block_elements));
        let row =
            blocks.and_then(|blocks| blocks.checked_mul(ty.block_bytes.into())).filter(|&bytes| bytes > 0);
        let row = row.ok_or_else(shape_error)?;
        let size = shape.0[1..].iter().try_fold(row, |bytes, &n| bytes.checked_mul(n));
        size.filter(|&bytes| bytes > 0 && i64::try_from(bytes).is_ok()).ok_or_else(shape_error)?;
        // SAFETY: the struct is plain C data (integers, raw pointers), for which all zeros is a
        // valid value.
        let mut tensor: sys::ggml_tensor = unsafe { std::mem::zeroed() };
        tensor.type_ = ty.id;
        tensor.nb[0] = ty.block_bytes as usize;
        for (dim, &n) in shape.0.iter().enumerate() {
            tensor.ne[dim] = i64::try_from(n).map_err(|_| shape_error())?;
            if dim > 0 {
                let rows = if dim == 1 { 1 } else { shape.0[dim - 1] };
                tensor.nb[dim] = if dim == 1 { row as usize } else { tensor.nb[dim - 1] * rows as usize };
            }
        }
        for (to, &from) in tensor.name.iter_mut().zip(c_name.as_bytes_with_nul()) {
            *to = from as c_char;
        }
        // SAFETY: the context is live, the tensor complete (name terminated, strides set) and its
        // name new; ggml copies it.
        unsafe { sys::gguf_add_tensor(self.ctx.as_ptr(), &tensor) };
        self.names.insert(name.to_owned());
        Ok(self.names.len() - 1)
    }

    /// The context, for calls that read it.
    #[cfg(feature = "testing")]
    pub(crate) fn as_ptr(&self) -> *mut sys::gguf_context {
        self.ctx.as_ptr()
    }

    /// Number of tensors.
    pub fn tensors(&self) -> usize {
        self.names.len()
    }

    /// Offset of a tensor's data in bytes, relative to [`Header::data_offset`].
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn tensor_offset(&self, index: usize) -> u64 {
        assert!(index < self.tensors(), "tensor {index} of {}", self.tensors());
        // SAFETY: the context is live and the index in range.
        unsafe { sys::gguf_get_tensor_offset(self.ctx.as_ptr(), index as i64) as u64 }
    }

    /// Alignment of the data, in bytes.
    pub fn alignment(&self) -> u64 {
        // SAFETY: the context is live.
        unsafe { sys::gguf_get_alignment(self.ctx.as_ptr()) as u64 }
    }

    /// File offset of the data: the header's length, padded to the alignment.
    pub fn data_offset(&self) -> u64 {
        // SAFETY: the context is live.
        unsafe { sys::gguf_get_meta_size(self.ctx.as_ptr()) as u64 }
    }

    /// The header's bytes, padded.
    pub fn to_bytes(&self) -> Vec<u8> {
        // SAFETY: the context is live.
        let len = unsafe { sys::gguf_get_meta_size(self.ctx.as_ptr()) };
        let mut bytes = vec![0u8; len];
        // SAFETY: the context is live, and the buffer has the length that ggml reported.
        unsafe { sys::gguf_get_meta_data(self.ctx.as_ptr(), bytes.as_mut_ptr().cast()) };
        bytes
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: the context came from gguf_init_empty, and nothing else refers to it.
        unsafe { sys::gguf_free(self.ctx.as_ptr()) };
    }
}

fn c_string(text: &str) -> Result<CString, HeaderError> {
    CString::new(text).map_err(|_| HeaderError::ZeroByte(text.replace('\0', "\\0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_aligned_and_in_order() {
        let mut header = Header::new();
        header.set("general.architecture", "test").unwrap();
        header.set("test.names", vec!["a".to_owned(), "b".to_owned()]).unwrap();
        header.add_tensor("a", WeightType::F32, Shape([3, 1, 1, 1])).unwrap();
        header.add_tensor("b", WeightType::Q4_K, Shape([256, 2, 3, 1])).unwrap();
        header.add_tensor("c", WeightType::F16, Shape([1, 1, 1, 1])).unwrap();
        assert_eq!(header.tensor_offset(0), 0);
        assert_eq!(header.tensor_offset(1), 32);
        assert_eq!(header.tensor_offset(2), 32 + 6 * 144);
        let bytes = header.to_bytes();
        assert_eq!(&bytes[..4], b"GGUF");
        assert_eq!(bytes.len() as u64, header.data_offset());
        assert!(header.data_offset().is_multiple_of(header.alignment()));
    }

    #[test]
    fn refuses_what_ggml_would_abort_on() {
        let mut header = Header::new();
        assert_eq!(header.set("", 1u32), Err(HeaderError::EmptyKey));
        assert_eq!(header.set("general.alignment", 24u32), Err(HeaderError::Alignment));
        assert!(matches!(header.set("a", "b\0c"), Err(HeaderError::ZeroByte(_))));
        header.add_tensor("a", WeightType::F32, Shape([3, 1, 1, 1])).unwrap();
        assert_eq!(header.set("general.alignment", 64u32), Err(HeaderError::Alignment));
        let again = header.add_tensor("a", WeightType::F32, Shape([3, 1, 1, 1]));
        assert_eq!(again, Err(HeaderError::Duplicate("a".into())));
        for shape in [Shape([255, 1, 1, 1]), Shape([0, 1, 1, 1]), Shape([256, u64::MAX, 1, 1])] {
            let result = header.add_tensor("b", WeightType::Q4_K, shape);
            assert!(matches!(result, Err(HeaderError::Shape { .. })), "{shape}");
        }
    }
}
