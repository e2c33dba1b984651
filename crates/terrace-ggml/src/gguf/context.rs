//! An owned `gguf_context`.

use llama_cpp_sys_2 as sys;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::ptr::NonNull;
use terrace_model::{MetaValue, ModelFile};
use terrace_platform::{file::reopening_path, names};

/// A parsed header. Indices passed to its methods must be below the counts that it reports: ggml
/// aborts otherwise, so the methods assert it first.
pub struct Context(NonNull<sys::gguf_context>);

/// A row of the tensor table.
pub struct Row {
    pub name: String,
    pub ty: u32,
    /// Byte offset from the start of the file's data section.
    pub offset: u64,
    pub bytes: u64,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the pointer came from gguf_init_from_file and is freed once.
        unsafe { sys::gguf_free(self.0.as_ptr()) }
    }
}

impl Context {
    /// Parses the header of an open file; `None` if ggml refuses it (it logs why). ggml opens files
    /// by path, and by this one it gets this file, whatever has been renamed to its old path.
    pub fn open(file: &File) -> Option<Self> {
        let path = names::c_string(&reopening_path(file)?).ok()?;
        let params = sys::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
        // SAFETY: `path` is zero-terminated and outlives the call; a null `ctx` asks for no
        // tensors.
        NonNull::new(unsafe { sys::gguf_init_from_file(path.as_ptr(), params) }).map(Self)
    }

    pub fn as_ptr(&self) -> *const sys::gguf_context {
        self.0.as_ptr()
    }

    pub fn version(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::gguf_get_version(self.0.as_ptr()) }
    }

    pub fn alignment(&self) -> u64 {
        // SAFETY: the context is alive.
        unsafe { sys::gguf_get_alignment(self.0.as_ptr()) as u64 }
    }

    pub fn data_offset(&self) -> u64 {
        // SAFETY: the context is alive.
        unsafe { sys::gguf_get_data_offset(self.0.as_ptr()) as u64 }
    }

    pub fn tensor_count(&self) -> usize {
        // SAFETY: the context is alive.
        let count = unsafe { sys::gguf_get_n_tensors(self.0.as_ptr()) };
        usize::try_from(count).expect("ggml counts what it holds in memory")
    }

    pub fn tensor(&self, index: usize) -> Row {
        assert!(index < self.tensor_count());
        let ctx = self.0.as_ptr();
        let id = index as i64;
        // SAFETY: the context is alive and the index in range; the name is zero-terminated and
        // lives in the context.
        unsafe {
            Row {
                name: text(sys::gguf_get_tensor_name(ctx, id)),
                ty: sys::gguf_get_tensor_type(ctx, id),
                offset: sys::gguf_get_tensor_offset(ctx, id) as u64,
                bytes: sys::gguf_get_tensor_size(ctx, id) as u64,
            }
        }
    }

    /// All key-value pairs. Arrays longer than [`ModelFile::MAX_ARRAY`] are represented by their
    /// length alone.
    pub fn metadata(&self) -> BTreeMap<String, MetaValue> {
        let ctx = self.0.as_ptr();
        // SAFETY: the context is alive.
        let count = unsafe { sys::gguf_get_n_kv(ctx) };
        // SAFETY: the context is alive, the index below the count, keys are zero-terminated.
        (0..count).map(|i| unsafe { (text(sys::gguf_get_key(ctx, i)), self.value(i)) }).collect()
    }

    /// The texts of an array of strings, whatever its length; none if there is no such array.
    pub fn strings(&self, key: &str) -> Vec<String> {
        let Ok(key) = CString::new(key) else { return Vec::new() };
        let ctx = self.0.as_ptr();
        // SAFETY: the context is alive, the key zero-terminated; the index that is found is that of a pair,
        // of which the type is looked at first; elements are read below their number.
        unsafe {
            let id = sys::gguf_find_key(ctx, key.as_ptr());
            let is_array = id >= 0 && sys::gguf_get_kv_type(ctx, id) == sys::GGUF_TYPE_ARRAY;
            if !is_array || sys::gguf_get_arr_type(ctx, id) != sys::GGUF_TYPE_STRING {
                return Vec::new();
            }
            let count = sys::gguf_get_arr_n(ctx, id);
            (0..count).map(|index| text(sys::gguf_get_arr_str(ctx, id, index))).collect()
        }
    }

    /// # Safety
    /// `id` must be the index of a pair.
    unsafe fn value(&self, id: i64) -> MetaValue {
        let ctx = self.0.as_ptr();
        // SAFETY: `id` is valid by the function's contract; every value is read by the accessor of
        // its own type, which ggml asserts; arrays are read below their length.
        unsafe {
            match sys::gguf_get_kv_type(ctx, id) {
                sys::GGUF_TYPE_STRING => MetaValue::Str(text(sys::gguf_get_val_str(ctx, id))),
                sys::GGUF_TYPE_ARRAY => {
                    let len = sys::gguf_get_arr_n(ctx, id);
                    if len > ModelFile::MAX_ARRAY {
                        return MetaValue::LongArray(len as u64);
                    }
                    let ty = sys::gguf_get_arr_type(ctx, id);
                    let element = |i| {
                        if ty == sys::GGUF_TYPE_STRING {
                            MetaValue::Str(text(sys::gguf_get_arr_str(ctx, id, i)))
                        } else {
                            scalar(ty, sys::gguf_get_arr_data(ctx, id).cast(), i)
                        }
                    };
                    MetaValue::Array((0..len).map(element).collect())
                }
                ty => scalar(ty, sys::gguf_get_val_data(ctx, id).cast(), 0),
            }
        }
    }
}

/// Text from a file. Invalid UTF-8 is replaced; only metadata can contain any, since tensor names
/// have been checked.
///
/// # Safety
/// `text` must point to a zero-terminated string.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `data` must point to more than `index` values of the metadata type `ty`, at any alignment.
unsafe fn scalar(ty: sys::gguf_type, data: *const u8, index: usize) -> MetaValue {
    /// # Safety
    /// As above, with `T` the Rust type of `ty`.
    unsafe fn get<T: Copy>(data: *const u8, index: usize) -> T {
        // SAFETY: the function's contract. The read is unaligned because ggml keeps values in a
        // vector of bytes.
        unsafe { data.cast::<T>().add(index).read_unaligned() }
    }
    let integer = |n: i64| u64::try_from(n).map_or(MetaValue::I64(n), MetaValue::U64);
    // SAFETY: each arm reads the Rust type of `ty`.
    unsafe {
        match ty {
            sys::GGUF_TYPE_UINT8 => MetaValue::U64(get::<u8>(data, index).into()),
            sys::GGUF_TYPE_INT8 => integer(get::<i8>(data, index).into()),
            sys::GGUF_TYPE_UINT16 => MetaValue::U64(get::<u16>(data, index).into()),
            sys::GGUF_TYPE_INT16 => integer(get::<i16>(data, index).into()),
            sys::GGUF_TYPE_UINT32 => MetaValue::U64(get::<u32>(data, index).into()),
            sys::GGUF_TYPE_INT32 => integer(get::<i32>(data, index).into()),
            sys::GGUF_TYPE_FLOAT32 => MetaValue::F64(get::<f32>(data, index).into()),
            sys::GGUF_TYPE_UINT64 => MetaValue::U64(get::<u64>(data, index)),
            sys::GGUF_TYPE_INT64 => integer(get::<i64>(data, index)),
            sys::GGUF_TYPE_FLOAT64 => MetaValue::F64(get::<f64>(data, index)),
            // ggml stores a boolean as a byte and accepts no other type.
            _ => MetaValue::Bool(get::<u8>(data, index) != 0),
        }
    }
}
